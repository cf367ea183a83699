"""Which place of a repeated token is meant."""

import pytest
import torch
from helpers import assert_close, assert_identical

from hf_attncal.inference.reading import shared_among_places

SENTENCE = ["the", "old", "house", "and", "the", "new", "garden"]
IDS = [SENTENCE.index(word) for word in SENTENCE]  # the second "the" has the number of the first


def certain(*places: int) -> torch.Tensor:
    """(1, steps, source): steps that are sure of the tokens at these places."""
    ids = torch.tensor(IDS)
    return (ids[list(places)].unsqueeze(1) == ids).double().unsqueeze(0)


def shared(probabilities: torch.Tensor) -> torch.Tensor:
    ids = torch.tensor([IDS] * len(probabilities))
    steps = torch.ones(probabilities.shape[:2], dtype=torch.bool)
    return shared_among_places(probabilities, ids, torch.ones_like(ids, dtype=torch.bool), steps)


@pytest.mark.parametrize(
    "places", [(0, 1, 2, 3, 4, 5, 6), (4, 5, 6, 3, 0, 1, 2), (3, 4, 5), (0, 1), (2, 3, 4)], ids=str
)
def test_the_neighbours_decide(places: tuple[int, ...]):
    """In any order of phrases, also if only the step before determines a position."""
    found = shared(certain(*places))[0]
    assert found.argmax(dim=-1).tolist() == list(places)
    assert (found.max(dim=-1).values > 0.55).all()


def test_without_neighbours_the_places_share_alike():
    found = shared(certain(0))[0, 0]
    assert_close(found, torch.tensor([0.5, 0, 0, 0, 0.5, 0, 0], dtype=torch.float64))


def test_positions_share_exactly_the_probability_of_their_token():
    probabilities = torch.rand(3, 4, 7, dtype=torch.float64) / 7
    probabilities[..., 4] = probabilities[..., 0]
    found = shared(probabilities)
    assert_close(found[..., 0] + found[..., 4], probabilities[..., 0])
    once = [1, 2, 3, 5, 6]
    assert_close(found[..., once], probabilities[..., once])
    assert (found[..., 0] - found[..., 4]).abs().max() > 1e-3


def test_against_loops():
    probabilities = torch.rand(1, 4, 7, dtype=torch.float64) / 7
    probabilities[..., 4] = probabilities[..., 0]
    found, q = shared(probabilities)[0], probabilities[0].tolist()
    for step in range(4):
        evidence = []
        for place in range(7):
            around = [(step + d, place + d, 2.0 ** -abs(d)) for d in (-3, -2, -1, 1, 2, 3)]
            inside = [(weight, j, i) for j, i, weight in around if 0 <= j < 4 and 0 <= i < 7]
            evidence.append(1e-6 + sum(weight * q[j][i] for weight, j, i in inside))
        for place in range(7):
            places = [other for other in range(7) if IDS[other] == IDS[place]]
            share = evidence[place] / sum(evidence[other] for other in places)
            assert found[step, place].item() == pytest.approx(q[step][place] * share, abs=1e-12)


@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_nothing(left: bool):
    """On both sides of a pair; what stands there, and what token it is, does not matter."""
    probabilities = torch.rand(1, 4, 7) / 7
    probabilities[..., 4] = probabilities[..., 0]
    expected = shared(probabilities)
    ids, mask = torch.full((1, 9), IDS[0]), torch.zeros(1, 9, dtype=torch.bool)
    wide, steps = torch.rand(1, 6, 9), torch.zeros(1, 6, dtype=torch.bool)
    real = slice(2, 9) if left else slice(0, 7)
    ids[:, real], mask[:, real] = torch.tensor([IDS]), True
    wide[:, :4, real], steps[:, :4] = probabilities, True
    found = shared_among_places(wide, ids, mask, steps)
    assert_close(found[:, :4, real], expected, 1e-7)
    found[:, :4, real] = 0
    assert_identical(found, torch.zeros_like(found))
