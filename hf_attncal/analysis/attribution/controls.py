"""What attributions are compared with: an aligner that does not know the model, chance, and the diagonal."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from hf_attncal.analysis.reading import TokenPair

from .base import Batch, Method, Scores, between_tokens, check_number, padded_scores

# Sources and targets -> for each pair (target words, source words).
Aligner = Callable[[list[str], list[str]], Sequence[np.ndarray | Tensor]]


class BetweenWords(Method):
    """A method that gives scores to words, which their subwords share, without a look at the model."""

    reads_model: ClassVar[bool] = False

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        found = self.of_words(batch)
        return Scores(padded_scores([between_tokens(*one) for one in zip(found, batch.pairs, strict=True)], batch))

    @abstractmethod
    def of_words(self, batch: Batch) -> Sequence[np.ndarray | Tensor]:
        """Return the scores of each pair, (target words, source words)."""


@dataclass(frozen=True)
class Posterior(BetweenWords):
    """Links between words as the probabilities of an aligner.

    Args:
        weights: called with the sources and the targets of a batch, two lists; returns for each pair its weights,
            (target words, source words), words being what `str.split()` gives.
    """

    weights: Aligner

    def __post_init__(self):
        if not callable(self.weights):
            raise ValueError(f"`weights` must be a function of sources and targets, got {self.weights!r}.")

    def of_words(self, batch: Batch) -> Sequence[np.ndarray | Tensor]:
        found = list(self.weights(*(list(side) for side in zip(*batch.texts, strict=True))))
        if len(found) != len(batch.pairs):
            raise ValueError(f"`weights` must return a matrix for each of {len(batch.pairs)} pairs, got {len(found)}.")
        for matrix, pair in zip(found, batch.pairs, strict=True):
            if tuple(matrix.shape) != _shape(pair):
                raise ValueError(
                    f"`weights` must return (target words, source words), {_shape(pair)} for pair {pair.index} "
                    f"(counted from 0), got {tuple(matrix.shape)}."
                )
        return found


@dataclass(frozen=True)
class Random(BetweenWords):
    """Evenly distributed numbers, each row divided by its sum; the same for a pair wherever it stands.

    Args:
        seed: with another one they are others.
    """

    seed: int = 0

    def check(self, model) -> None:
        check_number("seed", self.seed, 0, 2**32 - 1, optional=False)

    def of_words(self, batch: Batch) -> list[np.ndarray]:
        return [self._of_pair(pair) for pair in batch.pairs]

    def _of_pair(self, pair: TokenPair) -> np.ndarray:
        entropy = [self.seed, *pair.source.ids.tolist(), *pair.target.ids.tolist()]
        numbers = np.random.default_rng(entropy).random(_shape(pair))
        return numbers / numbers.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Diagonal(BetweenWords):
    """Nearness to the diagonal: 1 - |j - i| of the places of a target and a source word on lines from 0 to 1; each row
    is divided by its sum."""

    def of_words(self, batch: Batch) -> list[np.ndarray]:
        return [_nearness(*_shape(pair)) for pair in batch.pairs]


def _nearness(targets: int, sources: int) -> np.ndarray:
    rows, columns = ((np.arange(count) + 0.5) / count for count in (targets, sources))
    near = 1 - np.abs(rows[:, None] - columns)
    return near / near.sum(axis=1, keepdims=True)


def _shape(pair: TokenPair) -> tuple[int, int]:
    return pair.target.words, pair.source.words
