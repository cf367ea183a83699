"""From subwords to words: the largest weight between two words, and means over the subwords of a word."""

import torch
from torch import Tensor


def largest_over_words(weights: Tensor, rows: tuple[Tensor, int], columns: tuple[Tensor, int]) -> Tensor:
    """Return the largest weight between the subwords of two words, for all pairs of words of a batch.

    Args:
        weights: (batch, R, C), not negative.
        rows: (batch, R), the word of each row, and the number of words, which stands for no word.
        columns: the same for columns, (batch, C).

    Returns:
        (batch, row words, column words), 0 for a word without subwords.
    """
    (row_ids, row_words), (column_ids, column_words) = rows, columns
    batch = len(weights)
    wide = weights.new_zeros(batch, weights.shape[1], column_words + 1)
    wide.scatter_reduce_(2, column_ids[:, None, :].expand_as(weights), weights, "amax")
    words = weights.new_zeros(batch, row_words + 1, column_words + 1)
    words.scatter_reduce_(1, row_ids[:, :, None].expand_as(wide), wide, "amax")
    return words[:, :row_words, :column_words]


def mean_over_words(values: Tensor, word_ids: Tensor, words: int, empty: float = 1.0) -> Tensor:
    """Return the mean over the subwords of each word, `empty` for a word without subwords.

    Args:
        values: (batch, length), one for each subword.
        word_ids: (batch, length), the word of each subword; `words` for one of no word.
        words: number of words.

    Returns:
        (batch, words).
    """
    total = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, values)
    count = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, torch.ones_like(values))
    return torch.where(count > 0, total / count.clamp(min=1), empty)[:, :words]
