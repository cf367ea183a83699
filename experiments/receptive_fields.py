"""Compute receptive fields, the tokens that a prediction was computed from, of any model that returns its attention.

A Discrete Transformer tells its own (`output_receptive_fields=True`); here they are made of attention weights, so that
they can be had of a soft model, too, as the paper does (its Figure 2), and summed up over a corpus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_attncal.models.functional_discrete import expected_field_size, extended_fields, initial_fields
from hf_attncal.models.losses import IGNORE_INDEX, shift_labels


@dataclass(frozen=True)
class ReceptiveFields:
    """The tokens that every prediction was computed from.

    Args:
        target: which tokens that the decoder has read, (batch, target, target).
        source: which tokens of the source, (batch, target, source); `None` without an encoder.

    Booleans where every attention has chosen one position, else numbers in [0, 1].
    """

    target: Tensor
    source: Tensor | None = None

    @property
    def sizes(self) -> Tensor:
        """Return the number of tokens, of target and source, (batch, target)."""
        return expected_field_size(self.target, self.source)


def receptive_fields(
    decoder_attentions: Sequence[Tensor],
    cross_attentions: Sequence[Tensor] | None = None,
    encoder_attentions: Sequence[Tensor] | None = None,
) -> ReceptiveFields:
    """Return the receptive fields that follow from attention of all layers (Discrete Transformer, sec. 5.1, eq. 1).

    Args:
        decoder_attentions, cross_attentions, encoder_attentions: weights by layer, as transformers returns them,
            (batch, heads, queries, keys), or chosen positions, (batch, heads, queries) integers, -1 for none. A
            decoder alone has the first of the three only.

    Returns:
        Exact sets where all weights are 0 or 1, with at most one 1 in a row; else sums of weights, at most 1.

    Raises:
        ValueError: no layers, cross-attention without the encoder's, or another number of its layers than the
            decoder's.
    """
    if not decoder_attentions:
        raise ValueError(
            "`decoder_attentions` must have the weights of every layer, got none: load the model with "
            '`attn_implementation="eager"` and call it with `output_attentions=True`.'
        )
    if (cross_attentions is None) != (encoder_attentions is None):
        raise ValueError(
            "`cross_attentions` and `encoder_attentions` belong together, got one of the two: what a source position "
            "has read is known to the encoder."
        )
    if cross_attentions is not None and len(cross_attentions) != len(decoder_attentions):
        raise ValueError(
            f"`cross_attentions` must have as many layers as `decoder_attentions`, got {len(cross_attentions)} and "
            f"{len(decoder_attentions)}."
        )
    given = [*decoder_attentions, *(cross_attentions or ()), *(encoder_attentions or ())]
    chosen = all(_is_choice(attention) for attention in given)
    encoder = None
    if encoder_attentions is not None:
        encoder = _initial(encoder_attentions[0], chosen)
        for attention in encoder_attentions:
            encoder = extended_fields(encoder, _routing(attention, chosen), encoder)
    target = _initial(decoder_attentions[0], chosen)
    source = None if encoder is None else encoder.new_zeros(*target.shape[:2], encoder.shape[-1])
    for layer, attention in enumerate(decoder_attentions):
        routing = _routing(attention, chosen)
        target = extended_fields(target, routing, target)
        if source is not None:
            source = extended_fields(source, routing, source)
            source = extended_fields(source, _routing(cross_attentions[layer], chosen), encoder)
    return ReceptiveFields(target, source)


def _is_choice(attention: Tensor) -> bool:
    """Return whether an attention is chosen positions, or weights that say the same."""
    if not attention.is_floating_point():
        return True
    return bool(((attention == 0) | (attention == 1)).all() and (attention.sum(-1) <= 1).all())


def _routing(attention: Tensor, chosen: bool) -> Tensor:
    if not chosen or attention.dim() == 3:
        return attention
    return attention.argmax(dim=-1).masked_fill(attention.sum(dim=-1) == 0, -1)


def _initial(attention: Tensor, chosen: bool) -> Tensor:
    dtype = torch.bool if chosen else torch.promote_types(attention.dtype, torch.float32)
    return initial_fields(len(attention), attention.shape[2], dtype, attention.device)


@torch.no_grad()
def receptive_field_report(model, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Measure how much text a prediction of a Discrete Transformer is computed from, over a corpus.

    Teacher-forced on the given targets, in evaluation mode; the model's mode is put back.

    Args:
        model: a Discrete Transformer, with an encoder or without.
        batches: `input_ids`, `attention_mask` and `labels` as a collator makes them.

    Returns:
        Means over predictions: `source_tokens` and `target_tokens`, the size of both parts of the field (without an
        encoder the latter only), and `source_length` and `target_length`, how many there were to read; and their
        ratios, `source_share` and `target_share`.

    Raises:
        ValueError: no prediction.
    """
    sums, steps, training = {}, 0, model.training
    model.eval()
    try:
        for batch in batches:
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items() if torch.is_tensor(tensor)}
            steps += _add_batch(model, inputs, sums)
    finally:
        model.train(training)
    if not steps:
        raise ValueError("`batches` must have at least one prediction, got none.")
    means = {name: float(total) / steps for name, total in sums.items()}
    for side in ("source", "target"):
        if f"{side}_tokens" in means:
            means[f"{side}_share"] = means[f"{side}_tokens"] / means[f"{side}_length"]
    return means


def _add_batch(model, inputs: dict[str, Tensor], sums: dict[str, Tensor]) -> int:
    """Add a batch to the sums over predictions, and return how many there were."""
    labels = inputs.pop("labels")
    is_prediction = labels != IGNORE_INDEX
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = shift_labels(model, labels)
    else:  # the state of a token predicts the next one
        is_prediction = torch.nn.functional.pad(is_prediction[:, 1:], (0, 1), value=False)
    outputs = model(**inputs, output_receptive_fields=True, use_cache=False)
    read = torch.arange(1, labels.shape[1] + 1, device=labels.device).expand_as(labels)
    parts = {"target_tokens": outputs.target_receptive_fields.sum(-1), "target_length": read}
    if model.config.is_encoder_decoder:
        length = inputs["attention_mask"].sum(dim=1, keepdim=True)
        parts |= {"source_tokens": outputs.source_receptive_fields.sum(-1), "source_length": length.expand_as(labels)}
    for name, sizes in parts.items():
        sums[name] = sums.get(name, 0) + sizes[is_prediction].double().sum()
    return int(is_prediction.sum())
