"""Losses of an adapted model, computed by three hooks on the base model.

A PEFT model, a model with `add_adapter` and a Trainer all call the base model's `forward`. One hook receives the
labels before it, one the logits after it, and one the inputs of its decoder, which the second pass repeats.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import Seq2SeqLMOutput

from hf_attncal.models.calibration import trains_mask
from hf_attncal.models.cross_attention import AttentionContext
from hf_attncal.models.losses import IGNORE_INDEX, shift_labels
from hf_attncal.models.objective import (
    AttnCalSeq2SeqLMOutput,
    FirstPass,
    check_arguments,
    check_links,
    check_training,
    named_losses,
    refuse_reentrant,
)

from .configuration import AttentionCalibrationConfig
from .layers import active_settings, decoder_of


class ObjectiveContext(AttentionContext):
    """State that the hooks of one forward pass share."""

    decoder_inputs: dict[str, Any] | None = None

    def __init__(
        self,
        settings: AttentionCalibrationConfig,
        labels: torch.LongTensor | None,
        links: Tensor | None,
        num_items_in_batch: Tensor | int | None,
        record_details: bool,
        mask_loss: bool | None,
        as_tuple: bool,
    ):
        targets = None if labels is None or settings.calibration is None else labels != IGNORE_INDEX
        layer = settings.guided_layer if settings.guided else None
        place = None if layer is None else (layer, settings.guided_head)
        place = place if links is not None or record_details else None
        super().__init__(target_mask=targets, record_details=record_details, guided=place)
        self.settings, self.labels, self.links = settings, labels, links
        self.num_items_in_batch, self.as_tuple, self.mask_loss = num_items_in_batch, as_tuple, mask_loss


def install_hooks(model: Any) -> None:
    """Install the hooks on a model with a language modelling head, if they are not there yet."""
    if _before in model._forward_pre_hooks.values() or model.get_output_embeddings() is None:
        return
    model.register_forward_pre_hook(_before, with_kwargs=True)
    model.register_forward_hook(_after, with_kwargs=True)
    decoder_of(model).register_forward_pre_hook(_record_decoder_inputs, with_kwargs=True)


def remove_hooks(model: nn.Module) -> None:
    """Remove the hooks. They are found by function, because a copy of the model has no handles."""
    for module in (model, decoder_of(model)):
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [n for n, hook in hooks.items() if hook in (_before, _after, _record_decoder_inputs)]:
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
                module._forward_hooks_with_kwargs.pop(number, None)


def _before(model: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
    """Take the labels away from the base model: its own loss would lack the smoothing, the masks and the links."""
    accepted = _arguments_of(type(model).forward)
    # PEFT's model for this task also passes the arguments of a text model as None, which Whisper does not accept.
    kwargs = {name: value for name, value in kwargs.items() if value is not None or name in accepted}
    details, mask_loss = bool(kwargs.pop("output_attention_details", False)), kwargs.pop("compute_mask_loss", None)
    training = model.training and torch.is_grad_enabled()
    if not (details or training or args or kwargs.get("labels") is not None):
        return args, kwargs  # a step of generation
    settings = active_settings(model)
    if settings is None:
        return args, kwargs
    kwargs = {**dict(zip(accepted, args, strict=False)), **kwargs}
    labels, links = kwargs.get("labels"), kwargs.pop("links", None)
    source = kwargs.get("input_ids")
    check_arguments(settings, labels, compute_mask_loss=mask_loss)
    check_links(settings, links, labels, None if source is None else source.shape[1])
    if training:
        _check_training(model, settings, labels, links)
    if labels is None and not details:
        return (), kwargs
    num_items = kwargs.pop("num_items_in_batch", None)
    as_tuple = kwargs.get("return_dict") is False
    context = ObjectiveContext(settings, labels, links, num_items, details, mask_loss, as_tuple)
    if labels is not None:
        kwargs["use_cache"] = False
        if kwargs.get("decoder_input_ids") is None and kwargs.get("decoder_inputs_embeds") is None:
            kwargs["decoder_input_ids"] = shift_labels(model, labels)
        del kwargs["labels"]
    return (), {**kwargs, "return_dict": True, "attention_context": context}


def _record_decoder_inputs(decoder: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    context = kwargs.get("attention_context")
    if isinstance(context, ObjectiveContext):
        context.decoder_inputs = {**dict(zip(_arguments_of(type(decoder).forward), args, strict=False)), **kwargs}


def _after(model: nn.Module, args: tuple, kwargs: dict[str, Any], outputs):
    context = kwargs.get("attention_context")
    if not isinstance(context, ObjectiveContext):
        return None
    if not isinstance(outputs, Seq2SeqLMOutput):
        raise TypeError(
            f"{type(model).__name__} must return `Seq2SeqLMOutput` for the losses of attention calibration, got "
            f"{type(outputs).__name__}."
        )
    inputs, context.decoder_inputs = context.decoder_inputs, None
    losses = {}
    if context.labels is not None and outputs.logits is not None:
        settings = context.settings
        wanted = model.training and trains_mask(model) if context.mask_loss is None else context.mask_loss
        with_mask_loss = wanted and settings.calibration is not None
        first = FirstPass(outputs.logits, context.labels, context, links=context.links)
        losses = named_losses(model, settings, first, context.num_items_in_batch, inputs if with_mask_loss else None)
    outputs = AttnCalSeq2SeqLMOutput(**{**outputs, **losses, **context.details()})
    return outputs.to_tuple() if context.as_tuple else outputs


def _check_training(
    model: nn.Module, settings: AttentionCalibrationConfig, labels: Tensor | None, links: Tensor | None
) -> None:
    """Raise an error for settings that would silently train something else."""
    check_training(model, settings, labels, links)
    checkpointed = (part for part in decoder_of(model).modules() if getattr(part, "gradient_checkpointing", False))
    function = next((getattr(part, "_gradient_checkpointing_func", None) for part in checkpointed), None)
    if function is not None:
        refuse_reentrant(settings, function, "an adapter")


@functools.cache
def _arguments_of(forward: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a method."""
    return list(inspect.signature(forward).parameters)[1:]
