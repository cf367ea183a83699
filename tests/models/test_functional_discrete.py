"""Every equation of the Discrete Transformer against its loop version, in float64; limits and exact sets."""

import pytest
import reference
import reference_discrete
import torch
from helpers import assert_close, assert_functions_agree, assert_identical

from hf_attncal.models import functional
from hf_attncal.models import functional_discrete as discrete

B, H, T, S, D, N = 2, 3, 4, 5, 3, 6


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(seed: int = 0, scale: float = 0.4) -> torch.Tensor:
    """(B, H, T, S) that are added to less than 1 here and to more there."""
    return scale * torch.softmax(random(B, H, T, S, seed=seed), dim=-1)


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def choice(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(size, (B, H, T), generator=torch.Generator().manual_seed(seed))


# ---- choosing ----


def test_chosen_positions_are_the_argmax_and_the_first_of_equals():
    scores = random(B, H, T, S)
    one_hot, _ = reference.hard_choice(scores)
    assert torch.equal(discrete.chosen_positions(scores), one_hot.argmax(dim=-1))
    tied = torch.tensor([[[[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -0.0, 0.0]]]])
    assert discrete.chosen_positions(tied).tolist() == [[[1, 0, 0]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_padding_is_never_chosen(dtype):
    """Scores of -30,000 are as low as half precision goes; padding is lower."""
    real = torch.tensor([[[[False, True, False, True]]]])
    query, key = torch.full((1, 1, 1, 1), -173.0, dtype=dtype), torch.full((1, 1, 4, 1), 173.0, dtype=dtype)
    scores = functional.attention_scores(query, key, 1.0, real)
    assert discrete.chosen_positions(scores).item() == 1


def test_gathered_values_are_the_product_with_one_hot_weights():
    index = choice(S)
    assert_functions_agree(
        lambda value: discrete.gathered_values(value, index),
        lambda value: reference.cells((B, H, T, D), lambda b, h, t, d: value[b, h, index[b, h, t], d]),
        {"value": random(B, H, S, D)},
    )
    value = random(B, H, S, D)
    product = discrete.one_hot_weights(index, S, torch.float64) @ value
    assert_identical(discrete.gathered_values(value, index), product)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_one_hot_weights(dtype):
    index = choice(S)
    found = discrete.one_hot_weights(index, S, dtype)
    expected = reference.cells((B, H, T, S), lambda b, h, t, s: (index[b, h, t] == s).to(dtype))
    assert_identical(found, expected)


@pytest.mark.parametrize("straight_through", [False, True])
def test_a_temperature_near_0_is_the_argmax(straight_through):
    scores = random(B, H, T, S)
    cold = functional.gumbel_attention(scores, 1e-6, True, straight_through, noise_scale=0.0)
    hard = discrete.one_hot_weights(discrete.chosen_positions(scores), S, torch.float64)
    assert_close(cold, hard)
    warm = functional.gumbel_attention(scores, 1.0, True, straight_through, noise_scale=0.0)
    assert straight_through == torch.equal(warm, hard)


class TestNoiseScale:
    def test_without_noise_it_is_a_softmax_at_the_temperature(self):
        real = torch.tensor([[True] * 5, [True, True, True, False, False]])
        mask = real[:, None, None, :]

        def fast(scores):
            masked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            return functional.gumbel_attention(masked, 0.7, True, real=mask, noise_scale=0.0)

        assert_functions_agree(
            fast, lambda scores: reference.softmax(scores / 0.7, real)[0], {"scores": random(B, H, T, S)}
        )

    def test_without_noise_no_random_number_is_drawn(self):
        before = torch.get_rng_state()
        functional.gumbel_attention(random(B, H, T, S), 0.7, True, noise_scale=0.0)
        assert torch.equal(torch.get_rng_state(), before)

    def test_half_the_noise(self):
        scores = random(B, H, T, S)
        torch.manual_seed(11)
        found = functional.gumbel_attention(scores, 0.7, True, noise_scale=0.5)
        torch.manual_seed(11)
        noise = reference.gumbel_noise(torch.exp(-torch.empty_like(scores).exponential_()))
        expected = reference.gumbel_softmax(torch.softmax(scores, dim=-1), 0.5 * noise, 0.7)[0]
        assert_close(found, expected)

    def test_straight_through_weights_are_exactly_0_and_1(self):
        """A residue of rounding would decide whether a field of 1 is below the minimum's bound or beyond it."""
        for seed in range(20):
            torch.manual_seed(seed)
            found = functional.gumbel_attention(random(B, H, T, S).float(), 0.9, True, straight_through=True)
            assert set(found.unique().tolist()) == {0.0, 1.0}


# ---- receptive fields ----


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64], ids=str)
def test_initial_fields(dtype):
    expected = reference.cells((B, T, T), lambda b, i, j: torch.tensor(i == j).to(dtype))
    found = discrete.initial_fields(B, T, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def slow_extended(fields, routing, key_fields):
    def row(b: int, t: int) -> list:
        return reference_discrete.extended_field(list(fields[b, t]), list(routing[b, :, t]), list(key_fields[b]))

    return torch.stack([torch.stack([torch.stack(row(b, t)) for t in range(T)]) for b in range(B)])


def test_extended_fields_of_weights():
    """Values and gradients in all three; some cells are beyond the minimum and some are not."""
    inputs = {"fields": 0.5 * unit(B, T, N), "routing": weights(), "key_fields": unit(B, S, N, seed=1)}
    assert_functions_agree(discrete.extended_fields, slow_extended, inputs)
    beyond = discrete.extended_fields(**inputs) == 1
    assert beyond.any()
    assert not beyond.all()


def test_extended_fields_of_choices_are_unions():
    index = choice(S)
    fields, key_fields = unit(B, T, N) < 0.2, unit(B, S, N, seed=1) < 0.3
    found = discrete.extended_fields(fields, index, key_fields)
    assert found.dtype == torch.bool
    for b in range(B):
        sets = [set(row.nonzero().flatten().tolist()) for row in key_fields[b]]
        for t in range(T):
            own = set(fields[b, t].nonzero().flatten().tolist())
            expected = reference_discrete.union_of_choices(own, index[b, :, t].tolist(), sets)
            assert set(found[b, t].nonzero().flatten().tolist()) == expected


def test_fields_of_one_hot_weights_are_those_of_the_choices():
    index = choice(S)
    fields, read = unit(B, T, N) < 0.2, unit(B, S, N, seed=1) < 0.3
    one_hot = discrete.one_hot_weights(index, S, torch.float64)
    found = discrete.extended_fields(fields.double(), one_hot, read.double())
    assert_identical(found, discrete.extended_fields(fields, index, read).double())


def test_weights_of_low_precision_extend_fields_of_their_own():
    inputs = {"fields": unit(B, T, N).float(), "routing": weights(), "key_fields": unit(B, S, N, seed=1).float()}
    found = discrete.extended_fields(inputs["fields"], inputs["routing"].bfloat16(), inputs["key_fields"])
    assert_close(found, discrete.extended_fields(**inputs | {"routing": inputs["routing"].float()}), 1e-2)


def test_expected_field_size():
    inputs = {"target": unit(B, T, T), "source": unit(B, T, S, seed=1)}

    def slow(target, source):
        return reference.cells((B, T), lambda b, t: sum(target[b, t]) + sum(source[b, t]))

    assert_functions_agree(lambda target, source: discrete.expected_field_size(target, source), slow, inputs)
    assert_close(discrete.expected_field_size(inputs["target"], None), inputs["target"].sum(-1))
    assert discrete.expected_field_size(discrete.initial_fields(B, T, torch.bool), None).tolist() == [[1] * T] * B


# ---- schedules ----


@pytest.mark.parametrize("step", [0, 1, 50, 99, 100, 101, 10**7])
def test_warmed_up(step):
    assert float(discrete.warmed_up(torch.tensor(step), 100)) == pytest.approx(min(step / 100, 1), rel=1e-6)
