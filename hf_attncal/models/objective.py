"""The two objectives of a calibrated model: the second decoder pass, the losses by name, and what labels become."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .cross_attention import AttentionContext
from .gradients import DetachedParameters, attach_gradient
from .losses import IGNORE_INDEX, label_smoothed_cross_entropy


def perturbed_pass(decoder: nn.Module, inputs: dict[str, Any], targets: Tensor) -> tuple[Tensor, Tensor]:
    """The second pass of a decoder: perturbed weights, and gradients for the mask networks only.

    Args:
        inputs: keyword arguments of the decoder. targets: boolean (B, T), True on real target steps.

    Returns:
        The decoder's last hidden states, (B, T, d_model), and the penalty of Lu et al., eq. 5, summed over
        target steps.
    """
    context = AttentionContext(perturb=True, target_mask=targets)
    detached = {
        name: inputs[name].detach()
        for name in ("encoder_hidden_states", "inputs_embeds")
        if inputs.get(name) is not None
    }
    with DetachedParameters():
        outputs = decoder(
            **{**inputs, **detached, "use_cache": False, "attention_context": context, "return_dict": True}
        )
    return outputs.last_hidden_state, context.mean_penalty(1)


def named_losses(
    logits: Tensor,
    labels: torch.LongTensor,
    num_items_in_batch: Tensor | int | None,
    label_smoothing: float,
    context: AttentionContext,
    second_pass: Callable[[Tensor | int], tuple[Tensor, Tensor]] | None,
) -> dict[str, Tensor]:
    """The losses of `AttnCalSeq2SeqLMOutput` by name.

    Args:
        logits: (B, T, V) of the first pass. labels: (B, T), `-100` where there is no target.
        num_items_in_batch: what to divide the losses by; `None` for the number of targets.
        context: what the cross-attentions of the first pass reported.
        second_pass: takes that divisor and returns the mask loss and its penalty; `None` for no second pass.
    """
    labels = labels.to(logits.device)
    num_targets = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch
    if isinstance(num_targets, Tensor):
        num_targets = num_targets.to(logits.device)
    nmt_loss = label_smoothed_cross_entropy(logits, labels, label_smoothing) / num_targets
    losses = {"loss": nmt_loss, "nmt_loss": nmt_loss.detach()}
    if context.mask_means:
        losses["mask_mean"] = torch.stack(context.mask_means).mean()
    if context.gate_means:
        losses["gate_mean"] = torch.stack(context.gate_means).mean()
    if second_pass is not None:
        mask_loss, mask_penalty = second_pass(num_targets)
        losses["loss"] = attach_gradient(nmt_loss, mask_loss)
        losses["mask_loss"] = mask_loss.detach()
        losses["mask_penalty"] = mask_penalty.detach()
    return losses


def shift_labels(model: nn.Module, labels: torch.LongTensor) -> torch.LongTensor:
    """What a decoder reads to predict `labels`: shifted right, as the model itself would shift them.

    Args:
        labels: (batch, target), `-100` where there is no target.

    Returns:
        `decoder_input_ids`, the same shape.

    Raises:
        ValueError: a model that does not say how it shifts labels.
    """
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return prepare(labels)
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        raise ValueError(
            f"`decoder_input_ids` are needed with `labels` for {type(model).__name__}, which does not say how it "
            "shifts labels. Pass them."
        )
    return shift(labels, model.config.pad_token_id, model.config.decoder_start_token_id)
