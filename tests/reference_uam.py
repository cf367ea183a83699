"""Slow reference of the unsupervised alignment module: one sentence, one step and one token at a time.

Written from the printed formulas (Kiyono et al., 2018); nothing here imports the package.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def source_probabilities(state: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """q_j of one step (eq. 13), a number for each token of the source vocabulary."""
    powers = [torch.exp(weight[token] @ state + bias[token]) for token in range(len(bias))]
    return [power / sum(powers) for power in powers]


def source_loss(states: Sequence[Tensor], source: Sequence[int], weight: Tensor, bias: Tensor, scale: float) -> Tensor:
    """l_src of one sentence (eq. 18, without log Z): steps (of its target with nulls) and tokens."""
    steps = [source_probabilities(state, weight, bias) for state in states]
    loss = torch.zeros((), dtype=torch.float64)
    for token in range(len(bias)):
        loss = loss + (sum(q[token] for q in steps) - list(source).count(token)) ** 2
    return loss / scale


def with_nulls(source: Sequence[int], target: Sequence[int], null: int) -> list[int]:
    """Y': a target of J + 1 tokens, and nulls until it has the I tokens of its source."""
    extended = list(target)
    while len(extended) < len(source):
        extended.append(null)
    return extended
