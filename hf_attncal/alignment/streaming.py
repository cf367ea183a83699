"""Align a text of any length: windows of pairs in, alignments out, written as they come."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.data.linked_pairs import SeparatorWatch, write_separator
from hf_attncal.data.texts import PairText, Part
from hf_attncal.io.errors import CommandError, check_choice, until_failure
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    BATCHES_PER_WINDOW,
    Output,
    PairWindow,
    groups_by_size,
    json_line,
    line_error,
    output_lines,
    progress_bar,
    write_lines,
)

from .quality import Judge

if TYPE_CHECKING:
    from .merging import WordAlignment

# ---- how links are written ----

LINK_FORMATS = ("pharaoh", "words", "opustrainer", "json", "html")
_WITH_OFFSETS = ("pharaoh", "json")


@dataclass(frozen=True)
class LinkStyle:
    """How the links of a pair are written.

    Args:
        format: of `LINK_FORMATS`: `i-j`, the words of each link, source and target and links, an object, a picture.
        scores: in the first three, write the score behind each link.
        offsets: write characters in place of the numbers of words; json: beside the words.

    Raises:
        CommandError: an unknown format, or one that has no place for offsets.
    """

    format: str = "pharaoh"
    scores: bool = False
    offsets: bool = False

    def __post_init__(self):
        check_choice("--format", self.format, LINK_FORMATS)
        if self.offsets and self.format not in _WITH_OFFSETS:
            raise CommandError(f"--offsets has no place in --format {self.format}. Use pharaoh or json.")

    @property
    def shows_scores(self) -> bool:
        """Whether a reader sees the scores of links."""
        return self.scores or self.format == "json"

    @property
    def counts_words(self) -> bool:
        """Whether links are numbers of words, and nothing else is in a line: so that it is read where links are."""
        return self.format == "pharaoh" and not self.offsets

    def line(self, number: int, alignment: "WordAlignment") -> str:
        """Return what is written for the pair in line `number` of the text, from 1."""
        if self.format == "html":
            from .pictures import page_pair

            return page_pair(number, alignment)
        if self.format == "json":
            return json_line(alignment.to_dict())
        write = alignment.offsets if self.offsets else alignment.pharaoh
        columns = [(alignment.words if self.format == "words" else write)(scores=self.scores)]
        if self.format == "opustrainer":
            columns = [" ".join(alignment.source), " ".join(alignment.target), *columns]
        return "\t".join(columns)

    @contextmanager
    def document(self, target: Output, aligner: str) -> Iterator[None]:
        """Write what stands before and after the lines: of a page its head, and its end if nothing went wrong.

        Args:
            target: where the lines go.
            aligner: what aligned them, for the heading.
        """
        if self.format != "html":
            yield
            return
        from .pictures import PAGE_FOOT, page_head

        write_lines(target, [page_head(aligner)])
        yield
        write_lines(target, [PAGE_FOOT])


# ---- a text of any length ----

# Most pairs in a batch where nothing else is asked for, and of ordinary ones, which have so many tokens on both sides.
_MOST_PAIRS, _PAIRS, _TOKENS_OF_PAIR = 256, 64, 64
_PAIRS_TO_LEARN_FROM = 20_000
# Characters of the source times those of the target, of pairs that are aligned before any is written: links at most.
_CELLS_AT_ONCE = 1 << 26


def lines_at_once(batch_size: int | None, adapt: bool = False) -> int:
    """Return how many lines are read before any is aligned.

    Full batches, so that lines can be sorted by length; to adapt, enough text to learn from.
    """
    return _PAIRS_TO_LEARN_FROM if adapt else BATCHES_PER_WINDOW * (batch_size or _PAIRS)


def batch_limits(batch_size: int | None) -> dict[str, int]:
    """Return `batch_size` and `batch_tokens` of `WordAligner.align` for so many pairs at once."""
    return {"batch_size": batch_size or _MOST_PAIRS, "batch_tokens": _TOKENS_OF_PAIR * max(batch_size or 0, _PAIRS)}


def align_windows(
    aligner,
    windows: Iterable[PairWindow],
    *,
    adapt: bool = False,
    shows_scores: bool = False,
    progress: bool | None = None,
    before: int = 0,
    **options,
) -> "Iterator[Sequence[WordAlignment]]":
    """Yield the alignments of pairs in groups that are to be written at once.

    Args:
        aligner: a `WordAligner`.
        windows: groups of pairs; with a group comes what is wrong with the line after it.
        adapt: learn from each window before it is aligned.
        shows_scores: the user sees the probabilities of links, or chooses by them.
        progress: count lines on standard error; None: if that is a terminal.
        before: number of lines before the first window.
        options: of `WordAligner.align`.

    Raises:
        CommandError: a line that cannot be read or aligned, when all lines before it have been given.

    Warns:
        UserWarning: what `Judge` notices.
    """
    align = partial(aligner.align, **options)
    reading = {name: options.get(name) for name in ("tokenize", "words") if name in options}
    judge = Judge(aligner, adapt, shows_scores, **reading)
    first = before + 1
    with progress_bar("aligned", progress) as bar:
        for pairs, error in windows:
            judge.see(pairs)
            if adapt and pairs:
                _adapt(aligner, pairs, **reading)
            for group in groups_by_size(pairs, _CELLS_AT_ONCE):
                alignments, failure = until_failure(align, group)
                yield alignments
                judge.add(alignments)
                if failure is not None:
                    raise line_error(first + len(alignments), "cannot be aligned", failure) from failure
                bar.update(len(group))
                first += len(group)
            if error is not None:
                raise error
    judge.warn()


def _adapt(aligner, pairs: Sequence, **reading) -> None:
    """Let the aligner learn from pairs, and say how much."""
    try:
        adapted = aligner.adapt(pairs, **reading)
    except ValueError as error:
        raise CommandError(f"the model cannot adapt: {error}") from error
    what = f"{adapted.unknown:.0%} of the tokens of {adapted.pairs} pairs are new"
    how = f"learned from them with a weight of {adapted.weight:.2f}" if adapted.weight else "a known text"
    LOG.info("%s: %s", what, how)


def align_text(
    aligner,
    text: PairText,
    output: str | os.PathLike[str] | None,
    style: LinkStyle,
    *,
    name: str,
    window: int,
    part: Part | None = None,
    **options,
) -> "list[WordAlignment] | None":
    """Align a text, and write the links or return the alignments.

    Args:
        aligner: a `WordAligner`.
        text: the pairs.
        output: the file that is written, "-" for standard output; None: the alignments are returned.
        style: how links are written.
        name: what aligns, for the heading of a page.
        window: lines that are read before any is aligned.
        part: the lines to align; None for all of them.
        options: of `align_windows`.

    Raises:
        CommandError: a file that cannot be read or written, or see `align_windows`.
    """
    shows_scores = style.shows_scores or options.get("least_probability") is not None
    options |= {"spans": style.offsets, "shows_scores": shows_scores}
    if output is None:
        with text.windows(window) as windows:
            return [alignment for group in align_windows(aligner, windows, **options) for alignment in group]
    before = 0 if part is None else part.lines.start
    watch = SeparatorWatch(options.get("words"))
    title = os.path.basename(os.path.normpath(name)) if os.path.isdir(name) else name  # no folder of this machine
    writing, reading = output_lines(os.fspath(output)), text.windows(window, part)
    with writing as target, style.document(target, title), reading as windows:
        number = before + 1
        for group in align_windows(aligner, map(watch.window, windows), before=before, **options):
            write_lines(target, [style.line(number + place, alignment) for place, alignment in enumerate(group)])
            number += len(group)
    if style.counts_words:
        write_separator(output, watch.separator)
    return None
