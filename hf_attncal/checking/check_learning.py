"""Learn the model of `attncal check` from clean text and from errors planted into it, once for each aligner."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.segmentation import segment, white_space_words
from hf_attncal.data.streams import rows_of_files
from hf_attncal.data.synthetic.translation_errors import Pair, plant_errors
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.gate import hold

from .check_model import (
    CAUSES,
    CHECK_FILE,
    PLANTED,
    CheckModel,
    Sides,
    Vocabulary,
    columns_of,
    fit_lengths,
    fit_logistic,
    fit_table,
    scaled_features,
    seen,
)
from .checker import VERDICTS, Checker
from .evidence import LinkEvidence, read_evidence, script_shares
from .facts import FACT_GROUPS, FactModel, fact_features, fit_fact_table

SAMPLE = 2000  # clean pairs that errors are planted into
_FEWEST = 50
_LENGTHS = (6, 10, 16, 25, 40)  # source words: as many pairs of each length are drawn, where there are
_FALSE_ALARMS = 0.004  # share of clean lines that one verdict flags
_FALSE_ALARMS_OF_FACTS = 0.001  # one word is little to go by
_NEVER = 30.0  # log-odds against what was never seen
_KEPT = 0.35  # share of the planted errors that are learned from
Line = tuple[LinkEvidence, Sides]


def learn_check(
    aligner: WordAligner, pairs: Iterable[tuple[str, str]], sample: int = SAMPLE, seed: int = 0
) -> CheckModel:
    """Learn what good pairs look like to an aligner.

    All pairs are read for how frequent words are; a sample, drawn so that long lines are not outnumbered, is aligned,
    as it is and with planted errors. Nothing annotated is needed.

    Args:
        aligner: of two directions.
        pairs: clean (source, target) texts, best those the aligner was trained on.
        sample: how many pairs are drawn.
        seed: of the sample and of the errors.

    Raises:
        ValueError: fewer than 50 pairs have two words or more on both sides.
    """
    rng = random.Random(seed)
    cut = segment if aligner.source.tokenize else white_space_words
    drawn = _Sample(sample, rng)
    with_numbers = _Sample(sample // 2, random.Random(seed), _has_number)  # rare in many texts
    passing = drawn.passing((cut(source).words, cut(target).words) for source, target in pairs)
    vocabulary = Vocabulary.of(with_numbers.passing(passing))
    chosen = drawn.pairs()
    if len(chosen) < _FEWEST:
        raise ValueError(
            f"`pairs` must be {_FEWEST} or more with two words or more on both sides, got {len(chosen)}. Give clean "
            "text, best what the aligner was trained on."
        )
    half = len(chosen) // 4  # some in pairs: lines of several sentences may be missing
    joined = [
        (first[0] + second[0], first[1] + second[1])
        for first, second in zip(chosen[:half], chosen[half : 2 * half], strict=True)
    ]
    clean = chosen + joined
    errors = plant_errors(clean, PLANTED, seed)
    planted = [error for error in errors if error.kind == "detached" or rng.random() < _KEPT]
    kinds = np.array([error.kind for error in planted])

    good = _read(aligner, vocabulary, clean)
    bad = _read(aligner, vocabulary, [(error.source, error.target) for error in planted])
    apart = [line for line, kind in zip(bad, kinds, strict=True) if kind == "detached"]
    model = CheckModel(
        vocabulary,
        tuple(script_shares(" ".join(pair[side]) for pair in chosen) for side in (0, 1)),
        fit_table(good, apart),
        fit_table(good, apart, "known") if good[0][0].known is not None else None,
        fit_lengths(_texts(clean)),
        scale=np.zeros((2, 0)),
        heads={},
        alarms=dict.fromkeys(VERDICTS, 0.5),
        learned={"pairs": drawn.seen, "sample": len(chosen), "seed": seed},
    )
    _fit_heads(model, *(_features(model, lines) for lines in (good, bad)), kinds)
    model.facts = _fit_facts(aligner, list(dict.fromkeys(chosen + with_numbers.pairs())), seed)
    verdicts = Checker(aligner, model).check(_texts(chosen))
    for name in VERDICTS:
        allowed = _FALSE_ALARMS_OF_FACTS if name == "changed" else _FALSE_ALARMS
        highest = np.quantile([getattr(verdict, name) for verdict in verdicts], 1 - allowed)
        model.alarms[name] = max(0.5, float(highest))
    return model


@dataclass(frozen=True)
class LearnedCheck:
    """What was learned: the file that it is in, and from how many pairs."""

    path: Path
    pairs: int

    def __str__(self) -> str:
        return f"wrote {self.path}, learned from {self.pairs} pairs"


def learn_check_beside(
    aligner: WordAligner, folder: str | Path | None, sources: Sequence[str], targets: Sequence[str], longest_line: int
) -> LearnedCheck:
    """Learn from files of clean text what good pairs look like, and write it beside the aligner.

    Args:
        aligner: of two directions.
        folder: where it was loaded from.
        sources, targets: files, line n of each source with line n of its target.
        longest_line: most bytes of a line.

    Raises:
        CommandError: there is no such folder, a line cannot be read, or too few pairs.
    """
    if folder is None or not Path(folder).is_dir():
        raise CommandError(f"{folder} is no folder, into which {CHECK_FILE} could be written. Download it first.")
    hold(folder)
    files = zip(sources, targets, strict=True)
    with user_errors():
        model = learn_check(
            aligner, (pair for pair_of_files in files for pair in rows_of_files(pair_of_files, longest_line))
        )
    return LearnedCheck(model.save(folder), model.learned["pairs"])


class _Sample:
    """Pairs drawn evenly among those of a length, and evenly among lengths, while all pass by (reservoir sampling).

    Args:
        size: how many. rng: draws them.
        wanted: which may be drawn.

    Attributes:
        seen: pairs that could be drawn.
    """

    def __init__(self, size: int, rng: random.Random, wanted: Callable[[Pair], bool] = lambda pair: True):
        self._size, self._rng, self._wanted, self.seen = size, rng, wanted, 0
        self._drawn: list[list[Pair]] = [[] for _ in range(len(_LENGTHS) + 1)]
        self._passed = [0] * len(self._drawn)

    def passing(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            if min(map(len, pair)) >= 2 and self._wanted(pair):
                self.seen += 1
                group = int(np.searchsorted(_LENGTHS, len(pair[0]), side="right"))
                drawn, self._passed[group] = self._drawn[group], self._passed[group] + 1
                if len(drawn) < self._size:
                    drawn.append(pair)
                elif (place := self._rng.randrange(self._passed[group])) < self._size:
                    drawn[place] = pair
            yield pair

    def pairs(self) -> list[Pair]:
        """Draw pairs of all lengths evenly; none has more than its share and what others leave."""
        left, chosen = self._size, []
        for number, drawn in enumerate(sorted(self._drawn, key=len)):
            share = left // (len(self._drawn) - number)
            chosen += self._rng.sample(drawn, min(share, len(drawn)))
            left = self._size - len(chosen)
        self._rng.shuffle(chosen)
        return chosen


def _has_number(pair: Pair) -> bool:
    return any(any(map(str.isdigit, word)) for side in pair for word in side)


def _read(aligner: WordAligner, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[Line]:
    found = read_evidence(aligner, _texts(pairs))
    return [(evidence, seen(vocabulary, evidence)) for evidence in found]


def _features(model: CheckModel, lines: Sequence[Line]) -> np.ndarray:
    return np.array([model.features(*line, model.words(*line)) for line in lines])


def _fit_facts(aligner: WordAligner, clean: Sequence[Pair], seed: int) -> FactModel:
    """Learn what numbers, negations and names say, from clean pairs and from pairs in which one was changed."""
    errors = plant_errors(clean, FACT_GROUPS, seed)
    good = read_evidence(aligner, _texts(clean))
    bad = read_evidence(aligner, _texts((error.source, error.target) for error in errors))
    planted = [
        (line, error.kind, (error.left_out or (), error.made_up))
        for line, error in zip(bad, errors, strict=True)
        if (line.source.words, line.target.words) == (error.source, error.target)  # else words are cut otherwise
    ]
    field = "known" if good[0].known is not None else "best"
    table = fit_fact_table(good, planted, field)
    model = FactModel(table, np.array([-_NEVER] + [0.0] * 2 * len(FACT_GROUPS)), field)
    groups = [good, *([line for line, of, _ in planted if of == kind] for kind in FACT_GROUPS)]
    groups = [lines for lines in groups if lines]
    if len(groups) == 1:  # nothing could be planted
        return model
    sizes, kinds = [len(lines) for lines in groups], len(groups) - 1
    values = np.array([fact_features(model.evidence(line)) for lines in groups for line in lines])
    truths = np.repeat([0.0] + [1.0] * kinds, sizes)
    weights = np.repeat([1 / sizes[0]] + [1 / size / kinds for size in sizes[1:]], sizes)
    return FactModel(table, fit_logistic(values, truths, weights), field)


def _texts(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    return [(" ".join(source), " ".join(target)) for source, target in pairs]


def _fit_heads(model: CheckModel, good: np.ndarray, bad: np.ndarray, kinds: np.ndarray) -> None:
    """Learn the causes from features of clean and of planted lines; each group weighs the same, however large."""
    model.scale = np.stack([good.mean(axis=0), good.std(axis=0) + 1e-6])
    good, bad = scaled_features(good, model.scale), scaled_features(bad, model.scale)
    for name, cause in CAUSES.items():
        groups = [(good, 0.0, 1.0), (bad[np.isin(kinds, cause.kinds)], 1.0, 1.0)]
        if cause.others:
            groups.append((bad[np.isin(kinds, cause.others)], 0.0, 0.5))
        lines = np.concatenate([group for group, *_ in groups])[:, columns_of(name)]
        truths = np.concatenate([np.full(len(group), truth) for group, truth, _ in groups])
        weights = np.concatenate([np.full(len(group), weight / len(group)) for group, _, weight in groups])
        model.heads[name] = fit_logistic(lines, truths, weights)
