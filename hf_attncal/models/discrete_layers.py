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
"""Layers of the Discrete Transformer: Marian's, with attention that selects one position, and one or two streams.

With two streams, modules without a prefix belong to the semantic stream, except the queries and keys, which belong to
the syntactic stream. With one stream every name is Marian's.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.marian import modeling_marian as hf

from .cache import either_cache_name, keys_and_values, named_cache
from .calibration import NullToken
from .configuration_discrete import DiscreteTransformerConfig
from .functional import attention_scores, gumbel_attention, real_source_tokens, with_null_scores
from .functional_discrete import Sampling, chosen_positions, extended_fields, gathered_values, one_hot_weights

# Maximum number of scores that inference compares at a time; they fit into a processor's cache.
SCORES_AT_ONCE = 2**20


class RelativePositions(nn.Module):
    """A learned bias on the scores of a self-attention, for each head and distance from query to key.

    Args:
        num_heads: H.
        width: largest distance with its own bias; larger distances share the bias of this one.
        causal: True if no query sees a later key, so that later keys need no bias.
        scale: factor of the parameters, so that they are learned as fast as scores of single features.
    """

    def __init__(self, num_heads: int, width: int, causal: bool, scale: float):
        super().__init__()
        self.width, self.causal, self.scale = width, causal, scale
        self.bias = nn.Parameter(torch.empty(num_heads, width + 1 if causal else 2 * width + 1))

    def forward(self, queries: int, keys: int, first: int | Tensor) -> Tensor:
        """Return the bias, (H, T, S), if the first query is at the position `first` of the keys."""
        positions = torch.arange(max(queries, keys), device=self.bias.device)
        distance = (first + positions[:queries, None] - positions[:keys]).clamp(-self.width, self.width)
        return self.scale * self.bias[:, distance.clamp(min=0) if self.causal else distance + self.width]


class DiscreteAttention(hf.MarianAttention):
    """Multi-head attention whose heads each select one position (secs. 4 and 5).

    Args:
        syntactic_output: True if the syntactic stream continues after this attention, False if nothing reads it.
        relative: True for `RelativePositions`.
        The others: see `MarianAttention`.
    """

    config: DiscreteTransformerConfig
    layer_idx: Any

    def __init__(self, *args, syntactic_output: bool = True, relative: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.syntactic_output = syntactic_output and self.config.streams == 2
        self.relative_positions = None
        if relative:
            width = self.config.relative_positions
            self.relative_positions = RelativePositions(self.num_heads, width, self.is_causal, self.head_dim**0.5)
        self.null = None
        if self.config.leaky:
            with_bias = self.config.null_bias is not None
            self.null = NullToken(self.num_heads, self.head_dim, value=False, bias=with_bias)
        if self.syntactic_output:
            self.syntactic_v_proj = nn.Linear(self.embed_dim, self.embed_dim)
            self.syntactic_out_proj = nn.Linear(self.embed_dim, self.embed_dim)

    @either_cache_name
    def forward(  # type: ignore[override]  # two streams; the stock attention has one
        self,
        hidden_states: Tensor,
        syntactic_states: Tensor | None = None,
        key_value_states: Tensor | None = None,
        syntactic_key_value_states: Tensor | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        sampling: Sampling | None = None,
        with_routing: bool = False,
        first_query: int | Tensor = 0,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Attend.

        Args:
            hidden_states: states of the only or semantic stream, (B, T, d_model).
            syntactic_states: states of the syntactic stream, same shape; `None` with one stream.
            key_value_states, syntactic_key_value_states: encoder states in cross-attention, (B, S, d_model).
            sampling: sampling of positions in training. Default: `None`, as in the paper.
            with_routing: True to return the routing.
            first_query: position of the first query among the keys in self-attention, the number of cached steps.
            The others: see `MarianAttention`.

        Returns:
            Output (B, T, d_model), weights (B, H, T, S) if the configuration or the call asks for them, output of the
            syntactic stream, routing (`functional_discrete`).
        """
        config = self.config
        with_weights = kwargs.get("output_attentions", config.output_attentions)
        is_stock = not (config.hard_attention or config.leaky or config.streams == 2 or self.relative_positions)
        if is_stock and not with_routing:
            output, weights = super().forward(hidden_states, key_value_states, cache, attention_mask, **kwargs)
            return output, weights, None, None

        router = hidden_states if syntactic_states is None else syntactic_states
        value_states, key_states = hidden_states, router
        if key_value_states is not None:
            value_states = key_states = key_value_states
            if syntactic_key_value_states is not None:
                key_states = syntactic_key_value_states

        def project() -> tuple[Tensor, Tensor]:
            key = self._split_heads(self.k_proj(key_states))
            value = self._split_heads(self.v_proj(value_states))
            if self.syntactic_output:  # side by side, so that every kind of cache carries both
                value = torch.cat([value, self._split_heads(self.syntactic_v_proj(key_states))], dim=-1)
            return key, value

        query = self._split_heads(self.q_proj(router))
        is_cross_attention = key_value_states is not None
        key, value = keys_and_values(cache, self.layer_idx, project, is_cross_attention=is_cross_attention)
        length, keys = query.shape[2], key.shape[2]
        real = real_source_tokens(attention_mask)
        if real is None and self.is_causal and length > 1:
            # The kernels take a missing mask to mean that nothing is padding and that the first query is at the first
            # key. A static cache has empty slots behind the queries.
            real = torch.ones(1, 1, length, keys, dtype=torch.bool, device=query.device).tril()
        bias = None if self.relative_positions is None else self.relative_positions(length, keys, first_query)
        routing, soft = self._route(query, key, real, bias, sampling or Sampling())
        semantic, syntactic = value[..., : self.head_dim], value[..., self.head_dim :]
        if routing.dtype == torch.long:
            output = gathered_values(semantic, routing, nulls=self.null is not None)
            weights = one_hot_weights(routing, keys, query.dtype) if with_weights else None
        else:
            weights = routing
            output = torch.matmul(self._drop_weights(routing), semantic)
        output = self.out_proj(self._merge_heads(output))
        syntactic_output = None
        if soft is not None and self.syntactic_output:
            expected = torch.matmul(self._drop_weights(soft), syntactic)
            syntactic_output = self.syntactic_out_proj(self._merge_heads(expected))
        return output, weights if with_weights else None, syntactic_output, routing if with_routing else None

    def _route(
        self, query: Tensor, key: Tensor, real: Tensor | None, bias: Tensor | None, sampling: Sampling
    ) -> tuple[Tensor, Tensor | None]:
        """Return the routing, and the soft weights, (B, H, T, S), if something else than the routing needs them."""
        is_hard, nulls = self.config.hard_attention, int(self.null is not None)
        if is_hard and not self.training and not self.syntactic_output:
            return self._selected_positions(query, key, real, bias), None
        scores = self._scores(query, key, real, bias)
        soft = torch.softmax(scores, dim=-1)[..., nulls:] if self.syntactic_output or not is_hard else None
        if soft is not None and not is_hard:
            return soft, soft
        if not self.training:
            return chosen_positions(scores) - nulls, soft
        choices = real if real is None or not nulls else nn.functional.pad(real, (1, 0), value=True)
        return gumbel_attention(scores, training=True, real=choices, **sampling._asdict())[..., nulls:], soft

    def _scores(self, query: Tensor, key: Tensor, real: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the scores, (B, H, T, S), or (B, H, T, 1 + S) if there is a NULL key."""
        scores = attention_scores(query, key, self.scaling, real, bias)
        if self.null is None:
            return scores
        return with_null_scores(scores, query, self.null.key, self.scaling, self.null.bias)

    def _selected_positions(self, query: Tensor, key: Tensor, real: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the selected positions, (B, H, T), -1 for NULL; long text is read in blocks of queries.

        Unlike in soft attention, scores are not needed after they have been compared. Memory therefore grows with the
        length and not with its square.
        """
        batch, heads, length, _ = query.shape
        rows = max(1, SCORES_AT_ONCE // (batch * heads * key.shape[2]))

        def part_of(tensor: Tensor | None, start: int) -> Tensor | None:
            return tensor if tensor is None or tensor.shape[-2] == 1 else tensor[..., start : start + rows, :]

        choices = [
            chosen_positions(
                self._scores(query[:, :, start : start + rows], key, part_of(real, start), part_of(bias, start))
            )
            for start in range(0, length, rows)
        ]
        return torch.cat(choices, dim=2) - int(self.null is not None)

    def _split_heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def _merge_heads(self, states: Tensor) -> Tensor:
        return states.transpose(1, 2).flatten(2)

    def _drop_weights(self, weights: Tensor) -> Tensor:
        return nn.functional.dropout(weights, p=self.dropout, training=self.training)


class _ResidualStreamsMixin(nn.Module):
    """Residual steps of both streams; goes before the stock layer in the bases."""

    embed_dim: int
    dropout: float
    activation_fn: nn.Module
    activation_dropout: float
    fc1: nn.Linear
    fc2: nn.Linear
    final_layer_norm: nn.LayerNorm
    syntactic_final_layer_norm: nn.LayerNorm

    def _add_syntactic_stream(self, attentions: tuple[str, ...], width: int) -> None:
        """Build the layer norms after the named attentions, and the feed-forward layers, of the syntactic stream."""
        for name in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
            setattr(self, f"syntactic_{name}", nn.LayerNorm(self.embed_dim))
        self.syntactic_fc1 = nn.Linear(self.embed_dim, width)
        self.syntactic_fc2 = nn.Linear(width, self.embed_dim)

    def _add_and_norm(self, residual: Tensor, output: Tensor, norm: nn.LayerNorm) -> Tensor:
        return norm(residual + nn.functional.dropout(output, p=self.dropout, training=self.training))

    def _feed_forward(self, states: Tensor, fc1: nn.Linear, fc2: nn.Linear, norm: nn.LayerNorm) -> Tensor:
        inner = self.activation_fn(fc1(states))
        inner = nn.functional.dropout(inner, p=self.activation_dropout, training=self.training)
        return self._add_and_norm(states, fc2(inner), norm)

    def _attend_both(
        self, name: str, states: tuple[Tensor, Tensor | None], **inputs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the states of both streams after the named attention, and its routing."""
        residual, syntactic_residual = states
        output, _, syntactic_output, routing = getattr(self, name)(residual, syntactic_residual, **inputs)
        hidden_states = self._add_and_norm(residual, output, getattr(self, f"{name}_layer_norm"))
        if syntactic_output is None or syntactic_residual is None:
            return hidden_states, syntactic_residual, routing
        syntactic_norm = getattr(self, f"syntactic_{name}_layer_norm")
        return hidden_states, self._add_and_norm(syntactic_residual, syntactic_output, syntactic_norm), routing

    def _feed_both_forward(
        self, hidden_states: Tensor, syntactic_states: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        hidden_states = self._feed_forward(hidden_states, self.fc1, self.fc2, self.final_layer_norm)
        if syntactic_states is not None and hasattr(self, "syntactic_fc1"):
            syntactic_states = self._feed_forward(
                syntactic_states, self.syntactic_fc1, self.syntactic_fc2, self.syntactic_final_layer_norm
            )
        return hidden_states, syntactic_states


class DiscreteEncoderLayer(_ResidualStreamsMixin, hf.MarianEncoderLayer):
    """`MarianEncoderLayer` with our attention, and a second stream if there are two."""

    def __init__(self, config: DiscreteTransformerConfig, layer_idx: int | None = None):
        super().__init__(config, layer_idx)
        self.self_attn = DiscreteAttention(
            embed_dim=self.embed_dim,
            num_heads=config.encoder_attention_heads,
            dropout=config.attention_dropout,
            config=config,
            layer_idx=layer_idx,
            relative=config.relative_positions > 0,
        )
        if config.streams == 2:
            self._add_syntactic_stream(("self_attn",), config.encoder_ffn_dim)

    def forward(  # type: ignore[override]  # two streams; the stock layer has one
        self,
        hidden_states: Tensor,
        syntactic_states: Tensor | None = None,
        fields: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the states of both streams, (B, S, d_model), and the receptive fields (B, S, S), if they are given.

        Args:
            fields: receptive fields of the layer below, (B, S, S), or None.
            The others: see `DiscreteAttention.forward`.
        """
        states = hidden_states, syntactic_states
        hidden_states, syntactic_states, routing = self._attend_both(
            "self_attn", states, attention_mask=attention_mask, with_routing=fields is not None, **kwargs
        )
        if fields is not None and routing is not None:
            fields = extended_fields(fields, routing, fields)
        return *self._feed_both_forward(hidden_states, syntactic_states), fields


class DiscreteDecoderLayer(_ResidualStreamsMixin, hf.MarianDecoderLayer):
    """`MarianDecoderLayer` with our attentions, and a second stream if there are two.

    Without an encoder, it has no cross-attention.

    The output layer reads only the semantic stream. The syntactic stream therefore ends in the last layer with its
    last queries and keys.
    """

    def __init__(self, config: DiscreteTransformerConfig, layer_idx: int):
        # The stock constructor would build a cross-attention where there is no encoder.
        GradientCheckpointingLayer.__init__(self)
        self.embed_dim = config.d_model
        self.dropout = config.dropout
        self.activation_fn = ACT2FN[config.activation_function]
        self.activation_dropout = config.activation_dropout
        names = ("self_attn", "encoder_attn") if config.is_encoder_decoder else ("self_attn",)
        continues = layer_idx < config.decoder_layers - 1
        for name in names:
            attention = DiscreteAttention(
                embed_dim=config.d_model,
                num_heads=config.decoder_attention_heads,
                dropout=config.attention_dropout,
                is_decoder=True,
                is_causal=name == "self_attn",
                config=config,
                layer_idx=layer_idx,
                syntactic_output=continues or name != names[-1],
                relative=config.relative_positions > 0 and name == "self_attn",
            )
            setattr(self, name, attention)
            setattr(self, f"{name}_layer_norm", nn.LayerNorm(config.d_model))
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        if config.streams == 2 and continues:
            self._add_syntactic_stream(names, config.decoder_ffn_dim)
        elif config.streams == 2 and config.is_encoder_decoder:
            self.syntactic_self_attn_layer_norm = nn.LayerNorm(config.d_model)

    @either_cache_name
    def forward(  # type: ignore[override]  # two streams; the stock layer has one
        self,
        hidden_states: Tensor,
        syntactic_states: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,  # positional like all tensors with gradients, for checkpointing
        encoder_syntactic_states: Tensor | None = None,
        target_fields: Tensor | None = None,
        source_fields: Tensor | None = None,
        encoder_fields: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Run the stock layer on both streams, and extend receptive fields if they are given.

        Args:
            target_fields, source_fields: receptive fields of the layer below, (B, T, T) and (B, T, S), or None.
            encoder_fields: receptive fields of the encoder's states, (B, S, S), or None.
            The others: see `DiscreteAttention.forward`.
        """
        inputs = {**named_cache(cache), "with_routing": target_fields is not None, **kwargs}
        hidden_states, syntactic_states, routing = self._attend_both(
            "self_attn", (hidden_states, syntactic_states), attention_mask=attention_mask, **inputs
        )
        if target_fields is not None and routing is not None:
            if source_fields is not None:
                source_fields = extended_fields(source_fields, routing, source_fields)
            target_fields = extended_fields(target_fields, routing, target_fields)
        if encoder_hidden_states is not None:
            hidden_states, syntactic_states, routing = self._attend_both(
                "encoder_attn",
                (hidden_states, syntactic_states),
                key_value_states=encoder_hidden_states,
                syntactic_key_value_states=encoder_syntactic_states,
                attention_mask=encoder_attention_mask,
                **inputs,
            )
            if source_fields is not None and encoder_fields is not None and routing is not None:
                source_fields = extended_fields(source_fields, routing, encoder_fields)
        return *self._feed_both_forward(hidden_states, syntactic_states), target_fields, source_fields
