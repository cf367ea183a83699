"""From attention between subwords to attention between words."""

import numpy as np
from torch import Tensor

from hf_attncal.data.words import NO_WORD, WordTokens


def word_attention(attention: Tensor, source: WordTokens, target: WordTokens) -> Tensor:
    """Attention between the words of one sentence pair, for one matrix or for many, such as all heads.

    Weights are summed over the subwords of a source word, which share the mass that the word received, and averaged
    over the subwords of a target word, each of which distributed a mass of its own. Subwords of no word are left out;
    rows are not renormalised.

    Args:
        attention: (..., target, source) weights.
        source: the word of every source subword. What lies behind its end is padding.
        target: the same for the target.

    Returns:
        (..., target words, source words). A word without subwords has a row or column of zeros.

    Raises:
        ValueError: more word ids than the matrices have rows or columns.
    """
    rows = _membership(target, attention.shape[-2], attention)  # (target words, target)
    columns = _membership(source, attention.shape[-1], attention)  # (source words, source)
    mean = rows / rows.sum(dim=1, keepdim=True).clamp(min=1)
    return mean @ attention @ columns.T


def _membership(tokens: WordTokens, length: int, like: Tensor) -> Tensor:
    """(words, length): 1 where the subword of this column belongs to the word of this row."""
    if len(tokens.word_ids) > length:
        raise ValueError(f"{len(tokens.word_ids)} word ids for {length} subwords of the attention matrix.")
    membership = np.zeros((tokens.words, length))
    (subwords,) = np.nonzero(tokens.word_ids != NO_WORD)
    membership[tokens.word_ids[subwords], subwords] = 1
    return like.new_tensor(membership)
