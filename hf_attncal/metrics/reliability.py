"""Measure whether the token with the most attention is the one that matters (Lu et al., TASLP 2022, section III).

Attention tensors are (batch, heads, target, source). The inputs come from one teacher-forced forward pass with
`output_attention_details=True`: `outputs.uncalibrated_cross_attentions` (a) and `outputs.calibration_masks` (m), one
tensor for each layer.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hf_attncal.models.functional import calibration_extent, contribution, row_shares, uniform_attention

# Most models are trained in bfloat16, whose numbers are 2**-8 apart just below 1. Masks of a row that differ by less
# than two such steps may differ only by rounding.
LEAST_SPREAD = torch.finfo(torch.bfloat16).eps  # 2**-7
# Largest divergence of two rows of sum 1 whose weights before division were a and `a exp(1 - m)`, 0 <= m <= 1, in
# nats: the maximum over x of the divergence of (1 - x, x) and (1 - x, e x) / (1 - x + e x).
MAX_NORMALIZED_DIVERGENCE = 0.0303
WITHOUT_MASKS = (
    "Either attention became useful too late for the mask network, or there was too little text. Set "
    "`model.mask_cost` to 0.1, as the presets do; or train without calibration first and then "
    "adapt that model (`attncal adapt`) or start from it (`model.init_from`)"
)


def mask_spread(mask: Tensor, source_mask: Tensor | None = None) -> Tensor:
    """Return the largest m minus the smallest m of each row, over the real source tokens.

    An uninformative mask network keeps all tokens (m = 1), blurs all (m = 0), or treats all alike. Then the spread is
    0 up to rounding, and contributions follow attention or noise. Unlike the mean of masks, the spread does not depend
    on the number of source tokens. It is at most the size of the perturbation, `||1 - m||_2` (Lu et al., eq. 5).

    Args:
        mask: masks m, (batch, heads, target, source).
        source_mask: mask with 1 or True for real tokens, (batch, source).

    Returns:
        (batch, heads, target), between 0 and 1. A row below `LEAST_SPREAD` carries no information.
    """
    real = _real_tokens(mask, source_mask)
    if real is None:
        return mask.amax(dim=-1) - mask.amin(dim=-1)
    return mask.masked_fill(~real, 0).amax(dim=-1) - mask.masked_fill(~real, 1).amin(dim=-1)


def contributions(
    attention: Tensor, mask: Tensor, source_mask: Tensor | None = None, null_attention: Tensor | None = None
) -> Tensor:
    """Return the contribution of each source token to each step (eq. 6): `phi = |a_p - a|`.

    The perturbed weights are those of eq. 2, `a_p = m * a + (1 - m) * mu_0`.

    Args:
        attention: attention weights a, (batch, heads, target, source).
        mask: masks m, the same shape.
        source_mask: mask with 1 or True for real tokens, (batch, source). Default: `None`, no padding.
        null_attention: weight on the NULL column of leaky attention, (batch, heads, target).

    Returns:
        phi, (batch, heads, target, source), 0 on padding.

    Raises:
        ValueError: shapes that do not fit.
    """
    _check_shapes(attention, mask, "mask")
    real = _real_tokens(attention, source_mask)
    return contribution(attention, mask, uniform_attention(attention, real, null_attention))


def head_average(weights: Tensor) -> Tensor:
    """Average over the heads of one layer: (batch, heads, target, source) -> (batch, target, source)."""
    if weights.dim() != 4:
        raise ValueError(f"Expected (batch, heads, target, source), got the shape {tuple(weights.shape)}.")
    return weights.mean(dim=1)


def attention_entropy(attention: Tensor, source_mask: Tensor | None = None) -> Tensor:
    """Return the entropy of each row over the real source tokens, `e(a) = -sum_i a_i log a_i`, natural logarithm.

    Every row is first divided by its sum, because calibrated weights (`a_c`, and the fusions of eqs. 10 to 12) and
    leaky attention without its NULL column do not sum to 1. An attention that already sums to 1 is unchanged.

    Args:
        attention: non-negative weights, (batch, heads, target, source).
        source_mask: mask with 1 or True for real tokens, (batch, source).

    Returns:
        (batch, heads, target), between 0 and log(number of real tokens). A row of zeros has entropy 0.
    """
    # entr(x) = -x log x, 0 at 0
    return torch.special.entr(row_shares(_real_weights(attention, source_mask))).sum(dim=-1)


def attention_is_reliable(attention: Tensor, phi: Tensor) -> Tensor:
    """Return the steps at which the token with the most attention contributes most: `i*_t = j*_t` (eqs. 7 and 8).

    Both maxima are taken over the head average. Among equal values the first index counts, so a tie counts as
    unreliable unless both maxima have the same index.

    Args:
        attention: attention weights of one layer, (batch, heads, target, source).
        phi: contributions of the same layer, the same shape.

    Returns:
        Boolean, (batch, target).
    """
    _check_shapes(attention, phi, "phi")
    return head_average(phi).argmax(dim=-1) == head_average(attention).argmax(dim=-1)


def _check_shapes(attention: Tensor, tensor: Tensor, name: str) -> None:
    if attention.dim() != 4 or attention.shape != tensor.shape:
        raise ValueError(
            f"`attention` and `{name}` must both be (batch, heads, target, source), got {tuple(attention.shape)} and "
            f"{tuple(tensor.shape)}."
        )


def _real_weights(weights: Tensor, source_mask: Tensor | None) -> Tensor:
    """Return the weights with 0 at padding."""
    real = _real_tokens(weights, source_mask)
    return weights if real is None else weights * real.to(weights.dtype)


def _real_tokens(attention: Tensor, source_mask: Tensor | None) -> Tensor | None:
    """Return the mask as booleans (batch, 1, 1, source), which broadcast over heads and steps."""
    if source_mask is None:
        return None
    if source_mask.shape != (attention.shape[0], attention.shape[-1]):
        raise ValueError(
            f"`source_mask` must be (batch, source) = {(attention.shape[0], attention.shape[-1])}, "
            f"got {tuple(source_mask.shape)}."
        )
    return source_mask.bool()[:, None, None, :]


# ---- measures of each step ----

NEED_INFORMATION = ("reliability", "divergence", "divergence_normalized", "entropy_change", "moved")
# Constant masks have no information, but they scale rows.
STEP_MEASURES = (
    *("entropy", "average_entropy", "null", "mask", "attended_mask", "gate", "mass", "informed"),
    *NEED_INFORMATION,
)


class LayerRows(NamedTuple):
    """Values of each step in one layer, by the name of the measure.

    Rows of attention are divided by their sum before an entropy. Logarithms are natural. The value of a layer is the
    mean over its heads, unless stated otherwise.

    - `entropy`: entropy of attention before calibration.
    - `average_entropy`: entropy of the mean attention of all heads. Only per layer.
    - `null`: weight of NULL. Only with `leaky`.
    - `reliability`: True if the token with the most attention contributes most (Lu et al., eqs. 7 and 8). The layer's
      value uses the mean attention of all heads. This and the measures below need masks.
    - `mask`: mean of m over real source tokens.
    - `informed`: True if masks distinguish source tokens (`mask_spread`); of a layer, if masks of half of its heads
      do. If fewer than half of the steps are informed, the measures in `NEED_INFORMATION` are withheld.
    - `mass`, `attended_mask`, `divergence`, `divergence_normalized`: extent of calibration; see
      `calibration_extent`. `divergence` is the measure of the paper (Table V).
    - `gate`: gate g (eq. 12). Only with gated calibration.
    - `entropy_change`: `entropy` after calibration minus before, with the sign of Table VI.
    - `moved`: True if calibration moves the largest weight to another token. The layer's value uses the mean attention
      of all heads.

    Args:
        heads: values of each head, (batch, heads, steps).
        layer: values of the whole layer, (batch, steps).
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
    gate: Tensor | None = None,
) -> LayerRows:
    """Return the measures of one layer. Measures whose tensors are missing are left out.

    Args:
        attention: attention weights before any calibration, (batch, heads, steps, source).
        source_mask: True for real tokens, (batch, source).
        mask, contribution: masks m and contributions phi, the same shape.
        calibrated: weights after calibration, the same shape.
        null, gate: weight of NULL and gate g, (batch, heads, steps).
    """
    real = source_mask[:, None, None].to(attention.dtype)
    average = head_average(attention)
    entropy = attention_entropy(attention, source_mask)
    heads = {"entropy": entropy}
    layer = {"average_entropy": attention_entropy(average[:, None], source_mask)[:, 0]}
    heads |= {name: rows for name, rows in (("null", null), ("gate", gate)) if rows is not None}
    if mask is not None:
        heads["mask"] = (mask * real).sum(dim=-1) / real.sum(dim=-1)
        heads["informed"] = mask_spread(mask, source_mask) >= LEAST_SPREAD
        # The layer's contributions are means of heads: a few informative heads among many do not change them.
        layer["informed"] = heads["informed"].float().mean(dim=1) >= 0.5
    if contribution is not None:
        heads["reliability"] = attention.argmax(dim=-1) == contribution.argmax(dim=-1)
        layer["reliability"] = attention_is_reliable(attention, contribution)
    if calibrated is not None:
        if mask is not None:
            heads |= calibration_extent(attention * real, calibrated * real, mask)
        heads["entropy_change"] = attention_entropy(calibrated, source_mask) - entropy
        heads["moved"] = attention.argmax(dim=-1) != calibrated.argmax(dim=-1)
        layer["moved"] = average.argmax(dim=-1) != head_average(calibrated).argmax(dim=-1)
    means = {name: rows.to(attention.dtype).mean(dim=1) for name, rows in heads.items() if name not in layer}
    return LayerRows(heads, layer | means)
