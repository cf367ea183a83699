"""Vectors of tokens from the states of an encoder, at which the embeddings of a network start.

With `s_w` the state of word w without the mean of its language, of length 1, token x has the vector

    v_x = sum over words w that contain x of s_w,

normalised, projected onto the principal axes of the vectors of both languages, and normalised again. So translations
begin near each other, rare ones as well.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.words import NO_WORD, WordTokens


class TokenVectors:
    """Mean states of the tokens of a text.

    Args:
        sides: Tokens of each pair, source and target in turn.
        vocabulary: Number of token ids.
    """

    def __init__(self, sides: Sequence[WordTokens], vocabulary: int):
        self._sides, self._vocabulary = sides, vocabulary
        self._sums: list[Tensor] = []  # one per language, (vocabulary, size)

    def add(self, numbers: Sequence[int], *languages: Sequence[Tensor]) -> None:
        """Add the states of the words of some pairs, (words, size) for each text."""
        if not self._sums:
            self._sums = [torch.zeros(self._vocabulary, texts[0].shape[1]) for texts in languages]
        for side, texts in enumerate(languages):
            for number, states in zip(numbers, texts, strict=True):
                tokens = self._sides[2 * number + side]
                inside = tokens.word_ids != NO_WORD
                ids, words = (torch.from_numpy(row[inside]).long() for row in (tokens.ids, tokens.word_ids))
                self._sums[side].index_add_(0, ids, states[words])

    def projected(self, width: int) -> list[Tensor]:
        """Return the vectors of each language, (vocabulary, width), of length 1; 0 for a token of no word."""
        vectors = [F.normalize(sums, dim=1) for sums in self._sums]
        scatter = sum((of_side.T @ of_side for of_side in vectors), torch.zeros(()))
        axes = torch.linalg.eigh(scatter).eigenvectors.flip(1)[:, :width]
        axes = F.pad(axes, (0, width - axes.shape[1]))
        return [F.normalize(of_side @ axes, dim=1) for of_side in vectors]
