"""First-order alignment: a hidden Markov model over what a target token is aligned to (Vogel et al. 1996).

`p(y, a) = prod_t J(a_t | a_(t-1)) e_t(a_t)`: e is how well a source position explains a token, J how likely the next
token is aligned there after the last one. Equal source words differ by J alone. NULL remembers the last real position
(Och and Ney 2003): it has as many states as there are positions.

Shapes use B = batch, S = source tokens, T = target tokens, W = the longest jump with a weight of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Keeps a row that nothing explains from dividing by 0; far below every weight that matters, also in float32.
_TINY = 1e-30


@dataclass
class JumpPosterior:
    """What the forward-backward pass gives.

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
        jumps: c(d) > 0 for d = -W, ..., W, (2 W + 1,); a jump further than W has the weight of W.
        target_real, source_real: True where a token is not padding, (B, T) and (B, S); padding is on the right.
        uniform: in [0, 1]; with 1, or equal weights of all jumps, the posterior is that of the model without jumps,
            `e_t(s) / S / (sum_s e_t(s) / S + e_t(NULL))`, or, with `attention` of sum 1, `weights` and `null` over
            their sum.
        count: what the next table is made of (see `JumpPosterior`), too; without gradients.
        attention: q_t(s) >= 0, what is known of position s without p, (B, T, S). None: 1 everywhere.

    Returns:
        The posterior, in the type of `weights`. Differentiable with respect to all tensors of numbers.
    """
    batch, steps, size = weights.shape
    source = source_real.to(weights.dtype)
    weights = weights * source[:, None]
    attention = source[:, None] if attention is None else source[:, None] * attention
    places = _by_distance(jumps.to(weights.dtype), size)  # (1 + S, S): from each position, the one before all first
    reached = torch.matmul(attention, places.T).clamp(min=_TINY)  # (B, T, 1 + S)
    normalizer = ((1 - uniform) / reached).expand(-1, steps, -1)
    even = (uniform / attention.sum(dim=2, keepdim=True).clamp(min=_TINY)).expand(-1, steps, -1)
    reached, attention = reached.expand(-1, steps, -1), attention.expand(-1, steps, -1)
    largest = torch.maximum(weights.detach().amax(dim=2), null.detach()).clamp(min=_TINY)
    weights, null = weights / largest[:, :, None], null / largest

    # `last[p]` is the chance that the last real position so far is p, `at[s]` that this token is aligned to s.
    last = torch.cat([source.new_ones(batch, 1), source.new_zeros(batch, size)], dim=1)
    lasts, ats, stays, scales = [last], [], [], []
    for step in range(steps):
        real = target_real[:, step, None]
        move = torch.matmul(last * normalizer[:, step], places) + even[:, step] * last.sum(dim=1, keepdim=True)
        at, stay = move * weights[:, step], last * null[:, step, None]
        scale = (at.sum(dim=1, keepdim=True) + stay.sum(dim=1, keepdim=True)).clamp(min=_TINY)
        at, stay = at / scale, stay / scale
        last = torch.where(real, torch.cat([stay[:, :1], stay[:, 1:] + at], dim=1), last)
        lasts.append(last)
        ats.append(at)
        stays.append(stay)
        scales.append(torch.where(real, scale, 1.0))

    after = torch.ones_like(last)  # how well the rest is explained after each last position
    found, found_null = [], []
    counts = chances = None
    if count:
        counts, chances = torch.zeros_like(places), torch.zeros_like(places)
    for step in reversed(range(steps)):
        real = target_real[:, step, None]
        found.append(torch.where(real, ats[step] * after[:, 1:], 0.0))
        found_null.append(torch.where(real, stays[step] * after, 0.0).sum(dim=1))
        explained = weights[:, step] * after[:, 1:] / scales[step]
        jumped = torch.matmul(explained, places.T) * normalizer[:, step]
        if count:
            start = torch.where(real, lasts[step], 0.0)
            counts += torch.matmul((start * normalizer[:, step]).T, explained)
            chances += torch.matmul((start * jumped / reached[:, step]).T, attention[:, step])
        before = jumped + even[:, step] * explained.sum(dim=1, keepdim=True)
        after = torch.where(real, before + after * null[:, step, None] / scales[step], after)
    likelihood = torch.stack(scales).log().sum(dim=0)[:, 0] + torch.where(target_real, largest.log(), 0.0).sum(dim=1)
    posterior = torch.stack(found[::-1], dim=1), torch.stack(found_null[::-1], dim=1)
    if not count:
        return JumpPosterior(*posterior, likelihood)
    width = len(jumps) // 2
    index = _distances(size, width, jumps.device).flatten()
    tables = (weights.new_zeros(len(jumps)).index_add_(0, index, t.flatten()) for t in (counts * places, chances))
    return JumpPosterior(*posterior, likelihood, *(table.detach() for table in tables))


def initial_jumps(width: int) -> Tensor:
    """The table before anything is learned, float32: `exp(-|d - 1| / 1.5)`, the next position is the likeliest."""
    distances = torch.arange(-width, width + 1, dtype=torch.float32)
    return torch.exp(-(distances - 1).abs() / 1.5)


def learned_jumps(counts: Tensor, chances: Tensor) -> Tensor:
    """The next table of EM, its largest entry 1, (2 W + 1,).

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
    return jumps[_distances(size, len(jumps) // 2, jumps.device)]
