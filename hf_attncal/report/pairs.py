"""Views of sentence pairs with attention and attributions, for a corpus or a few sentences."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.word_tokens import token_names
from hf_attncal.inference.reading import Reading, readings_of_pairs
from hf_attncal.inference.source_use import source_use
from hf_attncal.inference.translation import translate_texts
from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.reliability import attention_entropy, attention_is_reliable
from hf_attncal.metrics.trust import verdict_of

from .attribution import METHODS, attribute, works_on
from .figures.contents import ChangedWord, PairView, PairWeights, Report, Without, word_weights

BROWSED = ("alti", "occlusion")  # methods in the sentence browser, next to attention and contributions
_WINDOW = 64  # number of pairs in memory


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
    """Yield views of sentence pairs in order, teacher-forced on the targets; pairs with an empty side are left out.

    Their weights are `attention` (before calibration), `calibrated` (if it differs) and `contribution` (with masks),
    each with all layers and heads, and then the methods.

    Args:
        model, tokenizer, sources, targets, batch_size: see `readings_of_pairs`.
        methods: names in `attribution.METHODS`.
        links: gold links per pair. Default: none.
        informed: layers with informative masks, counted from 0, to show contributions of. Default: all with masks.

    Raises:
        ValueError: see `attribute`.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "details": True}
    for start in range(0, len(sources), _WINDOW):
        texts = sources[start : start + _WINDOW], targets[start : start + _WINDOW]
        attributions = {
            name: {scores.index: scores for scores in attribute(model, tokenizer, *texts, name, batch_size=batch_size)}
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
                # A probe does not change attention.
                if not all(torch.allclose(*both, atol=1e-6) for both in zip(plain, used, strict=True)):
                    layers["calibrated"] = used
                layers["contribution"] = [phi if n in useful else None for n, phi in enumerate(reading.contributions)]
            for row, pair in enumerate(pairs):
                weights = {
                    name: _weights(of_layers, reading, row, has_null=name != "contribution")
                    for name, of_layers in layers.items()
                }
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


def _weights(layers: Sequence[Tensor | None], reading: Reading, row: int, has_null: bool) -> PairWeights:
    """Return the weights of one pair, with the attention of NULL if they are attention; missing layers are 0."""
    like = next(layer for layer in layers if layer is not None)
    whole = [torch.zeros_like(like) if layer is None else layer for layer in layers]
    values = torch.stack([reading.unpadded(layer, row) for layer in whole]).float().cpu().numpy()
    if not has_null or all(null is None for null in reading.nulls):
        return PairWeights(values)
    nulls = [torch.zeros_like(like[..., 0]) if null is None else null for null in reading.nulls]
    shares = torch.stack([null[row][:, reading.target_mask[row]] for null in nulls])
    return PairWeights(values, shares.float().cpu().numpy())


def _notes(plain: Sequence[Tensor], reading: Reading, row: int, useful: Sequence[int]) -> dict[str, float]:
    """Return means over the target tokens of one pair; `useful` are the layers with contributions."""
    steps = reading.target_mask[row]
    rows = slice(row, row + 1)
    entropy = torch.stack([attention_entropy(layer[rows], reading.source_mask[rows]) for layer in plain])
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
    """Return readable tokens: their text, or the name of tokens without text, such as special tokens."""
    names = token_names(tokenizer, ids, target)
    if getattr(tokenizer, "separate_vocabs", False):  # `decode` expects target tokens
        return [name.replace("▁", "") or name for name in names]
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False).strip() for token in ids]
    return [text if text and "\ufffd" not in text else name for text, name in zip(texts, names, strict=True)]


MAX_SENTENCES = 200
_OCCLUSION = "occlusion"
_SEPARATOR = re.compile(r"\t| \|\|\| ")


def report_on_sentences(
    model, tokenizer, lines: Sequence[str], title: str, *, align: Callable | None = None, beams: int = 4
) -> Report:
    """Return a report with a sentence browser: each sentence, and its translation without its most important word.

    Args:
        model, tokenizer: encoder-decoder in evaluation mode, on its device, and its tokenizer.
        lines: sentences, each optionally followed by a tab or `|||` and a translation. Default translation: the
            model's.
        title: name of the model on the page.
        align: function from pairs to alignments, such as `WordAligner.align`. Default: no links.
        beams: number of beams. Default: 4.

    Raises:
        ValueError: no sentence with words, too many sentences, or one that is too long for the model.
    """
    lines = [line for line in lines if line.strip()]
    if not 0 < len(lines) <= MAX_SENTENCES:
        raise ValueError(f"`sentences` must be 1 to {MAX_SENTENCES} lines with words, got {len(lines)}.")
    pairs = [split_translation(line) for line in lines]
    untranslated = [source for source, target in pairs if target is None]
    translations = iter(translate_texts(model, tokenizer, untranslated, num_beams=beams))
    sides = [source for source, _ in pairs], [next(translations) if target is None else target for _, target in pairs]
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


def split_translation(line: str) -> tuple[str, str | None]:
    """Return the source of a line and its translation after a tab or `|||`, None if there is none."""
    source, *rest = _SEPARATOR.split(line, maxsplit=1)
    return source.strip(), rest[0].strip() if rest else None


def _with_effects(model, tokenizer, views: Sequence[PairView], beams: int) -> Iterator[PairView]:
    """Yield each view with the effect of removing the source word that matters most to the target."""
    losses = [word_weights(view, _OCCLUSION) for view in views]  # (target words, source words)
    removed = [int(of_pair.sum(axis=0).argmax()) for of_pair in losses]
    cut = []
    for view, word in zip(views, removed, strict=True):
        words = view.source.split()
        cut.append(" ".join(words[:word] + words[word + 1 :]))
    texts = translate_texts(model, tokenizer, [view.source for view in views] + cut, num_beams=beams)
    for view, word, of_pair, before, after in zip(
        views, removed, losses, texts[: len(views)], texts[len(views) :], strict=True
    ):
        yield replace(view, without=changes(view, word, of_pair[:, word].tolist(), before.split(), after.split()))


def changes(
    view: PairView, removed: int, losses: Sequence[float], before: Sequence[str], after: Sequence[str]
) -> Without:
    """Compare the model's translations before and after a source word is removed.

    Args:
        view: view of the pair; its target may differ from the model's translation.
        removed: index of the source word.
        losses: fall of the log-probability of each target word, in nats.
        before, after: words of the model's translations.
    """
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    unchanged_before = {block.a + n for block in blocks for n in range(block.size)}
    unchanged_after = {block.b + n for block in blocks for n in range(block.size)}
    targets = view.target.split()
    own = targets == list(before)
    return Without(
        view.source.split()[removed],
        () if own else [ChangedWord(word, loss=loss) for word, loss in zip(targets, losses, strict=True)],
        [ChangedWord(word, n not in unchanged_before, losses[n] if own else 0.0) for n, word in enumerate(before)],
        [ChangedWord(word, n not in unchanged_after) for n, word in enumerate(after)],
    )
