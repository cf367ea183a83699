"""From weights between words to links: (i source, j target), both counted from 0."""

from torch import Tensor

from hf_attncal.data.pharaoh import Link


def argmax_links(weights: Tensor) -> set[Link]:
    """Link every target word to the source word with the largest weight, the first of equals.

    Args:
        weights: (target words, source words), from `word_attention`.

    Returns:
        Links (i source, j target): one for every target word whose row is not all zero.
    """
    if weights.numel() == 0:
        return set()
    best, index = weights.max(dim=1)
    return {(i, j) for j, (i, weight) in enumerate(zip(index.tolist(), best.tolist(), strict=True)) if weight > 0}
