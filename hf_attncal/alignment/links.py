"""From attention over subwords to links between words.

Matrices are (target, source) and links are (i source, j target), both counted from 0. A list of word ids says for
every subword which word it belongs to; `None` marks what belongs to no word (end of sentence, padding).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import WordIds


def word_attention(attention: Tensor, source_word_ids: WordIds, target_word_ids: WordIds) -> Tensor:
    """Attention between words from attention between subwords.

    Weights are summed over the subwords of a source word, which share the mass that the word received, and averaged
    over the subwords of a target word, each of which distributed a mass of its own. Subwords of no word are left out;
    rows are not renormalised.

    Args:
        attention: (target, source) weights of one sentence pair: one head, or a head average.
        source_word_ids: word of every source subword. What lies beyond its end is padding.
        target_word_ids: the same for target subwords.

    Returns:
        (target words, source words). A word without subwords has a row or column of zeros.

    Raises:
        ValueError: more word ids than the matrix has rows or columns, or another number of dimensions than two.
    """
    if attention.dim() != 2:
        raise ValueError(f"`attention` must be (target, source), got the shape {tuple(attention.shape)}.")
    return word_attention_stack(attention, source_word_ids, target_word_ids)


def word_attention_stack(
    attention: Tensor,
    source_word_ids: WordIds,
    target_word_ids: WordIds,
    source_words: int | None = None,
    target_words: int | None = None,
) -> Tensor:
    """`word_attention` for many matrices of one sentence pair at once, such as all heads.

    Args:
        attention: (..., target, source) weights.
        source_word_ids: word of every source subword. What lies beyond its end is padding.
        target_word_ids: the same for target subwords.
        source_words: number of words of the source; None: up to the last word that has a subword.
        target_words: the same for the target.

    Returns:
        (..., target words, source words). A word without subwords has a row or column of zeros.

    Raises:
        ValueError: more word ids than the matrices have rows or columns.
    """
    rows = _membership(target_word_ids, target_words, attention.shape[-2], attention)  # (target words, target)
    columns = _membership(source_word_ids, source_words, attention.shape[-1], attention)  # (source words, source)
    mean = rows / rows.sum(dim=1, keepdim=True).clamp(min=1)
    return mean @ attention @ columns.T


def _membership(word_ids: WordIds, words: int | None, length: int, like: Tensor) -> Tensor:
    """(words, length): 1 where the subword of this column belongs to the word of this row."""
    if len(word_ids) > length:
        raise ValueError(f"{len(word_ids)} word ids for {length} subwords of the attention matrix.")
    cells = [(word, subword) for subword, word in enumerate(word_ids) if word is not None]
    if words is None:
        words = 1 + max((word for word, _ in cells), default=-1)
    membership = like.new_zeros(words, length)
    if cells:
        membership[tuple(torch.tensor(cells, device=like.device).T)] = 1
    return membership


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


def extract_links(
    attention: Tensor, source_word_ids: Sequence[WordIds], target_word_ids: Sequence[WordIds]
) -> list[set[Link]]:
    """Word links of a right-padded batch, with `word_attention` and `argmax_links`.

    Args:
        attention: (batch, target, source), for example the head average of one layer. Row t belongs to the step that
            *predicts* target token t.
        source_word_ids: for every sentence the word of every source subword.
        target_word_ids: the same for target subwords.
    """
    return [
        argmax_links(word_attention(weights, source_ids, target_ids))
        for weights, source_ids, target_ids in zip(attention, source_word_ids, target_word_ids, strict=True)
    ]
