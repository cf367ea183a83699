"""Read an observer: the states that a model computes, the weights of heads over them, and a search."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_attncal.inference.generation import end_tokens, length_to_end
from hf_attncal.inference.head_search import HeadPlace
from hf_attncal.models.losses import IGNORE_INDEX, target_rows
from hf_attncal.models.observing import HeadObserver

from .layers import AdapterLayer, active_settings, adapter_layers

Observers = dict[int, HeadObserver]  # by layer
Layers = Mapping[int, AdapterLayer]
# Weights of texts, (T, S), by the tokens of the source and of the text.
ObservedTexts = dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor]


class RecordedBatch(NamedTuple):
    """Recorded states of one batch.

    Args:
        decoder: inputs of each cross-attention, (B, T, d_model), by layer.
        encoder: states of the encoder, (B, S, d_model).
        real: True for real source tokens, (B, 1, 1, S); None if all are.
        links: True where target token t is linked to source token s, (B, T, S).
        labels: labels, (B, T).
    """

    decoder: dict[int, Tensor]
    encoder: Tensor
    real: Tensor | None
    links: Tensor
    labels: Tensor


class AllRecorded(Exception):
    """Signal that every attention has got its states, which ends a pass."""


def observing_layers(model: nn.Module) -> dict[int, AdapterLayer]:
    """Return the adapter layers with an active observer, by layer."""
    return {layer.layer_idx: layer for layer in adapter_layers(model) if layer.observer is not None}


@torch.no_grad()
def generate_observed(model: Any, **inputs: Any) -> tuple[Any, Tensor, Tensor | None]:
    """Generate as the model does, and observe the states that this computes.

    Args:
        model: model with an active observer.
        **inputs: arguments of `generate`.

    Returns:
        The output of `generate`, with `return_dict_in_generate`; and for each generated token of its B sequences the
        observer's weights of the source tokens, (B, T, S), and of NULL, (B, T), or None without NULL.

    Raises:
        ValueError: the model has no active observer, or sources have padding and no `attention_mask`.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    layers, settings = observing_layers(base), active_settings(base)
    if settings is None or not layers:
        raise ValueError("`model` has no active observer. Load one, or activate it with `set_adapter`.")
    pad, mask, ids = base.generation_config.pad_token_id, inputs.get("attention_mask"), inputs.get("input_ids")
    if mask is None and ids is not None and (ids == pad).any():
        raise ValueError("`attention_mask` must be given for padded sources. Pass all that the tokenizer returns.")
    with recorded_states({number: layer.get_base_layer() for number, layer in layers.items()}) as (states, encoded):
        output = base.generate(**inputs | {"return_dict_in_generate": True})
    beams = output.get("beam_indices")
    # A search can go on after the texts that it returns have ended.
    steps = len(next(iter(states.values()))) if beams is None else beams.shape[1]
    tokens = output.sequences[:, -steps:]
    if beams is None:
        ends, rows = tokens == pad, torch.arange(len(tokens)).unsqueeze(-1)
    else:
        ends, rows = beams < 0, beams.clamp(min=0)
    decoder = {n: torch.stack([s[:, -1] for s in of[:steps]])[torch.arange(steps), rows] for n, of in states.items()}
    source = encoded[0][torch.arange(len(tokens)) * len(encoded[0]) // len(tokens)]  # a beam of its sentence
    if mask is not None:
        mask = mask.repeat_interleave(len(tokens) // len(mask), dim=0)
    real, labels = real_tokens(mask, source), tokens.masked_fill(ends, IGNORE_INDEX)
    batch = RecordedBatch(decoder, source, real, tokens, labels)
    observers = {number: layer.observer for number, layer in layers.items()}
    weights = stacked_rows(layers, batch, observers).mean(dim=0)
    weights = target_rows(weights, batch.labels, settings.guided_shift)
    return (output, weights[..., 1:], weights[..., 0]) if settings.leaky else (output, weights, None)


def observing_generate(model: Any, store: ObservedTexts) -> Callable[..., Tensor] | None:
    """Return a `generate` that keeps the observer's weights, which saves a pass over the new text.

    Args:
        model: encoder-decoder.
        store: dictionary for the weights of each text.

    Returns:
        The function, which returns the generated sequences; None without an active observer.
    """
    if not observing_layers(model):
        return None

    def generate(**inputs: Any) -> Tensor:
        output, weights, _ = generate_observed(model, **inputs)
        weights, ends = weights.cpu(), end_tokens(model.generation_config)
        tokens = output.sequences[:, -weights.shape[1] :].tolist()
        masks = inputs["attention_mask"].bool()
        for ids, real, text, rows in zip(inputs["input_ids"], masks, tokens, weights, strict=True):
            text = text[: length_to_end(text, ends)]
            store[tuple(ids[real].tolist()), tuple(text)] = rows[: len(text), real.cpu()]
        return output.sequences

    return generate


@contextmanager
def recorded_states(
    attentions: Mapping[int, nn.Module], *, last: bool = False
) -> Iterator[tuple[dict[int, list[Tensor]], list[Tensor]]]:
    """Record the decoder states that each attention gets at each step, and the states of the encoder.

    Args:
        attentions: attentions by layer.
        last: True to raise `AllRecorded` in place of the last attention.
    """
    states: dict[int, list[Tensor]] = defaultdict(list)
    encoded: list[Tensor] = []

    def record(number: int):
        def hook(attention: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            states[number].append(args[0] if args else kwargs["hidden_states"])
            encoded[:] = [kwargs["key_value_states" if "key_value_states" in kwargs else "encoder_hidden_states"]]
            if last and number == max(attentions):
                raise AllRecorded

        return hook

    hooks = [a.register_forward_pre_hook(record(n), with_kwargs=True) for n, a in attentions.items()]
    try:
        yield states, encoded
    finally:
        for hook in hooks:
            hook.remove()


def real_tokens(mask: Any, encoded: Tensor) -> Tensor | None:
    """Return True for real source tokens, (B, 1, 1, S); None if all are."""
    is_padded = mask is not None and mask.shape[1] == encoded.shape[1] and not mask.all()
    return mask[:, None, None].bool() if is_padded else None


def head_rows(layers: Layers, batch: RecordedBatch, observers: Observers) -> dict[HeadPlace, Tensor]:
    """Return each head's weights for the target tokens, (B, T, S), with a NULL (B, T, 1 + S)."""
    rows = {}
    for number, observer in observers.items():
        layer, states = layers[number], (batch.decoder[number], batch.encoder)
        projections, own = (layer.q_proj, layer.k_proj), [head for head, _ in observer.heads]
        query, key = (_of_heads(x, p, own, layer.head_dim) for x, p in zip(states, projections, strict=True))
        weights = observer.attend(query, key, *states, layer.scaling, batch.real).unbind(1)
        for (head, shift), steps in zip(observer.heads, weights, strict=True):
            rows[HeadPlace(number, head, shift)] = target_rows(steps, batch.labels, shift)
    return rows


def _of_heads(states: Tensor, projection: Any, heads: list[int], head_dim: int) -> Tensor:
    """Project states for some of the heads: (B, T, d_model) -> (B, heads, T, d_k)."""
    weight, bias = projection.weight.unflatten(0, (-1, head_dim))[heads], projection.bias
    projected = torch.matmul(states.unsqueeze(1), weight.mT)
    return projected if bias is None else projected + bias.unflatten(0, (-1, head_dim))[heads].unsqueeze(1)


def stacked_rows(layers: Layers, batch: RecordedBatch, observers: Observers) -> Tensor:
    """Return the weights of `head_rows` as one tensor, (heads, B, T, S)."""
    return torch.stack(list(head_rows(layers, batch, observers).values()))
