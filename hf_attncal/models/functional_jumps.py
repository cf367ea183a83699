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
"""First-order alignment: a hidden Markov model over what a target token is aligned to (Vogel et al. 1996).

`p(y, a) = prod_t J(a_t | a_(t-1)) e_t(a_t)`: e is how well a source position explains a token, J how likely the next
token is aligned there after the last one. Equal source words differ by J alone. NULL remembers the last real position
(Och and Ney 2003): it has as many states as there are positions.

Shapes use B = batch, S = source tokens, T = target tokens, W = the longest jump with a weight of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Keeps a row that nothing explains from dividing by 0; far below every weight that matters, also in float32.
_TINY = 1e-30


@dataclass
class JumpPosterior:
    """Results of the forward-backward pass.

    Args:
        weights: p(a_t = s | y), (B, T, S), 0 at padding. null: p(a_t = NULL | y), (B, T). Together a row sums to 1.
        log_likelihood: log p(y) of each pair, (B,).
        jumps: expected number of jumps by distance that follow the table, (2 W + 1,). chances: how many there would
            have been of each distance with a weight of 1. See `learned_jumps`. None unless asked for.
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
    """Forward-backward over `J_t(s | p) = (1 - uniform) c(s - p) / sum_s q_t(s) c(s - p) + uniform / sum_s q_t(s)`.

    A token is aligned to a real position s, with probability `q_t(s) J_t(s | p)` after the last real position p (-1
    before there was any), or to NULL, which leaves p as it is. `weights` and `null` need not be normalised: where the
    chance of NULL is a number, as in a model of counts, it is in them.

    Args:
        weights: q_t(s) e_t(s) >= 0, (B, T, S). null: e_t(NULL) >= 0, (B, T).
        jumps: c(d) > 0 for d = -W, ..., W, (2 W + 1,); a jump further than W has the weight of W. Or (G, 2 W + 1):
            the batch has G parts, one after the other, with a table each, and so have the counts.
        target_real, source_real: True where a token is not padding, (B, T) and (B, S); padding is on the right.
        uniform: in [0, 1]; with 1, or equal weights of all jumps, the posterior is that of the model without jumps,
            `e_t(s) / S / (sum_s e_t(s) / S + e_t(NULL))`, or, with `attention` of sum 1, `weights` and `null` over
            their sum.
        count: what the next table is made of (see `JumpPosterior`), too; without gradients.
        attention: q_t(s) >= 0, what is known of position s without p, (B, T, S). None: 1 everywhere.

    Returns:
        The posterior, in the type of `weights`. Differentiable with respect to all tensors of numbers.
    """
    size = weights.shape[2]
    source = source_real.to(weights.dtype)
    weights = weights * source[:, None]
    if uniform == 1 and attention is None and not (count or jumps.requires_grad):  # each token for itself
        weights = weights / source.sum(dim=1).clamp(min=1)[:, None, None] * target_real[:, :, None]
        null = torch.where(target_real, null, 1.0)
        total = (weights.sum(dim=2) + null).clamp(min=_TINY)
        return JumpPosterior(weights / total[:, :, None], null / total * target_real, total.log().sum(dim=1))
    attention = source[:, None] if attention is None else source[:, None] * attention
    # From each position, the one before all first, to each; nothing leads to the one before all. (G, 1 + S, 1 + S)
    places = F.pad(_by_distance(jumps.to(weights.dtype).reshape(-1, jumps.shape[-1]), size), (1, 0))

    def by_token(values: Tensor) -> Tensor:  # so that a step reads memory in a row: (T, G, B / G, ...), or (1, ...)
        return values.transpose(0, 1).unflatten(1, (len(places), -1))

    attention = by_token(F.pad(attention, (1, 0)))
    reached = torch.matmul(attention, places.mT).clamp(min=_TINY)
    even = uniform / attention.sum(dim=-1, keepdim=True).clamp(min=_TINY)
    largest = torch.maximum(weights.detach().amax(dim=2), null.detach()).clamp(min=_TINY)
    # A padded token is certainly NULL, which changes nothing.
    weights = torch.where(target_real[:, :, None], weights / largest[:, :, None], 0.0)
    weights, null = (
        F.pad(by_token(weights), (1, 0)),
        by_token(torch.where(target_real, null / largest, 1.0))[..., None],
    )
    normalizer, even = (t.expand(len(weights), -1, -1, -1) for t in ((1 - uniform) / reached, even))
    steps = list(zip(*(t.unbind() for t in (weights, null, normalizer, even)), strict=True))

    # `last[p]` is the chance that the last real position so far is p, `move[s]` that a jump leads to s.
    last = F.pad(torch.ones_like(null[0]), (0, size))
    passed = []
    for joint, stay, norm, share in steps:
        start, move = last, torch.baddbmm(share, last * norm, places)
        last = torch.addcmul(last * stay, move, joint)
        scale = last.sum(dim=-1, keepdim=True).clamp(min=_TINY)
        last = last / scale
        passed.append((start, move, scale))

    backwards = places.mT.contiguous()  # half the time of a product
    after = torch.ones_like(last)  # how well the rest is explained after each last position
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

    found = torch.stack(links[::-1]).flatten(1, 2).transpose(0, 1)[..., 1:]
    found_null = torch.where(target_real, torch.stack(null_links[::-1]).flatten(1).T, 0.0)
    likelihood = torch.stack([scale for *_, scale in passed]).log().sum(dim=0).flatten()
    likelihood = likelihood + torch.where(target_real, largest.log(), 0.0).sum(dim=1)
    if not count:
        return JumpPosterior(found, found_null, likelihood)
    jumped = (torch.stack(jumps_made[::-1]) / reached).sum_to_size(reached.shape)
    chances = torch.einsum("tgbp,tgbs->gps", jumped, attention)
    index = _distances(size, jumps.shape[-1] // 2, jumps.device).flatten()
    tables = (
        weights.new_zeros(jumps.shape).view(len(places), -1).index_add_(1, index, table[..., 1:].flatten(1)).detach()
        for table in (counts * places, chances)
    )
    return JumpPosterior(found, found_null, likelihood, *(table.view(jumps.shape) for table in tables))


def initial_jumps(width: int) -> Tensor:
    """The table before anything is learned, float32: `exp(-|d - 1| / 1.5)`, the next position is the likeliest."""
    distances = torch.arange(-width, width + 1, dtype=torch.float32)
    return torch.exp(-(distances - 1).abs() / 1.5)


def learned_jumps(counts: Tensor, chances: Tensor) -> Tensor:
    """Return the next table of EM, its largest entry 1, (2 W + 1,).

    Each distance has half a chance more, at the rate of the initial table: one that was never seen keeps that.

    Args:
        counts, chances: `JumpPosterior.jumps` and `JumpPosterior.chances`, summed over a text, (2 W + 1,).
    """
    table = (counts + 0.5 * initial_jumps(len(counts) // 2).to(counts)) / (chances + 0.5)
    return table / table.max()


def _distances(size: int, width: int, device: torch.device) -> Tensor:
    """Which entry of a table with 2 `width` + 1 of them each jump has, (1 + size, size)."""
    places = torch.arange(size, device=device)
    return (places - torch.arange(-1, size, device=device)[:, None]).clamp(-width, width) + width


def _by_distance(jumps: Tensor, size: int) -> Tensor:
    return jumps[..., _distances(size, jumps.shape[-1] // 2, jumps.device)]
