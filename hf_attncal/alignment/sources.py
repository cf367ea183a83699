"""Interface of the sources of weights, which read link weights from a model for the `WordAligner`.

Each source has its own file, and `families.py` names the source of each family.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.batching import padded
from hf_attncal.data.segmentation import Cut
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.models.limits import SYMMETRIZATIONS

Words = tuple[Sequence[str], Sequence[str]]
# Thresholds that are tried on annotated pairs.
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
ADAPTATION_PASSES = 4  # passes over a text to adapt to


def check_threshold(value: object) -> None:
    """Raise ValueError unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"`threshold` must be from 0 to 1, got {value!r}.")


class Weights(NamedTuple):
    """Weights between the tokens of a batch of sentence pairs, 0 at padding.

    Args:
        forward: Weights of the direction that predicts the target, (batch, target, source).
        backward: Weights of the other direction, (batch, source, target); None if there is one direction.
        target_null: Probability that a target token has no partner, (batch, target); None without NULL.
        source_null: Probability that a source token has no partner, (batch, source); None without NULL.
        source_words: Word of each source token, (batch, source), and the index that stands for no word.
        target_words: Word of each target token, (batch, target), and the index that stands for no word.
        words: Number of source and target words of each pair.
        source_tokens: Token ids, (batch, source), arbitrary at padding. Default: None.
        target_tokens: Token ids, (batch, target), arbitrary at padding. Default: None.
    """

    forward: Tensor
    backward: Tensor | None
    target_null: Tensor | None
    source_null: Tensor | None
    source_words: tuple[Tensor, int]
    target_words: tuple[Tensor, int]
    words: Sequence[tuple[int, int]]
    source_tokens: Tensor | None = None
    target_tokens: Tensor | None = None


@dataclass(frozen=True)
class Adaptation:
    """Result of an adaptation.

    Args:
        pairs: Number of pairs of the text.
        unknown: Share of the tokens that were never counted with a token of the other side before.
        weight: Mean weight of a link of the text, from 0 (nothing changed) to 1 (like a training link).
    """

    pairs: int
    unknown: float
    weight: float


class WeightSource(ABC):
    """Source of link weights for one kind of model.

    Args:
        model: Model in evaluation mode, on the device to use.
        tokenizer: Tokenizer of the model.
        settings: `Seq2SeqAttention` of an encoder-decoder. Default: None, the default reading.

    Raises:
        ValueError: a tokenizer or settings that do not suit the model.
    """

    kind: ClassVar[str]  # the model in messages
    has_settings: ClassVar[bool] = False
    symmetrizations: ClassVar[tuple[str, ...]] = SYMMETRIZATIONS
    why_no_other: ClassVar[str] = ""  # reason for the short list of symmetrizations
    has_null: ClassVar[bool] = True
    accepts_encoder: ClassVar[bool] = False
    counts: bool = False  # True for a statistical aligner, which can adapt to a text
    prior: Any | None = None  # an `EncoderPrior`
    symmetrization: str  # default method to merge the directions
    tokenize: bool = False  # True if the training text was split into words (`data.segmentation`)
    cuts: Sequence[Cut | None] = (None, None)  # per side, what cuts a text without spaces

    def __init__(self, model, tokenizer, settings=None):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        if settings is not None and not self.has_settings:
            raise ValueError(
                f"`settings` are for an encoder-decoder, and the model is {self.kind}, got {settings}. Leave them out."
            )

    @property
    @abstractmethod
    def threshold(self) -> float | None:
        """Return the default minimum score of a link; None to take the best word."""

    def reads_observer_of(self, model) -> bool:
        """Return True if the weights come from an observer of this model, which can also observe a search."""
        return False

    @classmethod
    def saved_settings(cls, name: str | Path, revision: str | None = None) -> Any | None:
        """Load the settings saved with a checkpoint, in a folder or on the Hub; None if there are none.

        Raises:
            ValueError: the file does not hold settings. The message names it.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, name: str | Path, *, dtype, trust_remote_code: bool, revision: str | None) -> tuple:
        """Load model and tokenizer; see `WordAligner.from_pretrained` for the arguments."""

    def choose(self, **changes: Any) -> None:
        """Change some settings by name.

        Raises:
            ValueError: an unknown setting or a wrong value.
        """
        raise ValueError(f"`{next(iter(changes))}` is for an encoder-decoder, and the model is {self.kind}.")

    def check_settings(self) -> None:  # noqa: B027 - not every source has settings
        """Raise ValueError if the model lacks the layer, heads or weights in `settings`."""

    @abstractmethod
    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield batches in any order: the indices of pairs and their weights, in float32 or better.

        Pairs with an empty side are left out.

        Args:
            pairs: (source words, target words).
            batch_size: Maximum number of pairs per batch.
            batch_tokens: Maximum number of tokens per batch, including padding; a larger pair is its own batch.
        """

    def tokens_of(self, pairs: Sequence[Words]) -> list[WordTokens]:
        """Tokenise pairs for a statistical aligner; source and target in turn."""
        raise NotImplementedError

    def adapt(self, pairs: Sequence[Words], weight: float | None, passes: int) -> Adaptation:
        """Adapt a statistical aligner to a text, see `WordAligner.adapt`.

        Raises:
            ValueError: a model without counts, or a setting out of range.
        """
        raise ValueError(
            f"only a statistical aligner can adapt to a text, and the model is {self.kind}. Train one with "
            "`attncal align train --config hmm`."
        )

    def unknown_shares(self, pairs: Sequence[Words]) -> list[float] | None:
        """Return the share of unknown tokens in each pair, see `WordAligner.unknown_shares`; None without counts."""
        return None


def word_ids(sides: Sequence[WordTokens], device: torch.device | str = "cpu") -> tuple[Tensor, int]:
    """Return the word of each token, (batch, longest), and the index that stands for no word."""
    words = max(side.words for side in sides)
    ids = padded([np.where(side.word_ids == NO_WORD, words, side.word_ids) for side in sides], words)[0]
    return ids.to(device), words


def largest_over_words(weights: Tensor, rows: tuple[Tensor, int], columns: tuple[Tensor, int]) -> Tensor:
    """Return the maximum weight over the subwords of two words, for all pairs of words of a batch.

    Args:
        weights: Non-negative weights between subwords, (batch, R, C).
        rows: Word of each row, (batch, R), and the index that stands for no word.
        columns: Word of each column, (batch, C), and the index that stands for no word.

    Returns:
        Weights between words, (batch, row words, column words), 0 for a word without subwords.
    """
    (row_ids, row_words), (column_ids, column_words) = rows, columns
    batch = len(weights)
    wide = weights.new_zeros(batch, weights.shape[1], column_words + 1)
    wide.scatter_reduce_(2, column_ids[:, None, :].expand_as(weights), weights, "amax")
    words = weights.new_zeros(batch, row_words + 1, column_words + 1)
    words.scatter_reduce_(1, row_ids[:, :, None].expand_as(wide), wide, "amax")
    return words[:, :row_words, :column_words]
