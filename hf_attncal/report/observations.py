"""Statistics of the cross-attention of an encoder-decoder over a corpus, collected in one pass.

They follow the analyses of Lu et al. (TASLP 2022, sections III and IV): how often attention selects the source token
that contributes most, by entropy and part of speech; and the changes by calibration. From Mask-Align (Chen et al.
2021) come the attention per group of tokens and the norms of their value vectors.

A step is the prediction of a target token with teacher forcing. Only sums over the steps of each pair are stored,
which is enough for intervals over pairs (`hf_attncal.metrics.base`).

Choices where the papers are silent: rows are divided by their sum before an entropy, since calibrated and leaky
attention does not sum to 1. A token has the tag of its word; special tokens count except in figures by tag.
Norms include the bias of a head's vector and are means over heads and words (Mask-Align's Table 3 has one sentence).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import NO_WORD, is_punctuation
from hf_attncal.inference.reading import Reading, TokenPair, check_some_words, readings_of_pairs
from hf_attncal.inference.word_attention import best_source_words, word_attention
from hf_attncal.metrics.reliability import (
    NEED_INFORMATION,
    STEP_MEASURES,
    WITHOUT_MASKS,
    LayerRows,
    head_average,
    layer_rows,
)
from hf_attncal.report.alti import check_blocks, switched_part
from hf_attncal.report.corpus import tags_of


@contextmanager
def recorded_value_norms(model) -> Iterator[tuple[dict[int, Tensor], dict[int, float]]]:
    """Record the norms of value vectors of a model built as Marian and BART; other models have none.

    Yields:
        Decoder layer (counted from 0) -> norms of the value vectors in the last pass, (batch, heads, source); and
        decoder layer -> norm of NULL, mean over heads.
    """
    norms: dict[int, Tensor] = {}
    nulls: dict[int, float] = {}

    def record(number: int, width: int, module: nn.Module, args: tuple, output: Tensor) -> None:
        norms[number] = output.detach().unflatten(-1, (-1, width)).norm(dim=-1).transpose(1, 2)

    with ExitStack() as hooks:
        with suppress(ValueError):
            check_blocks(model)
            for number, layer in enumerate(model.get_decoder().layers):
                attention = layer.encoder_attn
                hook = partial(record, number, attention.head_dim)
                hooks.enter_context(attention.v_proj.register_forward_hook(hook))
                switched = switched_part(attention)
                if switched is not None and switched.switches.leaky:
                    nulls[number] = float(switched.null.value.detach().norm(dim=-1).double().mean())
        yield norms, nulls


ENTROPY_THRESHOLDS = tuple(
    0.25 * step for step in range(1, 21)
)  # upper bounds of entropy, up to the last one of Lu et al., Fig. 4
BUCKETS = (0.8, 1.6, 2.4, 3.2)  # bounds of entropy in Lu et al., Fig. 8; a bucket includes its lower bound
BUCKET_NAMES = (*(f"{low:g} to {high:g}" for low, high in pairwise((0, *BUCKETS))), f"above {BUCKETS[-1]:g}")
TOKEN_GROUPS = ("words", "punctuation", "special tokens")  # groups of source tokens
WEIGHT_KINDS = ("attention", "contribution")
_ROUNDING = 1e-5  # nats
_MIN_INFORMED = 0.5  # share of steps with informative masks, below which a mean over steps is mostly noise


# ---- results ----


@dataclass(frozen=True)
class Observations:
    """Sums over the steps of each pair. Its methods return counts (pairs, ..., 2): a sum and its number of terms.

    The mean is the first column of `counts.sum(axis=0)` divided by the second; `hf_attncal.metrics.base` adds
    intervals over pairs. `LayerRows` explains the measures. Layers and heads are counted from 0.

    Args:
        pairs: (N,), indices of the pairs with words on both sides.
        steps: (N,), numbers of steps per pair.
        layers: measure -> decoder layers that have it; `idle` layers have none of `NEED_INFORMATION`.
        by_layer: measure -> sums (N, L), where L is the number of decoder layers; 0 in layers without the measure.
        by_head: measure -> means over all steps (L, H); for `NEED_INFORMATION` NaN in heads with uninformative masks.
        by_threshold: (N, L, thresholds + 1, 2), number of steps and of reliable steps by `average_entropy`: the first
            of `ENTROPY_THRESHOLDS` that it does not exceed, or the last place.
        by_bucket: (N, L, buckets + 1, 2), sum of divergences and number of rows (a head at a step) by entropy, in
            `BUCKETS`.
        tags: tags of target words, the most frequent first; () without tags.
        by_tag: (N, L, tags, 2), sums of `reliability` and `average_entropy` over steps of words with each tag.
        tag_steps: (N, tags), numbers of steps.
        by_group: (N, L, 3), attention to `TOKEN_GROUPS` of the source, mean over heads; sums to 1 with `null`.
        group_tokens: (N, 3), numbers of tokens.
        group_norms: (N, L, 3), sums of the norms of value vectors, mean over heads; 0 for models without them.
        null_norms: layer -> norm of the value vector of NULL, mean over heads.
        word_tags: tags of every pair of the corpus.
        best: weight kind -> per pair of the corpus (L, target words), the best source word, -1 for none
            (`best_source_words`); None without `alignments`.
        predicted: per pair of the corpus (target words,), True if the model predicts any subword of the word; None
            without `alignments`.
    """

    pairs: np.ndarray
    steps: np.ndarray
    layers: Mapping[str, tuple[int, ...]]
    by_layer: Mapping[str, np.ndarray]
    by_head: Mapping[str, np.ndarray]
    by_threshold: np.ndarray
    by_bucket: np.ndarray
    tags: tuple[str, ...]
    by_tag: np.ndarray
    tag_steps: np.ndarray
    by_group: np.ndarray
    group_tokens: np.ndarray
    group_norms: np.ndarray
    null_norms: Mapping[int, float]
    word_tags: Sequence[tuple[str, ...]] | None = None
    best: Mapping[str, Sequence[np.ndarray]] | None = None
    predicted: Sequence[np.ndarray] | None = None

    @property
    def calibrated(self) -> tuple[int, ...]:
        """Decoder layers with informative masks; () for a model without calibration."""
        return self.layers["reliability"]

    @property
    def idle(self) -> tuple[int, ...]:
        """Decoder layers with uninformative masks (`informed` of `LayerRows`)."""
        return tuple(layer for layer in self.layers["mask"] if layer not in self.calibrated)

    @property
    def is_changed(self) -> bool:
        """True if calibration changes attention; False for a probe."""
        return any(self.mean("divergence", layer) > _ROUNDING for layer in self.calibrated)

    def top(self, measure: str = "reliability") -> int:
        """Return the highest layer with a measure, the layer of the paper's analyses."""
        return max(self._layers_of(measure))

    def counts(self, measure: str, layer: int) -> np.ndarray:
        """Return the sums of a measure of `STEP_MEASURES` in a layer, and the numbers of steps: (N, 2).

        Raises:
            ValueError: an unknown measure, or a layer that lacks it.
        """
        if layer not in self._layers_of(measure):
            reason = " Its masks are uninformative." if layer in self.idle else ""
            raise ValueError(
                f"`layer` must be a layer with {measure!r}, {list(self.layers[measure])}, got {layer!r}.{reason}"
            )
        return np.stack([self.by_layer[measure][:, layer], self.steps], axis=1)

    def mean(self, measure: str, layer: int) -> float:
        """Return the mean of a measure over all steps; raises as `counts` does."""
        total, steps = self.counts(measure, layer).sum(axis=0)
        return float(total / steps)

    def reliability_up_to(self, layer: int) -> np.ndarray:
        """Return reliable steps and all steps with at most each threshold of entropy (Fig. 4): (N, thresholds, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("reliability", layer)
        return self.by_threshold[:, layer, :-1, ::-1].cumsum(axis=1)

    def steps_up_to(self, layer: int) -> np.ndarray:
        """Return steps with at most each threshold of entropy, and all steps: (N, thresholds, 2)."""
        below = self.by_threshold[:, layer, :-1, 0].cumsum(axis=1)
        return np.stack([below, np.broadcast_to(self.steps[:, None], below.shape)], axis=2)

    def divergence_in(self, layer: int) -> np.ndarray:
        """Return the sum of divergences and the number of rows per bucket of entropy (Fig. 8): (N, buckets + 1, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("divergence", layer)
        return self.by_bucket[:, layer]

    def of_tag(self, measure: str, layer: int) -> np.ndarray:
        """Return the sums of `reliability` or `average_entropy` and the steps per tag (Fig. 3): (N, tags, 2).

        Raises:
            ValueError: a layer that lacks the measure, or no tags.
        """
        if not self.tags:
            raise ValueError("Results by tag need `tags`, got none. Give one tag per target word.")
        self.counts(measure, layer)
        column = ("reliability", "average_entropy").index(measure)
        return np.stack([self.by_tag[:, layer, :, column], self.tag_steps], axis=2)

    def attention_of_groups(self, layer: int) -> np.ndarray:
        """Return the attention to each of `TOKEN_GROUPS` in a layer, and the numbers of steps: (N, 3, 2)."""
        return np.stack([self.by_group[:, layer], np.repeat(self.steps[:, None], len(TOKEN_GROUPS), axis=1)], axis=2)

    def norms_of_groups(self, layer: int) -> np.ndarray:
        """Return the sum of norms of value vectors per `TOKEN_GROUPS`, and the numbers of tokens: (N, 3, 2)."""
        return np.stack([self.group_norms[:, layer], self.group_tokens], axis=2)

    def links(self, weights: str, layer: int) -> list[frozenset[Link]]:
        """Return per pair the links from each target word to its best source word by the head average of a layer.

        Args:
            weights: kind of weights in `WEIGHT_KINDS`; attention is before calibration.
            layer: decoder layer, counted from 0.

        Raises:
            ValueError: a layer that lacks the weights, or `observe` was called without `alignments`.
        """
        if self.best is None:
            raise ValueError("There are no links. Call `observe` with `alignments=True`.")
        self.counts("entropy" if weights == "attention" else "reliability", layer)
        return [frozenset((int(i), j) for j, i in enumerate(best[layer]) if i >= 0) for best in self.best[weights]]

    def _layers_of(self, measure: str) -> tuple[int, ...]:
        if measure not in STEP_MEASURES:
            raise ValueError(f"`measure` must be one of {', '.join(STEP_MEASURES)}, got {measure!r}.")
        if not self.layers[measure]:
            if self.idle and measure in NEED_INFORMATION:
                raise ValueError(
                    f"{measure!r} is withheld: the masks of this model are uninformative (they distinguish source "
                    f"tokens at fewer than half of the steps). {WITHOUT_MASKS}."
                )
            switch = "`leaky`" if measure == "null" else "`calibration`"
            raise ValueError(f"{measure!r} needs a model or an active adapter with {switch}.")
        return self.layers[measure]


# ---- reading ----


def observe(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tags: Sequence[Sequence[str]] | None = None,
    alignments: bool = False,
    batch_size: int = 32,
) -> Observations:
    """Return statistics of the cross-attention over a corpus, independent of batching and order.

    Args:
        model: encoder-decoder of transformers on the device to use: stock, ours, or with an active adapter. Its mode
            and attention kernel do not change.
        tokenizer: tokenizer of the model.
        sources, targets: sentence pairs. Pairs with an empty side are left out.
        tags: tags of the words of each target; special tokens have none. Default: none.
        alignments: also find the best source word of each target word, and the predicted words. Default: False.
        batch_size: maximum number of pairs per batch; pairs are batched by length. Default: 32.

    Raises:
        ValueError: no pair with words on both sides, tags that do not fit, or see `readings_of_pairs`.
    """
    word_tags = None if tags is None else tags_of(targets, tags)
    frequencies = Counter(chain.from_iterable(word_tags or ()))
    tag_names = tuple(sorted(frequencies, key=lambda tag: (-frequencies[tag], tag)))
    sums = _CorpusSums()
    reading_options: dict[str, Any] = {"details": True, "predictions": alignments, "batch_size": batch_size}
    with recorded_value_norms(model) as (norms, null_norms):
        for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, **reading_options):
            sums.add(pairs, reading, norms, _kinds(pairs, reading, sources, word_tags, tag_names))
    check_some_words(sources, targets)
    return Observations(
        tags=tag_names, null_norms=null_norms, word_tags=word_tags, **sums.statistics(targets if alignments else None)
    )


class _CorpusSums:
    """Sums of measures over the steps of each pair and of the corpus, added batch by batch."""

    def __init__(self) -> None:
        self.of_pair: dict[int, dict[str, np.ndarray]] = {}
        self.layers: dict[str, set[int]] = {measure: set() for measure in STEP_MEASURES}  # with the measure
        self.by_head: dict[str, np.ndarray] = {}  # (L, H)
        self.best: dict[int, dict[str, np.ndarray]] = {}  # best source words of a pair, by kind of weight
        self.predicted: dict[int, np.ndarray] = {}  # whether the words of a pair are predicted

    def add(self, pairs: list[TokenPair], reading: Reading, norms: dict[int, Tensor], kinds: list[Tensor]) -> None:
        """Add a batch; `kinds` are the indicators of `_kinds`, `norms` the lengths of values by layer."""
        steps, tags, groups = kinds
        plain = [attention for attention in reading.plain if attention is not None]
        masked = any(mask is not None for mask in reading.masks)
        contributions = reading.contributions if masked else (None,) * len(plain)
        layers = []
        for number, attention in enumerate(plain):
            rows = self._rows(number, attention.double(), contributions[number], reading)
            for name in rows.layer:
                self.layers[name].add(number)
            for name, of_heads in rows.heads.items():
                head_sums = (of_heads * steps[:, None]).sum(dim=(0, 2)).cpu().numpy()
                self.by_head.setdefault(name, np.zeros((len(plain), len(head_sums))))[number] += head_sums
            layers.append(_layer_sums(attention.double(), rows, norms.get(number), *kinds))
        sums = {name: torch.stack([layer[name] for layer in layers], dim=1) for name in layers[0]}
        sums |= {"steps": steps.sum(dim=1), "tag_steps": tags.sum(dim=1), "group_tokens": groups.sum(dim=1)}
        arrays = {name: tensor.cpu().numpy() for name, tensor in sums.items()}
        for row, pair in enumerate(pairs):
            self.of_pair[pair.index] = {name: array[row].copy() for name, array in arrays.items()}
            if reading.predicted is not None:
                weights = zip(WEIGHT_KINDS, (plain, contributions), strict=True)
                self.best[pair.index] = {name: _best_words(by_layer, reading, row, pair) for name, by_layer in weights}
                right = reading.predicted[row][reading.target_mask[row]].cpu().numpy()
                words = pair.target.tokens_of_words()
                self.predicted[pair.index] = np.array([right[places].any() for places in words])

    @staticmethod
    def _rows(number: int, attention: Tensor, contribution: Tensor | None, reading: Reading) -> LayerRows:
        mask = reading.masks[number]
        optional = {
            "mask": mask,
            "contribution": contribution,
            "calibrated": None if mask is None else reading.attentions[number],
            "null": reading.nulls[number],
            "gate": reading.gates[number],
        }
        doubled = {name: tensor.double() for name, tensor in optional.items() if tensor is not None}
        return layer_rows(attention, reading.source_mask, **doubled)

    def statistics(self, targets: Sequence[str] | None) -> dict[str, Any]:
        """Return the statistics as fields of `Observations`, with the words of `targets` unless it is None."""
        indices = sorted(self.of_pair)
        stacked = {name: np.stack([self.of_pair[pair][name] for pair in indices]) for name in self.of_pair[indices[0]]}
        total = stacked["steps"].sum()
        by_head = {measure: of_heads / total for measure, of_heads in self.by_head.items()}
        informed = stacked["informed"].sum(axis=0) >= _MIN_INFORMED * total  # (layers,)
        layers = {measure: tuple(sorted(layers)) for measure, layers in self.layers.items()}
        for measure in NEED_INFORMATION:
            layers[measure] = tuple(layer for layer in layers[measure] if informed[layer])
            if measure in by_head:
                by_head[measure][by_head["informed"] < _MIN_INFORMED] = np.nan
        best = predicted = None
        if targets is not None:
            no_words = [np.full((len(informed), len(target.split())), -1) for target in targets]
            best = {
                name: [self.best[index][name] if index in self.best else empty for index, empty in enumerate(no_words)]
                for name in WEIGHT_KINDS
            }
            predicted = [self.predicted.get(index, empty[0] >= 0) for index, empty in enumerate(no_words)]
        return {
            "pairs": np.array(indices),
            "layers": layers,
            "by_layer": {measure: stacked.pop(measure) for measure in STEP_MEASURES},
            "by_head": by_head,
            "best": best,
            "predicted": predicted,
            **stacked,
        }


def _kinds(
    pairs: list[TokenPair],
    reading: Reading,
    sources: Sequence[str],
    word_tags: Sequence[Sequence[str]] | None,
    tag_names: Sequence[str],
) -> list[Tensor]:
    """Return indicators (0 or 1) of the steps and source tokens of a batch.

    Returns:
        (batch, steps), steps without padding; (batch, steps, tags), steps that predict a word with each tag; (batch,
        source, groups), source tokens of each of `TOKEN_GROUPS`.
    """
    tags = np.zeros((*reading.target_mask.shape, len(tag_names)))
    groups = np.zeros((*reading.source_mask.shape, len(TOKEN_GROUPS)))
    for row, pair in enumerate(pairs):
        kinds = np.array(
            [*map(is_punctuation, sources[pair.index].split()), 2]
        )  # index -1 (no word) selects the last entry
        groups[row, np.arange(len(pair.source.ids)), kinds[pair.source.word_ids]] = 1
        if word_tags is not None:
            numbers = np.array([tag_names.index(tag) for tag in word_tags[pair.index]])
            (tokens,) = np.nonzero(pair.target.word_ids != NO_WORD)
            tags[row, tokens, numbers[pair.target.word_ids[tokens]]] = 1
    kinds_of_batch = (reading.target_mask, tags, groups)
    return [torch.as_tensor(kind, dtype=torch.double, device=reading.target_mask.device) for kind in kinds_of_batch]


def _layer_sums(
    attention: Tensor, rows: LayerRows, norms: Tensor | None, steps: Tensor, tags: Tensor, groups: Tensor
) -> dict[str, Tensor]:
    """Return the sums of a layer, (batch, ...): measures, and sums by threshold, bucket, tag and group."""
    measures = {name: rows.layer[name] * steps if name in rows.layer else 0 * steps for name in STEP_MEASURES}
    # Indicators of threshold and bucket, (..., 1 + bounds).
    of_steps = _one_hot(rows.layer["average_entropy"], ENTROPY_THRESHOLDS, right=False)
    of_rows = _one_hot(rows.heads["entropy"], BUCKETS, right=True) * steps[:, None, :, None]
    divergence = rows.heads.get("divergence", torch.zeros_like(rows.heads["entropy"]))
    received = torch.einsum("bts,bt->bs", head_average(attention), steps)
    lengths = torch.zeros_like(received) if norms is None else norms.double().mean(dim=1)
    reliable, entropy = measures["reliability"], measures["average_entropy"]
    return {name: of.sum(dim=1) for name, of in measures.items()} | {
        "by_threshold": torch.einsum("btk,btm->bkm", of_steps, torch.stack([steps, reliable], dim=2)),
        "by_bucket": torch.stack([torch.einsum("bhtk,bht->bk", of_rows, divergence), of_rows.sum((1, 2))], dim=2),
        "by_tag": torch.einsum("btu,btm->bum", tags, torch.stack([reliable, entropy], dim=2)),
        "by_group": torch.einsum("bsg,bs->bg", groups, received),
        "group_norms": torch.einsum("bsg,bs->bg", groups, lengths),
    }


def _one_hot(values: Tensor, bounds: Sequence[float], right: bool) -> Tensor:
    """Return indicators of the interval of each value, (...) -> (..., bounds + 1); intervals include their lower bound
    if `right`, else their upper bound."""
    place = torch.bucketize(values, values.new_tensor(bounds), right=right)
    return torch.nn.functional.one_hot(place, len(bounds) + 1).to(values.dtype)


def _best_words(layers: Sequence[Tensor | None], reading: Reading, row: int, pair: TokenPair) -> np.ndarray:
    """Return the best source word of each target word by the head average of each layer, (L, target words)."""
    best = np.full((len(layers), pair.target.words), -1, dtype=np.int16)
    for number, layer in enumerate(layers):
        if layer is not None:
            average = reading.unpadded(layer, row).double().mean(dim=0).cpu()
            best[number] = best_source_words(word_attention(average, pair.source, pair.target))
    return best
