# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Objectives of a calibrated model: the second decoder pass, the losses by name, and the output."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import logging

from .calibration import StepCount, trains_mask, warn_uncounted
from .cross_attention import AttentionContext
from .functional import guided_terms
from .heads import target_count
from .losses import (
    IGNORE_INDEX,
    DetachedParameters,
    attach_gradient,
    cross_entropy_from_hidden,
    label_smoothed_cross_entropy,
    target_rows,
)

logger = logging.get_logger(__name__)


@dataclass
class AttnCalSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Output of the models with a language modelling head.

    Args:
        loss: training loss for `backward()`. Its value is the NMT loss, plus the UAM loss with `uam`, plus
            `guided_weight` times the guided loss with `links`. The translation model and the gate get the gradient of
            this value. The mask network gets the gradient of the mask loss.
        nmt_loss: cross-entropy per target token, with label smoothing (Lu et al., eq. 13).
        mask_loss: objective of the mask network (eq. 4), if the second decoder pass ran.
        mask_penalty: size of the perturbation (eq. 5), before alpha, if the second decoder pass ran.
        mask_mean: mean of `m` over layers, heads, real target steps and real source tokens; with labels.
        gate_mean: mean of the gate `g` (eq. 12) over layers, heads and real target steps; with labels.
        mass_mean, attended_mask_mean, divergence_mean, divergence_normalized_mean: means of what calibration changes
            in rows of attention (see `calibration_extent`) over layers, heads and real target steps; with labels.
        uncalibrated_cross_attentions: `a` of every layer, (batch, heads, target, source); without the NULL column.
            This and the next three are tuples over layers, returned with `output_attention_details=True` by models
            that have them.
        calibration_masks: `m` of every layer (Lu et al., eq. 3), same shape.
        calibration_gates: `g` of every layer (eq. 12), (batch, heads, target).
        null_attentions: weight of NULL of every layer, (batch, heads, target).
        guided_attention: weights of the guided head, (batch, target, source), with `output_attention_details=True`.
            Row t belongs to decoder step t, which predicts token t and reads token t - 1.
        guided_null: its weight of NULL, (batch, target), with `leaky`.
        uam_loss: L_src of the unsupervised alignment module per target token (Kiyono et al., eq. 18); with labels.
        uam_probabilities: probability that the module gives the token at each source position, `q_j[x_i]`, (batch,
            target, source), 0 at padding; with `output_uam_probabilities=True`. A token that occurs several times has
            its full probability at each of its positions.
        guided_loss: cross-entropy of the guided head per target token (Garg et al. 2019), before its weight; with
            labels and links.
        copy_probabilities: probability of copying each source token, `c_s` (See et al., eq. 9), (batch, target,
            source), 0 at padding, in float32 at least; with `output_copy_probabilities=True`. One minus their sum is
            the probability of generating the token.
    """

    nmt_loss: Tensor | None = None
    mask_loss: Tensor | None = None
    mask_penalty: Tensor | None = None
    mask_mean: Tensor | None = None
    gate_mean: Tensor | None = None
    mass_mean: Tensor | None = None
    attended_mask_mean: Tensor | None = None
    divergence_mean: Tensor | None = None
    divergence_normalized_mean: Tensor | None = None
    uncalibrated_cross_attentions: tuple[Tensor, ...] | None = None
    calibration_masks: tuple[Tensor, ...] | None = None
    calibration_gates: tuple[Tensor, ...] | None = None
    null_attentions: tuple[Tensor, ...] | None = None
    guided_attention: Tensor | None = None
    guided_null: Tensor | None = None
    uam_loss: Tensor | None = None
    guided_loss: Tensor | None = None
    uam_probabilities: Tensor | None = None
    copy_probabilities: Tensor | None = None


# Arguments of `forward`, and the switch that each needs.
_NEEDED_SWITCHES = {
    "compute_mask_loss": "calibration",
    "output_uam_probabilities": "uam",
    "output_copy_probabilities": "copy",
    "extended_input_ids": "copy",
}


def check_arguments(settings, labels: Tensor | None, **given: Any) -> None:
    """Raise an error for arguments of `forward` that need labels, or a switch that is off.

    Raises:
        ValueError: the message names the argument and what it needs.
    """
    for name, value in given.items():
        switch = _NEEDED_SWITCHES[name]
        if value is not None and value is not False and not getattr(settings, switch):
            raise ValueError(f"`{name}` needs a model with `{switch}`, got one without. Leave the argument out.")
    if given["compute_mask_loss"] and labels is None:
        raise ValueError("`compute_mask_loss=True` needs `labels`, got None. Pass labels, or leave it out.")


def check_links(settings, links: Tensor | None, labels: Tensor | None, source_length: int | None) -> None:
    """Check the links of a batch.

    Args:
        settings: settings; see `named_losses`.
        links: links of this batch.
        labels: labels of this batch.
        source_length: S; `None` if unknown.

    Raises:
        ValueError: `links` without `guided` or without `labels`, or of another shape than (batch, target, source).
    """
    if links is None:
        return
    if not settings.guided:
        raise ValueError("`links` need `guided=True`, got False. Set it, or leave the links out.")
    if labels is None:
        raise ValueError("`links` need `labels`, the target tokens that they link, got none.")
    shape = (*labels.shape, links.shape[-1] if source_length is None else source_length)
    if links.shape != shape:
        raise ValueError(
            f"`links` must have a cell for each target and source token of the batch, {shape}, got "
            f"{tuple(links.shape)}. `hf_attncal.data.collators.LinkCollator` makes them."
        )


def refuse_reentrant(settings, function, what: str) -> None:
    """Raise an error for reentrant checkpointing of a model or adapter that is calibrated, copies or is guided.

    The first reentrant pass through a layer builds no graph. The mask penalty and the attention that copies or learns
    links, which a layer records in that pass, would silently have no gradient.

    Args:
        settings: see `named_losses`.
        function: checkpointing function, a partial of torch's function, whose own default is reentrant.
        what: name of the trained part, for messages.

    Raises:
        ValueError: the checkpointing is reentrant.
    """
    lost = {
        f"calibration={settings.calibration!r}": settings.calibration is not None and "mask network",
        "copy=True": getattr(settings, "copy", False) is True and "attention that is copied by",
        "guided=True": settings.guided and "attention that learns links",
    }
    switch = next((switch for switch in lost if lost[switch]), None)
    if switch is not None and getattr(function, "keywords", {}).get("use_reentrant", True):
        raise ValueError(
            f"`use_reentrant` must be False to train {what} with `{switch}`, got True: reentrant checkpointing loses "
            f'gradients of the {lost[switch]}. Pass `gradient_checkpointing_kwargs={{"use_reentrant": False}}`.'
        )


def check_training(
    model: nn.Module, settings, labels: Tensor | None, links: Tensor | None = None, *, own_loss: bool = False
) -> None:
    """Raise an error, or log a warning, if training would silently not train the mask network or the guided head.

    Args:
        model: model in training mode.
        settings: see `named_losses`.
        labels, links: labels and links of this batch.
        own_loss: True if the caller may have its own loss; missing labels are then only a warning.

    Raises:
        ValueError: a guided model has labels and no links; the mask network is trained without labels, or its loss
            would also train a parameter of another adapter.
    """
    if settings.guided and labels is not None and links is None:
        raise ValueError(
            "`links` are needed to train a guided model, got none. Give each example `links` and use "
            "`hf_attncal.data.collators.LinkCollator` (with a plain Trainer, an adapter also needs "
            "`remove_unused_columns=False`), or set `guided` to False."
        )
    if settings.calibration == "annealed":
        counts = [module for module in model.modules() if isinstance(module, StepCount)]
        warn_uncounted(counts, '`calibration="annealed"`')
    if settings.calibration is None or not trains_mask(model):
        return
    if labels is None:
        message = (
            "`labels` are needed to train the mask network, got none. A plain Trainer removes them if its "
            "`label_smoothing_factor` is not 0: use `AttnCalTrainer`, or leave that at 0 and set `label_smoothing` of "
            f"{type(settings).__name__}. For a forward pass without training call `model.eval()`; to train only the "
            "other parameters, freeze the mask network."
        )
        if not own_loss:
            raise ValueError(message)
        logger.warning_once(message)
    for module in model.modules():
        layers: Any = getattr(module, "adapter_layer_names", None)
        for name, parameter in module.named_parameters() if layers is not None else ():
            part = name.partition(".")[0]
            is_detached = part in ("lora_A", "lora_B") or part.startswith(("hada_", "attncal_"))
            if parameter.requires_grad and part in layers and not is_detached:
                raise ValueError(
                    f"`{part}` of another adapter cannot be trained together with a calibration: the mask network's "
                    "loss would also train it. Use a LoRA on linear layers (no DoRA, no embeddings) or a LoHa, or "
                    "freeze the mask network first."
                )


class CopySource(NamedTuple):
    """Words of a source that can be copied, computed once per sentence.

    Args:
        ids: numbers of the source tokens among the V + E words, (R, S).
        padding: True at padding, (R, S).
        evidence: score of copying that attention to each source token adds, (R, S).
    """

    ids: Tensor
    padding: Tensor
    evidence: Tensor


class FirstPass(NamedTuple):
    """Inputs and results of the first decoder pass that the objectives read.

    Args:
        logits: logits, (B, T, V).
        labels: labels, (B, T), `-100` where there is no target.
        context: record of the cross-attentions.
        copied: cross-entropy of a model with `copy`, summed over targets, and the words it can copy.
        hidden_states: decoder states, (B, T, d).
        input_ids, attention_mask: source, (B, S).
        links: links for the guided head, (B, T, S).
    """

    logits: Tensor
    labels: Tensor
    context: AttentionContext
    copied: tuple[Tensor, CopySource] | None = None
    hidden_states: Tensor | None = None
    input_ids: Tensor | None = None
    attention_mask: Tensor | None = None
    links: Tensor | None = None


def named_losses(
    model: Any,
    settings,
    first: FirstPass,
    num_items_in_batch: Tensor | int | None,
    decoder_inputs: dict[str, Any] | None,
) -> dict[str, Tensor]:
    """Return the losses of `AttnCalSeq2SeqLMOutput` by name.

    Args:
        model: stock model or one of ours, with a language modelling head.
        settings: configuration of a model or of an adapter.
        num_items_in_batch: divisor of the losses; `None` for the number of targets.
        decoder_inputs: keyword arguments of the decoder in the first pass, for the second; `None` for no second pass.
    """
    first = first._replace(labels=first.labels.to(first.logits.device))
    labels, context, source = first.labels, first.context, None
    num_targets = target_count(labels, num_items_in_batch)
    if first.copied is None:
        nmt_loss = label_smoothed_cross_entropy(first.logits, labels, settings.label_smoothing)
    else:
        nmt_loss, source = first.copied
    nmt_loss = nmt_loss / num_targets
    losses = {"loss": nmt_loss, "nmt_loss": nmt_loss.detach()}
    terms: dict[str, tuple[float, Tensor]] = {}  # weight, and sum over targets
    if getattr(model, "uam", None) is not None:
        inputs = first.hidden_states, labels != IGNORE_INDEX, first.input_ids, first.attention_mask
        terms["uam_loss"] = 1.0, model.uam.loss(*inputs)
    if first.links is not None and context.guided_attention is not None:  # layer drop may have left the layer out
        guided = guided_attention_loss(*context.guided_attention, first.links, labels, settings.guided_shift)
        terms["guided_loss"] = settings.guided_weight, guided
    for name, (weight, loss) in terms.items():
        loss = loss / num_targets
        losses |= {"loss": losses["loss"] + weight * loss, name: loss.detach()}
    for name in context.means[0] if context.means else ():
        losses[f"{name}_mean"] = torch.stack([means[name] for means in context.means]).mean()
    if decoder_inputs is not None:
        plain_loss = nmt_loss.detach() * num_targets
        loss, penalty = mask_loss(model, decoder_inputs, labels, num_targets, settings, source, plain_loss)
        losses["loss"] = attach_gradient(losses["loss"], loss)
        losses |= {"mask_loss": loss.detach(), "mask_penalty": penalty.detach()}
    return losses


def guided_attention_loss(
    attention: Tensor, null: Tensor | None, links: Tensor, labels: Tensor, shift: bool
) -> Tensor:
    """Return the cross-entropy of a head's attention against links, `-sum_t sum_s p_ts log a_ts`; see `guided_terms`.

    Args:
        attention: weights of the head, (B, T, S).
        null: weight of NULL, (B, T), or `None` without NULL.
        links: links, (B, T, S).
        labels: labels, (B, T).
        shift: see `token_rows`.

    Returns:
        A scalar: the sum over targets.
    """
    dtype, device = torch.promote_types(attention.dtype, torch.float32), labels.device
    attention = target_rows(attention.to(device, dtype), labels, shift)
    null = None if null is None else target_rows(null.to(device, dtype).unsqueeze(-1), labels, shift).squeeze(-1)
    terms = guided_terms(attention, links.to(device, dtype), null, torch.finfo(dtype).tiny)
    return terms.masked_fill(labels == IGNORE_INDEX, 0.0).sum()


def mask_loss(
    model: Any,
    decoder_inputs: dict[str, Any],
    labels: Tensor,
    num_targets: Tensor | int,
    settings,
    source: CopySource | None = None,
    plain_loss: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the mask networks' objective (Lu et al., eq. 4), `-L_NMT(a_p) + alpha * L_c`, from a second decoder pass.

    The pass runs with perturbed weights, and has gradients for the mask networks only.

    Args:
        num_targets: divisor of both terms.
        source: words the model can copy; `None` without `copy`.
        plain_loss: cross-entropy of the first pass, summed over targets, which `mask_cost` compares with.
        The others: see `named_losses`.

    Returns:
        The loss, and the penalty `L_c` (eq. 5) in it, before alpha.
    """
    context = AttentionContext(perturb=True, target_mask=labels != IGNORE_INDEX, copies=source is not None)
    detached = {
        name: decoder_inputs[name].detach()
        for name in ("encoder_hidden_states", "encoder_final_states", "inputs_embeds")
        if decoder_inputs.get(name) is not None
    }
    options = {"use_cache": False, "attention_context": context, "return_dict": True}
    with DetachedParameters():
        hidden_states = model.get_decoder()(**decoder_inputs | detached | options).last_hidden_state
    head = model.get_output_embeddings()
    bias = getattr(model, "final_logits_bias", None)  # none in M2M100
    labels = labels.to(hidden_states.device)
    if source is None and type(head) is nn.Linear and head.bias is None:
        bias = head.weight.new_zeros(1) if bias is None else bias
        loss = cross_entropy_from_hidden(hidden_states, head.weight, bias, labels, settings.label_smoothing)
    else:  # copying needs the logits, and an adapter may also be in the output layer
        with DetachedParameters():
            logits = head(hidden_states)
            logits = logits if bias is None else logits + bias
        if source is None:
            loss = label_smoothed_cross_entropy(logits, labels, settings.label_smoothing)
        else:
            source = source._replace(evidence=source.evidence.detach())
            with DetachedParameters():
                attention = context.copy_attentions
                _, loss, _ = model.copying(logits, hidden_states, source, attention, labels, settings.label_smoothing)
    penalty = context.mean_penalty(num_targets)
    objective = settings.mask_penalty * penalty - loss / num_targets
    if settings.mask_cost is not None:
        # Exactly no gradient, because Adam would scale up a small one.
        cost = (loss.detach() - plain_loss) / (labels != IGNORE_INDEX).sum().clamp(min=1)
        objective = torch.where(cost >= settings.mask_cost, objective, objective.detach())
    return objective, penalty
