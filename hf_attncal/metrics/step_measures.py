"""Measure each step of a cross-attention, for each head and for the layer as a whole.

Rows of attention are shares: divided by their sum where NULL or calibration makes that another number than 1.
Logarithms are natural.

- `entropy` of attention before calibration; of the layer, the mean over heads.
- `average_entropy`, that of the mean of all heads.
- `null`: the weight of NULL; of the layer, the mean over heads. With `leaky`.
- `reliability`: whether the token with the most attention contributes most (Lu et al., eqs. 7 and 8); of the layer, on
  the mean of all heads. With masks, as all below.
- `mask`: m, the mean over real source tokens; of the layer, over heads, too.
- `informed`: whether masks tell source tokens apart (`mask_spread`); of the layer, those of any head. Where they do so
  at fewer than half of the steps, `NEED_INFORMATION` is withheld.
- `divergence` of attention before and after calibration (eq. 14); of the layer, the mean over heads.
- `entropy_change`: `entropy` after calibration less before, the sign of Table VI; of the layer, the mean over heads.
- `moved`: whether calibration gives the most weight to another token; of the layer, on the mean of all heads.
"""

from typing import NamedTuple

from torch import Tensor

from .reliability import (
    LEAST_SPREAD,
    attention_entropy,
    attention_is_reliable,
    head_average,
    jensen_shannon,
    mask_spread,
)

NEED_INFORMATION = ("reliability", "divergence", "entropy_change", "moved")
STEP_MEASURES = ("entropy", "average_entropy", "null", "mask", "informed", *NEED_INFORMATION)


class LayerRows(NamedTuple):
    """Values of each step in one layer, by the name of the measure.

    Args:
        heads: of each head, (batch, heads, steps).
        layer: of the layer as a whole, (batch, steps).
    """

    heads: dict[str, Tensor]
    layer: dict[str, Tensor]


def layer_rows(
    attention: Tensor,
    source_mask: Tensor,
    *,
    mask: Tensor | None = None,
    contribution: Tensor | None = None,
    calibrated: Tensor | None = None,
    null: Tensor | None = None,
) -> LayerRows:
    """Return the measures of one layer, except those whose tensors are not given.

    Args:
        attention: a, before any calibration, (batch, heads, steps, source).
        source_mask: boolean (batch, source).
        mask, contribution: m and phi, the same shape.
        calibrated: the weights after calibration, the same shape.
        null: weight of NULL, (batch, heads, steps).
    """
    real = source_mask[:, None, None].to(attention.dtype)
    average = head_average(attention)
    entropy = attention_entropy(attention, source_mask)
    heads = {"entropy": entropy}
    layer = {"average_entropy": attention_entropy(average[:, None], source_mask)[:, 0]}
    if null is not None:
        heads["null"] = null
    if mask is not None:
        heads["mask"] = (mask * real).sum(dim=-1) / real.sum(dim=-1)
        heads["informed"] = mask_spread(mask, source_mask) >= LEAST_SPREAD
        layer["informed"] = heads["informed"].any(dim=1)
    if contribution is not None:
        heads["reliability"] = attention.argmax(dim=-1) == contribution.argmax(dim=-1)
        layer["reliability"] = attention_is_reliable(attention, contribution)
    if calibrated is not None:
        heads["divergence"] = jensen_shannon(attention, calibrated, source_mask)
        heads["entropy_change"] = attention_entropy(calibrated, source_mask) - entropy
        heads["moved"] = attention.argmax(dim=-1) != calibrated.argmax(dim=-1)
        layer["moved"] = average.argmax(dim=-1) != head_average(calibrated).argmax(dim=-1)
    means = {name: rows.to(attention.dtype).mean(dim=1) for name, rows in heads.items() if name not in layer}
    return LayerRows(heads, layer | means)
