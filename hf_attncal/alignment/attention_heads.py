"""The heads of a cross-attention that align best, and one that has learned links, on annotated pairs."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base
from hf_attncal.inference.opening import choose_device, load_errors, tell_model
from hf_attncal.inference.running import Running
from hf_attncal.metrics.aer import AER, AlignmentScore, alignment_error_rate, paired_counts

from .aligner import WordAligner, load_to_align
from .gold import tune_threshold
from .links import argmax_links
from .seq2seq import Seq2SeqAttention, between_words, check_weights, read_weights

_SHOWN = 10
_SAMPLES, _SURE = 1000, 0.95  # bootstrap samples, and in how many of them the larger set of heads must be better


class RankedReadings(list):
    """Settings, each with its `AlignmentScore`, the best first; printed, the ten best."""

    def __str__(self) -> str:
        return "\n".join(
            f"{100 * score.aer:5.1f}  {json.dumps(settings.to_dict())}" for settings, score in self[:_SHOWN]
        )


def load_to_choose(name: str, running: Running) -> tuple[Any, Any]:
    """Load a model to choose from, in evaluation mode, and its tokenizer.

    Raises:
        CommandError: there is no such checkpoint, it is of another kind, or the device cannot be used.
    """
    with load_errors(name):
        device = choose_device(running)
        options = {"dtype": running.dtype, "trust_remote_code": running.trust_remote_code}
        options["languages"] = running.languages
        model, tokenizer, _ = load_to_align(name, saved=False, **options)
    tell_model(name, model)
    return model.to(device).eval(), tokenizer


def choose_reading(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldAlignment], **reading: str
) -> RankedReadings:
    """Rank all ways to read word alignments off a model: `attncal align select`.

    The settings that are found belong beside the model: `ranked[0][0].save(folder)`.

    Args:
        model: an encoder-decoder, in evaluation mode.
        tokenizer: its tokenizer.
        sources, targets: sentences and their translations.
        gold: annotated links of every pair.
        reading: `weights` and `source_prefix`, see `Seq2SeqAttention`.

    Returns:
        Settings and their `AlignmentScore`, the lowest error first.

    Raises:
        ValueError: the model has no attention to choose from, or see `select_attention`.
    """
    if not model.config.is_encoder_decoder:
        raise ValueError(
            f"Heads are chosen of an encoder-decoder, and the model is of type {model.config.model_type!r}. Align "
            "with it as it is."
        )
    ranked = RankedReadings(select_attention(model, tokenizer, sources, targets, gold, **reading))
    best = ranked[0][0]
    annotated = Gold(list(zip(sources, targets, strict=True)), gold)
    threshold, score = tune_threshold(WordAligner(model, tokenizer, best), annotated)
    if threshold is not None:
        ranked.insert(0, (replace(best, threshold=threshold), score))
    return ranked


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
    the error most, as long as it does in 95 % of the bootstrap samples of the pairs: a larger set wins by more than
    noise. The best of each layer and step are then tried together in the same greedy way, and their mean comes first
    if it wins. Every target word is linked to the source word with the largest weight.
    The attention is computed once and kept between words: 4 bytes x 2 x layers x heads x words x words for each pair.

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

    def links(*places: tuple[int, tuple[int, ...], bool]) -> list[Sequence[Link]]:
        def of_pair(pair: Tensor) -> list[Link]:
            each = [pair[int(shift), layer, list(chosen)].mean(dim=0) for layer, chosen, shift in places]
            return argmax_links(torch.stack(each).mean(dim=0))

        return [() if pair is None else of_pair(pair) for pair in words]

    def score(*places: tuple[int, tuple[int, ...], bool]) -> AlignmentScore:
        return alignment_error_rate(gold, links(*places))

    def wins(few: list, more: list) -> bool:
        """Whether the larger of two sets of places has the lower error in nearly all samples of the pairs."""
        share = AER.paired_bootstrap(*paired_counts(gold, links(*few), links(*more)), _SAMPLES, 0)
        return score(*more).aer < score(*few).aer and (share is None or share >= _SURE)

    def place(one: Seq2SeqAttention) -> tuple[int, tuple[int, ...], bool]:
        return one.layer, one.heads or everything, one.shift

    ranked = []
    everything = tuple(range(heads))
    for layer in readable:
        for shift in (False, True):
            found = {chosen: score((layer, chosen, shift)) for chosen in (everything, *((h,) for h in everything))}
            best = min(((h,) for h in everything), key=lambda chosen, found=found: found[chosen].aer)
            while len(best) < heads:
                for added in set(everything) - set(best):
                    chosen = tuple(sorted({*best, added}))
                    if chosen not in found:
                        found[chosen] = score((layer, chosen, shift))
                larger = [chosen for chosen in found if len(chosen) == len(best) + 1 and set(best) < set(chosen)]
                lowest = min(larger, key=lambda chosen, found=found: (found[chosen].aer, chosen))
                if not wins([(layer, best, shift)], [(layer, lowest, shift)]):
                    break
                best = lowest
            # What the greedy search tried and left behind is not listed.
            for chosen in dict.fromkeys((everything, best, *((h,) for h in everything))):
                setting = Seq2SeqAttention(layer, chosen, shift, source_prefix, weights)
                ranked.append((replace(setting, heads=None) if chosen == everything else setting, found[chosen]))
    ranked.sort(key=lambda entry: entry[1].aer)
    if weights == "attention":
        # Layers, and the steps that predict and that read a token, err in different places.
        best = list({(one.layer, one.shift): one for one, _ in reversed(ranked)}.values())
        chosen, lowest = [ranked[0][0]], ranked[0][1]
        while rest := [one for one in best if one not in chosen]:
            tried = [(score(*map(place, (*chosen, one))), one) for one in rest]
            found, added = min(tried, key=lambda entry: entry[0].aer)
            if not wins(*(list(map(place, each)) for each in (chosen, [*chosen, added]))):
                break
            lowest = found
            chosen.append(added)
        if len(chosen) > 1:
            ranked.insert(0, (functools.reduce(lambda last, one: replace(one, beside=last), reversed(chosen)), lowest))
    return ranked
