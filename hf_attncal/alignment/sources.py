"""Sources of weights: what reads a model and tells the `WordAligner` how strongly its words belong together.

A source is a class with this interface in a file of its own, and a place in the table of `aligner.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from .symmetrization import SYMMETRIZATIONS

Words = tuple[Sequence[str], Sequence[str]]


class Weights(NamedTuple):
    """Weights of a batch of pairs between tokens, 0 at padding.

    Args:
        forward: (batch, target, source), of the direction that predicts the target.
        backward: (batch, source, target); None where there is one direction only.
        target_null: (batch, target), the probability that a token has no partner; None where there is no NULL.
        source_null: (batch, source).
        source_ids: (batch, source), the word of each token; `source_words` for a token of no word.
        target_ids: (batch, target).
        words: numbers of source and of target words of each pair.
    """

    forward: Tensor
    backward: Tensor | None
    target_null: Tensor | None
    source_null: Tensor | None
    source_ids: Tensor
    target_ids: Tensor
    words: Sequence[tuple[int, int]]

    @property
    def source_words(self) -> int:
        """The largest number of source words of a pair."""
        return max(source for source, _ in self.words)

    @property
    def target_words(self) -> int:
        """The largest number of target words of a pair."""
        return max(target for _, target in self.words)


class WeightSource(ABC):
    """One way to read word alignments off a kind of model.

    Args:
        model: in evaluation mode, on the device to use.
        tokenizer: its tokenizer.
        settings: what to read; None for the default. Only for a source with `settings_type`.

    Raises:
        ValueError: a tokenizer or settings that do not suit the model.
    """

    kind: ClassVar[str]  # what messages call the model
    settings_type: ClassVar[type | None] = None  # a dataclass
    symmetrizations: ClassVar[tuple[str, ...]] = SYMMETRIZATIONS
    has_null: ClassVar[bool] = True

    def __init__(self, model, tokenizer, settings=None):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        if settings is not None and self.settings_type is None:
            raise ValueError(
                f"`settings` choose the attention of an encoder-decoder, but the model is {self.kind}, got "
                f"{settings}. Leave them out."
            )

    @classmethod
    @abstractmethod
    def reads(cls, config) -> bool:
        """Whether this is the source for a model of that configuration."""

    @classmethod
    @abstractmethod
    def load(cls, name: str | Path, *, dtype, trust_remote_code: bool, revision: str | None) -> tuple:
        """Model, tokenizer, and the settings beside them or None; arguments as of `WordAligner.from_pretrained`."""

    @property
    @abstractmethod
    def symmetrization(self) -> str:
        """How the directions are merged where nothing else is asked for."""

    @property
    @abstractmethod
    def threshold(self) -> float | None:
        """What a score must exceed where nothing else is asked for; None: each target word gets its best."""

    @property
    def tokenize(self) -> bool:
        """Whether the model has learned from text that was cut into words (`data.segmentation`)."""
        return False

    def choose(self, **changes: Any) -> None:
        """Change single settings, by name; the others stay.

        Raises:
            ValueError: there is no such setting, or its value is wrong.
        """
        raise ValueError(f"`{next(iter(changes))}` is for an encoder-decoder, but the model is {self.kind}.")

    def check(self, symmetrize: str | None = None, null: bool = False) -> None:
        """Refuse what this source does not have.

        Args:
            symmetrize: one of `SYMMETRIZATIONS`; None for the source's own.
            null: NULL probabilities are needed.

        Raises:
            ValueError: it has no such symmetrisation or no NULL, or the model does not have what the settings name.
        """
        if null and not self.has_null:
            raise ValueError(f"`null` needs a model with NULL, such as Mask-Align: the model is {self.kind}, without.")
        if symmetrize is not None and symmetrize not in self.symmetrizations:
            names = " or ".join(map(repr, self.symmetrizations))
            raise ValueError(
                f"`symmetrize` must be {names} for {self.kind}, which has one direction, got {symmetrize!r}. Align "
                "the two directions with two models and merge them with `hf_attncal.alignment.symmetrize`."
            )

    @abstractmethod
    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Weights of the pairs in batches, in any order: indices of pairs and their weights, in float32 or better.

        Pairs of which a side has no token are left out.

        Args:
            pairs: (source words, target words).
            batch_size: most pairs in a batch.
            batch_tokens: most tokens in a batch, both sides and padding included; a pair over it goes alone.
        """
