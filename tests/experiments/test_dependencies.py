"""Receptive fields against true dependencies, cell by cell."""

import numpy as np
import pytest
from dependencies import dependency_score
from hypothesis import given
from hypothesis import strategies as st

from hf_attncal import __version__
from hf_attncal.metrics.base import Metric


def fields(seed: int, sizes=(4, 4, 4), share: float = 0.5) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.random((size, size)) < share for size in sizes]


def slow(true, predicted, current: bool, begin: bool) -> tuple[list[tuple[int, int, int]], tuple[float, float, float]]:
    """Counts of every sequence (hits, predicted, true), and the scores of all of them."""
    rows = []
    for gold, field in zip(true, predicted, strict=True):
        cells = [
            (i, j)
            for i in range(gold.shape[0])
            for j in range(gold.shape[1])
            if (current or i != j) and (begin or j != 0)
        ]
        is_true, is_read = ({cell for cell in cells if matrix[cell]} for matrix in (gold, field))
        rows.append((len(is_true & is_read), len(is_read), len(is_true)))
    hits, read, needed = (sum(row[k] for row in rows) for k in range(3))
    precision, recall = hits / read if read else 1.0, hits / needed if needed else 1.0
    return rows, (
        precision,
        recall,
        2 * precision * recall / (precision + recall) if hits else float(read + needed == 0),
    )


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    st.booleans(),
    st.booleans(),
)
def test_scores_are_those_of_a_count_cell_by_cell(seed, sizes, share, current, begin):
    true, predicted = fields(seed, sizes), fields(seed + 1, sizes, share)
    rows, scores = slow(true, predicted, current, begin)
    found = dependency_score(true, predicted, current=current, begin=begin)
    assert (found.precision, found.recall, found.f1) == pytest.approx(scores, abs=1e-12)
    assert [found.hits, found.predicted, found.true] == [sum(row[k] for row in rows) for k in range(3)]
    assert found.sequences == len(sizes)
    assert found.intervals is None


def test_sums_are_over_all_predictions_and_not_means_of_sequences():
    true = [np.ones((1, 1), dtype=bool), np.ones((1, 9), dtype=bool)]
    predicted = [np.ones((1, 1), dtype=bool), np.arange(9)[None] == 0]
    found = dependency_score(true, predicted)
    assert (found.precision, found.recall, found.f1) == pytest.approx((1.0, 0.2, 1 / 3))


def test_where_nothing_is_asked_or_claimed_no_error_was_made():
    none, some = np.zeros((1, 2, 2), dtype=bool), np.ones((1, 2, 2), dtype=bool)
    scores = {
        name: (found.precision, found.recall, found.f1)
        for name, found in {
            "neither": dependency_score(none, none),
            "nothing read": dependency_score(some, none),
            "nothing true": dependency_score(none, some),
            "all": dependency_score(some, some),
        }.items()
    }
    assert scores == {"neither": (1, 1, 1), "nothing read": (1, 0, 0), "nothing true": (0, 1, 0), "all": (1, 1, 1)}


def test_the_signature_says_what_counts():
    true = np.stack(fields(0))
    assert dependency_score(true, true).signature == (
        f"Dependencies|current:counted|begin:counted|n:3|version:{__version__}"
    )
    other = dependency_score(true, true, current=False, begin=False)
    assert other.signature == f"Dependencies|current:excluded|begin:excluded|n:3|version:{__version__}"


def test_intervals_are_those_of_resampled_sequences():
    sizes = (3, 4, 5) * 7
    true, predicted = fields(1, sizes), fields(2, sizes)
    rows, scores = slow(true, predicted, True, True)
    found = dependency_score(true, predicted, bootstrap=50, seed=3)
    formulas = {
        "precision": lambda sums: sums[..., 0] / sums[..., 1],
        "recall": lambda sums: sums[..., 0] / sums[..., 2],
        "f1": lambda sums: 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2]),
    }
    assert list(found.intervals) == list(formulas)
    for (name, formula), score in zip(formulas.items(), scores, strict=True):
        low, high = found.intervals[name]
        assert (low, high) == pytest.approx(Metric("", formula).interval(np.array(rows), 50, seed=3), abs=1e-12)
        assert low < score < high
    assert dependency_score(true, predicted, bootstrap=50, seed=4).intervals != found.intervals
