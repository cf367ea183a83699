"""Read pairs as if an aligner that counts had not learned from them.

A rare word of a text that was counted knows its partner from that very line, and a rare word of any other text does
not. A check that learned from the first would take the second for made up.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.models.hmm_tables import unaligned_shares

_NOT_COUNTED = 0.02  # share of the links of pairs, from which on they were not among what was counted
Words = tuple[Sequence[str], Sequence[str]]


@contextmanager
@torch.no_grad()
def without(aligner: WordAligner, pairs: Sequence[Words]) -> Iterator[None]:
    """Take what some pairs have taught out of the counts of an aligner, until the block ends.

    Nothing is taken out of an aligner without counts, or of one that did not learn from these pairs.

    Args:
        aligner: as `WordAligner.from_pretrained` loads it.
        pairs: (source words, target words) as the aligner takes them.
    """
    model = aligner.model
    if not hasattr(model, "counts_of"):
        yield
        return
    size, names = model.config.vocab_size, ("source", "target")
    before = {name: table.clone() for name, table in model.named_buffers()}
    less = {name: torch.zeros_like(table, dtype=torch.float32) for name, table in before.items()}
    keys, shares = [], []
    for _, weights in aligner.source.weights(pairs, 256, 4096):
        own = (weights.forward * weights.backward.mT).float()
        tokens = weights.source_tokens, weights.target_tokens
        real = [ids != words for ids, words in (weights.source_words, weights.target_words)]
        cells = real[1].unsqueeze(2) & real[0].unsqueeze(1)
        keys.append((tokens[0].unsqueeze(1) * size + tokens[1].unsqueeze(2))[cells])
        shares.append(own[cells])
        for name, side, ids, dim in zip(names, real, tokens, (1, 2), strict=True):
            less[f"{name}_counts"].index_add_(0, ids[side], own.sum(dim)[side])
            less[f"{name}_null_counts"].index_add_(0, ids[side], unaligned_shares(own, side, dim)[side])
    keys, shares = torch.cat(keys), torch.cat(shares)
    places = torch.searchsorted(model.pairs, keys).clamp(max=len(model.pairs) - 1)
    counted = model.pairs[places] == keys
    if shares[~counted].sum() < _NOT_COUNTED * shares.sum():
        less["counts"].index_add_(0, places[counted], shares[counted])
        for name, table in model.named_buffers():
            if name.endswith("counts"):
                table.copy_((before[name].float() - less[name]).clamp(min=0))
    try:
        yield
    finally:
        for name, table in model.named_buffers():
            table.copy_(before[name])
