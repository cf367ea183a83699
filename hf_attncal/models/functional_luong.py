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
"""Equations of Luong attention and the selective gate as pure functions on tensors.

Shapes use B = batch, H = heads (1 in these models), T = target steps, S = source tokens, d = width of the states.
Attention tensors are (B, H, T, S). Positions of source tokens count from 0 and skip padding anywhere.

Sources: "Effective Approaches to Attention-based Neural Machine Translation" (Luong et al., EMNLP 2015), "Selective
Encoding for Abstractive Sentence Summarization" (SEASS; Zhou et al., ACL 2017).
"""

import torch
from torch import Tensor
from torch.nn.functional import linear


def dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """Return `h_t^T h_s`, or the general score for keys `W_a h_s`.

    Args:
        query: h_t, (B, H, T, d).
        key: h_s, or W_a h_s, (B, H, S, d).

    Returns:
        (B, H, T, S).
    """
    return torch.matmul(query, key.transpose(-1, -2))


def concat_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Return `v_a^T tanh(W_a [h_t; h_s])` from the two halves of the product.

    Args:
        query: product of W_a and h_t, (B, H, T, d).
        key: product of W_a and h_s, (B, H, S, d).
        vector: v_a, (1, d).

    Returns:
        (B, H, T, S). Needs memory for a (B, H, T, S, d) tensor.
    """
    return linear(torch.tanh(query.unsqueeze(3) + key.unsqueeze(2)), vector).squeeze(-1)


def location_scores(by_position: Tensor, positions: Tensor) -> Tensor:
    """Return `W_a h_t`, the location score of each source token, from the scores of all positions.

    Args:
        by_position: `W_a h_t`, (B, H, T, longest source).
        positions: positions from `source_positions`, (B, S).

    Returns:
        (B, H, T, S).
    """
    return by_position.gather(-1, positions[:, None, None].expand(*by_position.shape[:3], -1))


def source_positions(real: Tensor) -> Tensor:
    """Return each source token's position among the real ones: real (B, S), boolean -> (B, S), from 0."""
    return (real.long().cumsum(dim=-1) - 1).clamp(min=0)


def predicted_position(hidden: Tensor, weight: Tensor, vector: Tensor, lengths: Tensor) -> Tensor:
    """Return `p_t = S sigmoid(v_p^T tanh(W_p h_t))` of local-p.

    Args:
        hidden: h_t, (B, H, T, d).
        weight: W_p, (d, d).
        vector: v_p, (1, d).
        lengths: S, number of real tokens of each sentence, (B,).

    Returns:
        (B, H, T, 1), in float32 at least, because bfloat16 cannot represent 257.
    """
    share = torch.sigmoid(linear(torch.tanh(linear(hidden, weight)), vector))
    return lengths[:, None, None, None] * share.to(torch.promote_types(share.dtype, torch.float32))


def window(positions: Tensor, centre: Tensor, width: int) -> Tensor:
    """Return True for source tokens in `[centre - D, centre + D]`.

    Args:
        positions: positions of the source tokens, (B, S).
        centre: t of local-m or p_t of local-p, broadcastable to (B, H, T, 1).
        width: D.

    Returns:
        Boolean, (B, H, T, S).
    """
    return (positions[:, None, None] - centre).abs() <= width


def windowed_attention(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Return the softmax over the visible source tokens, 0 elsewhere and in rows without any.

    Args:
        scores: attention scores, (B, H, T, S).
        visible: True for visible tokens, broadcastable to (B, H, T, S); `None` for all.

    Returns:
        (B, H, T, S).
    """
    if visible is None:
        return torch.softmax(scores, dim=-1)
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~visible, lowest), dim=-1).masked_fill(~visible, 0.0)


def gaussian(positions: Tensor, centre: Tensor, width: int) -> Tensor:
    """Return the factor of local-p that favours tokens near p_t, `exp(-(s - p_t)^2 / (2 sigma^2))`, `sigma = D / 2`.

    Args:
        positions: s, positions of the source tokens, (B, S).
        centre: p_t, broadcastable to (B, H, T, 1).
        width: D.

    Returns:
        (B, H, T, S).
    """
    return torch.exp(-2 * ((positions[:, None, None] - centre) / width).square())


def selective_gate(
    states: Tensor, sentence: Tensor, state_weight: Tensor, sentence_weight: Tensor, bias: Tensor
) -> Tensor:
    """Return `h'_i = h_i * sigmoid(W_s h_i + U_s s + b)` of SEASS.

    Args:
        states: h_i, (B, S, d).
        sentence: s, (B, n).
        state_weight: W_s, (d, d).
        sentence_weight: U_s, (d, n).
        bias: b, (d,).

    Returns:
        (B, S, d).
    """
    return states * torch.sigmoid(linear(states, state_weight) + linear(sentence, sentence_weight, bias).unsqueeze(1))
