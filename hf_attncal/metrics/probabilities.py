"""Do probabilities keep what they promise? Calibration error, Brier score, and the bins of a reliability diagram.

Of everything that is said to be right with probability p, a share p is to be right. The expected calibration error
(ECE; Naeini et al., AAAI 2015) puts what was said into bins and takes the mean, over all that is in them, of the
distance between a bin's mean probability and the share of it that is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .base import Metric, ratio

BINS = 10
# Equal-mass: as many in each bin, as far as equal probabilities allow. Equal-width: bins are as wide.
BINNINGS = ("equal-mass", "equal-width")

# What was said of each sentence (pair), and whether it is right.
Said = Sequence[Sequence[float]]
Right = Sequence[Sequence[bool]]


class Bin(NamedTuple):
    """One mark of a reliability diagram: the mean probability, the share that is right, and of how many."""

    probability: float
    right: float
    count: int


@dataclass(frozen=True)
class ProbabilityScore:
    """How far probabilities are from what comes true; all but `count` are fractions, lower is better.

    Args:
        ece: with bins of equal mass.
        ece_equal_width: with bins of equal width.
        brier: the mean squared distance of a probability from 1 (right) or 0.
        mean: of the probabilities.
        right: share that is right.
        count: of the probabilities.
        bins: of equal mass, from the lowest.
        signature: how `ece` was computed.
        interval: 95 % confidence interval of `ece`.
        brier_interval: the same of `brier`.
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


# Both of sums over sentences: of `bin_counts`, and of `brier_counts`.
ECE = Metric("ece", _calibration_error, lower_is_better=True)
BRIER = Metric("brier", ratio, lower_is_better=True)


def probability_score(
    said: Said, right: Right, *, bins: int = BINS, bootstrap: int = 0, seed: int = 0
) -> ProbabilityScore:
    """All of it, over a corpus.

    Args:
        said: probabilities of each sentence.
        right: of each probability, whether what it was said of is right.
        bins: how many of each kind.
        bootstrap: resamples of the sentences for the 95 % intervals; 0 for none. The bins stay those of all. The error
            of a resample is on average above that of the whole, because bins with fewer in them scatter more.
        seed: of the resamples.

    Raises:
        ValueError: nothing was said; other numbers of sentences or within one; a probability that is not from 0 to 1;
            `bins` below 1 or a negative `bootstrap`.
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
    """For each sentence, of each bin: how many, the sum of their probabilities, how many are right.

    Returns:
        (sentences, 3 * bins), which `ECE` scores. Arguments and errors are those of `probability_score`; also
        ValueError for another `binning`.
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
    """For each sentence the sum of squared distances and how many, (sentences, 2), which `BRIER` scores."""
    rows, p, y = _flat(said, right)
    counts = np.zeros((len(said), 2))
    np.add.at(counts, rows, np.stack([(p - y) ** 2, np.ones_like(p)], axis=1))
    return counts


def _flat(said: Said, right: Right) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sentence of each probability, the probability, and 1 or 0."""
    if [len(one) for one in said] != [len(one) for one in right]:
        raise ValueError("`said` and `right` must be of the same sentences, one of each for each probability.")
    rows = np.repeat(np.arange(len(said)), [len(one) for one in said])
    p, y = (np.array([value for one in side for value in one], dtype=float) for side in (said, right))
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"`said` must be from 0 to 1, got {p[~((p >= 0) & (p <= 1))][0]}.")
    return rows, p, y
