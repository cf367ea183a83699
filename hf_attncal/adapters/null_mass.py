"""The weight that a leaky adapter gives NULL before it is trained."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hf_attncal.models.losses import IGNORE_INDEX

from .layers import active_settings, adapter_layers

# Where a weight of NULL was rounded to 0 or 1 it does not tell its score: what is nearer counts as this near.
_NEAREST = 1e-4
_ROUNDS = 200
_TOLERANCE = 0.02  # of the mass that was asked for


@torch.no_grad()
def set_null_mass(model: nn.Module, batch: Mapping[str, Tensor], mass: float = 0.02) -> list[Tensor]:
    """Set the bias of NULL so that every head of the active adapter gives it `mass` on average.

    How much weight a bias is depends on the scores of the base model, which differ between models by orders of
    magnitude: at the same bias of -4 NULL may get a thousandth or a ten-thousandth, which would hardly be trained. The
    mean is over the real target steps of one batch of text, some dozens of sentences of the kind to train on.

    Args:
        model: with an active leaky adapter (PEFT's or transformers'); it is put into evaluation mode and back.
        batch: `input_ids`, `attention_mask` and `labels` as for training; on any device.
        mass: in (0, 1). A fresh adapter at 0.02 is nearly the base model, and has something to learn from.

    Returns:
        The new biases of each adapted layer, (heads,).

    Raises:
        ValueError: no active leaky adapter, a batch without a target step, `mass` out of range, or no bias was found
            (scores that are not finite); the biases are then what they were.
    """
    if not 0 < mass < 1:
        raise ValueError(f"`mass` must be between 0 and 1, got {mass}.")
    settings = active_settings(model)
    if settings is None or not settings.leaky:
        raise ValueError(f"`model` must have an active adapter with `leaky=True`, got {settings}.")
    if batch.get("labels") is None or not (batch["labels"] != IGNORE_INDEX).any():
        raise ValueError("`batch` must have `labels` with at least one target step, got none.")
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    targets = batch["labels"] != IGNORE_INDEX
    layers = [layer for layer in adapter_layers(model) if layer.active_name is not None]
    before = [layer.null.bias.clone() for layer in layers]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        # Again and again: a weight near 0 or 1 tells the way and not how far, and lower layers change higher ones.
        for _ in range(_ROUNDS):
            outputs = model(**batch, output_attention_details=True)
            moved = False
            for layer, weight in zip(layers, outputs.null_attentions, strict=True):
                steps = weight.double().transpose(0, 1)[:, targets]  # (heads, real target steps)
                bias = layer.null.bias.double()
                # As near as a bias among scores of this precision can be.
                tolerance = _TOLERANCE + 2 * torch.finfo(weight.dtype).eps * bias.abs()
                if bool(((steps.mean(dim=1) / mass - 1).abs() <= tolerance).all()):
                    continue
                # Without its bias, the score of NULL beside the log-sum-exp of the others is the logit of its weight.
                logits = torch.logit(steps, eps=_NEAREST) - bias[:, None]
                layer.null.bias.copy_(_bias_for(logits, mass))
                moved = True
            if not moved:
                return [layer.null.bias.detach().clone() for layer in layers]
    finally:
        for module, training in modes.items():
            module.training = training
    for layer, bias in zip(layers, before, strict=True):
        layer.null.bias.copy_(bias)
    raise ValueError(f"no bias gives NULL a weight of {mass} in every head: are the scores of the base model finite?")


def _bias_for(logits: Tensor, mass: float) -> Tensor:
    """Find b with mean(sigmoid(logits + b)) = mass in each row of (heads, steps), by bisection."""
    goal = torch.logit(torch.tensor(mass, dtype=logits.dtype, device=logits.device))
    low, high = goal - logits.amax(dim=1), goal - logits.amin(dim=1)
    for _ in range(60):
        middle = (low + high) / 2
        too_much = torch.sigmoid(logits + middle[:, None]).mean(dim=1) > mass
        low, high = torch.where(too_much, low, middle), torch.where(too_much, middle, high)
    return (low + high) / 2
