"""Calibration error and Brier score against loops over their definitions."""

import math
import random

import pytest

from hf_attncal.metrics.probabilities import BRIER, ECE, Bin, bin_counts, brier_counts, probability_score


def probabilities_and_right(sentences: int = 40, seed: int = 3) -> tuple[list[list[float]], list[list[bool]]]:
    """Return probabilities p that are too high: statements are right with probability p squared."""
    generator = random.Random(seed)
    probabilities = [[generator.random() for _ in range(generator.randrange(5))] for _ in range(sentences)]
    return probabilities, [[generator.random() < p * p for p in sentence] for sentence in probabilities]


def slow_error(probabilities, right, bins: int) -> float:
    """Return the calibration error with bins of equal width."""
    pairs = [pair for sides in zip(probabilities, right, strict=True) for pair in zip(*sides, strict=True)]
    total = 0.0
    for number in range(bins):
        inside = [(p, y) for p, y in pairs if min(bins - 1, math.floor(p * bins)) == number]
        if inside:
            mean, share = (sum(side) / len(inside) for side in zip(*inside, strict=True))
            total += len(inside) * abs(mean - share)
    return total / len(pairs)


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_equal_width_is_the_loop_over_bins(bins):
    probabilities, right = probabilities_and_right()
    score = probability_score(probabilities, right, bins=bins)
    assert score.ece_equal_width == pytest.approx(slow_error(probabilities, right, bins))
    assert score.ece_equal_width > 0.05


def test_equal_mass_bins_have_equal_counts_and_give_the_error():
    probabilities, right = probabilities_and_right(200)
    score = probability_score(probabilities, right, bins=5)
    assert len(score.bins) == 5
    assert max(mark.count for mark in score.bins) - min(mark.count for mark in score.bins) <= 2
    assert [mark.probability for mark in score.bins] == sorted(mark.probability for mark in score.bins)
    error = sum(mark.count * abs(mark.probability - mark.right) for mark in score.bins) / score.count
    assert score.ece == pytest.approx(error)
    assert "bins:5|binning:equal-mass" in score.signature


def test_brier_mean_and_share():
    probabilities, right = [[0.5, 1.0], [], [0.25]], [[True, False], [], [True]]
    score = probability_score(probabilities, right)
    assert score.brier == pytest.approx((0.25 + 1 + 0.5625) / 3)
    assert (score.mean, score.right, score.count) == (pytest.approx(1.75 / 3), pytest.approx(2 / 3), 3)


def test_perfect_probabilities_have_error_0_and_opposite_ones_error_1():
    certain = [[1.0, 0.0], [1.0]]
    assert probability_score(certain, [[True, False], [True]]).ece == 0
    assert probability_score(certain, [[False, True], [False]]).ece == 1
    assert probability_score([[0.75] * 4], [[True, True, True, False]]).ece == 0


def test_equal_probabilities_share_a_bin_whatever_their_order():
    probabilities, right = [[0.9] * 6 + [0.2] * 6], [[True, False] * 3 + [False] * 6]
    score = probability_score(probabilities, right)
    assert score.bins == (Bin(pytest.approx(0.2), 0, 6), Bin(pytest.approx(0.9), 0.5, 6))
    turned = probability_score([probabilities[0][::-1]], [right[0][::-1]])
    assert (turned.ece, turned.bins) == (pytest.approx(score.ece), score.bins)


def test_intervals_contain_the_score_and_are_reproducible():
    probabilities, right = probabilities_and_right(300)
    score = probability_score(probabilities, right, bootstrap=200)
    assert score.interval == probability_score(probabilities, right, bootstrap=200).interval
    assert score.interval[0] < score.ece < score.interval[1]
    assert score.brier_interval[0] < score.brier < score.brier_interval[1]
    assert probability_score(probabilities, right).interval is None


def test_counts_add_up_over_sentences():
    probabilities, right = probabilities_and_right()
    for counts, metric, score in (
        (bin_counts(probabilities, right), ECE, probability_score(probabilities, right).ece),
        (brier_counts(probabilities, right), BRIER, probability_score(probabilities, right).brier),
    ):
        assert len(counts) == len(probabilities)
        assert float(metric.score(counts.sum(axis=0))) == pytest.approx(score)


@pytest.mark.parametrize(
    ("probabilities", "right", "options", "message"),
    [
        ([[]], [[]], {}, "must have at least one number"),
        ([[0.5]], [[True], []], {}, "have the same sentences"),
        ([[float("nan")]], [[True]], {}, "from 0 to 1, got nan"),
        ([[0.5]], [[True]], {"bins": 0}, "`bins` must be >= 1, got 0"),
        ([[0.5]], [[True]], {"bootstrap": -1}, "`bootstrap` must be >= 0"),
    ],
)
def test_errors_name_the_bad_value(probabilities, right, options, message):
    with pytest.raises(ValueError, match=message):
        probability_score(probabilities, right, **options)


def test_another_binning_is_refused():
    with pytest.raises(ValueError, match="`binning` must be one of"):
        bin_counts([[0.5]], [[True]], binning="equal")
