"""ALTI+ (Ferrando et al. 2022): attention of a Transformer as a sum of vectors, and their shares of its output.

An attention with the residual connection around it computes, for step t,

    state_t = residual_t + sum_j sum_h a_h[t, j] f_h(x_j) + b,    f_h(x) = (x W_V,h + b_V,h) W_O,h,

with the output bias b. In a post-norm layer a layer norm follows, `(y - mean(y)) / s gamma + beta`. With s, the
standard deviation of this state, held fixed, the norm is linear in y except for beta. So
`g(y) = (y - mean(y)) / s gamma` can be applied to each vector of the sum, and the output is

    output_t = g(residual_t) + sum_j g(sum_h a_h[t, j] f_h(x_j)) + g(b) + beta.

In a pre-norm layer the norm is part of x_j, no norm follows, and g is the identity. The weights are those after
calibration, and NULL is one more token.

The share of a vector z_j = g(...) is proportional to `max(0, ||y||_1 - ||y - z_j||_1)`, where y is the output with all
biases, as in the published code. In self-attention the residual is part of the vector of its own position, in
cross-attention it is a separate vector. If all shares of a row are 0, the residual gets 1. Feed-forward layers do not
mix positions and are left out.

Shares go through all layers, from the prediction down to the tokens. Let A be the shares (source, source) of an
encoder layer; and of a decoder layer O those of the positions of the layer below (target, target), X those of the
encoder's states (target, source) and n those of NULL. With the encoder's E = A_L ... A_1, the tokens' shares in layer
l are

    prefix_l = O_l prefix_l-1,    source_l = X_l E + O_l source_l-1,    null_l = n_l + O_l null_l-1,

from prefix_0 = I, source_0 = null_0 = 0. They sum to 1 in each row.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_attncal.inference.reading import read

_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj", "num_heads", "head_dim")
_MAX_CHUNK_NUMBERS = 2**24  # numbers in a chunk of vectors, 64 MB in float32


@dataclass(frozen=True)
class Block:
    """An attention over J tokens with its residual connection and the norm after it, on a batch.

    Args:
        attention: attention module.
        weights: a, (batch, heads, steps, J); the last of the J is NULL if `has_null`.
        values: x W_V + b_V, (batch, heads, J, d_k).
        residual: (batch, steps, d_model).
        state: sum of residual and attention, (batch, steps, d_model).
        norm: layer norm after the sum; None in a pre-norm layer.
        has_null: True if NULL is one of the tokens.
        is_self_attention: True if the tokens are the positions of the steps.
    """

    attention: Any
    weights: Tensor
    values: Tensor
    residual: Tensor
    state: Tensor
    norm: nn.LayerNorm | None
    has_null: bool
    is_self_attention: bool

    def transformed(self) -> Tensor:
        """Return f_h(x_j), (batch, heads, J, d_model)."""
        batch, heads, tokens, width = self.values.shape
        bias = self.attention.out_proj(self.values.new_zeros(self.residual.shape[-1]))
        by_head = []
        for head in range(heads):  # call the module, whose weight may be adapted or quantised
            head_values = self.values.new_zeros(batch, tokens, heads, width)
            head_values[:, :, head] = self.values[:, head]
            by_head.append(self.attention.out_proj(head_values.flatten(2)) - bias)
        return torch.stack(by_head, dim=1)

    def g(self, vectors: Tensor, steps: slice = slice(None)) -> Tensor:
        """Return g of vectors (batch, steps, ..., d_model)."""
        if self.norm is None:
            return vectors
        variance = self.state[:, steps].var(dim=-1, correction=0)
        scale = (variance + self.norm.eps).rsqrt().reshape(*variance.shape, *[1] * (vectors.dim() - 2))
        return (vectors - vectors.mean(dim=-1, keepdim=True)) * scale * self.norm.weight

    def shares(self) -> tuple[Tensor, Tensor]:
        """Return the shares of the J tokens, (batch, steps, J), and of the residual, (batch, steps); they sum to 1."""
        output = self.state if self.norm is None else self.norm(self.state)
        transformed = self.transformed()
        batch, _, length, tokens = self.weights.shape
        size = max(1, _MAX_CHUNK_NUMBERS // (batch * tokens * self.state.shape[-1]))
        chunks = []
        for start in range(0, length, size):  # all vectors together may not fit into memory
            steps = slice(start, start + size)
            vectors = torch.einsum("bhtj,bhjd->btjd", self.weights[:, :, steps], transformed)
            residual, whole = self.residual[:, steps], output[:, steps]
            if self.is_self_attention:
                places = torch.arange(residual.shape[1], device=residual.device)
                vectors[:, places, places + start] += residual
                residual = torch.zeros_like(residual)
            norm = whole.norm(p=1, dim=-1)
            near = norm.unsqueeze(-1) - (self.g(vectors, steps) - whole.unsqueeze(2)).norm(p=1, dim=-1)
            rest = norm - (self.g(residual, steps) - whole).norm(p=1, dim=-1)
            chunks.append((near.clamp(min=0), rest.clamp(min=0)))
        near, rest = (torch.cat(side, dim=1) for side in zip(*chunks, strict=True))
        total = near.sum(dim=-1) + rest
        rest = torch.where(total > 0, rest, 1.0)
        total = torch.where(total > 0, total, 1.0)
        return near / total.unsqueeze(-1), rest / total


def alti_shares(model, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the shares of source tokens, of target prefix tokens, and of NULL (None if there is no NULL).

    Args and errors: see `read_blocks`.
    """
    encoder, decoder = read_blocks(model, batch)

    def mixing(block: Block) -> Tensor:
        tokens, residual = block.shares()
        return tokens + torch.diag_embed(residual)

    mixed = mixing(encoder[0])
    for block in encoder[1:]:
        mixed = mixing(block) @ mixed
    rows, steps, _ = decoder[0][0].state.shape
    prefix = torch.eye(steps, dtype=mixed.dtype, device=mixed.device).expand(rows, steps, steps)
    source, null = mixed.new_zeros(rows, steps, mixed.shape[-1]), mixed.new_zeros(rows, steps, 1)
    for own_block, cross_block in decoder:
        tokens, residual = cross_block.shares()
        own = residual.unsqueeze(-1) * mixing(own_block)
        null = own @ null
        if cross_block.has_null:
            tokens, null = tokens[..., :-1], null + tokens[..., -1:]
        source = own @ source + tokens @ mixed
        prefix = own @ prefix
    return source, prefix, null.squeeze(-1) if any(cross.has_null for _, cross in decoder) else None


def check_blocks(model) -> None:
    """Raise ValueError unless all layers are built as in BART and Marian."""
    for stack in (model.get_encoder(), model.get_decoder()):
        layers = getattr(stack, "layers", None) or ()
        names = [(layer, name) for layer in layers for name in ("self_attn", "encoder_attn") if hasattr(layer, name)]
        # A Discrete Transformer has no usable weights: it routes values between two streams, or selects one.
        if (
            not layers
            or hasattr(model.config, "streams")
            or not all(hasattr(layer, "self_attn") for layer in layers)
            or not all(isinstance(getattr(layer, f"{name}_layer_norm", None), nn.LayerNorm) for layer, name in names)
            or not all(hasattr(getattr(layer, name), part) for layer, name in names for part in _ATTENTION)
        ):
            raise ValueError(
                "it needs layers built as in Marian, BART, mBART or M2M100, got model type "
                f"{model.config.model_type!r}"
            )


class _Call(NamedTuple):
    """One call of a module on `states`; `number` orders all calls."""

    number: int
    kwargs: dict[str, Any]
    output: Any
    states: Any


def read_blocks(model, batch: Mapping[str, Tensor]) -> tuple[list[Block], list[tuple[Block, Block]]]:
    """Run a model on a batch and return the blocks of its layers.

    Args:
        model: encoder-decoder that passes `check_blocks`, in evaluation mode, with attentions that return weights.
        batch: tensors in the form of `inference.reading.read`.

    Returns:
        The self-attention of each encoder layer; and the self- and cross-attention of each decoder layer.

    Raises:
        ValueError: a layer has another operation between attention and norm.
    """
    stacks = model.get_encoder().layers, model.get_decoder().layers
    calls: dict[nn.Module, _Call] = {}

    def record(module: nn.Module, args: tuple, kwargs: dict[str, Any], output) -> None:
        calls[module] = _Call(len(calls), kwargs, output, args[0] if args else kwargs.get("hidden_states"))

    with ExitStack() as hooks:
        for part in chain.from_iterable(layer.children() for stack in stacks for layer in stack):
            if not isinstance(part, nn.Linear):
                hooks.enter_context(part.register_forward_hook(record, with_kwargs=True))
        nulls = read(model, batch, attentions=False, details=True).nulls
    encoder = [_block(model, layer, "self_attn", calls, None) for layer in stacks[0]]
    decoder = [
        (_block(model, layer, "self_attn", calls, None), _block(model, layer, "encoder_attn", calls, null))
        for layer, null in zip(stacks[1], nulls, strict=True)
    ]
    return encoder, decoder


def _block(model, layer: nn.Module, name: str, calls: Mapping[nn.Module, _Call], null: Tensor | None) -> Block:
    attention, norm = getattr(layer, name), getattr(layer, f"{name}_layer_norm")
    called = calls[attention]
    after = [calls[m] for m in layer.children() if isinstance(m, nn.LayerNorm) and calls[m].number > called.number]
    state = min(after, key=lambda call: call.number).states
    is_pre_norm = calls[norm].number < called.number
    residual = calls[norm].states if is_pre_norm else called.states
    if not torch.allclose(residual + called.output[0], state, rtol=1e-2, atol=1e-2 * float(state.abs().max())):
        raise ValueError(
            f"`method` 'alti' needs a residual sum after `{name}`, which model type {model.config.model_type!r} "
            "lacks. Use another method."
        )
    attended = called.kwargs.get("key_value_states")
    values = attention.v_proj(called.states if attended is None else attended)
    values = values.unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)
    weights, switched = called.output[1], switched_part(attention)
    if null is not None:
        weights = torch.cat([weights, null.unsqueeze(-1)], dim=-1)
        null_values = switched.null.value[:, None].to(values.dtype).expand(len(values), -1, 1, -1)
        values = torch.cat([values, null_values], dim=2)
    if switched is not None and switched.switches.output_gate:
        query = switched.q_proj(called.states).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        weights = weights * switched.output_gate(query)
    norm = None if is_pre_norm else norm
    return Block(attention, weights, values, residual, state, norm, null is not None, attended is None)


def switched_part(attention: nn.Module) -> Any:
    """Return the module with our switches in an attention (itself or an active adapter); None in a stock attention."""
    return next((module for module in attention.modules() if getattr(module, "switches", None) is not None), None)
