"""From weights between words to links: (i source, j target), both counted from 0."""

from torch import Tensor

from hf_attncal.analysis.links import best_links
from hf_attncal.data.pharaoh import Link


def argmax_links(weights: Tensor) -> tuple[Link, ...]:
    """Link every target word to the source word with the largest weight: `best_links`, sorted.

    Args:
        weights: (target words, source words), from `word_attention`.

    Returns:
        Links (i source, j target), sorted: one for every target word whose row is not all zero.
    """
    return tuple(sorted(best_links(weights)))
