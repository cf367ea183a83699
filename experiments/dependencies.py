"""Receptive fields against true dependencies: of what a prediction reads, how much does it need, and the reverse.

A field is a row of booleans (target, source): does this prediction depend on that input? Counts are summed over all
predictions of all sequences (micro-averages).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.metrics.base import Metric

Interval = tuple[float, float]


@dataclass(frozen=True)
class DependencyScore:
    """Scores of all sequences, as fractions between 0 and 1, and how they were computed.

    `f1` is the harmonic mean of `precision` (against what was predicted) and `recall` (against what is true).
    """

    precision: float
    recall: float
    f1: float
    signature: str
    sequences: int
    predicted: int  # cells of all receptive fields
    true: int  # cells of all true dependencies
    hits: int  # cells of both
    intervals: dict[str, Interval] | None = None  # 95 % confidence intervals of the three scores, by name

    def __str__(self) -> str:
        scores = []
        for name, label in (("precision", "precision"), ("recall", "recall"), ("f1", "F1")):
            interval = "" if self.intervals is None else " [{:.3f}, {:.3f}]".format(*self.intervals[name])
            scores.append(f"{label} {getattr(self, name):.3f}{interval}")
        return f"{', '.join(scores)} {self.signature}"


def dependency_score(
    true: Sequence[np.ndarray] | np.ndarray,
    predicted: Sequence[np.ndarray] | np.ndarray,
    *,
    current: bool = True,
    begin: bool = True,
    bootstrap: int = 0,
    seed: int = 0,
) -> DependencyScore:
    """Precision, recall and F1 of receptive fields against true dependencies.

    Where nothing was predicted precision is 1, and recall where nothing is true: no error was made.

    Args:
        true: booleans (target, source) of every sequence, or (batch, target, source); also tensors on the CPU.
        predicted: the same of the model.
        current: whether the token read last counts, the diagonal: every field contains it, since each position reads
            itself through the residual connection. The Discrete Transformer counts it.
        begin: whether the first input, the token at the beginning of a sequence, counts.
        bootstrap: number of resamples of the sequences for the 95 % confidence intervals; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: no sequence, unequal numbers of them, shapes that differ or are not (target, source), a matrix
            without cells, values that are not booleans, `current=False` with unequal numbers of targets and sources,
            or negative `bootstrap`.
    """
    if len(true) != len(predicted):
        raise ValueError(f"{len(true)} sequences of true dependencies, but {len(predicted)} of receptive fields.")
    if not len(true):
        raise ValueError("There is no sequence: give the dependencies and fields of at least one.")
    pairs = zip(true, predicted, strict=True)
    counts = np.array([_count(*pair, number, current, begin) for number, pair in enumerate(pairs, start=1)])
    intervals = {name: metric.interval(counts, bootstrap, seed) for name, metric in _METRICS.items()}
    hits, total_predicted, total_true = counts.sum(axis=0).tolist()
    return DependencyScore(
        **{name: float(metric.score(counts.sum(axis=0))) for name, metric in _METRICS.items()},
        signature=_METRICS["f1"].signature(
            current="counted" if current else "excluded", begin="counted" if begin else "excluded", n=str(len(true))
        ),
        sequences=len(true),
        predicted=total_predicted,
        true=total_true,
        hits=hits,
        intervals=None if None in intervals.values() else intervals,
    )


def _count(true: np.ndarray, predicted: np.ndarray, number: int, current: bool, begin: bool) -> tuple[int, int, int]:
    """Cells of a sequence: of both, of the receptive fields, of the true dependencies."""
    true, predicted = np.asarray(true), np.asarray(predicted)
    place = f"Sequence {number}: the"
    for name, matrix in (("true dependencies", true), ("receptive fields", predicted)):
        if matrix.dtype != bool:
            raise ValueError(
                f"{place} {name} must be booleans, got {matrix.dtype}. Of weights, choose which count: `weights > x`."
            )
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"{place} {name} must be a matrix (target, source) with cells, got {matrix.shape}.")
    if true.shape != predicted.shape:
        raise ValueError(f"{place} true dependencies are {true.shape} and the receptive fields {predicted.shape}.")
    counted = np.ones(true.shape, dtype=bool)
    if not current:
        if true.shape[0] != true.shape[1]:
            raise ValueError(
                f"{place} last token read is only known where every target reads one more source, got {true.shape}."
            )
        np.fill_diagonal(counted, False)
    if not begin:
        counted[:, 0] = False
    return tuple(int(np.count_nonzero(cells & counted)) for cells in (true & predicted, predicted, true))


def _share(hits: np.ndarray, cells: np.ndarray) -> np.ndarray:
    return np.where(cells > 0, hits, 1) / np.maximum(cells, 1)


# Of sums (..., 3) of what `_count` gives.
_METRICS = {
    name: Metric("Dependencies", score)
    for name, score in {
        "precision": lambda sums: _share(sums[..., 0], sums[..., 1]),
        "recall": lambda sums: _share(sums[..., 0], sums[..., 2]),
        "f1": lambda sums: _share(2 * sums[..., 0], sums[..., 1] + sums[..., 2]),
    }.items()
}
