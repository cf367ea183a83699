"""Whether scores recover what was planted, against counts by hand and loops over all orders of ties."""

from itertools import permutations

import numpy as np
import pytest

from hf_attncal.metrics.planted import PLANTED_MEASURES, planted_counts, planted_score


def random_task(seed: int, pairs: int = 8) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Truths, scores with many ties, and candidates, of at most 4 source words."""
    generator = np.random.default_rng(seed)
    shapes = generator.integers(1, 5, size=(pairs, 2))
    truths = [generator.random(shape) < 0.4 for shape in shapes]
    scores = [generator.integers(0, 3, size=shape).astype(float) for shape in shapes]
    return truths, scores, [generator.random(shape) < 0.8 for shape in shapes]


def slow_auc(cells: list[tuple[float, bool]]) -> float:
    wins = [(a > b) + (a == b) / 2 for a, is_true in cells if is_true for b, other in cells if not other]
    return sum(wins) / len(wins)


def slow_score(truths, scores, candidates) -> dict[str, float]:
    """Ties in all orders, one after the other."""
    found, pooled = {name: [] for name in ("accuracy", "precision", "auc")}, []
    for truth, score, candidate in zip(truths, scores, candidates, strict=True):
        of_pair = []
        for row in zip(score.tolist(), truth.tolist(), candidate.tolist(), strict=True):
            cells = [(value, is_true) for value, is_true, might in zip(*row, strict=True) if might]
            count = sum(is_true for _, is_true in cells)
            if not 0 < count < len(cells):
                continue
            orders = [sorted(order, key=lambda cell: -cell[0]) for order in permutations(cells)]
            found["accuracy"].append(np.mean([order[0][1] for order in orders]))
            found["precision"].append(np.mean([[is_true for _, is_true in order[:count]] for order in orders]))
            found["auc"].append(slow_auc(cells))
            of_pair += cells
        if of_pair:
            pooled.append(slow_auc(of_pair))
    return {name: float(np.mean(of)) for name, of in {**found, "pooled_auc": pooled}.items()}


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_all_orders_of_ties(seed):
    truths, scores, candidates = random_task(seed)
    score = planted_score(truths, scores, candidates=candidates)
    for name, expected in slow_score(truths, scores, candidates).items():
        assert getattr(score, name) == pytest.approx(expected)
    everything = [np.ones_like(truth) for truth in truths]
    assert planted_score(truths, scores) == planted_score(truths, scores, candidates=everything)


def test_what_it_is_compared_with():
    truths = [np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], bool), np.array([[1, 0], [1, 0], [1, 1]], bool)]
    score = planted_score(truths, [truth.astype(float) for truth in truths])
    assert (score.accuracy, score.precision, score.auc, score.pooled_auc) == (1, 1, 1, 1)
    assert score.by_chance == pytest.approx((1 / 4 + 2 / 4 + 1 / 2 + 1 / 2) / 4)
    assert score.one_place == 3 / 4  # place 0
    assert score.one_distance == 3 / 4  # 0: j = 0 in both pairs, and j = 1 in the first
    assert (score.pairs, score.target_words) == (2, 4)
    assert "n:2" in score.signature


def test_equal_scores_do_as_well_as_chance():
    truths, _, _ = random_task(9)
    score = planted_score(truths, [np.full(truth.shape, 0.7) for truth in truths])
    assert score.accuracy == pytest.approx(score.by_chance)
    assert score.auc == score.pooled_auc == 0.5


def test_scores_that_cannot_be_compared_between_target_words_have_a_lower_pooled_auc():
    truth = np.array([[True, False], [False, True]])
    score = planted_score([truth], [np.array([[9.0, 8.0], [1.0, 2.0]])])
    assert (score.auc, score.pooled_auc) == (1, 0.75)  # 2 is below 8


def test_intervals_are_over_pairs():
    truths, scores, _ = random_task(3, pairs=40)
    score = planted_score(truths, scores, bootstrap=200)
    assert tuple(score.intervals) == PLANTED_MEASURES
    for name, (low, high) in score.intervals.items():
        assert low < getattr(score, name) < high
    assert planted_score(truths, scores).intervals is None
    counts = planted_counts(truths, scores)
    assert counts.shape == (40, len(PLANTED_MEASURES), 2)
    assert counts[:, 0, 1].sum() == score.target_words


TRUTH = np.array([[True, False]])


@pytest.mark.parametrize(
    ("truths", "scores", "options", "message"),
    [
        ([TRUTH], [], {}, "`scores` must have one entry for each of 1 pairs, got 0"),
        ([TRUTH], [np.ones((1, 2))], {"candidates": []}, "`candidates` must have one entry for each"),
        ([TRUTH], [np.ones((2, 1))], {}, r"`scores` of pair 0 .* shape of its truth, \(1, 2\), got \(2, 1\)"),
        ([TRUTH.astype(int)], [np.ones((1, 2))], {}, "must be booleans"),
        ([TRUTH], [np.array([[1.0, np.nan]])], {}, "must be finite numbers"),
        ([~TRUTH | TRUTH], [np.ones((1, 2))], {}, "comes from some of its candidates only, got none"),
        ([], [], {}, "got none"),
        ([TRUTH], [np.ones((1, 2))], {"bootstrap": -1}, "`bootstrap` must be >= 0"),
    ],
)
def test_what_is_refused(truths, scores, options, message):
    with pytest.raises(ValueError, match=message):
        planted_score(truths, scores, **options)
