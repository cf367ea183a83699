"""The attentions of a Transformer as sums of vectors: one for each token that is attended to, and the rest.

An attention with the residual connection around it computes, for step t,

    state_t = residual_t + sum_j sum_h a_h[t, j] f_h(x_j) + b,    f_h(x) = (x W_V,h + b_V,h) W_O,h,

(Kobayashi et al. 2020) with the output bias b. In a post-norm layer a layer norm follows, `(y - mean(y)) / s gamma +
beta`. With s, the standard deviation of this state, held fixed, it is linear in y but for beta: so each vector of the
sum goes through g, `g(y) = (y - mean(y)) / s gamma`, alone (Kobayashi et al. 2021), and the output is

    output_t = g(residual_t) + sum_j g(sum_h a_h[t, j] f_h(x_j)) + g(b) + beta.

In a pre-norm layer the norm is part of x_j, no norm follows, and g changes nothing. What is decomposed is what the
model computes: the weights are those after calibration, and NULL is one more token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_attncal.analysis.reading import read

from .base import Batch

_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj", "num_heads", "head_dim")
_MOST_NUMBERS = 2**24  # of vectors at once, 64 MB in float32


@dataclass(frozen=True)
class Block:
    """One attention, the residual connection around it and the norm behind it, on a batch; J tokens attended to.

    Args:
        attention: the module.
        weights: a, (batch, heads, steps, J); the last of the J is NULL where `has_null`.
        values: x W_V + b_V, (batch, heads, J, d_k).
        residual: (batch, steps, d_model).
        state: residual and attention, the same shape.
        norm: the layer norm behind it; None in a pre-norm layer.
        has_null: whether NULL is there.
        is_self_attention: what is attended to are the positions of the steps.
    """

    attention: nn.Module
    weights: Tensor
    values: Tensor
    residual: Tensor
    state: Tensor
    norm: nn.LayerNorm | None
    has_null: bool
    is_self_attention: bool

    @cached_property
    def transformed(self) -> Tensor:
        """Return f_h(x_j), (batch, heads, J, d_model)."""
        batch, heads, tokens, width = self.values.shape
        found = []
        for head in range(heads):  # by the module and not by its weight: it may be adapted or quantised
            alone = self.values.new_zeros(batch, tokens, heads, width)
            alone[:, :, head] = self.values[:, head]
            found.append(self.attention.out_proj(alone.flatten(2)) - self._output_bias)
        return torch.stack(found, dim=1)

    @cached_property
    def _output_bias(self) -> Tensor:
        return self.attention.out_proj(self.values.new_zeros(self.residual.shape[-1]))

    def vectors(self, steps: slice = slice(None), head: int | None = None) -> Tensor:
        """Return sum_h a_h[t, j] f_h(x_j), or that of one head, before g: (batch, steps, J, d_model)."""
        heads = slice(None) if head is None else slice(head, head + 1)
        return torch.einsum("bhtj,bhjd->btjd", self.weights[:, heads, steps], self.transformed[:, heads])

    def g(self, vectors: Tensor, steps: slice = slice(None)) -> Tensor:
        """Apply g to vectors (batch, steps, ..., d_model)."""
        if self.norm is None:
            return vectors
        variance = self.state[:, steps].var(dim=-1, correction=0)
        scale = (variance + self.norm.eps).rsqrt().reshape(*variance.shape, *[1] * (vectors.dim() - 2))
        return (vectors - vectors.mean(dim=-1, keepdim=True)) * scale * self.norm.weight

    @property
    def bias(self) -> Tensor:
        """Return g(b) + beta, which comes from no token: (batch, steps, d_model)."""
        bias = self.g(self._output_bias.expand_as(self.state))
        return bias if self.norm is None or self.norm.bias is None else bias + self.norm.bias

    @cached_property
    def output(self) -> Tensor:
        """Return what the block computes, (batch, steps, d_model)."""
        return self.state if self.norm is None else self.norm(self.state)

    def in_chunks(self) -> Iterator[slice]:
        """Yield all steps, so many at once that the vectors of a chunk do not fill the memory."""
        batch, _, steps, tokens = self.weights.shape
        size = max(1, _MOST_NUMBERS // (batch * tokens * self.state.shape[-1]))
        return (slice(start, start + size) for start in range(0, steps, size))


class Layer(NamedTuple):
    """The attentions of a layer, and the layer as it was called: `run()` is its output (batch, steps, d_model)."""

    self_attention: Block
    cross_attention: Block | None
    run: partial


class Layers(NamedTuple):
    """All layers of an encoder and of its decoder."""

    encoder: tuple[Layer, ...]
    decoder: tuple[Layer, ...]


def check_blocks(model) -> None:
    """Raise ValueError unless all layers are built as in BART and Marian."""
    for stack in (model.get_encoder(), model.get_decoder()):
        layers = getattr(stack, "layers", None)
        # A Discrete Transformer routes values between two streams, or chooses one of them: there are no weights.
        if not layers or not all(map(_is_known, layers)) or hasattr(model.config, "streams"):
            raise ValueError(
                "it takes layers apart that are built as in Marian, BART, mBART or M2M100, and those of model type "
                f"{model.config.model_type!r} are not"
            )


def _is_known(layer: nn.Module) -> bool:
    names = [name for name in ("self_attn", "encoder_attn") if hasattr(layer, name)]
    parts = [(getattr(layer, name), getattr(layer, f"{name}_layer_norm", None)) for name in names]
    return bool(parts) and all(
        isinstance(norm, nn.LayerNorm) and all(hasattr(attention, part) for part in _ATTENTION)
        for attention, norm in parts
    )


class _Call(NamedTuple):
    """One call of a module; `number` orders all calls."""

    number: int
    args: tuple
    kwargs: dict[str, Any]
    output: Any

    @property
    def states(self) -> Tensor:
        """Return the states that the module was called on."""
        return self.args[0] if self.args else self.kwargs["hidden_states"]


def read_layers(model, batch: Batch) -> Layers:
    """Run a model on a batch and take its layers apart; it must be in evaluation mode and form all its weights.

    Raises:
        ValueError: see `check_blocks`, or a layer that does something else between attention and norm.
    """
    check_blocks(model)
    stacks = model.get_encoder().layers, model.get_decoder().layers
    parts = [module for stack in stacks for layer in stack for module in (layer, *layer.children())]
    with _recorded([part for part in parts if not isinstance(part, nn.Linear)]) as calls:
        (reading,) = read(model, [batch.for_reading()], attentions=False, details=True)
    encoder = tuple(_layer(model, layer, calls, None) for layer in stacks[0])
    return Layers(
        encoder, tuple(_layer(model, layer, calls, null) for layer, null in zip(stacks[1], reading.nulls, strict=True))
    )


@contextmanager
def _recorded(modules: list[nn.Module]) -> Iterator[dict[nn.Module, _Call]]:
    calls: dict[nn.Module, _Call] = {}

    def record(module: nn.Module, args: tuple, kwargs: dict[str, Any], output) -> None:
        calls[module] = _Call(len(calls), args, kwargs, output)

    handles = [module.register_forward_hook(record, with_kwargs=True) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _layer(model, layer: nn.Module, calls: dict[nn.Module, _Call], null: Tensor | None) -> Layer:
    called = calls[layer]
    # What a layer reports to its context was reported already.
    kwargs = {name: value for name, value in called.kwargs.items() if name != "attention_context"}
    cross = _block(model, layer, "encoder_attn", calls, null) if hasattr(layer, "encoder_attn") else None
    return Layer(_block(model, layer, "self_attn", calls, None), cross, partial(_run, layer, called.args, kwargs))


def _run(layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    output = layer(*args, **kwargs)
    return output[0] if isinstance(output, tuple) else output


def _block(model, layer: nn.Module, name: str, calls: dict[nn.Module, _Call], null: Tensor | None) -> Block:
    attention, norm = getattr(layer, name), getattr(layer, f"{name}_layer_norm")
    called = calls[attention]
    after = [calls[m] for m in layer.children() if isinstance(m, nn.LayerNorm) and calls[m].number > called.number]
    state = min(after, key=lambda call: call.number).states
    is_pre_norm = calls[norm].number < called.number
    residual = calls[norm].states if is_pre_norm else called.states
    if not torch.allclose(residual + called.output[0], state, rtol=1e-2, atol=1e-2 * float(state.abs().max())):
        raise ValueError(
            f"`{name}` of a layer of model type {model.config.model_type!r} is not followed by a sum with its "
            "residual, so that its output cannot be taken apart."
        )
    attended = called.kwargs.get("key_value_states")
    values = attention.v_proj(called.states if attended is None else attended)
    values = values.unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)
    weights = called.output[1]
    if null is not None:
        weights = torch.cat([weights, null.unsqueeze(-1)], dim=-1)
        of_null = null_value(attention)[:, None].to(values.dtype).expand(len(values), -1, 1, -1)
        values = torch.cat([values, of_null], dim=2)
    norm = None if is_pre_norm else norm
    return Block(attention, weights, values, residual, state, norm, null is not None, attended is None)


def null_value(attention: nn.Module) -> Tensor | None:
    """Return the value vector of NULL in a cross-attention, (heads, d_k); None where it has no NULL."""
    # The attention is ours, or has an adapter of ours in it.
    owners = (module for module in attention.modules() if getattr(module, "switches", None) is not None)
    owner = next(owners, None)
    return owner.null.value if owner is not None and owner.switches.leaky else None
