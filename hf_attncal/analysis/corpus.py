"""Measures of attention over a whole corpus, from batches that a collator made."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from hf_attncal.models.cross_attention import calibrated_layers

from .reliability import attention_entropy, attention_is_reliable, contributions


@torch.no_grad()
def attention_report(model, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """How far the cross-attention of a calibrated model can be believed, layer by layer.

    Teacher-forced on the given targets; the model is put into evaluation mode and back.

    Args:
        model: an encoder-decoder of this package with `calibration`, or a model with an active adapter that has it.
        batches: `input_ids` and `attention_mask` (batch, source), `labels` (batch, target) with -100 where there is no
            target; on any device.

    Returns:
        Lists over calibrated layers: `layers`, their numbers from 0, and means over all real target steps of
        `reliability_level` (Lu et al., eq. 8, on the head average), `entropy` of plain attention (natural logarithm,
        mean over heads) and `mask_mean` over real source tokens and heads.

    Raises:
        ValueError: the model is not calibrated, or there is no target step.
    """
    numbers = calibrated_layers(model)
    if not numbers:
        raise ValueError(
            "`model` must have `calibration`, or an active adapter with it, got None: without masks there are no "
            "contributions."
        )
    was_training = model.training
    model.eval()
    totals, steps = 0, 0
    try:
        for batch in batches:
            batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
            outputs = model(**batch, output_attention_details=True)
            source, targets = batch["attention_mask"], batch["labels"] != -100
            layers = zip(
                outputs.uncalibrated_cross_attentions,
                outputs.calibration_masks,
                layer_contributions(outputs, source),
                strict=True,
            )
            totals = totals + torch.stack([_layer_sums(*layer, source, targets) for layer in layers])
            steps += int(targets.sum())
    finally:
        model.train(was_training)
    if steps == 0:
        raise ValueError("`batches` must have at least one target step, got none.")
    names = ("reliability_level", "entropy", "mask_mean")
    return {"layers": numbers, **{name: (totals[:, i] / steps).tolist() for i, name in enumerate(names)}}


def layer_contributions(outputs, source_mask: Tensor) -> list[Tensor]:
    """phi of eq. 6 for every calibrated layer, (batch, heads, target, source).

    Args:
        outputs: of a calibrated model, with `output_attention_details=True`.
        source_mask: (batch, source), 1 or True for real tokens.
    """
    masks = outputs.calibration_masks
    layers = zip(
        outputs.uncalibrated_cross_attentions, masks, outputs.null_attentions or [None] * len(masks), strict=True
    )
    return [contributions(attention, mask, source_mask, null) for attention, mask, null in layers]


def _layer_sums(attention: Tensor, mask: Tensor, phi: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Sums over real target steps of what `attention_report` returns, for one layer: (3,), float64."""
    real = source[:, None, None].to(mask.dtype)
    rows = (
        attention_is_reliable(attention, phi),
        attention_entropy(attention, source).mean(dim=1),
        (mask * real).sum(dim=(1, 3)) / (real.sum(dim=-1)[:, 0] * mask.shape[1]),
    )
    return torch.stack([row[targets].double().sum() for row in rows])
