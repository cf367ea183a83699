"""Means of what was counted in each sentence pair, many at once, on the same resamples."""

import numpy as np

from .base import FEWEST_SENTENCES, PERCENTILES, Measured, Metric, ratio

_MEANS = Metric("Means", lambda sums: ratio(sums.reshape(*sums.shape[:-1], -1, 2)))


def means(counts: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> list[Measured]:
    """Means over a corpus with 95 % bootstrap intervals over its pairs.

    Args:
        counts: (pairs, K, 2), or (pairs, 2) for one mean: sums, and of how many, as `Observations` counts them.
        bootstrap: resamples of the pairs; 0 for no intervals. Fewer than `FEWEST_SENTENCES` pairs have none.
        seed: of the resamples.

    Returns:
        The K means; NaN without an interval where nothing was counted.

    Raises:
        ValueError: no pair, or negative `bootstrap`.
    """
    if not len(counts):
        raise ValueError("`counts` must be those of one pair at least, got none.")
    if bootstrap < 0:
        raise ValueError(f"`bootstrap` must be >= 0 (a number of resamples, 0 for none), got {bootstrap}.")
    flat = counts.reshape(len(counts), -1)
    total = flat.sum(axis=0)
    values, numbers = _MEANS.score(total), total[1::2]
    bounds = [None] * len(values)
    if bootstrap and len(flat) >= FEWEST_SENTENCES:
        bounds = np.quantile(_MEANS.resampled(flat, bootstrap, seed), PERCENTILES, axis=0).T.tolist()
    return [
        Measured(float(value), None if bound is None else tuple(bound)) if number else Measured(float("nan"), None)
        for value, number, bound in zip(values, numbers, bounds, strict=True)
    ]


def mean_difference(first: np.ndarray, second: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> Measured:
    """By how much one mean is above another of the same pairs, on the same resamples; args are those of `means`.

    Raises:
        ValueError: see `Metric.paired_interval`.
    """
    metric = Metric("Means", ratio)
    value = float(metric.score(first.sum(axis=0)) - metric.score(second.sum(axis=0)))
    return Measured(value, metric.paired_interval(second, first, bootstrap, seed))
