"""Report on a few sentences: their translations, what each word looks at, and what the most telling word is worth."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.inference.source_use import source_use
from hf_attncal.inference.translation import translate_texts
from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.trust import verdict_of

from .attribution import works_on
from .figures.contents import Report
from .figures.pair_view import ChangedWord, PairView, Without, words_of_way
from .pairs import BROWSED, pair_views

MOST_SENTENCES = 200
_OCCLUSION = "occlusion"
_SEPARATOR = re.compile(r"\t| \|\|\| ")


def report_on_sentences(
    model, tokenizer, lines: Sequence[str], title: str, *, aligner: WordAligner | None = None, beams: int = 4
) -> Report:
    """Return a report with a sentence browser: each sentence, and its translation without its most telling word.

    Args:
        model, tokenizer: an encoder-decoder in evaluation mode, on its device, and its tokenizer.
        lines: sentences; a translation to look at stands behind a tab or `|||`, others are the model's.
        title: name of the model on the page.
        aligner: aligner that draws word links; None for no links.
        beams: beam size.

    Raises:
        ValueError: no sentence with words or too many, or one that is longer than the model can read.
    """
    lines = [line for line in lines if line.strip()]
    if not 0 < len(lines) <= MOST_SENTENCES:
        raise ValueError(f"`sentences` must be 1 to {MOST_SENTENCES} lines with words, got {len(lines)}.")
    pairs = [given_target(line) for line in lines]
    written = iter(_translations(model, tokenizer, [source for source, target in pairs if target is None], beams))
    sides = [source for source, _ in pairs], [next(written) if target is None else target for _, target in pairs]
    judged = source_use(model, tokenizer, *sides) if len(lines) >= FEWEST_SENTENCES else None
    links = None
    if aligner is not None:
        links = [drawn.links for drawn in aligner.align(list(zip(*sides, strict=True)))]
    methods = {name: {} for name in BROWSED if name in works_on(model)}
    views = list(pair_views(model, tokenizer, *sides, methods, links=links))
    if _OCCLUSION in methods:
        views = list(_with_effects(model, tokenizer, views, beams))
    views = [replace(view, link_kind="link of the aligner") for view in views]
    return Report(title, [str(verdict_of(judged))], (), (), views)


def given_target(line: str) -> tuple[str, str | None]:
    """Return the source of a line, and the translation behind a tab or `|||`; None without one."""
    source, *rest = _SEPARATOR.split(line, maxsplit=1)
    return source.strip(), rest[0].strip() if rest else None


def _translations(model, tokenizer, sources: Sequence[str], beams: int) -> list[str]:
    return translate_texts(model, tokenizer, sources, num_beams=beams)


def _with_effects(model, tokenizer, views: Sequence[PairView], beams: int) -> Iterator[PairView]:
    """Yield each view with what changes without the source word whose loss costs the target most."""
    losses = [words_of_way(view, _OCCLUSION) for view in views]  # (target words, source words)
    taken = [int(of_pair.sum(axis=0).argmax()) for of_pair in losses]
    cut = [" ".join(_without(view.source.split(), word)) for view, word in zip(views, taken, strict=True)]
    texts = _translations(model, tokenizer, [view.source for view in views] + cut, beams)
    for view, word, of_pair, before, after in zip(
        views, taken, losses, texts[: len(views)], texts[len(views) :], strict=True
    ):
        yield replace(view, without=changes(view, word, of_pair[:, word].tolist(), before.split(), after.split()))


def _without(words: Sequence[str], taken: int) -> list[str]:
    return [word for number, word in enumerate(words) if number != taken]


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
