"""Make sentence pairs to look at, of a corpus or of a few sentences, with attention and attributions."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import token_names
from hf_attncal.inference.reading import Reading, readings_of_pairs
from hf_attncal.inference.source_use import source_use
from hf_attncal.inference.translation import translate_texts
from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.reliability import attention_entropy, attention_is_reliable
from hf_attncal.metrics.trust import verdict_of

from .attribution import METHODS, attribute, works_on
from .figures.contents import ChangedWord, PairView, PairWeights, Report, Without, words_of_way

BROWSED = ("alti", "occlusion")  # in the sentence browser, beside attention and contributions
_WINDOW = 64  # pairs that are held at once


def pair_views(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    methods: Sequence[str],
    *,
    links: Sequence[Collection[Link]] | None = None,
    informed: Collection[int] | None = None,
    batch_size: int = 32,
) -> Iterator[PairView]:
    """Yield sentence pairs in their order, teacher-forced on the targets, without those with a side of no word.

    First come `attention`, before calibration, then what calibration makes of it (`calibrated`), where that differs,
    and `contribution`, of a model with masks: each with all layers and heads; then the methods.

    Args:
        model, tokenizer, sources, targets, batch_size: see `readings_of_pairs`.
        methods: names of `attribution.METHODS`.
        links: gold links of each pair.
        informed: the layers, from 0, whose masks carry information; None for all with masks. Of others there is no
            contribution.

    Raises:
        ValueError: see `attribute`.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "details": True}
    for start in range(0, len(sources), _WINDOW):
        texts = sources[start : start + _WINDOW], targets[start : start + _WINDOW]
        attributions = {
            name: {one.index: one for one in attribute(model, tokenizer, *texts, name, batch_size=batch_size)}
            for name in methods
        }
        views = {}
        for pairs, reading in readings_of_pairs(model, tokenizer, *texts, **options):
            plain = [layer for layer in reading.plain if layer is not None]
            masks = enumerate(reading.masks)
            useful = [n for n, mask in masks if mask is not None and (informed is None or n in informed)]
            layers: dict[str, Sequence[Tensor | None]] = {"attention": plain}
            if useful:
                used = [layer for layer in reading.attentions if layer is not None]
                # Those of a probe are the same.
                if not all(torch.allclose(*both, atol=1e-6) for both in zip(plain, used, strict=True)):
                    layers["calibrated"] = used
                layers["contribution"] = [phi if n in useful else None for n, phi in enumerate(reading.contributions)]
            for row, pair in enumerate(pairs):
                weights = {name: _weights(of_layers, reading, row) for name, of_layers in layers.items()}
                for name, by_index in attributions.items():
                    scores, null = by_index[pair.index].scores, by_index[pair.index].null
                    null_share = None if null is None else null[None, None].numpy()
                    weights[name] = PairWeights(scores[None, None].numpy(), null_share, METHODS[name].signed)
                views[pair.index] = PairView(
                    index=start + pair.index,
                    source=texts[0][pair.index],
                    target=texts[1][pair.index],
                    source_tokens=_labels(tokenizer, pair.source.ids.tolist(), target=False),
                    target_tokens=_labels(tokenizer, pair.target.ids.tolist(), target=True),
                    source_words=pair.source.word_ids.tolist(),
                    target_words=pair.target.word_ids.tolist(),
                    weights=weights,
                    links=None if links is None else sorted(links[start + pair.index]),
                    notes=_notes(plain, reading, row, useful),
                )
        yield from (views[index] for index in sorted(views))


def _weights(layers: Sequence[Tensor | None], reading: Reading, row: int) -> PairWeights:
    """Return the weights of one pair; a layer that has nothing to say is 0."""
    like = next(layer for layer in layers if layer is not None)
    whole = [torch.zeros_like(like) if layer is None else layer for layer in layers]
    values = torch.stack([reading.unpadded(layer, row) for layer in whole]).float().cpu().numpy()
    if all(null is None for null in reading.nulls):
        return PairWeights(values)
    nulls = [torch.zeros_like(like[..., 0]) if null is None else null for null in reading.nulls]
    shares = torch.stack([null[row][:, reading.target_mask[row]] for null in nulls])
    return PairWeights(values, shares.float().cpu().numpy())


def _notes(plain: Sequence[Tensor], reading: Reading, row: int, useful: Sequence[int]) -> dict[str, float]:
    """Average over the target tokens of one pair; `useful` are the layers of which there are contributions."""
    steps = reading.target_mask[row]
    one = slice(row, row + 1)
    entropy = torch.stack([attention_entropy(layer[one], reading.source_mask[one]) for layer in plain])
    notes = {"entropy": float(entropy[:, 0][..., steps].mean())}
    if useful:
        attention, contribution = reading.uncalibrated[max(useful)], reading.contributions[max(useful)]
        if attention is not None and contribution is not None:
            reliable = attention_is_reliable(attention, contribution)
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
    texts = [tokenizer.decode([one], clean_up_tokenization_spaces=False).strip() for one in ids]
    return [text if text and "\ufffd" not in text else name for text, name in zip(texts, names, strict=True)]


MOST_SENTENCES = 200
_OCCLUSION = "occlusion"
_SEPARATOR = re.compile(r"\t| \|\|\| ")


def report_on_sentences(
    model, tokenizer, lines: Sequence[str], title: str, *, align: Callable | None = None, beams: int = 4
) -> Report:
    """Return a report with a sentence browser: each sentence, and its translation without its most telling word.

    Args:
        model, tokenizer: an encoder-decoder in evaluation mode, on its device, and its tokenizer.
        lines: sentences; a translation to look at stands behind a tab or `|||`, others are the model's.
        title: name of the model on the page.
        align: function from pairs to their alignments, `WordAligner.align`; None for no links.
        beams: beam size.

    Raises:
        ValueError: no sentence with words or too many, or one that is longer than the model can read.
    """
    lines = [line for line in lines if line.strip()]
    if not 0 < len(lines) <= MOST_SENTENCES:
        raise ValueError(f"`sentences` must be 1 to {MOST_SENTENCES} lines with words, got {len(lines)}.")
    pairs = [given_target(line) for line in lines]
    untranslated = [source for source, target in pairs if target is None]
    written = iter(translate_texts(model, tokenizer, untranslated, num_beams=beams))
    sides = [source for source, _ in pairs], [next(written) if target is None else target for _, target in pairs]
    effects = source_use(model, tokenizer, *sides) if len(lines) >= FEWEST_SENTENCES else None
    links = None
    if align is not None:
        links = [drawn.links for drawn in align(list(zip(*sides, strict=True)))]
    methods = [name for name in BROWSED if name in works_on(model)]
    views = list(pair_views(model, tokenizer, *sides, methods, links=links))
    if _OCCLUSION in methods:
        views = list(_with_effects(model, tokenizer, views, beams))
    views = [replace(view, link_kind="link of the aligner") for view in views]
    return Report(title, [str(verdict_of(effects, pairs=len(lines)))], (), (), views)


def given_target(line: str) -> tuple[str, str | None]:
    """Return the source of a line, and the translation behind a tab or `|||`; None without one."""
    source, *rest = _SEPARATOR.split(line, maxsplit=1)
    return source.strip(), rest[0].strip() if rest else None


def _with_effects(model, tokenizer, views: Sequence[PairView], beams: int) -> Iterator[PairView]:
    """Yield each view with what changes without the source word whose loss costs the target most."""
    losses = [words_of_way(view, _OCCLUSION) for view in views]  # (target words, source words)
    taken = [int(of_pair.sum(axis=0).argmax()) for of_pair in losses]
    cut = []
    for view, word in zip(views, taken, strict=True):
        words = view.source.split()
        cut.append(" ".join(words[:word] + words[word + 1 :]))
    texts = translate_texts(model, tokenizer, [view.source for view in views] + cut, num_beams=beams)
    for view, word, of_pair, before, after in zip(
        views, taken, losses, texts[: len(views)], texts[len(views) :], strict=True
    ):
        yield replace(view, without=changes(view, word, of_pair[:, word].tolist(), before.split(), after.split()))


def changes(
    view: PairView, taken: int, losses: Sequence[float], before: Sequence[str], after: Sequence[str]
) -> Without:
    """Compare the model's translations before and after a source word is taken away.

    Args:
        view: the pair; its target may be another translation than the model's.
        taken: number of the source word.
        losses: fall of the log-probability of each target word.
        before, after: words of the model's translations.
    """
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = {block.a + n for block in blocks for n in range(block.size)}
    new = {block.b + n for block in blocks for n in range(block.size)}
    targets = view.target.split()
    own = targets == list(before)
    return Without(
        view.source.split()[taken],
        () if own else [ChangedWord(word, loss=loss) for word, loss in zip(targets, losses, strict=True)],
        [ChangedWord(word, n not in kept, losses[n] if own else 0.0) for n, word in enumerate(before)],
        [ChangedWord(word, n not in new) for n, word in enumerate(after)],
    )
