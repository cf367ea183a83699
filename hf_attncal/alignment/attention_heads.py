"""Find the layer and heads of a cross-attention that align best on annotated pairs."""

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment, check_index_base
from hf_attncal.drawing.page import text_table
from hf_attncal.inference.head_search import HeadPlace, LinkedWeights, Places, better_set, grown, set_hits
from hf_attncal.inference.opening import choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate

from .aligner import WordAligner, load_to_align
from .gold import tune_threshold
from .links import argmax_links
from .seq2seq import Seq2SeqAttention, between_words, check_weights, read_weights

_MOST_SHOWN = 10


class RankedReadings(list):
    """Settings, each with its `AlignmentScore`, the best first. Printed, a table of the ten best."""

    def __str__(self) -> str:
        best = self[:_MOST_SHOWN]
        columns = {"reading": [_described(one) for one, _ in best], "AER, %": [f"{100 * s.aer:.1f}" for _, s in best]}
        note = "Layers and heads are counted from 0. Readings joined by + are averaged."
        return "\n".join([*text_table(columns), "", note])


def _described(settings: Seq2SeqAttention) -> str:
    """Return settings in the form of `--read`."""
    parts = [
        f"layer={one.layer} heads={'all' if one.heads is None else ','.join(map(str, one.heads))} "
        f"shift={str(one.shift).lower()}"
        for one in settings.readings
    ]
    others = {name: getattr(settings, name) for name in ("threshold", "weights", "source_prefix")}
    changed = (f"{name}={value}" for name, value in others.items() if value != getattr(Seq2SeqAttention, name))
    return " ".join([" + ".join(parts), *changed])


def load_to_choose(name: str, running: Running) -> tuple[Any, Any]:
    """Load a model in evaluation mode and its tokenizer.

    Raises:
        CommandError: a missing checkpoint or one of another kind, or a device that cannot be used.
    """
    with load_errors(name):
        device = choose_device(running)
        model, tokenizer, _ = load_to_align(
            name,
            dtype=running.dtype,
            trust_remote_code=running.trust_remote_code,
            languages=running.languages,
            saved=False,
        )
    log_model(name, model)
    return model.to(device).eval(), tokenizer


def choose_reading(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldAlignment], **options: Any
) -> RankedReadings:
    """Rank the attention settings of a model by their AER, with the best threshold of the best ones.

    Args:
        model, tokenizer, sources, targets, gold: See `select_attention`.
        options: Other options of `select_attention`.

    Raises:
        ValueError: a model without cross-attention, or see `select_attention`.
    """
    if not model.config.is_encoder_decoder:
        raise ValueError(
            f"`model` must be an encoder-decoder, got type {model.config.model_type!r}. Align with it directly "
            "(`attncal align run`)."
        )
    ranked = select_attention(model, tokenizer, sources, targets, gold, **options)
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
) -> RankedReadings:
    """Score every layer, Naive-Att and Shift-Att, with all heads and with each, and a set of heads that grows.

    The set grows as an observer's does: from the best head, while the mean with another one, of any layer and step, is
    better by more than noise. It comes first if it is better than all other settings by more than noise. Each target
    word is linked to the source word with the largest weight. The word attention is kept in memory: 4 bytes x 2 x
    layers x heads x words x words per pair.

    Args:
        model, tokenizer, sources, targets, batch_size: See `seq2seq_weights`.
        gold: Annotated links of each pair, not from the test set.
        source_prefix, weights: See `Seq2SeqAttention`. Only sets of "attention" grow.

    Returns:
        Settings and their score, the lowest AER first; in a tie lower layers, Naive-Att and all heads come first.

    Raises:
        ValueError: see `readings_of_pairs`; also annotations that do not fit the pairs, or no pair with words.
    """
    check_weights(weights)
    check_index_base(gold, [(len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=False)])
    heads: dict[tuple[int, bool], int] = {}  # number of heads at each layer and step
    words: list[LinkedWeights | None] = [None] * len(sources)
    for pairs, layers, reading in read_weights(
        model, tokenizer, sources, targets, batch_size=batch_size, source_prefix=source_prefix, weights=weights
    ):
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        heads = {(number, shift): of.shape[1] for number, of in present.items() for shift in (False, True)}
        for row, pair in enumerate(pairs):
            steps = [reading.unpadded(of, row) for of in present.values()]
            attended = torch.cat([between_words(of, pair, shift) for of in steps for shift in (False, True)])
            words[pair.index] = LinkedWeights(attended, _worth(gold[pair.index], attended.shape[1:]))
    text = [of for of in words if of is not None]
    if not text:
        raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")
    places = tuple(HeadPlace(layer, head, shift) for (layer, shift), n in heads.items() for head in range(n))
    sets: dict[Places, Seq2SeqAttention] = {}
    for (layer, shift), number in heads.items():
        whole = tuple(HeadPlace(layer, head, shift) for head in range(number))
        sets[whole] = Seq2SeqAttention(layer, None, shift, source_prefix, weights)
        for place in whole if number > 1 else ():
            sets[(place,)] = replace(sets[whole], heads=(place.head,))

    def score(chosen: Places) -> AlignmentScore:
        indices = [places.index(place) for place in chosen]
        links = [() if of is None else argmax_links(of.weights[indices].mean(dim=0)) for of in words]
        return alignment_error_rate(gold, links)

    ranked = RankedReadings(
        sorted(((of, score(chosen)) for chosen, of in sets.items()), key=lambda entry: entry[1].aer)
    )
    if weights == "attention":
        best = next(chosen for chosen, settings in sets.items() if settings == ranked[0][0])
        larger, found = list(grown((), places, text).items())[-1]
        if larger not in sets and better_set({best: set_hits(best, places, text), larger: found}) == larger:
            ranked.insert(0, (_mean_of(larger, sets[best]), score(larger)))
    return ranked


def _worth(gold: GoldAlignment, shape: Sequence[int]) -> Tensor:
    """Return the hits that a link adds to the AER, (target words, source words): 2 if sure, 1 if possible."""
    worth = torch.zeros(*shape, dtype=torch.long)
    for links in (gold.sure, gold.possible):
        for i, j in links:
            worth[j, i] += 1
    return worth


def _mean_of(places: Places, like: Seq2SeqAttention) -> Seq2SeqAttention:
    """Return the settings that average these heads: a reading for each layer and step, if all have as many heads."""
    by_step: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for place in places:
        by_step[place.layer, place.shift].append(place.head)
    if len({len(heads) for heads in by_step.values()}) == 1:
        parts = [(step, tuple(sorted(heads))) for step, heads in by_step.items()]
    else:
        parts = [((place.layer, place.shift), (place.head,)) for place in places]
    readings = [replace(like, layer=layer, heads=heads, shift=shift) for (layer, shift), heads in parts]
    return functools.reduce(lambda beside, reading: replace(reading, beside=beside), reversed(readings))
