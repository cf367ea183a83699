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
"""Equations of Mask-Align as pure functions on tensors.

Shapes use B = batch, T = tokens of the predicted side ("target" of a direction), S = tokens of the side that it is
predicted from. Weights are (B, T, S), without the NULL column, and not renormalised. `*_real` are boolean, True for
tokens other than padding.

Sources: "Mask-Align: Self-Supervised Neural Word Alignment" (Chen et al., ACL 2021); for the mixture, "Latent
Alignment and Variational Attention" (Deng et al., NeurIPS 2018) and "Posterior Attention Models for Sequence to
Sequence Learning" (Shankar and Sarawagi, ICLR 2019).
"""

import torch
from torch import Tensor

from .functional import guided_terms

# Smallest weight in a logarithm; below it gradients would follow rounding errors.
_LOG_FLOOR = 1e-9


def agreement_loss(forward: Tensor, backward: Tensor, target_real: Tensor, source_real: Tensor) -> Tensor:
    """Return `L_a = MSE(W_f, W_b^T)` over real cells (Mask-Align, sec. 3.3).

    Args:
        forward: W_f, (B, T, S).
        backward: W_b, (B, S, T).
        target_real: True for real target tokens, (B, T).
        source_real: True for real source tokens, (B, S).

    Returns:
        A scalar: the mean over all real cells of the batch, 0 without any.
    """
    cells = target_real.unsqueeze(2) & source_real.unsqueeze(1)
    squared = (forward - backward.transpose(1, 2)).square().masked_fill(~cells, 0.0)
    return squared.sum() / cells.sum().clamp(min=1)


def entropy_loss(weights: Tensor, target_real: Tensor, source_real: Tensor, smoothing: float) -> Tensor:
    """Return the entropy of the smoothed weights of one direction (Mask-Align, sec. 3.3).

    `W~ = (W + lambda) / sum_j (W + lambda)` over real source tokens, `L_e = -(1/I) sum_i sum_j W~_ij log W~_ij` with I
    the number of real target tokens.

    Args:
        weights: W, (B, T, S).
        target_real: True for real target tokens, (B, T).
        source_real: True for real source tokens, (B, S).
        smoothing: lambda >= 0.

    Returns:
        A scalar: the mean over all real target tokens of the batch, 0 without any.
    """
    smoothed = (weights + smoothing).masked_fill(~source_real.unsqueeze(1), 0.0)
    smoothed = smoothed / smoothed.sum(dim=-1, keepdim=True).clamp(min=_LOG_FLOOR)
    entropy = -(smoothed * smoothed.clamp(min=_LOG_FLOOR).log()).sum(dim=-1)
    return entropy.masked_fill(~target_real, 0.0).sum() / target_real.sum().clamp(min=1)


def guided_loss(weights: Tensor, null: Tensor, links: Tensor, target_real: Tensor) -> Tensor:
    """Return the cross-entropy of the weights against links (guided alignment, Chen et al. 2016; Garg et al. 2019).

    The desired weights of a target token are uniform over its links, or all on NULL if it has none.

    Args:
        weights: W, (B, T, S).
        null: weight of NULL, (B, T).
        links: 1 if target token t is linked to source token s, (B, T, S).
        target_real: True for real target tokens, (B, T).

    Returns:
        A scalar: the mean over all real target tokens of the batch, 0 without any.
    """
    terms = guided_terms(weights, links, null, _LOG_FLOOR)
    return terms.masked_fill(~target_real, 0.0).sum() / target_real.sum().clamp(min=1)


def mixture_log_likelihood(weights: Tensor, emissions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the likelihood of each token under a mixture over source positions, and the posterior of the positions.

    `p(y_t) = sum_s W_ts p(y_t | s)`, and the posterior `P_ts = W_ts p(y_t | s) / p(y_t)` (Deng et al. 2018, eq. 3;
    Shankar and Sarawagi 2019, eq. 5). The attention W does not depend on y_t; the posterior does.

    Args:
        weights: W with its NULL column, (B, T, S + 1). Rows sum to 1; padding is 0.
        emissions: log p(y_t | s), the same shape.

    Returns:
        log p(y_t), (B, T), and P, (B, T, S + 1), whose rows sum to 1.
    """
    joint = weights.clamp(min=_LOG_FLOOR).log() + emissions
    joint = joint.masked_fill(weights == 0, torch.finfo(joint.dtype).min)
    return torch.logsumexp(joint, dim=-1), torch.softmax(joint, dim=-1)
