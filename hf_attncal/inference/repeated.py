"""Find the place of a repeated source token that a model means, if it names tokens and not places."""

import torch
from torch import Tensor

_REACH = 3  # steps and places around that tell
_LEAST = 1e-6  # of evidence, so that there are shares where there is none: equal ones


def shared_among_places(probabilities: Tensor, input_ids: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """Turn probabilities of source tokens into those of source places: the places of a token share what it has.

    The share of a place is proportional to what its neighbours have at the neighbouring steps: for place i at step j
    to the sum of `2^-|d| q_(j+d)[x_(i+d)]` over d from -3 to 3 without 0. In "the old house and the new garden" the
    first "the" is meant where the next step stands for "old". Where no neighbour has anything, shares are equal; a
    token that is not repeated keeps all.

    Args:
        probabilities: `q_j[x_i]`, (batch, steps, source), all of it at each place of a token.
        input_ids: (batch, source). source_mask: boolean (batch, source). target_mask: boolean (batch, steps).

    Returns:
        (batch, steps, source), whose rows add up to at most 1; 0 at padding of either side.
    """
    real = target_mask.unsqueeze(2) & source_mask.unsqueeze(1)
    probabilities = probabilities.masked_fill(~real, 0.0)
    evidence = torch.full_like(probabilities, _LEAST)
    for distance in range(1, _REACH + 1):
        evidence[:, distance:, distance:] += 0.5**distance * probabilities[:, :-distance, :-distance]
        evidence[:, :-distance, :-distance] += 0.5**distance * probabilities[:, distance:, distance:]
    same = (input_ids.unsqueeze(1) == input_ids.unsqueeze(2)) & source_mask.unsqueeze(1)  # (batch, place, place)
    return probabilities * evidence / torch.matmul(evidence, same.to(evidence.dtype).transpose(1, 2)).clamp(min=_LEAST)
