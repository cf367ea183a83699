"""The attentions of a Transformer as sums of vectors, and methods that look at those of the cross-attention alone.

An attention with the residual connection around it computes, for step t,

    state_t = residual_t + sum_j sum_h a_h[t, j] f_h(x_j) + b,    f_h(x) = (x W_V,h + b_V,h) W_O,h,

(Kobayashi et al. 2020) with the output bias b. In a post-norm layer a layer norm follows, `(y - mean(y)) / s gamma +
beta`. With s, the standard deviation of this state, held fixed, it is linear in y but for beta: so each vector of the
sum goes through g, `g(y) = (y - mean(y)) / s gamma`, alone (Kobayashi et al. 2021), and the output is

    output_t = g(residual_t) + sum_j g(sum_h a_h[t, j] f_h(x_j)) + g(b) + beta.

In a pre-norm layer the norm is part of x_j, no norm follows, and g changes nothing. What is decomposed is what the
model computes: the weights are those after calibration, and NULL is one more token.

The methods take the encoder's i-th state for the i-th source token. What NULL has is in `null`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_attncal.inference.reading import decoder_size
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.report.attribution.method import Batch, OfHeads, Scores

_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj", "num_heads", "head_dim")
_MOST_NUMBERS = 2**24  # of vectors at once, 64 MB in float32


@dataclass(frozen=True)
class Block:
    """An attention over J tokens with its residual connection and the norm after it, on a batch.

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
    """The attentions of a layer, and the layer as it was called."""

    self_attention: Block
    cross_attention: Block | None
    call: partial

    def run(self) -> Tensor:
        """Compute the output of the layer again, (batch, steps, d_model)."""
        output = self.call()
        return output[0] if isinstance(output, tuple) else output


class Layers(NamedTuple):
    """The layers of an encoder and of its decoder."""

    encoder: tuple[Layer, ...]
    decoder: tuple[Layer, ...]


def check_blocks(model) -> None:
    """Raise ValueError unless all layers are built as in BART and Marian."""
    for stack in (model.get_encoder(), model.get_decoder()):
        layers = getattr(stack, "layers", None) or ()
        names = [(layer, name) for layer in layers for name in ("self_attn", "encoder_attn") if hasattr(layer, name)]
        # A Discrete Transformer routes values between two streams, or chooses one of them: there are no weights.
        if (
            not layers
            or hasattr(model.config, "streams")
            or not all(hasattr(layer, "self_attn") for layer in layers)
            or not all(isinstance(getattr(layer, f"{name}_layer_norm", None), nn.LayerNorm) for layer, name in names)
            or not all(hasattr(getattr(layer, name), part) for layer, name in names for part in _ATTENTION)
        ):
            raise ValueError(
                "it works only on layers built as in Marian, BART, mBART or M2M100, not on those of model type "
                f"{model.config.model_type!r}"
            )


class _Call(NamedTuple):
    """One call of a module on `states`; `number` orders all calls."""

    number: int
    args: tuple
    kwargs: dict[str, Any]
    output: Any
    states: Tensor | None


def read_layers(model, batch: Batch) -> Layers:
    """Run a model on a batch and take its layers apart; it must be in evaluation mode and form all its weights.

    Raises:
        ValueError: see `check_blocks`, or a layer that does something else between attention and norm.
    """
    check_blocks(model)
    stacks = model.get_encoder().layers, model.get_decoder().layers
    calls: dict[nn.Module, _Call] = {}

    def record(module: nn.Module, args: tuple, kwargs: dict[str, Any], output) -> None:
        calls[module] = _Call(len(calls), args, kwargs, output, args[0] if args else kwargs.get("hidden_states"))

    with ExitStack() as hooks:
        for part in (part for stack in stacks for layer in stack for part in (layer, *layer.children())):
            if not isinstance(part, nn.Linear):
                hooks.enter_context(part.register_forward_hook(record, with_kwargs=True))
        nulls = batch.read(model, attentions=False, details=True).nulls
    layers = []
    for layer, null in chain(zip(stacks[0], repeat(None)), zip(stacks[1], nulls, strict=True)):
        # What a layer reports to its context was reported already.
        kwargs = {name: value for name, value in calls[layer].kwargs.items() if name != "attention_context"}
        cross = _block(model, layer, "encoder_attn", calls, null) if hasattr(layer, "encoder_attn") else None
        own = _block(model, layer, "self_attn", calls, None)
        layers.append(Layer(own, cross, partial(layer, *calls[layer].args, **kwargs)))
    return Layers(tuple(layers[: len(stacks[0])]), tuple(layers[len(stacks[0]) :]))


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
    weights, owner = called.output[1], _owner(attention)
    if null is not None:
        weights = torch.cat([weights, null.unsqueeze(-1)], dim=-1)
        of_null = null_value(attention)[:, None].to(values.dtype).expand(len(values), -1, 1, -1)
        values = torch.cat([values, of_null], dim=2)
    if owner is not None and owner.switches.output_gate:
        query = owner.q_proj(called.states).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        weights = weights * owner.output_gate(query)
    norm = None if is_pre_norm else norm
    return Block(attention, weights, values, residual, state, norm, null is not None, attended is None)


def null_value(attention: nn.Module) -> Tensor | None:
    """Return the value vector of NULL in a cross-attention, (heads, d_k); None where it has no NULL."""
    owner = _owner(attention)
    return owner.null.value if owner is not None and owner.switches.leaky else None


def _owner(attention: nn.Module) -> nn.Module | None:
    """Return what has our switches in an attention: itself, or an active adapter; None in a stock attention."""
    return next((module for module in attention.modules() if getattr(module, "switches", None) is not None), None)


# ---- methods that look at the cross-attention alone ----


@dataclass(frozen=True)
class AttentionWeights(OfHeads):
    """The weights a of the cross-attention.

    Args:
        calibrated: False: those of a calibrated model before its calibration.
    """

    calibrated: bool = True

    def check(self, model) -> None:
        super().check(model)
        if not self.calibrated and not calibrated_layers(model):
            raise ValueError("`calibrated` must be True for a model without `calibration`, got False.")

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        reading = batch.read(model, details=True)
        layers = zip(reading.attentions if self.calibrated else reading.plain, reading.nulls, strict=True)
        return self.of_layers([Scores(self.of_heads(a), null=self.of_heads(null)) for a, null in layers])


@dataclass(frozen=True)
class Contribution(OfHeads):
    """Contributions phi of a calibrated model (Lu et al., eq. 6): how much its mask network changes each weight."""

    @classmethod
    def check_model(cls, model) -> None:
        if not calibrated_layers(model):
            raise ValueError("it reads the masks of a model or an active adapter with `calibration`")

    @classmethod
    def layers(cls, model) -> list[int]:
        return list(calibrated_layers(model))

    def check(self, model) -> None:
        super().check(model)
        masked, layers = calibrated_layers(model), decoder_size(model.config)[0]
        if self.layer is not None and self.layer % layers not in masked:
            raise ValueError(f"`layer` must be one with masks, {masked}, got {self.layer}.")

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        layers = batch.read(model, attentions=False, details=True).contributions
        return self.of_layers([None if phi is None else Scores(self.of_heads(phi)) for phi in layers])


@dataclass(frozen=True)
class OfBlocks(OfHeads):
    """A method that looks at the vectors that the cross-attention adds up."""

    reads_self_attention = True
    needs = (check_blocks,)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        return self.of_layers([self.of_block(layer.cross_attention) for layer in read_layers(model, batch).decoder])

    @abstractmethod
    def of_block(self, block: Block) -> Scores:
        """Return the scores of one layer."""


@dataclass(frozen=True)
class ValueNorm(OfBlocks):
    """The weight times the length of the value vector, a ||v||, averaged over heads."""

    def of_block(self, block: Block) -> Scores:
        return split_null(self.of_heads(block.weights * block.values.norm(dim=-1).unsqueeze(2)), block)


@dataclass(frozen=True)
class TransformedNorm(OfBlocks):
    """The length of the vector that a token adds to the output, ||sum_h a_h f_h(x)|| (Kobayashi et al. 2020)."""

    def of_block(self, block: Block) -> Scores:
        norms = [block.vectors(steps, self.head).norm(dim=-1) for steps in block.in_chunks()]
        return split_null(torch.cat(norms, dim=1), block)


@dataclass(frozen=True)
class FullNorm(OfBlocks):
    """The length of that vector after the layer norm of the block, ||g(sum_h a_h f_h(x))|| (Kobayashi et al. 2021).

    `prefix` has the length of the residual, which is the state of step t itself, in its diagonal: the self-attention
    that made this state is not taken apart. In a pre-norm layer there is no g.
    """

    def of_block(self, block: Block) -> Scores:
        norms = [block.g(block.vectors(steps, self.head), steps).norm(dim=-1) for steps in block.in_chunks()]
        residual = torch.diag_embed(block.g(block.residual).norm(dim=-1))
        return split_null(torch.cat(norms, dim=1), block)._replace(prefix=residual)


def split_null(columns: Tensor, block: Block) -> Scores:
    """Split scores (batch, steps, J) of all that a block attends to into those of tokens and that of NULL."""
    return Scores(columns[..., :-1], null=columns[..., -1]) if block.has_null else Scores(columns)
