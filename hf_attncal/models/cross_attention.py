# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Cross-attention: one mechanism with four switches on top of Marian's and BART's own attention class.

scores (with the NULL column) -> softmax or Gumbel -> calibration of the real columns -> values -> output gate.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .cache import either_cache_name, keys_and_values
from .calibration import FUSIONS, HeadGate, MaskNetwork, OutputGate, StepCount, learned_parts
from .configuration_attncal import guided_rank, observed_heads
from .functional import (
    attention_scores,
    calibration_extent,
    gumbel_attention,
    perturbation_penalty,
    perturbed_attention,
    real_source_tokens,
    renormalized,
    uniform_attention,
    with_null_scores,
    without_empty_rows,
)
from .losses import DetachedParameters
from .observing import HeadObserver


class AttentionContext:
    """Settings of one decoder pass for its cross-attentions, and the results that they record.

    It is a plain class, because some wrappers copy dataclasses and containers of tensors.

    Args:
        perturb: True in the second pass, which uses the perturbed weights and trains the mask.
        target_mask: True for real target steps, (B, T). If given, the penalty (second pass) or means of the
            calibration (first pass) are recorded.
        record_details: True to record attention, mask, gate and NULL weights of every layer.
        copies: True to record the attention that the model copies by.
        guided: layer and head whose attention is recorded, for the loss of links or as a detail.
    """

    def __init__(
        self,
        perturb: bool = False,
        target_mask: Tensor | None = None,
        record_details: bool = False,
        copies: bool = False,
        guided: tuple[int, int] | None = None,
    ):
        self.perturb = perturb
        self.target_mask = target_mask
        self.record_details = record_details
        self.copies = copies
        self.guided = guided
        self.copy_attentions: list[Tensor] = []  # one head, (B, T, S); a recurrent decoder adds one per step
        self.guided_attention: tuple[Tensor, Tensor | None] | None = None  # (B, T, S); weight of NULL, (B, T)
        self.observer: Any = None  # settings of the observer whose attention it is
        self.attentions: list[Tensor] = []
        self.masks: list[Tensor] = []
        self.gates: list[Tensor] = []
        self.null_attentions: list[Tensor] = []
        self.penalties: list[Tensor] = []  # one scalar per layer: sum over real target steps, mean over heads
        self.means: list[dict[str, Tensor]] = []  # one table of scalars per layer

    def add_observed(self, observer: Any, weights: Tensor, null: Tensor | None) -> None:
        """Add the part of a layer to the attention of an observer.

        Args:
            observer: settings of the observer.
            weights, null: see `HeadObserver.mean`.

        Raises:
            ValueError: another observer is active in another layer.
        """
        if self.guided_attention is not None:
            if observer is not self.observer:
                raise ValueError(
                    "only one observer can be active at a time, got two. Set one of them (`set_adapter`)."
                )
            others, other_null = self.guided_attention
            weights, null = weights + others, null if null is None or other_null is None else null + other_null
        self.observer, self.guided_attention = observer, (weights, null)

    def mean_penalty(self, num_targets: Tensor | int) -> Tensor:
        """Return eq. 5 averaged over layers, heads and `num_targets` target steps; 0 if LayerDrop left no layer."""
        if not self.penalties:
            return torch.zeros((), device=None if self.target_mask is None else self.target_mask.device)
        return torch.stack(self.penalties).mean() / num_targets

    def details(self) -> dict[str, Any]:
        """Return the recorded tensors by their names in model outputs."""
        attention, null = self.guided_attention or (None, None)
        return {
            "guided_attention": attention,
            "guided_null": null,
            "uncalibrated_cross_attentions": tuple(self.attentions) or None,
            "calibration_masks": tuple(self.masks) or None,
            "calibration_gates": tuple(self.gates) or None,
            "null_attentions": tuple(self.null_attentions) or None,
        }


class AttentionInputs(NamedTuple):
    """Inputs of one cross-attention.

    Args:
        hidden_states: decoder states, (B, T, d_model).
        query: queries, (B, H, T, d_k).
        key, value: keys and values of the source, (B, H, S, d_k).
        mask_key: keys of the mask network, the same shape; `None` without calibration.
        attention_mask: mask of the source; see `real_source_tokens`.
    """

    hidden_states: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    mask_key: Tensor | None
    attention_mask: Tensor | None


class CrossAttentionMixin(nn.Module):
    """Mixin before `MarianAttention` or `BartAttention` that adds the switches.

    `switches` has the settings of this package (in a model, its config), and `config` the backbone's.
    `has_own_projections` is True if queries and keys differ from the stock attention's.
    """

    has_own_projections = False
    config: Any
    layer_idx: Any
    # Modules and settings of the stock attention
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear
    num_heads: int
    head_dim: int
    scaling: float
    dropout: float
    # Modules from `learned_parts`
    mask_network: MaskNetwork
    gate: HeadGate
    output_gate: OutputGate
    annealing: StepCount
    null: Any  # a NullToken; an adapter's has no value of its own
    observer: HeadObserver | None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.switches = self.config
        for name, part in learned_parts(self.switches, self.num_heads, self.head_dim).items():
            setattr(self, name, part)
        if self.switches.observe:
            heads, share = observed_heads(self.switches, self.switches.guided_attention[0], self.layer_idx)
            sizes = self.num_heads * self.head_dim, self.head_dim, guided_rank(self.switches, self.head_dim)
            self.observer = HeadObserver(*sizes, self.switches.leaky, heads, share) if heads else None

    @either_cache_name
    def forward(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        attention_context: AttentionContext | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend like the stock attention, (B, T, d_model) and (B, S, d_model) -> (B, T, d_model).

        Returns:
            The output, and the weights, (B, H, T, S), if they are requested.
        """
        context = attention_context or AttentionContext()
        if self.switches.observe:
            self.observe(hidden_states, key_value_states, attention_mask, context)
        with_weights = context.record_details or kwargs.get("output_attentions", self.config.output_attentions)
        reported = self._is_copied_by(context) or self._is_guided_by(context)
        changed = self.has_own_projections or self.switches.output_gate
        if self._is_plain() and not (with_weights or reported or changed):
            return super().forward(hidden_states, key_value_states, cache, attention_mask, **kwargs)

        query = self._split_heads(self.q_proj(hidden_states))
        key, value, mask_key = self._source_states(key_value_states, cache, context)
        inputs = AttentionInputs(hidden_states, query, key, value, mask_key, attention_mask)
        output, weights = None, None
        if not with_weights:
            output = self._attend_without_weights(inputs, context, cached=cache is not None)
        if output is None:
            output, weights = self._attend(inputs, context)
        output = self._gate_output(output, query, context)
        output = output.transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)
        return self.out_proj(output), weights

    def _is_plain(self) -> bool:
        """Return True if the weights equal the stock attention's."""
        switches = self.switches
        return switches.calibration is None and not self._is_leaky() and not switches.gumbel

    def _is_leaky(self) -> bool:
        """Return True if NULL takes a share of the output, which an observer does not change."""
        return self.switches.leaky and not self.switches.observe

    def _split_heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def _source_states(
        self, encoder_states: Tensor, cache: Cache | None, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return keys, values and the mask network's keys, (B, H, S, d_k) each, cached after the first step."""

        def project() -> tuple[Tensor, Tensor]:
            key = self._split_heads(self.k_proj(encoder_states))
            value = self._split_heads(self.v_proj(encoder_states))
            if self.switches.calibration is not None:  # side by side, so that every kind of cache carries both
                key = torch.cat([key, self._project_mask_keys(encoder_states, key, context)], dim=-1)
            return key, value

        keys, value = keys_and_values(cache, self.layer_idx, project, is_cross_attention=True)
        if self.switches.calibration is None:
            return keys, value, None
        return keys[..., : self.head_dim], value, keys[..., self.head_dim :]

    def _project_mask_keys(self, encoder_states: Tensor, key: Tensor, context: AttentionContext) -> Tensor:
        with self._mask_gradients(context):
            return self.mask_network.project_keys(encoder_states, key, not context.perturb)

    def _mask_gradients(self, context: AttentionContext) -> torch.set_grad_enabled:
        """Return the mode in which masks are computed.

        The NMT loss does not train the mask network (Lu et al., eq. 13): the first pass takes m as a constant, or its
        parameters as constants.
        """
        reaches_inputs = context.perturb or self.switches.mask_inputs == "trained"
        return torch.set_grad_enabled(reaches_inputs and torch.is_grad_enabled())

    def _null_parameters(self, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor | None]:
        key, value, bias = self.null.key, self.null.value, self.null.bias
        if context.perturb:  # the second pass trains the mask network only
            return key.detach(), value.detach(), None if bias is None else bias.detach()
        return key, value, bias

    def _kernel(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the output of the model's attention kernel, which has no weights; -> (B, H, T, d_k)."""
        kernel = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        dropout = self.dropout if self.training else 0.0
        output, _ = kernel(self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling)
        return output.transpose(1, 2)  # kernels return (B, T, H, d_k)

    def _attend_without_weights(
        self, inputs: AttentionInputs, context: AttentionContext, cached: bool
    ) -> Tensor | None:
        """Attend without computing weights, -> (B, H, T, d_k); None if the settings need weights."""
        switches, plain = self.switches, self._is_plain()
        if self.config._attn_implementation == "eager" or self._is_copied_by(context) or self._is_guided_by(context):
            return None
        if plain:
            return self._kernel(inputs.query, inputs.key, inputs.value, inputs.attention_mask)
        leaky_only = self._is_leaky() and switches.calibration is None and not switches.gumbel
        if leaky_only and self.null.bias is None and not cached:  # kernels have no place for a learned bias
            return self._attend_leaky(*inputs[1:4], inputs.attention_mask)
        if self._is_one_softmax(context):
            return self._attend_renormalized(inputs)
        return None

    def _attend_leaky(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Compute leaky attention with the kernel and NULL as a source token; -> (B, H, T, d_k)."""
        batch, heads, _, width = key.shape
        key = torch.cat([self.null.key[:, None].to(key.dtype).expand(batch, heads, 1, width), key], dim=2)
        value = torch.cat([self.null.value[:, None].to(value.dtype).expand(batch, heads, 1, width), value], dim=2)
        if attention_mask is not None:
            attend = True if attention_mask.dtype == torch.bool else 0.0
            attention_mask = nn.functional.pad(attention_mask, (1, 0), value=attend)
        return self._kernel(query, key, value, attention_mask)

    def _scores(self, query: Tensor, key: Tensor, real: Tensor | None) -> Tensor:
        """Return the scores of the source tokens, padding at the lowest finite value; -> (B, H, T, S)."""
        return attention_scores(query, key, self.scaling, real)

    def _is_one_softmax(self, context: AttentionContext) -> bool:
        """Return True if `_attend_renormalized` suffices: no gradient, recording or other switch."""
        switches = self.switches
        return (
            switches.calibration is not None
            and switches.renormalize
            and not (self._is_leaky() or switches.gumbel)
            and not (self.training or torch.is_grad_enabled() or context.perturb)
            and context.target_mask is None
        )

    def _attend_renormalized(self, inputs: AttentionInputs) -> Tensor:
        """Compute renormalised calibration in one softmax, `softmax(scores + log f)`; -> (B, H, T, d_k)."""
        hidden_states, query, key, value, mask_key, attention_mask = inputs
        real = real_source_tokens(attention_mask)
        factor = self._fusion_factor(self.mask_network(hidden_states, query, mask_key), self._gate_of(query))
        log_factor = factor.to(query.dtype).log_()  # in place throughout: nothing is kept for a gradient
        if query.shape[2] == 1 and query.device.type == "cpu":  # where the kernel is slower than two products
            scores = attention_scores(query, key, self.scaling, real).add_(log_factor)
            output = torch.matmul(torch.softmax(scores, dim=-1), value)
        else:
            if real is not None:
                log_factor.masked_fill_(~real, torch.finfo(log_factor.dtype).min)
            output = self._kernel(query, key, value, log_factor)
        return output if real is None else without_empty_rows(output, real)

    def _attend(self, inputs: AttentionInputs, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Attend with all switches; -> output (B, H, T, d_k) and the weights over real tokens (B, H, T, S)."""
        weights, null_attention = self._weights(inputs, context)
        weights = nn.functional.dropout(weights, p=self.dropout, training=self.training)
        output = torch.matmul(weights, inputs.value)
        if null_attention is not None:
            _, null_value, _ = self._null_parameters(context)
            null_weight = nn.functional.dropout(null_attention, p=self.dropout, training=self.training)
            output = output + null_weight.unsqueeze(-1) * null_value[:, None].to(output.dtype)
        return output, weights

    def _weights(self, inputs: AttentionInputs, context: AttentionContext) -> tuple[Tensor, Tensor | None]:
        """Compute and record the weights without dropout; -> (B, H, T, S), and of NULL (B, H, T), if any."""
        switches, leaky = self.switches, self._is_leaky()
        real = real_source_tokens(inputs.attention_mask)
        scores = self._scores(inputs.query, inputs.key, real)
        if leaky:
            null_key, _, null_bias = self._null_parameters(context)
            scores = with_null_scores(scores, inputs.query, null_key, self.scaling, null_bias)
        if switches.gumbel:
            choices = nn.functional.pad(real, (1, 0), value=True) if leaky and real is not None else real
            attention = gumbel_attention(
                scores, switches.gumbel_temperature, self.training, switches.gumbel_straight_through, choices
            )
        else:
            attention = torch.softmax(scores, dim=-1)
        null_attention = None
        if leaky:
            null_attention, attention = attention[..., 0], attention[..., 1:]
        elif real is not None and (switches.calibration is not None or switches.gumbel):
            attention = without_empty_rows(attention, real)

        weights = attention
        if inputs.mask_key is not None:
            weights = self._calibrate(attention, null_attention, inputs, real, context)
        if context.record_details:
            context.attentions.append(attention)
            if null_attention is not None:
                context.null_attentions.append(null_attention)
        if self._is_copied_by(context):
            self._report_copies(weights, attention, context)
        if context.guided is not None and self._is_guided_by(context):
            head = context.guided[1]
            null = None if null_attention is None else null_attention[:, head]
            context.guided_attention = self._of_head(head, weights, attention), null
        return weights, null_attention

    def _calibrate(
        self,
        attention: Tensor,
        null_attention: Tensor | None,
        inputs: AttentionInputs,
        real: Tensor | None,
        context: AttentionContext,
    ) -> Tensor:
        """Return perturbed weights in the second pass, fused ones otherwise, (B, H, T, S)."""
        with self._mask_gradients(context):
            mask = self.mask_network(inputs.hidden_states, inputs.query, inputs.mask_key, not context.perturb)
        if context.record_details:
            context.masks.append(mask)

        if context.perturb:
            uniform = uniform_attention(attention, real, null_attention)
            if context.target_mask is not None:
                penalty = perturbation_penalty(mask, real) * context.target_mask[:, None]
                context.penalties.append(penalty.sum(dtype=_at_least_float32(penalty)) / self.num_heads)
            return perturbed_attention(attention, mask, uniform)

        gate = self._gate_of(inputs.query)
        if context.record_details and gate is not None:
            context.gates.append(gate[..., 0])
        weights = self._fused(attention, mask, gate)
        if context.target_mask is not None:
            self._report_means(attention, weights, mask, gate, real, context.target_mask, context)
        return weights

    def _is_copied_by(self, context: AttentionContext) -> bool:
        return context.copies and self.layer_idx == self.config.layer_of_copies

    def _is_guided_by(self, context: AttentionContext) -> bool:
        return context.guided is not None and self.layer_idx == context.guided[0] and not self.switches.observe

    def observe(
        self, hidden_states: Tensor, key_value_states: Tensor, attention_mask: Tensor | None, context: AttentionContext
    ) -> None:
        """Record the attention of an observer; nothing is fed back, and the states get no gradient.

        Args:
            hidden_states: inputs of the attention, (B, T, d_model).
            key_value_states: states of the encoder, (B, S, d_model).
            attention_mask: mask of the attention; see `real_source_tokens`.
            context: record of this pass.
        """
        if context.perturb:
            return
        hidden_states, key_value_states = hidden_states.detach(), key_value_states.detach()
        if context.guided is not None and self.observer is not None:
            states, real = (hidden_states, key_value_states), real_source_tokens(attention_mask)
            own = [head for head, _ in self.observer.heads]
            query = self._split_heads(self.q_proj(hidden_states))[:, own]
            key = self._split_heads(self.k_proj(key_value_states))[:, own]
            weights = self.observer.attend(query, key, *states, self.scaling, real)
            context.add_observed(self.switches, *self.observer.mean(weights))
        if self.switches.calibration is not None and (context.record_details or context.target_mask is not None):
            query = self._split_heads(self.q_proj(hidden_states))
            source = self._source_states(key_value_states, None, context)
            self._weights(AttentionInputs(hidden_states, query, *source, attention_mask), context)

    def _report_copies(self, weights: Tensor, attention: Tensor, context: AttentionContext) -> None:
        context.copy_attentions.append(self._of_head(self.config.copy_head, weights, attention))

    def _of_head(self, head: int, weights: Tensor, attention: Tensor) -> Tensor:
        """Return a head's weights without dropout, (B, T, S), scaled to the sum of `attention` (1, or 1 - NULL)."""
        weights, attention = weights[:, head], attention[:, head]
        if self.switches.calibration is not None:
            dtype = _at_least_float32(weights)
            weights = renormalized(weights.to(dtype), attention.to(dtype))
        return weights

    def _gate_of(self, query: Tensor) -> Tensor | None:
        return self.gate(query) if "gate" in FUSIONS[self.switches.calibration].parts else None

    def _gate_output(self, output: Tensor, query: Tensor, context: AttentionContext) -> Tensor:
        """Return the outputs of the heads, (B, H, T, d_k), times the factors of the output gate, if there is one."""
        if not self.switches.output_gate:
            return output
        return output * self.output_gate(query, constant=context.perturb).to(output.dtype)

    def _fused(self, attention: Tensor, mask: Tensor, gate: Tensor | None) -> Tensor:
        weights = attention * self._fusion_factor(mask, gate).to(attention.dtype)
        return renormalized(weights, attention) if self.switches.renormalize else weights

    def _fusion_factor(self, mask: Tensor, gate: Tensor | None) -> Tensor:
        return FUSIONS[self.switches.calibration].factor(mask, gate, self)

    @torch.no_grad()
    def _report_means(
        self,
        attention: Tensor,
        weights: Tensor,
        mask: Tensor,
        gate: Tensor | None,
        real: Tensor | None,
        targets: Tensor,
        context: AttentionContext,
    ) -> None:
        """Record means over heads and real steps, of the mask also over real source tokens."""
        steps = targets[:, None]  # (B, 1, T)
        dtype = _at_least_float32(mask)
        attention, weights, mask = attention.to(dtype), weights.to(dtype), mask.to(dtype)
        rows = calibration_extent(attention, weights, mask)
        if gate is not None:
            rows["gate"] = gate[..., 0].to(dtype)
        means = torch.stack([(row * steps).sum() for row in rows.values()]) / (steps.sum() * self.num_heads)
        context.means.append(dict(zip(rows, means.unbind(), strict=True)))
        cells = steps[..., None].expand(-1, -1, -1, mask.shape[-1]) if real is None else steps[..., None] & real
        context.means[-1]["mask"] = (mask * cells).sum() / (cells.sum() * self.num_heads)


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


class DecoderLayerMixin(nn.Module):
    """Mixin before the stock layer that runs it with detached parameters in the second pass.

    The mode is inside the layer, so that gradient checkpointing recomputes it in the same mode.
    """

    _cross_attention_class: Callable[..., Any]
    encoder_attn: Any

    def __init__(self, config, layer_idx: int | None = None):
        super().__init__(config, layer_idx)
        self.encoder_attn = self._cross_attention_class(
            config.d_model,
            config.decoder_attention_heads,
            dropout=config.attention_dropout,
            is_decoder=True,
            config=config,
            layer_idx=layer_idx,
        )

    def forward(self, *args, attention_context: AttentionContext | None = None, **kwargs) -> Tensor:
        """Run the stock decoder layer."""
        if attention_context is not None and attention_context.perturb:
            with DetachedParameters():
                return super().forward(*args, attention_context=attention_context, **kwargs)
        return super().forward(*args, attention_context=attention_context, **kwargs)
