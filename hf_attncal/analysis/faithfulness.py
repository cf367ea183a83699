"""Do scores name the source words that a model uses? Take the best of them away, or all others, and look.

Comprehensiveness (DeYoung et al. 2020, "ERASER") is by how much the log-probability of a target word falls when the
source words with the highest scores are taken away: much, where they are those that count. Sufficiency is by how much
it falls when only these are kept: little. Soft (Zhao and Aletras 2023): each word is taken away, or kept, with a
probability that is its score. How a word is taken away is the operator's: see `perturbations.py`.

Nothing is added up here over pairs: `hf_attncal.metrics.faithfulness` does, with intervals.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .perturbations import OPERATORS, Change, Perturber, WordFrequencies
from .reading import TokenPair, batches_of_pairs, check_some_words

CUTS = (1, 0.2, 0.5)
_SOFT = 1  # what random numbers are for: see `Perturber.generator`
Scores = Sequence[ArrayLike | None]


@dataclass(frozen=True)
class PairFalls:
    """Falls of log-probabilities in one pair, by method.

    Args:
        index: its place among all pairs.
        falls: for each name of scores (operators, measures, target words), by how much the log-probability of a target
            word falls, in nats; negative where it rises.
    """

    index: int
    falls: dict[str, np.ndarray]


class WordEffects(NamedTuple):
    """Falls of log-probabilities in one pair without single source words.

    Args:
        index: its place among all pairs.
        effects: (operators, target words, source words), by how much the log-probability of a target word falls when
            this source word alone is taken away, in nats.
    """

    index: int
    effects: np.ndarray


def measures(cuts: Sequence[float] = CUTS, soft: bool = True) -> tuple[str, ...]:
    """Return the names of the measures of `faithfulness_falls`, in their order.

    `comprehensiveness@1`, `comprehensiveness@0.2` and so on, one for each of `cuts`, and `comprehensiveness`, their
    mean (the area over the cuts); the same of `sufficiency`; with `soft` `soft_comprehensiveness`, `soft_sufficiency`.
    """
    hard = [[*(f"{name}@{cut}" for cut in cuts), name] for name in ("comprehensiveness", "sufficiency")]
    return (*chain.from_iterable(hard), *(["soft_comprehensiveness", "soft_sufficiency"] if soft else []))


def faithfulness_falls(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    scores: Mapping[str, Scores],
    *,
    operators: Sequence[str] = OPERATORS,
    cuts: Sequence[float] = CUTS,
    soft: bool = True,
    draws: int = 3,
    frequencies: Mapping[str, int] | None = None,
    seed: int = 0,
    batch_size: int = 32,
    source_prefix: str = "",
) -> Iterator[PairFalls]:
    """Measure comprehensiveness and sufficiency of scores, teacher-forced on the targets.

    All scores are measured on the same random numbers, and what two of them ask of the model is asked once. Nothing of
    a batch is kept.

    Args:
        model: an encoder-decoder of transformers, on the device to use; its mode is left as it is.
        tokenizer: the model's.
        sources, targets: sentences; targets are references or the model's own output. Pairs with a side of no word are
            left out.
        scores: for each name, such as that of a method, a matrix for each pair, (target words, source words), the
            highest for what counts most; None for a pair that is left out. Of equal scores the first is higher.
        operators: see `perturbations.py`.
        cuts: how many source words are the best: a whole number, or a share above 0 and at most 1, rounded up.
        soft: measure the soft ones, too. Probabilities are scores divided by the highest of their row; what is
            negative is 0, and so is a row without a positive score.
        draws: of other words with `replace`, and of the words that soft measures take away; results are means.
        frequencies: how often each word is seen, for `replace`. None: in `sources`.
        seed: of the draws. They depend on a pair alone, not on its place nor on `batch_size`.
        batch_size: most sources at once. Pairs are batched by length.
        source_prefix: text that the model wants in front of every source.

    Yields:
        The falls of each pair, (operators, measures, target words) in the order of `operators` and of `measures`; the
        longest pairs first.

    Raises:
        ValueError: no pair of words, no scores, or scores of another number than the pairs, of another shape than
            their words, or not finite; no cut or one that is 0 or below or no whole number above 1; `draws` below 1;
            and what `Perturber` and `batches_of_pairs` refuse.
    """
    _check_scores(scores, sources, targets)
    _check_cuts(cuts)
    perturber = _perturber(model, tokenizer, sources, operators, draws, frequencies, seed, batch_size, source_prefix)
    reading = {"batch_size": batch_size, "source_prefix": source_prefix}
    batches = batches_of_pairs(model, tokenizer, sources, targets, **reading)
    return _falls(_Plan(perturber, tuple(cuts), soft, draws), batches, sources, scores)


def word_effects(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    operators: Sequence[str] = OPERATORS,
    draws: int = 3,
    frequencies: Mapping[str, int] | None = None,
    seed: int = 0,
    batch_size: int = 32,
    source_prefix: str = "",
) -> Iterator[WordEffects]:
    """Measure what each source word alone does to each target word under each operator.

    The rankings of source words that operators give so are compared by `metrics.faithfulness.operator_agreement`.

    Args and errors are those of `faithfulness_falls`.

    Yields:
        The effects of each pair, the longest pairs first.
    """
    check_some_words(sources, targets)
    perturber = _perturber(model, tokenizer, sources, operators, draws, frequencies, seed, batch_size, source_prefix)
    reading = {"batch_size": batch_size, "source_prefix": source_prefix}
    batches = batches_of_pairs(model, tokenizer, sources, targets, **reading)
    return _effects(perturber, draws, batches, sources)


# ---- sets of words ----


def best_words(scores: np.ndarray, cut: float) -> np.ndarray:
    """Mark the best words of each row of scores (..., source words), by a cut of `faithfulness_falls`."""
    count = min(cut, scores.shape[-1]) if isinstance(cut, int) else ceil(round(cut * scores.shape[-1], 9))
    ranks = np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1, kind="stable")
    return ranks < count


def keep_probabilities(scores: np.ndarray) -> np.ndarray:
    """Turn scores into probabilities, the highest of each row 1; see `soft` of `faithfulness_falls`."""
    positive = scores.clip(min=0)
    highest = positive.max(axis=-1, keepdims=True, initial=0)
    return np.divide(positive, highest, out=np.zeros_like(positive), where=highest > 0)


@dataclass(frozen=True)
class _Plan:
    """How every pair is measured."""

    perturber: Perturber
    cuts: tuple[float, ...]
    soft: bool
    draws: int

    def changes(self, pair: TokenPair, scores: np.ndarray) -> list[list[list[list[Change]]]]:
        """Return the change that each target word asks for, by operator, measure (without the areas) and draw."""
        best = [best_words(scores, cut)[None] for cut in self.cuts]
        kept = [*(~words for words in best), *best]
        if self.soft:
            numbers = self.perturber.generator(pair, _SOFT, 0).random((self.draws, *scores.shape))
            taken = numbers < keep_probabilities(scores)
            kept += [~taken, taken]
        return [[_changes(operator, words, self.draws) for words in kept] for operator in self.perturber.operators]

    def with_areas(self, falls: np.ndarray) -> np.ndarray:
        """Add the areas: (operators, measures but the areas, target words) -> (operators, measures, target words)."""
        count = len(self.cuts)
        parts = []
        for hard in (falls[:, :count], falls[:, count : 2 * count]):
            parts += [hard, hard.mean(axis=1, keepdims=True)]
        return np.concatenate([*parts, falls[:, 2 * count :]], axis=1)


def _changes(operator: str, kept: np.ndarray, draws: int) -> list[list[Change]]:
    """Return a change for each draw and row of `kept`, (1 or draws, rows, source words)."""
    is_drawn = operator == "replace"
    count = max(len(kept), draws if is_drawn else 1)
    return [
        [Change(operator, draw if is_drawn else 0, row.tobytes()) for row in kept[min(draw, len(kept) - 1)]]
        for draw in range(count)
    ]


def _of_own_words(found: dict[Change, np.ndarray], changes: list[list[Change]]) -> np.ndarray:
    """Average over draws what changes (draws, target words) do, each to its own target word: (target words,)."""
    return np.mean([[found[change][word] for word, change in enumerate(rows)] for rows in changes], axis=0)


def _of_all_words(found: dict[Change, np.ndarray], changes: list[list[Change]]) -> np.ndarray:
    """Average over draws what changes (draws, source words) do to all target words: (target words, source words)."""
    return np.mean([[found[change] for change in rows] for rows in changes], axis=0).T


def _falls(plan: _Plan, batches, sources: Sequence[str], scores: Mapping[str, Scores]) -> Iterator[PairFalls]:
    for pairs, _ in batches:
        wanted = [
            {name: plan.changes(pair, np.asarray(of[pair.index], dtype=np.float64)) for name, of in scores.items()}
            for pair in pairs
        ]
        asked = [_asked(of_pair.values()) for of_pair in wanted]
        results = plan.perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], asked)
        for pair, of_pair, (whole, found) in zip(pairs, wanted, results, strict=True):
            falls = {}
            for name, changes in of_pair.items():
                after = [[_of_own_words(found, words) for words in of] for of in changes]
                falls[name] = plan.with_areas(whole - np.array(after))
            yield PairFalls(pair.index, falls)


def _asked(changes) -> dict[Change, set[int]]:
    """Collect all changes (operators, measures, draws, target words), with the target words that ask for them."""
    found: dict[Change, set[int]] = {}
    for rows in (rows for of_scores in changes for of in of_scores for measure in of for rows in measure):
        for word, change in enumerate(rows):
            found.setdefault(change, set()).add(word)
    return found


def _effects(perturber: Perturber, draws: int, batches, sources: Sequence[str]) -> Iterator[WordEffects]:
    for pairs, _ in batches:
        wanted = []
        for pair in pairs:
            kept = ~np.eye(pair.source.words, dtype=bool)[None]
            wanted.append([_changes(operator, kept, draws) for operator in perturber.operators])
        asked = [
            {change: range(pair.target.words) for of in of_pair for rows in of for change in rows}
            for pair, of_pair in zip(pairs, wanted, strict=True)
        ]
        results = perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], asked)
        for pair, of_pair, (whole, found) in zip(pairs, wanted, results, strict=True):
            yield WordEffects(pair.index, whole[:, None] - np.stack([_of_all_words(found, of) for of in of_pair]))


# ---- checks ----


def _perturber(model, tokenizer, sources, operators, draws, frequencies, seed, batch_size, source_prefix) -> Perturber:
    if draws < 1:
        raise ValueError(f"`draws` must be >= 1, got {draws}.")
    table = None
    if "replace" in operators:
        table = WordFrequencies.of(sources) if frequencies is None else WordFrequencies(frequencies)
    return Perturber(model, tokenizer, tuple(operators), table, seed, batch_size, source_prefix)


def _check_scores(scores: Mapping[str, Scores], sources: Sequence[str], targets: Sequence[str]) -> None:
    check_some_words(sources, targets)
    if not scores:
        raise ValueError("`scores` must have those of one method at least, got none.")
    for name, of in scores.items():
        if len(of) != len(sources):
            raise ValueError(f"`scores` of {name!r} must be those of {len(sources)} pairs, got {len(of)}.")
        for index, (source, target, matrix) in enumerate(zip(sources, targets, of, strict=False)):
            words = len(target.split()), len(source.split())
            if not all(words):
                continue
            shape = None if matrix is None else np.shape(matrix)
            place = f"`scores` of {name!r} for pair {index} (counted from 0)"
            if shape != words:
                raise ValueError(f"{place} must be (target words, source words), {words}, got {shape}.")
            if not np.isfinite(np.asarray(matrix, dtype=np.float64)).all():
                raise ValueError(f"{place} must be finite numbers, got NaN or infinity.")


def _check_cuts(cuts: Sequence[float]) -> None:
    if not cuts:
        raise ValueError("`cuts` must have one at least, got none.")
    for cut in cuts:
        is_number = isinstance(cut, int) and not isinstance(cut, bool) and cut >= 1
        is_share = isinstance(cut, float) and 0 < cut <= 1
        if not is_number and not is_share:
            raise ValueError(f"`cuts` must be whole numbers from 1, or shares above 0 and at most 1, got {cut!r}.")
    if len({str(cut) for cut in cuts}) < len(cuts):
        raise ValueError(f"`cuts` must differ, got {tuple(cuts)}.")
