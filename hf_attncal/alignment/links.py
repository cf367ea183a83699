"""Turn scores between words into links (i source, j target), both counted from 0."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_attncal.data.pharaoh import Link


def best_links(weights: Tensor | ArrayLike) -> frozenset[Link]:
    """Link every target word to the source word with the highest score, the first of equals.

    A target word none of whose scores is above 0 gets no link: of weights, nothing was read for it (its row is all
    zero); of signed scores (gradients, occlusion), every source word speaks against it. The largest score counts, not
    the largest size.

    Args:
        weights: (target words, source words), from `word_attention` or `Attribution.words`; of either sign.

    Returns:
        Links (i source, j target), at most one for each target word; none where a side has no word.

    Raises:
        ValueError: another number of dimensions, or a score that is NaN.
    """
    weights = torch.as_tensor(weights)
    if weights.dim() != 2:
        raise ValueError(f"`weights` must be (target words, source words), got the shape {tuple(weights.shape)}.")
    if weights.numel() == 0:
        return frozenset()
    best, index = weights.max(dim=1)
    if best.isnan().any():
        raise ValueError(f"`weights` must be numbers, got NaN in row {int(best.isnan().nonzero()[0])} (from 0).")
    links = enumerate(zip(index.tolist(), best.tolist(), strict=True))
    return frozenset((i, j) for j, (i, score) in links if score > 0)


def argmax_links(weights: Tensor) -> tuple[Link, ...]:
    """Link every target word to the source word with the largest weight: `best_links`, sorted.

    Args:
        weights: (target words, source words), from `word_attention`.

    Returns:
        Links (i source, j target), sorted: one for every target word whose row is not all zero.
    """
    return tuple(sorted(best_links(weights)))
