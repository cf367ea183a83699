"""ROC AUC and precision at 90 % recall, against loops over all pairs and all thresholds."""

import numpy as np
import pytest
from detection import detection


def auc_by_loops(truths, scores) -> float:
    faults = [score for truth, score in zip(truths, scores, strict=True) if truth]
    others = [score for truth, score in zip(truths, scores, strict=True) if not truth]
    won = sum((fault > other) + 0.5 * (fault == other) for fault in faults for other in others)
    return won / (len(faults) * len(others))


def precision_by_loops(truths, scores) -> float:
    """The first threshold, from the highest, above or at which 90 % of the faults are."""
    for threshold in sorted(set(scores), reverse=True):
        taken = [truth for truth, score in zip(truths, scores, strict=True) if score >= threshold]
        if sum(taken) >= 0.9 * sum(truths):
            return sum(taken) / len(taken)
    raise AssertionError


def f1_by_loops(truths, scores, threshold) -> float:
    both = sum(truth and score > threshold for truth, score in zip(truths, scores, strict=True))
    marked = sum(score > threshold for score in scores)
    return 2 * both / (marked + sum(truths))


@pytest.mark.parametrize("seed", range(6))
def test_rates_equal_the_loops(seed):
    generator = np.random.default_rng(seed)
    truths = generator.random(40) < 0.3
    truths[:2] = True, False
    scores = np.round(generator.random(40) + 0.3 * truths, seed % 3)  # with one or no decimal: many ties
    found = detection(truths, scores, bootstrap=0, threshold=0.6)
    assert found.f1.value == pytest.approx(f1_by_loops(truths, scores, 0.6), abs=1e-12)
    assert found.auc.value == pytest.approx(auc_by_loops(truths, scores), abs=1e-12)
    assert found.precision_at_90.value == pytest.approx(precision_by_loops(truths, scores), abs=1e-12)
    assert (found.faults, found.cases, found.auc.interval) == (truths.sum(), 40, None)


def test_perfect_reversed_and_constant():
    truths = [True] * 3 + [False] * 5
    assert detection(truths, [2] * 3 + [1] * 5, 0).auc.value == 1
    assert detection(truths, [1] * 3 + [2] * 5, 0).auc.value == 0
    found = detection(truths, [1] * 8, 0)
    assert (found.auc.value, found.precision_at_90.value) == (0.5, 3 / 8)


def test_intervals_are_those_of_resamples():
    generator = np.random.default_rng(5)
    truths, scores = generator.random(60) < 0.4, np.round(generator.random(60), 1)
    drawn = np.random.default_rng(3)
    resampled = []
    for _ in range(50):
        rows = drawn.integers(60, size=60)
        resampled.append((auc_by_loops(truths[rows], scores[rows]), precision_by_loops(truths[rows], scores[rows])))
    found = detection(truths, scores, bootstrap=50, seed=3)
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    assert found.auc.interval == pytest.approx((low[0], high[0]))
    assert found.precision_at_90.interval == pytest.approx((low[1], high[1]))
    assert found.signature.startswith("Detection|ties:half|recall:0.9|n:60|")
    assert found.f1 is None


def test_f1_has_an_interval_and_a_signature():
    generator = np.random.default_rng(6)
    truths, scores = generator.random(60) < 0.4, generator.random(60)
    drawn = np.random.default_rng(3)
    rows = [drawn.integers(60, size=60) for _ in range(50)]
    found = detection(truths, scores, bootstrap=50, seed=3, threshold=0.5)
    resampled = [f1_by_loops(truths[row], scores[row], 0.5) for row in rows]
    assert found.f1.interval == pytest.approx(np.quantile(resampled, (0.025, 0.975)))
    assert "|threshold:0.5|" in found.signature
    assert detection(truths, scores, 0, threshold=2).f1.value == 0
