"""How `HMMAlignModel` learns: both directions align the text by their counts, and count what they agree on.

Agreement is the product of the two posteriors (Liang et al. 2006, sec. 3.2). Each pair is aligned by the counts of all
others (collapsed variational inference, CVB0: Asuncion et al. 2009, sec. 3.3).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

from hf_attncal.data.batching import padded
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional_jumps import learned_jumps
from hf_attncal.models.modeling_hmm_align import HMMAlignModel, unaligned_shares

from .settings import NotNegative, Positive

# Without jumps first: while the counts are even, a jump model would align everything along the diagonal.
ITERATIONS = (3, 6)
# Least count that a trained model keeps: below it the prior says as much.
_LEAST = 0.01
_CELLS = 500_000
_SAMPLE = 2000  # pairs that tell how long counting takes


@dataclass
class CountsConfig:
    """The aligner that counts, which comes first: its links guide the network.

    Args:
        guide: False: no such aligner; the network learns from nothing but the text, as in the paper.
        without_jumps, with_jumps: iterations over the text.
        link_above: tokens guide where the probability that both directions align them is above it.
    """

    guide: bool = True
    without_jumps: Positive = ITERATIONS[0]
    with_jumps: NotNegative = ITERATIONS[1]
    link_above: float = 0.1

    def __post_init__(self):
        if not 0 <= self.link_above <= 1:
            raise ValueError(f"`counts.link_above` must be in [0, 1], got {self.link_above}.")


@dataclass
class _Batch:
    """Pairs of similar length.

    Args:
        indices: which. source, target: tokens, (B, S) and (B, T). source_real, target_real: not padding.
        places: of each pair of tokens in the table, (B, T, S) int32; the last one, which has no count, at padding.
        shares: how much of each pair of tokens has been counted, (B, T, S) float16; None before the first time.
    """

    indices: list[int]
    source: Tensor
    target: Tensor
    source_real: Tensor
    target_real: Tensor
    places: Tensor
    shares: Tensor | None = None

    @property
    def cells(self) -> Tensor:
        return self.target_real.unsqueeze(2) & self.source_real.unsqueeze(1)


class CountLearner:
    """Expectation and maximisation over a tokenised text.

    Memory: about 6 bytes for each pair of tokens of each sentence pair (7 kB for a pair of 25 words), and 12 for each
    different one.

    Args:
        model: what learns; it must be fresh.
        sources, targets: tokens of each side of each pair, without special tokens; a pair with an empty side is
            passed over.
    """

    def __init__(self, model: HMMAlignModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]):
        self.model = model
        lengths = [*map(len, sources)], [*map(len, targets)]
        made = [self._batch(indices, sources, targets) for indices in _batches(*lengths)]
        if not made:
            raise ValueError("no sentence pair has tokens on both sides.")
        self.pairs = torch.cat([pairs for _, pairs in made]).unique()
        for batch, pairs in made:
            places = torch.searchsorted(self.pairs, pairs).int()
            batch.places = torch.where(batch.cells, places[batch.places.long()], len(self.pairs))
        self.batches = [batch for batch, _ in made]

    def run(self, iterations: tuple[int, int] = ITERATIONS, report: Callable[[int, Tensor], None] | None = None):
        """Learn, and leave the result in the model.

        Args:
            iterations: without jumps, and with them.
            report: called after each iteration with its number and the mean log-likelihood per token of both
                directions, (2,).
        """
        without, withs = iterations
        for number in range(without + withs):
            likelihood = self.step(jumps=number >= without, agree=number > 0, damped=number > without)
            if report:
                report(number + 1, likelihood)
        if not withs:
            self.model.config.uniform_jump = 1.0  # its table of jumps is the one that it began with
        self.keep(_LEAST)

    @torch.no_grad()
    def step(self, *, jumps: bool, agree: bool, damped: bool) -> Tensor:
        """One iteration over the text; see `run` for what it returns.

        Args:
            jumps: with the jump model, which learns as well.
            agree: count the product of the posteriors; else, while all are even, the mean.
            damped: go half the way: all pairs move at once, and would swing from one side to the other.
        """
        model = self.model
        counts = torch.zeros(len(self.pairs) + 1)
        null = {"source": torch.zeros_like(model.source_counts), "target": torch.zeros_like(model.target_counts)}
        tables = [[torch.zeros_like(model.forward_jumps) for _ in range(2)] for _ in range(2)]
        likelihood = torch.zeros(2, dtype=torch.double)
        for batch in self.batches:
            own = None if batch.shares is None else batch.shares.float()
            found = model.posteriors(
                self.counts[batch.places.long()] if own is not None else torch.zeros(batch.places.shape),
                batch.source, batch.target, batch.source_real, batch.target_real, own,
                None if jumps else 1.0, jumps,
            )  # fmt: skip
            forward, backward = found[0].weights, found[1].weights.mT
            shares = forward * backward if agree else (forward + backward) / 2
            if damped:
                shares = (shares + own) / 2
            batch.shares = shares.half()
            shares = batch.shares.float()
            counts.index_add_(0, batch.places.flatten().long(), shares.flatten())
            for side, dim in (("source", 1), ("target", 2)):
                ids, real = getattr(batch, side), getattr(batch, f"{side}_real")
                null[side].index_add_(0, ids[real], unaligned_shares(shares, real, dim)[real])
            for direction, totals in zip(found, tables, strict=True):
                if jumps:
                    totals[0] += direction.jumps
                    totals[1] += direction.chances
            likelihood += torch.tensor([float(direction.log_likelihood.sum()) for direction in found])
        counts[-1] = 0
        self.counts = counts
        model.source_counts.zero_().index_add_(0, self.pairs // model.config.vocab_size, counts[:-1])
        model.target_counts.zero_().index_add_(0, self.pairs % model.config.vocab_size, counts[:-1])
        model.source_null_counts.copy_(null["source"])
        model.target_null_counts.copy_(null["target"])
        if jumps:
            for table, counted in zip((model.forward_jumps, model.backward_jumps), tables, strict=True):
                table.copy_(learned_jumps(*counted))
        tokens = [
            sum(int(getattr(batch, f"{side}_real").sum()) for batch in self.batches) for side in ("target", "source")
        ]
        return likelihood / torch.tensor(tokens)

    def keep(self, least: float) -> None:
        """Give the model the counts that are at least so large."""
        kept = self.counts[:-1] >= least
        self.model.config.entries = int(kept.sum())
        self.model.pairs, self.model.counts = self.pairs[kept], self.counts[:-1][kept]

    def shares(self) -> Iterator[tuple[int, Tensor]]:
        """Each pair and the probability that two of its tokens are aligned in both directions, (T, S)."""
        for batch in self.batches:
            lengths = zip(batch.target_real.sum(dim=1).tolist(), batch.source_real.sum(dim=1).tolist(), strict=True)
            for index, shares, (target, source) in zip(batch.indices, batch.shares, lengths, strict=True):
                yield index, shares[:target, :source].float()

    def _batch(self, indices: list[int], sources, targets) -> tuple[_Batch, Tensor]:
        """A batch with places among its own pairs of tokens, and these, ascending."""
        (source, source_real), (target, target_real) = (
            padded([side[index] for index in indices], 0) for side in (sources, targets)
        )
        batch = _Batch(indices, source, target, source_real.bool(), target_real.bool(), torch.empty(0))
        # Found without sorting: a table over the few tokens that the batch has.
        sources, source = torch.unique(source, return_inverse=True)
        targets, target = torch.unique(target, return_inverse=True)
        keys = source.unsqueeze(1) * len(targets) + target.unsqueeze(2)
        table = torch.zeros(len(sources) * len(targets), dtype=torch.int32)
        table[keys[batch.cells]] = 1
        found = table.nonzero()[:, 0]
        table[found] = torch.arange(len(found), dtype=torch.int32)
        batch.places = table[keys]
        return batch, sources[found // len(targets)] * self.model.config.vocab_size + targets[found % len(targets)]


def learn_counts(
    text: Dataset, settings: CountsConfig, **fields: Any
) -> tuple[HMMAlignModel, CountLearner, dict[str, Any]]:
    """The model of a tokenised text, what taught it, and how long that took and how it went.

    Args:
        text: columns "input_ids" and "target_input_ids".
        settings: of the section `counts`.
        fields: of the model's configuration.
    """
    start = time.perf_counter()
    model = HMMAlignModel(HMMAlignConfig(**fields)).eval()
    learner = CountLearner(model, text["input_ids"], text["target_input_ids"])
    log: list[dict[str, Any]] = []

    def report(iteration: int, likelihood: Tensor) -> None:
        forward, backward = likelihood.tolist()
        log.append({"iteration": iteration, "forward_log_likelihood": forward, "backward_log_likelihood": backward})
        print(f"counts: iteration {iteration}, log-likelihood of a token {forward:.3f} and {backward:.3f}", flush=True)

    learner.run((settings.without_jumps, settings.with_jumps), report)
    return model, learner, {"wall_seconds": time.perf_counter() - start, "log_history": log}


def counted_links(
    text: Dataset, settings: CountsConfig, **fields: Any
) -> tuple[list[list[int]], HMMAlignModel, dict[str, Any]]:
    """Links between the tokens of each pair of a text by its own counts, and what `learn_counts` tells of them.

    Args: as of `learn_counts`.

    Returns:
        Source and target token of each link in turn, of each pair; the model; and how it went.
    """
    model, learner, counted = learn_counts(text, settings, **fields)
    links: list[list[int]] = [[]] * len(text)
    for index, shares in learner.shares():
        links[index] = (shares > settings.link_above).nonzero().flip(1).flatten().tolist()
    return links, model, counted


def counting_seconds(text: Dataset, settings: CountsConfig, **fields: Any) -> float:
    """About how long counting over a text takes, from a sample of its pairs; `fields` as of `learn_counts`."""
    sample = text.select(range(0, len(text), -(-len(text) // _SAMPLE)))
    began = time.monotonic()
    learner = CountLearner(HMMAlignModel(HMMAlignConfig(**fields)), sample["input_ids"], sample["target_input_ids"])
    learner.run((settings.without_jumps, settings.with_jumps))
    return (time.monotonic() - began) * len(text) / len(sample)


def _batches(sources: list[int], targets: list[int]) -> Iterator[list[int]]:
    """Indices of pairs of similar length, of at most `_CELLS` pairs of tokens with padding."""
    batch: list[int] = []
    longest = 0, 0
    for index in sorted(range(len(sources)), key=lambda index: (sources[index], targets[index])):
        if not (sources[index] and targets[index]):
            continue
        wider = max(longest[0], sources[index]), max(longest[1], targets[index])
        if batch and (len(batch) + 1) * wider[0] * wider[1] > _CELLS:
            yield batch
            batch, wider = [], (sources[index], targets[index])
        batch.append(index)
        longest = wider
    if batch:
        yield batch
