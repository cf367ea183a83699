"""Every equation of the Discrete Transformer against its loop version, in float64; limits and exact sets."""

import pytest
import reference
import torch
from helpers import assert_close, assert_functions_agree

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

    def test_straight_through_weights_are_exactly_0_and_1(self):
        """A residue of rounding would decide whether a field of 1 is below the minimum's bound or beyond it."""
        for seed in range(20):
            torch.manual_seed(seed)
            found = functional.gumbel_attention(random(B, H, T, S).float(), 0.9, True, straight_through=True)
            assert set(found.unique().tolist()) == {0.0, 1.0}


# ---- receptive fields ----


def test_weights_of_low_precision_extend_fields_of_their_own():
    inputs = {"fields": unit(B, T, N).float(), "routing": weights(), "key_fields": unit(B, S, N, seed=1).float()}
    found = discrete.extended_fields(inputs["fields"], inputs["routing"].bfloat16(), inputs["key_fields"])
    assert_close(found, discrete.extended_fields(**inputs | {"routing": inputs["routing"].float()}), 1e-2)


# ---- schedules ----


@pytest.mark.parametrize("step", [0, 1, 50, 99, 100, 101, 10**7])
def test_warmed_up(step):
    assert float(discrete.warmed_up(torch.tensor(step), 100)) == pytest.approx(min(step / 100, 1), rel=1e-6)
