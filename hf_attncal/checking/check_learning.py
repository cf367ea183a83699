"""Learn the model of `attncal check` from clean text and from errors planted into it, once for each aligner."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.segmentation import segment, white_space_words
from hf_attncal.data.streams import rows_of_files
from hf_attncal.data.synthetic.translation_errors import Pair, plant_errors
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.gate import hold
from hf_attncal.messages import half_minutes

from .check_model import (
    CAUSES,
    CHECK_FILE,
    CLEAN_SHARES,
    PARTS,
    PLANTED,
    VERDICT_FEATURES,
    CheckModel,
    columns_of,
    fit_lengths,
    fit_table,
)
from .evidence import LinkEvidence, read_evidence, script_shares
from .facts import FACT_GROUPS, PLANTED_FACTS, BothDenials, DenialCounts, FactModel, fact_features, fit_fact_table
from .logistic import fit_logistic, scaled_features
from .number_values import Languages
from .rules import fit_rules
from .word_classes import Sides, Vocabulary, seen

SAMPLE = 2000  # clean pairs that errors are planted into
_FEWEST = 50
_LENGTHS = (6, 10, 16, 25, 40)  # source words: as many pairs of each length are drawn, where there are
FALSE_ALARMS = 0.01  # share of clean lines that are flagged
_NO_ALARM = 1.0
_MIXED = 0.03  # share of flagged lines from which a part is another text
_DIRTY, _CLEAN_ENOUGH = 0.5, 0.7
_DIRT = (
    "omission",
    "truncation",
    "replacement",
    "detached",
    "insertion",
)  # planted errors that misalignments look like
_NEVER = 30.0  # log-odds against what was never seen
_KEPT = 0.35  # share of the planted errors that are learned from
Line = tuple[LinkEvidence, Sides]
Changed = tuple[LinkEvidence, str, tuple[Sequence[int], Sequence[int]]]  # with the kind, and the words of both sides


def learn_check(
    aligner: WordAligner,
    pairs: Iterable[tuple[str, str]],
    sample: int = SAMPLE,
    seed: int = 0,
    step: Callable[..., None] = lambda name, done=0.0: None,
) -> CheckModel:
    """Learn what good pairs look like to an aligner.

    All pairs are read for how frequent words are; a sample, drawn so that long lines are not outnumbered, is aligned,
    as it is and with planted errors. Nothing annotated is needed.

    Args:
        aligner: of two directions.
        pairs: clean (source, target) texts, best those the aligner was trained on.
        sample: how many pairs are drawn.
        seed: of the sample and of the errors.
        step: is told what begins, and how much is done by then (`messages.half_minutes`).

    Raises:
        ValueError: fewer than 50 pairs have two words or more on both sides.
    """
    step("counting the words of all pairs")
    rng = random.Random(seed)
    cut = segment if aligner.source.tokenize else white_space_words
    drawn = _Sample(sample, rng)
    with_numbers = _Sample(sample // 2, random.Random(seed), _has_number)  # rare in many texts
    passing = drawn.passing((cut(source).words, cut(target).words) for source, target in pairs)
    denials = DenialCounts()
    vocabulary = Vocabulary.of(denials.passing(with_numbers.passing(passing)))
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

    to_read = len(clean) + len(planted) + 3 * len(chosen)
    step(f"reading {len(clean):,} clean pairs")
    good = _read(aligner, vocabulary, clean)
    step(f"reading {len(planted):,} pairs with planted errors", len(clean) / to_read)
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
        verdict=np.zeros(1 + VERDICT_FEATURES),
        alarm=_NO_ALARM,
        learned={"pairs": drawn.seen, "sample": len(chosen), "seed": seed},
        denials=denials.found(),
    )
    good_values, bad_values = (_features(model, lines) for lines in (good, bad))
    _fit_heads(model, good_values, bad_values, kinds)
    kept = _trimmed(model, good_values)  # text that is held to be clean has lines that do not belong together
    _fit_heads(model, good_values[kept], bad_values, kinds)
    model.rules = fit_rules(
        [line for (line, _), one in zip(good, kept, strict=True) if one], vocabulary.languages, model.denials
    )
    step("reading changed numbers, negations and names", 1 - 3 * len(chosen) / to_read)
    facts, changed = _read_facts(aligner, list(dict.fromkeys(chosen + with_numbers.pairs())), seed)
    facts = [
        line
        for line, kept in zip(facts, _trimmed(model, _features(model, _with_sides(vocabulary, facts))), strict=True)
        if kept
    ]
    model.facts = _fit_facts(facts, changed, vocabulary.languages, model.denials)
    of_kinds = {kind: [line for (line, _), of in zip(bad, kinds, strict=True) if of == kind] for kind in PLANTED}
    of_kinds |= {kind: [line for line, of, _ in changed if of == kind] for kind in PLANTED_FACTS}
    flagged = _fit_verdict(model, [line for line, _ in good], kept, of_kinds)[: len(chosen)]
    tenths = np.array(drawn.numbers) * PARTS // drawn.seen
    model.parts = [float(flagged[tenths == part].mean()) if (tenths == part).any() else 0.0 for part in range(PARTS)]
    return model


@dataclass(frozen=True)
class LearnedCheck:
    """What was learned: the file that it is in, and from how many pairs.

    Args:
        parts: see `CheckModel.parts`.
    """

    path: Path
    pairs: int
    parts: tuple[float, ...] = ()

    def __str__(self) -> str:
        told = f"wrote {self.path}, learned from {self.pairs} pairs"
        if not self.parts or max(self.parts) < max(_MIXED, 3 * float(np.median(self.parts))):
            return told
        worst = self.parts.index(max(self.parts))
        first, last = (self.pairs * part // len(self.parts) for part in (worst, worst + 1))
        usual = 100 * float(np.median(self.parts))
        return (
            f"{told}\nThe text is a mixture: {100 * max(self.parts):.1f} % of pairs {first + 1:,} to {last:,} are "
            f"flagged, and {usual:.1f} % of a usual tenth. --false-alarms 1% sets the alarm on what is checked."
        )


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
    with user_errors(), half_minutes("learning what good pairs look like") as step:
        rows = (pair for pair_of_files in files for pair in rows_of_files(pair_of_files, longest_line))
        model = learn_check(aligner, rows, step=step)
    return LearnedCheck(model.save(folder), model.learned["pairs"], tuple(model.parts))


class _Sample:
    """Pairs drawn evenly among those of a length, and evenly among lengths, while all pass by (reservoir sampling).

    Args:
        size: how many. rng: draws them.
        wanted: which may be drawn.

    Attributes:
        seen: pairs that could be drawn. numbers: of those that `pairs` drew, among them, from 0.
    """

    def __init__(self, size: int, rng: random.Random, wanted: Callable[[Pair], bool] = lambda pair: True):
        self._size, self._rng, self._wanted, self.seen = size, rng, wanted, 0
        self._drawn: list[list[tuple[int, Pair]]] = [[] for _ in range(len(_LENGTHS) + 1)]
        self._passed = [0] * len(self._drawn)

    def passing(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            if min(map(len, pair)) >= 2 and self._wanted(pair):
                self.seen += 1
                group = int(np.searchsorted(_LENGTHS, len(pair[0]), side="right"))
                drawn, self._passed[group] = self._drawn[group], self._passed[group] + 1
                if len(drawn) < self._size:
                    drawn.append((self.seen - 1, pair))
                elif (place := self._rng.randrange(self._passed[group])) < self._size:
                    drawn[place] = self.seen - 1, pair
            yield pair

    def pairs(self) -> list[Pair]:
        """Draw pairs of all lengths evenly; none has more than its share and what others leave."""
        left = self._size
        chosen: list[tuple[int, Pair]] = []
        for number, drawn in enumerate(sorted(self._drawn, key=len)):
            share = left // (len(self._drawn) - number)
            chosen += self._rng.sample(drawn, min(share, len(drawn)))
            left = self._size - len(chosen)
        self._rng.shuffle(chosen)
        self.numbers = [number for number, _ in chosen]
        return [pair for _, pair in chosen]


def _has_number(pair: Pair) -> bool:
    return any(any(map(str.isdigit, word)) for side in pair for word in side)


def _read(aligner: WordAligner, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[Line]:
    return _with_sides(vocabulary, read_evidence(aligner, _texts(pairs)))


def _with_sides(vocabulary: Vocabulary, found: Sequence[LinkEvidence]) -> list[Line]:
    return [(evidence, seen(vocabulary, evidence)) for evidence in found]


def _features(model: CheckModel, lines: Sequence[Line]) -> np.ndarray:
    return np.array([model.features(*line, model.words(*line)) for line in lines])


def _read_facts(aligner: WordAligner, clean: Sequence[Pair], seed: int) -> tuple[list[LinkEvidence], list[Changed]]:
    """Read clean pairs, and pairs in which a number, a negation or a name was changed."""
    errors = plant_errors(clean, PLANTED_FACTS, seed)
    good = read_evidence(aligner, _texts(clean))
    bad = read_evidence(aligner, _texts((error.source, error.target) for error in errors))
    return good, [
        (line, error.kind, (error.left_out or (), error.made_up))
        for line, error in zip(bad, errors, strict=True)
        if (line.source.words, line.target.words) == (error.source, error.target)  # else words are cut otherwise
    ]


def _fit_facts(
    good: Sequence[LinkEvidence], changed: Sequence[Changed], languages: Languages, denials: BothDenials
) -> FactModel:
    """Learn what numbers, negations and names say."""
    field = "known" if good[0].known is not None else "best"
    table = fit_fact_table(good, changed, field, languages, denials)
    model = FactModel(table, np.array([-_NEVER] + [0.0] * 2 * len(FACT_GROUPS)), field)
    groups = [good, *([line for line, of, _ in changed if of == kind] for kind in PLANTED_FACTS)]
    groups = [lines for lines in groups if lines]
    if len(groups) == 1:  # nothing could be planted
        return model
    values = [
        np.array([fact_features(model.evidence(line, languages, denials)) for line in lines]) for lines in groups
    ]
    return replace(model, head=_fit_groups(values[:1], values[1:]))


def _trimmed(model: CheckModel, values: np.ndarray) -> np.ndarray:
    """Return which clean lines are likely to be clean, by the causes learned so far; all if these are too few."""
    kept = np.max(list(model.causes(values).values()), axis=0) < _DIRTY
    return kept if kept.mean() > _CLEAN_ENOUGH else np.ones(len(values), dtype=bool)


def _fit_verdict(
    model: CheckModel, good: Sequence[LinkEvidence], kept: np.ndarray, bad: Mapping[str, Sequence[LinkEvidence]]
) -> np.ndarray:
    """Learn the one verdict from clean lines (those `kept`) and all kinds of planted ones, and where its alarm is.

    Returns:
        which clean lines it flags.
    """
    judged = model.judge(good)
    clean = judged.verdict_features
    values = {kind: model.judge(lines).verdict_features for kind, lines in bad.items() if lines}
    model.verdict = _fit_groups([clean[kept]], list(values.values()))
    # What breaks a rule has a bar of its own, how often clean lines do; many of them are faults of the clean text.
    unbroken = kept & np.array([not names for names in judged.broken])
    scores = model.scores(clean)
    model.alarm = float(model.wrong_of(np.quantile(scores[unbroken], 1 - FALSE_ALARMS)))
    model.clean = np.quantile(scores[kept], CLEAN_SHARES)
    return model.wrong(clean) > model.alarm


def _fit_groups(right: Sequence[np.ndarray], wrong: Sequence[np.ndarray]) -> np.ndarray:
    """Fit a logistic regression to groups of lines: the right ones weigh as much as the wrong ones, groups alike."""
    groups = [*right, *wrong]
    truths = np.repeat([0.0] * len(right) + [1.0] * len(wrong), [len(group) for group in groups])
    shares = [1 / len(right)] * len(right) + [1 / len(wrong)] * len(wrong)
    weights = np.concatenate(
        [np.full(len(group), share / len(group)) for group, share in zip(groups, shares, strict=True)]
    )
    return fit_logistic(np.concatenate(groups), truths, weights)


def _texts(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    return [(" ".join(source), " ".join(target)) for source, target in pairs]


def _fit_heads(model: CheckModel, good: np.ndarray, bad: np.ndarray, kinds: np.ndarray) -> None:
    """Learn the causes from features of clean and of planted lines; each group weighs the same, however large."""
    model.scale = np.stack([good.mean(axis=0), good.std(axis=0) + 1e-6])
    good, bad = scaled_features(good, model.scale), scaled_features(bad, model.scale)
    for name, cause in CAUSES.items():
        if not np.isin(kinds, cause.kinds).any():  # no place for it in this text
            model.heads[name] = np.array([-_NEVER] + [0.0] * len(cause.features))
            continue
        groups = [(good, 0.0, 1.0), (bad[np.isin(kinds, cause.kinds)], 1.0, 1.0)]
        if cause.others:
            groups.append((bad[np.isin(kinds, cause.others)], 0.0, 0.5))
        lines = np.concatenate([group for group, *_ in groups])[:, columns_of(name)]
        truths = np.concatenate([np.full(len(group), truth) for group, truth, _ in groups])
        weights = np.concatenate([np.full(len(group), weight / len(group)) for group, _, weight in groups])
        model.heads[name] = fit_logistic(lines, truths, weights)
