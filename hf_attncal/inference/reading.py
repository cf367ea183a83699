"""Read the cross-attention of an encoder-decoder on given targets (teacher forcing).

Any encoder-decoder of transformers can be read: a stock model, one of ours, or one with an active adapter. With labels
y_0 ... y_n-1 (end of sentence included) and decoder inputs start, y_0 ... y_n-2, step t predicts y_t.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.word_tokens import special_target_id, tokenize_words
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.families import stock_type
from hf_attncal.metrics.reliability import contributions
from hf_attncal.models.configuration_attncal import guided_place
from hf_attncal.models.cross_attention import AttentionContext
from hf_attncal.models.losses import IGNORE_INDEX, shift_labels

_KERNEL_LOGGER = logging.getLogger("transformers.integrations.sdpa_attention")

# One entry for each decoder layer, from 0; None for a layer without a tensor.
Layers = tuple[Tensor | None, ...]


class CalibratedLayer(NamedTuple):
    """Readings of one decoder layer with masks; tensors as in `Reading`.

    Args:
        number: index of the layer, from 0.
        attention: weights before calibration.
        mask, contribution: m and phi (Lu et al., eqs. 3 and 6).
        gate: g; None unless the calibration is gated.
        calibrated: weights that the model uses; None if they were not requested.
    """

    number: int
    attention: Tensor
    mask: Tensor
    contribution: Tensor
    calibrated: Tensor | None
    gate: Tensor | None


@dataclass(frozen=True)
class Reading:
    """Cross-attention of one pass over a batch.

    Args:
        source_mask: boolean (batch, source), True for real tokens.
        target_mask: boolean (batch, steps), True for steps with a target.
        attentions: weights that the model uses, (batch, heads, steps, source) in each layer; after calibration,
            without the NULL column.
        uncalibrated: a, the weights before calibration, the same shape.
        masks: m (Lu et al., eq. 3), the same shape.
        nulls: weight of NULL, (batch, heads, steps).
        gates: g (Lu et al., eq. 12), the same shape.
        uam: weights of the unsupervised alignment module over source positions, (batch, steps, source), 0 on source
            padding; the positions of a repeated token share its probability, see `shared_among_places`. None if not
            requested.
        predicted: boolean (batch, steps), True if the model would also predict the target token. None if not
            requested.
        observed: weights of an observer, (batch, steps, source), and its weight of NULL, (batch, steps), if any. None
            if not requested.
    """

    source_mask: Tensor
    target_mask: Tensor
    attentions: Layers
    uncalibrated: Layers
    masks: Layers
    nulls: Layers
    gates: Layers
    uam: Tensor | None = None
    predicted: Tensor | None = None
    observed: tuple[Tensor, Tensor | None] | None = None

    @property
    def plain(self) -> Layers:
        """Return the weights before calibration in each layer, or the used ones of a layer without calibration."""
        layers = zip(self.uncalibrated, self.attentions, strict=True)
        return tuple(used if plain is None else plain for plain, used in layers)

    @cached_property
    def contributions(self) -> Layers:
        """Return phi of Lu et al., eq. 6, (batch, heads, steps, source) in each layer with masks, 0 on source padding.

        Raises:
            ValueError: no layer has masks.
        """
        by_number = {layer.number: layer.contribution for layer in self.calibrated}
        return tuple(map(by_number.get, range(len(self.masks))))

    @cached_property
    def calibrated(self) -> list[CalibratedLayer]:
        """Return the layers with masks.

        Raises:
            ValueError: no layer has masks.
        """
        layers = []
        columns = zip(self.uncalibrated, self.masks, self.nulls, self.attentions, self.gates, strict=True)
        for number, (attention, mask, null, used, gate) in enumerate(columns):
            if attention is not None and mask is not None:
                phi = contributions(attention, mask, self.source_mask, null)
                layers.append(CalibratedLayer(number, attention, mask, phi, used, gate))
        if not layers:
            raise ValueError("Contributions need a model or an active adapter with `calibration`, got one without.")
        return layers

    def unpadded(self, weights: Tensor, row: int) -> Tensor:
        """Return one sentence without padding: (batch, ..., steps, source) -> (..., its steps, its source tokens)."""
        return weights[row][..., self.target_mask[row], :][..., self.source_mask[row]]


class PairTooLongError(ValueError):
    """Error for a pair with more tokens than the model has positions; `index` counts from 0."""

    def __init__(self, index: int, side: str, tokens: int, limit: int) -> None:
        self.index, self.side, self.tokens, self.limit = index, side, tokens, limit
        super().__init__(
            f"pair {index} (counted from 0) has {tokens} {side} tokens, the model takes at most {limit}. Split the "
            "pair."
        )


@dataclass(frozen=True)
class TokenPair:
    """Tokenised sentence pair; `index` is its index among all pairs."""

    index: int
    source: WordTokens
    target: WordTokens


@torch.no_grad()
def read(
    model,
    batch: Mapping[str, Tensor],
    *,
    attentions: bool = True,
    details: bool = False,
    uam: bool = False,
    predictions: bool = False,
    observed: bool = False,
) -> Reading:
    """Read the cross-attention on a batch; the model's mode and attention kernel are restored.

    Args:
        model: encoder-decoder of transformers, on the device to use.
        batch: `input_ids` and `attention_mask` (batch, source), `labels` (batch, steps) with -100 where there is no
            target; on any device. `decoder_input_ids` default to the shifted labels.
        attentions: True to fill `attentions`.
        details: True to fill `uncalibrated`, `masks`, `nulls` and `gates`, in the layers that have them.
        uam: True to fill `uam`.
        predictions: True to fill `predicted`.
        observed: True to fill `observed`.

    Returns:
        The reading, on the model's device; fields that are not requested are None, or None in all layers.

    Raises:
        ValueError: the model returns no cross-attention, or has no `uam` or observer although it is requested.
    """
    if attentions:
        check_attends(model.config)
    if uam:
        check_uam(model.config)
    # By attribute and not by class, because a model loaded as remote code has its own class.
    parts = [m for m in model.modules() if getattr(m, "switches", None) is not None] if details else []
    # If one of our attentions has an adapter, only the adapter reports.
    layer_numbers = [m.layer_idx for m in [m for m in parts if hasattr(m, "active_name")] or parts]
    # Details need the model with its head. Otherwise the output layer, which costs more than a layer, is skipped.
    extras: dict[str, Any] = {"output_attention_details": True} if layer_numbers else {}
    extras |= {"output_uam_probabilities": True} if uam else {}
    reader = model if extras or predictions else model.base_model
    context = AttentionContext(guided=observed_place(model)) if observed else None
    extras |= {"attention_context": context} if observed else {}
    extras |= {"output_attentions": True} if attentions else {}
    with readable(model, attentions):
        inputs, labels = teacher_forced(model, batch)
        outputs = reader(**inputs, use_cache=False, return_dict=True, **extras)
        kernel = model.config._attn_implementation
    used: Layers = (None,) * decoder_size(model.config)[0]
    if attentions:
        used = tuple(getattr(outputs, "cross_attentions", None) or ())
        expected = getattr(model, "exported_layers", range(len(used)))  # CTranslate2 has the attention of one
        if not used or any(used[layer] is None for layer in expected):
            raise ValueError(
                f"A model of type {model.config.model_type!r} returned no cross-attention with "
                f"attn_implementation={kernel!r}. Load an encoder-decoder, with `attn_implementation='eager'`."
            )

    def recorded(name: str) -> Layers:
        tensors = getattr(outputs, name) if layer_numbers else None
        by_layer = dict(zip(layer_numbers, tensors or (), strict=False))
        return tuple(map(by_layer.get, range(len(used))))

    real, targets = inputs["attention_mask"].bool(), labels != IGNORE_INDEX
    return Reading(
        real,
        targets,
        used,
        uncalibrated=recorded("uncalibrated_cross_attentions"),
        masks=recorded("calibration_masks"),
        nulls=recorded("null_attentions"),
        gates=recorded("calibration_gates"),
        uam=shared_among_places(outputs.uam_probabilities, inputs["input_ids"], real, targets) if uam else None,
        predicted=(outputs.logits.argmax(dim=-1) == labels) & targets if predictions else None,
        observed=None if context is None else context.guided_attention,
    )


def teacher_forced(model, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the inputs of a model and the labels to predict, on the model's device; see `read` for the batch."""
    inputs = {name: tensor.to(model.device) for name, tensor in batch.items() if torch.is_tensor(tensor)}
    labels = inputs.pop("labels")
    if "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = shift_labels(model, labels)
    return inputs, labels


def readings_of_pairs(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, uam: bool = False, **options
) -> Iterator[tuple[list[TokenPair], Reading]]:
    """Read sentence pairs in batches by length; arguments and errors as in `read` and `batches_of_pairs`.

    Args:
        uam: True to extend targets as in training, and fill `uam` of the readings.
        **options: `batch_size` and `source_prefix`; `attentions`, `details`, `predictions` and `observed` of `read`.

    Yields:
        The pairs of a batch, and its reading: one row per pair, one step per target token.
    """
    batching = {name: options.pop(name) for name in ("batch_size", "source_prefix") if name in options}
    for pairs, batch in batches_of_pairs(model, tokenizer, sources, targets, uam=uam, **batching):
        yield pairs, read(model, batch, uam=uam, **options)


def batches_of_pairs(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    uam: bool = False,
) -> Iterator[tuple[list[TokenPair], dict[str, Tensor]]]:
    """Yield sentence pairs in batches for `read`, the longest first. Pairs with an empty side are left out.

    Args:
        model: model for which the batches are made.
        tokenizer: its tokenizer.
        sources: source sentences.
        targets: translations of the sources. A target that does not end with a special token gets one, so that every
            token of a word is also a decoder input.
        batch_size: maximum number of pairs per batch.
        source_prefix: prefix of every source.
        uam: True to extend the targets as in training, by tokens of no word.

    Yields:
        The pairs of a batch, and the batch, on the CPU: one row per pair, one label per target token.

    Raises:
        ValueError: unequal numbers of sources and targets, a pair with more tokens than the model has positions (the
            message has its index), a model of another kind or without the requested `uam`, or a tokenizer that needs
            the language of the target and has none.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be >= 1, got {batch_size}.")
    pairs = token_pairs(model, tokenizer, sources, targets, source_prefix=source_prefix, uam=uam)
    check_lengths(model, tokenizer, pairs)
    lengths = [(len(pair.target.ids), len(pair.source.ids)) for pair in pairs]
    for rows in batches_by_length(lengths, batch_size):
        batch = [pairs[row] for row in rows]
        sides = [pair.source.ids for pair in batch], [pair.target.ids for pair in batch]
        yield batch, padded_batch(model, tokenizer, *sides)


def token_pairs(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, source_prefix: str = "", uam: bool = False
) -> list[TokenPair]:
    """Tokenise sentence pairs; arguments and errors (except for lengths) as in `batches_of_pairs`."""
    if len(sources) != len(targets):
        raise ValueError(f"`sources` and `targets` must be pairs, got {len(sources)} and {len(targets)} sentences.")
    check_encoder_decoder(model.config)
    indices = [n for n, pair in enumerate(zip(sources, targets, strict=True)) if all(side.strip() for side in pair)]
    source_tokens = tokenize_words(tokenizer, [sources[n] for n in indices], prefix=source_prefix)
    target_tokens = tokenize_words(tokenizer, [targets[n] for n in indices], target=True)
    if uam:
        check_uam(model.config)
    end = special_target_id(tokenizer, "eos_token" if tokenizer.eos_token is not None else "pad_token")
    pairs = []
    for index, source, target in zip(indices, source_tokens, target_tokens, strict=True):
        if end is not None and target.word_ids[-1] != NO_WORD:
            target = _extended(target, [end])
        if uam:
            target = _extended(target, [model.config.null_token_id] * (len(source.ids) - len(target.ids)))
        pairs.append(TokenPair(index, source, target))
    return pairs


def padded_batch(model, tokenizer, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """Pad the tokens of sources and targets into a batch for `read`, on the CPU."""
    input_ids, attention_mask = padded(sources, tokenizer.pad_token_id or model.config.pad_token_id or 0)
    labels, _ = padded(targets, IGNORE_INDEX)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def decoder_size(config: PretrainedConfig) -> tuple[int, int]:
    """Return the numbers of layers and of attention heads of an encoder-decoder's decoder."""
    decoder = config.get_text_config(decoder=True)  # in BART-like configurations the general fields are the decoder's
    return getattr(config, "num_decoder_layers", None) or decoder.num_hidden_layers, decoder.num_attention_heads


def check_encoder_decoder(config: PretrainedConfig) -> None:
    """Raise ValueError for a model of another kind."""
    if not config.is_encoder_decoder:
        raise ValueError(f"`model` must be an encoder-decoder, got one of type {config.model_type!r}.")


def check_attends(config: PretrainedConfig) -> None:
    """Raise ValueError for a recurrent model without attention."""
    if getattr(config, "attention_window", ...) is None:
        raise ValueError(
            f"`attention_window` of this model of type {config.model_type!r} must not be None, because the model then "
            "has no attention. Use a model trained with an `attention_window`."
        )


def check_uam(config: PretrainedConfig) -> None:
    """Raise ValueError for a model without the unsupervised alignment module."""
    if not has_uam(config):
        raise ValueError("Probabilities of source tokens need a model with `uam`, got one without.")


def observer_of(model) -> Any:
    """Return the settings of the observer in a model or in its active adapter; None without one."""
    settings: Iterable[Any] = (getattr(module, "switches", None) for module in model.modules())
    return next((s for s in settings if getattr(s, "observe", False) and s.guided), None)


def observed_place(model) -> tuple[int, int]:
    """Return the layer and the head that the observer of a model stands beside.

    Raises:
        ValueError: the model has no observer.
    """
    settings: Any = observer_of(model)
    if settings is None:
        raise ValueError("`weights='observer'` needs a model or an active adapter with `observe`, got one without.")
    return guided_place(settings, *decoder_size(model.config))


def has_uam(config: PretrainedConfig) -> bool:
    """Return True if a model has the unsupervised alignment module."""
    return getattr(config, "uam", False) is True


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, and restore its mode at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def readable(model, attentions: bool, self_attentions: bool = False) -> Iterator[None]:
    """Put a model into evaluation mode, with a kernel that returns attention weights; restore both at the end."""
    kernel = model.config._attn_implementation
    # Our models return cross-attention with every kernel. Other attention needs the eager kernel; sdpa returns none.
    is_stock = stock_type(model.config.model_type) == model.config.model_type
    switch = kernel != "eager" and (self_attentions or (attentions and is_stock))
    level = _KERNEL_LOGGER.level
    with evaluating(model):
        if switch:
            model.set_attn_implementation("eager")
        _KERNEL_LOGGER.setLevel(logging.ERROR)  # it warns of missing weights, but the weights read here are returned
        try:
            yield
        finally:
            _KERNEL_LOGGER.setLevel(level)
            if switch:
                model.set_attn_implementation(kernel)


def _extended(tokens: WordTokens, ids: Sequence[int]) -> WordTokens:
    """Append tokens that belong to no word."""
    added = np.array(ids, dtype=np.int64)
    no_words = np.full(len(ids), NO_WORD)
    return WordTokens(np.concatenate([tokens.ids, added]), np.concatenate([tokens.word_ids, no_words]), tokens.words)


def position_limit(model, tokenizer) -> int:
    """Return the maximum length: the model's number of positions, or the tokenizer's `model_max_length`."""
    return int(getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length)


def check_lengths(model, tokenizer, pairs: Iterable[TokenPair]) -> None:
    """Raise PairTooLongError for a pair with more tokens than the model has positions."""
    limit = position_limit(model, tokenizer)
    for pair in pairs:
        for side in ("source", "target"):
            length = len(getattr(pair, side).ids)
            if length > limit:
                raise PairTooLongError(pair.index, side, length, limit)


def check_some_words(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise ValueError unless there is a pair with words on both sides."""
    if not any(source.strip() and target.strip() for source, target in zip(sources, targets, strict=False)):
        raise ValueError(
            "`sources` and `targets` must have a pair with words on both sides, got none among "
            f"{len(sources)} and {len(targets)} sentences."
        )


# ---- models that predict source tokens and not their positions ----

_REACH = 3  # distance of the neighbouring steps and positions that decide between positions of a repeated token
_MIN_EVIDENCE = 1e-6  # gives equal shares to positions without evidence


def shared_among_places(probabilities: Tensor, input_ids: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """Turn probabilities of source tokens into probabilities of positions, which share a token's probability.

    The share of position i at step j is proportional to the probabilities of its neighbours at the neighbouring steps,
    the sum of `2^-|d| q_(j+d)[x_(i+d)]` over d from -3 to 3 without 0. In "the old house and the new garden" the first
    "the" gets the larger share if the next step predicts "old". If no neighbour has a probability, shares are equal; a
    token that is not repeated keeps its whole probability.

    Args:
        probabilities: `q_j[x_i]`, (batch, steps, source), the whole probability at each position of a token.
        input_ids: source tokens, (batch, source).
        source_mask: True for real source tokens, (batch, source).
        target_mask: True for steps with a target, (batch, steps).

    Returns:
        (batch, steps, source); rows sum to at most 1, 0 at padding of either side.
    """
    real = target_mask.unsqueeze(2) & source_mask.unsqueeze(1)
    probabilities = probabilities.masked_fill(~real, 0.0)
    evidence = torch.full_like(probabilities, _MIN_EVIDENCE)
    for distance in range(1, _REACH + 1):
        evidence[:, distance:, distance:] += 0.5**distance * probabilities[:, :-distance, :-distance]
        evidence[:, :-distance, :-distance] += 0.5**distance * probabilities[:, distance:, distance:]
    same = (input_ids.unsqueeze(1) == input_ids.unsqueeze(2)) & source_mask.unsqueeze(1)  # (batch, source, source)
    total = torch.matmul(evidence, same.to(evidence.dtype).transpose(1, 2))
    return probabilities * evidence / total.clamp(min=_MIN_EVIDENCE)
