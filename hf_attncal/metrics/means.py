"""Average counts over sentence pairs, many at once, with intervals on the same resamples."""

import numpy as np

from .base import FEWEST_SENTENCES, PERCENTILES, Measured, Metric, ratio

_MEANS = Metric("Means", lambda sums: ratio(sums.reshape(*sums.shape[:-1], -1, 2)))


def means(counts: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> list[Measured]:
    """Compute means over a corpus with 95 % bootstrap intervals over its pairs.

    Args:
        counts: (pairs, K, 2), or (pairs, 2) for one mean: a sum and the number of its terms, as in `Observations`.
        bootstrap: number of resamples of the pairs; 0 for no intervals. Fewer than `FEWEST_SENTENCES` pairs have none.
        seed: seed of the resamples.

    Returns:
        The K means; NaN without an interval where nothing was counted.

    Raises:
        ValueError: no pair, or negative `bootstrap`.
    """
    if not len(counts):
        raise ValueError("`counts` must have at least one pair, got none.")
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
    """Return the first mean minus the second over the same pairs, with its 95 % interval on the same resamples.

    Args:
        first, second: sums and numbers of terms, (pairs, 2) each.
        bootstrap, seed: as for `means`.

    Raises:
        ValueError: no pair, different numbers of pairs, or `bootstrap` < 1.
    """
    return Metric("Means", ratio).difference(first, second, bootstrap, seed)
