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
"""First-order alignment: a hidden Markov model over the source positions of target tokens (Vogel et al. 1996).

`p(y, a) = prod_t J(a_t | a_(t-1)) e_t(a_t)`: e is the probability of a token given its source position, J the
probability of a jump from the previous position. Equal source words differ only by J. NULL keeps the last real
position (Och and Ney 2003), so it has one state per position.

Shapes use B = batch, S = source tokens, T = target tokens, W = longest jump with its own weight.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Avoids division by 0 in rows without probability; far below every relevant weight, also in float32.
_TINY = 1e-30


@dataclass
class JumpPosterior:
    """Results of the forward-backward pass.

    Args:
        weights: p(a_t = s | y), 0 at padding, (B, T, S). With `null`, rows sum to 1.
        null: p(a_t = NULL | y), (B, T).
        log_likelihood: log p(y) of each pair, (B,).
        jumps: expected number of jumps from the table per distance, (2 W + 1,); see `learned_jumps`. None without
            `count`.
        chances: expected number of jumps per distance if all weights were 1, (2 W + 1,). None without `count`.
    """

    weights: Tensor
    null: Tensor
    log_likelihood: Tensor
    jumps: Tensor | None = None
    chances: Tensor | None = None


def jump_posterior(
    weights: Tensor,
    null: Tensor,
    jumps: Tensor,
    target_real: Tensor,
    source_real: Tensor,
    uniform: float = 0.1,
    count: bool = False,
    attention: Tensor | None = None,
) -> JumpPosterior:
    """Run the forward-backward algorithm.

    `J_t(s | p) = (1 - uniform) c(s - p) / sum_s q_t(s) c(s - p) + uniform / sum_s q_t(s)`.

    A token is aligned to a real position s, with probability `q_t(s) J_t(s | p)` after the last real position p (-1
    before there was any), or to NULL, which keeps p. `weights` and `null` need not be normalised. In a statistical
    model, they include the constant probability of NULL.

    Args:
        weights: q_t(s) e_t(s) >= 0, (B, T, S).
        null: e_t(NULL) >= 0, (B, T).
        jumps: c(d) > 0 for d = -W, ..., W, (2 W + 1,). Jumps further than W have the weight of W. With shape
            (G, 2 W + 1), the batch has G consecutive parts with one table each, and the counts have the same shape.
        target_real: True for real target tokens, (B, T); padding is on the right.
        source_real: True for real source tokens, (B, S); padding is on the right.
        uniform: share of uniform jumps, in [0, 1]. With 1, or equal weights of all jumps, the posterior equals that
            without jumps, `e_t(s) / S / (sum_s e_t(s) / S + e_t(NULL))`, or, if `attention` sums to 1, `weights` and
            `null` over their sum. Default: 0.1.
        count: True to also return the counts for the next table (see `JumpPosterior`), without gradients.
        attention: q_t(s) >= 0, weight of position s without p, (B, T, S). Default: None, 1 everywhere.

    Returns:
        The posterior, in the dtype of `weights`. Differentiable with respect to all floating-point tensors.
    """
    size = weights.shape[2]
    source = source_real.to(weights.dtype)
    weights = weights * source[:, None]
    if uniform == 1 and attention is None and not (count or jumps.requires_grad):  # tokens are independent
        weights = weights / source.sum(dim=1).clamp(min=1)[:, None, None] * target_real[:, :, None]
        null = torch.where(target_real, null, 1.0)
        total = (weights.sum(dim=2) + null).clamp(min=_TINY)
        return JumpPosterior(weights / total[:, :, None], null / total * target_real, total.log().sum(dim=1))
    attention = source[:, None] if attention is None else source[:, None] * attention
    # Jump weights from each position to each, with position -1 first; no jump leads to -1. (G, 1 + S, 1 + S)
    places = F.pad(_by_distance(jumps.to(weights.dtype).reshape(-1, jumps.shape[-1]), size), (1, 0))

    def by_token(values: Tensor) -> Tensor:  # contiguous memory per step: (T, G, B / G, ...), or (1, ...)
        return values.transpose(0, 1).unflatten(1, (len(places), -1))

    attention = by_token(F.pad(attention, (1, 0)))
    reached = torch.matmul(attention, places.mT).clamp(min=_TINY)
    even = uniform / attention.sum(dim=-1, keepdim=True).clamp(min=_TINY)
    largest = torch.maximum(weights.detach().amax(dim=2), null.detach()).clamp(min=_TINY)
    # A padded token is NULL with probability 1, which changes nothing.
    weights = torch.where(target_real[:, :, None], weights / largest[:, :, None], 0.0)
    weights, null = (
        F.pad(by_token(weights), (1, 0)),
        by_token(torch.where(target_real, null / largest, 1.0))[..., None],
    )
    normalizer, even = (t.expand(len(weights), -1, -1, -1) for t in ((1 - uniform) / reached, even))
    steps = list(zip(*(t.unbind() for t in (weights, null, normalizer, even)), strict=True))

    # `last[p]` is the probability that the last real position so far is p, `move[s]` that a jump leads to s.
    last = F.pad(torch.ones_like(null[0]), (0, size))
    passed = []
    for joint, stay, norm, share in steps:
        start, move = last, torch.baddbmm(share, last * norm, places)
        last = torch.addcmul(last * stay, move, joint)
        scale = last.sum(dim=-1, keepdim=True).clamp(min=_TINY)
        last = last / scale
        passed.append((start, move, scale))

    backwards = places.mT.contiguous()  # takes half the time of the transposed product
    after = torch.ones_like(last)  # probability of the remaining tokens after each last position
    links, null_links, counts, jumps_made = [], [], torch.zeros_like(places), []
    for (joint, stay, norm, share), (start, move, scale) in zip(steps[::-1], passed[::-1], strict=True):
        after = after / scale
        explained, after = joint * after, after * stay
        links.append(move * explained)
        null_links.append((start * after).sum(dim=-1))
        led = torch.bmm(explained, backwards)
        if count:
            start = start * norm
            counts = torch.baddbmm(counts, start.mT, explained)
            jumps_made.append(start * led)
        after = torch.addcmul(after, led, norm) + explained.sum(dim=-1, keepdim=True) * share

    posterior = torch.stack(links[::-1]).flatten(1, 2).transpose(0, 1)[..., 1:]
    null_posterior = torch.where(target_real, torch.stack(null_links[::-1]).flatten(1).T, 0.0)
    likelihood = torch.stack([scale for *_, scale in passed]).log().sum(dim=0).flatten()
    likelihood = likelihood + torch.where(target_real, largest.log(), 0.0).sum(dim=1)
    if not count:
        return JumpPosterior(posterior, null_posterior, likelihood)
    jumped = (torch.stack(jumps_made[::-1]) / reached).sum_to_size(reached.shape)
    chances = torch.einsum("tgbp,tgbs->gps", jumped, attention)
    index = _distances(size, jumps.shape[-1] // 2, jumps.device).flatten()
    tables = (
        weights.new_zeros(jumps.shape).view(len(places), -1).index_add_(1, index, table[..., 1:].flatten(1)).detach()
        for table in (counts * places, chances)
    )
    return JumpPosterior(posterior, null_posterior, likelihood, *(table.view(jumps.shape) for table in tables))


def initial_jumps(width: int) -> Tensor:
    """Return the initial table in float32: `exp(-|d - 1| / 1.5)`; the next position is the likeliest."""
    distances = torch.arange(-width, width + 1, dtype=torch.float32)
    return torch.exp(-(distances - 1).abs() / 1.5)


def learned_jumps(counts: Tensor, chances: Tensor) -> Tensor:
    """Return the next table of EM, its largest entry 1, (2 W + 1,).

    Each distance gets half a chance more at the rate of the initial table, so unseen distances keep their initial
    weight.

    Args:
        counts: sum of `JumpPosterior.jumps` over a text, (2 W + 1,).
        chances: sum of `JumpPosterior.chances` over a text, (2 W + 1,).
    """
    table = (counts + 0.5 * initial_jumps(len(counts) // 2).to(counts)) / (chances + 0.5)
    return table / table.max()


def _distances(size: int, width: int, device: torch.device) -> Tensor:
    """Return the index of each jump in a table of 2 `width` + 1 entries, (1 + size, size)."""
    places = torch.arange(size, device=device)
    return (places - torch.arange(-1, size, device=device)[:, None]).clamp(-width, width) + width


def _by_distance(jumps: Tensor, size: int) -> Tensor:
    return jumps[..., _distances(size, jumps.shape[-1] // 2, jumps.device)]
