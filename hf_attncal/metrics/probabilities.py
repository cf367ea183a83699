"""Score probabilities and detectors: calibration error, Brier score, perplexity, AUC.

Statements made with probability p should be right in a share p of the cases. The expected calibration error (ECE;
Naeini et al., AAAI 2015) sorts statements into bins by probability and averages, over all statements, the distance
between the mean probability of a bin and the share of its statements that are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .base import PERCENTILES, Measured, Metric, check_resamples, ratio

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


# ---- detection of faults ----

RECALL = 0.9


@dataclass(frozen=True)
class Detection:
    """Quality of a detector of faults.

    Args:
        auc: probability that a fault scores higher than a case without fault; ties count half.
        precision_at_90: precision at 90 % recall: share of faults among the cases with the highest scores, as many as
            are needed to include 90 % of all faults; ties with the last one are included.
        f1: F1 of the cases above the threshold; None without a threshold.
        faults: number of faults.
        cases: number of cases.
        signature: signature of the scores.
    """

    auc: Measured
    precision_at_90: Measured
    f1: Measured | None
    faults: int
    cases: int
    signature: str


def detection(
    truths: ArrayLike, scores: ArrayLike, bootstrap: int = 1000, seed: int = 0, threshold: float | None = None
) -> Detection:
    """Score a detector of faults.

    Args:
        truths: True for each fault, (cases,).
        scores: scores that are higher for likelier faults, (cases,).
        bootstrap: number of resamples of the cases for 95 % intervals; 0 for none. Resamples without a fault, or with
            faults only, are skipped.
        seed: seed of the resamples.
        threshold: score above which a case counts as detected, for F1. Default: None, no F1.

    Raises:
        ValueError: shapes that differ, scores that are not finite, no fault, faults only, or negative `bootstrap`.
    """
    truths, scores = np.asarray(truths, dtype=bool), np.asarray(scores, dtype=float)
    if truths.ndim != 1 or truths.shape != scores.shape:
        raise ValueError(f"`truths` and `scores` must be (cases,), got {truths.shape} and {scores.shape}.")
    if not np.isfinite(scores).all():
        raise ValueError("`scores` must be finite.")
    if truths.all() or not truths.any():
        raise ValueError(
            f"`truths` must have both faults and other cases, got {int(truths.sum())} faults of {len(truths)} cases."
        )
    check_resamples(bootstrap)
    order = np.argsort(-scores, kind="stable")
    truths, scores = truths[order], scores[order]
    last = np.append(scores[1:] != scores[:-1], True)  # the last case of each score
    above = None if threshold is None else int((scores > threshold).sum())
    generator, drawn = np.random.default_rng(seed), []
    for _ in range(bootstrap):
        times = np.bincount(generator.integers(len(truths), size=len(truths)), minlength=len(truths))[order]
        if 0 < times[truths].sum() < len(truths):
            drawn.append(_measures(truths, last, times, above))
    values = _measures(truths, last, np.ones(len(truths)), above)
    bounds = np.quantile(drawn, PERCENTILES, axis=0).T.tolist() if drawn else [None] * len(values)
    auc, precision, *f1 = (
        Measured(float(value), None if bound is None else (bound[0], bound[1]))
        for value, bound in zip(values, bounds, strict=True)
    )
    threshold_field = "" if threshold is None else f"threshold:{threshold}|"
    signature = f"Detection|ties:half|recall:{RECALL}|{threshold_field}n:{len(truths)}|version:{version('hf_attncal')}"
    return Detection(auc, precision, f1[0] if f1 else None, int(truths.sum()), len(truths), signature)


def _measures(truths: np.ndarray, last: np.ndarray, times: np.ndarray, above: int | None) -> list[float]:
    """Compute AUC, precision at 90 % recall and, for the first `above` cases, F1.

    Cases are sorted from the highest score, and each counts `times` times, (cases,).
    """
    hits = np.concatenate([[0.0], np.cumsum(truths * times)[last]])
    others = np.concatenate([[0.0], np.cumsum(~truths * times)[last]])
    area = float((np.diff(others) * (hits[1:] + hits[:-1])).sum() / 2)
    place = int(np.searchsorted(hits, RECALL * hits[-1] - 1e-9))
    values = [area / (hits[-1] * others[-1]), float(hits[place] / (hits[place] + others[place]))]
    if above is not None:
        detected = float((truths * times)[:above].sum())
        values.append(2 * detected / float(times[:above].sum() + hits[-1]))
    return values
