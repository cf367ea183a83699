"""The equations of the Discrete Transformer as pure functions on tensors.

Shapes use B = batch, H = heads, T = target steps (queries), S = source tokens (keys), N = tokens that a receptive
field can hold. A receptive field is (B, T, N): of every position, which tokens its state was computed from; boolean
sets where attention has chosen, numbers in [0, 1] where it is soft or sampled.

What routes information in an attention is its `routing`: in use, the chosen positions, (B, H, T) integers; in training
or with soft attention its weights, (B, H, T, S).

Source: "Discrete Transformer", secs. 4, 5 and 5.1. Gumbel-softmax itself is `functional.gumbel_attention`.
"""

import math

import torch
from torch import Tensor


def chosen_positions(scores: Tensor) -> Tensor:
    """The position that hard attention reads in use: the largest score of each row, the first of equals.

    Args:
        scores: (B, H, T, S).

    Returns:
        (B, H, T), integers from 0 to S - 1.
    """
    return scores.argmax(dim=-1)


def gathered_values(value: Tensor, choice: Tensor) -> Tensor:
    """The values at the chosen positions: what the product of one-hot weights with the values would give.

    Args:
        value: (B, H, S, d). choice: from `chosen_positions`, (B, H, T).

    Returns:
        (B, H, T, d).
    """
    return value.gather(2, choice.unsqueeze(-1).expand(*choice.shape, value.shape[-1]))


def one_hot_weights(choice: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """The weights that belong to chosen positions, (B, H, T) -> (B, H, T, size)."""
    weights = torch.zeros(*choice.shape, size, dtype=dtype, device=choice.device)
    return weights.scatter_(-1, choice.unsqueeze(-1), 1.0)


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
        index = routing.reshape(batch, heads * length, 1).expand(-1, -1, read.shape[-1])
        brought = read.gather(1, index).view(batch, heads, length, -1)
        return fields | brought.any(dim=1)
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
    return sum(part.sum(dim=-1) for part in fields if part is not None)


# ---- schedules ----


def temperature_at(step: Tensor, first: float, last: float, steps: int) -> Tensor:
    """tau after so many optimiser steps: from `first` exponentially to `last` in `steps`; scalar."""
    done = (step.to(torch.float64) / steps).clamp(max=1)
    return torch.exp(math.log(first) + done * (math.log(last) - math.log(first))).to(torch.float32)


def warmed_up(step: Tensor, steps: int) -> Tensor:
    """Linear warm-up: 0 at step 0, 1 from `steps` on; scalar."""
    return (step.to(torch.float64) / steps).clamp(max=1).to(torch.float32)
