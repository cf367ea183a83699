"""Make sentence pairs to look at, with what attention and the methods of attribution say of each."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import token_names
from hf_attncal.inference.reading import Layers, Reading, readings_of_pairs
from hf_attncal.metrics.reliability import attention_entropy, attention_is_reliable
from hf_attncal.report.attribution import METHODS, attribute
from hf_attncal.report.figures.pair_view import PairView, PairWeights

BROWSED = ("alti", "occlusion")  # in the sentence browser, beside attention and contributions
_WINDOW = 64  # pairs that are held at once


def pair_views(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    methods: Mapping[str, Mapping[str, Any]],
    *,
    links: Sequence[Sequence[Link]] | None = None,
    informed: Collection[int] | None = None,
    batch_size: int = 32,
) -> Iterator[PairView]:
    """Yield sentence pairs in their order, teacher-forced on the targets, without those with a side of no word.

    First come `attention`, before calibration, then what calibration makes of it (`calibrated`), where that differs,
    and `contribution`, of a model with masks: each with all layers and heads; then the methods.

    Args:
        model, tokenizer, sources, targets, batch_size: see `readings_of_pairs`.
        methods: names of `analysis.attribution.METHODS` with their options.
        links: gold links of each pair.
        informed: the layers, from 0, whose masks carry information; None for all with masks. Of others there is no
            contribution.

    Raises:
        ValueError: see `attribute`.
    """
    for start in range(0, len(sources), _WINDOW):
        texts = sources[start : start + _WINDOW], targets[start : start + _WINDOW]
        attributions = {
            name: {
                one.index: one for one in attribute(model, tokenizer, *texts, name, batch_size=batch_size, **options)
            }
            for name, options in methods.items()
        }
        views = {}
        for pairs, reading in readings_of_pairs(model, tokenizer, *texts, batch_size=batch_size, details=True):
            plain, masks = reading.plain, enumerate(reading.masks)
            told = [n for n, mask in masks if mask is not None and (informed is None or n in informed)]
            layers = {"attention": plain}
            if told:
                both = zip(plain, reading.attentions, strict=True)
                if not all(torch.allclose(before, used, atol=1e-6) for before, used in both):  # as with a probe
                    layers["calibrated"] = reading.attentions
                layers["contribution"] = [phi if n in told else None for n, phi in enumerate(reading.contributions)]
            for row, pair in enumerate(pairs):
                weights = {name: _weights(of_layers, reading, row) for name, of_layers in layers.items()}
                for name, by_index in attributions.items():
                    scores, null = by_index[pair.index].scores, by_index[pair.index].null
                    null = None if null is None else null[None, None].numpy()
                    weights[name] = PairWeights(scores[None, None].numpy(), null, METHODS[name].signed)
                views[pair.index] = PairView(
                    index=start + pair.index,
                    source=texts[0][pair.index],
                    target=texts[1][pair.index],
                    source_tokens=_labels(tokenizer, pair.source.ids, target=False),
                    target_tokens=_labels(tokenizer, pair.target.ids, target=True),
                    source_words=pair.source.word_ids.tolist(),
                    target_words=pair.target.word_ids.tolist(),
                    weights=weights,
                    links=None if links is None else sorted(links[start + pair.index]),
                    notes=_notes(reading, row, told),
                )
        yield from (views[index] for index in sorted(views))


def _weights(layers: Layers, reading: Reading, row: int) -> PairWeights:
    """Return the weights of one pair; a layer that has nothing to say is 0."""
    like = next(layer for layer in layers if layer is not None)
    values = [torch.zeros_like(like) if layer is None else layer for layer in layers]
    values = torch.stack([reading.unpadded(layer, row) for layer in values]).float().cpu().numpy()
    if all(null is None for null in reading.nulls):
        return PairWeights(values)
    nulls = [torch.zeros_like(like[..., 0]) if null is None else null for null in reading.nulls]
    nulls = torch.stack([null[row][:, reading.target_mask[row]] for null in nulls])
    return PairWeights(values, nulls.float().cpu().numpy())


def _notes(reading: Reading, row: int, informed: Sequence[int]) -> dict[str, float]:
    """Average over the target tokens of one pair; `informed` are the layers of which there are contributions."""
    steps = reading.target_mask[row]
    one = slice(row, row + 1)
    entropy = torch.stack([attention_entropy(layer[one], reading.source_mask[one]) for layer in reading.plain])
    notes = {"entropy": float(entropy[:, 0][..., steps].mean())}
    if informed:
        top = max(informed)
        reliable = attention_is_reliable(reading.uncalibrated[top], reading.contributions[top])
        notes["reliability"] = float(reliable[row][steps].double().mean())
    nulls = [null[row][:, steps].mean() for null in reading.nulls if null is not None]
    if nulls:
        notes["NULL"] = float(torch.stack(nulls).mean())
    return notes


def _labels(tokenizer, ids: Sequence[int], target: bool) -> list[str]:
    """Return tokens for a person to read: as text, or by name where they have none, as special ones."""
    names = token_names(tokenizer, ids, target)
    if getattr(tokenizer, "separate_vocabs", False):  # `decode` takes all for tokens of targets
        return [name.replace("▁", "") or name for name in names]
    texts = [tokenizer.decode([int(one)], clean_up_tokenization_spaces=False).strip() for one in ids]
    return [text if text and "\ufffd" not in text else name for text, name in zip(texts, names, strict=True)]
