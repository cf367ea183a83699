"""Score how well attributions recover planted truth, in data where the origin of each target word is known.

The truth is a matrix of booleans for each pair, (target words, source words). A target word counts only if some, but
not all, of its candidate source words are true: for the others there is nothing to recover.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .base import Metric, ratio

_MEAN = Metric("Planted", ratio)
PLANTED_MEASURES = ("accuracy", "precision", "auc", "pooled_auc")


@dataclass(frozen=True)
class PlantedScore:
    """Means over target words, from 0 to 1, and baselines to compare them with.

    Words that share a score are counted in every order alike, so constant scores do as well as chance.

    Args:
        accuracy: how often the source word with the highest score is a true one.
        precision: share of true words among the best R, where R is the number of true words.
        auc: how often a true word scores higher than another word, for the same target word; ties count half.
        pooled_auc: AUC over all target words of a pair together, averaged over pairs: it asks whether scores of
            different target words can be compared.
        by_chance: accuracy of a word drawn at random.
        one_place: accuracy of the single place in the source that is right most often, with hindsight.
        one_distance: accuracy of the single distance from the place of the target word that is right most often.
        signature: how the scores were computed.
        pairs: number of pairs with a target word that counts.
        target_words: number of target words that count.
        intervals: 95 % confidence intervals over pairs, by name; None without `bootstrap` and for too few pairs.
    """

    accuracy: float
    precision: float
    auc: float
    pooled_auc: float
    by_chance: float
    one_place: float
    one_distance: float
    signature: str
    pairs: int
    target_words: int
    intervals: dict[str, tuple[float, float]] | None = None


def planted_score(
    truths: Sequence[ArrayLike],
    scores: Sequence[ArrayLike],
    *,
    candidates: Sequence[ArrayLike] | None = None,
    bootstrap: int = 0,
    seed: int = 0,
) -> PlantedScore:
    """Score attributions against planted truth.

    Args:
        truths: booleans (target words, source words) for each pair.
        scores: attributions of the same shape, highest for the most important word.
        candidates: booleans of the same shape that mark the words that might be true at all; None for all words.
        bootstrap: number of resamples of the pairs for the intervals; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: no target word to count, negative `bootstrap`, or arguments that `planted_counts` refuses.
    """
    counts = planted_counts(truths, scores, candidates)
    total = counts.sum(axis=0)
    if not total[-1, 1]:
        raise ValueError("`truths` must have a target word that comes from some of its candidates only, got none.")
    values = {name: float(_MEAN.score(total[number])) for number, name in enumerate(PLANTED_MEASURES)}
    intervals = {name: _MEAN.interval(counts[:, n], bootstrap, seed) for n, name in enumerate(PLANTED_MEASURES)}
    rows = [row for index in range(len(truths)) for row in _rows(truths, scores, candidates, index)]
    places = Counter(i for _, row in rows for i in np.flatnonzero(row.true))
    distances = Counter(i - j for j, row in rows for i in np.flatnonzero(row.true))
    return PlantedScore(
        **values,
        by_chance=float(np.mean([row.true.sum() / row.candidate.sum() for _, row in rows])),
        one_place=max(places.values()) / len(rows),
        one_distance=max(distances.values()) / len(rows),
        signature=_MEAN.signature(ties="shared", n=str(len(truths))),
        pairs=int(np.count_nonzero(counts[:, -1, 1])),
        target_words=len(rows),
        intervals=None if None in intervals.values() else intervals,
    )


def planted_counts(
    truths: Sequence[ArrayLike], scores: Sequence[ArrayLike], candidates: Sequence[ArrayLike] | None = None
) -> np.ndarray:
    """Sum each measure over the target words of each pair: sums and numbers of terms, (pairs, measures, 2).

    Measures are in the order of `PLANTED_MEASURES`; a pair is one term of `pooled_auc`. `Metric.paired_interval` of a
    measure compares two methods on the same pairs.

    Raises:
        ValueError: numbers of pairs or shapes that differ, truths that are not booleans, or scores that are not
            finite.
    """
    for name, matrices in (("scores", scores), ("candidates", candidates)):
        if matrices is not None and len(matrices) != len(truths):
            raise ValueError(f"`{name}` must have one entry for each of {len(truths)} pairs, got {len(matrices)}.")
    counts = np.zeros((len(truths), len(PLANTED_MEASURES), 2))
    for index in range(len(truths)):
        rows = [row for _, row in _rows(truths, scores, candidates, index)]
        if not rows:
            continue
        by_row = np.array([(row.best(1), row.best(int(row.true.sum())), row.auc) for row in rows])
        counts[index, :3, 0], counts[index, :3, 1] = by_row.sum(axis=0), len(rows)
        counts[index, 3] = _Row.joined(rows).auc, 1
    return counts


@dataclass(frozen=True)
class _Row:
    """Truth and scores of the source words of one target word, (source words,) each; only candidates count."""

    true: np.ndarray
    candidate: np.ndarray
    scores: np.ndarray

    @classmethod
    def joined(cls, rows: "Sequence[_Row]") -> "_Row":
        return cls(*(np.concatenate([getattr(row, name) for row in rows]) for name in ("true", "candidate", "scores")))

    def best(self, count: int) -> float:
        """Return the expected share of true words among the best `count`, with ties in random order."""
        scores, true = self.scores[self.candidate], self.true[self.candidate]
        last = np.sort(scores)[-count]
        above, tied = scores > last, scores == last
        return (true[above].sum() + (count - above.sum()) * true[tied].mean()) / count

    @property
    def auc(self) -> float:
        scores, true = self.scores[self.candidate], self.true[self.candidate]
        difference = scores[true][:, None] - scores[~true]
        return float((np.sign(difference) + 1).mean() / 2)


def _rows(truths, scores, candidates, index: int) -> list[tuple[int, _Row]]:
    """Return the target words of a pair that count, with their places."""
    true, values = np.asarray(truths[index]), np.asarray(scores[index], dtype=np.float64)
    place = f"pair {index} (counted from 0)"
    if true.dtype != bool or true.ndim != 2:
        raise ValueError(
            f"`truths` of {place} must be booleans (target words, source words), got {true.dtype} {true.shape}."
        )
    candidate = np.ones(true.shape, dtype=bool) if candidates is None else np.asarray(candidates[index], dtype=bool)
    for name, matrix in (("scores", values), ("candidates", candidate)):
        if matrix.shape != true.shape:
            raise ValueError(
                f"`{name}` of {place} must have the shape of its truth, {true.shape}, got {matrix.shape}."
            )
    if not np.isfinite(values[candidate]).all():
        raise ValueError(f"`scores` of {place} must be finite numbers, got NaN or infinity.")
    true = true & candidate
    counted = true.any(axis=1) & (candidate & ~true).any(axis=1)
    return [(j, _Row(true[j], candidate[j], values[j])) for j in np.flatnonzero(counted).tolist()]
