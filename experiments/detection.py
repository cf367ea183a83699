"""Detectors of faults: ROC AUC, precision at 90 % recall and F1, by scikit-learn, with intervals."""

from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from sklearn.metrics import f1_score, precision_recall_curve, roc_auc_score

from hf_attncal.metrics.base import PERCENTILES, Measured

RECALL = 0.9


@dataclass(frozen=True)
class Detection:
    """Quality of a detector of faults.

    Args:
        auc: probability that a fault scores higher than a case without fault; ties count half.
        precision_at_90: precision at 90 % recall; cases that tie with the last one are included.
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


def detection(truths, scores, bootstrap: int = 1000, seed: int = 0, threshold: float | None = None) -> Detection:
    """Score a detector of faults.

    Args:
        truths: True for each fault, (cases,).
        scores: scores that are higher for likelier faults, (cases,).
        bootstrap: number of resamples of the cases for 95 % intervals; 0 for none. Resamples without a fault, or with
            faults only, are skipped.
        seed: seed of the resamples.
        threshold: score above which a case counts as detected, for F1. Default: None, no F1.
    """
    truths, scores = np.asarray(truths, dtype=bool), np.asarray(scores, dtype=float)
    generator, count = np.random.default_rng(seed), len(truths)
    drawn = [np.bincount(generator.integers(count, size=count), minlength=count) for _ in range(bootstrap)]
    resampled = [rates(truths, scores, times, threshold) for times in drawn if 0 < times[truths].sum() < count]
    bounds = np.quantile(resampled, PERCENTILES, axis=0).T.tolist() if resampled else [None] * 3
    values = rates(truths, scores, np.ones(count), threshold)
    auc, precision, *f1 = (
        Measured(value, None if bound is None else (bound[0], bound[1]))
        for value, bound in zip(values, bounds, strict=False)
    )
    field = "" if threshold is None else f"threshold:{threshold}|"
    signature = f"Detection|ties:half|recall:{RECALL}|{field}n:{count}|version:{version('hf_attncal')}"
    return Detection(auc, precision, f1[0] if f1 else None, int(truths.sum()), count, signature)


def rates(truths: np.ndarray, scores: np.ndarray, times: np.ndarray, threshold: float | None) -> list[float]:
    """Return AUC, precision at 90 % recall and, with a threshold, F1; each case counts `times` times, (cases,)."""
    weighted = {"sample_weight": times}
    precision, recall, _ = precision_recall_curve(truths, scores, **weighted)
    values = [roc_auc_score(truths, scores, **weighted), precision[np.flatnonzero(recall >= RECALL - 1e-9)[-1]]]
    if threshold is not None:
        values.append(f1_score(truths, scores > threshold, zero_division=0, **weighted))
    return list(map(float, values))
