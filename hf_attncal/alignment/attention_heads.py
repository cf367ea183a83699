"""Find the layer and heads of a cross-attention that align best on annotated pairs."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base
from hf_attncal.drawing.page import text_table
from hf_attncal.inference.opening import choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.metrics.aer import AER, AlignmentScore, alignment_error_rate, paired_counts

from .aligner import WordAligner, load_to_align
from .gold import tune_threshold
from .links import argmax_links
from .seq2seq import Seq2SeqAttention, between_words, check_weights, read_weights

_MOST_SHOWN = 10
_RESAMPLES, _MIN_WIN_RATE = 1000, 0.95  # bootstrap resamples, and the share that a larger set of heads must win


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
    """Score every layer, Naive-Att and Shift-Att, and several sets of heads on annotated pairs.

    The sets are all heads, each single head, and a greedy set: the best head, then repeatedly the head that lowers the
    error most, as long as it does so in 95 % of the bootstrap resamples. The best readings of all layers and steps are
    then averaged in the same greedy way, and the mean comes first if it wins. Each target word is linked to the source
    word with the largest weight. The word attention is kept in memory: 4 bytes x 2 x layers x heads x words x words
    per pair.

    Args:
        model, tokenizer, sources, targets, batch_size: See `seq2seq_weights`.
        gold: Annotated links of each pair, not from the test set.
        source_prefix, weights: See `Seq2SeqAttention`.

    Returns:
        Settings and their score, the lowest AER first; in a tie lower layers, Naive-Att and larger sets come first.

    Raises:
        ValueError: see `readings_of_pairs`; also annotations that do not fit the pairs, or no pair with words.
    """
    check_weights(weights)
    check_index_base(gold, [(len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=False)])
    readable: list[int] = []
    words: list[Tensor | None] = [None] * len(sources)  # (2, layers, heads, target words, source words)
    for pairs, layers, reading in read_weights(
        model, tokenizer, sources, targets, batch_size=batch_size, source_prefix=source_prefix, weights=weights
    ):
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        readable = list(present)
        nothing = torch.zeros_like(present[readable[0]])
        stacked = torch.stack([present.get(number, nothing) for number in range(len(layers))], dim=1)
        for row, pair in enumerate(pairs):
            steps = reading.unpadded(stacked, row)
            words[pair.index] = torch.stack([between_words(steps, pair, shift) for shift in (False, True)])
    annotated, ranked = _Annotated(gold, words), RankedReadings()
    for layer, shift in product(readable, (False, True)):
        for heads in annotated.sets_of_heads(layer, shift):
            setting = Seq2SeqAttention(layer, heads, shift, source_prefix, weights)
            whole = replace(setting, heads=None) if len(heads) == len(annotated.heads) else setting
            ranked.append((whole, annotated.score((layer, heads, shift))))
    ranked.sort(key=lambda entry: entry[1].aer)
    if weights == "attention":
        # Layers and steps make different errors, so that their mean may be better.
        best = {(reading.layer, reading.shift): reading for reading, _ in reversed(ranked)}
        settings = {annotated.place(reading): reading for reading in best.values()}

        def larger(chosen: Places) -> list[Places]:
            return [(*chosen, place) for place in settings if place not in chosen]

        chosen = annotated.grown((annotated.place(ranked[0][0]),), larger)
        if len(chosen) > 1:
            last, *before = (settings[place] for place in reversed(chosen))
            joined = functools.reduce(lambda beside, reading: replace(reading, beside=beside), before, last)
            ranked.insert(0, (joined, annotated.score(*chosen)))
    return ranked


Place = tuple[int, tuple[int, ...], bool]  # layer, heads, shift
Places = tuple[Place, ...]


class _Annotated:
    """Annotated pairs with their word attention, and the AER of its readings.

    Args:
        gold: Annotated links of each pair.
        words: Word attention of each pair, (steps, layers, heads, target words, source words); None for an empty side.

    Raises:
        ValueError: no pair with words on both sides.
    """

    def __init__(self, gold: Sequence[GoldAlignment], words: Sequence[Tensor | None]):
        self.gold, self.words = gold, words
        self.heads = tuple(range(next((pair.shape[2] for pair in words if pair is not None), 0)))
        if not self.heads:
            raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")
        self._scores: dict[Places, AlignmentScore] = {}

    def place(self, settings: Seq2SeqAttention) -> Place:
        """Return layer, heads and shift of the settings."""
        return settings.layer, settings.heads or self.heads, settings.shift

    def links(self, places: Places) -> list[Sequence[Link]]:
        """Return the links of each pair, read from the mean attention at these places."""
        links: list[Sequence[Link]] = []
        for pair in self.words:
            if pair is None:
                links.append(())
                continue
            readings = [pair[int(shift), layer, list(heads)].mean(dim=0) for layer, heads, shift in places]
            links.append(argmax_links(torch.stack(readings).mean(dim=0)))
        return links

    def score(self, *places: Place) -> AlignmentScore:
        """Return the AER of the links at these places."""
        if places not in self._scores:
            self._scores[places] = alignment_error_rate(self.gold, self.links(places))
        return self._scores[places]

    def grown(self, chosen: Places, larger: Callable[[Places], Sequence[Places]]) -> Places:
        """Extend a set greedily while the best larger set wins in nearly all resamples of the pairs."""
        while options := larger(chosen):
            best = min(options, key=lambda places: self.score(*places).aer)
            if self.score(*best).aer >= self.score(*chosen).aer:
                break
            counts = paired_counts(self.gold, self.links(chosen), self.links(best))
            share = AER.paired_bootstrap(*counts, _RESAMPLES, 0)
            if share is not None and share < _MIN_WIN_RATE:
                break
            chosen = best
        return chosen

    def sets_of_heads(self, layer: int, shift: bool) -> list[tuple[int, ...]]:
        """Return the sets of heads to rank: all heads, the greedy set, and each single head."""

        def larger(chosen: Places) -> list[Places]:
            ((_, heads, _),) = chosen
            sets = sorted(tuple(sorted({*heads, added})) for added in self.heads if added not in heads)
            return [((layer, heads, shift),) for heads in sets]

        single = [(head,) for head in self.heads]
        first = min(single, key=lambda heads: self.score((layer, heads, shift)).aer)
        ((_, best, _),) = self.grown(((layer, first, shift),), larger)
        return list(dict.fromkeys((self.heads, best, *single)))
