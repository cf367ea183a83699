"""Methods that attribute the prediction of each target token to source tokens.

Call `attribute`. `METHODS` are all methods. `CONTROLS` ignore the model: a useful method must be better.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import reduce
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.inference.reading import (
    Layers,
    Reading,
    TokenPair,
    batches_of_pairs,
    check_attends,
    check_encoder_decoder,
    decoder_size,
    read,
    readable,
    teacher_forced,
)
from hf_attncal.inference.source_use import log_probabilities
from hf_attncal.inference.word_attention import best_source_words, word_attention
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.models.calibration import calibrated_layers

from .alti import alti_shares, check_blocks


@dataclass(frozen=True)
class Attribution:
    """Scores of each source token for the prediction of each target token.

    Row t belongs to the prediction of target token y_t, given the source and y_0 ... y_t-1. Tensors are on the CPU,
    in float32 or better.

    Args:
        index: index of the pair among all pairs.
        source, target: tokens, special tokens included, and their words.
        scores: (target tokens, source tokens); negative only for occlusion and for scores of the caller.
        prefix: (target tokens, target tokens), scores of the target prefix; None for most methods. Column j is the
            j-th token that the decoder reads: its start token for j = 0, else y_j-1. 0 where j > t.
        null: (target tokens,), share of NULL in a leaky model; None without NULL.
    """

    index: int
    source: WordTokens
    target: WordTokens
    scores: Tensor
    prefix: Tensor | None = None
    null: Tensor | None = None

    def words(self) -> Tensor:
        """Return the scores between words, (target words, source words), by the rules of `word_attention`.

        Scores are summed over the subwords of a source word, with their signs, and averaged over the subwords of a
        target word. To rank words by size take `abs()` of the result.
        """
        return word_attention(self.scores, self.source, self.target)


class Scores(NamedTuple):
    """Scores of a batch, with the fields of `Attribution`; values at padding are arbitrary."""

    scores: Tensor  # (batch, steps, source)
    prefix: Tensor | None = None  # (batch, steps, steps)
    null: Tensor | None = None  # (batch, steps)


@dataclass(frozen=True)
class Batch:
    """Batch of sentence pairs, with the tensors that a model reads.

    Args:
        pairs: pair of each row.
        inputs: `input_ids`, `attention_mask` (batch, source) and `decoder_input_ids` (batch, steps), on the model's
            device.
        labels: (batch, steps), -100 at padding.
    """

    pairs: list[TokenPair]
    inputs: dict[str, Tensor]
    labels: Tensor

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Inputs and labels in the form of `inference.reading.read`."""
        return {**self.inputs, "labels": self.labels}


@dataclass(frozen=True)
class Method(ABC):
    """Method of attribution; its fields are its options.

    `scores` runs without gradients and in evaluation mode. With `reads_self_attention` the self-attentions return
    their weights. With `signed` scores may be negative. Without `reads_model` the method is a control: it ignores the
    model.
    """

    reads_self_attention: ClassVar[bool] = False
    signed: ClassVar[bool] = False
    reads_model: ClassVar[bool] = True

    @classmethod  # noqa: B027
    def check_model(cls, model) -> None:
        """Raise ValueError, with only the reason as message, for a model that the method does not support."""

    def check(self, model) -> None:  # noqa: B027
        """Raise ValueError for an option that does not fit the model."""

    @abstractmethod
    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        """Return the scores of a batch, on any device."""


# ---- methods that read the model ----


@dataclass(frozen=True)
class HeadMethod(Method):
    """Method that reads heads of the cross-attention.

    Args:
        layer: decoder layer, counted from 0; a negative one counts from the top. Default: the mean over layers.
        head: head, counted from 0. Default: the mean over heads.
    """

    layer: int | None = None
    head: int | None = None

    @classmethod
    def check_model(cls, model) -> None:
        check_attends(model.config)

    def check(self, model) -> None:
        layers, heads = decoder_size(model.config)
        for name, value, least, most in (
            ("layer", self.layer, -layers, layers - 1),
            ("head", self.head, 0, heads - 1),
        ):
            if value is not None and (type(value) is not int or not least <= value <= most):
                raise ValueError(f"`{name}` must be an integer from {least} to {most}, or None, got {value!r}.")

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        weights, nulls = self.weights(read(model, batch.tensors, details=True))
        layers = range(len(weights)) if self.layer is None else [self.layer]
        layers = [layer for layer in layers if weights[layer] is not None]

        def mean(by_layer: Layers) -> Tensor | None:
            """Return the mean over the chosen layers; a layer without the tensor counts as 0."""
            tensors = [tensor for layer in layers if (tensor := by_layer[layer]) is not None]
            heads = [tensor.mean(dim=1) if self.head is None else tensor[:, self.head] for tensor in tensors]
            return reduce(torch.add, heads) / len(layers) if heads else None

        scores = mean(weights)
        assert scores is not None
        return Scores(scores, null=mean(nulls))

    @abstractmethod
    def weights(self, reading: Reading) -> tuple[Layers, Layers]:
        """Return the weights of source tokens and of NULL in each layer, by head."""


@dataclass(frozen=True)
class AttentionWeights(HeadMethod):
    """Cross-attention weights a.

    Args:
        calibrated: use the weights after calibration; False for those before it. Default: True.
    """

    calibrated: bool = True

    def check(self, model) -> None:
        super().check(model)
        if not self.calibrated and not calibrated_layers(model):
            raise ValueError("`calibrated` must be True for a model without `calibration`, got False.")

    def weights(self, reading: Reading) -> tuple[Layers, Layers]:
        return reading.attentions if self.calibrated else reading.plain, reading.nulls


@dataclass(frozen=True)
class Contribution(HeadMethod):
    """Contributions phi of a calibrated model (Lu et al., eq. 6): change of each weight by its mask network."""

    @classmethod
    def check_model(cls, model) -> None:
        if not calibrated_layers(model):
            raise ValueError("it needs a model or an active adapter with `calibration`")

    def check(self, model) -> None:
        super().check(model)
        masked, layers = calibrated_layers(model), decoder_size(model.config)[0]
        if self.layer is not None and self.layer % layers not in masked:
            raise ValueError(f"`layer` must be a layer with masks, {masked}, got {self.layer}.")

    def weights(self, reading: Reading) -> tuple[Layers, Layers]:
        return reading.contributions, (None,) * len(reading.nulls)


@dataclass(frozen=True)
class ALTI(Method):
    """ALTI+ (Ferrando et al. 2022): shares of source and target prefix through all layers (see `alti.py`)."""

    reads_self_attention = True

    @classmethod
    def check_model(cls, model) -> None:
        check_blocks(model)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        return Scores(*alti_shares(model, batch.tensors))


@dataclass(frozen=True)
class Occlusion(Method):
    """Fall of the log-probability of y_t when the unknown token replaces a source word.

    The subwords of a word are replaced together and share the fall evenly. Other tokens are replaced one by one.
    """

    signed = True

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        if tokenizer.unk_token_id is None:
            raise ValueError("`method` 'occlusion' needs a tokenizer with an unknown token, got None.")
        whole = log_probabilities(model, batch.inputs, batch.labels)
        tokens = batch.inputs["input_ids"]
        groups = torch.full_like(tokens, -1)  # number of the replaced group of each token; -1 at padding
        for row, pair in enumerate(batch.pairs):
            ids = pair.source.word_ids
            starts = (ids[1:] != ids[:-1]) | (ids[1:] == NO_WORD)
            groups[row, : len(ids)] = torch.from_numpy(np.cumsum(np.append(False, starts)))
        scores = whole.new_zeros(*whole.shape, tokens.shape[1])
        for number in range(int(groups.max()) + 1):
            chosen = groups == number
            rows = chosen.any(dim=1)
            inputs = {**batch.inputs, "input_ids": tokens.masked_fill(chosen, tokenizer.unk_token_id)}
            inputs = {name: tensor[rows] for name, tensor in inputs.items()}
            fall = whole[rows] - log_probabilities(model, inputs, batch.labels[rows])
            share = chosen[rows].unsqueeze(1).to(whole.dtype)
            scores[rows] += fall.unsqueeze(-1) * share / share.sum(dim=-1, keepdim=True)
        return Scores(scores)


# ---- controls, which ignore the model ----


class WordMethod(Method):
    """Method that scores words and ignores the model.

    The subwords of a source word share its score evenly, and other tokens have 0, so `Attribution.words` returns the
    scores.
    """

    reads_model: ClassVar[bool] = False

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        matrices = [torch.as_tensor(matrix, device="cpu") for matrix in self.word_matrices(batch)]
        dtype = torch.promote_types(matrices[0].dtype, torch.float32)
        scores = torch.zeros(*batch.labels.shape, batch.inputs["input_ids"].shape[1], dtype=dtype)
        for row, (matrix, pair) in enumerate(zip(matrices, batch.pairs, strict=True)):
            columns, rows = (torch.from_numpy(side.word_ids) for side in (pair.source, pair.target))
            subwords = torch.bincount(columns[columns != NO_WORD], minlength=pair.source.words).clamp(min=1)
            shares = torch.nn.functional.pad(matrix / subwords, (0, 1, 0, 1))  # NO_WORD (-1) selects the zeros
            scores[row, : len(rows), : len(columns)] = shares[rows][:, columns]
        return Scores(scores)

    @abstractmethod
    def word_matrices(self, batch: Batch) -> Sequence[np.ndarray | Tensor]:
        """Return the scores of each pair, (target words, source words)."""


@dataclass(frozen=True)
class Random(WordMethod):
    """Random scores, each row divided by its sum; they depend only on the pair."""

    def word_matrices(self, batch: Batch) -> list[np.ndarray]:
        matrices = []
        for pair in batch.pairs:
            generator = np.random.default_rng([0, *pair.source.ids.tolist(), *pair.target.ids.tolist()])
            numbers = generator.random((pair.target.words, pair.source.words))
            matrices.append(numbers / numbers.sum(axis=1, keepdims=True))
        return matrices


@dataclass(frozen=True)
class Diagonal(WordMethod):
    """Closeness to the diagonal, 1 - |j - i| for relative positions from 0 to 1; each row is divided by its sum."""

    def word_matrices(self, batch: Batch) -> list[np.ndarray]:
        matrices = []
        for pair in batch.pairs:
            rows, columns = ((np.arange(side.words) + 0.5) / side.words for side in (pair.target, pair.source))
            near = 1 - np.abs(rows[:, None] - columns)
            matrices.append(near / near.sum(axis=1, keepdims=True))
        return matrices


# ---- all methods ----

METHODS: dict[str, type[Method]] = {
    "attention": AttentionWeights,
    "contribution": Contribution,
    "alti": ALTI,
    "occlusion": Occlusion,
    "random": Random,
    "diagonal": Diagonal,
}
CONTROLS = tuple(name for name, method in METHODS.items() if not method.reads_model)


def works_on(model) -> list[str]:
    """Return the names of the methods that support an encoder-decoder."""
    names = []
    for name, method in METHODS.items():
        with suppress(ValueError):
            method.check_model(model)
            names.append(name)
    return names


def attribute(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    method: str = "alti",
    *,
    batch_size: int = 32,
    **options,
) -> Iterator[Attribution]:
    """Attribute the prediction of every target token to the tokens of its source, teacher-forced on the targets.

    Targets may be references or translations of the model. The model's mode is the same before and after.

    Args:
        model: encoder-decoder of transformers, stock, ours, or with an active adapter, on the device to use.
        tokenizer: tokenizer of the model.
        sources, targets: sentences. Pairs with an empty side are left out.
        method: name of a method in `METHODS`. Default: "alti".
        batch_size: maximum number of pairs per batch; pairs are batched by length. Default: 32.
        **options: options of the method (fields of its class in `METHODS`).

    Yields:
        An attribution per pair, the longest pairs first; `index` is the number of the pair.

    Raises:
        ValueError: an unknown method, an unknown or invalid option, a model that the method does not support, and see
            `batches_of_pairs`.
    """
    check_encoder_decoder(model.config)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    try:
        chosen = METHODS[method](**options)
    except TypeError as error:  # an unknown or a missing option, which the error names
        names = ", ".join(field.name for field in fields(METHODS[method])) or "none"
        raise ValueError(f"`method` {method!r} has the options {names}: {error}.") from error
    try:
        chosen.check_model(model)
    except ValueError as reason:
        raise ValueError(
            f"`method` {method!r} does not work on this model: {reason}. Use one of {', '.join(works_on(model))}."
        ) from None
    chosen.check(model)
    batches = batches_of_pairs(model, tokenizer, sources, targets, batch_size=batch_size)

    def attributions() -> Iterator[Attribution]:
        for pairs, tensors in batches:
            batch = Batch(pairs, *teacher_forced(model, tensors))
            with readable(model, False, chosen.reads_self_attention), torch.no_grad():
                scores, prefix, null = chosen.scores(model, tokenizer, batch)
            for row, pair in enumerate(pairs):
                steps, source = len(pair.target.ids), len(pair.source.ids)
                yield Attribution(
                    *(pair.index, pair.source, pair.target),
                    _copied(scores[row, :steps, :source]),
                    None if prefix is None else _copied(prefix[row, :steps, :steps]),
                    None if null is None else _copied(null[row, :steps]),
                )

    return attributions()


def _copied(part: Tensor) -> Tensor:
    """Copy a part of a batch to the CPU in float32 or better, so that the batch can be freed."""
    return part.detach().to("cpu", torch.promote_types(part.dtype, torch.float32), copy=True)


def word_scores(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], method: str = "alti", **options
) -> list[np.ndarray | None]:
    """Return the scores between the words of all pairs, in order, for `judge_faithfulness`.

    Args and errors: see `attribute`.

    Returns:
        Matrix (target words, source words) per pair (see `Attribution.words`); None for a pair with an empty side.
    """
    scores: list[np.ndarray | None] = [None] * len(sources)
    for attribution in attribute(model, tokenizer, sources, targets, method, **options):
        scores[attribution.index] = attribution.words().numpy()
    return scores


@dataclass(frozen=True)
class ScoredLinks:
    """Links of a method (each target word to its best source word) and their alignment error rate."""

    links: list[frozenset[Link]]
    score: AlignmentScore


def score_attributions(
    model, tokenizer, gold: Gold, methods: Iterable[str], *, batch_size: int = 32, bootstrap: int = 1000, seed: int = 0
) -> dict[str, ScoredLinks]:
    """Return links and alignment error rates of methods of attribution, used as word aligners in one direction.

    Args:
        model, tokenizer, batch_size: see `attribute`.
        gold: annotated pairs.
        methods: names of methods.
        bootstrap: number of resamples of the pairs for the 95 % intervals; 0 for no intervals. Default: 1000.
        seed: seed of the resamples. Default: 0.

    Raises:
        ValueError: no annotated pair; see also `attribute`.
    """
    if not gold.pairs:
        raise ValueError("`gold` must have at least one annotated pair, got none.")
    sources, targets = [source for source, _ in gold.pairs], [target for _, target in gold.pairs]
    scored = {}
    for name in methods:
        links: list[frozenset[Link]] = [frozenset()] * len(sources)  # none for a pair with an empty side
        for attribution in attribute(model, tokenizer, sources, targets, name, batch_size=batch_size):
            best = enumerate(best_source_words(attribution.words()).tolist())
            links[attribution.index] = frozenset((i, j) for j, i in best if i >= 0)
        # No check of indices, which would warn of links that are as bad as chance.
        score = alignment_error_rate(gold.links, links, check_indices=False, bootstrap=bootstrap, seed=seed)
        scored[name] = ScoredLinks(links, score)
    return scored
