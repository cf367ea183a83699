"""Controls to compare attributions with: an aligner that does not know the model, chance, and the diagonal."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.words import NO_WORD
from hf_attncal.inference.reading import TokenPair
from hf_attncal.report.attribution.method import Batch, Method, Scores, check_number

# Sources and targets -> for each pair (target words, source words).
Aligner = Callable[[list[str], list[str]], Sequence[np.ndarray | Tensor]]


class BetweenWords(Method):
    """A method that scores words without a look at the model.

    The subwords of a source word share its score evenly and tokens of no word have 0, so that `Attribution.words`
    gives back the scores.
    """

    reads_model: ClassVar[bool] = False

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        matrices = [torch.as_tensor(matrix, device="cpu") for matrix in self.of_words(batch)]
        scores = torch.zeros(batch.shape, dtype=torch.promote_types(matrices[0].dtype, torch.float32))
        for row, (matrix, pair) in enumerate(zip(matrices, batch.pairs, strict=True)):
            columns, rows = (torch.from_numpy(side.word_ids) for side in (pair.source, pair.target))
            subwords = torch.bincount(columns[columns != NO_WORD], minlength=pair.source.words).clamp(min=1)
            shares = torch.nn.functional.pad(matrix / subwords, (0, 1, 0, 1))  # NO_WORD, which is -1, finds the zeros
            scores[row, : len(rows), : len(columns)] = shares[rows][:, columns]
        return Scores(scores)

    @abstractmethod
    def of_words(self, batch: Batch) -> Sequence[np.ndarray | Tensor]:
        """Return the scores of each pair, (target words, source words)."""


@dataclass(frozen=True)
class Posterior(BetweenWords):
    """The probabilities that an aligner gives to links between words.

    Args:
        weights: called with the sources and the targets of a batch, two lists; returns for each pair its weights,
            (target words, source words), words being what `str.split()` gives.
    """

    weights: Aligner

    def __post_init__(self):
        if not callable(self.weights):
            raise ValueError(f"`weights` must be a function of sources and targets, got {self.weights!r}.")

    def of_words(self, batch: Batch) -> Sequence[np.ndarray | Tensor]:
        matrices = list(self.weights(*(list(side) for side in zip(*batch.texts, strict=True))))
        if len(matrices) != len(batch.pairs):
            raise ValueError(
                f"`weights` must return a matrix for each of {len(batch.pairs)} pairs, got {len(matrices)}."
            )
        for matrix, pair in zip(matrices, batch.pairs, strict=True):
            if tuple(matrix.shape) != _shape(pair):
                raise ValueError(
                    f"`weights` must return (target words, source words), {_shape(pair)} for pair {pair.index} "
                    f"(counted from 0), got {tuple(matrix.shape)}."
                )
        return matrices


@dataclass(frozen=True)
class Random(BetweenWords):
    """Random numbers, each row divided by its sum; a pair gets the same ones wherever it stands.

    Args:
        seed: seed of the numbers.
    """

    seed: int = 0

    def check(self, model) -> None:
        check_number("seed", self.seed, 0, 2**32 - 1, optional=False)

    def of_words(self, batch: Batch) -> list[np.ndarray]:
        seeds = ([self.seed, *pair.source.ids.tolist(), *pair.target.ids.tolist()] for pair in batch.pairs)
        draws = [
            np.random.default_rng(seed).random(_shape(pair)) for seed, pair in zip(seeds, batch.pairs, strict=True)
        ]
        return [numbers / numbers.sum(axis=1, keepdims=True) for numbers in draws]


@dataclass(frozen=True)
class Diagonal(BetweenWords):
    """Closeness to the diagonal: 1 - |j - i| for the places of a target and a source word on lines from 0 to 1; each
    row is divided by its sum."""

    def of_words(self, batch: Batch) -> list[np.ndarray]:
        matrices = []
        for pair in batch.pairs:
            rows, columns = ((np.arange(words) + 0.5) / words for words in _shape(pair))
            near = 1 - np.abs(rows[:, None] - columns)
            matrices.append(near / near.sum(axis=1, keepdims=True))
        return matrices


def _shape(pair: TokenPair) -> tuple[int, int]:
    return pair.target.words, pair.source.words
