"""Average measures of attention over a corpus, from batches that a collator made."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from hf_attncal.metrics.step_measures import layer_rows

from .reading import read


@torch.no_grad()
def attention_report(model, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """Measure how reliable the cross-attention of a calibrated model is, layer by layer.

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
    names = ("reliability", "entropy", "mask")
    totals, steps, numbers = 0, 0, []
    for batch in batches:
        reading = read(model, batch, attentions=False, details=True)
        phi, masks, real = reading.contributions, reading.masks, reading.target_mask
        numbers = [number for number, mask in enumerate(masks) if mask is not None]
        rows = [
            layer_rows(reading.uncalibrated[n], reading.source_mask, mask=masks[n], contribution=phi[n]).layer
            for n in numbers
        ]
        sums = [torch.stack([of_layer[name][real].double().sum() for name in names]) for of_layer in rows]
        totals = totals + torch.stack(sums)
        steps += int(reading.target_mask.sum())
    if steps == 0:
        raise ValueError("`batches` must have at least one target step, got none.")
    reliability, entropy, mask = (totals / steps).T.tolist()
    return {"layers": numbers, "reliability_level": reliability, "entropy": entropy, "mask_mean": mask}
