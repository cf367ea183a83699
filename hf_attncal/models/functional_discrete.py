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
"""Equations of the Discrete Transformer as pure functions on tensors.

Shapes use B = batch, H = heads, T = target steps (queries), S = source tokens (keys), N = maximum number of tokens
in a receptive field. A receptive field (B, T, N) has, for each position, the tokens that its state was computed from:
booleans if attention is hard, numbers in [0, 1] if it is soft or sampled.

The `routing` of an attention is the selected positions at inference, (B, H, T) integers, -1 if a head reads nothing;
in training or with soft attention it is the weights, (B, H, T, S), without NULL's.

Source: "Discrete Transformer", secs. 4, 5 and 5.1. Gumbel-softmax itself is `functional.gumbel_attention`.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Sampling(NamedTuple):
    """Sampling settings at one training step, arguments of `functional.gumbel_attention`.

    Args:
        temperature: tau.
        noise_scale: factor of the noise.
        straight_through: share of the one-hot weights.
    """

    temperature: float | Tensor = 1.0
    noise_scale: float | Tensor = 1.0
    straight_through: float | Tensor = 0.0


def first_sampling(config) -> Sampling:
    """Return the sampling settings at the start of training."""
    return Sampling(config.gumbel_temperature, config.gumbel_noise, float(config.gumbel_straight_through))


def chosen_positions(scores: Tensor) -> Tensor:
    """Return the position that hard attention selects at inference: the largest score, the first among equal ones.

    Args:
        scores: attention scores, (B, H, T, S).

    Returns:
        (B, H, T), integers from 0 to S - 1.
    """
    return scores.argmax(dim=-1)


def gathered_values(value: Tensor, choice: Tensor, *, nulls: bool = True) -> Tensor:
    """Return the values at the selected positions, which equal the product of one-hot weights and values.

    Args:
        value: values, (B, H, S, d).
        choice: selected positions, integers, (B, H, T). -1 selects nothing and gives 0.
        nulls: False if there is no -1, which is faster. Default: True.

    Returns:
        (B, H, T, d).
    """
    batch, heads, length, width = value.shape
    index = choice.clamp(min=0) if nulls else choice
    if choice.shape[2] == 1:  # a step of generation: one call
        rows = value.gather(2, index.unsqueeze(-1).expand(*choice.shape, width))
    else:  # one index per row is several times as fast as one per number
        first = torch.arange(batch * heads, device=choice.device).view(batch, heads, 1) * length
        rows = value.reshape(-1, width).index_select(0, (first + index).flatten()).view(*choice.shape, width)
    return rows.masked_fill((choice < 0).unsqueeze(-1), 0) if nulls else rows


def one_hot_weights(choice: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return the one-hot weights of selected positions, (B, H, T) -> (B, H, T, size); 0 everywhere for -1."""
    weights = torch.zeros(*choice.shape, size, dtype=dtype, device=choice.device)
    ones = (choice >= 0).to(dtype).unsqueeze(-1)
    return weights.scatter_(-1, choice.clamp(min=0).unsqueeze(-1), ones)


# ---- receptive fields ----


def initial_fields(batch: int, length: int, dtype: torch.dtype, device=None) -> Tensor:
    """Return the fields before the first layer, `s^0_ij = 1(i = j)`: only the position itself, (B, T, T).

    Args:
        batch: B.
        length: T.
        dtype: `torch.bool` for hard attention, else a floating-point type.
    """
    return torch.eye(length, dtype=dtype, device=device).expand(batch, length, length)


def extended_fields(fields: Tensor, routing: Tensor, key_fields: Tensor) -> Tensor:
    """Return the receptive fields of positions after one attention (sec. 5.1, eq. 1).

    `s^l_ij = min(s^(l-1)_ij + sum_k z_ik s^(l-1)_kj, 1)`: `s_ij` is the degree to which position i has read token j.
    The residual connection keeps the tokens that i has already read. Attention adds the tokens that the attended
    positions k have read; with several heads, the sum is over all of them.

    Args:
        fields: fields of the queries, (B, T, N).
        routing: z. Hard attention: the position that each head selects, (B, H, T), integers; both fields are then
            booleans. Soft attention: the weights, (B, H, T, S).
        key_fields: fields of the keys, (B, S, N).

    Returns:
        (B, T, N): booleans for hard attention, numbers in [0, 1] for soft attention.
    """
    if routing.dtype == torch.long:
        batch, heads, length = routing.shape
        attended_fields = gathered_values(key_fields.unsqueeze(1), routing.reshape(batch, 1, heads * length))
        return fields | attended_fields.view(batch, heads, length, -1).any(dim=1)
    attended_fields = torch.matmul(routing.sum(dim=1).to(key_fields.dtype), key_fields)
    return (fields + attended_fields).clamp(max=1)


def expected_field_size(*fields: Tensor | None) -> Tensor:
    """Return the expected number of tokens in the field of each prediction, `sum_j s^L_ij`, over all its parts.

    The sizes printed in sec. 5.1 sum over i before the minimum, and are constant, because `s_ii = 1`.

    Args:
        fields: parts of the fields (tokens of the source, tokens of the target), (B, T, N) each, or `None`.

    Returns:
        (B, T).
    """
    return torch.stack([part.sum(dim=-1) for part in fields if part is not None]).sum(dim=0)


# ---- schedules ----


def warmed_up(step: Tensor, steps: int) -> Tensor:
    """Return the factor of a linear warm-up: 0 at step 0, 1 from `steps` on; scalar."""
    return (step.to(torch.float64) / steps).clamp(max=1).to(torch.float32)
