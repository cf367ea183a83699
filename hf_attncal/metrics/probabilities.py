"""Score how well probabilities match what comes true: calibration error, Brier score, bins of a reliability diagram.

Statements made with probability p should be right in a share p of the cases. The expected calibration error (ECE;
Naeini et al., AAAI 2015) sorts statements into bins by probability and averages, over all statements, the distance
between the mean probability of a bin and the share of its statements that are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from .base import Metric, ratio

BINS = 10
# Equal-mass: each bin has as many probabilities, as far as ties allow. Equal-width: each bin is as wide.
BINNINGS = ("equal-mass", "equal-width")

# For each sentence (pair) the probabilities of its statements, and whether each statement is right.
Said = Sequence[Sequence[float]]
Right = Sequence[Sequence[bool]]


class Bin(NamedTuple):
    """One mark of a reliability diagram: the mean probability, the share that is right, and the number of cases."""

    probability: float
    right: float
    count: int  # type: ignore[assignment]  # in place of the method of tuples


@dataclass(frozen=True)
class ProbabilityScore:
    """Errors of probabilities against what came true; all but `count` are fractions, and lower errors are better.

    Args:
        ece: expected calibration error with bins of equal mass.
        ece_equal_width: expected calibration error with bins of equal width.
        brier: mean squared distance of a probability from 1 (right) or 0 (wrong).
        mean: mean of the probabilities.
        right: share of statements that are right.
        count: number of probabilities.
        bins: bins of equal mass, from the lowest probability.
        signature: how `ece` was computed.
        interval: 95 % confidence interval of `ece`.
        brier_interval: 95 % confidence interval of `brier`.
    """

    ece: float
    ece_equal_width: float
    brier: float
    mean: float
    right: float
    count: int
    bins: tuple[Bin, ...]
    signature: str
    interval: tuple[float, float] | None = None
    brier_interval: tuple[float, float] | None = None


def _calibration_error(sums: np.ndarray) -> np.ndarray:
    bins = sums.reshape(*sums.shape[:-1], -1, 3)
    return np.abs(bins[..., 1] - bins[..., 2]).sum(axis=-1) / np.maximum(bins[..., 0].sum(axis=-1), 1)


# They score sums over sentences of `bin_counts` and of `brier_counts`.
ECE = Metric("ece", _calibration_error, lower_is_better=True)
BRIER = Metric("brier", ratio, lower_is_better=True)


def probability_score(
    said: Said, right: Right, *, bins: int = BINS, bootstrap: int = 0, seed: int = 0
) -> ProbabilityScore:
    """Compute calibration errors, the Brier score and a reliability diagram over a corpus.

    Args:
        said: probabilities of each sentence.
        right: for each probability, whether its statement is right.
        bins: number of bins of each kind.
        bootstrap: number of resamples of the sentences for the 95 % intervals; 0 for none. All resamples use the bins
            of the whole corpus. Their errors are higher on average, because emptier bins scatter more.
        seed: seed of the resamples.

    Raises:
        ValueError: no probability, `said` and `right` of different lengths, a probability outside 0 to 1, `bins` < 1
            or negative `bootstrap`.
    """
    mass, width = (bin_counts(said, right, bins, binning) for binning in BINNINGS)
    squares = brier_counts(said, right)
    sums = mass.sum(axis=0).reshape(-1, 3)
    count, total, hits = sums.sum(axis=0).tolist()
    if not count:
        raise ValueError("`said` must have a probability, got none.")
    return ProbabilityScore(
        ece=float(ECE.score(mass.sum(axis=0))),
        ece_equal_width=float(ECE.score(width.sum(axis=0))),
        brier=float(BRIER.score(squares.sum(axis=0))),
        mean=total / count,
        right=hits / count,
        count=int(count),
        bins=tuple(Bin(p / n, r / n, int(n)) for n, p, r in sums.tolist() if n),
        signature=ECE.signature(bins=str(bins), binning=BINNINGS[0]),
        interval=ECE.interval(mass, bootstrap, seed),
        brier_interval=BRIER.interval(squares, bootstrap, seed),
    )


def bin_counts(said: Said, right: Right, bins: int = BINS, binning: str = BINNINGS[0]) -> np.ndarray:
    """Count, for each sentence and bin, the probabilities, their sum, and how many are right: (sentences, 3 * bins).

    `ECE` scores these counts. Arguments and errors are those of `probability_score`.

    Raises:
        ValueError: a `binning` that is not one of `BINNINGS`.
    """
    if bins < 1:
        raise ValueError(f"`bins` must be >= 1, got {bins}.")
    if binning not in BINNINGS:
        raise ValueError(f"`binning` must be one of {BINNINGS}, got {binning!r}.")
    rows, p, y = _flat(said, right)
    inner = np.arange(1, bins) / bins
    edges = inner if binning == "equal-width" or not len(p) else np.quantile(p, inner)
    places = np.searchsorted(edges, p, side="right")
    counts = np.zeros((len(said), bins, 3))
    np.add.at(counts, (rows, places), np.stack([np.ones_like(p), p, y], axis=1))
    return counts.reshape(len(said), -1)


def brier_counts(said: Said, right: Right) -> np.ndarray:
    """Return the sum of squared distances and their number for each sentence, (sentences, 2); `BRIER` scores them."""
    rows, p, y = _flat(said, right)
    counts = np.zeros((len(said), 2))
    np.add.at(counts, rows, np.stack([(p - y) ** 2, np.ones_like(p)], axis=1))
    return counts


def _flat(said: Said, right: Right) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sentence of each probability, the probability, and 1 if it is right or 0, (probabilities,) each."""
    lengths = list(map(len, said))
    if lengths != list(map(len, right)):
        raise ValueError("`said` and `right` must have the same sentences, with one entry for each probability.")
    rows = np.repeat(np.arange(len(said)), lengths)
    p, y = (np.array(list(chain.from_iterable(side)), dtype=float) for side in (said, right))
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"`said` must be from 0 to 1, got {p[~((p >= 0) & (p <= 1))][0]}.")
    return rows, p, y
