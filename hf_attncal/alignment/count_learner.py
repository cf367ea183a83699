"""How `HMMAlignModel` learns: both directions align a text by their counts, and count what they agree on.

Agreement is the product of the two posteriors (Liang et al. 2006, sec. 3.2). Each pair is aligned by the counts of all
others (collapsed variational inference, CVB0: Asuncion et al. 2009, sec. 3.3).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.batching import padded
from hf_attncal.models.functional_jumps import learned_jumps
from hf_attncal.models.hmm_tables import HMMTablesMixin, unaligned_shares

from .belief import Witness

# Without jumps first: while the counts are even, a jump model would align everything along the diagonal.
ITERATIONS = (3, 6)
IDENTICAL = 0.1  # count of a token and itself before anything is counted
# Least count that a trained model keeps: below it the prior says as much.
_LEAST = 0.01
ONCE = 0.5  # a pair of tokens with a smaller count was probably never linked
_CELLS, _STEP = 500_000, 6  # pairs of tokens of a batch, and by how many source tokens its pairs may differ at first
# Pairs of tokens of a sentence pair: of more, no sentence, parts of so many are read.
_UNCUT, _PART = 400 * 400, 128 * 128
_KEPT = 1 << 28
_MERGED_AT_ONCE = 1 << 25
_JUMPS = ("forward_jumps", "backward_jumps")
_TABLES = ("source_counts", "target_counts", "source_null_counts", "target_null_counts")


Tokens = Sequence[Sequence[int] | np.ndarray]  # of each sentence


class _Batch:
    """Pairs of similar length, and their pairs of tokens.

    Args:
        rows: tokens of each side of each pair. vocab_size: of both.

    Attributes:
        source, target: tokens, (B, S) and (B, T). source_real, target_real: not padding.
        pairs: pairs of tokens as numbers, source * V + target, ascending, each once, (N,).
        places: place among them of each pair of tokens of a sentence pair, (B, T, S) int32; N at padding.
    """

    def __init__(self, rows: Sequence[tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]], vocab_size: int):
        (source, source_real), (target, target_real) = (padded(side, 0) for side in zip(*rows, strict=True))
        self.source, self.target = source, target
        self.source_real, self.target_real = source_real.bool(), target_real.bool()
        cells = self.target_real.unsqueeze(2) & self.source_real.unsqueeze(1)
        # Found without sorting: a table over the few tokens that the batch has.
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
    """Alignment shares of the cells of each batch, as float16 in a file without a name.

    Args:
        sizes: cells of each batch. folder: where the file is; None for that of temporary files.
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
    """Expectation and maximisation over a tokenised text.

    Memory: 16 bytes for each different pair of tokens, and the tokens themselves. Of each pair of tokens of each
    sentence pair 2 bytes are on the disk, 1.3 kB for a pair of 25 words; up to `_KEPT` of them stay in memory, too,
    which saves half of the time.

    Args:
        model: what learns. What it has counted before is the prior of what it counts now; a fresh one has none.
        sources, targets: tokens of each side of each pair, without special tokens; a pair with an empty side is
            passed over, and one that is far too long for a sentence is read in parts along its diagonal.
        folder: folder in which a file may be as long as the learner is there; None for that of temporary files.
        witness: what an encoder knows of the pairs; None for nothing.
    """

    def __init__(
        self,
        model: HMMTablesMixin,
        sources: Tokens,
        targets: Tokens,
        folder: str | Path | None = None,
        witness: Witness | None = None,
    ):
        lengths = [np.fromiter(map(len, side), dtype=np.int64, count=len(side)) for side in (sources, targets)]
        self._parts: dict[int, tuple[int, ...]] = {}
        self._size = len(sources)
        if witness is None:  # which knows of whole pairs
            (sources, targets), self._parts = _in_parts(sources, targets, *lengths)
        self._pairs_of_rows = torch.arange(len(sources))
        for part, (pair, *_) in self._parts.items():
            if part >= 0:
                self._pairs_of_rows[part] = pair
        if self._parts:
            lengths = [np.fromiter(map(len, side), dtype=np.int64, count=len(side)) for side in (sources, targets)]
        self.model, self._witness = model, witness
        self._sides = sources, targets
        self.batches = list(_batches(*lengths))
        if not self.batches:
            raise ValueError("no sentence pair has tokens on both sides.")
        sizes = [_cells(rows, *lengths) for rows in self.batches]
        self._tokens = torch.tensor([sum(int(side[rows].sum()) for rows in self.batches) for side in lengths[::-1]])
        self._done, self._learned = np.cumsum(sizes, dtype=np.int64), False
        self._kept = list(self._made()) if sum(sizes) <= _KEPT else None
        self.pairs = _merged(batch.pairs for batch in self._read())
        self.counts = torch.zeros(len(self.pairs))
        self._weights = torch.ones(len(sources))
        self._known = model.counts_of_pairs(self.pairs)
        self._prior = model.pairs, model.counts
        self._before: dict[str, Tensor] = {name: getattr(model, name).clone() for name in _TABLES}
        self._shares = _Shares(sizes, folder)

    def weigh(self, weights: Tensor) -> None:
        """Set what a link of each pair counts beside those that were counted before, (pairs,)."""
        self._weights = weights[self._pairs_of_rows]

    def unknown(self) -> tuple[Tensor, Tensor]:
        """Return how many tokens of each pair were never counted with one of the other side, and how many it has."""
        unknown, total = torch.zeros(2, len(self._sides[0]))
        for rows, batch in zip(self.batches, self._read(), strict=True):
            known = F.pad(self._known[self._places(batch)], (0, 1))[batch.places.long()]
            for dim, real in ((2, batch.target_real), (1, batch.source_real)):
                unknown[rows] += ((known.amax(dim) < ONCE) & real).sum(1)
                total[rows] += real.sum(1)
        of_pairs = torch.zeros(2, self._size).index_add_(1, self._pairs_of_rows, torch.stack([unknown, total]))
        return of_pairs[0], of_pairs[1]

    def run(
        self,
        iterations: tuple[int, int] = ITERATIONS,
        report: Callable[[int, Tensor], tuple[int, int] | None] | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        """Learn, and leave the result in the model.

        Args:
            iterations: without jumps, and with them.
            report: called after each iteration with its number and the mean log-likelihood per token of both
                directions, (2,); may return other `iterations`.
            progress: called now and then with the number of an iteration and the share of it that is done.
        """
        number, (without, withs) = 0, iterations
        while number < without + withs:
            told = partial(progress, number + 1) if progress else None
            likelihood = self.step(jumps=number >= without, agree=number > 0, damped=number > without, progress=told)
            number += 1
            if report:
                without, withs = report(number, likelihood) or (without, withs)
        if not withs:
            self.model.config.uniform_jump = 1.0  # its table of jumps is the one that it began with
        self.keep()

    @torch.no_grad()
    def step(
        self, *, jumps: bool, agree: bool, damped: bool, progress: Callable[[float], None] | None = None
    ) -> Tensor:
        """Do one iteration over the text; return the mean log-likelihood per token of both directions, (2,).

        Args:
            jumps: use the jump model, which learns as well.
            agree: count the product of the posteriors; else, while all are even, the mean.
            damped: go half the way: all pairs move at once, and would swing from one side to the other.
            progress: called with the share of the iteration that is done.
        """
        model = self.model
        counts = torch.zeros(len(self.pairs))
        null = {side: torch.zeros_like(self._before[f"{side}_counts"]) for side in ("source", "target")}
        jump_tables: list[Tensor] = [getattr(model, name) for name in _JUMPS]
        expected = [[torch.zeros_like(table), torch.zeros_like(table)] for table in jump_tables]
        likelihood = torch.zeros(2, dtype=torch.double)
        for number, (rows, batch) in enumerate(zip(self.batches, self._read(), strict=True)):
            places, weight = self._places(batch), self._weights[rows]
            known = F.pad(self._known[places] + self.counts[places], (0, 1))  # nothing at padding
            own = self._shares.read(number, batch.places.shape).float() if self._learned else None
            found = model.posteriors(
                known[batch.places.long()], batch.source, batch.target, batch.source_real, batch.target_real, own,
                None if jumps else 1.0, jumps, weight,
                None if self._witness is None else self._witness.factor(self.batches[number]),
            )  # fmt: skip
            forward, backward = found[0].weights, found[1].weights.mT
            shares = forward * backward if agree else (forward + backward) / 2
            if damped and own is not None:
                shares = (shares + own) / 2
            shares = shares.half()
            self._shares.write(number, shares)
            shares = shares.float()
            if self._witness is not None:
                self._witness.count(self.batches[number], shares)
            for side, dim in (("source", 1), ("target", 2)):
                ids, real = getattr(batch, side), getattr(batch, f"{side}_real")
                without = weight[:, None] * unaligned_shares(shares, real, dim)
                null[side].index_add_(0, ids[real], without[real])
            shares *= weight[:, None, None]
            counted = torch.zeros(len(known)).index_add_(0, batch.places.flatten(), shares.flatten())
            counts[places] += counted[:-1]
            for direction, totals in zip(found, expected, strict=True):
                if direction.jumps is not None and direction.chances is not None:
                    totals[0] += direction.jumps
                    totals[1] += direction.chances
            likelihood += torch.tensor([float(direction.log_likelihood.sum()) for direction in found])
            if progress:
                progress(self._done[number] / self._done[-1])
        self.counts, self._learned, size = counts, True, model.config.vocab_size
        if self._witness is not None:
            self._witness.learn()
        tokens = {"source": self.pairs // size, "target": self.pairs % size}
        for side, unaligned in null.items():
            linked, without_link = f"{side}_counts", f"{side}_null_counts"
            getattr(model, linked).copy_(self._before[linked]).index_add_(0, tokens[side], counts)
            torch.add(self._before[without_link], unaligned, out=getattr(model, without_link))
        if jumps:
            for table, (jumped, chances) in zip(jump_tables, expected, strict=True):
                table.lerp_(learned_jumps(jumped, chances), float(self._weights.mean()))
        return likelihood / self._tokens

    def keep(self, least: float = _LEAST) -> None:
        """Give the model the counts that are at least so large, beside those that it had before."""
        model, kept = self.model, self.counts >= least
        pairs, places = torch.cat([self._prior[0], self.pairs[kept]]).unique(return_inverse=True)
        counts = torch.cat([self._prior[1], self.counts[kept]])
        model.pairs, model.counts = pairs, torch.zeros(len(pairs)).index_add_(0, places, counts)
        model.config.entries = len(pairs)

    def shares(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the index of each pair and the probability that both directions align its tokens, (T, S)."""
        wholes: dict[int, Tensor] = {}
        for part, of_part in self._shares_of_parts():
            row, *firsts = self._parts.get(part, (part,))
            if not firsts:
                yield row, of_part
                continue
            target, source = firsts[1], firsts[0]
            whole = wholes.setdefault(row, torch.zeros(self._parts[-1 - row][::-1]))
            whole[target : target + of_part.shape[0], source : source + of_part.shape[1]] = of_part
        yield from wholes.items()

    def _shares_of_parts(self) -> Iterator[tuple[int, Tensor]]:
        for number, rows in enumerate(self.batches):
            sources, targets = ([len(side[row]) for row in rows] for side in self._sides)
            shares = self._shares.read(number, (len(rows), max(targets), max(sources)))
            for row, of_pair, target, source in zip(rows.tolist(), shares, targets, sources, strict=True):
                yield row, of_pair[:target, :source].float()

    def _read(self) -> Iterable[_Batch]:
        return self._made() if self._kept is None else self._kept

    def _places(self, batch: _Batch) -> Tensor:
        """Return the places of a batch's pairs of tokens in the table, (N,)."""
        if batch.in_table is None:
            batch.in_table = torch.searchsorted(self.pairs, batch.pairs, out_int32=True)
        return batch.in_table

    def _made(self) -> Iterator[_Batch]:
        sources, targets = self._sides
        for rows in self.batches:
            yield _Batch([(sources[row], targets[row]) for row in rows], self.model.config.vocab_size)


def _in_parts(
    sources: Tokens,
    targets: Tokens,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
) -> tuple[tuple[Tokens, Tokens], dict[int, tuple[int, ...]]]:
    """Cut pairs of more than `_UNCUT` pairs of tokens along the diagonal: time grows with the cube of a line.

    Returns:
        The sides. Where any is cut: of each part its pair, and its first source and target token; and of each pair
        that is cut, by -1 - its number, how many tokens both sides have.
    """
    long = np.nonzero(source_lengths * target_lengths > _UNCUT)[0].tolist()
    if not long:
        return (sources, targets), {}
    cut: tuple[list, list] = list(sources), list(targets)
    parts: dict[int, tuple[int, ...]] = {}
    for row in long:
        source, target = sources[row], targets[row]
        parts[-1 - row] = sizes = len(source), len(target)
        number = min(*sizes, math.isqrt(sizes[0] * sizes[1] // _PART) + 1)
        edges = [(size * place // number for place in range(number + 1)) for size in sizes]
        for part, ((first, second), (last, stop)) in enumerate(pairwise(zip(*edges, strict=True))):
            place = row if part == 0 else len(cut[0])
            if part:
                cut[0].append(source[first:last])
                cut[1].append(target[second:stop])
            else:
                cut[0][row], cut[1][row] = source[first:last], target[second:stop]
            parts[place] = row, first, second
    return cut, parts


def _cells(rows: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray) -> int:
    """Return the pairs of tokens of a batch, with padding."""
    return len(rows) * int(source_lengths[rows].max()) * int(target_lengths[rows].max())


def _merged(found: Iterable[Tensor]) -> Tensor:
    """Return all numbers in the tensors, each once, ascending."""
    known, waiting, size = torch.empty(0, dtype=torch.long), [], 0
    for tensor in found:
        waiting.append(tensor)
        size += len(tensor)
        if size > max(_MERGED_AT_ONCE, len(known)):
            known, waiting, size = torch.cat([known, *waiting]).unique(), [], 0
    return torch.cat([known, *waiting]).unique()


def _batches(sources: np.ndarray, targets: np.ndarray) -> Iterator[np.ndarray]:
    """Yield indices of pairs of similar length, with at most `_CELLS` pairs of tokens including padding."""
    # By source length in steps, and by target length up and down in turn: neighbours are alike in both.
    steps = sources // _STEP
    order = np.lexsort((sources, np.where(steps % 2, -targets, targets), steps))
    order = order[(sources[order] > 0) & (targets[order] > 0)]
    start, longest = 0, (0, 0)
    for stop, lengths in enumerate(zip(sources[order].tolist(), targets[order].tolist(), strict=True)):
        source, target = map(max, longest, lengths)
        if stop > start and (stop + 1 - start) * source * target > _CELLS:
            yield order[start:stop]
            start, (source, target) = stop, lengths
        longest = source, target
    if len(order):
        yield order[start:]


# ---- the text at hand ----

# `c'(x, y) = c(x, y) + sum_n w_n a_n(x, y)`: c are the counts of the training, a_n the shares of pair n in the passes
# over this text (without its own counts, damped, agreement as a product). w_n follows from how much of the pair is
# new, so that known pairs of a mixed text teach little, and are aligned as before.

PASSES = 4
# Of a text of the training's domain, a tenth of the tokens were never counted with a token of the other side; of
# another domain a fifth, of another kind of text a half. The weight of a pair rises from 0 to 1 between these.
KNOWN, NEW = 0.15, 0.5


@dataclass(frozen=True)
class Adaptation:
    """How far an aligner was adapted.

    Args:
        pairs: pairs that were read.
        unknown: share of their tokens that were never counted with a token of the other side before.
        weight: what a link of the text counts, from 0 (nothing has changed) to 1 (as much as one of the training): the
            mean over its tokens.
    """

    pairs: int
    unknown: float
    weight: float


def adapt_counts(
    model: HMMTablesMixin,
    sources: Tokens,
    targets: Tokens,
    weight: float | None = None,
    passes: int = PASSES,
) -> Adaptation:
    """Count over a tokenised text with what the model knows as the prior, and leave the result in the model.

    Args:
        model: in any type and on any device; its counts are float32 afterwards.
        sources, targets: tokens of each side of each pair.
        weight: what a link counts, in [0, 1]; None: as much as of its pair is new.
        passes: times that the text is read, >= 1.

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
    learner = CountLearner(model, sources, targets)
    unknown, tokens = learner.unknown()
    share = float(unknown.sum() / tokens.sum())
    if weight is None and share <= KNOWN:  # a known text has odd pairs, too, and is aligned as before
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
        learner.keep()
    model.to(device)
    return Adaptation(len(sources), share, mean)
