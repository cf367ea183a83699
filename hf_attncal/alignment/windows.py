"""Long lines: cut where nothing crosses, and read in windows that follow each other where they exceed the model."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

Window = tuple[slice, slice]

# Chosen on three dev sets, joined and not. A part has so many tokens on each side at least,
_LEAST_TOKENS = 8
# and less than half a link leads out of it.
_MOST_CROSSING = 0.5
# Of cuts that as many links cross, that nearest to the diagonal is taken: a token off it weighs so many links.
_DRIFT = 0.01


def cut_pair(forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor) -> list[Window]:
    """Return the parts (source slice, target slice) of a line that nothing links to each other, such as its sentences.

    Parts follow each other on both sides. From the left, each begins at the first target word where that is possible:
    where the weights that cross, of both directions (their geometric mean), sum to less than half a link.

    Args:
        forward: weights (target, source) of the whole line.
        backward: (source, target).
        source_starts: (source,) bool: a word begins here, so the line may be cut before it.
        target_starts: (target,) bool.

    Returns:
        One part, the whole line, where it cannot be cut.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    possible = (crossing[:-1, :-1] < _MOST_CROSSING) & target_starts[:, None] & source_starts
    cuts = [(0, 0)]
    for row in possible.any(dim=1).nonzero()[:, 0].tolist():
        first, last = cuts[-1][1] + _LEAST_TOKENS, source - _LEAST_TOKENS
        if row - cuts[-1][0] < _LEAST_TOKENS or target - row < _LEAST_TOKENS or first > last:
            continue
        columns = torch.where(possible[row], crossing[row, :-1], torch.inf)[first : last + 1]
        if columns.min() < _MOST_CROSSING:
            cuts.append((row, first + int(columns.argmin())))
    return [(slice(i, next_i), slice(j, next_j)) for (j, i), (next_j, next_i) in pairwise([*cuts, (target, source)])]


def end_of_window(
    forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor, left: tuple[int, int]
) -> tuple[int, int]:
    """Return how much of a window is read, as (source, target) tokens: the next window begins there.

    The fewest links cross there. Of a side that goes on behind the window, the last eighth is not read: its partners
    may be outside. Of one such side at least half is read. A side that ends in the window keeps a token for what is
    left of the other. No word is split, unless nothing else can be.

    Args:
        forward: weights (target, source) of the window. backward: (source, target).
        source_starts: (source,) bool: a word begins here. target_starts: (target,) bool.
        left: source and target tokens of the line from the beginning of the window on; more than in the window on one
            side at least.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    rows, columns = torch.arange(target + 1)[:, None], torch.arange(source + 1)
    crossing += _DRIFT * (rows * left[0] - columns * left[1]).abs() / max(left)
    enough, allowed, whole_words = [], torch.tensor(True), torch.tensor(True)
    for places, size, all_left, starts in (
        (columns, source, left[0], source_starts),
        (rows, target, left[1], target_starts),
    ):
        if size < all_left:
            enough.append(places >= (size + 1) // 2)
            allowed = allowed & (places <= max(1, size * 7 // 8))
        else:
            allowed = allowed & (places < size)
        whole_words = whole_words & F.pad(starts, (0, 1))[places]
    allowed = allowed & (enough[0] if len(enough) == 1 else enough[0] | enough[1])
    if (allowed & whole_words).any():
        allowed = allowed & whole_words
    row, column = divmod(int(torch.where(allowed, crossing, torch.inf).argmin()), source + 1)
    return column, row


def _crossing(forward: Tensor, backward: Tensor) -> Tensor:
    """Return the weight of the links that cross a cut before each row and column, (target + 1, source + 1).

    That is of the first rows with the later columns, and of the later rows with the first columns. It is on the CPU.
    """
    before = torch.zeros(*(size + 1 for size in forward.shape), dtype=torch.double)
    before[1:, 1:] = (forward * backward.mT).sqrt().cpu().double().cumsum(0).cumsum(1)
    return (before[:, -1:] - before) + (before[-1:, :] - before)
