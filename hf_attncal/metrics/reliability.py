"""Measure whether the token with the most attention is the one that matters (Lu et al., TASLP 2022, section III).

Attention tensors are (batch, heads, target, source). The inputs come from one teacher-forced forward pass with
`output_attention_details=True`: `outputs.uncalibrated_cross_attentions` (a) and `outputs.calibration_masks` (m), one
tensor for each layer.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hf_attncal.models.functional import contribution, uniform_attention

# Numbers of bfloat16, in which most models are trained, lie 2**-8 apart just below 1: masks of a row that differ by
# less than two such steps are all but one number there, and what they say of tokens is a rounding error.
LEAST_SPREAD = torch.finfo(torch.bfloat16).eps  # 2**-7
WITHOUT_MASKS = (
    "Attention came to be of use too late for the mask network, or it had too little text. Masks wait for it with "
    "`model.mask_cost` 0.1, which presets set; or train without a calibration first, and adapt the finished model "
    "(`attncal adapt`), or go on from it (`model.init_from`)"
)


def mask_spread(mask: Tensor, source_mask: Tensor | None = None) -> Tensor:
    """Return how much the masks of each row differ: the largest m less the smallest, over the real source tokens.

    A mask network without information keeps all tokens (m = 1), blurs all (m = 0), or treats all alike; then the
    spread is 0 up to rounding, and contributions follow attention or noise. It does not depend on the number of source
    tokens, as a mean of masks does, and is at most the size of the perturbation, `||1 - m||_2` (Lu et al., eq. 5).

    Args:
        mask: m, (batch, heads, target, source).
        source_mask: (batch, source), 1 or True for real tokens.

    Returns:
        (batch, heads, target), between 0 and 1; below `LEAST_SPREAD` a row carries no information.
    """
    real = _real_tokens(mask, source_mask)
    if real is None:
        return mask.amax(dim=-1) - mask.amin(dim=-1)
    return mask.masked_fill(~real, 0).amax(dim=-1) - mask.masked_fill(~real, 1).amin(dim=-1)


def contributions(
    attention: Tensor, mask: Tensor, source_mask: Tensor | None = None, null_attention: Tensor | None = None
) -> Tensor:
    """Return what every source token contributes to every step (eq. 6): `phi = |a_p - a|`.

    The perturbed weights are those of eq. 2, `a_p = m * a + (1 - m) * mu_0`.

    Args:
        attention: a, (batch, heads, target, source).
        mask: m, the same shape.
        source_mask: (batch, source), 1 or True for real tokens; `None` means that there is no padding.
        null_attention: mass on the NULL column of leaky attention, (batch, heads, target).

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

    Every row is first divided by its sum: calibrated weights (`a_c`, and the fusions of eqs. 10 to 12) do not sum to
    1, and neither does leaky attention without its NULL column. An attention that already sums to 1 is unchanged.

    Args:
        attention: (batch, heads, target, source), weights of at least 0.
        source_mask: (batch, source), 1 or True for real tokens.

    Returns:
        (batch, heads, target), between 0 and log(number of real tokens). A row without any mass has entropy 0.
    """
    return torch.special.entr(_shares(attention, source_mask)).sum(dim=-1)  # entr(x) = -x log x, 0 at 0


def jensen_shannon(first: Tensor, second: Tensor, source_mask: Tensor | None = None) -> Tensor:
    """Return the Jensen-Shannon divergence of rows of two attentions over the real source tokens (eq. 14), in nats.

    `JSD = KL[a_1 || a] / 2 + KL[a_2 || a] / 2` with `a = (a_1 + a_2) / 2`. Every row is first divided by its sum, as
    for `attention_entropy`: without, weights after calibration would differ by their mass alone.

    Args:
        first, second: (batch, heads, target, source), weights of at least 0.
        source_mask: (batch, source), 1 or True for real tokens.

    Returns:
        (batch, heads, target), between 0 (the same shares) and log 2 (no token in common).

    Raises:
        ValueError: shapes that do not fit.
    """
    _check_shapes(first, second, "second")
    one, other = (_shares(weights, source_mask) for weights in (first, second))
    mean = ((one + other) / 2).clamp(min=torch.finfo(first.dtype).tiny)
    to_one, to_other = (torch.special.xlogy(a, a / mean).sum(dim=-1) for a in (one, other))
    return ((to_one + to_other) / 2).clamp(min=0)  # what is 0 may be rounded below


def attention_is_reliable(attention: Tensor, phi: Tensor) -> Tensor:
    """Return where the token that contributes most is the token with the most attention: `i*_t = j*_t` (eqs. 7 and 8).

    Both arguments of the maximum are taken on the head average. Among equal values the first index counts, so a tie is
    a miss unless both maxima fall on the same index.

    Args:
        attention: a of one layer, (batch, heads, target, source).
        phi: contributions of the same layer, the same shape.

    Returns:
        Boolean, (batch, target).
    """
    _check_shapes(attention, phi, "phi")
    return head_average(phi).argmax(dim=-1) == head_average(attention).argmax(dim=-1)


def reliability_level(attention: Tensor, phi: Tensor, target_mask: Tensor | None = None) -> float:
    """Return the share of target steps at which attention is reliable (eq. 8), see `attention_is_reliable`.

    For a corpus in several batches, average `attention_is_reliable` over all real steps: the mean of the levels of
    batches of unequal size is another number.

    Args:
        attention: a of one layer (the paper's analysis takes the top layer), (batch, heads, target, source).
        phi: contributions of the same layer, the same shape.
        target_mask: (batch, target), 1 or True for real steps; `None` counts every step.

    Raises:
        ValueError: no real step, or shapes that do not fit.
    """
    hits = attention_is_reliable(attention, phi)
    counted = torch.ones_like(hits) if target_mask is None else target_mask.bool()
    if counted.shape != hits.shape:
        raise ValueError(f"`target_mask` must be (batch, target) = {tuple(hits.shape)}, got {tuple(counted.shape)}.")
    if not counted.any():
        raise ValueError("`target_mask` leaves no step: a share of nothing is not defined.")
    return hits[counted].double().mean().item()


def _check_shapes(attention: Tensor, other: Tensor, name: str) -> None:
    if attention.dim() != 4 or attention.shape != other.shape:
        raise ValueError(
            f"`attention` and `{name}` must both be (batch, heads, target, source), got {tuple(attention.shape)} and "
            f"{tuple(other.shape)}."
        )


def _shares(weights: Tensor, source_mask: Tensor | None) -> Tensor:
    """Divide rows by their sum over the real source tokens; 0 at padding, and in a row without any mass."""
    real = _real_tokens(weights, source_mask)
    if real is not None:
        weights = weights * real.to(weights.dtype)
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def _real_tokens(attention: Tensor, source_mask: Tensor | None) -> Tensor | None:
    """Return the mask (batch, source) as booleans (batch, 1, 1, source), which broadcasts over heads and steps."""
    if source_mask is None:
        return None
    if source_mask.shape != (attention.shape[0], attention.shape[-1]):
        raise ValueError(
            f"`source_mask` must be (batch, source) = {(attention.shape[0], attention.shape[-1])}, "
            f"got {tuple(source_mask.shape)}."
        )
    return source_mask.bool()[:, None, None, :]


# ---- measures of each step ----

NEED_INFORMATION = ("reliability", "divergence", "entropy_change", "moved")
STEP_MEASURES = ("entropy", "average_entropy", "null", "mask", "informed", *NEED_INFORMATION)


class LayerRows(NamedTuple):
    """Values of each step in one layer, by the name of the measure.

    Rows of attention are shares: divided by their sum where NULL or calibration makes that another number than 1.
    Logarithms are natural.

    - `entropy` of attention before calibration; of the layer, the mean over heads.
    - `average_entropy`, that of the mean of all heads.
    - `null`: the weight of NULL; of the layer, the mean over heads. With `leaky`.
    - `reliability`: whether the token with the most attention contributes most (Lu et al., eqs. 7 and 8); of the
      layer, on the mean of all heads. With masks, as all below.
    - `mask`: m, the mean over real source tokens; of the layer, over heads, too.
    - `informed`: whether masks tell source tokens apart (`mask_spread`); of the layer, those of any head. Where they
      do so at fewer than half of the steps, `NEED_INFORMATION` is withheld.
    - `divergence` of attention before and after calibration (eq. 14); of the layer, the mean over heads.
    - `entropy_change`: `entropy` after calibration less before, the sign of Table VI; of the layer, the mean over
      heads.
    - `moved`: whether calibration gives the most weight to another token; of the layer, on the mean of all heads.

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
