"""Batches of sentences of similar length with a bounded number of tokens, and padding."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> tuple[Tensor, Tensor]:
    """Pad rows of integers on the right into one tensor on the CPU.

    Args:
        rows: one or more rows.
        value: padding value.

    Returns:
        Rows, (batch, longest) int64, and their mask, (batch, longest) int64, 1 for tokens and 0 for padding.
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    filled = np.full(mask.shape, value, dtype=np.int64)
    filled[mask] = np.concatenate(rows)
    return torch.from_numpy(filled), torch.from_numpy(mask.astype(np.int64))


def beginning(row: list, longest: int | None) -> list:
    """Truncate a row of tokens, but keep its last entry, the end of the sentence.

    Args:
        row: entries of the tokens of a text.
        longest: maximum number of entries. None: no limit.
    """
    return row if longest is None or len(row) <= longest else [*row[: longest - 1], row[-1]]


def batches_by_length(
    lengths: Sequence[int] | Sequence[tuple[int, ...]], batch_size: int | None = None, max_tokens: int | None = None
) -> Iterator[list[int]]:
    """Yield every example once, in batches of similar length, longest first: a shortage of memory shows at once.

    This is for inference, where the order is free. Training uses `TokenBatchSampler`.

    Args:
        lengths: number of tokens of each example, or of each of its sides.
        batch_size: maximum number of examples in a batch. None: no limit.
        max_tokens: maximum number of tokens in a batch, all sides and padding included. A longer example forms a
            batch of its own. None: no limit.

    Yields:
        Indices of examples. Examples of equal length stay in order.
    """
    sides = [length if isinstance(length, tuple) else (length,) for length in lengths]
    batch: list[int] = []
    longest: tuple[int, ...] = ()
    for index in sorted(range(len(sides)), key=lambda index: (sum(sides[index]), sides[index]), reverse=True):
        wider = tuple(map(max, longest, sides[index])) if batch else sides[index]
        if batch and (
            len(batch) == batch_size or (max_tokens is not None and (len(batch) + 1) * sum(wider) > max_tokens)
        ):
            yield batch
            batch, wider = [], sides[index]
        batch.append(index)
        longest = wider
    if batch:
        yield batch
