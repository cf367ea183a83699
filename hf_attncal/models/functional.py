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
"""Equations of calibrated, leaky and Gumbel attention as pure functions on tensors.

Shapes use B = batch, H = heads, T = target steps, S = source tokens. Attention tensors are (B, H, T, S).
`real` is a boolean tensor broadcastable to (B, H, T, S), True for source tokens other than padding; `None` if every
token is real.

Sources: "Attention Analysis and Calibration for Transformer in Natural Language Generation" (Lu et al., TASLP 2022;
ACL 2021), "Mask-Align: Self-Supervised Neural Word Alignment" (Chen et al., ACL 2021), "Discrete Transformer"; guided
alignment: "Guided Alignment Training for Topic-Aware Neural Machine Translation" (Chen et al., AMTA 2016), "Jointly
Learning to Align and Translate with Transformer Models" (Garg et al., EMNLP 2019).
"""

import torch
from torch import Tensor


def real_source_tokens(attention_mask: Tensor | None) -> Tensor | None:
    """Return an attention mask as booleans, True for source tokens that are attended to.

    Args:
        attention_mask: mask broadcastable to (B, H, T, S): boolean (True = attend), additive (0 = attend, -1000 or
            less = do not), or `None`. Smaller biases are ignored.

    Returns:
        A boolean tensor of the same shape, or `None` if there was no mask.
    """
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask
    return attention_mask > -1000  # whose exp is 0 in every type


def attention_scores(
    query: Tensor, key: Tensor, scaling: float, real: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return the scaled dot products `q K^T / sqrt(d_k)`, with padding at the lowest finite value.

    Args:
        query: queries, (B, H, T, d_k).
        key: keys, (B, H, S, d_k).
        scaling: 1 / sqrt(d_k).
        real: see the module's docstring.
        bias: bias of the scores, broadcastable to (B, H, T, S).

    Returns:
        (B, H, T, S).
    """
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores if real is None else scores.masked_fill(~real, torch.finfo(scores.dtype).min)


def without_empty_rows(tensor: Tensor, real: Tensor) -> Tensor:
    """Set rows without a real source token to 0; their softmax is uniform over padding.

    Args:
        tensor: weights, (B, H, T, S), or attention outputs, (B, H, T, d_k).
        real: see the module's docstring.
    """
    return tensor.masked_fill(~real.any(dim=-1, keepdim=True), 0.0)


def perturbation_mask(mask_query: Tensor, mask_key: Tensor, scaling: float) -> Tensor:
    """Return the mask of the perturbation model (Lu et al., eq. 3): `m = sigmoid((q W^Q)(K W^K)^T / sqrt(d_k))`.

    Near 0 a token is perturbed and therefore important; near 1 it is unchanged.

    Args:
        mask_query: `q W^Q`, (B, H, T, d_k).
        mask_key: `K W^K`, (B, H, S, d_k).
        scaling: 1 / sqrt(d_k).

    Returns:
        m, (B, H, T, S), in (0, 1).
    """
    return torch.sigmoid(torch.matmul(mask_query, mask_key.transpose(-1, -2)) * scaling)


def uniform_attention(attention: Tensor, real: Tensor | None = None, null_attention: Tensor | None = None) -> Tensor:
    """Return `mu_0` of Lu et al., eq. 2: 1/n over the n real source tokens, 0 on padding.

    With leaky attention, 1 minus the weight of NULL is distributed instead of 1. Rows without a real token are 0.

    Args:
        attention: a, (B, H, T, S), for shape and dtype.
        real: see the module's docstring.
        null_attention: weight of the NULL column, (B, H, T), or `None`.

    Returns:
        `mu_0`, broadcastable to (B, H, T, S).
    """
    if real is None:
        uniform = attention.new_full((1, 1, 1, 1), 1.0 / attention.shape[-1])
    else:
        count = real.sum(dim=-1, keepdim=True).clamp(min=1)  # n
        uniform = real.to(attention.dtype) / count
    return uniform if null_attention is None else uniform * (1 - null_attention).unsqueeze(-1)


def perturbed_attention(attention: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Return the perturbed weights (Lu et al., eq. 2): `a_p = m * a + (1 - m) * mu_0`.

    Args:
        attention: a, (B, H, T, S).
        mask: m, (B, H, T, S).
        uniform: mu_0, from `uniform_attention`.

    Returns:
        a_p, (B, H, T, S). Its rows have the same sum as the rows of `a` and `mu_0` only if m is constant.
    """
    return uniform + mask * (attention - uniform)


def perturbation_penalty(mask: Tensor, real: Tensor | None = None) -> Tensor:
    """Return the size of the perturbation (Lu et al., eq. 5): `||1 - m||_2` over the real source tokens of each row.

    Args:
        mask: m, (B, H, T, S).
        real: see the module's docstring.

    Returns:
        (B, H, T). The caller averages over layers, heads and real target steps, so that the penalty depends neither on
        the batch size nor on padding.
    """
    distance = 1 - mask
    if real is not None:
        distance = distance * real.to(mask.dtype)
    return torch.linalg.vector_norm(distance, dim=-1)  # its gradient at 0 is 0, not NaN


def contribution(attention: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Return the contribution of each source token (Lu et al., eq. 6): `phi = |a_p - a|`, (B, H, T, S)."""
    return (perturbed_attention(attention, mask, uniform) - attention).abs()


def calibration_factor(mask: Tensor) -> Tensor:
    """Return the factor of calibrated weights (Lu et al., eq. 9): `exp(1 - m)`, from 1 (m = 1) to e (m = 0)."""
    return torch.exp(1 - mask)


def annealing_gamma(step: Tensor, annealing_steps: float) -> Tensor:
    """Return `gamma(s) = exp(-s / annealing_steps)` of eq. 11, in float64 (bfloat16 cannot represent 150,000)."""
    return torch.exp(-step.to(torch.float64) / annealing_steps)


# Each fusion below is `a * factor`: eqs. 10 to 12 are all linear in `a`, and one multiplication of a (B, H, T, S)
# tensor with gradient is cheaper in time and memory than the two or three in the paper's form.


def fixed_factor(mask: Tensor, weight: float) -> Tensor:
    """Return the factor of fixed fusion (eq. 10, no softmax): `a + lambda * a_c = a * (1 + lambda * exp(1 - m))`."""
    return 1 + weight * calibration_factor(mask)


def annealed_factor(mask: Tensor, gamma: Tensor) -> Tensor:
    """Return the factor of annealed fusion (eq. 11): `gamma * a + (1 - gamma) * a_c`; gamma is a scalar tensor."""
    gamma = gamma.to(mask.dtype)
    return gamma + (1 - gamma) * calibration_factor(mask)


def head_gate(query: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute `sigmoid(q W + b)` per head (eq. 12): query (B, H, T, d_k), (H, d_k), (H,) -> (B, H, T, 1)."""
    return torch.sigmoid(torch.matmul(query, weight.unsqueeze(-1).to(query.dtype)) + bias[:, None, None])


def gated_factor(mask: Tensor, gate: Tensor) -> Tensor:
    """Return the factor of gated fusion (eq. 12): `g * a + (1 - g) * a_c`; gate is g, (B, H, T, 1)."""
    calibrated = calibration_factor(mask)
    return calibrated + gate * (1 - calibrated)


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of rows as they are (Lu et al., eq. 14), in nats, (B, H, T).

    `KL[a_1 || a] / 2 + KL[a_2 || a] / 2` with `a = (a_1 + a_2) / 2`. The sums of the rows count, as in the paper.
    """
    mean = ((first + second) / 2).clamp(min=torch.finfo(first.dtype).tiny)
    kl_first, kl_second = (torch.special.xlogy(a, a / mean).sum(dim=-1) for a in (first, second))
    return ((kl_first + kl_second) / 2).clamp(min=0)  # rounding may make 0 negative


def row_shares(weights: Tensor) -> Tensor:
    """Divide rows by their sum, (B, H, T, S); rows of zeros stay 0."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def calibration_extent(attention: Tensor, calibrated: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return measures of the change of each row by calibration, (B, H, T) each.

    - `mass`: sum of the calibrated row divided by the sum of the plain row (1, or 1 minus NULL).
    - `attended_mask`: mean of m, weighted by attention.
    - `divergence`: divergence of the rows as they are (Tables V and Fig. 8 of the paper), which contains the mass.
    - `divergence_normalized`: divergence of the rows divided by their sums, at most 0.0303 if `a_c = a exp(1 - m)`.

    Args:
        attention: a, (B, H, T, S), 0 on padding.
        calibrated: weights after calibration, the same shape.
        mask: m, the same shape.
    """
    total = attention.sum(dim=-1).clamp(min=torch.finfo(attention.dtype).tiny)
    return {
        "mass": calibrated.sum(dim=-1) / total,
        "attended_mask": (mask * attention).sum(dim=-1) / total,
        "divergence": divergence(attention, calibrated),
        "divergence_normalized": divergence(row_shares(attention), row_shares(calibrated)),
    }


def renormalized(combined: Tensor, attention: Tensor) -> Tensor:
    """Scale rows of `combined` to the sums of `attention`'s rows (1, or 1 minus NULL), (B, H, T, S)."""
    total = combined.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(combined.dtype).tiny)
    return combined * (attention.sum(dim=-1, keepdim=True) / total)


def with_null_scores(
    scores: Tensor, query: Tensor, null_key: Tensor, scaling: float, null_bias: Tensor | None = None
) -> Tensor:
    """Prepend the NULL column of leaky attention (Mask-Align, sec. 3.2): `q [k_NULL; K]^T / sqrt(d_k)`.

    Args:
        scores: scaled scores over real tokens, (B, H, T, S).
        query: queries, (B, H, T, d_k).
        null_key: k_NULL, (H, d_k).
        scaling: 1 / sqrt(d_k).
        null_bias: bias of the scores of NULL, (H,), which is not in the paper. Default: `None`, no bias.

    Returns:
        (B, H, T, 1 + S), NULL first.
    """
    null_scores = torch.matmul(query, null_key.unsqueeze(-1).to(query.dtype)) * scaling  # (B, H, T, 1)
    if null_bias is not None:
        null_scores = null_scores + null_bias[:, None, None].to(null_scores.dtype)
    return torch.cat([null_scores.to(scores.dtype), scores], dim=-1)


def gumbel_attention(
    scores: Tensor,
    temperature: float | Tensor,
    training: bool,
    straight_through: float | Tensor = 0.0,
    real: Tensor | None = None,
    noise_scale: float | Tensor = 1.0,
) -> Tensor:
    """Return the Gumbel-softmax of scores (Discrete Transformer): `softmax((log a + g) / tau)`, `g = -log(-log U)`.

    `log a` and the scores differ by a constant per row, which the softmax removes. Outside training the weights are
    the one-hot argmax.

    Args:
        scores: attention scores, (B, H, T, S).
        temperature: tau > 0, a number or a scalar tensor.
        training: True to sample.
        straight_through: share of the one-hot weights in the forward pass of training, from 0 (or False) to 1 (or
            True). The gradient is the soft sample's.
        real: see the module's docstring. It keeps noise from selecting padding.
        noise_scale: factor of g. 0 is a softmax at this temperature. Default: 1.

    Returns:
        (B, H, T, S), rows sum to 1.
    """
    if training:
        # In float32 and above 0: an exact 0 in the exponential, or a float16 score over a small temperature, would
        # give an infinite score and then NaN.
        dtype = torch.promote_types(scores.dtype, torch.float32)
        noisy = scores.to(dtype)
        if isinstance(noise_scale, Tensor) or noise_scale:
            exponential = torch.empty_like(scores, dtype=dtype).exponential_()  # -log U
            noisy = noisy - noise_scale * exponential.clamp(min=torch.finfo(dtype).tiny).log()
        noisy = noisy / temperature
        if real is not None:
            noisy = noisy.masked_fill(~real, torch.finfo(noisy.dtype).min)
        soft = torch.softmax(noisy, dim=-1).to(scores.dtype)
        if not isinstance(straight_through, Tensor) and not straight_through:
            return soft
        forward = torch.lerp(soft.detach(), one_hot_argmax(soft), torch.as_tensor(straight_through).to(soft))
        return forward + (soft - soft.detach())  # the bracket is 0, so a share of 1 gives exactly 0 and 1
    return one_hot_argmax(scores)


def one_hot_argmax(scores: Tensor) -> Tensor:
    """Return 1 at the largest score of each row (the first of equals) and 0 elsewhere, same shape and dtype."""
    index = scores.argmax(dim=-1, keepdim=True)
    return torch.zeros_like(scores).scatter_(-1, index, 1.0)


def token_rows(steps: Tensor, shift: bool) -> Tensor:
    """Return the attention of each target token from the attention of each decoder step.

    Args:
        steps: attention of the steps, (..., T, S). Step t predicts token t.
        shift: True to use step t + 1, whose input is token t, as row t. The last token keeps its own row.

    Returns:
        (..., target tokens, S), as many rows as steps.
    """
    return torch.cat([steps[..., 1:, :], steps[..., -1:, :]], dim=-2) if shift else steps


def guided_terms(weights: Tensor, links: Tensor, null: Tensor | None, floor: float) -> Tensor:
    """Return the cross-entropy of each target token's weights against its links (Chen et al. 2016; Garg et al. 2019).

    `-sum_s p_ts log a_ts`, where p_t is uniform over the links of a token. A token without links should give its
    weight to NULL, `-log a_t,NULL`; without NULL it has no loss.

    Args:
        weights: a, (B, T, S).
        links: 1 if target token t is linked to source token s, else 0, (B, T, S).
        null: weight of NULL, (B, T), or `None` without NULL.
        floor: smallest weight in a logarithm.

    Returns:
        (B, T).
    """
    count = links.sum(dim=-1)
    linked = (links * weights.clamp(min=floor).log()).sum(dim=-1) / count.clamp(min=1)
    return -(linked if null is None else torch.where(count > 0, linked, null.clamp(min=floor).log()))
