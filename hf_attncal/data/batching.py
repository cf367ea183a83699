"""Batches of sentences of similar length with a bounded number of tokens, and padding."""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler


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


class TokenBatchSampler(Sampler[list[int]]):
    """Sampler that draws every example once per epoch, in batches of at most `max_tokens` tokens with padding.

    The cost of a batch is its number of examples times the longest side of any of them: the size of the larger of its
    two padded tensors. Examples are sorted by that length, equal lengths in a new random order every epoch. They are
    cut greedily into batches, and the batches are shuffled. The sorted lengths, and so the cuts, are the same in every
    epoch. So `len()` never changes, as a Trainer expects that computes its number of steps once.

    Batches depend only on `seed` and the epoch, so all processes draw the same ones.

    It works as `DataLoader(batch_sampler=...)` under accelerate: `batch_size` is None, so its `BatchSamplerShard`
    allows varying sizes, and accelerate's `set_epoch` passes through that wrapper by `sampler`. After a resume in
    several processes the wrapping is too deep for that (`SkipBatchSampler` over `BatchSamplerShard`): add
    `training.token_batches.SetEpochCallback`.

    Args:
        lengths: number of tokens of the longer side, (N,), or of source and target, (N, 2).
        max_tokens: maximum cost of a batch.
        seed: seed of the order of examples and batches. Default: 0.
        shuffle: True to shuffle. False: the same batches every epoch, short examples first. Default: True.
        multiple_of: divisor of the number of batches (processes times accumulation steps). The batches with most
            examples are halved until it divides, so no example is lost or repeated. Default: 1.

    Raises:
        ValueError: no examples, a length below 1, an example longer than `max_tokens`, or fewer examples than
            batches.
    """

    batch_size = None
    drop_last = False

    def __init__(
        self,
        lengths: Sequence[int] | Sequence[tuple[int, int]] | np.ndarray,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        multiple_of: int = 1,
    ) -> None:
        longest = np.asarray(lengths, dtype=np.int64)
        if longest.ndim == 2:
            longest = longest.max(axis=1)
        if not longest.size:
            raise ValueError("`lengths` must not be empty: there are no examples to put into batches.")
        if longest.min() < 1:
            raise ValueError(f"`lengths` must be >= 1, got {longest.min()} for example {longest.argmin()}.")
        if longest.max() > max_tokens:
            raise ValueError(
                f"`max_tokens` must be at least the longest example, got {max_tokens} but example {longest.argmax()} "
                f"has {longest.max()} tokens. Raise `max_tokens` or lower the `max_length` of tokenisation."
            )
        if multiple_of < 1:
            raise ValueError(f"`multiple_of` must be >= 1, got {multiple_of}.")
        self.longest, self.max_tokens, self.seed, self.shuffle = longest, max_tokens, seed, shuffle
        self.multiple_of, self.epoch = multiple_of, 0
        self.spans = _split_to_multiple(_cut(np.sort(longest), max_tokens), multiple_of)

    @property
    def sampler(self) -> "TokenBatchSampler":
        """Return itself: accelerate looks for `set_epoch` on the `sampler` of a wrapped batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[list[int]]:
        if not self.shuffle:
            order = np.argsort(self.longest, kind="stable")
            yield from (order[start:end].tolist() for start, end in self.spans)
            return
        random = np.random.default_rng([self.seed, self.epoch])
        order = np.lexsort((random.permutation(len(self.longest)), self.longest))
        for index in random.permutation(len(self.spans)):
            start, end = self.spans[index]
            yield order[start:end].tolist()


def _cut(lengths: np.ndarray, max_tokens: int) -> list[tuple[int, int]]:
    """Cut ascending lengths greedily into [start, end) spans whose size times last length is at most `max_tokens`."""
    spans, start = [], 0
    for end, length in enumerate(lengths.tolist()):
        if (end + 1 - start) * length > max_tokens:
            spans.append((start, end))
            start = end
    return [*spans, (start, len(lengths))]


def _split_to_multiple(spans: list[tuple[int, int]], multiple_of: int) -> list[tuple[int, int]]:
    """Halve the spans with most examples until the number of spans is a multiple of `multiple_of`."""
    missing = -len(spans) % multiple_of
    heap = [(start - end, start, end) for start, end in spans]
    heapq.heapify(heap)
    for _ in range(missing):
        negative_size, start, end = heap[0]
        if negative_size == -1:
            raise ValueError(
                f"`multiple_of` is {multiple_of}, but there are only {len(heap)} examples: give more examples, or use "
                "fewer processes and accumulation steps."
            )
        middle = (start + end) // 2
        heapq.heapreplace(heap, (start - middle, start, middle))
        heapq.heappush(heap, (middle - end, middle, end))
    return sorted((start, end) for _, start, end in heap)
