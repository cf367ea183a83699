"""From weights between words to links: (i source, j target), both counted from 0."""

from torch import Tensor

from hf_attncal.data.pharaoh import Link


def argmax_links(weights: Tensor) -> tuple[Link, ...]:
    """Link every target word to the source word with the largest weight, the first of equals.

    Args:
        weights: (target words, source words), from `word_attention`.

    Returns:
        Links (i source, j target), sorted: one for every target word whose row is not all zero.
    """
    if weights.numel() == 0:
        return ()
    best, index = weights.max(dim=1)
    links = enumerate(zip(index.tolist(), best.tolist(), strict=True))
    return tuple(sorted((i, j) for j, (i, weight) in links if weight > 0))
