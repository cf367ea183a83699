"""The heads of a cross-attention that align best, and one that has learned links, on annotated pairs."""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.linked_pairs import Gold
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
        model, tokenizer, _ = load_to_align(
            name,
            dtype=running.dtype,
            trust_remote_code=running.trust_remote_code,
            languages=running.languages,
            saved=False,
        )
    tell_model(name, model)
    return model.to(device).eval(), tokenizer


def choose_reading(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldAlignment],
    *,
    weights: str = "attention",
    source_prefix: str = "",
) -> RankedReadings:
    """Rank all ways to read word alignments off a model: `attncal align select`.

    The settings that are found belong beside the model: `ranked[0][0].save(folder)`.

    Args:
        model: an encoder-decoder, in evaluation mode.
        tokenizer: its tokenizer.
        sources, targets: sentences and their translations.
        gold: annotated links of every pair.
        weights, source_prefix: see `Seq2SeqAttention`.

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
    found = select_attention(model, tokenizer, sources, targets, gold, source_prefix=source_prefix, weights=weights)
    ranked = RankedReadings(found)
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
        model, tokenizer, sources, targets, batch_size=batch_size, source_prefix=source_prefix, weights=weights
    ):
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        readable = list(present)
        nothing = torch.zeros_like(present[readable[0]])
        stacked = torch.stack([present.get(number, nothing) for number in range(len(layers))], dim=1)
        for row, pair in enumerate(pairs):
            steps = reading.unpadded(stacked, row)
            words[pair.index] = torch.stack([between_words(steps, pair, shift) for shift in (False, True)])
    annotated = _Annotated(gold, words)
    ranked = []
    for layer, shift in product(readable, (False, True)):
        for heads in annotated.sets_of_heads(layer, shift):
            setting = Seq2SeqAttention(layer, heads, shift, source_prefix, weights)
            whole = replace(setting, heads=None) if len(heads) == len(annotated.heads) else setting
            ranked.append((whole, annotated.score((layer, heads, shift))))
    ranked.sort(key=lambda entry: entry[1].aer)
    if weights == "attention":
        # Layers, and the steps that predict and that read a token, err in different places.
        best = {(one.layer, one.shift): one for one, _ in reversed(ranked)}
        settings = {annotated.place(one): one for one in best.values()}

        def larger(chosen: Places) -> list[Places]:
            return [(*chosen, other) for other in settings if other not in chosen]

        chosen = annotated.grown((annotated.place(ranked[0][0]),), larger)
        if len(chosen) > 1:
            last, *before = (settings[place] for place in reversed(chosen))
            joined = functools.reduce(lambda beside, one: replace(one, beside=beside), before, last)
            ranked.insert(0, (joined, annotated.score(*chosen)))
    return ranked


Place = tuple[int, tuple[int, ...], bool]  # layer, heads, and whether the step is that which reads the token
Places = tuple[Place, ...]


class _Annotated:
    """Annotated pairs with the weights between their words, and the error of what is read of these.

    Args:
        gold: annotated links of every pair.
        words: of every pair (steps, layers, heads, target words, source words); None for a side without words.

    Raises:
        ValueError: no pair has words on both sides.
    """

    def __init__(self, gold: Sequence[GoldAlignment], words: Sequence[Tensor | None]):
        self.gold, self.words = gold, words
        self.heads = tuple(range(next((pair.shape[2] for pair in words if pair is not None), 0)))
        if not self.heads:
            raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")
        self._scores: dict[Places, AlignmentScore] = {}

    def place(self, one: Seq2SeqAttention) -> Place:
        """Return the place that settings name."""
        return one.layer, one.heads or self.heads, one.shift

    def links(self, places: Places) -> list[Sequence[Link]]:
        """Return the links of each pair by the mean of what is read at these places."""
        found: list[Sequence[Link]] = []
        for pair in self.words:
            if pair is None:
                found.append(())
                continue
            each = [pair[int(shift), layer, list(heads)].mean(dim=0) for layer, heads, shift in places]
            found.append(argmax_links(torch.stack(each).mean(dim=0)))
        return found

    def score(self, *places: Place) -> AlignmentScore:
        """Return the error of these links."""
        if places not in self._scores:
            self._scores[places] = alignment_error_rate(self.gold, self.links(places))
        return self._scores[places]

    def grown(self, chosen: Places, larger: Callable[[Places], Sequence[Places]]) -> Places:
        """Grow a set as long as the best of the larger ones wins in nearly all samples of the pairs; greedy."""
        while options := larger(chosen):
            best = min(options, key=lambda places: self.score(*places).aer)
            if self.score(*best).aer >= self.score(*chosen).aer:
                break
            counts = paired_counts(self.gold, self.links(chosen), self.links(best))
            share = AER.paired_bootstrap(*counts, _SAMPLES, 0)
            if share is not None and share < _SURE:
                break
            chosen = best
        return chosen

    def sets_of_heads(self, layer: int, shift: bool) -> list[tuple[int, ...]]:
        """Return the sets of heads to list: all, the best that grows from the best head, and each alone."""

        def larger(chosen: Places) -> list[Places]:
            ((_, heads, _),) = chosen
            sets = sorted(tuple(sorted({*heads, added})) for added in self.heads if added not in heads)
            return [((layer, one, shift),) for one in sets]

        alone = [(head,) for head in self.heads]
        first = min(alone, key=lambda heads: self.score((layer, heads, shift)).aer)
        ((_, best, _),) = self.grown(((layer, first, shift),), larger)
        return list(dict.fromkeys((self.heads, best, *alone)))
