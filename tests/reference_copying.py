"""Slow reference of copying: one step, one word and one source token at a time.

Written from the printed formulas (See et al., ACL 2017, eqs. 8 and 9; Lu et al., TASLP 2022, for the weights that are
copied by); nothing here imports the package.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def scaled(weights: Sequence[Tensor], mass: Tensor | float) -> list[Tensor]:
    """Weights of one step and one head over the real source tokens, as shares of `mass`."""
    return [mass * weight / sum(weights) for weight in weights]


def copy_probabilities(
    state: Tensor, weights: Sequence[Tensor], states: Sequence[Tensor], gate: tuple[Tensor, Tensor]
) -> list[Tensor]:
    """P of copying each real source token at one step.

    Args:
        state: of the decoder. weights: of the tokens. states: of the encoder, at those. gate: weight (1, 2 d) and bias
            (1,).
    """
    context = sum(weight * vector for weight, vector in zip(weights, states, strict=True))
    inputs = [*state, *context]
    score = gate[1][0] + sum(gate[0][0, n] * inputs[n] for n in range(len(inputs)))
    copying = 1 / (1 + torch.exp(-score))
    return [copying * weight for weight in weights]


def word_probabilities(logits: Tensor, copied: Sequence[Tensor], source: Sequence[int], slots: int) -> list[Tensor]:
    """P of every word at one step: V of them, then the slots.

    Args:
        logits: of the V words. copied: P of copying each real source token. source: what each of those is among the
            words.
    """
    powers = [torch.exp(logit) for logit in logits]
    probabilities = []
    for word in range(len(logits) + slots):
        # What no token has the weight of, as NULL's, is generated.
        generated = 1 - sum(copied)
        probability = generated * powers[word] / sum(powers) if word < len(logits) else 0.0
        for token, share in zip(source, copied, strict=True):
            if token == word:
                probability = probability + share
        probabilities.append(probability)
    return probabilities


def loss_of_step(probabilities: Sequence[Tensor], label: int, smoothing: float, vocabulary: int) -> Tensor:
    """Cross-entropy of one step; the smoothing is over the words of the vocabulary."""
    loss = -(1 - smoothing) * torch.log(probabilities[label])
    if smoothing:
        for word in range(vocabulary):
            loss = loss - smoothing / vocabulary * torch.log(probabilities[word])
    return loss
