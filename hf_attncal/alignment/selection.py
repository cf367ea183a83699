"""Which attention of an encoder-decoder aligns best: a search on annotated pairs."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hf_attncal.data.pharaoh import GoldAlignment, check_index_base
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate

from .links import argmax_links
from .seq2seq import Seq2SeqAttention, between_words, check_weights, read_weights


def select_attention(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldAlignment],
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    weights: str = "attention",
) -> list[tuple[Seq2SeqAttention, AlignmentScore]]:
    """Try every layer, both Naive-Att and Shift-Att, and several sets of heads on annotated pairs.

    The sets of heads are all, each alone, and a greedy one: the best head, then again and again the head that lowers
    the error most, until none does. Every target word is linked to the source word with the largest weight. The
    attention is computed once and kept between words: 4 bytes x 2 x layers x heads x words x words for each pair.

    Args:
        model, tokenizer, sources, targets, batch_size: see `seq2seq_weights`.
        gold: annotated links of every pair. Use other pairs than those that are reported on.
        source_prefix, weights: see `Seq2SeqAttention`.

    Returns:
        Settings and their score, the lowest alignment error rate first; of equals lower layers, Naive-Att and larger
        sets of heads come first.

    Raises:
        ValueError: see `read_pairs`; also annotations that do not fit the pairs, or no pair with words.
    """
    check_weights(weights)
    check_index_base(gold, [(len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=False)])
    readable: list[int] = []
    words: list[Tensor | None] = [None] * len(sources)  # (2, layers, heads, target words, source words)
    for pairs, layers, reading in read_weights(
        model,
        tokenizer,
        sources,
        targets,
        batch_size=batch_size,
        source_prefix=source_prefix,
        weights=weights,
    ):
        readable = [number for number, layer in enumerate(layers) if layer is not None]
        nothing = torch.zeros_like(layers[readable[0]])
        stacked = torch.stack([nothing if layer is None else layer for layer in layers], dim=1)
        for row, pair in enumerate(pairs):
            steps = reading.unpadded(stacked, row)
            words[pair.index] = torch.stack([between_words(steps, pair, shift) for shift in (False, True)])
    heads = next((pair.shape[2] for pair in words if pair is not None), 0)
    if not heads:
        raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")

    def score(layer: int, chosen: tuple[int, ...], shift: bool) -> AlignmentScore:
        links = [() if p is None else argmax_links(p[int(shift), layer, list(chosen)].mean(dim=0)) for p in words]
        return alignment_error_rate(gold, links)

    ranked = []
    everything = tuple(range(heads))
    for layer in readable:
        for shift in (False, True):
            found = {chosen: score(layer, chosen, shift) for chosen in (everything, *((h,) for h in everything))}
            best = min(((h,) for h in everything), key=lambda chosen, found=found: found[chosen].aer)
            while len(best) < heads:
                for added in set(everything) - set(best):
                    chosen = tuple(sorted({*best, added}))
                    if chosen not in found:
                        found[chosen] = score(layer, chosen, shift)
                larger = [chosen for chosen in found if len(chosen) == len(best) + 1 and set(best) < set(chosen)]
                lowest = min(larger, key=lambda chosen, found=found: (found[chosen].aer, chosen))
                if found[lowest].aer >= found[best].aer:
                    break
                best = lowest
            # What the greedy search tried and left behind is not listed.
            for chosen in dict.fromkeys((everything, best, *((h,) for h in everything))):
                setting = Seq2SeqAttention(layer, chosen, shift, source_prefix, weights)
                ranked.append((replace(setting, heads=None) if chosen == everything else setting, found[chosen]))
    return sorted(ranked, key=lambda entry: entry[1].aer)
