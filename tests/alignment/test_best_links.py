"""Each target word and its best source word."""

import numpy as np
import pytest
import torch

from hf_attncal.alignment.links import best_links


def test_each_target_word_gets_its_best_source_word():
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    assert best_links(weights) == best_links(weights.numpy()) == {(1, 0), (0, 1)}


def test_the_first_of_equals_counts():
    assert best_links(torch.tensor([[0.0, 0.5, 0.5], [0.2, 0.2, 0.2]])) == {(1, 0), (0, 1)}


def test_a_row_without_a_positive_score_has_no_link():
    assert best_links(torch.tensor([[0.0, 0.0], [-3.0, -1.0], [-9.0, 0.1]])) == {(1, 2)}


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_a_side_without_words_has_no_link(shape):
    assert best_links(np.zeros(shape)) == frozenset()


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(ValueError, match="NaN in row 1"):
        best_links(torch.tensor([[0.1, 0.2], [0.1, float("nan")]]))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        best_links(torch.tensor([0.1, 0.2]))
