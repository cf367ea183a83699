"""Calibration error and Brier score against loops over their definitions."""

import math
import random

import pytest

from hf_attncal.metrics.probabilities import BRIER, ECE, Bin, bin_counts, brier_counts, probability_score


def said_and_right(sentences: int = 40, seed: int = 3) -> tuple[list[list[float]], list[list[bool]]]:
    """Probabilities that are too high: of those that are said to be p, p squared are right."""
    generator = random.Random(seed)
    said = [[generator.random() for _ in range(generator.randrange(5))] for _ in range(sentences)]
    return said, [[generator.random() < p * p for p in one] for one in said]


def slow_error(said, right, bins: int) -> float:
    """With bins of equal width."""
    pairs = [pair for sides in zip(said, right, strict=True) for pair in zip(*sides, strict=True)]
    total = 0.0
    for number in range(bins):
        held = [(p, y) for p, y in pairs if min(bins - 1, math.floor(p * bins)) == number]
        if held:
            mean, share = (sum(side) / len(held) for side in zip(*held, strict=True))
            total += len(held) * abs(mean - share)
    return total / len(pairs)


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_equal_width_is_the_loop_over_bins(bins):
    said, right = said_and_right()
    found = probability_score(said, right, bins=bins)
    assert found.ece_equal_width == pytest.approx(slow_error(said, right, bins))
    assert found.ece_equal_width > 0.05


def test_equal_mass_bins_hold_as_many_and_are_what_the_error_is_made_of():
    said, right = said_and_right(200)
    found = probability_score(said, right, bins=5)
    assert len(found.bins) == 5
    assert max(one.count for one in found.bins) - min(one.count for one in found.bins) <= 2
    assert [one.probability for one in found.bins] == sorted(one.probability for one in found.bins)
    error = sum(one.count * abs(one.probability - one.right) for one in found.bins) / found.count
    assert found.ece == pytest.approx(error)
    assert "bins:5|binning:equal-mass" in found.signature


def test_brier_mean_and_share():
    said, right = [[0.5, 1.0], [], [0.25]], [[True, False], [], [True]]
    found = probability_score(said, right)
    assert found.brier == pytest.approx((0.25 + 1 + 0.5625) / 3)
    assert (found.mean, found.right, found.count) == (pytest.approx(1.75 / 3), pytest.approx(2 / 3), 3)


def test_what_keeps_its_promise_has_no_error_and_the_opposite_all_of_it():
    certain = [[1.0, 0.0], [1.0]]
    assert probability_score(certain, [[True, False], [True]]).ece == 0
    assert probability_score(certain, [[False, True], [False]]).ece == 1
    assert probability_score([[0.75] * 4], [[True, True, True, False]]).ece == 0


def test_equal_probabilities_share_a_bin_whatever_their_order():
    said, right = [[0.9] * 6 + [0.2] * 6], [[True, False] * 3 + [False] * 6]
    found = probability_score(said, right)
    assert found.bins == (Bin(pytest.approx(0.2), 0, 6), Bin(pytest.approx(0.9), 0.5, 6))
    turned = probability_score([said[0][::-1]], [right[0][::-1]])
    assert (turned.ece, turned.bins) == (pytest.approx(found.ece), found.bins)


def test_intervals_hold_the_score_and_are_the_same_every_time():
    said, right = said_and_right(300)
    found = probability_score(said, right, bootstrap=200)
    assert found.interval == probability_score(said, right, bootstrap=200).interval
    assert found.interval[0] < found.ece < found.interval[1]
    assert found.brier_interval[0] < found.brier < found.brier_interval[1]
    assert probability_score(said, right).interval is None


def test_counts_add_up_over_sentences():
    said, right = said_and_right()
    for counts, metric, score in (
        (bin_counts(said, right), ECE, probability_score(said, right).ece),
        (brier_counts(said, right), BRIER, probability_score(said, right).brier),
    ):
        assert len(counts) == len(said)
        assert float(metric.score(counts.sum(axis=0))) == pytest.approx(score)


@pytest.mark.parametrize(
    ("said", "right", "options", "told"),
    [
        ([[]], [[]], {}, "must have a probability"),
        ([[0.5]], [[True], []], {}, "have the same sentences"),
        ([[float("nan")]], [[True]], {}, "from 0 to 1, got nan"),
        ([[0.5]], [[True]], {"bins": 0}, "`bins` must be >= 1, got 0"),
        ([[0.5]], [[True]], {"bootstrap": -1}, "`bootstrap` must be >= 0"),
    ],
)
def test_what_is_wrong_is_named(said, right, options, told):
    with pytest.raises(ValueError, match=told):
        probability_score(said, right, **options)


def test_another_binning_is_refused():
    with pytest.raises(ValueError, match="`binning` must be one of"):
        bin_counts([[0.5]], [[True]], binning="equal")
