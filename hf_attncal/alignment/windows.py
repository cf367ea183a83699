"""Overlapping windows over sentence pairs that are longer than a model can read, and their weights put together."""

from collections.abc import Iterable

import torch
from torch import Tensor

Window = tuple[slice, slice]


def window_slices(length: int, size: int) -> list[slice]:
    """Windows of at most `size` positions that cover `length` positions, evenly spread.

    Neighbours share at least a quarter of a window (where `size` > 1).
    """
    if length <= size:
        return [slice(0, length)]
    stride = max(1, size - -(-size // 4))
    steps = -(-(length - size) // stride)
    starts = [step * (length - size) // steps for step in range(steps + 1)]
    return [slice(start, start + size) for start in starts]


def pair_windows(source_length: int, target_length: int, size: int) -> list[Window]:
    """Windows (source slice, target slice) along the diagonal of a pair, each side of at most `size` positions.

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
    """The weights of a whole pair in one direction from those of its windows.

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
