"""What every method of attribution takes and gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.analysis.reading import TokenPair, check_attends, decoder_size
from hf_attncal.analysis.words import word_attention
from hf_attncal.data.words import NO_WORD, WordTokens


@dataclass(frozen=True)
class Attribution:
    """How much each source token, and each target token before it, counts for the prediction of each target token.

    Row t belongs to the prediction of target token y_t, given the source and y_0 ... y_t-1. On the CPU, float32 or
    better.

    Args:
        index: the place of the pair among all pairs.
        source: the tokens of the source, special ones included, and their words.
        target: the same for the target.
        scores: (target tokens, source tokens); only gradients, occlusion and what the caller gives may be negative.
        prefix: (target tokens, target tokens), of a method that splits between source and target prefix: column j is
            the j-th token that the decoder reads, its start token for j = 0 and else y_j-1. 0 where j > t.
        null: (target tokens,), the share of NULL in a leaky model; None where there is none.
    """

    index: int
    source: WordTokens
    target: WordTokens
    scores: Tensor
    prefix: Tensor | None = None
    null: Tensor | None = None

    def words(self) -> Tensor:
        """Return the scores between words, (target words, source words), by the rules of `word_attention`.

        Scores of the subwords of a source word are added up with their signs, so that what adds up over tokens does so
        over words; scores for the subwords of a target word are averaged. Who ranks by size whatever the sign takes
        `abs()` of the result, where opposite subwords of one word have cancelled.
        """
        return word_attention(self.scores, self.source, self.target)


class Scores(NamedTuple):
    """The fields of the same names of `Attribution` for a batch, padding included: its values do not matter."""

    scores: Tensor  # (batch, steps, source)
    prefix: Tensor | None = None  # (batch, steps, steps)
    null: Tensor | None = None  # (batch, steps)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as a model reads them.

    Args:
        pairs: one for each row.
        texts: source and target of each.
        inputs: `input_ids`, `attention_mask` (batch, source) and `decoder_input_ids` (batch, steps), on its device.
        labels: (batch, steps), -100 where there is no target.
    """

    pairs: list[TokenPair]
    texts: list[tuple[str, str]]
    inputs: dict[str, Tensor]
    labels: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of pairs, steps and source tokens."""
        return *self.labels.shape, self.inputs["input_ids"].shape[1]

    def for_reading(self) -> dict[str, Tensor]:
        """Return the batch as `analysis.reading.read` takes it."""
        return {**self.inputs, "labels": self.labels}


@dataclass(frozen=True)
class Method(ABC):
    """A method of attribution; its fields are its options.

    `scores` runs with the model in evaluation mode, with gradients where `differentiates`, and with self-attentions
    that form their weights where `reads_self_attention`. They may be below 0 where `signed`. A method without
    `reads_model` never looks at the model: it is a control, which others have to be better than.
    """

    differentiates: ClassVar[bool] = False
    reads_self_attention: ClassVar[bool] = False
    signed: ClassVar[bool] = False
    reads_model: ClassVar[bool] = True
    needs: ClassVar[tuple[Callable[[Any], object], ...]] = ()  # what raises ValueError for an unsuitable model

    @classmethod
    def check_model(cls, model) -> None:
        """Raise ValueError for a model that the method does not work on; the message is the reason alone."""
        for check in cls.needs:
            check(model)

    def check(self, model) -> None:  # noqa: B027
        """Raise ValueError for an option that does not suit the model."""

    @classmethod
    def choices(cls, model) -> list[dict[str, Any]]:
        """Return the options to choose between by gold links: layers, heads, signs; the default, `{}`, is first."""
        return [{}]

    @abstractmethod
    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        """Return the scores of a batch, on any device."""


# ---- layers and heads ----


@dataclass(frozen=True)
class OfHeads(Method):
    """A method that looks at heads of the cross-attention.

    Args:
        layer: decoder layer from 0, negative ones from the top; None for the mean over layers.
        head: head from 0; None for all heads.
    """

    layer: int | None = None
    head: int | None = None

    needs = (lambda model: check_attends(model.config),)

    def check(self, model) -> None:
        layers, heads = decoder_size(model.config)
        check_number("layer", self.layer, -layers, layers - 1)
        check_number("head", self.head, 0, heads - 1)

    @classmethod
    def layers(cls, model) -> list[int]:
        """Return the decoder layers that the method can look at."""
        return list(range(decoder_size(model.config)[0]))

    @classmethod
    def choices(cls, model) -> list[dict[str, Any]]:
        heads = [{}, *({"head": head} for head in range(decoder_size(model.config)[1]))]
        return [{}, *({"layer": layer, **head} for layer in cls.layers(model) for head in heads)]

    def of_layers(self, layers: Sequence[Scores | None]) -> Scores:
        """Return the chosen layer, or the mean over those that are there; a layer without NULL gives it nothing."""
        if self.layer is not None:
            return layers[self.layer]
        there = [layer for layer in layers if layer is not None]
        return Scores(*map(_mean, zip(*there, strict=True)))

    def of_heads(self, weights: Tensor | None) -> Tensor | None:
        """Return the chosen head, or the mean over heads: (batch, heads, ...) -> (batch, ...)."""
        if weights is None:
            return None
        return weights.mean(dim=1) if self.head is None else weights[:, self.head]


def _mean(tensors: Sequence[Tensor | None]) -> Tensor | None:
    there = [tensor for tensor in tensors if tensor is not None]
    return sum(there) / len(tensors) if there else None


def check_number(name: str, value: object, least: int, most: int, optional: bool = True) -> None:
    """Raise ValueError unless an option is a whole number from `least` to `most` or, if `optional`, None."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        none = ", or None" if optional else ""
        raise ValueError(f"`{name}` must be a whole number from {least} to {most}{none}, got {value!r}.")


# ---- words and tokens ----


def groups_of_tokens(word_ids: Sequence[np.ndarray], by_word: bool, length: int, device) -> Tensor:
    """Return the group of each token, numbered from 0 in their order, -1 for padding: (batch, length).

    Args:
        word_ids: the word of each token of every row. by_word: tokens of a word are a group; one of no word, and
            without `by_word` every token, is a group of its own.
    """
    groups = torch.full((len(word_ids), length), -1)
    for row, ids in enumerate(word_ids):
        starts = np.ones(len(ids), dtype=bool)
        if by_word:
            starts[1:] = (ids[1:] != ids[:-1]) | (ids[1:] == NO_WORD)
        groups[row, : len(ids)] = torch.from_numpy(np.cumsum(starts) - 1)
    return groups.to(device)


def between_tokens(weights: np.ndarray | Tensor, pair: TokenPair) -> Tensor:
    """Return scores of tokens from which `Attribution.words` gives back `weights` (target words, source words).

    The subwords of a source word share its score evenly; tokens of no word have 0.
    """
    columns, rows = (torch.from_numpy(side.word_ids) for side in (pair.source, pair.target))
    weights = torch.as_tensor(weights, device="cpu")
    subwords = torch.bincount(columns[columns != NO_WORD], minlength=pair.source.words).clamp(min=1)
    of_words = torch.nn.functional.pad(weights / subwords, (0, 1, 0, 1))  # NO_WORD, which is -1, finds the zeros
    return of_words[rows][:, columns]


def padded_scores(rows: Sequence[Tensor], batch: Batch) -> Tensor:
    """Stack the scores (target tokens, source tokens) of all rows, padded with 0: (batch, steps, source)."""
    scores = torch.zeros(batch.shape, dtype=torch.promote_types(rows[0].dtype, torch.float32))
    for row, values in enumerate(rows):
        scores[row, : values.shape[0], : values.shape[1]] = values
    return scores
