"""Sum up what the cross-attention of an encoder-decoder does over a corpus, read once, pair by pair.

The analyses of Lu et al. (TASLP 2022, sections III and IV): how often attention names the source token that counts,
and how that goes with the entropy of attention and with the part of speech of what is predicted; and what calibration
changes. Besides, what of Mask-Align (Chen et al. 2021) can be asked of any model: who gets attention, and how long
their value vectors are.

Steps are the predictions of real target tokens, given those before (teacher forcing). Nothing of a batch is kept but
sums over the steps of each pair, from which intervals over pairs are made (`hf_attncal.metrics.base`).

Where the papers leave something open: rows are divided by their sum before an entropy or a divergence, since
calibrated or leaky attention is no distribution. A token has the tag of its word; special tokens count in all figures
but those by tag. Norms are those of a head's vector with its bias, as means over heads and words, where Mask-Align's
Table 3 has one sentence.
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

from hf_attncal.alignment.links import best_links
from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import NO_WORD, is_punctuation
from hf_attncal.inference.reading import Reading, TokenPair, check_some_words, readings_of_pairs
from hf_attncal.inference.word_attention import word_attention
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
    """Record the norms of value vectors of a model that is built as Marian and BART are; there are none of others.

    Yields:
        By decoder layer from 0, the norms of the value vectors in the last pass, (batch, heads, source); and those of
        NULL, the mean over heads, where a layer has one.
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


ENTROPY_THRESHOLDS = tuple(0.25 * step for step in range(1, 21))  # of entropy, as far as Lu et al., Fig. 4
BUCKETS = (0.8, 1.6, 2.4, 3.2)  # of entropy, as in Lu et al., Fig. 8; a lower bound belongs to its bucket
BUCKET_NAMES = (*(f"{low:g} to {high:g}" for low, high in pairwise((0, *BUCKETS))), f"above {BUCKETS[-1]:g}")
TOKEN_GROUPS = ("words", "punctuation", "special tokens")  # of source tokens
WEIGHT_KINDS = ("attention", "contribution")
_ROUNDING = 1e-5  # nats
_MOST_STEPS = 0.5  # at fewer, masks that tell source tokens apart are the exception, and a mean over steps is of noise


# ---- results ----


@dataclass(frozen=True)
class Observations:
    """Sums over the steps of each pair. Its methods return counts (pairs, ..., 2): a sum, and the number of its terms.

    Their mean is `counts.sum(axis=0)`, the first divided by the second; `hf_attncal.metrics.base` has it with an
    interval over pairs. `LayerRows` says what each measure of a step is.

    Args:
        pairs: (N,), numbers of the pairs that were read, those with words on both sides.
        steps: (N,), number of steps of each pair.
        layers: measure -> the decoder layers, from 0, in which there is something to measure: none of
            `NEED_INFORMATION` in the layers of `idle`.
        by_layer: measure -> sums (N, L), L the number of decoder layers; 0 in those that are not in `layers`.
        by_head: measure -> means over all steps (L, H); NaN of `NEED_INFORMATION` in heads whose masks carry no
            information.
        by_threshold: (N, L, thresholds + 1, 2), steps by the first of `ENTROPY_THRESHOLDS` that their
            `average_entropy` does not exceed, the last for those above all; how many, and how many of them reliable.
        by_bucket: (N, L, buckets + 1, 2), the divergences of rows (a head at a step) by their own entropy, of
            `BUCKETS`, and how many rows.
        tags: the tags of target words, the most frequent first; empty where none were given.
        by_tag: (N, L, tags, 2), sums of `reliability` and `average_entropy` over steps of words with this tag.
        tag_steps: (N, tags), how many steps.
        by_group: (N, L, 3), attention of `TOKEN_GROUPS` of the source, mean over heads; with `null` they add up to 1.
        group_tokens: (N, 3), how many tokens.
        group_norms: (N, L, 3), norms of their value vectors, summed over tokens, the mean over heads; 0 for models
            whose values are not known.
        null_norms: layer -> norm of the value vector of NULL, the mean over heads.
        word_tags: the tags of every pair of the corpus, as they were given.
        best: of `WEIGHT_KINDS`, for every pair of the corpus (L, target words), the source word that gets most, -1 for
            none (`best_links`); None without `alignments`.
        predicted: for every pair of the corpus (target words,), whether the model would choose any of the word's
            subwords; None without `alignments`.
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
        """Return the decoder layers whose masks carry information, from 0; none for a model without calibration."""
        return self.layers["reliability"]

    @property
    def idle(self) -> tuple[int, ...]:
        """Return the decoder layers, from 0, whose masks carry no information (`informed` of `LayerRows`)."""
        return tuple(layer for layer in self.layers["mask"] if layer not in self.calibrated)

    @property
    def is_changed(self) -> bool:
        """Return whether calibration changes attention at all; that of a probe does not."""
        return any(self.mean("divergence", layer) > _ROUNDING for layer in self.calibrated)

    def top(self, measure: str = "reliability") -> int:
        """Return the highest layer with a measure, which the paper's analyses look at."""
        return max(self._layers_of(measure))

    def counts(self, measure: str, layer: int) -> np.ndarray:
        """Return the sums of one of `STEP_MEASURES` in a layer, and the steps: (N, 2).

        Raises:
            ValueError: another measure, or a layer that does not have it.
        """
        if layer not in self._layers_of(measure):
            reason = " Its masks carry no information." if layer in self.idle else ""
            raise ValueError(
                f"`layer` must be one with {measure!r}, {list(self.layers[measure])}, got {layer!r}.{reason}"
            )
        return np.stack([self.by_layer[measure][:, layer], self.steps], axis=1)

    def mean(self, measure: str, layer: int) -> float:
        """Return the mean of a measure over all steps. Errors: see `counts`."""
        total, steps = self.counts(measure, layer).sum(axis=0)
        return float(total / steps)

    def reliability_up_to(self, layer: int) -> np.ndarray:
        """Count reliable steps among those whose entropy is at most each threshold (Fig. 4): (N, thresholds, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("reliability", layer)
        return self.by_threshold[:, layer, :-1, ::-1].cumsum(axis=1)

    def steps_up_to(self, layer: int) -> np.ndarray:
        """Count the steps whose entropy is at most each threshold, among all: (N, thresholds, 2)."""
        below = self.by_threshold[:, layer, :-1, 0].cumsum(axis=1)
        return np.stack([below, np.broadcast_to(self.steps[:, None], below.shape)], axis=2)

    def divergence_in(self, layer: int) -> np.ndarray:
        """Add up the divergence of the rows of each bucket of entropy (Fig. 8): (N, buckets + 1, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("divergence", layer)
        return self.by_bucket[:, layer]

    def of_tag(self, measure: str, layer: int) -> np.ndarray:
        """Add up `reliability` or `average_entropy` of the steps with each tag (Fig. 3): (N, tags, 2).

        Raises:
            ValueError: a layer that does not have the measure; no tags were given.
        """
        if not self.tags:
            raise ValueError("Results by tag need `tags`, got none. Give one tag for each target word.")
        self.counts(measure, layer)
        column = ("reliability", "average_entropy").index(measure)
        return np.stack([self.by_tag[:, layer, :, column], self.tag_steps], axis=2)

    def attention_of_groups(self, layer: int) -> np.ndarray:
        """Add up the share of attention that each of `TOKEN_GROUPS` of source tokens gets in a layer: (N, 3, 2)."""
        return np.stack([self.by_group[:, layer], np.repeat(self.steps[:, None], len(TOKEN_GROUPS), axis=1)], axis=2)

    def norms_of_groups(self, layer: int) -> np.ndarray:
        """Add up the norms of value vectors of `TOKEN_GROUPS` of the source in a layer, mean over heads: (N, 3, 2)."""
        return np.stack([self.group_norms[:, layer], self.group_tokens], axis=2)

    def links(self, weights: str, layer: int) -> list[frozenset[Link]]:
        """Return, for every pair, links from each target word to its best source word by the head average of a layer.

        Args:
            weights: one of `WEIGHT_KINDS`; attention is that before calibration.
            layer: from 0.

        Raises:
            ValueError: a layer that does not have the weights; no `alignments` were asked for.
        """
        if self.best is None:
            raise ValueError("There are no links: call `observe` with `alignments=True`.")
        self.counts("entropy" if weights == "attention" else "reliability", layer)
        return [
            frozenset((int(i), j) for j, i in enumerate(of_pair[layer]) if i >= 0) for of_pair in self.best[weights]
        ]

    def _layers_of(self, measure: str) -> tuple[int, ...]:
        if measure not in STEP_MEASURES:
            raise ValueError(f"`measure` must be one of {', '.join(STEP_MEASURES)}, got {measure!r}.")
        if not self.layers[measure]:
            if self.idle and measure in NEED_INFORMATION:
                raise ValueError(
                    f"{measure!r} is withheld: the masks of this model carry no information (they tell source tokens "
                    f"apart at fewer than half of the steps). {WITHOUT_MASKS}."
                )
            has = "`leaky`" if measure == "null" else "`calibration`"
            raise ValueError(f"{measure!r} can only be measured on a model or an active adapter with {has}.")
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
    """Read a corpus once. Batches, padding and the order of the pairs change nothing.

    Args:
        model: an encoder-decoder of transformers, on the device to use: stock, one of ours, or with an active adapter.
            Its mode and attention are left as they are. What needs masks is measured where there are masks.
        tokenizer: the model's.
        sources, targets: sentence pairs. Pairs with a side of no word are left out.
        tags: of the words of each target. The tokens of a word have its tag, special tokens have none.
        alignments: find the best source word of each target word, and whether the word was predicted.
        batch_size: most pairs at once. Pairs are batched by length.

    Raises:
        ValueError: no pair with words on both sides; tags that do not fit; and what `readings_of_pairs` refuses.
    """
    word_tags = None if tags is None else tags_of(targets, tags)
    frequencies = Counter(chain.from_iterable(word_tags or ()))
    tag_names = tuple(sorted(frequencies, key=lambda tag: (-frequencies[tag], tag)))
    sums_of_pairs: dict[int, dict[str, np.ndarray]] = {}
    layers_with: dict[str, set[int]] = {measure: set() for measure in STEP_MEASURES}
    by_head: dict[str, np.ndarray] = {}
    best: dict[int, dict[str, np.ndarray]] = {}
    predicted: dict[int, np.ndarray] = {}
    reading_options: dict[str, Any] = {"details": True, "predictions": alignments, "batch_size": batch_size}
    with recorded_value_norms(model) as (norms, null_norms):
        for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, **reading_options):
            kinds = _kinds(pairs, reading, sources, word_tags, tag_names)
            steps, step_tags, groups = kinds
            plain = [attention for attention in reading.plain if attention is not None]
            masked = any(mask is not None for mask in reading.masks)
            contributions = reading.contributions if masked else (None,) * len(plain)
            layers = []
            for number, attention in enumerate(plain):
                mask = reading.masks[number]
                optional = {
                    "mask": mask,
                    "contribution": contributions[number],
                    "calibrated": None if mask is None else reading.attentions[number],
                    "null": reading.nulls[number],
                }
                doubled = {name: tensor.double() for name, tensor in optional.items() if tensor is not None}
                rows = layer_rows(attention.double(), reading.source_mask, **doubled)
                for name in rows.layer:
                    layers_with[name].add(number)
                for name, of_heads in rows.heads.items():
                    head_sums = (of_heads * steps[:, None]).sum(dim=(0, 2)).cpu().numpy()
                    by_head.setdefault(name, np.zeros((len(plain), len(head_sums))))[number] += head_sums
                layers.append(_layer_sums(attention.double(), rows, norms.get(number), *kinds))
            sums = {name: torch.stack([layer[name] for layer in layers], dim=1) for name in layers[0]}
            sums |= {"steps": steps.sum(dim=1), "tag_steps": step_tags.sum(dim=1), "group_tokens": groups.sum(dim=1)}
            arrays = {name: tensor.cpu().numpy() for name, tensor in sums.items()}
            for row, pair in enumerate(pairs):
                sums_of_pairs[pair.index] = {name: array[row].copy() for name, array in arrays.items()}
                if reading.predicted is not None:
                    weights = zip(WEIGHT_KINDS, (plain, contributions), strict=True)
                    best[pair.index] = {name: _best_words(by_layer, reading, row, pair) for name, by_layer in weights}
                    right = reading.predicted[row][reading.target_mask[row]].cpu().numpy()
                    words = pair.target.tokens_of_words()
                    predicted[pair.index] = np.array([right[places].any() for places in words])
    check_some_words(sources, targets)

    read = sorted(sums_of_pairs)
    stacked = {name: np.stack([sums_of_pairs[pair][name] for pair in read]) for name in sums_of_pairs[read[0]]}
    total = stacked["steps"].sum()
    means_by_head = {measure: of_heads / total for measure, of_heads in by_head.items()}
    informed = stacked["informed"].sum(axis=0) >= _MOST_STEPS * total  # (layers,)
    measured = {measure: tuple(sorted(layers)) for measure, layers in layers_with.items()}
    for measure in NEED_INFORMATION:
        measured[measure] = tuple(layer for layer in measured[measure] if informed[layer])
        if measure in means_by_head:
            means_by_head[measure][means_by_head["informed"] < _MOST_STEPS] = np.nan
    nothing = [np.full((len(informed), len(target.split())), -1) for target in targets]
    return Observations(
        pairs=np.array(read),
        layers=measured,
        by_layer={measure: stacked.pop(measure) for measure in STEP_MEASURES},
        by_head=means_by_head,
        tags=tag_names,
        null_norms=null_norms,
        word_tags=word_tags,
        best={
            name: [best[index][name] if index in best else empty for index, empty in enumerate(nothing)]
            for name in WEIGHT_KINDS
        }
        if alignments
        else None,
        predicted=[predicted.get(index, empty[0] >= 0) for index, empty in enumerate(nothing)] if alignments else None,
        **stacked,
    )


def _kinds(
    pairs: list[TokenPair],
    reading: Reading,
    sources: Sequence[str],
    word_tags: Sequence[Sequence[str]] | None,
    tag_names: Sequence[str],
) -> list[Tensor]:
    """Mark the kinds of the steps and source tokens of a batch by 0 and 1.

    Returns:
        (batch, steps), real steps; (batch, steps, tags), steps that predict a token of a word with this tag;
        (batch, source, groups), source tokens of this one of `TOKEN_GROUPS`.
    """
    tags = np.zeros((*reading.target_mask.shape, len(tag_names)))
    groups = np.zeros((*reading.source_mask.shape, len(TOKEN_GROUPS)))
    for row, pair in enumerate(pairs):
        kinds = np.array([*map(is_punctuation, sources[pair.index].split()), 2])  # no word is -1: the last
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
    """Return the sums of one layer, (batch, ...): measures, and those by threshold, bucket, tag and group."""
    measures = {name: rows.layer[name] * steps if name in rows.layer else 0 * steps for name in STEP_MEASURES}
    # Below, which threshold and bucket a row belongs to, (..., 1 + bounds).
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
    """Mark the interval that each value is in, (...) -> (..., bounds + 1); its lower bound (`right`) or its upper one
    belongs to an interval."""
    place = torch.bucketize(values, values.new_tensor(bounds), right=right)
    return torch.nn.functional.one_hot(place, len(bounds) + 1).to(values.dtype)


def _best_words(layers: Sequence[Tensor | None], reading: Reading, row: int, pair: TokenPair) -> np.ndarray:
    """Return the best source word of each target word by the head average of each layer, (L, target words)."""
    best = np.full((len(layers), pair.target.words), -1, dtype=np.int16)
    for number, layer in enumerate(layers):
        if layer is not None:
            average = reading.unpadded(layer, row).double().mean(dim=0).cpu()
            for i, j in best_links(word_attention(average, pair.source, pair.target)):
                best[number, j] = i
    return best
