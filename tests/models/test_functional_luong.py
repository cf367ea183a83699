"""The equations of Luong attention against loops, outputs and gradients."""

import math

import pytest
import torch
from helpers import assert_close, assert_functions_agree
from reference import cells, dot

from hf_attncal.models import functional_luong as fast

B, T, S, D = 2, 3, 4, 3
REAL = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1]]).bool()  # padding in front and in between


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_dot_and_general_scores():
    inputs = {"query": random(B, 1, T, D), "key": random(B, 1, S, D)}
    assert_functions_agree(
        fast.dot_scores,
        lambda query, key: cells((B, 1, T, S), lambda b, h, t, s: dot(query[b, h, t], key[b, h, s])),
        inputs,
    )

    def general(query, states, weight):
        def cell(b, h, t, s):
            return sum(query[b, h, t, i] * weight[i, j] * states[b, h, s, j] for i in range(D) for j in range(D))

        return cells((B, 1, T, S), cell)

    inputs = {"query": inputs["query"], "states": inputs["key"], "weight": random(D, D)}
    assert_functions_agree(lambda query, states, weight: fast.dot_scores(query, states @ weight.mT), general, inputs)


def test_concat_scores():
    def slow(query, key, vector):
        def cell(b, h, t, s):
            return sum(vector[0, i] * torch.tanh(query[b, h, t, i] + key[b, h, s, i]) for i in range(D))

        return cells((B, 1, T, S), cell)

    inputs = {"query": random(B, 1, T, D), "key": random(B, 1, S, D), "vector": random(1, D)}
    assert_functions_agree(fast.concat_scores, slow, inputs)


def test_positions_skip_padding():
    assert fast.source_positions(REAL).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]


def test_location_scores_go_by_position():
    positions = fast.source_positions(REAL)
    assert_functions_agree(
        lambda by_position: fast.location_scores(by_position, positions),
        lambda by_position: cells((B, 1, T, S), lambda b, h, t, s: by_position[b, h, t, positions[b, s]]),
        {"by_position": random(B, 1, T, 6)},
    )


def test_predicted_position_is_inside_the_sentence():
    lengths = REAL.sum(dim=1)

    def slow(hidden, weight, vector):
        def cell(b, h, t, _):
            inner = [torch.tanh(dot(weight[i], hidden[b, h, t])) for i in range(D)]
            return lengths[b] / (1 + torch.exp(-sum(vector[0, i] * inner[i] for i in range(D))))

        return cells((B, 1, T, 1), cell)

    inputs = {"hidden": random(B, 1, T, D), "weight": random(D, D), "vector": random(1, D)}
    assert_functions_agree(lambda **given: fast.predicted_position(**given, lengths=lengths), slow, inputs)
    low = fast.predicted_position(*(tensor.bfloat16() for tensor in inputs.values()), lengths)
    assert low.dtype == torch.float32


@pytest.mark.parametrize("width", [1, 2])
def test_windows(width: int):
    positions = fast.source_positions(REAL)
    centre = 2 * random(B, 1, T, 1) + 1  # outside of the sentence, too

    def seen(b, h, t, s):
        return torch.tensor(abs(positions[b, s].item() - centre[b, h, t, 0].item()) <= width)

    found = fast.window(positions, centre, width)
    assert torch.equal(found, cells((B, 1, T, S), seen))
    assert not found.all()
    assert found.any()
    steps = torch.arange(T)[:, None]
    monotonic = cells((B, 1, T, S), lambda b, h, t, s: torch.tensor(abs(int(positions[b, s]) - t) <= width))
    assert torch.equal(fast.window(positions, steps, width).expand(B, 1, T, S), monotonic)

    def slow(centre):
        sigma = width / 2
        return cells(
            (B, 1, T, S), lambda b, h, t, s: torch.exp(-((positions[b, s] - centre[b, h, t, 0]) ** 2) / (2 * sigma**2))
        )

    assert_functions_agree(lambda centre: fast.gaussian(positions, centre, width), slow, {"centre": centre})


def test_attention_of_a_window_is_a_softmax_over_it():
    seen = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]).bool()

    def slow(scores):
        def cell(b, h, t, s):
            if not seen[t, s]:
                return scores.new_zeros(())
            return torch.exp(scores[b, h, t, s]) / sum(torch.exp(scores[b, h, t, k]) for k in range(S) if seen[t, k])

        return cells((B, 1, T, S), cell)

    assert_functions_agree(lambda scores: fast.windowed_attention(scores, seen), slow, {"scores": random(B, 1, T, S)})
    everything = fast.windowed_attention(random(B, 1, T, S), None)
    assert_close(everything.sum(dim=-1), torch.ones(B, 1, T, dtype=torch.float64))


def test_selective_gate():
    def slow(states, sentence, state_weight, sentence_weight, bias):
        def cell(b, s, i):
            inner = dot(state_weight[i], states[b, s]) + dot(sentence_weight[i], sentence[b]) + bias[i]
            return states[b, s, i] / (1 + torch.exp(-inner))

        return cells((B, S, D), cell)

    shapes = {"states": (B, S, D), "sentence": (B, 5), "state_weight": (D, D), "sentence_weight": (D, 5), "bias": (D,)}
    assert_functions_agree(fast.selective_gate, slow, {name: random(*shape) for name, shape in shapes.items()})


def test_gaussian_is_one_at_its_centre_and_falls_off_by_sigma():
    found = fast.gaussian(torch.tensor([[0, 1, 5]]), torch.zeros(1, 1, 1, 1), 10)
    assert found[0, 0, 0].tolist() == pytest.approx([1.0, math.exp(-1 / 50), math.exp(-0.5)])
