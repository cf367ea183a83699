"""Learn the model of `attncal check` from clean text and from errors planted into it, once for each aligner."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.segmentation import segment, white_space_words
from hf_attncal.data.translation_errors import Pair, PlantedError, plant_errors
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.gate import claim_folder
from hf_attncal.io.messages import progress_reports
from hf_attncal.io.streams import rows_of_texts
from hf_attncal.models.hmm_tables import unaligned_shares

from .check_model import CAUSES, CHECK_FILE, PLANTED, CheckModel, ModelInputs, columns_of
from .evidence import Both, LinkEvidence, both, has_counts, read_evidence, script_shares
from .facts import FACT_GROUPS, PLANTED_FACTS, BothDenials, FactModel, fact_features, find_facts
from .features import Sides, Vocabulary, features_of_words, seen
from .fitting import (
    DenialCounts,
    count_words,
    fit_fact_table,
    fit_lengths,
    fit_logistic,
    fit_network,
    fit_rules,
    mean_network,
    without_pairs,
)
from .logistic import Network, scaled_features, sigmoid
from .number_values import Languages

SAMPLE = 6000  # clean pairs with planted errors
_FEWEST = 50  # pairs
_LENGTHS = (3, 6, 10, 16, 25, 40)  # source words; the sample is spread evenly over these length groups
FALSE_ALARMS = 0.01  # share of clean lines that are flagged
_FALSE_ALARMS_OF_OWN_TEXT = FALSE_ALARMS / 2  # text of another origin has about twice the share
_NO_ALARM = 1.0
_MAX_CAUSE, _MIN_CLEAN_SHARE = 0.5, 0.7
_FOLDS = 5  # parts of the sample, each read without its own counts in the aligner
_WITHOUT_PARTNERS = ("omission", "insertion", "replacement", "unrelated", "word")
_HIDDEN, _HIDDEN_OF_VERDICT, _ENSEMBLE, _MOST_STEPS, _DECAY = (24,), (12,), 3, 1200, 3e-2
_CLEAN_WEIGHT = 60.0  # weight of the clean lines against the wrong ones: a prior of one wrong line in 60
# Weights of planted errors: above 1 for kinds that are hard to find, below 1 for kinds that can hardly be found.
KIND_WEIGHTS = {"insertion": 5.0, "truncation": 1.5, "negation": 2.0, "word": 0.1}
_NO_EXAMPLES = 30.0  # log-odds against a cause without examples
_KEPT = 0.35  # share of the planted errors that are used
Line = tuple[LinkEvidence, Sides]
Changed = tuple[Line, str, Both[Sequence[int]]]  # line, kind, and indices of the changed words of both sides
_NOT_COUNTED = 0.02  # share of links without counts above which the aligner was not trained on the pairs


def learn_check(
    aligner: WordAligner,
    pairs: Iterable[tuple[str, str]],
    sample: int = SAMPLE,
    seed: int = 0,
    step: Callable[..., None] = lambda name, done=0.0: None,
) -> CheckModel:
    """Learn the check model of an aligner from clean text.

    All pairs count for word frequencies. A sample with all lengths is aligned, clean and with planted errors. No
    annotation is needed.

    Args:
        aligner: Aligner with two directions.
        pairs: Clean (source, target) texts, preferably the training text of the aligner.
        sample: Number of sampled pairs. Default: 6000.
        seed: Seed of the sample and of the errors. Default: 0.
        step: Progress callback, called with the next step and the share done (`messages.progress_reports`).

    Raises:
        ValueError: Fewer than 50 pairs have words on both sides.
    """
    step("counting the words of all pairs")
    rng = random.Random(seed)
    cut = segment if aligner.source.tokenize else white_space_words
    drawn = _Sample(2 * sample, rng)
    with_numbers = _Sample(sample // 2, random.Random(seed), _has_number)  # rare in many texts
    passing = drawn.passing((cut(source).words, cut(target).words) for source, target in pairs)
    denials = DenialCounts()
    vocabulary = count_words(denials.passing(with_numbers.passing(passing)))
    all_drawn = drawn.pairs()
    if len(all_drawn) < _FEWEST:
        raise ValueError(
            f"`pairs` must have {_FEWEST} or more pairs with words on both sides, got {len(all_drawn)}. "
            "Give clean text, preferably the training text of the aligner."
        )
    chosen = all_drawn[:sample]
    examples = _read(aligner, vocabulary, all_drawn, chosen, with_numbers.pairs(), seed, step)
    step("fitting the model", _FOLDS / (_FOLDS + 1))
    model: CheckModel[LinkEvidence] = CheckModel(
        vocabulary,
        both(script_shares(" ".join(pair[side]) for pair in chosen) for side in (0, 1)),
        fit_lengths([(line.source.text, line.target.text) for line, _ in examples.good]),
        _NO_ALARM,
        learned={"pairs": drawn.seen, "sample": len(chosen), "seed": seed},
        denials=denials.keeping(denials.found(), vocabulary.counts, [line for line, _ in examples.good]),
    )
    fit(model, examples)
    return model


class Examples(NamedTuple):
    """Training examples of a check, aligned without their own counts.

    Args:
        good: Clean pairs.
        bad: Pairs with planted errors.
        planted: The errors of `bad`.
        facts: Clean pairs, with more numbers than `good`.
        changed: Pairs with a changed number, negation or name.
    """

    good: list[Line]
    bad: list[Line]
    planted: list[PlantedError]
    facts: list[Line]
    changed: list[Changed]


def _read(
    aligner: WordAligner,
    vocabulary: Vocabulary,
    clean: list[Pair],
    chosen: list[Pair],
    numbers: list[Pair],
    seed: int,
    step,
) -> Examples:
    """Plant errors, align all pairs, and return the evidence on their words.

    Errors of all kinds are planted into the `chosen` clean pairs; changed numbers, negations and names also into
    `numbers`. Each part of the text is aligned without its own counts: these link the rare words of a pair so well
    that the rare words of any other text would look like additions.
    """
    # Some pairs are joined, as the text may have no lines of several sentences.
    half, rng = len(chosen) // 4, random.Random(seed)
    twos = list(zip(chosen[:half], chosen[half : 2 * half], strict=True))
    joined_pairs = [(first[0] + second[0], first[1] + second[1]) for first, second in twos]
    with_errors, with_facts = chosen + joined_pairs, list(dict.fromkeys(chosen + numbers))
    planted = [
        one for one in plant_errors(with_errors, PLANTED, seed) if one.kind == "unrelated" or rng.random() < _KEPT
    ]
    changed = plant_errors(with_facts, PLANTED_FACTS, seed)
    part_of = {pair: number % _FOLDS for number, pair in enumerate(dict.fromkeys(clean + with_facts))}
    parts = [[pair for pair, of in part_of.items() if of == part] for part in range(_FOLDS)]
    for pair, (first, second) in zip(joined_pairs, twos, strict=True):
        part_of[pair] = part_of[second] = part_of[first]
    texts = [
        [(pair, part_of[pair]) for pair in clean + joined_pairs],
        [((error.source, error.target), part_of[with_errors[error.original]]) for error in planted],
        [(pair, part_of[pair]) for pair in with_facts],
        [((error.source, error.target), part_of[with_facts[error.original]]) for error in changed],
    ]
    examples: list[list] = [[None] * len(text) for text in texts]
    for part, pairs in enumerate(parts):
        step(f"reading {sum(map(len, texts)):,} clean pairs and planted errors", part / (_FOLDS + 1))
        with without(aligner, pairs):
            rest = without_pairs(vocabulary, pairs)
            for lines, text in zip(examples, texts, strict=True):
                places = [place for place, (_, one) in enumerate(text) if one == part]
                evidence = read_evidence(aligner, _texts(text[place][0] for place in places))
                for place, line in zip(places, evidence, strict=True):
                    lines[place] = line, seen(rest, line)
    good, bad, facts, with_changes = examples
    return Examples(good, bad, planted, facts, [
        (line, error.kind, (error.omission or (), error.addition))
        for line, error in zip(with_changes, changed, strict=True)
        if (line[0].source.words, line[0].target.words) == (error.source, error.target)  # same tokenisation
    ])  # fmt: skip


def fit(model: CheckModel, examples: Examples) -> None:
    """Fit all parts of a model to examples."""
    good, bad, planted, facts, changed = examples
    kinds = np.array([error.kind for error in planted])
    languages, denials = model.vocabulary.languages, model.denials
    model.networks = both(_fit_words(model, examples, side) for side in (0, 1))
    inputs, wrong = model_inputs(model, good), model_inputs(model, bad)
    fit_heads(model, inputs.features, wrong.features, kinds)
    is_clean = _probably_clean(model, inputs.features)  # drop misaligned lines of the clean text
    fit_heads(model, inputs.features[is_clean], wrong.features, kinds)
    model.rules = fit_rules([line for (line, _), one in zip(good, is_clean, strict=True) if one], languages, denials)
    of_facts = zip(facts, _probably_clean(model, model_inputs(model, facts).features), strict=True)
    planted_facts = [(line, kind, places) for (line, _), kind, places in changed]
    model.facts = fit_facts([line for (line, _), one in of_facts if one], planted_facts, languages, denials)
    of_kinds = {kind: [line for line, of in zip(bad, kinds, strict=True) if of == kind] for kind in PLANTED}
    of_kinds |= {kind: [line for line, of, _ in changed if of == kind] for kind in PLANTED_FACTS}
    fit_verdict(model, good, inputs, is_clean, of_kinds)


@dataclass(frozen=True)
class LearnedCheck:
    """Result of `attncal check learn`: path of the file and number of training pairs."""

    path: Path
    pairs: int

    def __str__(self) -> str:
        return f"wrote {self.path}, learned from {self.pairs} pairs"


def learn_check_beside(
    aligner: WordAligner, folder: str | Path | None, sources: Sequence[str], targets: Sequence[str], longest_line: int
) -> LearnedCheck:
    """Learn the check model from files of clean text, and write it into the folder of the aligner.

    Args:
        aligner: Aligner with two directions.
        folder: Folder of the aligner.
        sources, targets: Parallel files; line n of a source file pairs with line n of its target file.
        longest_line: Longest line in bytes.

    Raises:
        CommandError: The folder is missing, a line cannot be read, or there are too few pairs.
    """
    if folder is None or not Path(folder).is_dir():
        raise CommandError(
            f"{folder} is not a folder, and {CHECK_FILE} is written into the folder of the aligner. Download it first."
        )
    claim_folder(folder)
    files = zip(sources, targets, strict=True)
    with user_errors(), progress_reports("learning the check") as step:
        texts = ({"source": source, "target": target} for source, target in files)
        rows = (both(pair) for pair_of_files in texts for pair in rows_of_texts(pair_of_files, longest_line))
        model = learn_check(aligner, rows, step=step)
    return LearnedCheck(model.save(folder), model.learned["pairs"])


class _Sample:
    """Reservoir sample of pairs, spread evenly over length groups.

    Args:
        size: Size of the sample.
        rng: Random generator.
        wanted: Predicate of the pairs that may be drawn. Default: all pairs.

    Attributes:
        seen: Number of pairs that could be drawn.
    """

    def __init__(self, size: int, rng: random.Random, wanted: Callable[[Pair], bool] = lambda pair: True):
        self._size, self._rng, self._wanted, self.seen = size, rng, wanted, 0
        self._drawn: list[list[Pair]] = [[] for _ in range(len(_LENGTHS) + 1)]
        self._passed = [0] * len(self._drawn)

    def passing(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield all pairs unchanged, and draw from them."""
        for pair in pairs:
            if all(pair) and self._wanted(pair):
                self.seen += 1
                group = int(np.searchsorted(_LENGTHS, len(pair[0]), side="right"))
                drawn, self._passed[group] = self._drawn[group], self._passed[group] + 1
                if len(drawn) < self._size:
                    drawn.append(pair)
                elif (place := self._rng.randrange(self._passed[group])) < self._size:
                    drawn[place] = pair
            yield pair

    def pairs(self) -> list[Pair]:
        """Draw pairs evenly over the length groups; small groups leave their share to the others."""
        left = self._size
        chosen: list[Pair] = []
        for number, drawn in enumerate(sorted(self._drawn, key=len)):
            share = left // (len(self._drawn) - number)
            chosen += self._rng.sample(drawn, min(share, len(drawn)))
            left = self._size - len(chosen)
        self._rng.shuffle(chosen)
        return chosen


def _has_number(pair: Pair) -> bool:
    return any(any(map(str.isdigit, word)) for side in pair for word in side)


def model_inputs(model: CheckModel, lines: Sequence[Line]) -> ModelInputs:
    """Return the inputs of the model for lines."""
    return model.inputs([line for line, _ in lines], [sides for _, sides in lines])


def _fit_words(model: CheckModel, examples: Examples, side: int) -> Network:
    """Fit the network for the probability that a word of one side is wrong.

    Words with a planted error (omitted, added, changed) are wrong, all other words are right. The right words together
    weigh as much as the wrong words together. A kind of error with n of the wrong words has a share of their weight
    that is proportional to sqrt(n).

    Args:
        model: Check model, which gives the features of the words and is not changed.
        examples: Clean pairs and pairs with planted errors.
        side: 0 for source words, 1 for target words.
    """
    lines: list[tuple[Line, str, Sequence[int]]] = [(line, "", ()) for line in examples.good]
    for line, error in zip(examples.bad, examples.planted, strict=True):
        places = (error.omission, error.addition)[side]
        # The tokenisation of the joined words may differ.
        same_words = (line[0].source.words, line[0].target.words) == (error.source, error.target)
        if error.kind in _WITHOUT_PARTNERS and same_words and places is not None:
            lines.append((line, error.kind, places))
    lines += [(line, kind, of_sides[side]) for line, kind, of_sides in examples.changed]
    evidence, sides = zip(*(line for line, *_ in lines), strict=True)
    rows = features_of_words(evidence, sides, model.longer(evidence), side)
    lengths = [len(one.classes[side]) for one in sides]
    truths = np.concatenate(
        [np.isin(np.arange(length), list(places)) for length, (*_, places) in zip(lengths, lines, strict=True)]
    )
    kinds = np.repeat([kind for _, kind, _ in lines], lengths)
    weights = np.full(len(rows), 1 / max(1, (~truths).sum()))
    wrong = [truths & (kinds == kind) for kind in dict.fromkeys(kinds[truths].tolist())]
    total = sum(of_kind.sum() ** 0.5 for of_kind in wrong)
    for of_kind in wrong:
        weights[of_kind] = of_kind.sum() ** -0.5 / total
    return fit_network(rows, truths.astype(float), weights, hidden=_HIDDEN, steps=_steps(len(rows)))


def _steps(rows: int) -> int:
    return min(_MOST_STEPS, 100 + rows // 20)


def fit_facts(
    good: Sequence[LinkEvidence],
    changed: Sequence[tuple[LinkEvidence, str, Both[Sequence[int]]]],
    languages: Languages,
    denials: BothDenials,
) -> FactModel:
    """Fit the model of numbers, negations and names."""
    field = "known" if good[0].known is not None else "best"
    table = fit_fact_table(good, changed, field, languages, denials)
    model = FactModel(table, np.array([-_NO_EXAMPLES] + [0.0] * 2 * len(FACT_GROUPS)), field)
    groups = [good, *([line for line, of, _ in changed if of == kind] for kind in PLANTED_FACTS)]
    groups = [lines for lines in groups if lines]
    if len(groups) == 1:  # no facts could be planted
        return model
    values = [
        np.array([
            fact_features(model.evidence(line, find_facts(line.source, line.target, languages, denials)))
            for line in lines
        ])
        for lines in groups
    ]  # fmt: skip
    wrong = [(of_kind, 1.0, 1 / len(values[1:])) for of_kind in values[1:]]
    return replace(model, head=_fit_groups([(values[0], 0.0, 1.0), *wrong]))


def _probably_clean(model: CheckModel, values: np.ndarray) -> np.ndarray:
    """Return a mask of the lines in which no error is probable; of all lines if these are too few."""
    is_clean = np.max(list(model.causes(values).values()), axis=0) < _MAX_CAUSE
    return is_clean if is_clean.mean() > _MIN_CLEAN_SHARE else np.ones(len(values), dtype=bool)


def fit_verdict(
    model: CheckModel,
    good: Sequence[Line],
    inputs: ModelInputs,
    is_clean: np.ndarray,
    bad: Mapping[str, Sequence[Line]],
) -> None:
    """Fit the network for the probability that a line has any error, and choose the alarm.

    The alarm is the probability above which a line is flagged. Few lines of the clean text are above it.

    Args:
        model: Check model, changed in place.
        good: Lines of the clean text.
        inputs: Inputs of the model for `good`.
        is_clean: False for the lines of `good` that are left out because they look misaligned, (lines,).
        bad: Lines with planted errors, by kind.
    """
    judged = model.judge([line for line, _ in good], inputs)
    likeness = judged.likeness_features[is_clean]
    # With and without the broken rules, as a line is judged by both.
    clean = np.concatenate([judged.verdict_features[is_clean], likeness])
    bad = {kind: lines for kind, lines in bad.items() if lines}
    values = []
    for kind, lines in bad.items():
        features = model.judge([line for line, _ in lines], model_inputs(model, lines))[-2:]
        values.append(np.concatenate(features[: 1 + (kind in PLANTED)]))
    shares = np.array([KIND_WEIGHTS.get(kind, 1.0) for kind in bad])
    rows = np.concatenate([clean, *values])
    truths = np.repeat([0.0, 1.0], [len(clean), len(rows) - len(clean)])
    groups = [(len(clean), _CLEAN_WEIGHT), *zip(map(len, values), shares / shares.sum(), strict=True)]
    weights = np.concatenate([np.full(number, share / number) for number, share in groups])
    how = _HIDDEN_OF_VERDICT, _steps(len(rows)), _DECAY
    model.verdict = mean_network([fit_network(rows, truths, weights, *how, seed) for seed in range(_ENSEMBLE)])
    model.alarm = float(sigmoid(np.quantile(model.scores(likeness), 1 - _FALSE_ALARMS_OF_OWN_TEXT)))


def _fit_groups(groups: Sequence[tuple[np.ndarray, float, float]]) -> np.ndarray:
    """Fit a logistic regression to groups of lines: their features, truth and weight, whatever their size."""
    truths = np.concatenate([np.full(len(group), truth) for group, truth, _ in groups])
    weights = np.concatenate([np.full(len(group), weight / len(group)) for group, _, weight in groups])
    return fit_logistic(np.concatenate([group for group, *_ in groups]), truths, weights)


def _texts(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    return [(" ".join(source), " ".join(target)) for source, target in pairs]


def fit_heads(model: CheckModel, good: np.ndarray, bad: np.ndarray, kinds: np.ndarray) -> None:
    """Fit the probability of each cause (omission, addition, ...) to the features of clean and of wrong lines.

    The weight of a group of lines does not depend on its size.
    """
    model.scale = np.stack([good.mean(axis=0), good.std(axis=0) + 1e-6])
    good, bad = scaled_features(good, model.scale), scaled_features(bad, model.scale)
    for name, cause in CAUSES.items():
        if not np.isin(kinds, cause.kinds).any():  # no line of this text has a place for it
            model.heads[name] = np.array([-_NO_EXAMPLES] + [0.0] * len(cause.features))
            continue
        groups = [(good, 0.0, 1.0), (bad[np.isin(kinds, cause.kinds)], 1.0, 1.0)]
        if cause.others:
            groups.append((bad[np.isin(kinds, cause.others)], 0.0, 0.5))
        columns = columns_of(name)
        model.heads[name] = _fit_groups([(group[:, columns], truth, weight) for group, truth, weight in groups])


# ---- a statistical aligner without the counts of some pairs ----


@contextmanager
@torch.no_grad()
def without(aligner: WordAligner, pairs: Sequence[Both[Sequence[str]]]) -> Iterator[None]:
    """Subtract the counts of some pairs from a statistical aligner until the block ends.

    Other aligners, and those that were not trained on these pairs, stay as they are.

    Args:
        aligner: Aligner, from `WordAligner.from_pretrained`.
        pairs: (source words, target words) in the aligner's tokenisation.
    """
    model = aligner.model
    if not has_counts(aligner):
        yield
        return
    size, names = model.config.vocab_size, ("source", "target")
    before = {name: table.clone() for name, table in model.named_buffers()}
    less = {name: torch.zeros_like(table, dtype=torch.float32) for name, table in before.items()}
    all_keys: list[torch.Tensor] = []
    all_shares: list[torch.Tensor] = []
    for _, weights in aligner.source.weights(pairs, 256, 4096):
        if weights.backward is None or weights.source_tokens is None or weights.target_tokens is None:
            raise ValueError("A statistical aligner must have two directions and return its tokens.")
        own = (weights.forward * weights.backward.mT).float()
        tokens = weights.source_tokens, weights.target_tokens
        real = [ids != words for ids, words in (weights.source_words, weights.target_words)]
        cells = real[1].unsqueeze(2) & real[0].unsqueeze(1)
        all_keys.append((tokens[0].unsqueeze(1) * size + tokens[1].unsqueeze(2))[cells])
        all_shares.append(own[cells])
        for name, side, ids, dim in zip(names, real, tokens, (1, 2), strict=True):
            less[f"{name}_counts"].index_add_(0, ids[side], own.sum(dim)[side])
            less[f"{name}_null_counts"].index_add_(0, ids[side], unaligned_shares(own, side, dim)[side])
    keys, shares = torch.cat(all_keys), torch.cat(all_shares)
    places = torch.searchsorted(model.pairs, keys).clamp(max=len(model.pairs) - 1)
    counted = model.pairs[places] == keys
    if shares[~counted].sum() < _NOT_COUNTED * shares.sum():
        less["counts"].index_add_(0, places[counted], shares[counted])
        for name, table in model.named_buffers():
            if name.endswith("counts"):
                table.copy_((before[name].float() - less[name]).clamp(min=0))
    try:
        yield
    finally:
        for name, table in model.named_buffers():
            table.copy_(before[name])
