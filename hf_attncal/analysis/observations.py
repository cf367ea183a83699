"""What the cross-attention of an encoder-decoder does over a corpus, read once, pair by pair.

The analyses of Lu et al. (TASLP 2022, sections III and IV): how often attention names the source token that counts,
and how that goes with the entropy of attention and with the part of speech of what is predicted; and what calibration
changes. Besides, what of Mask-Align (Chen et al. 2021) can be asked of any model: who gets attention, and how long
their value vectors are.

Steps are the predictions of real target tokens, given those before (teacher forcing). Nothing of a batch is kept but
sums over the steps of each pair, from which intervals over pairs are made (`hf_attncal.metrics.base`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import NO_WORD, is_punctuation

from .links import best_links
from .reading import Layers, Reading, TokenPair, read_pairs
from .reliability import attention_entropy, attention_is_reliable, head_average, jensen_shannon
from .tags import Tagger, tags_of
from .value_norms import null_value_norms, recorded_value_norms
from .words import word_attention

# What is measured of each step in a layer; see `Observations`.
MEASURES = (
    "entropy",
    "average_entropy",
    "null",
    "reliability",
    "mask",
    "divergence",
    "entropy_change",
    "moved",
)
THRESHOLDS = tuple(0.25 * step for step in range(1, 21))  # of entropy, as far as Lu et al., Fig. 4
BUCKETS = (0.8, 1.6, 2.4, 3.2)  # of entropy, as in Lu et al., Fig. 8
GROUPS = ("words", "punctuation", "special tokens")  # of source tokens
WEIGHTS = ("attention", "contribution")


class LayerRows(NamedTuple):
    """What is measured of each step in one layer, by the name of the measure.

    Args:
        heads: of each head, (batch, heads, steps).
        layer: of the layer as a whole, (batch, steps).
    """

    heads: dict[str, Tensor]
    layer: dict[str, Tensor]


def layer_rows(
    attention: Tensor,
    source_mask: Tensor,
    *,
    mask: Tensor | None = None,
    contribution: Tensor | None = None,
    calibrated: Tensor | None = None,
    null: Tensor | None = None,
) -> LayerRows:
    """The measures of one layer that can be had of what is given; see `Observations` for what they are.

    Args:
        attention: a, before any calibration, (batch, heads, steps, source).
        source_mask: boolean (batch, source).
        mask, contribution: m and phi, the same shape.
        calibrated: the weights after calibration, the same shape.
        null: weight of NULL, (batch, heads, steps).
    """
    real = source_mask[:, None, None].to(attention.dtype)
    average = head_average(attention)
    entropy = attention_entropy(attention, source_mask)
    heads = {"entropy": entropy}
    layer = {"average_entropy": attention_entropy(average[:, None], source_mask)[:, 0]}
    if null is not None:
        heads["null"] = null
    if mask is not None:
        heads["mask"] = (mask * real).sum(dim=-1) / real.sum(dim=-1)
    if contribution is not None:
        heads["reliability"] = attention.argmax(dim=-1) == contribution.argmax(dim=-1)
        layer["reliability"] = attention_is_reliable(attention, contribution)
    if calibrated is not None:
        heads["divergence"] = jensen_shannon(attention, calibrated, source_mask)
        heads["entropy_change"] = attention_entropy(calibrated, source_mask) - entropy
        heads["moved"] = attention.argmax(dim=-1) != calibrated.argmax(dim=-1)
        layer["moved"] = average.argmax(dim=-1) != head_average(calibrated).argmax(dim=-1)
    means = {name: rows.to(attention.dtype).mean(dim=1) for name, rows in heads.items() if name not in layer}
    return LayerRows(heads, layer | means)


def plain_attentions(reading: Reading) -> Layers:
    """The weights before calibration: of a layer without those that are used."""
    layers = zip(reading.uncalibrated, reading.attentions, strict=True)
    return tuple(used if plain is None else plain for plain, used in layers)


# ---- results ----


@dataclass(frozen=True)
class Observations:
    """Sums over the steps of each pair. Methods give counts (pairs, ..., 2): a sum, and of how many.

    Their mean is `counts.sum(axis=0)`, the first divided by the second; `hf_attncal.metrics.base.MEAN` has it with an
    interval over pairs.

    Measures of a step in a layer, in which logarithms are natural:

    - `entropy` of attention before calibration, the mean over heads. Rows are shares: divided by their sum, where NULL
      or calibration makes that another number than 1.
    - `average_entropy`, that of the mean of all heads.
    - `null`: the weight of NULL, the mean over heads. In layers with `leaky`.
    - `reliability`: whether the token with the most attention contributes most, on the head average (Lu et al., eqs. 7
      and 8). In layers with masks, as all below.
    - `mask`: m, the mean over heads and real source tokens.
    - `divergence` of attention before and after calibration (eq. 14), the mean over heads; rows are shares.
    - `entropy_change`: `entropy` after calibration less before, the sign of Table VI.
    - `moved`: whether calibration gives the most weight to another token, on the head average.

    Args:
        pairs: (N,), which pairs of the corpus were read: those with words on both sides.
        steps: (N,), their steps.
        layers: measure -> the decoder layers, from 0, in which there is something to measure.
        by_layer: measure -> sums (N, L), L the number of decoder layers; 0 in those that are not in `layers`.
        by_head: measure -> means over all steps (L, H); `reliability` and `moved` on the rows of each head.
        thresholds: of `average_entropy`, ascending.
        by_threshold: (N, L, thresholds + 1, 2), steps by the first threshold that their entropy does not exceed, the
            last for those above all; how many, and how many of them reliable.
        buckets: bounds of entropy between the buckets.
        by_bucket: (N, L, buckets + 1, 2), the divergences of rows (a head at a step) by their own entropy, and how
            many rows.
        tags: the tags of target words, the most frequent first; empty where none were given.
        by_tag: (N, L, tags, 2), sums of `reliability` and `average_entropy` over steps of words with this tag.
        tag_steps: (N, tags), how many steps.
        by_group: (N, L, 3), attention of `GROUPS` of source tokens, the mean over heads; with `null` they add up to 1.
        group_tokens: (N, 3), how many tokens.
        group_norms: (N, L, 3), norms of their value vectors, summed over tokens, the mean over heads; 0 for models
            whose values are not known.
        null_norms: layer -> norm of the value vector of NULL, the mean over heads.
        word_tags: the tags of every pair of the corpus, as they were given.
        best: of `WEIGHTS`, for every pair of the corpus (L, target words), the source word that gets most, -1 for none
            (`best_links`); None without `alignments`.
        predicted: for every pair of the corpus (target words,), whether the model would choose any of the word's
            subwords; None without `alignments`.
    """

    pairs: np.ndarray
    steps: np.ndarray
    layers: Mapping[str, tuple[int, ...]]
    by_layer: Mapping[str, np.ndarray]
    by_head: Mapping[str, np.ndarray]
    thresholds: tuple[float, ...]
    by_threshold: np.ndarray
    buckets: tuple[float, ...]
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
        """The decoder layers with masks, from 0; none for a model without calibration."""
        return self.layers["reliability"]

    def top(self, measure: str = "reliability") -> int:
        """The highest layer with a measure, which the paper's analyses look at."""
        return max(self._layers_of(measure))

    def counts(self, measure: str, layer: int) -> np.ndarray:
        """One of `MEASURES` in a layer, and steps: (N, 2).

        Raises:
            ValueError: another measure, or a layer that does not have it.
        """
        if layer not in self._layers_of(measure):
            raise ValueError(f"`layer` must be one with {measure!r}, {list(self.layers[measure])}, got {layer!r}.")
        return np.stack([self.by_layer[measure][:, layer], self.steps], axis=1)

    def mean(self, measure: str, layer: int) -> float:
        """The mean of a measure over all steps. Errors: see `counts`."""
        total, steps = self.counts(measure, layer).sum(axis=0)
        return float(total / steps)

    def reliability_up_to(self, layer: int) -> np.ndarray:
        """Reliable steps among those whose entropy is at most each threshold (Fig. 4): (N, thresholds, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("reliability", layer)
        return self.by_threshold[:, layer, :-1, ::-1].cumsum(axis=1)

    def steps_up_to(self, layer: int) -> np.ndarray:
        """Steps whose entropy is at most each threshold, among all: (N, thresholds, 2)."""
        below = self.by_threshold[:, layer, :-1, 0].cumsum(axis=1)
        return np.stack([below, np.broadcast_to(self.steps[:, None], below.shape)], axis=2)

    def divergence_in(self, layer: int) -> np.ndarray:
        """Divergence of the rows of each bucket of entropy (Fig. 8): (N, buckets + 1, 2).

        Raises:
            ValueError: a layer without masks.
        """
        self.counts("divergence", layer)
        return self.by_bucket[:, layer]

    def bucket_names(self) -> list[str]:
        """`0 to 0.8`, ..., `above 3.2`: a lower bound belongs to its bucket."""
        inner = [f"{low:g} to {high:g}" for low, high in pairwise((0, *self.buckets))]
        return [*inner, f"above {self.buckets[-1]:g}"]

    def of_tag(self, measure: str, layer: int) -> np.ndarray:
        """`reliability` or `average_entropy` of the steps with each tag (Fig. 3): (N, tags, 2).

        Raises:
            ValueError: another measure, or a layer that does not have it; no tags were given.
        """
        if not self.tags:
            raise ValueError("`tags` were not given: there is nothing to tell apart. Give one for each target word.")
        names = ("reliability", "average_entropy")
        if measure not in names:
            raise ValueError(f"`measure` by tag must be one of {', '.join(names)}, got {measure!r}.")
        self.counts(measure, layer)
        return np.stack([self.by_tag[:, layer, :, names.index(measure)], self.tag_steps], axis=2)

    def attention_of_groups(self, layer: int) -> np.ndarray:
        """The share of attention that each of `GROUPS` of source tokens gets in a layer: (N, 3, 2)."""
        return np.stack([self.by_group[:, layer], np.repeat(self.steps[:, None], len(GROUPS), axis=1)], axis=2)

    def norms_of_groups(self, layer: int) -> np.ndarray:
        """Norms of the value vectors of `GROUPS` of source tokens in a layer, the mean over heads: (N, 3, 2)."""
        return np.stack([self.group_norms[:, layer], self.group_tokens], axis=2)

    def links(self, weights: str, layer: int) -> list[frozenset[Link]]:
        """For every pair of the corpus, each target word and its best source word in the head average of a layer.

        Args:
            weights: one of `WEIGHTS`; attention is that before calibration.
            layer: from 0.

        Raises:
            ValueError: other weights, or a layer that does not have them; no `alignments` were asked for.
        """
        if self.best is None:
            raise ValueError("Links were not asked for: call `observe` with `alignments=True`.")
        if weights not in WEIGHTS:
            raise ValueError(f"`weights` must be one of {', '.join(WEIGHTS)}, got {weights!r}.")
        self.counts("entropy" if weights == "attention" else "reliability", layer)
        return [
            frozenset((int(i), j) for j, i in enumerate(of_pair[layer]) if i >= 0) for of_pair in self.best[weights]
        ]

    def _layers_of(self, measure: str) -> tuple[int, ...]:
        if measure not in MEASURES:
            raise ValueError(f"`measure` must be one of {', '.join(MEASURES)}, got {measure!r}.")
        if not self.layers[measure]:
            has = "`leaky`" if measure == "null" else "`calibration`"
            raise ValueError(f"{measure!r} can be had of a model or an active adapter with {has} alone.")
        return self.layers[measure]


# ---- reading ----


def observe(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tags: Sequence[Sequence[str]] | Tagger | None = None,
    alignments: bool = False,
    thresholds: Sequence[float] = THRESHOLDS,
    buckets: Sequence[float] = BUCKETS,
    batch_size: int = 32,
    source_prefix: str = "",
) -> Observations:
    """Read a corpus once. Batches, padding and the order of the pairs change nothing.

    Args:
        model: an encoder-decoder of transformers, on the device to use: stock, one of ours, or with an active adapter.
            Its mode and attention are left as they are. What needs masks is measured where there are masks.
        tokenizer: the model's.
        sources, targets: sentence pairs. Pairs with a side of no word are left out.
        tags: of the words of each target, or what makes them of one (see `tags.py`). The tokens of a word have its
            tag, special tokens have none.
        alignments: find the best source word of each target word, and whether the word was predicted.
        thresholds, buckets: of entropy, ascending numbers above 0.
        batch_size: most pairs at once. Pairs are batched by length.
        source_prefix: what the model wants in front of every source.

    Raises:
        ValueError: no pair with words on both sides; tags that do not fit; thresholds or buckets that do not ascend;
            and what `read_pairs` refuses.
    """
    _check_bounds("thresholds", thresholds)
    _check_bounds("buckets", buckets)
    if not any(source.strip() and target.strip() for source, target in zip(sources, targets, strict=False)):
        raise ValueError(
            "`sources` and `targets` must have a pair with words on both sides, got none among "
            f"{len(sources)} and {len(targets)} sentences."
        )
    word_tags = None if tags is None else tags_of(targets, tags)
    sums = _Sums(sources, word_tags, tuple(thresholds), tuple(buckets), alignments)
    reading = {"details": True, "predictions": alignments, "batch_size": batch_size, "source_prefix": source_prefix}
    with recorded_value_norms(model) as norms:
        for pairs, found in read_pairs(model, tokenizer, sources, targets, **reading):
            sums.add(pairs, found, norms)
    null_norms = {number: float(norm.double().mean()) for number, norm in null_value_norms(model).items()}
    return sums.observations(targets, null_norms)


def _check_bounds(name: str, bounds: Sequence[float]) -> None:
    if not bounds or not all(low < high for low, high in pairwise((0, *bounds))):
        raise ValueError(f"`{name}` must be ascending numbers above 0, one at least, got {list(bounds)}.")


class _Sums:
    """What is added up while a corpus is read."""

    def __init__(
        self,
        sources: Sequence[str],
        word_tags: Sequence[tuple[str, ...]] | None,
        thresholds: tuple[float, ...],
        buckets: tuple[float, ...],
        alignments: bool,
    ):
        self.sources, self.word_tags = sources, word_tags
        self.thresholds, self.buckets = thresholds, buckets
        self.alignments = alignments
        frequencies = Counter(tag for of_pair in word_tags or () for tag in of_pair)
        self.tags = tuple(sorted(frequencies, key=lambda tag: (-frequencies[tag], tag)))
        self.numbers = {tag: number for number, tag in enumerate(self.tags)}
        self.rows: dict[int, dict[str, np.ndarray]] = {}  # pair -> sums by name
        self.layers: dict[str, set[int]] = {measure: set() for measure in MEASURES}
        self.heads: dict[str, np.ndarray] = {}
        self.best: dict[int, dict[str, np.ndarray]] = {}
        self.predicted: dict[int, np.ndarray] = {}

    def add(self, pairs: list[TokenPair], reading: Reading, norms: Mapping[int, Tensor]) -> None:
        """Add a batch: its reading, and the norms of value vectors in each layer."""
        plain = plain_attentions(reading)
        masked = [mask is not None for mask in reading.masks]
        contributions = reading.contributions if any(masked) else (None,) * len(plain)
        steps = reading.target_mask.double()
        tag_of_step, group_of_token = self._tag_of_step(pairs, steps), self._group_of_token(pairs, reading.source_mask)
        found: dict[str, list[Tensor]] = {}
        for number, attention in enumerate(plain):
            attention, mask, phi, null = (
                None if tensor is None else tensor.double()
                for tensor in (attention, reading.masks[number], contributions[number], reading.nulls[number])
            )
            used = reading.attentions[number].double() if masked[number] else None
            options = {"mask": mask, "contribution": phi, "calibrated": used, "null": null}
            rows = layer_rows(attention, reading.source_mask, **options)
            for name in rows.layer:
                self.layers[name].add(number)
            for name, of_heads in rows.heads.items():
                sums = (of_heads.double() * steps[:, None]).sum(dim=(0, 2)).cpu().numpy()
                self.heads.setdefault(name, np.zeros((len(plain), len(sums))))[number] += sums
            of_layer = {name: values.double() * steps for name, values in rows.layer.items()}
            sums = {name: values.sum(dim=1) for name, values in of_layer.items()}
            reliable = of_layer.get("reliability", torch.zeros_like(steps))
            sums["by_threshold"] = self._by_threshold(rows.layer["average_entropy"], reliable, steps)
            sums["by_bucket"] = self._by_bucket(rows.heads, steps)
            both = torch.stack([reliable, of_layer["average_entropy"]], dim=-1)
            sums["by_tag"] = torch.einsum("btm,btu->bum", both, tag_of_step)
            received = (head_average(attention) * steps.unsqueeze(2)).sum(dim=1)
            sums["by_group"] = torch.einsum("bs,bsg->bg", received, group_of_token)
            if number in norms:
                of_tokens = norms[number].double().mean(dim=1)
                sums["group_norms"] = torch.einsum("bs,bsg->bg", of_tokens, group_of_token)
            for name in (*MEASURES, "by_threshold", "by_bucket", "by_tag", "by_group", "group_norms"):
                like = sums["by_group"] if name == "group_norms" else steps[:, 0]
                found.setdefault(name, []).append(sums.get(name, torch.zeros_like(like)))
        by_pair = {name: torch.stack(layers, dim=1).cpu().numpy() for name, layers in found.items()}
        by_pair["steps"] = reading.target_mask.sum(dim=1).cpu().numpy()
        by_pair["tag_steps"] = tag_of_step.sum(dim=1).cpu().numpy()
        by_pair["group_tokens"] = group_of_token.sum(dim=1).cpu().numpy()
        for row, pair in enumerate(pairs):
            self.rows[pair.index] = {name: values[row].copy() for name, values in by_pair.items()}
        if self.alignments:
            self._add_alignments(pairs, reading, plain, contributions)

    def _tag_of_step(self, pairs: list[TokenPair], steps: Tensor) -> Tensor:
        """(batch, steps, tags), 1 where the step predicts a token of a word with this tag."""
        of_step = np.zeros((*steps.shape, len(self.tags)))
        if self.word_tags is not None:
            for row, pair in enumerate(pairs):
                numbers = np.array([self.numbers[tag] for tag in self.word_tags[pair.index]])
                (tokens,) = np.nonzero(pair.target.word_ids != NO_WORD)
                of_step[row, tokens, numbers[pair.target.word_ids[tokens]]] = 1
        return torch.as_tensor(of_step, device=steps.device)

    def _group_of_token(self, pairs: list[TokenPair], source_mask: Tensor) -> Tensor:
        """(batch, source, groups), 1 where a token is of this one of `GROUPS`."""
        of_token = np.zeros((*source_mask.shape, len(GROUPS)))
        for row, pair in enumerate(pairs):
            # No word is -1: the last.
            groups = np.array([*(int(is_punctuation(word)) for word in self.sources[pair.index].split()), 2])
            of_token[row, np.arange(len(pair.source.ids)), groups[pair.source.word_ids]] = 1
        return torch.as_tensor(of_token, device=source_mask.device)

    def _by_threshold(self, entropy: Tensor, reliable: Tensor, steps: Tensor) -> Tensor:
        """(batch, thresholds + 1, 2) of (batch, steps)."""
        place = _one_hot(entropy, self.thresholds, right=False)
        return torch.einsum("btm,btk->bkm", torch.stack([steps, reliable], dim=-1), place)

    def _by_bucket(self, heads: Mapping[str, Tensor], steps: Tensor) -> Tensor:
        """(batch, buckets + 1, 2) of rows (batch, heads, steps)."""
        place = _one_hot(heads["entropy"], self.buckets, right=True) * steps[:, None, :, None]
        divergence = heads.get("divergence", torch.zeros_like(heads["entropy"]))
        return torch.stack([torch.einsum("bht,bhtk->bk", divergence, place), place.sum(dim=(1, 2))], dim=-1)

    def _add_alignments(self, pairs: list[TokenPair], reading: Reading, plain: Layers, contributions: Layers) -> None:
        for row, pair in enumerate(pairs):
            self.best[pair.index] = {
                name: _best(pair, [None if of is None else reading.unpadded(of, row) for of in layers])
                for name, layers in zip(WEIGHTS, (plain, contributions), strict=True)
            }
            tokens = reading.predicted[row][reading.target_mask[row]].cpu().numpy()
            self.predicted[pair.index] = np.array([tokens[of].any() for of in pair.target.tokens_of_words()])

    def observations(self, targets: Sequence[str], null_norms: Mapping[int, float]) -> Observations:
        pairs = sorted(self.rows)
        sums = {name: np.stack([self.rows[pair][name] for pair in pairs]) for name in self.rows[pairs[0]]}
        best, predicted = None, None
        if self.alignments:
            layers = len(next(iter(self.heads.values())))
            nothing = [np.full((layers, len(target.split())), -1) for target in targets]
            best = {
                name: [self.best[index][name] if index in self.best else empty for index, empty in enumerate(nothing)]
                for name in WEIGHTS
            }
            predicted = [self.predicted.get(index, empty[0] >= 0) for index, empty in enumerate(nothing)]
        steps = sums["steps"]
        return Observations(
            pairs=np.array(pairs),
            steps=steps,
            layers={measure: tuple(sorted(layers)) for measure, layers in self.layers.items()},
            by_layer={measure: sums[measure] for measure in MEASURES},
            by_head={measure: of_heads / steps.sum() for measure, of_heads in self.heads.items()},
            thresholds=self.thresholds,
            by_threshold=sums["by_threshold"],
            buckets=self.buckets,
            by_bucket=sums["by_bucket"],
            tags=self.tags,
            by_tag=sums["by_tag"],
            tag_steps=sums["tag_steps"],
            by_group=sums["by_group"],
            group_tokens=sums["group_tokens"],
            group_norms=sums["group_norms"],
            null_norms=null_norms,
            word_tags=self.word_tags,
            best=best,
            predicted=predicted,
        )


def _one_hot(values: Tensor, bounds: Sequence[float], right: bool) -> Tensor:
    """(...) -> (..., bounds + 1), 1 at the interval that the value is in; its lower bound (`right`) or its upper one
    belongs to an interval."""
    place = torch.bucketize(values, values.new_tensor(bounds), right=right)
    return torch.nn.functional.one_hot(place, len(bounds) + 1).to(values.dtype)


def _best(pair: TokenPair, layers: Sequence[Tensor | None]) -> np.ndarray:
    """(layers, target words) of (heads, steps, source) in each layer: the best source word of each target word."""
    best = np.full((len(layers), pair.target.words), -1, dtype=np.int16)
    for number, weights in enumerate(layers):
        if weights is not None:
            average = weights.double().mean(dim=0).cpu()
            for i, j in best_links(word_attention(average, pair.source, pair.target)):
                best[number, j] = i
    return best
