"""Measures of attention over a whole corpus, from batches that a collator made."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from .reading import read
from .reliability import attention_entropy, attention_is_reliable


@torch.no_grad()
def attention_report(model, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """How far the cross-attention of a calibrated model can be believed, layer by layer.

    Teacher-forced on the given targets; the model's mode is left as it is.

    Args:
        model: an encoder-decoder of this package with `calibration`, or a model with an active adapter that has it.
        batches: see `read`.

    Returns:
        Lists over calibrated layers: `layers`, their numbers from 0, and means over all real target steps of
        `reliability_level` (Lu et al., eq. 8, on the head average), `entropy` of plain attention (natural logarithm,
        mean over heads) and `mask_mean` over real source tokens and heads.

    Raises:
        ValueError: the model is not calibrated, or there is no target step.
    """
    totals, steps, numbers = 0, 0, []
    for reading in read(model, batches, attentions=False, details=True):
        phi = reading.contributions
        numbers = [number for number, mask in enumerate(reading.masks) if mask is not None]
        layers = [(reading.uncalibrated[number], reading.masks[number], phi[number]) for number in numbers]
        totals = totals + torch.stack(
            [_layer_sums(*layer, reading.source_mask, reading.target_mask) for layer in layers]
        )
        steps += int(reading.target_mask.sum())
    if steps == 0:
        raise ValueError("`batches` must have at least one target step, got none.")
    names = ("reliability_level", "entropy", "mask_mean")
    return {"layers": numbers, **{name: (totals[:, i] / steps).tolist() for i, name in enumerate(names)}}


def _layer_sums(attention: Tensor, mask: Tensor, phi: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Sums over real target steps of what `attention_report` returns, for one layer: (3,), float64."""
    real = source[:, None, None].to(mask.dtype)
    rows = (
        attention_is_reliable(attention, phi),
        attention_entropy(attention, source).mean(dim=1),
        (mask * real).sum(dim=(1, 3)) / (real.sum(dim=-1)[:, 0] * mask.shape[1]),
    )
    return torch.stack([row[targets].double().sum() for row in rows])
