"""Search for the heads of a cross-attention whose mean attends to linked source words: of an observer, or to align."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_NOISE = 2.0  # standard errors by which other heads must be better


class HeadPlace(NamedTuple):
    """Head of a cross-attention, and the step of a target token: the one that reads it (`shift`), or predicts it."""

    layer: int
    head: int
    shift: bool

    def __str__(self) -> str:
        step = "reads" if self.shift else "predicts"
        return f"layer {self.layer}, head {self.head} (counted from 0), at the step that {step} a token"


Places = tuple[HeadPlace, ...]


class LinkedWeights(NamedTuple):
    """Weights of heads for N target words or tokens, and the worth of links.

    Args:
        weights: weights of the source, (..., N, S).
        links: worth of a link to source s for target n, (N, S); 0 where there is none.
    """

    weights: Tensor
    links: Tensor


def hits(text: LinkedWeights) -> Tensor:
    """Return the worth of the link to the source with the most weight, (..., N); without weight there is no link."""
    most, best = text.weights.max(dim=-1)
    return text.links[torch.arange(len(text.links)), best] * (most > 0)


def grown(chosen: Places, places: Places, text: Sequence[LinkedWeights]) -> dict[Places, Tensor]:
    """Add places while they improve the mean of the weights by more than noise.

    Args:
        chosen: places to begin with.
        places: places of the weights.
        text: weights of these places, (places, N, S), and links.

    Returns:
        The hits of each set from `chosen` to the last one, in this order.
    """
    sets: dict[Places, Tensor] = {}
    while True:
        indices = [places.index(place) for place in chosen]
        totals = [of.weights[indices].sum(dim=0) for of in text]
        larger = torch.cat([hits(LinkedWeights(t + w, links)) for t, (w, links) in zip(totals, text, strict=True)], -1)
        options = {(*chosen, place): row for place, row in zip(places, larger, strict=True) if place not in chosen}
        if chosen:
            sets[chosen] = set_hits(chosen, places, text)
            options = {chosen: sets[chosen]} | options
        best = better_set(options)
        if best == chosen:
            return sets
        chosen = best


def set_hits(chosen: Places, places: Places, text: Sequence[LinkedWeights]) -> Tensor:
    """Return the hits of the mean of the chosen places, (N,)."""
    indices = [places.index(place) for place in chosen]
    return torch.cat([hits(LinkedWeights(of.weights[indices].sum(dim=0), of.links)) for of in text])


def better_set(sets: Mapping[Places, Tensor]) -> Places:
    """Return the set with the most hits; the first one unless another is better by more than noise."""
    first, best = next(iter(sets)), max(sets, key=lambda places: float(sets[places].sum()))
    differences = sets[best].double() - sets[first].double()
    return best if differences.sum() > _NOISE * differences.square().sum().sqrt() else first
