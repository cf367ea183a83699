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
"""The equations of the Discrete Transformer as pure functions on tensors.

Shapes use B = batch, H = heads, T = target steps (queries), S = source tokens (keys), N = tokens that a receptive
field can hold. A receptive field is (B, T, N): of every position, which tokens its state was computed from; boolean
sets where attention has chosen, numbers in [0, 1] where it is soft or sampled.

What routes information in an attention is its `routing`: in use, the chosen positions, (B, H, T) integers, -1 where a
head reads nothing; in training or with soft attention its weights, (B, H, T, S), without those of NULL.

Source: "Discrete Transformer", secs. 4, 5 and 5.1. Gumbel-softmax itself is `functional.gumbel_attention`.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Sampling(NamedTuple):
    """Settings of sampling at a step of the training: arguments of `functional.gumbel_attention`.

    Args:
        temperature: tau. noise_scale: the noise is multiplied by it. straight_through: share of the one-hot weights.
    """

    temperature: float | Tensor = 1.0
    noise_scale: float | Tensor = 1.0
    straight_through: float | Tensor = 0.0


def first_sampling(config) -> Sampling:
    """Return how attention is sampled at the beginning of a training with this configuration."""
    return Sampling(config.gumbel_temperature, config.gumbel_noise, float(config.gumbel_straight_through))


def chosen_positions(scores: Tensor) -> Tensor:
    """Return the position that hard attention reads in use: the largest score of each row, the first of equals.

    Args:
        scores: (B, H, T, S).

    Returns:
        (B, H, T), integers from 0 to S - 1.
    """
    return scores.argmax(dim=-1)


def gathered_values(value: Tensor, choice: Tensor, *, nulls: bool = True) -> Tensor:
    """Return the values at the chosen positions: what the product of one-hot weights with the values would give.

    Args:
        value: (B, H, S, d). choice: (B, H, T), integers; -1 for nothing, which gives 0.
        nulls: there may be a -1; False saves the time to look.

    Returns:
        (B, H, T, d).
    """
    batch, heads, length, width = value.shape
    index = choice.clamp(min=0) if nulls else choice
    if choice.shape[2] == 1:  # a step of generation: one call
        rows = value.gather(2, index.unsqueeze(-1).expand(*choice.shape, width))
    else:  # whole rows by one index each, several times as fast as one for each number
        first = torch.arange(batch * heads, device=choice.device).view(batch, heads, 1) * length
        rows = value.reshape(-1, width).index_select(0, (first + index).flatten()).view(*choice.shape, width)
    return rows.masked_fill((choice < 0).unsqueeze(-1), 0) if nulls else rows


def one_hot_weights(choice: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return the weights that belong to chosen positions, (B, H, T) -> (B, H, T, size); 0 everywhere for -1."""
    weights = torch.zeros(*choice.shape, size, dtype=dtype, device=choice.device)
    chosen = (choice >= 0).to(dtype).unsqueeze(-1)
    return weights.scatter_(-1, choice.clamp(min=0).unsqueeze(-1), chosen)


# ---- receptive fields ----


def initial_fields(batch: int, length: int, dtype: torch.dtype, device=None) -> Tensor:
    """Fields before the first layer, `s^0_ij = 1(i = j)`: every position has read itself; (B, T, T).

    Args:
        batch: B. length: T. dtype: `torch.bool` for sets.
    """
    return torch.eye(length, dtype=dtype, device=device).expand(batch, length, length)


def extended_fields(fields: Tensor, routing: Tensor, read: Tensor) -> Tensor:
    """Fields after an attention (sec. 5.1, eq. 1): `s^l_ij = min(s^(l-1)_ij + sum_k z_ik s^(l-1)_kj, 1)`.

    What a position has read stays read, by the residual connection; what it attends to brings all that that has read.
    The dependencies of several heads are their union: they are added inside the minimum.

    Args:
        fields: of the queries, (B, T, N). routing: see the module's docstring. read: fields of the keys, (B, S, N).

    Returns:
        (B, T, N): boolean for chosen positions and boolean fields, numbers otherwise.
    """
    if routing.dtype == torch.long:
        batch, heads, length = routing.shape
        brought = gathered_values(read.unsqueeze(1), routing.reshape(batch, 1, heads * length))
        return fields | brought.view(batch, heads, length, -1).any(dim=1)
    brought = torch.matmul(routing.sum(dim=1).to(read.dtype), read)
    return (fields + brought).clamp(max=1)


def expected_field_size(*fields: Tensor | None) -> Tensor:
    """Expected number of tokens in the field of each prediction, `sum_j s^L_ij`, over all its parts.

    The sizes printed in sec. 5.1 sum over i before the minimum, and are constant, because `s_ii = 1`.

    Args:
        fields: parts of the fields (tokens of the source, tokens of the target), (B, T, N) each, or `None`.

    Returns:
        (B, T).
    """
    return torch.stack([part.sum(dim=-1) for part in fields if part is not None]).sum(dim=0)


# ---- schedules ----


def warmed_up(step: Tensor, steps: int) -> Tensor:
    """Linear warm-up: 0 at step 0, 1 from `steps` on; scalar."""
    return (step.to(torch.float64) / steps).clamp(max=1).to(torch.float32)
