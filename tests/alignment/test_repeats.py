"""Words that are there several times on both sides."""

import itertools

import pytest
import torch

from hf_attncal import align_quick
from hf_attncal.alignment.links import order_repeats


def ordered(weights, source: str, target: str):
    """Weights (source, target) of one pair after `order_repeats`."""
    weights = torch.tensor(weights, dtype=torch.float32)[None]
    order_repeats([weights], [(source.split(), target.split())])
    return weights[0]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_even_weights_go_to_the_diagonal(size):
    found = ordered([[1 / size] * size] * size, "the " * size, "le " * size)
    torch.testing.assert_close(found, torch.eye(size))


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 2), (4, 2), (2, 7)])
def test_unequal_repeats_are_linked_once_each_in_order_nearest_to_the_diagonal(rows, columns):
    found = ordered([[0.3] * columns] * rows, "the " * rows, "le " * columns)
    links = found.nonzero().tolist()
    assert len(links) == min(rows, columns)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(links))
    swapped = ordered([[0.3] * rows] * columns, "le " * columns, "the " * rows)
    torch.testing.assert_close(swapped, found.T)


def test_the_best_monotone_cells_are_taken():
    weights = [[0.1, 0.4, 0.1], [0.1, 0.1, 0.4]]
    assert ordered(weights, "the the", "le le le").nonzero().tolist() == [[0, 1], [1, 2]]


def test_clear_weights_keep_their_order():
    weights = [[0.0, 0.0, 0.9], [0.0, 0.8, 0.0], [0.9, 0.0, 0.0]]
    assert torch.equal(ordered(weights, "the man the", "le homme le"), torch.tensor(weights))
    nearly = [[0.45, 0.0, 0.5], [0.0, 0.8, 0.0], [0.5, 0.0, 0.45]]  # these do not
    expected = torch.tensor([[0.95, 0.0, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 0.95]])
    torch.testing.assert_close(ordered(nearly, "the man the", "le homme le"), expected)


def test_adjacent_words_are_always_in_order():
    assert ordered([[0.0, 0.9], [0.9, 0.0]], "The the", "le Le").nonzero().tolist() == [[0, 0], [1, 1]]


def test_unrepeated_words_and_padding_stay():
    weights = torch.rand(2, 3, 3)
    before = weights.clone()
    order_repeats([weights], [(("a", "b", "a"), ("x", "y", "z")), (("a",), ("x", "x"))])
    assert torch.equal(weights, before)


def test_each_direction_gets_what_its_own_block_has():
    forward, backward = torch.full((1, 2, 2), 0.5), torch.full((1, 2, 2), 0.25)
    order_repeats([forward, backward], [(("the", "the"), ("le", "le"))])
    assert torch.equal(forward[0], torch.eye(2))
    assert torch.equal(backward[0], torch.eye(2) / 2)


@pytest.mark.parametrize("symmetrize", ["harmonic", "intersection", "union", "grow-diag-final-and"])
def test_repeats_of_a_pair_are_linked_in_order(symmetrize):
    pairs = [("the the the", "le le le"), ("the cat", "le chat"), ("no , no , no", "non , non , non")]
    found = align_quick(pairs, symmetrize=symmetrize)
    assert found[0].pharaoh() == "0-0 1-1 2-2"
    assert found[2].pharaoh() == "0-0 1-1 2-2 3-3 4-4"
