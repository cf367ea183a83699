"""Define the input, the output and the base class of every method of attribution."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from hf_attncal.data.words import WordTokens
from hf_attncal.inference.reading import Reading, TokenPair, check_attends, decoder_size, read
from hf_attncal.inference.word_attention import word_attention


@dataclass(frozen=True)
class Attribution:
    """Scores of each source token, and each target token before it, for the prediction of each target token.

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
    """A batch of sentence pairs, with the tensors that a model reads.

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

    def read(self, model, **wanted: bool) -> Reading:
        """Read the batch; `wanted` are options of `analysis.reading.read`."""
        return read(model, {**self.inputs, "labels": self.labels}, **wanted)


@dataclass(frozen=True)
class Method(ABC):
    """A method of attribution; its fields are its options.

    `scores` runs with the model in evaluation mode, with gradients if `differentiates`, and with self-attentions
    that return their weights if `reads_self_attention`. Scores may be below 0 if `signed`. A method without
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
        layers = [layer for layer in layers if layer is not None]
        fields = ([part for part in field if part is not None] for field in zip(*layers, strict=True))
        return Scores(*(sum(field) / len(layers) if field else None for field in fields))

    def of_heads(self, weights: Tensor | None) -> Tensor | None:
        """Return the chosen head, or the mean over heads: (batch, heads, ...) -> (batch, ...)."""
        if weights is None:
            return None
        return weights.mean(dim=1) if self.head is None else weights[:, self.head]


def check_number(name: str, value: object, least: int, most: int, optional: bool = True) -> None:
    """Raise ValueError unless an option is a whole number from `least` to `most` or, if `optional`, None."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        none = ", or None" if optional else ""
        raise ValueError(f"`{name}` must be a whole number from {least} to {most}{none}, got {value!r}.")
