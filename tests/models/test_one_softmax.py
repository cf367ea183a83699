"""Renormalised calibration in one softmax, by the model's own kernel: where it runs, and that it computes the same."""

import pytest
import torch
from helpers import CALIBRATIONS, assert_close, tiny_model
from torch import Tensor, nn

from hf_attncal.models.cross_attention import AttentionContext, CrossAttentionMixin

RENORMALIZED = {
    **CALIBRATIONS,
    "fixed, heavy": {"calibration": "fixed", "calibration_weight": 0.7},
    "gated, head": {"calibration": "gated", "mask_projection": "head"},
}
MASKS = {
    "none": None,
    "boolean": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()[:, None, None],
    "no real token": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()[:, None, None],
}


def cross_attention(family: str, dtype: torch.dtype = torch.float64, **config) -> nn.Module:
    """A cross-attention in evaluation mode."""
    return tiny_model(family, dtype, **config).eval().model.decoder.layers[1].encoder_attn


def states(steps: int, width: int = 8, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Decoder states (2, steps, width) and encoder outputs (2, 5, width)."""
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(2, n, width, generator=generator, dtype=torch.float64).to(dtype) for n in (steps, 5))


def run(attention: nn.Module, implementation: str, *inputs, **options) -> tuple[Tensor, Tensor | None]:
    attention.config._attn_implementation = implementation
    return attention(*inputs, **options)


@pytest.fixture
def no_other_path(monkeypatch):
    """The step by step computation is an error."""

    def refused(*args):
        raise AssertionError("computed step by step")

    return lambda: monkeypatch.setattr(CrossAttentionMixin, "_attend", refused)


@pytest.mark.half("family", "steps", "mask", "switches")
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("mask", ["none", "boolean", "additive"])
@pytest.mark.parametrize("switches", RENORMALIZED.values(), ids=RENORMALIZED)
def test_it_is_the_step_by_step_computation(family, switches, mask, steps, no_other_path):
    attention = cross_attention(family, renormalize=True, **switches)
    given = MASKS.get(mask, MASKS["boolean"])
    if mask == "additive":
        given = torch.zeros(given.shape, dtype=torch.float64).masked_fill(~given, torch.finfo(torch.float64).min)
    inputs = states(steps)
    with torch.no_grad():
        expected, weights = run(attention, "eager", *inputs, attention_mask=given)
        assert weights is not None
        no_other_path()
        actual, weights = run(attention, "sdpa", *inputs, attention_mask=given)
    assert weights is None
    assert_close(actual, expected, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("steps", [1, 4])
def test_a_source_of_only_padding_gives_finite_numbers(family, steps, dtype, no_other_path):
    attention = cross_attention(family, dtype, calibration="gated", renormalize=True)
    no_other_path()
    with torch.no_grad():
        output, _ = run(attention, "sdpa", *states(steps, dtype=dtype), attention_mask=MASKS["no real token"])
    assert output.isfinite().all()


@pytest.mark.parametrize(
    "kept",
    [
        {"switches": {"renormalize": False}},
        {"switches": {"leaky": True}},
        {"switches": {"gumbel": True}},
        {"implementation": "eager"},
        {"gradient": True},
        {"training": True},
        {"options": {"output_attentions": True}},
        {"asks": {"record_details": True}},
        {"asks": {"target_mask": torch.ones(2, 4, dtype=torch.bool)}},
    ],
    ids=lambda kept: str(kept).partition("tensor")[0],
)
def test_one_softmax_is_not_used_where_it_would_differ(family, kept, monkeypatch):
    """Gradients, weights, reports and the other switches need the computation step by step."""
    switches = {"calibration": "gated", "renormalize": True} | kept.get("switches", {})
    attention = cross_attention(family, **switches).train(kept.get("training", False))
    options = {"attention_context": AttentionContext(**kept.get("asks", {}))} | kept.get("options", {})
    monkeypatch.delattr(CrossAttentionMixin, "_attend_renormalized")
    with torch.set_grad_enabled(kept.get("gradient", False)):
        _, weights = run(attention, kept.get("implementation", "sdpa"), *states(4), **options)
    assert weights is not None
