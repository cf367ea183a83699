"""Find what aligns best in a model: attention, on annotated pairs; states of an encoder, also without them."""

import functools
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base
from hf_attncal.inference.opening import choose_device, load_errors, tell_model
from hf_attncal.inference.running import Running
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate, paired_bootstrap

from .aligner import WordAligner, load_to_align
from .encoder import STATES, EncoderReader, EncoderStates, batches_of_tokens, changed, intersections
from .gold import tune_threshold
from .links import argmax_links
from .seq2seq import Seq2SeqAttention, between_words, check_weights, read_weights
from .sources import Words, word_ids
from .subword_pooling import largest_over_words
from .symmetrization import links_above

# Of two probabilities, both of which have to be above it.
STATE_THRESHOLDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# By agreement: encoders that have learned nothing, or lines that do not belong together, stay below it.
_LEAST_AGREEMENT = 0.05
_SHOWN = 10
_SAMPLES, _SURE = 1000, 0.95  # that tell how sure a choice is; in how many of them what is larger must be better
_SAMPLE = 500  # pairs, where there is no annotation
_MOST_BY_CHANCE = 0.5  # above it the denominator of kappa makes much of nothing


class RankedReadings(list):
    """Settings, each with its `AlignmentScore` or its agreement, the best first; printed, the ten best.

    Attributes:
        sure: by agreement, the share of 1,000 bootstrap samples of the pairs in which the layer that was chosen stays
            ahead of all others; None by annotated pairs.
    """

    sure: float | None = None

    def __str__(self) -> str:
        best = [(getattr(score, "aer", score), settings) for settings, score in self[:_SHOWN]]
        lines = [f"{100 * value:5.1f}  {json.dumps(settings.to_dict())}" for value, settings in best]
        if self.sure is not None:
            lines.append(f"Layer {self[0][0].layer} stays ahead in {self.sure:.0%} of the samples of these pairs.")
        return "\n".join(lines)


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
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldAlignment] | None = None,
    *,
    weights: str | None = None,
    **texts: str,
) -> RankedReadings:
    """Rank all ways to read word alignments off a model: `attncal align select`.

    The settings that are found belong beside the model: `ranked[0][0].save(folder)`.

    Args:
        model: an encoder-decoder or an encoder, in evaluation mode.
        tokenizer: its tokenizer.
        sources, targets: sentences and their translations.
        gold: annotated links of every pair; None: states are chosen by the agreement of both directions.
        weights: what to read, one of `Seq2SeqAttention.weights` or `"states"`; None: attention and states.
        texts: languages and prefixes, fields of `EncoderStates`; of attention `source_prefix` counts.

    Returns:
        Settings and their `AlignmentScore`, the lowest error first; without `gold`, settings and their agreement.

    Raises:
        ValueError: attention without `gold`, or of a model that is only an encoder; see also `select_attention`,
            `select_states` and `select_states_by_agreement`.

    Warns:
        UserWarning: states cannot be read beside attention; or both directions hardly agree.
    """
    decoder = model.config.is_encoder_decoder
    if gold is None and decoder and weights != STATES:
        raise ValueError(
            "Attention is chosen on annotated pairs: give them with --gold, or --read weights=states (`gold`, "
            f"`weights={STATES!r}`): states of the encoder are chosen on raw pairs."
        )
    if weights not in (None, STATES) and not decoder:
        raise ValueError(
            f"The model is an encoder: it has states and no attention, so `weights` must be {STATES!r}, "
            f"got {weights!r}."
        )
    ranked = RankedReadings()
    if decoder and weights != STATES:
        prefix = {name: text for name, text in texts.items() if name == "source_prefix"}
        ranked += select_attention(model, tokenizer, sources, targets, gold, weights=weights or "attention", **prefix)
    if weights in (None, STATES):
        try:
            settings = changed(EncoderStates.default_of(model), texts)
            if gold is None:
                ranked = select_states_by_agreement(model, tokenizer, sources, targets, settings)
            else:
                ranked += select_states(model, tokenizer, sources, targets, gold, settings)
        except ValueError as error:
            if not ranked:
                raise
            warnings.warn(f"states are not tried: {error}", stacklevel=2)
    if gold is None:
        if ranked[0][1] < _LEAST_AGREEMENT:
            warnings.warn(
                f"the two directions agree on {100 * ranked[0][1]:.1f} % of the words beyond chance, which is next to "
                "nothing: links will be bad. Either these states do not align (an encoder of one language; `attncal "
                "align tune` teaches it), or the lines do not belong together.",
                stacklevel=2,
            )
        return ranked
    ranked.sort(key=lambda entry: entry[1].aer)  # attention first among equals
    best = ranked[0][0]
    if best.threshold is None:
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
        share = paired_bootstrap(gold, links(*few), links(*more), bootstrap=_SAMPLES)
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


def select_states(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldAlignment],
    settings: EncoderStates | None = None,
) -> list[tuple[EncoderStates, AlignmentScore]]:
    """Try the states of every layer of an encoder with several thresholds on annotated pairs.

    Args:
        model: an encoder, or an encoder-decoder, in evaluation mode.
        tokenizer: its tokenizer.
        sources, targets: sentences and their translations.
        gold: annotated links of every pair. Use other pairs than those that are reported on.
        settings: languages and prefixes count.

    Returns:
        Settings and their score, the lowest alignment error rate first; of equals the lower layer and threshold.

    Raises:
        ValueError: see `EncoderReader`; also annotations that do not fit the pairs, or no pair with words.
    """
    pairs = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
    check_index_base(gold, [tuple(map(len, pair)) for pair in pairs])
    tried, settings = _every_layer(model, tokenizer, pairs, settings)
    ranked = []
    for layer in range(_layers(tried)):
        for threshold in STATE_THRESHOLDS:
            links = [() if scores is None else links_above(scores[layer], threshold) for scores in tried]
            score = alignment_error_rate(gold, links, symmetrization="intersection")
            ranked.append((replace(settings, layer=layer, threshold=threshold), score))
    return sorted(ranked, key=lambda entry: entry[1].aer)


def select_states_by_agreement(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], settings: EncoderStates | None = None
) -> RankedReadings:
    """Rank what `select_states` tries without annotation, by how far both directions agree beyond chance.

    They agree on a word that is linked: both find the same partner likely enough. What that share would be by chance
    is measured on sentences that are not translations of each other, of similar lengths, and taken off as Cohen's
    kappa does it, `(share - chance) / (1 - chance)`. So links everywhere are worth nothing, nor are none, nor those
    that follow from the positions of words alone. Where chance links more than half of the words, the value is 0.

    Args:
        model, tokenizer, settings: as for `select_states`.
        sources, targets: sentences and their translations, of which at most 500, evenly spread, are read.

    Returns:
        Settings and that value, the largest first; of equals the lower layer and threshold; and how sure it is.

    Raises:
        ValueError: see `EncoderReader`; also fewer than two pairs with words.
    """
    pairs = [(s.split(), t.split()) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if len(pairs) < 2:
        raise ValueError(
            f"`sources` and `targets` must have two pairs with words to choose by agreement, got {len(pairs)}."
        )
    pairs = sorted(pairs[:: -(-len(pairs) // _SAMPLE)], key=lambda pair: (len(pair[0]), len(pair[1])))
    others = [(source, target) for (source, _), (_, target) in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]
    tried, chosen = _every_layer(model, tokenizer, pairs, settings)
    apart, _ = _every_layer(model, tokenizer, others, settings)
    readings = [(layer, threshold) for layer in range(_layers(tried)) for threshold in STATE_THRESHOLDS]
    linked = np.array([[_linked(scores, *reading) for reading in readings] for scores in (tried, apart)])
    words = np.array([[_words(scores) for scores in of_texts] for of_texts in (tried, apart)])
    found = _agreements(linked.sum(axis=2), words.sum(axis=1))
    ranked = RankedReadings(
        (replace(chosen, layer=layer, threshold=threshold), float(value))
        for (layer, threshold), value in zip(readings, found, strict=True)
    )
    ranked.sort(key=lambda entry: -entry[1])
    # Pairs are drawn with those that they were mixed with, which are their neighbours.
    drawn = np.random.default_rng(0).multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), size=_SAMPLES)
    ahead = [
        readings[int(np.argmax(_agreements(linked @ weights, words @ weights)))][0] == ranked[0][0].layer
        for weights in drawn
    ]
    ranked.sure = sum(ahead) / len(ahead)
    return ranked


def _agreements(linked: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return how far the directions agree beyond chance.

    Args:
        linked: words with a link, of translations and of others, (2, readings). words: in all, (2,).
    """
    share, chance = linked / np.maximum(words, 1)[:, None]
    return np.where(chance > _MOST_BY_CHANCE, 0.0, (share - chance) / np.maximum(1 - chance, 1e-9))


@torch.no_grad()
def _every_layer(
    model, tokenizer, pairs: Sequence[Words], settings: EncoderStates | None
) -> tuple[list[Tensor | None], EncoderStates]:
    """Yield link scores of each pair, (layers, source words, target words), or None for a pair with an empty side."""
    settings = settings or EncoderStates.default_of(model)
    reader = EncoderReader(model, tokenizer, settings)
    found: list[Tensor | None] = [None] * len(pairs)
    for indices, tokens in batches_of_tokens(reader, pairs, batch_size=64, batch_tokens=4096):
        words = [(source.words, target.words) for source, target in tokens]
        sides = [word_ids(side, model.device) for side in zip(*tokens, strict=True)]
        layers = [
            largest_over_words(both, *sides).cpu() for both in intersections(reader, tokens, range(reader.layers))
        ]
        for row, (index, (s, t)) in enumerate(zip(indices, words, strict=True)):
            found[index] = torch.stack([scores[row, :s, :t] for scores in layers])
    return found, settings


def _layers(tried: Sequence[Tensor | None]) -> int:
    count = next((len(scores) for scores in tried if scores is not None), 0)
    if not count:
        raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")
    return count


def _linked(tried: Sequence[Tensor | None], layer: int, threshold: float) -> list[int]:
    """Return how many words of both sides of each pair have a link, 0 where there are no words."""
    above = (None if scores is None else scores[layer] > threshold for scores in tried)
    return [0 if links is None else int(links.any(dim=0).sum() + links.any(dim=1).sum()) for links in above]


def _words(scores: Tensor | None) -> int:
    return 0 if scores is None else sum(scores.shape[1:])
