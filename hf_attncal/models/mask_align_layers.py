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
"""Layers of Mask-Align (Chen et al., ACL 2021): positions and masks, the attentions, the encoder and the decoder.

Shapes use B = batch, S = tokens of the side that is read ("source"), T = tokens of the side that is predicted
("target"), H = heads, d_k = d_model / H.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .calibration import NullToken
from .configuration_mask_align import MaskAlignConfig
from .functional import attention_scores, with_null_scores

# Mask values: far below every score, and finite in bfloat16, float16 and float32. Padding gets the lower one, so that
# it stays hidden even from a query whose only real token is hidden.
HIDDEN = -3e4
_PADDING = 2 * HIDDEN


# ---- positions and masks ----


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """Return the type of a tensor, or float32 if its type is narrower."""
    return torch.promote_types(tensor.dtype, torch.float32)


def sinusoidal_positions(length: int, d_model: int, device=None, dtype=None) -> Tensor:
    """Return the position embeddings of Vaswani et al. (2017, sec. 3.5), sines first, (length, d_model)."""
    precise = torch.promote_types(dtype or torch.float32, torch.float32)
    position = torch.arange(length, device=device, dtype=precise).unsqueeze(1)
    half = d_model // 2
    rate = torch.exp(torch.arange(half, device=device, dtype=precise) * (-math.log(10000.0) / half))
    return torch.cat([torch.sin(position * rate), torch.cos(position * rate)], dim=1).to(dtype)


def relative_distance(target_real: Tensor, source_real: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return `|(t + 1/2) / T - (s + 1/2) / S|`, (B, T, S), with T and S the numbers of real tokens of each pair."""
    places = []
    for real in (target_real, source_real):
        index = torch.arange(real.shape[1], device=real.device, dtype=dtype) + 0.5
        places.append(index / real.sum(dim=1, keepdim=True).clamp(min=1))
    return (places[0].unsqueeze(2) - places[1].unsqueeze(1)).abs()


def additive_mask(real: Tensor) -> Tensor:
    """Return a mask with 0 at real tokens and a large negative number elsewhere, (B, 1, 1, tokens)."""
    return torch.zeros(real.shape, device=real.device).masked_fill(~real, _PADDING)[:, None, None, :]


class RealTokens:
    """Real tokens of a padded batch in one row, so that layers that work token by token skip padding.

    Args:
        real: True for tokens other than padding, (B, T). Their number is R.
        heads: H, number of attention heads.
    """

    def __init__(self, real: Tensor, heads: int):
        self.real, self.heads = real, heads
        pair, place = real.nonzero(as_tuple=True)
        length = real.shape[1]
        self._places = pair * length + place
        head = torch.arange(heads, device=real.device)
        self._places_of_heads = ((pair[:, None] * heads + head) * length + place[:, None]).flatten()

    def pack(self, padded: Tensor) -> Tensor:
        """Remove padding: (B, T, d) -> (R, d)."""
        return padded.flatten(0, 1).index_select(0, self._places)

    def pad(self, packed: Tensor) -> Tensor:
        """Restore the batch, with 0 at padding: (R, d) -> (B, T, d)."""
        rows = packed.new_zeros(self.real.numel(), packed.shape[1])
        return rows.index_copy_(0, self._places, packed).unflatten(0, self.real.shape)

    def split_heads(self, packed: Tensor) -> Tensor:
        """Restore the batch per head, with 0 at padding: (R, d) -> (B, H, T, d / H)."""
        batch, length = self.real.shape
        parts = packed.view(-1, packed.shape[1] // self.heads)
        rows = packed.new_zeros(batch * self.heads * length, parts.shape[1])
        return rows.index_copy_(0, self._places_of_heads, parts).view(batch, self.heads, length, -1)

    def join_heads(self, padded: Tensor) -> Tensor:
        """Join the heads and remove padding: (B, H, T, d / H) -> (R, d)."""
        return padded.flatten(0, 2).index_select(0, self._places_of_heads).view(-1, self.heads * padded.shape[3])


# ---- attention ----


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Return the output and the weights of attention; the additive mask must be broadcastable to (B, H, T, S)."""
    scores = torch.matmul(query, key.transpose(2, 3))
    scores = scores * scaling if attention_mask is None else torch.add(attention_mask, scores, alpha=scaling)
    weights = torch.softmax(scores, dim=-1)  # sums in float32 for every type
    return torch.matmul(weights, value).transpose(1, 2), weights


class _QueriesAndKeys(nn.Module):
    """Projections of queries and keys, which every attention here has."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.config = config
        self.num_heads = config.attention_heads
        self.head_dim = config.d_model // config.attention_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.k_proj = nn.Linear(config.d_model, config.d_model)

    def heads(self, projected: Tensor) -> Tensor:
        """Split the heads: (B, T, d_model) -> (B, H, T, d_k)."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)


class MaskAlignAttention(_QueriesAndKeys):
    """Multi-head attention whose queries and keys may come from different places."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config)
        self.is_causal = False
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(self, query: Tensor, states: Tensor, mask: Tensor, tokens: RealTokens) -> Tensor:
        """Attend from queries to states.

        Args:
            query, states: real tokens, (R, d_model) each.
            mask: additive mask, broadcastable to (B, 1, T, T).
            tokens: index of the real tokens.
        """
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        context, _ = attend(
            self,
            tokens.split_heads(self.q_proj(query)),
            tokens.split_heads(self.k_proj(states)),
            tokens.split_heads(self.v_proj(states)),
            mask.to(query.dtype),
            scaling=self.scaling,
        )
        return self.out_proj(tokens.join_heads(context.transpose(1, 2)))


class MaskAlignCrossAttention(_QueriesAndKeys):
    """Weights of leaky cross-attention (Mask-Align, sec. 3.2): `softmax(q [k_NULL; K]^T / sqrt(d_k))`.

    Args:
        null_value: True if NULL also has a value. Default: False.
    """

    def __init__(self, config: MaskAlignConfig, *, null_value: bool = False):
        super().__init__(config)
        self.null = NullToken(self.num_heads, self.head_dim, value=null_value) if config.leaky else None
        has_bias = config.diagonal_bias is not None
        self.diagonal_bias = nn.Parameter(torch.empty(self.num_heads)) if has_bias else None

    def init_parameters(self) -> None:
        """Initialise the parameters that belong to no sub-module."""
        start = self.config.diagonal_bias
        if self.diagonal_bias is not None and start is not None:
            nn.init.constant_(self.diagonal_bias, start)

    def weights(self, query: Tensor, states: Tensor, target_real: Tensor, source_real: Tensor) -> Tensor:
        """Return the weights of each head in float32 or wider, (B, H, T, 1 + S), NULL first (0 without `leaky`).

        Args:
            query: decoder queries, (B, T, d_model).
            states: encoder states, (B, S, d_model).
            target_real: True for real target tokens, (B, T).
            source_real: True for real source tokens, (B, S).
        """
        query = self.heads(self.q_proj(query))
        scores = attention_scores(query, self.heads(self.k_proj(states)), self.scaling)
        scores = scores.to(at_least_float32(scores))
        if self.diagonal_bias is not None:
            distance = relative_distance(target_real, source_real, scores.dtype).unsqueeze(1)
            scores = scores - self.diagonal_bias.view(-1, 1, 1) * distance
        scores = scores.masked_fill(~source_real[:, None, None, :], torch.finfo(scores.dtype).min)
        if self.null is None:
            return F.pad(torch.softmax(scores, dim=-1), (1, 0))
        return torch.softmax(with_null_scores(scores, query, self.null.key, self.scaling), dim=-1)


class MaskAlignReadingAttention(MaskAlignCrossAttention):
    """Leaky cross-attention that also returns the attended values, `[v_NULL; V]`."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config, null_value=True)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def context(self, weights: Tensor, states: Tensor) -> Tensor:
        """Return the weighted values, from weights (B, H, T, 1 + S) and states (B, S, d_model) to (B, T, d_model)."""
        value = self.heads(self.v_proj(states))
        context = torch.matmul(weights[..., 1:].to(value.dtype), value)
        if self.null is not None and self.null.value is not None:
            context = context + weights[..., :1].to(value.dtype) * self.null.value.unsqueeze(1).to(value.dtype)
        return self.out_proj(context.transpose(1, 2).flatten(2))


# ---- encoder and decoder ----


class MaskAlignFeedForward(nn.Module):
    """Layer norm, two linear layers with an activation between, and a residual, (..., d_model) -> (..., d_model)."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.activation = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.ffn_dim)
        self.fc2 = nn.Linear(config.ffn_dim, config.d_model)

    def forward(self, states: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.fc1(self.layer_norm(states))))
        return states + self.dropout(self.fc2(inner))


class _MaskAlignLayer(GradientCheckpointingLayer):
    """Attention and feed-forward network, each after a layer norm and with a residual.

    Args:
        feed_forward: False if another module has the feed-forward network. Default: True.
    """

    def __init__(self, config: MaskAlignConfig, feed_forward: bool = True):
        super().__init__()
        self.self_attn = MaskAlignAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.ffn = MaskAlignFeedForward(config) if feed_forward else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)


class MaskAlignEncoderLayer(_MaskAlignLayer):
    """Self-attention and feed-forward network."""

    def forward(self, states: Tensor, mask: Tensor, tokens: RealTokens) -> Tensor:
        """Run the layer on the real tokens, (R, d_model); the additive mask must be broadcastable to (B, 1, T, T)."""
        normed = self.self_attn_layer_norm(states)
        return self.ffn(states + self.dropout(self.self_attn(normed, normed, mask, tokens)))


class MaskAlignDecoderLayer(_MaskAlignLayer):
    """Static-KV attention (Mask-Align, sec. 3.1): only queries go up the layers.

    Keys and values are computed from the input embeddings in every layer, each with its own matrices, and never from
    updated states. A query therefore cannot see its own token through another token's state either.
    """

    def forward(self, query: Tensor, embeddings: Tensor, mask: Tensor, tokens: RealTokens) -> Tensor:
        """Run the layer on the real tokens, (R, d_model); the additive mask must be broadcastable to (B, 1, T, T)."""
        attended = self.self_attn(self.self_attn_layer_norm(query), embeddings, mask, tokens)
        return self.ffn(query + self.dropout(attended))
