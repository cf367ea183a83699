"""Sources of weights: what reads a model and tells the `WordAligner` how strongly its words belong together.

A source is a class with this interface in a file of its own. The row of a family names it (`families.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.batching import padded
from hf_attncal.data.words import NO_WORD, WordTokens

from .links import SYMMETRIZATIONS

Words = tuple[Sequence[str], Sequence[str]]


def check_threshold(value: object) -> None:
    """Raise ValueError for what no score can be compared with."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"`threshold` must be from 0 to 1, got {value!r}.")


class Weights(NamedTuple):
    """Weights of a batch of pairs between tokens, 0 at padding.

    Args:
        forward: (batch, target, source), of the direction that predicts the target.
        backward: (batch, source, target); None where there is one direction only.
        target_null: (batch, target), the probability that a token has no partner; None where there is no NULL.
        source_null: (batch, source).
        source_words: (batch, source), the word of each token, and the largest number of words of a pair, which stands
            for no word.
        target_words: the same of the target.
        words: numbers of source and of target words of each pair.
        source_tokens: (batch, source), the tokens as the model numbers them, anything at padding; None where the
            source does not tell.
        target_tokens: (batch, target).
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


class WeightSource(ABC):
    """One way to read word alignments off a kind of model.

    Args:
        model: in evaluation mode, on the device to use.
        tokenizer: its tokenizer.
        settings: what to read, `Seq2SeqAttention`; None for the default. Only for a source that has some.

    Raises:
        ValueError: a tokenizer or settings that do not suit the model.
    """

    kind: ClassVar[str]  # what messages call the model
    has_settings: ClassVar[bool] = False
    symmetrizations: ClassVar[tuple[str, ...]] = SYMMETRIZATIONS
    why_no_other: ClassVar[str] = ""  # of the symmetrizations
    has_null: ClassVar[bool] = True
    may_have_prior: ClassVar[bool] = False  # whether an encoder may help it
    counts: bool = False  # whether the model are counts, which can adapt to a text
    prior: Any | None = None  # an `EncoderPrior`
    symmetrization: str  # how the directions are merged where nothing else is asked for
    tokenize: bool = False  # whether the model has learned from text that was cut into words (`data.segmentation`)

    def __init__(self, model, tokenizer, settings=None):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        if settings is not None and not self.has_settings:
            raise ValueError(
                f"`settings` choose the attention of an encoder-decoder, but the model is {self.kind}, got "
                f"{settings}. Leave them out."
            )

    @property
    @abstractmethod
    def threshold(self) -> float | None:
        """Return what a score must exceed where nothing else is asked for; None: take the best word."""

    @classmethod
    def saved_settings(cls, name: str | Path, revision: str | None = None) -> Any | None:
        """Load the settings beside a checkpoint, in a folder or on the Hub; None where there are none.

        Raises:
            ValueError: the file does not hold settings; the message names it.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, name: str | Path, *, dtype, trust_remote_code: bool, revision: str | None) -> tuple:
        """Load model and tokenizer; arguments as of `WordAligner.from_pretrained`."""

    def choose(self, **changes: Any) -> None:
        """Change single settings, by name; the others stay.

        Raises:
            ValueError: there is no such setting, or its value is wrong.
        """
        raise ValueError(f"`{next(iter(changes))}` is for an encoder-decoder, but the model is {self.kind}.")

    def check_settings(self) -> None:  # noqa: B027 - not every source has settings
        """Raise ValueError if the model does not have what `settings` name; called only where there are some."""

    @abstractmethod
    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield weights of pairs in batches, in any order: indices of pairs and their weights, in float32 or better.

        Pairs of which a side has no token are left out.

        Args:
            pairs: (source words, target words).
            batch_size: most pairs in a batch.
            batch_tokens: most tokens in a batch, both sides and padding included; a pair over it goes alone.
        """

    def tokens_of(self, pairs: Sequence[Words]) -> list[WordTokens]:
        """Return the tokens of the source and the target of each pair in turn, of a model that counts."""
        raise NotImplementedError

    def unknown_shares(self, pairs: Sequence[Words]) -> list[float] | None:
        """Return for each pair the share of its tokens that were never counted with one of the other side.

        None for models that do not count.
        """
        return None


def word_ids(sides: Sequence[WordTokens], device: torch.device | str = "cpu") -> tuple[Tensor, int]:
    """Return the word of each token, (batch, longest), and the largest number of words, which stands for no word."""
    words = max(side.words for side in sides)
    ids = padded([np.where(side.word_ids == NO_WORD, words, side.word_ids) for side in sides], words)[0]
    return ids.to(device), words


def check_finite_weights(model, *weights: Tensor) -> None:
    """Raise ValueError for weights that are not finite."""
    if not all(bool(torch.isfinite(tensor.sum())) for tensor in weights):  # probabilities: no sum is too large
        raise ValueError(
            f"The weights of the model are not finite in {model.dtype}. Load it with `dtype='float32'`; if they still "
            "are not, the checkpoint is damaged."
        )
