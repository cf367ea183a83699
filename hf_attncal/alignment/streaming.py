"""Align a text of any length, or batches of columns, and write its links."""

import ctypes
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.data.segmentation import fold, is_unspaced
from hf_attncal.data.texts import PairText, Part
from hf_attncal.data.words import split_words
from hf_attncal.io.errors import CommandError, check_choice, until_failure
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    BATCHES_PER_WINDOW,
    STANDARD,
    Output,
    PairWindow,
    json_line,
    line_error,
    output_lines,
    progress_bar,
    write_lines,
)

from .quality import GOOD_SCORE, LEAST_SCORE, MAX_PAIRS_TO_EXCHANGE, MIN_PAIRS_TO_EXCHANGE, exchange_warning

if TYPE_CHECKING:
    from .aligner import Sentence, WordAligner
    from .links import WordAlignment

# ---- format of links ----

LINK_FORMATS = ("pharaoh", "words", "json", "html")
_WITH_OFFSETS = ("pharaoh", "json")


@dataclass(frozen=True)
class LinkStyle:
    """Format of the links of a pair.

    Args:
        format: One of `LINK_FORMATS`. Default: "pharaoh".
        scores: Append the score to each link. Default: False.
        offsets: Write character positions (pharaoh, json). Default: False.

    Raises:
        CommandError: an unknown format, or `offsets` with a format that has none.
    """

    format: str = "pharaoh"
    scores: bool = False
    offsets: bool = False

    def __post_init__(self):
        check_choice("--format", self.format, LINK_FORMATS)
        if self.offsets and self.format not in _WITH_OFFSETS:
            raise CommandError(f"--offsets needs --format pharaoh or json, got {self.format}.")

    @property
    def shows_scores(self) -> bool:
        """True if scores are written."""
        return self.scores or self.format == "json"

    @property
    def counts_words(self) -> bool:
        """True if the lines are in Pharaoh format, which other commands read."""
        return self.format == "pharaoh" and not self.offsets

    def line(self, number: int, alignment: "WordAlignment") -> str:
        """Return the output line of an alignment; `number` is the input line, from 1."""
        if self.format == "html":
            from .pictures import page_pair

            return page_pair(number, alignment)
        if self.format == "json":
            return json_line(alignment.to_dict())
        write = alignment.offsets if self.offsets else alignment.pharaoh
        return (alignment.words if self.format == "words" else write)(scores=self.scores)

    @contextmanager
    def document(self, target: Output, aligner: str) -> Iterator[None]:
        """Write the head and, if no error occurs, the foot of an HTML page around its pairs.

        Args:
            target: Output of the lines.
            aligner: Name of the aligner, for the heading.
        """
        if self.format != "html":
            yield
            return
        from .pictures import PAGE_FOOT, page_head

        write_lines(target, [page_head(aligner)])
        yield
        write_lines(target, [PAGE_FOOT])


# ---- lines that are shifted ----

_PAIRS_TO_SHIFT, _MAX_SHIFT = 200, 3  # lines that are compared, and lines by which one side may be shifted
_MAX_FREQUENCY = 0.05  # a word in more of the lines does not identify one
# Minimum number of lines that share a word if one side is shifted, and its ratio to the number without the shift.
_MIN_SHARED, _MIN_RATIO = 8, 3


def shift_warning(pairs: "Sequence[tuple[Sentence, Sentence]]", last: int) -> str | None:
    """Return a warning if the lines of one side are shifted, else None.

    The lines are compared by rare words that are the same on both sides (numbers, names).

    Args:
        pairs: Neighbouring pairs.
        last: Line number of the last one.
    """
    sides = [
        [{fold(word) for word in (split_words(line) if isinstance(line, str) else line)} for line in side]
        for side in zip(*pairs, strict=True)
    ]
    if not sides:
        return None
    counts = [Counter(word for line in side for word in line) for side in sides]
    most = max(1, _MAX_FREQUENCY * len(pairs))
    rare = {word for word in counts[0].keys() & counts[1].keys() if max(of[word] for of in counts) <= most}
    sources, targets = ([line & rare for line in side] for side in sides)

    def shared(shift: int) -> int:
        return sum(
            not source.isdisjoint(target)
            for source, target in zip(sources[max(0, -shift) :], targets[max(0, shift) :], strict=False)
        )

    shift = max(range(-_MAX_SHIFT, _MAX_SHIFT + 1), key=lambda shift: (shared(shift), -abs(shift)))
    if shift == 0 or shared(shift) < max(_MIN_SHARED, _MIN_RATIO * shared(0)):
        return None
    return (
        f"the lines are shifted: near line {last}, {shared(shift)} of {len(pairs)} sources share a rare word with "
        f"the target line {abs(shift)} {'below' if shift > 0 else 'above'}, and {shared(0)} with their own. Links of "
        "such lines are wrong: find the line that is missing or added on one side."
    )


# ---- while a text is aligned ----

_MIN_PAIRS_TO_JUDGE = 100  # for the warning of a low mean score
# Share of pairs unlike the annotated ones: 30 to 46 % in similar text, at least 62 % in other text.
_MAX_UNLIKE = 0.6


class Judge:
    """Statistics of the alignments of a text, which warn of bad links at the end.

    Args:
        aligner: Word aligner.
        adapts: True if the aligner adapts to the text.
        shows_scores: True if probabilities of links are written or used to select links.
        options: `tokenize` and `words` of `WordAligner.align`.
    """

    def __init__(self, aligner: "WordAligner", adapts: bool, shows_scores: bool, **options):
        self.aligner, self.adapts, self.shows_scores, self.options = aligner, adapts, shows_scores, options
        self._two_ways = "harmonic" in aligner.source.symmetrizations
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list = []
        self._exchanged: str | None = None
        self._shifted: str | None = None
        self._seen = 0

    def see(self, pairs: "Sequence[tuple[Sentence, Sentence]]") -> None:
        """Add pairs that are aligned next to the sample."""
        first = not self._sample
        self._seen += len(pairs)
        self._shifted = self._shifted or shift_warning(pairs[-_PAIRS_TO_SHIFT:], self._seen)
        self._sample += pairs[: MAX_PAIRS_TO_EXCHANGE - len(self._sample)]
        if first and self.adapts:
            self._compare()  # before adaptation, after which both orders score well

    def add(self, alignments: "Sequence[WordAlignment]") -> None:
        """Add the scores of aligned pairs."""
        scores = [alignment.score for alignment in alignments if alignment.score is not None]
        self._scored, self._total = self._scored + len(scores), self._total + sum(scores)
        self._unlike += sum(alignment.shift == 1 for alignment in alignments)

    def warn(self) -> None:
        """Warn of bad links.

        Warns:
            UserWarning: lines shifted, probabilities too high for this text, source and target exchanged, or links
                probably bad.
        """
        if self._shifted:
            warnings.warn(self._shifted, stacklevel=3)
        if not (self.options.get("tokenize") or self.aligner.source.tokenize):
            for side, name in zip(zip(*self._sample, strict=True), ("source", "target"), strict=False):
                if is_unspaced(text if isinstance(text, str) else " ".join(text) for text in side):
                    warnings.warn(
                        f"the {name} has no spaces between its words, so that links count whole phrases. Split it "
                        "into words first, or use an aligner of raw text (data.raw_text=true) with --offsets.",
                        stacklevel=3,
                    )
        if not self._scored:
            return
        enough = self._scored >= MIN_PAIRS_TO_EXCHANGE
        if self.shows_scores and enough and self._unlike > _MAX_UNLIKE * self._scored:
            warnings.warn(
                f"{self._unlike / self._scored:.0%} of the pairs are unlike the annotated text of the calibration, so "
                "that probabilities of links may be too high. Annotate some dozens of pairs of this text and run "
                "`attncal align calibrate` again.",
                stacklevel=3,
            )
        mean = self._total / self._scored
        if mean < GOOD_SCORE and not self.adapts:
            self._compare()
        if self._exchanged:
            warnings.warn(self._exchanged, stacklevel=3)
        elif not self._shifted and self._scored >= _MIN_PAIRS_TO_JUDGE and mean < LEAST_SCORE and self._two_ways:
            warnings.warn(
                f"the links are probably bad: the mean score of a pair is {mean:.2f}, and a good aligner has 0.6 or "
                "more. Check that the lines are translations of each other; if they are, adapt the aligner (--adapt), "
                "or train it on this text as well (`attncal align train --source TRAIN THIS --target TRAIN THIS`).",
                stacklevel=3,
            )

    def _compare(self) -> None:
        """Compare the scores of the sample in both orders."""
        self._exchanged = exchange_warning(self.aligner, self._sample, **self.options)


# ---- a text of any length ----

SIDES = ("source", "target")
# Default maximum of pairs per batch; typical batch size, with typical tokens per pair.
_MAX_BATCH_PAIRS, _BATCH_PAIRS, _TOKENS_PER_PAIR = 256, 64, 64
_PAIRS_TO_LEARN_FROM = 20_000
# Source characters times target characters, an upper bound of the links in memory before they are written.
_CELLS_AT_ONCE = 1 << 26


def lines_at_once(batch_size: int | None, adapt: bool = False) -> int:
    """Return the number of lines in a window: several batches to sort by length, or enough text to adapt to."""
    return _PAIRS_TO_LEARN_FROM if adapt else BATCHES_PER_WINDOW * (batch_size or _BATCH_PAIRS)


def batch_limits(batch_size: int | None) -> dict[str, int]:
    """Return `batch_size` and `batch_tokens` of `WordAligner.align`."""
    tokens = _TOKENS_PER_PAIR * max(batch_size or 0, _BATCH_PAIRS)
    return {"batch_size": batch_size or _MAX_BATCH_PAIRS, "batch_tokens": tokens}


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
    """Yield the alignments of pairs in groups to write.

    Args:
        aligner: `WordAligner`.
        windows: Groups of pairs, each with the error of the line after it or None.
        adapt: Adapt the aligner to each window first. Default: False.
        shows_scores: True if probabilities of links are written or used to select links. Default: False.
        progress: Count lines on standard error. Default: None, if that is a terminal.
        before: Number of lines before the first window. Default: 0.
        options: Options of `WordAligner.align`.

    Raises:
        CommandError: a line that cannot be read or aligned, after all lines before it were yielded.

    Warns:
        UserWarning: see `Judge.warn`.
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
            return_memory()
            if error is not None:
                raise error
    judge.warn()


def return_memory() -> None:
    """Return freed memory to the system, or its pieces between tensors of many sizes grow with the text (glibc)."""
    with suppress(AttributeError, OSError, TypeError):  # other C libraries
        ctypes.CDLL(None).malloc_trim(0)


def _adapt(aligner, pairs: Sequence, **reading) -> None:
    """Adapt the aligner to pairs, and log how much it learned."""
    try:
        adapted = aligner.adapt(pairs, **reading)
    except ValueError as error:
        raise CommandError(f"--adapt cannot be used: {error}") from error
    result = f"learned from them with a weight of {adapted.weight:.2f}" if adapted.weight else "a known text"
    LOG.info("%.0f%% of the tokens of %d pairs are new: %s", 100 * adapted.unknown, adapted.pairs, result)


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
        aligner: `WordAligner`.
        text: Sentence pairs.
        output: Output file, or "-" for standard output; None to return the alignments.
        style: Format of the links.
        name: Name of the aligner, for the heading of a page.
        window: Number of lines per window.
        part: Lines to align. Default: None, all lines.
        options: Options of `align_windows`.

    If a side without spaces was cut into words, links in Pharaoh format come with the words of both sides, in
    `OUTPUT.source` and `OUTPUT.target`.

    Raises:
        CommandError: a file that cannot be read or written, or see `align_windows`.
    """
    shows_scores = style.shows_scores or options.get("least_probability") is not None
    options |= {"spans": style.offsets, "shows_scores": shows_scores}
    if output is None:
        with text.windows(window) as windows:
            return [alignment for group in align_windows(aligner, windows, **options) for alignment in group]
    before = 0 if part is None else part.lines.start
    title = os.path.basename(os.path.normpath(name)) if os.path.isdir(name) else name  # without local folders
    cut = style.counts_words and any(aligner.source.cuts) and os.fspath(output) != STANDARD
    writing, reading = output_lines(os.fspath(output)), text.windows(window, part)
    with ExitStack() as words, writing as target, style.document(target, title), reading as windows:
        names = [f"{os.fspath(output)}.{side}" for side in SIDES] if cut else []
        sides = [words.enter_context(output_lines(name)) for name in names]
        number = before + 1
        for group in align_windows(aligner, windows, before=before, **options):
            write_lines(target, [style.line(number + place, alignment) for place, alignment in enumerate(group)])
            for file, side in zip(sides, SIDES, strict=False):
                write_lines(file, (" ".join(getattr(alignment, side)) for alignment in group))
            number += len(group)
    if cut:
        LOG.warning("The words that the links count are in %s.", " and ".join(names))
    return None


def learn_from_start(aligner, text: PairText, window: int, **options) -> None:
    """Learn the statistics of an aligner's encoder from the first window of a text, as one run over all parts does.

    Args:
        aligner: `WordAligner` with an encoder.
        text: Text of all parts.
        window: Number of lines per window.
        options: Options of `align_windows`.

    Raises:
        CommandError: see `align_windows`.
    """
    with text.windows(window) as windows:
        first = next(windows, ((), None))
    next(align_windows(aligner, iter([first]), progress=False, **options), None)


# ---- batches of columns ----


class AlignBatch:
    """Function that adds a column of links to a batch of columns. Each process loads the model once.

    Its pickle does not contain the model, so that the cache of `datasets` recognises it after a call.

    Args:
        model: Folder or Hub name for `WordAligner.from_pretrained`.
        source, target: Columns of the sentences, texts or lists of words; None, NaN and NA are empty sentences.
        links: Column of the links in Pharaoh format (`i-j i-j`). Default: "links".
        score: Column of the scores of the pairs. Default: None, no column.
        encoder: Folder or Hub name of an encoder that helps, "auto" for the default one. Default: None.
        sample: Some hundred pairs of the text; each process learns the statistics of the encoder from them, so that
            all have the same. Needed with `encoder`.
        offsets: Write character positions, `start:end-start:end`. Default: False.
        device: Device. Default: None, the GPU of the process's rank if there is one, else the CPU.
        threads: Threads of PyTorch per process on a CPU if a rank is given. Default: 1.
        loading: Other options of `WordAligner.from_pretrained`. Default: None.
        aligning: Other options of `WordAligner.align`.

    Raises:
        ValueError: an encoder without a sample, or a sample without an encoder.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        source: str = "source",
        target: str = "target",
        links: str = "links",
        score: str | None = None,
        encoder: str | Path | None = None,
        sample: Iterable[tuple["Sentence", "Sentence"]] = (),
        offsets: bool = False,
        device: str | None = None,
        threads: int = 1,
        loading: Mapping[str, Any] | None = None,
        **aligning: Any,
    ):
        self.model, self.source, self.target, self.links, self.score = str(model), source, target, links, score
        self.encoder, self.sample = None if encoder is None else str(encoder), list(sample)
        self.offsets, self.device, self.threads = offsets, device, threads
        self.loading, self.aligning = dict(loading or {}), aligning
        self._aligner: WordAligner | None = None
        self._process: int | None = None  # id of the process that loaded the aligner
        if (encoder is None) != (not self.sample):
            raise ValueError(
                f"`encoder` and `sample` go together, got encoder={encoder!r} and {len(self.sample)} pairs: give "
                "both, with some hundred pairs of the text, or neither."
            )

    def __call__(self, batch: Mapping[str, Sequence], rank: int | None = None) -> dict[str, Sequence]:
        """Return the batch with the columns of links and scores.

        Args:
            batch: Columns of equal length.
            rank: Rank of this process. Default: None, a single process.

        Raises:
            ValueError: a missing column, or a value that is no sentence; see also `WordAligner.align`.
        """
        if missing := [name for name in (self.source, self.target) if name not in batch]:
            raise ValueError(
                f"The batch has no column {missing[0]!r}, it has {sorted(batch)}: name `source`, `target`."
            )
        pairs = zip(*(_sentences(batch[name], name) for name in (self.source, self.target)), strict=True)
        alignments = self._loaded(rank).align(pairs, spans=self.offsets, **self.aligning)
        columns: dict[str, list] = {self.links: [a.offsets() if self.offsets else a.pharaoh() for a in alignments]}
        if self.score is not None:
            columns[self.score] = [alignment.score for alignment in alignments]
        return {**batch, **columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_aligner": None, "_process": None}

    def _loaded(self, rank: int | None) -> "WordAligner":
        if self._aligner is None or self._process != os.getpid():
            import torch

            from .aligner import WordAligner

            device = self.device
            if device is None and torch.cuda.is_available():
                device = f"cuda:{(rank or 0) % torch.cuda.device_count()}"
            if rank is not None and torch.device(device or "cpu").type == "cpu":
                torch.set_num_threads(self.threads)
            device = device or "cpu"
            self._aligner = WordAligner.from_pretrained(self.model, device=device, **self.loading)
            if self.encoder is not None:
                from .encoder_prior import EncoderPrior

                self._aligner.use_encoder(EncoderPrior.from_pretrained(self.encoder, device=device))
                self._aligner.align(self.sample)
            self._process = os.getpid()
        return self._aligner


def _sentences(column: Sequence, name: str) -> list[str | list[str]]:
    """Return the sentences of a column, for `WordAligner.align`."""
    sentences: list[str | list[str]] = []
    for row, value in enumerate(column):
        sentence = value.tolist() if hasattr(value, "tolist") else value  # numpy has lists of words, texts and NaN
        if sentence is None or type(sentence).__name__ == "NAType" or sentence != sentence:
            sentence = ""
        words = sentence if isinstance(sentence, list | tuple) else [sentence]
        if not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"Column {name!r} must have sentences, as text or lists of words, got {value!r} in row {row} of the "
                "batch."
            )
        sentences.append(sentence)
    return sentences


def groups_by_size(pairs: Sequence[tuple[str, str]], most: int) -> Iterator[Sequence[tuple[str, str]]]:
    """Yield groups of pairs in order, each a single pair or with at most `most` links between characters."""
    start = cells = 0
    for stop, (source, target) in enumerate(pairs):
        cells += len(source) * len(target)
        if cells > most and stop > start:
            yield pairs[start:stop]
            start, cells = stop, len(source) * len(target)
    if pairs:
        yield pairs[start:]
