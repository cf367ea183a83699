"""Means over a corpus, many at once, with intervals over its pairs."""

import math

import numpy as np
import pytest

from hf_attncal.metrics.base import Measured, Metric, mean_difference, means, ratio


@pytest.fixture
def counts():
    generator = np.random.default_rng(0)
    numbers = generator.integers(1, 9, size=(20, 3, 1))
    return np.concatenate([generator.binomial(numbers, 0.4), numbers], axis=2).astype(float)


def test_each_mean_has_the_same_interval_as_by_itself(counts):
    together = means(counts, bootstrap=50, seed=3)
    for column, found in enumerate(together):
        alone = counts[:, column]
        assert found.value == pytest.approx(alone[:, 0].sum() / alone[:, 1].sum())
        assert found.interval == pytest.approx(Metric("x", ratio).interval(alone, 50, 3))
        assert means(alone, bootstrap=50, seed=3) == [found]
    assert len({found.value for found in together}) == 3


def test_resamples_are_of_pairs():
    """Compared with separate resamples whose pairs are drawn one by one."""
    counts = np.array([[1.0, 1], [0, 3], [2, 2], [0, 1], [4, 3], [1, 2]])
    generator = np.random.default_rng(7)
    values = []
    for _ in range(40):
        drawn = [counts[index] for index in generator.integers(6, size=6)]
        values.append(sum(row[0] for row in drawn) / sum(row[1] for row in drawn))
    (found,) = means(counts, bootstrap=40, seed=7)
    assert found.interval == pytest.approx(np.quantile(values, [0.025, 0.975]))


def test_the_mean_of_nothing_is_nan():
    counts = np.array([[[1.0, 2], [0, 0]], [[1, 1], [0, 0]]] * 3)
    some, nothing = means(counts, bootstrap=10)
    assert some.value == pytest.approx(2 / 3)
    assert math.isnan(nothing.value)
    assert nothing.interval is None


def test_what_few_pairs_have_has_no_interval():
    """Resamples without the only pair that has it would count as 0."""
    counts = np.array(
        [[[1.0, 2], [3, 1], [3, 1]], *[[[2.0, 2], [0, 0], [1, 1]]] * 4, *[[[1.0, 1], [0, 0], [1, 1]]] * 5]
    )
    often, once, always = means(counts, bootstrap=50)
    assert once == Measured(3.0, None)
    assert often.interval is not None
    assert always.interval is not None
    assert Metric("x", ratio).interval(counts[:, 1], 50, 0) is None


def test_without_resamples_there_are_no_intervals(counts):
    assert [found.interval for found in means(counts, bootstrap=0)] == [None] * 3
    with pytest.raises(ValueError, match="`bootstrap` must be >= 0"):
        means(counts, bootstrap=-1)
    with pytest.raises(ValueError, match="pair, got none"):
        means(counts[:0])


def test_a_difference_is_of_the_same_resamples():
    """Compared with separate resamples; means that differ by a constant in every pair have no spread."""
    generator = np.random.default_rng(0)
    second = np.stack([generator.random(6), np.ones(6)], axis=1)
    first = second + np.array([0.5, 0])
    found = mean_difference(first, second, bootstrap=30, seed=2)
    assert found.value == pytest.approx(0.5)
    assert found.interval == pytest.approx((0.5, 0.5))
    other = np.stack([generator.random(6), generator.integers(1, 4, 6)], axis=1)
    drawn = np.random.default_rng(2)
    rows = [drawn.integers(6, size=6) for _ in range(30)]
    values = [other[r, 0].sum() / other[r, 1].sum() - second[r, 0].sum() / second[r, 1].sum() for r in rows]
    found = mean_difference(other, second, bootstrap=30, seed=2)
    assert found.value == pytest.approx(other[:, 0].sum() / other[:, 1].sum() - second[:, 0].mean())
    assert found.interval == pytest.approx(np.quantile(values, [0.025, 0.975]))
