# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tables of the statistical (HMM) word aligner, and the alignment of sentence pairs by them.

`HMMAlignModel` makes them a model of transformers. Importing transformers takes longer than aligning a short text, so
nothing here needs it: `HMMTables` aligns alone.
Shapes use B = batch, S = source tokens, T = target tokens, V = vocabulary, N = pairs of tokens with a count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .functional_jumps import JumpPosterior, initial_jumps, jump_posterior
from .limits import check_ids

# p(a token given itself) if one of the sides never had it, so that there are no counts: a word of the other language
# or a new name. Otherwise a frequent Japanese word on both sides would go to NULL, as it does in translations. Chosen
# on dev, where translations score the same up to 0.1.
COPIED = 0.5
# Cells of padding, for each token of a sentence, that cost as much as the step that is saved by reading both
# directions at once.
_PADDED = 2000


@dataclass(kw_only=True)
class CountFields:
    """Fields of `HMMAlignConfig`; see there."""

    model_type: ClassVar[str] = "hmm_align"

    vocab_size: int = 16000
    entries: int = 0
    max_jump: int = 40
    uniform_jump: float | int = 0.1
    null_probability: float | int = 0.1
    lexical_prior: float | int = 0.001
    identical_prior: float | int = 0.0
    max_position_embeddings: int = 1024
    alignment_threshold: float | int = 0.5
    symmetrization: str = "harmonic"
    lowercase: bool = False
    tokenize: bool = False
    fold_words: bool = False
    pad_token_id: int | None = 0


class HMMAlignments(NamedTuple):
    """Fields of `HMMAlignOutput`."""

    forward_attention: Tensor
    backward_attention: Tensor
    forward_null: Tensor
    backward_null: Tensor
    log_likelihood: Tensor


def predictive(counts: Tensor, totals: Tensor, prior: float, vocab_size: int) -> Tensor:
    """Return `(n(x, y) + alpha) / (n(x) + alpha V)`: a Dirichlet prior's prediction after counts n, all one shape."""
    return (counts.clamp(min=0) + prior) / (totals.clamp(min=0) + prior * vocab_size)


def unaligned_shares(shares: Tensor, real: Tensor, dim: int) -> Tensor:
    """Return the unaligned share of each token of one side, which is NULL's; 0 at padding.

    Args:
        shares: aligned share of each pair of tokens, (B, T, S).
        real: True for tokens other than padding.
        dim: dimension of the other side. The mean of two directions may give a token more than 1.
    """
    return torch.where(real, 1 - shares.sum(dim=dim), 0.0).clamp(min=0)


if TYPE_CHECKING:  # at run time the mixin goes before a module
    from torch.nn import Module
else:
    Module = object


class HMMTablesMixin(Module):
    """Tables and equations of a module with the attribute `config`, whose fields are `CountFields`."""

    config: Any
    pairs: Tensor
    counts: Tensor
    source_counts: Tensor
    forward_jumps: Tensor
    backward_jumps: Tensor

    def _make_tables(self) -> None:
        config = self.config
        # Pairs of tokens, source * V + target, ascending; a float32 could not hold them.
        self.register_buffer("pairs", torch.zeros(config.entries, dtype=torch.long))
        self.register_buffer("counts", torch.zeros(config.entries))
        for side in ("source", "target"):
            self.register_buffer(f"{side}_counts", torch.zeros(config.vocab_size))
            self.register_buffer(f"{side}_null_counts", torch.zeros(config.vocab_size))
        for direction in ("forward", "backward"):
            self.register_buffer(f"{direction}_jumps", initial_jumps(config.max_jump).to(self.counts))

    @torch.no_grad()
    def check_tables(self) -> None:
        """Check that the tables can result from counting.

        Raises:
            ValueError: pairs of tokens that are not ascending or not of the vocabulary, a number below 0, or counts of
                a source token that sum up to far more than its own count; the message names the table.
        """
        size, remedy = self.config.vocab_size, "The checkpoint is damaged: fetch or train it again."
        for name, table in self.named_buffers():
            if table.is_meta:
                return
            if table.numel() and table.min() < 0:
                raise ValueError(f"`{name}` must be >= 0, got {table.min()}. {remedy}")
        if not len(self.pairs) or not (self.pairs.any() or self.counts.any()):  # nothing was counted yet
            return
        if self.pairs[-1] >= size * size or not (self.pairs[1:] > self.pairs[:-1]).all():
            raise ValueError(f"`pairs` must ascend, and be below {size} * {size}. {remedy}")
        # Entries below a threshold were left out, and sums in float32 are not exact.
        ends = torch.searchsorted(self.pairs, torch.arange(size + 1, device=self.pairs.device) * size)
        sums = torch.segment_reduce(self.counts.float(), "sum", lengths=ends.diff())
        if (sums > 2 * self.source_counts + 1).any():
            raise ValueError(f"`counts` of a token have a higher sum than its entry in `source_counts`. {remedy}")

    @property
    def device(self) -> torch.device:
        return self.counts.device  # transformers looks at parameters

    @property
    def dtype(self) -> torch.dtype:
        return self.counts.dtype

    @torch.no_grad()
    def aligned(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        target_input_ids: Tensor | None,
        target_attention_mask: Tensor | None,
        factor: Tensor | None = None,
    ) -> HMMAlignments:
        """Align the tokens of sentence pairs; see `HMMAlignModel.forward`."""
        source = check_ids(input_ids, "input_ids")
        target = check_ids(target_input_ids, "target_input_ids")
        source_real, target_real = (
            torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
            for ids, mask in ((source, attention_mask), (target, target_attention_mask))
        )
        counts = self.counts_of(source, target)
        forward, backward = self.posteriors(counts, source, target, source_real, target_real, factor=factor)
        likelihood = torch.stack([forward.log_likelihood, backward.log_likelihood], dim=1)
        return HMMAlignments(forward.weights, backward.weights, forward.null, backward.null, likelihood)

    def counts_of(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the counts of each source token (B, S) with each target token (B, T): (B, T, S)."""
        (sources, source), (targets, target) = (ids.unique(return_inverse=True) for ids in (source, target))
        size = self.config.vocab_size
        # First all counts with these source tokens, then the entries of these target tokens among them.
        first, stop = torch.searchsorted(self.pairs, torch.stack([sources, sources + 1]) * size)
        if (stop - first).sum() > 4 * source.shape[1] * target.numel():  # few pairs, one after the other
            return self.counts_of_pairs(sources[source].unsqueeze(1) * size + targets[target].unsqueeze(2))
        row = torch.repeat_interleave(stop - first)
        entry = torch.arange(len(row), device=row.device) - ((stop - first).cumsum(0) - stop)[row]
        column = torch.full((size,), len(targets), device=row.device)
        column[targets] = torch.arange(len(targets), device=row.device)
        table = self.counts.new_zeros(len(sources), len(targets) + 1)
        table[row, column[self.pairs[entry] - (sources * size)[row]]] = self.counts[entry]
        table[:, -1] = 0
        return table.flatten()[source.unsqueeze(1) * (len(targets) + 1) + target.unsqueeze(2)]

    def counts_of_pairs(self, keys: Tensor) -> Tensor:
        """Return the counts of pairs of tokens, source * V + target, in the shape of `keys`."""
        if not len(self.pairs):
            return self.counts.new_zeros(keys.shape)
        places = torch.searchsorted(self.pairs, keys).clamp(max=len(self.pairs) - 1)
        return torch.where(self.pairs[places] == keys, self.counts[places], 0.0)

    @torch.no_grad()
    def posteriors(
        self,
        counts: Tensor,
        source: Tensor,
        target: Tensor,
        source_real: Tensor,
        target_real: Tensor,
        own: Tensor | None = None,
        uniform: float | None = None,
        count: bool = False,
        weight: float | Tensor = 1.0,
        factor: Tensor | None = None,
    ) -> tuple[JumpPosterior, JumpPosterior]:
        """Run the forward-backward pass in both directions, (B, T, S) and (B, S, T).

        Args:
            counts: counts of the pairs of tokens, (B, T, S).
            source, target: tokens, (B, S) and (B, T).
            source_real, target_real: True for tokens other than padding.
            own: shares of these sentence pairs in the counts, (B, T, S). They are subtracted, as in collapsed
                variational inference (Asuncion et al. 2009, CVB0). Otherwise a rare word would explain its own
                sentence, and attract all tokens that nothing else explains.
            uniform: share of uniform jumps. Default: None, the configuration's.
            count: see `jump_posterior`.
            weight: factor of `own`: a number, or one for each pair, (B,). Default: 1.
            factor: factor of the emissions from real positions (not NULL), (B, T, S). Default: None, 1.
        """
        counts = counts.to(torch.promote_types(counts.dtype, torch.float32))
        own_back, factor_back = (None if cells is None else cells.mT for cells in (own, factor))
        directions = (
            (counts, own, factor, source, target, source_real, target_real, "source", "target"),
            (counts.mT, own_back, factor_back, target, source, target_real, source_real, "target", "source"),
        )
        uniform = self.config.uniform_jump if uniform is None else uniform
        emissions = [self._emissions(*direction, weight) for direction in directions]
        jumps = [table.to(counts.dtype) for table in (self.forward_jumps, self.backward_jumps)]
        (batch, rows, columns), size = counts.shape, max(counts.shape[1:])
        if uniform == 1 or batch * (size * size - rows * columns) > _PADDED * min(rows, columns):
            reals = (target_real, source_real), (source_real, target_real)
            each = zip(emissions, jumps, reals, strict=True)
            forward, backward = (jump_posterior(*one, table, *real, uniform, count) for one, table, real in each)
            return forward, backward
        # Both directions at once take half the steps.
        weights = torch.cat([F.pad(one, (0, size - one.shape[2], 0, size - one.shape[1])) for one, _ in emissions])
        null, targets, sources = (
            torch.cat([F.pad(one, (0, size - one.shape[1])) for one in both])
            for both in ([null for _, null in emissions], (target_real, source_real), (source_real, target_real))
        )
        posterior = jump_posterior(weights, null, torch.stack(jumps), targets, sources, uniform, count)
        tables: Iterable[tuple[Tensor, ...]] = ((), ())
        if posterior.jumps is not None and posterior.chances is not None:
            tables = zip(posterior.jumps, posterior.chances, strict=True)
        parts = ((slice(batch), rows, columns), (slice(batch, None), columns, rows))
        forward, backward = (
            JumpPosterior(
                posterior.weights[some, :t, :s], posterior.null[some, :t], posterior.log_likelihood[some], *counted
            )
            for (some, t, s), counted in zip(parts, tables, strict=True)
        )
        return forward, backward

    def _foreign(self, side: str, tokens: Tensor, real: Tensor) -> Tensor:
        """Return True for real tokens that a side never had in training, False everywhere before training."""
        counted = getattr(self, f"{side}_counts") + getattr(self, f"{side}_null_counts")
        return (counted[tokens] == 0) & real & counted.any()

    def _emissions(
        self, counts, own, factor, given, predicted, given_real, predicted_real, given_side, side, weight
    ) -> tuple[Tensor, Tensor]:
        """Return the probabilities of tokens `predicted` given each of `given`, (B, T, S), and given NULL, (B, T)."""
        config, dtype = self.config, counts.dtype
        prior, size, null = config.lexical_prior, config.vocab_size, config.null_probability
        if config.identical_prior:
            counts = counts + config.identical_prior * (given.unsqueeze(1) == predicted.unsqueeze(2)).to(dtype)
        totals = getattr(self, f"{given_side}_counts").to(dtype)[given] + config.identical_prior
        null_counts = getattr(self, f"{side}_null_counts").to(dtype)
        null_counts, null_total = null_counts[predicted], null_counts.sum()
        if own is not None:
            weight = torch.as_tensor(weight, dtype=dtype).reshape(-1, 1)  # one weight per pair, or one for all
            unaligned = weight * unaligned_shares(own, predicted_real, dim=2)
            own = weight.unsqueeze(2) * own
            counts, totals = counts - own, totals - own.sum(dim=1)
            null_counts, null_total = null_counts - unaligned, null_total - unaligned
        weights = predictive(counts, totals.unsqueeze(1), prior, size)
        if config.identical_prior:
            new = self._foreign(side, predicted, predicted_real), self._foreign(given_side, given, given_real)
            if new[0].any() or new[1].any():
                copied = (new[0].unsqueeze(2) | new[1].unsqueeze(1)) & (given.unsqueeze(1) == predicted.unsqueeze(2))
                weights = weights.masked_fill(copied, COPIED)
        if factor is not None:
            weights = weights * factor
        from_null = predictive(null_counts, null_total, prior, size)
        return (1 - null) * weights, null * from_null


class HMMTables(HMMTablesMixin, nn.Module):
    """Tables that align without transformers.

    Args:
        config: object with the fields of `HMMAlignConfig`.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self._make_tables()

    alignments = HMMTablesMixin.aligned
