"""Expectation maximisation of `HMMAlignModel`: both directions align a text, and their agreement is counted.

Agreement is the product of the two posteriors (Liang et al. 2006, sec. 3.2). Each pair is aligned by the counts of all
other pairs (collapsed variational inference, CVB0: Asuncion et al. 2009, sec. 3.3).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.batching import padded
from hf_attncal.models.functional_jumps import learned_jumps
from hf_attncal.models.hmm_tables import HMMTablesMixin, unaligned_shares

from .likelihood_ratio import EncoderFactors
from .sources import ADAPTATION_PASSES, Adaptation

# Iterations without and with jumps. While the counts are even, jumps would align everything along the diagonal.
ITERATIONS = (3, 6)
IDENTICAL = 0.1  # prior count of a token and itself
_MIN_COUNT = 0.01  # smaller counts are dropped from a trained model, as the prior has the same effect
ONCE = 0.5  # a pair of tokens with a smaller count was probably never linked
_BATCH_CELLS, _LENGTH_STEP = 500_000, 6  # pairs of tokens per batch, and the step of source lengths in sorting
# A sentence pair with more pairs of words than the first is cut into parts of about the second.
_MAX_UNCUT_CELLS, _CELLS_OF_PART = 320 * 320, 100 * 100
_MAX_CELLS_IN_MEMORY = 1 << 28
_MERGED_AT_ONCE = 1 << 25
_JUMPS = ("forward_jumps", "backward_jumps")
_TABLES = ("source_counts", "target_counts", "source_null_counts", "target_null_counts")


Tokens = Sequence[Sequence[int] | np.ndarray]  # token ids of each sentence
Side = TypeVar("Side", tuple[str, ...], Sequence[int] | np.ndarray)


class _Batch:
    """Sentence pairs of similar length, and their pairs of tokens.

    Args:
        rows: Source and target tokens of each pair.
        vocab_size: Size of the vocabulary.

    Attributes:
        source, target: Tokens, (B, S) and (B, T).
        source_real, target_real: False at padding.
        pairs: Unique pairs of tokens as numbers, source * V + target, ascending, (N,).
        places: Index in `pairs` of each cell, (B, T, S) int32; N at padding.
    """

    def __init__(self, rows: Sequence[tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]], vocab_size: int):
        (source, source_real), (target, target_real) = (padded(side, 0) for side in zip(*rows, strict=True))
        self.source, self.target = source, target
        self.source_real, self.target_real = source_real.bool(), target_real.bool()
        cells = self.target_real.unsqueeze(2) & self.source_real.unsqueeze(1)
        # A table over the few tokens of the batch is faster than sorting.
        sources, source = torch.unique(source, return_inverse=True)
        targets, target = torch.unique(target, return_inverse=True)
        keys = source.unsqueeze(1) * len(targets) + target.unsqueeze(2)
        table = torch.zeros(len(sources) * len(targets), dtype=torch.int32)
        table[keys[cells]] = 1
        present = table.nonzero()[:, 0]
        table[present] = torch.arange(len(present), dtype=torch.int32)
        self.pairs = sources[present // len(targets)] * vocab_size + targets[present % len(targets)]
        self.in_table: Tensor | None = None
        self.places = table[keys].masked_fill_(~cells, len(present))


class _Shares:
    """Link probabilities of the cells of each batch, in an anonymous file of float16.

    Args:
        sizes: Number of cells of each batch.
        folder: Folder of the file; None for the temporary folder.
    """

    def __init__(self, sizes: Sequence[int], folder: str | Path | None):
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) * 2
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115

    def read(self, number: int, shape: tuple[int, ...]) -> Tensor:
        shares = np.empty(shape, np.float16)
        self._file.seek(self._starts[number])
        self._file.readinto(shares.data)
        return torch.from_numpy(shares)

    def write(self, number: int, shares: Tensor) -> None:
        self._file.seek(self._starts[number])
        self._file.write(shares.contiguous().numpy().data)


class CountLearner:
    """Expectation maximisation over a tokenised text.

    Memory: 16 bytes per different pair of tokens, and the tokens themselves. Disk: 2 bytes per cell, 1.3 kB for a pair
    of 25 words. The batches of a text with at most `_MAX_CELLS_IN_MEMORY` cells also stay in memory, which halves the
    time.

    Args:
        model: Model to train. Its counts are the prior of the new counts.
        sources, targets: Tokens of each side of each pair, without special tokens. Pairs with an empty side are
            skipped. The time of a pair grows with the cube of its length, see `parts_of_pair`.
        folder: Folder of a temporary file. Default: None, the system's.
        encoder_factors: Emission factors from an encoder. Default: None.
    """

    def __init__(
        self,
        model: HMMTablesMixin,
        sources: Tokens,
        targets: Tokens,
        folder: str | Path | None = None,
        encoder_factors: EncoderFactors | None = None,
    ):
        lengths = [np.fromiter(map(len, side), dtype=np.int64, count=len(side)) for side in (sources, targets)]
        self.model, self._encoder_factors = model, encoder_factors
        self._sides = sources, targets
        self.batches = list(_batches(*lengths))
        if not self.batches:
            raise ValueError("no sentence pair has tokens on both sides.")
        sizes = [_cells(rows, *lengths) for rows in self.batches]
        self._tokens = torch.tensor([sum(int(side[rows].sum()) for rows in self.batches) for side in lengths[::-1]])
        self._done, self._learned = np.cumsum(sizes, dtype=np.int64), False
        self._in_memory = list(self._create_batches()) if sum(sizes) <= _MAX_CELLS_IN_MEMORY else None
        self.pairs = _merged(batch.pairs for batch in self._read())
        self.counts = torch.zeros(len(self.pairs))
        self._weights = torch.ones(len(sources))
        self._prior_counts = model.counts_of_pairs(self.pairs)
        self._prior = model.pairs, model.counts
        self._before: dict[str, Tensor] = {name: getattr(model, name).clone() for name in _TABLES}
        self._shares = _Shares(sizes, folder)

    def weigh(self, weights: Tensor) -> None:
        """Set the weight of the links of each pair, (pairs,)."""
        self._weights = weights

    def unknown(self) -> tuple[Tensor, Tensor]:
        """Return each pair's number of tokens never counted with a token of the other side, and number of tokens."""
        unknown, total = torch.zeros(2, len(self._sides[0]))
        for rows, batch in zip(self.batches, self._read(), strict=True):
            counts = F.pad(self._prior_counts[self._places(batch)], (0, 1))[batch.places.long()]
            for dim, real in ((2, batch.target_real), (1, batch.source_real)):
                unknown[rows] += ((counts.amax(dim) < ONCE) & real).sum(1)
                total[rows] += real.sum(1)
        return unknown, total

    def run(
        self,
        iterations: tuple[int, int] = ITERATIONS,
        report: Callable[[int, Tensor], tuple[int, int] | None] | None = None,
    ) -> None:
        """Train the model.

        Args:
            iterations: Number of iterations without and with jumps. Default: `ITERATIONS`.
            report: Callback after each iteration with its number and the mean log-likelihood per token of both
                directions, (2,); it may return new `iterations`. Default: None.
        """
        number, (without_jumps, with_jumps) = 0, iterations
        while number < without_jumps + with_jumps:
            likelihood = self.step(jumps=number >= without_jumps, agree=number > 0, damped=number > without_jumps)
            number += 1
            if report:
                without_jumps, with_jumps = report(number, likelihood) or (without_jumps, with_jumps)
        if not with_jumps:
            self.model.config.uniform_jump = 1.0  # the table of jumps was not trained
        self.finish()

    @torch.no_grad()
    def step(self, *, jumps: bool, agree: bool, damped: bool) -> Tensor:
        """Do one iteration over the text; return the mean log-likelihood per token of both directions, (2,).

        Args:
            jumps: Use and train the jump model.
            agree: Count the product of the posteriors; else their mean, for the first iteration.
            damped: Average with the last iteration, because all pairs are updated at once and would oscillate.
        """
        model = self.model
        counts = torch.zeros(len(self.pairs))
        null = {side: torch.zeros_like(self._before[f"{side}_counts"]) for side in ("source", "target")}
        jump_tables: list[Tensor] = [getattr(model, name) for name in _JUMPS]
        expected = [[torch.zeros_like(table), torch.zeros_like(table)] for table in jump_tables]
        likelihood = torch.zeros(2, dtype=torch.double)
        for number, (rows, batch) in enumerate(zip(self.batches, self._read(), strict=True)):
            places, weight = self._places(batch), self._weights[rows]
            padded_counts = F.pad(self._prior_counts[places] + self.counts[places], (0, 1))
            own = self._shares.read(number, batch.places.shape).float() if self._learned else None
            directions = model.posteriors(
                padded_counts[batch.places.long()], batch.source, batch.target, batch.source_real, batch.target_real,
                own, None if jumps else 1.0, jumps, weight, None if self._encoder_factors is None else
                self._encoder_factors.factor(self.batches[number]),
            )  # fmt: skip
            forward, backward = directions[0].weights, directions[1].weights.mT
            shares = forward * backward if agree else (forward + backward) / 2
            if damped and own is not None:
                shares = (shares + own) / 2
            shares = shares.half()
            self._shares.write(number, shares)
            shares = shares.float()
            if self._encoder_factors is not None:
                self._encoder_factors.count(self.batches[number], shares)
            for side, dim in (("source", 1), ("target", 2)):
                ids, real = getattr(batch, side), getattr(batch, f"{side}_real")
                unaligned = weight[:, None] * unaligned_shares(shares, real, dim)
                null[side].index_add_(0, ids[real], unaligned[real])
            shares *= weight[:, None, None]
            counted = torch.zeros(len(padded_counts)).index_add_(0, batch.places.flatten(), shares.flatten())
            counts[places] += counted[:-1]
            for direction, totals in zip(directions, expected, strict=True):
                if direction.jumps is not None and direction.chances is not None:
                    totals[0] += direction.jumps
                    totals[1] += direction.chances
            likelihood += torch.tensor([float(direction.log_likelihood.sum()) for direction in directions])
        self.counts, self._learned, size = counts, True, model.config.vocab_size
        if self._encoder_factors is not None:
            self._encoder_factors.learn()
        tokens = {"source": self.pairs // size, "target": self.pairs % size}
        for side, unaligned in null.items():
            linked, without_link = f"{side}_counts", f"{side}_null_counts"
            getattr(model, linked).copy_(self._before[linked]).index_add_(0, tokens[side], counts)
            torch.add(self._before[without_link], unaligned, out=getattr(model, without_link))
        if jumps:
            for table, (jumped, chances) in zip(jump_tables, expected, strict=True):
                table.lerp_(learned_jumps(jumped, chances), float(self._weights.mean()))
        return likelihood / self._tokens

    def finish(self, min_count: float = _MIN_COUNT) -> None:
        """Add the new counts of at least `min_count` to the model's counts."""
        model, large = self.model, self.counts >= min_count
        pairs, places = torch.cat([self._prior[0], self.pairs[large]]).unique(return_inverse=True)
        counts = torch.cat([self._prior[1], self.counts[large]])
        model.pairs, model.counts = pairs, torch.zeros(len(pairs)).index_add_(0, places, counts)
        model.config.entries = len(pairs)

    def shares(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the index of each pair and the link probabilities of its tokens, (T, S)."""
        for number, rows in enumerate(self.batches):
            sources, targets = ([len(side[row]) for row in rows] for side in self._sides)
            shares = self._shares.read(number, (len(rows), max(targets), max(sources)))
            for row, of_pair, target, source in zip(rows.tolist(), shares, targets, sources, strict=True):
                yield row, of_pair[:target, :source].float()

    def _read(self) -> Iterable[_Batch]:
        return self._create_batches() if self._in_memory is None else self._in_memory

    def _places(self, batch: _Batch) -> Tensor:
        """Return the indices of a batch's pairs of tokens in `self.pairs`, (N,)."""
        if batch.in_table is None:
            batch.in_table = torch.searchsorted(self.pairs, batch.pairs, out_int32=True)
        return batch.in_table

    def _create_batches(self) -> Iterator[_Batch]:
        sources, targets = self._sides
        for rows in self.batches:
            yield _Batch([(sources[row], targets[row]) for row in rows], self.model.config.vocab_size)


def parts_of_pair(source: Side, target: Side) -> list[tuple[Side, Side]]:
    """Cut a very long pair into parts along the diagonal, because the time of counting grows with its cube."""
    cells, number = len(source) * len(target), 1
    if cells > _MAX_UNCUT_CELLS:
        number = min(len(source), len(target), math.isqrt(cells // _CELLS_OF_PART) + 1)
    edges = [[len(side) * part // number for part in range(number + 1)] for side in (source, target)]
    return [(source[i:next_i], target[j:next_j]) for (i, j), (next_i, next_j) in pairwise(zip(*edges, strict=True))]


def _cells(rows: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray) -> int:
    """Return the number of cells of a batch, including padding."""
    return len(rows) * int(source_lengths[rows].max()) * int(target_lengths[rows].max())


def _merged(tensors: Iterable[Tensor]) -> Tensor:
    """Return the unique numbers of all tensors, ascending."""
    unique, waiting, size = torch.empty(0, dtype=torch.long), [], 0
    for tensor in tensors:
        waiting.append(tensor)
        size += len(tensor)
        if size > max(_MERGED_AT_ONCE, len(unique)):
            unique, waiting, size = torch.cat([unique, *waiting]).unique(), [], 0
    return torch.cat([unique, *waiting]).unique()


def _batches(sources: np.ndarray, targets: np.ndarray) -> Iterator[np.ndarray]:
    """Yield indices of pairs of similar length, with at most `_BATCH_CELLS` cells including padding."""
    # Sorted by steps of source length, with alternating order of target length, so that neighbours are similar in
    # both.
    steps = sources // _LENGTH_STEP
    order = np.lexsort((sources, np.where(steps % 2, -targets, targets), steps))
    order = order[(sources[order] > 0) & (targets[order] > 0)]
    start, longest = 0, (0, 0)
    for stop, lengths in enumerate(zip(sources[order].tolist(), targets[order].tolist(), strict=True)):
        source, target = map(max, longest, lengths)
        if stop > start and (stop + 1 - start) * source * target > _BATCH_CELLS:
            yield order[start:stop]
            start, (source, target) = stop, lengths
        longest = source, target
    if len(order):
        yield order[start:]


# ---- adaptation ----

# `c'(x, y) = c(x, y) + sum_n w_n a_n(x, y)`: c are the counts of the training, a_n the link probabilities of pair n in
# the passes over the new text. w_n depends on the share of unknown tokens, so that known pairs have little weight and
# are aligned as before.

# Share of tokens never counted with a token of the other side: a tenth in the training domain, a fifth in another
# domain, a half in another kind of text. The weight of a pair rises from 0 to 1 between these limits.
KNOWN, NEW = 0.15, 0.5


def adapt_counts(
    model: HMMTablesMixin,
    sources: Tokens,
    targets: Tokens,
    weight: float | None = None,
    passes: int = ADAPTATION_PASSES,
) -> Adaptation:
    """Adapt the counts of a model to a tokenised text.

    Args:
        model: Model on any device; its counts are float32 afterwards.
        sources, targets: Tokens of each side of each pair.
        weight: Weight of a link, in [0, 1]. Default: None, by the share of unknown tokens of its pair.
        passes: Number of passes over the text, at least 1. Default: 4.

    Raises:
        ValueError: a setting out of range.
    """
    if passes < 1:
        raise ValueError(f"`passes` must be >= 1, got {passes}.")
    if weight is not None and not 0 <= weight <= 1:
        raise ValueError(f"`weight` must be from 0 to 1 or None, got {weight}.")
    if not any(len(source) and len(target) for source, target in zip(sources, targets, strict=True)):
        return Adaptation(len(sources), 0.0, 0.0)
    device = model.device
    model.to("cpu", torch.float32)
    pairs = zip(sources, targets, strict=True)
    parts = [part for source, target in pairs for part in parts_of_pair(source, target)]
    learner = CountLearner(model, [source for source, _ in parts], [target for _, target in parts])
    unknown, tokens = learner.unknown()
    share = float(unknown.sum() / tokens.sum())
    if weight is None and share <= KNOWN:  # a few unusual pairs do not change a known text
        weight = 0.0
    if weight is None:
        weights = ((unknown / tokens.clamp(min=1) - KNOWN) / (NEW - KNOWN)).clamp(0, 1)
        mean = float(weights @ tokens / tokens.sum())
    else:
        weights, mean = torch.full_like(unknown, weight), weight
    if mean > 0:
        learner.weigh(weights)
        model.config.identical_prior = max(model.config.identical_prior, IDENTICAL)
        for number in range(passes):
            learner.step(jumps=model.config.uniform_jump < 1, agree=True, damped=number > 0)
        learner.finish()
    model.to(device)
    return Adaptation(len(sources), share, mean)
