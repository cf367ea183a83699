"""Score how well a detector finds lines or words with a fault: ROC AUC, and precision at 90 % recall."""

from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import ArrayLike

from .base import PERCENTILES, Measured

RECALL = 0.9


@dataclass(frozen=True)
class Detection:
    """The quality of a detector of faults.

    Args:
        auc: how often a fault has a higher score than a case without fault; ties count half.
        precision_at_90: share of faults among the fewest top-scored cases that hold 90 % of all faults; cases that tie
            with the last of them are included.
        f1: F1 of the cases above a threshold that was given; None without one.
        faults: number of faults.
        cases: number of cases.
        signature: how both scores were computed.
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
        truths: (cases,), true for a fault.
        scores: (cases,), higher where a fault is likelier.
        bootstrap: number of resamples of the cases for 95 % intervals, 0 for none. Resamples without a fault, or with
            faults only, are skipped.
        seed: seed of the resamples.
        threshold: cases whose score is above it are taken for faults, for F1.

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
            f"`truths` must hold faults and others, got {int(truths.sum())} faults of {len(truths)} cases."
        )
    if bootstrap < 0:
        raise ValueError(f"`bootstrap` must be >= 0 (a number of resamples, 0 for none), got {bootstrap}.")
    order = np.argsort(-scores, kind="stable")
    truths, scores = truths[order], scores[order]
    last = np.append(scores[1:] != scores[:-1], True)  # of those that share a score
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
    at = "" if threshold is None else f"threshold:{threshold}|"
    signature = f"Detection|ties:half|recall:{RECALL}|{at}n:{len(truths)}|version:{version('hf_attncal')}"
    return Detection(auc, precision, f1[0] if f1 else None, int(truths.sum()), len(truths), signature)


def _measures(truths: np.ndarray, last: np.ndarray, times: np.ndarray, above: int | None) -> list[float]:
    """Compute AUC, precision and, of the first `above` cases, F1; cases are sorted from the highest score.

    Each case counts `times` times, (cases,).
    """
    hits = np.concatenate([[0.0], np.cumsum(truths * times)[last]])
    others = np.concatenate([[0.0], np.cumsum(~truths * times)[last]])
    area = float((np.diff(others) * (hits[1:] + hits[:-1])).sum() / 2)
    place = int(np.searchsorted(hits, RECALL * hits[-1] - 1e-9))
    values = [area / (hits[-1] * others[-1]), float(hits[place] / (hits[place] + others[place]))]
    if above is not None:
        found = float((truths * times)[:above].sum())
        values.append(2 * found / float(times[:above].sum() + hits[-1]))
    return values
