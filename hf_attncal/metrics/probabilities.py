"""Score probabilities: calibration error, Brier score, perplexity.

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
# Equal-mass: all bins have the same number of probabilities, up to ties. Equal-width: all bins have the same width.
BINNINGS = ("equal-mass", "equal-width")

# Probabilities of the statements of each sentence (pair), and True for each statement that is right.
Probabilities = Sequence[Sequence[float]]
Right = Sequence[Sequence[bool]]


class Bin(NamedTuple):
    """A bin of a reliability diagram: mean probability, share that is right, and number of statements."""

    probability: float
    right: float
    count: int  # type: ignore[assignment]  # replaces tuple.count


@dataclass(frozen=True)
class ProbabilityScore:
    """Errors of probabilities against the truth. All but `count` are fractions, and lower errors are better.

    Args:
        ece: expected calibration error with bins of equal mass.
        ece_equal_width: expected calibration error with bins of equal width.
        brier: mean squared distance of a probability from 1 (right) or 0 (wrong).
        mean: mean of the probabilities.
        right: share of statements that are right.
        count: number of probabilities.
        bins: bins of equal mass, from the lowest probability.
        signature: signature of `ece`.
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


# These score sums over sentences of `bin_counts` and `brier_counts`.
ECE = Metric("ece", _calibration_error, lower_is_better=True)
BRIER = Metric("brier", ratio, lower_is_better=True)


def probability_score(
    probabilities: Probabilities, right: Right, *, bins: int = BINS, bootstrap: int = 0, seed: int = 0
) -> ProbabilityScore:
    """Compute calibration errors, the Brier score and a reliability diagram over a corpus.

    Args:
        probabilities: predicted probabilities, a list per sentence, each for a claim such as "this link is right".
        right: True for each claim that is true, in the same order.
        bins: number of bins of equal mass, and number of bins of equal width. Default: 10.
        bootstrap: number of resamples of the sentences for the 95 % intervals; 0 for none. Default: 0. All resamples
            use the bins of the whole corpus. Resampling adds noise to each bin, so resamples have somewhat higher
            calibration errors than the corpus.
        seed: seed of the resamples. Default: 0.

    Raises:
        ValueError: no probability, `probabilities` and `right` of different lengths, a probability outside 0 to 1,
            `bins` < 1 or negative `bootstrap`.
    """
    mass, width = (bin_counts(probabilities, right, bins, binning) for binning in BINNINGS)
    squares = brier_counts(probabilities, right)
    sums = mass.sum(axis=0).reshape(-1, 3)
    count, total, hits = sums.sum(axis=0).tolist()
    if not count:
        raise ValueError("`probabilities` must have at least one number, got none.")
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


def bin_counts(probabilities: Probabilities, right: Right, bins: int = BINS, binning: str = BINNINGS[0]) -> np.ndarray:
    """Return three counts of each sentence and bin: probabilities, their sum, right statements; (sentences, 3 * bins).

    `ECE` scores them. See `probability_score` for arguments and further errors.

    Raises:
        ValueError: `binning` is not one of `BINNINGS`.
    """
    if bins < 1:
        raise ValueError(f"`bins` must be >= 1, got {bins}.")
    if binning not in BINNINGS:
        raise ValueError(f"`binning` must be one of {BINNINGS}, got {binning!r}.")
    rows, p, y = _flat(probabilities, right)
    inner = np.arange(1, bins) / bins
    edges = inner if binning == "equal-width" or not len(p) else np.quantile(p, inner)
    places = np.searchsorted(edges, p, side="right")
    counts = np.zeros((len(probabilities), bins, 3))
    np.add.at(counts, (rows, places), np.stack([np.ones_like(p), p, y], axis=1))
    return counts.reshape(len(probabilities), -1)


def brier_counts(probabilities: Probabilities, right: Right) -> np.ndarray:
    """Return the sum of squared errors and their number per sentence, (sentences, 2); `BRIER` scores them."""
    rows, p, y = _flat(probabilities, right)
    counts = np.zeros((len(probabilities), 2))
    np.add.at(counts, rows, np.stack([(p - y) ** 2, np.ones_like(p)], axis=1))
    return counts


def _flat(probabilities: Probabilities, right: Right) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sentence number, probability, and 1 (right) or 0 of each statement, (statements,) each."""
    lengths = list(map(len, probabilities))
    if lengths != list(map(len, right)):
        raise ValueError("`probabilities` and `right` must have the same sentences and the same numbers of entries.")
    rows = np.repeat(np.arange(len(probabilities)), lengths)
    p, y = (np.array(list(chain.from_iterable(side)), dtype=float) for side in (probabilities, right))
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"`probabilities` must be from 0 to 1, got {p[~((p >= 0) & (p <= 1))][0]}.")
    return rows, p, y


# ---- perplexity of a language model ----

# Scores sums (..., 2): nats, and number of predictions.
PERPLEXITY = Metric("Perplexity", lambda sums: np.exp(sums[..., 0] / sums[..., 1]), lower_is_better=True)


@dataclass(frozen=True)
class PerplexityScore:
    """Cross-entropy in nats per predicted token, its exponential, and the number of predicted tokens."""

    cross_entropy: float
    perplexity: float
    tokens: int
    signature: str


def perplexity(counts: np.ndarray, *, unit: str, end: bool, unknown: int) -> PerplexityScore:
    """Compute perplexity over all predictions of all sequences; the first token is given, not predicted.

    Args:
        counts: negative log-probability in nats and number of predictions of each sequence, (sequences, 2).
        unit: name of the unit of a token. Perplexities of different units cannot be compared.
        end: True if the end of a sequence is also predicted.
        unknown: number of tokens outside the vocabulary, which the model reads as one token.

    Raises:
        ValueError: no prediction, or a `unit` that a signature cannot hold.
    """
    nats, tokens = counts.sum(axis=0) if len(counts) else (0.0, 0)
    if not tokens:
        raise ValueError("`counts` must have at least one prediction, got none.")
    signature = PERPLEXITY.signature(
        unit=unit, end="counted" if end else "excluded", unknown=str(unknown), n=str(len(counts))
    )
    return PerplexityScore(
        float(nats / tokens), float(PERPLEXITY.score(np.array([nats, tokens]))), int(tokens), signature
    )
