"""Parts that every metric gets from its name and formula: signature, interval, paired comparison."""

import numpy as np
import pytest

from hf_attncal import __version__
from hf_attncal.metrics.base import FEWEST_SENTENCES, Metric
from hf_attncal.metrics.base import means as of_many

MEAN = Metric("Mean", lambda sums: sums[..., 0] / sums[..., 1])
COUNTS = np.stack([np.random.default_rng(0).random(30), np.ones(30)], axis=1)  # of each sentence a value, and 1


def means(counts: np.ndarray, seed: int, resamples: int = 200) -> list[float]:
    """The mean of every resample, one drawn sentence after the other."""
    generator = np.random.default_rng(seed)
    return [
        sum(counts[n, 0] for n in generator.integers(len(counts), size=len(counts))) / len(counts)
        for _ in range(resamples)
    ]


def test_the_signature_ends_with_the_version():
    assert MEAN.signature(unit="word", n="30") == f"Mean|unit:word|n:30|version:{__version__}"
    for value in ("", "a|b", "a\nb"):
        with pytest.raises(ValueError, match=r"`unit`.*one line"):
            MEAN.signature(unit=value)


def test_the_interval_is_that_of_a_slow_bootstrap():
    low, high = MEAN.interval(COUNTS, 200, seed=3)
    assert (low, high) == pytest.approx(tuple(np.percentile(means(COUNTS, 3), [2.5, 97.5])), abs=1e-12)
    assert low < COUNTS[:, 0].mean() < high
    assert MEAN.interval(COUNTS, 200, seed=4) != (low, high)
    assert MEAN.interval(COUNTS, 0, seed=3) is MEAN.interval(COUNTS[:0], 200, seed=3) is None
    with pytest.raises(ValueError, match=r"`bootstrap`.*0.*got -1"):
        MEAN.interval(COUNTS, -1, seed=3)


def test_better_is_higher_or_lower_and_a_tie_is_not_better():
    other = COUNTS + np.random.default_rng(1).normal(0, 0.2, (30, 1)) * [1, 0]
    higher = sum(b > a for a, b in zip(means(COUNTS, 3), means(other, 3), strict=True)) / 200
    assert 0 < higher < 1
    assert MEAN.paired_bootstrap(COUNTS, other, 200, seed=3) == higher
    assert Metric("Error", MEAN.score, lower_is_better=True).paired_bootstrap(COUNTS, other, 200, 3) == 1 - higher
    assert MEAN.paired_bootstrap(COUNTS, COUNTS, 200, seed=3) == 0
    for compare in (MEAN.paired_bootstrap, MEAN.paired_interval, MEAN.paired_p_value):
        with pytest.raises(ValueError, match="got 30 and 29"):
            compare(COUNTS, COUNTS[1:], 200, seed=3)
        with pytest.raises(ValueError, match=r"`bootstrap`.*1.*got 0 resamples of 30"):
            compare(COUNTS, COUNTS, 0, seed=3)


def test_the_interval_of_a_difference_is_that_of_a_slow_bootstrap():
    other = COUNTS + np.random.default_rng(1).normal(0.1, 0.2, (30, 1)) * [1, 0]
    differences = [b - a for a, b in zip(means(COUNTS, 3), means(other, 3), strict=True)]
    interval = MEAN.paired_interval(COUNTS, other, 200, seed=3)
    assert interval == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])), abs=1e-12)
    assert MEAN.paired_interval(COUNTS, np.add(COUNTS, [0.5, 0]), 200, seed=3) == pytest.approx((0.5, 0.5))


def test_p_is_two_sided_counts_ties_and_equals_a_slow_bootstrap():
    other = COUNTS + np.random.default_rng(1).normal(0.02, 0.2, (30, 1)) * [1, 0]
    observed = other[:, 0].mean() - COUNTS[:, 0].mean()
    moved = [b - a - observed for a, b in zip(means(COUNTS, 3), means(other, 3), strict=True)]
    expected = (1 + sum(abs(difference) >= abs(observed) for difference in moved)) / 201
    assert 0.05 < expected < 1
    assert MEAN.paired_p_value(COUNTS, other, 200, seed=3) == pytest.approx(expected, abs=1e-12)
    better = MEAN.paired_p_value(COUNTS, np.add(COUNTS, [0.5, 0]), 200, seed=3)
    worse = MEAN.paired_p_value(COUNTS, np.subtract(COUNTS, [0.5, 0]), 200, seed=3)
    assert better == worse == 1 / 201  # no resample is as far from the difference as that is from 0


def test_p_of_identical_and_of_nearly_identical_systems():
    assert MEAN.paired_p_value(COUNTS, COUNTS, 200, seed=3) == 1
    for differing in range(1, 6):  # a sign test of so few has no p below 2 / 2**5 = 0.06
        other = COUNTS + np.outer(np.arange(30) < differing, [0.5, 0])
        for pair in ((COUNTS, other), (other, COUNTS)):
            assert MEAN.paired_p_value(*pair, 1000, seed=3) >= 2 / 2**differing
    assert MEAN.paired_p_value(COUNTS, COUNTS + np.outer(np.arange(30) < 20, [0.5, 0]), 1000, seed=3) < 0.01


def test_p_is_below_a_level_as_often_as_the_level_for_equal_systems():
    generator = np.random.default_rng(5)
    systems = [np.stack([generator.random((2, 60)), np.ones((2, 60))], axis=-1) for _ in range(300)]
    found = np.array([MEAN.paired_p_value(*pair, 200, seed=3) for pair in systems])
    assert abs((found < 0.1).mean() - 0.1) < 0.06  # three standard errors
    assert abs((found < 0.5).mean() - 0.5) < 0.09


def test_too_few_sentences_have_neither_an_interval_nor_a_p():
    other = np.add(COUNTS, [0.5, 0])
    for few, told in ((FEWEST_SENTENCES - 1, False), (FEWEST_SENTENCES, True)):
        pair = COUNTS[:few], other[:few]
        assert (MEAN.interval(pair[0], 200, seed=3) is not None) == told
        for compare in (MEAN.paired_bootstrap, MEAN.paired_interval, MEAN.paired_p_value):
            assert (compare(*pair, 200, seed=3) is not None) == told
        assert (of_many(pair[0][:, None], 200)[0].interval is not None) == told
