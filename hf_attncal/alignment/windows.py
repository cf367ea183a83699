"""Long lines: cut where nothing crosses, or read in overlapping windows whose weights are put together."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

Window = tuple[slice, slice]

# Chosen on three dev sets, joined and not. A part has so many tokens on each side at least,
_LEAST_TOKENS = 8
# and less than half a link leads out of it.
_MOST_CROSSING = 0.5


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
    before = forward.new_zeros(target + 1, source + 1, dtype=torch.double)
    before[1:, 1:] = (forward * backward.mT).sqrt().double().cumsum(0).cumsum(1)
    # Of the first rows with the later columns, and of the later rows with the first columns.
    crossing = (before[:, -1:] - before) + (before[-1:, :] - before)
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


def window_slices(length: int, size: int) -> list[slice]:
    """Return windows of at most `size` positions that cover `length` positions, evenly spread.

    Neighbours share at least a quarter of a window (where `size` > 1).
    """
    if length <= size:
        return [slice(0, length)]
    stride = max(1, size - -(-size // 4))
    steps = -(-(length - size) // stride)
    starts = [step * (length - size) // steps for step in range(steps + 1)]
    return [slice(start, start + size) for start in starts]


def pair_windows(source_length: int, target_length: int, size: int) -> list[Window]:
    """Return windows (source slice, target slice) along the diagonal of a pair, at most `size` positions a side.

    A source and a target window go together where they overlap once both sides are stretched to the same length:
    source position i corresponds to target position i * target_length / source_length. So every position of either
    side is read together with what corresponds to it and with its neighbourhood, and the number of windows grows with
    the length, not with its square. A pair that fits makes one window.
    """
    return [
        (source, target)
        for source in window_slices(source_length, size)
        for target in window_slices(target_length, size)
        if source.start * target_length < target.stop * source_length
        and target.start * source_length < source.stop * target_length
    ]


def merge_windows(
    windows: Iterable[tuple[slice, slice, Tensor, Tensor]], rows: int, columns: int
) -> tuple[Tensor, Tensor]:
    """Return the weights of a whole pair in one direction from those of its windows.

    A cell gets the mean over the windows that contain it, and a NULL probability the mean over the windows that
    contain its row. In a window that lacks the right partner a row gives its mass to NULL or elsewhere, so row and
    NULL together may then exceed 1: they are divided by their sum. A cell that no window contains is 0.

    Args:
        windows: (rows, columns, weights (rows, columns), NULL probabilities (rows)) of every window.
        rows: number of rows of the pair.
        columns: number of columns of the pair.

    Returns:
        Weights (rows, columns) and NULL probabilities (rows); each row and its NULL sum to at most 1.
    """
    windows = list(windows)
    like = windows[0][2]
    weights, cells = like.new_zeros(rows, columns), like.new_zeros(rows, columns)
    null, visits = like.new_zeros(rows), like.new_zeros(rows)
    for row, column, window_weights, window_null in windows:
        weights[row, column] += window_weights
        cells[row, column] += 1
        null[row] += window_null
        visits[row] += 1
    weights /= cells.clamp(min=1)
    null /= visits.clamp(min=1)
    total = torch.clamp(weights.sum(dim=1) + null, min=1)
    return weights / total[:, None], null / total
