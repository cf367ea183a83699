"""Initial weight of NULL in a leaky adapter."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hf_attncal.models.losses import IGNORE_INDEX

from .layers import active_settings, adapter_layers

# Weights of NULL closer to 0 or 1 are clipped, because a rounded weight does not show its score.
_CLIP = 1e-4
_MAX_ROUNDS = 200
_TOLERANCE = 0.02  # relative to `mass`


@torch.no_grad()
def set_null_mass(model: nn.Module, batch: Mapping[str, Tensor], mass: float = 0.02) -> list[Tensor]:
    """Set the biases of NULL so that every head of the active adapter gives it the weight `mass` on average.

    NULL is the extra position of leaky attention, which a target word without a source can attend to. The weight for a
    given bias depends on the scores of the base model, which differ between models by orders of magnitude: with a bias
    of -4, NULL may get a weight of 1e-3 or of 1e-4, which would hardly be trained. The average is over the real target
    steps of one batch of text. Use some dozens of sentences like the training data.

    Args:
        model: PEFT or transformers model with an active leaky adapter.
        batch: `input_ids`, `attention_mask` and `labels` as for training, on any device.
        mass: weight of NULL, in (0, 1). At 0.02 a fresh adapter is still close to the base model, but can learn.
            Default: 0.02.

    Returns:
        The new biases of each adapted layer, (heads,).

    Raises:
        ValueError: no active adapter with `leaky=True`, a batch without a target step, `mass` out of range, or scores
            that are not finite, for which no bias exists. The biases are then unchanged.
    """
    if not 0 < mass < 1:
        raise ValueError(f"`mass` must be between 0 and 1, got {mass}.")
    settings = active_settings(model)
    if settings is None or not settings.leaky or settings.observe:
        raise ValueError(f"`model` must have an active adapter with `leaky=True`, `observe=False`, got {settings}.")
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
        # Repeat, because a clipped weight shows only the direction, and because lower layers change higher ones.
        for _ in range(_MAX_ROUNDS):
            outputs = model(**batch, output_attention_details=True)
            moved = False
            for layer, weight in zip(layers, outputs.null_attentions, strict=True):
                steps = weight.double().transpose(0, 1)[:, targets]  # (heads, real target steps)
                bias = layer.null.bias.double()
                # The best that a bias can reach in this precision.
                tolerance = _TOLERANCE + 2 * torch.finfo(weight.dtype).eps * bias.abs()
                if bool(((steps.mean(dim=1) / mass - 1).abs() <= tolerance).all()):
                    continue
                # The logit of NULL's weight is its score minus the log-sum-exp of the other scores.
                logits = torch.logit(steps, eps=_CLIP) - bias[:, None]
                layer.null.bias.copy_(_bias_for(logits, mass))
                moved = True
            if not moved:
                return [layer.null.bias.detach().clone() for layer in layers]
    finally:
        for module, training in modes.items():
            module.training = training
    for layer, bias in zip(layers, before, strict=True):
        layer.null.bias.copy_(bias)
    raise ValueError(
        f"no bias gives NULL the weight `mass` = {mass} in every head. Check that the base model's scores are finite."
    )


def _bias_for(logits: Tensor, mass: float) -> Tensor:
    """Solve mean(sigmoid(logits + b)) = mass for b in each row of (heads, steps), by bisection."""
    goal = torch.logit(torch.tensor(mass, dtype=logits.dtype, device=logits.device))
    low, high = goal - logits.amax(dim=1), goal - logits.amin(dim=1)
    for _ in range(60):
        middle = (low + high) / 2
        too_much = torch.sigmoid(logits + middle[:, None]).mean(dim=1) > mass
        low, high = torch.where(too_much, low, middle), torch.where(too_much, middle, high)
    return (low + high) / 2
