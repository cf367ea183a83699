"""Batches: sentences of similar length with a bounded number of tokens, and what fills up the shorter ones."""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import TrainerCallback


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> tuple[Tensor, Tensor]:
    """One right-padded tensor of rows of different lengths, on the CPU.

    Args:
        rows: at least one row of whole numbers.
        value: what fills up the shorter rows.

    Returns:
        (batch, longest) int64 of the rows, and (batch, longest) int64 with 1 where there is a row and 0 behind it.
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    filled = np.full(mask.shape, value, dtype=np.int64)
    filled[mask] = np.concatenate(rows)
    return torch.from_numpy(filled), torch.from_numpy(mask.astype(np.int64))


def beginning(row: list, longest: int | None) -> list:
    """The first tokens of a text, or what belongs to them, and the last, which ends it; `longest` at most.

    Args:
        row: of the whole text.
        longest: None for no such limit.
    """
    return row if longest is None or len(row) <= longest else [*row[: longest - 1], row[-1]]


def batches_by_length(
    lengths: Sequence[int] | Sequence[tuple[int, ...]], batch_size: int | None = None, max_tokens: int | None = None
) -> Iterator[list[int]]:
    """Every example once, in batches of similar length, the longest first: a shortage of memory shows at once.

    For inference, where the order is free but nothing is drawn; training takes `TokenBatchSampler`.

    Args:
        lengths: tokens of each example, or of each of its sides.
        batch_size: most examples in a batch; None for no such limit.
        max_tokens: most tokens in a batch, all sides and padding included; None for no such limit. An example over it
            makes a batch of its own.

    Yields:
        Indices of examples; of equally long ones the first comes first.
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
    """Batch sampler: every example once per epoch, in batches of at most `max_tokens` tokens with padding.

    The cost of a batch is its number of examples times the longest side of any of them, what the larger of its two
    padded tensors holds. Examples are sorted by that length, those of equal length in a new random order every epoch;
    the sorted lengths are cut greedily and the batches shuffled. As the sorted lengths are the same in every epoch, so
    are the cuts: `len()` never changes, which a Trainer that computes its number of steps once relies on.

    Everything depends on `seed` and the epoch alone, so all processes draw the same batches.

    Works as `DataLoader(batch_sampler=...)` under accelerate: `batch_size` is None, the sign of varying sizes for its
    `BatchSamplerShard`, and `sampler` leads accelerate's `set_epoch` through that wrapper. After a resume in several
    processes both wrap it too deep for them (`SkipBatchSampler` over `BatchSamplerShard`): add `SetEpochCallback`.

    Args:
        lengths: (N,) tokens of the longer side, or (N, 2) of source and target.
        max_tokens: largest cost of a batch.
        seed: of the order of examples and batches.
        shuffle: False gives the same batches every time, short examples first.
        multiple_of: the number of batches is made a multiple of it (processes times accumulation steps) by halving
            the batches with most examples: no example is lost or repeated.

    Raises:
        ValueError: no examples, a length below 1, an example longer than `max_tokens`, or fewer examples than the
            batches that `multiple_of` asks for.
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
            raise ValueError("`lengths` must not be empty: there is no example to put into batches.")
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
        """Itself: accelerate looks for `set_epoch` on the `sampler` of a wrapped batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the order that the next iteration draws."""
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


class SetEpochCallback(TrainerCallback):
    """Tells a batch sampler the epoch, however deep the Trainer's data loader has wrapped it.

    Needed for several processes that resume inside an epoch: neither transformers 5.23 nor accelerate 1.15 reach the
    sampler then, and without it the resumed epoch would skip batches of epoch 0's order.
    """

    def __init__(self, sampler: TokenBatchSampler) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))


def _cut(lengths: np.ndarray, max_tokens: int) -> list[tuple[int, int]]:
    """Greedy [start, end) spans of ascending lengths whose size times last length is at most `max_tokens`."""
    spans, start = [], 0
    for end, length in enumerate(lengths.tolist()):
        if (end + 1 - start) * length > max_tokens:
            spans.append((start, end))
            start = end
    return [*spans, (start, len(lengths))]


def _split_to_multiple(spans: list[tuple[int, int]], multiple_of: int) -> list[tuple[int, int]]:
    """Halve the spans with most examples until their number is a multiple."""
    missing = -len(spans) % multiple_of
    heap = [(start - end, start, end) for start, end in spans]
    heapq.heapify(heap)
    for _ in range(missing):
        negative_size, start, end = heap[0]
        if negative_size == -1:
            raise ValueError(
                f"`multiple_of` is {multiple_of}, but only {len(heap)} examples are there to share out: "
                "give more examples, or use fewer processes and accumulation steps."
            )
        middle = (start + end) // 2
        heapq.heapreplace(heap, (start - middle, start, middle))
        heapq.heappush(heap, (middle - end, middle, end))
    return sorted((start, end) for _, start, end in heap)
