"""Whether scores of source words recover what was planted: data of which it is known what a target word comes from.

The truth is a matrix of booleans for each pair, (target words, source words). Only target words are counted that come
from some of the words that they might come from, and not from all: of the others there is nothing to recover.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .base import Metric, ratio

_MEAN = Metric("Planted", ratio)
MEASURES = ("accuracy", "precision", "auc", "pooled_auc")


@dataclass(frozen=True)
class PlantedScore:
    """Means over target words, from 0 to 1, and what they are to be compared with.

    Args:
        accuracy: how often the source word with the highest score is a true one.
        precision: share of true words among the best R, R being how many are true.
        auc: how often a true word has a higher score than another one, of the same target word; ties count half.
        pooled_auc: the same over all target words of a pair, the mean over pairs: whether scores of different target
            words can be compared.
        by_chance: accuracy of a word drawn at random.
        one_place: accuracy of the one place in the source that is right most often, with hindsight.
        one_distance: the same of the one distance from the place of the target word.
        signature: how they were computed.
        pairs: with a target word that is counted.
        target_words: that are counted.
        intervals: 95 % confidence intervals over pairs, by name; None without `bootstrap` and for too few pairs.

    Where several words share a score each order of them counts alike, so that scores that are all the same do as well
    as chance.
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
    """Score scores against what was planted.

    Args:
        truths: booleans (target words, source words) for each pair.
        scores: numbers of the same shape, the highest for what counts most.
        candidates: booleans of the same shape, which words might be true at all; None for all of them.
        bootstrap: resamples of the pairs for the intervals; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: see `planted_counts`; no target word to count, or negative `bootstrap`.
    """
    counts = planted_counts(truths, scores, candidates)
    total = counts.sum(axis=0)
    if not total[-1, 1]:
        raise ValueError("`truths` must have a target word that comes from some of its candidates only, got none.")
    values = {name: float(_MEAN.score(total[number])) for number, name in enumerate(MEASURES)}
    intervals = {name: _MEAN.interval(counts[:, n], bootstrap, seed) for n, name in enumerate(MEASURES)}
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
    """(pairs, measures in the order of `MEASURES`, 2): sums, and of how many; of `pooled_auc` each pair is one.

    Two methods on the same pairs are compared by `Metric.paired_interval` of one measure.

    Raises:
        ValueError: another number of scores or candidates than of truths, another shape, truths that are not booleans,
            or scores that are not finite.
    """
    given = {"scores": scores} | ({} if candidates is None else {"candidates": candidates})
    for name, of in given.items():
        if len(of) != len(truths):
            raise ValueError(f"`{name}` must be those of every pair, got {len(of)} for {len(truths)} pairs.")
    counts = np.zeros((len(truths), len(MEASURES), 2))
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
    """The words that one target word might come from: those that are candidates, whatever the others are."""

    true: np.ndarray
    candidate: np.ndarray
    scores: np.ndarray

    @classmethod
    def joined(cls, rows: "Sequence[_Row]") -> "_Row":
        return cls(*(np.concatenate([getattr(row, name) for row in rows]) for name in ("true", "candidate", "scores")))

    def best(self, count: int) -> float:
        """Expected share of true words among the best, where those of one score come in any order."""
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
    """The target words of a pair that are counted, with their places."""
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
