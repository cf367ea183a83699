"""Texts that commands read: sentence pairs in windows, parts of a text, and whole texts to score."""

import math
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import READ_ERRORS, Text, lines_of, split_lines
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    LONGEST_LINE,
    STANDARD,
    PairWindow,
    Readable,
    check_files,
    files_among,
    input_lines,
    is_file,
    open_file,
    parallel_lines,
    read_windows,
    standard_input,
    text_name,
)

from .linked_pairs import LinkedPair, WordSeparator, separators_differ
from .pharaoh import Link
from .words import MOST_CELLS, SEPARATORS, split_words

_PAIRS_AT_ONCE = 1024
_SEPARATOR = "|||"
_BETWEEN = re.compile(r"(?<!\S)\|\|\|(?!\S)")


class PairText:
    """Sentence pairs that are read a window at a time.

    Args:
        source: file, lines, or "-" for standard input. Without `target`: lines `source ||| target`, or pairs.
        target: file or lines.
        longest: maximum number of bytes of a line. Default: 10,000.
        too_long: "stop" at a longer line; or read an "empty" line in place of it, and an empty pair in place of one
            with more than `MOST_CELLS` pairs of words. Default: "stop".

    Attributes:
        emptied: number of lines that were too long.

    Raises:
        CommandError: no source, or standard input as source together with a target.
    """

    def __init__(self, source: Any, target: Any = None, longest: int | None = None, too_long: str = "stop"):
        if source is None or (source == STANDARD and target is not None):
            raise CommandError("--source and --target go together: give both, or lines `source ||| target`.")
        self.source = _path_or_list(source)
        self.target = None if target is None else _path_or_list(target)
        self.longest = longest or LONGEST_LINE
        self.emptied: set[int] = set()
        self._cut = self._empty if too_long == "empty" else None
        self._sides = [self.source] if self.target is None else [self.source, self.target]

    @property
    def files(self) -> list[str]:
        """Files of the text, without standard input."""
        return [file for file in files_among(*self._sides) if file != STANDARD]

    def check(self, outputs: Mapping[str, Any], *others: "PairText") -> None:
        """Raise CommandError for unreadable inputs and unwritable outputs; see `check_files`.

        Args:
            outputs: output files by option.
            others: further texts that the command reads.
        """
        files = [file for text in (self, *others) for file in text.files]
        check_files(files, outputs, standard=self.source == STANDARD)

    def _empty(self, number: int) -> str:
        self.emptied.add(number)
        return ""

    def _fitting(self, windows: Iterator[PairWindow], before: int) -> Iterator[PairWindow]:
        """Yield the windows with empty pairs in place of those with too many words, and count these at the end."""
        for pairs, error in windows:
            if self._cut is not None:
                pairs = list(pairs)
                for place, pair in enumerate(pairs):
                    if math.prod(len(side.split() if isinstance(side, str) else side) for side in pair) > MOST_CELLS:
                        pairs[place] = self._empty(before + place + 1), ""
            before += len(pairs)
            yield pairs, error
        if self.emptied:
            LOG.warning(
                "%d lines were too long and are empty in the output (the first is line %d).",
                len(self.emptied),
                min(self.emptied),
            )

    def pairs(self) -> list[tuple]:
        """Read all pairs.

        Raises:
            CommandError: a file or a line cannot be read.
        """
        all_pairs: list[tuple] = []
        with self.windows(_PAIRS_AT_ONCE) as windows:
            for pairs, error in windows:
                if error is not None:
                    raise error
                all_pairs += pairs
        return all_pairs

    @contextmanager
    def windows(self, size: int, part: "Part | None" = None) -> Iterator[Iterator[PairWindow]]:
        """Open the text and yield its windows of pairs, each with the error of the next line, or None.

        Args:
            size: maximum number of pairs in a window. Lines typed at a terminal come one at a time.
            part: lines to read. Default: all lines.

        Raises:
            CommandError: a file cannot be opened.
        """
        before = 0 if part is None else part.lines.start
        with ExitStack() as stack:
            if self.source == STANDARD:
                file, size, name = stack.enter_context(input_lines(None, size))
                yield self._fitting(joined_pairs(file, size, name, self.longest, cut=self._cut), 0)
                return
            names = [text_name(side, name) for side, name in zip(self._sides, ("source", "target"), strict=False)]
            sides = [stack.enter_context(_opened(side, part)) for side in self._sides]
            pairs: Iterator[PairWindow]
            if self.target is not None:
                pairs = parallel_lines(sides, size, names, self.longest, before, self._cut)
            elif isinstance(self.source, str) or any(isinstance(line, str) for line in self.source[:1]):
                pairs = joined_pairs(sides[0], size, names[0], self.longest, before, self._cut)
            else:
                pairs = read_windows(self.source, size)
            yield self._fitting(pairs, before)


def _path_or_list(side: Any) -> str | list:
    return os.fspath(side) if is_file(side) else list(side)


# ---- parts of a text ----


class Part(NamedTuple):
    """Part of a text: its line numbers (from 0), and the output file of its links."""

    lines: range
    path: str


@contextmanager
def _opened(side: str | list, part: Part | None) -> Iterator[Readable | list]:
    """Open a file at the first line of `part`, or return a list unchanged."""
    if isinstance(side, list):
        yield side
        return
    with open_file(side, "rb") as file:
        if part is not None:
            deque(islice(file, part.lines.start), maxlen=0)
        yield file if part is None else _FirstLines(file, len(part.lines))


class _FirstLines:
    """First lines of an open file, for `read_windows`."""

    def __init__(self, file: BinaryIO, lines: int):
        self._file, self._left = file, lines

    def readline(self, most: int = -1, /) -> bytes:
        if not self._left:
            return b""
        data = self._file.readline(most)
        self._left -= data.endswith(b"\n")
        return data


def part_of(shard: str, output: str | None, text: PairText, window: int) -> Part:
    """Return part I of N of a text. Parts begin at window boundaries, so batches are the same as in a single run.

    Args:
        shard: part as `I/N`, I from 1.
        output: folder, or file name with `{}` in place of the part's number.
        text: text in files.
        window: number of lines in a window.

    Raises:
        CommandError: an invalid shard or output, unequal numbers of lines, or an output that exists.
    """
    match = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", shard)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise CommandError(f"--shard must be I/N with I from 1 to N, got {shard[:30]}.")
    number, total = int(match[1]), int(match[2])
    if output is None or output == STANDARD or "{}" in os.path.dirname(output):
        raise CommandError("--shard needs --output: a folder, or a file name with {} for the number of the part.")
    if not text.files or not all(map(os.path.isfile, text.files)):
        raise CommandError("--shard needs files to read (--source and --target).")
    name = f"{number:05}-of-{total:05}"
    path = output.replace("{}", name) if "{}" in output else os.path.join(output, f"{name}.links")
    if os.path.lexists(path):
        raise CommandError(f"{path} exists. Remove it to align this part again.")
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output: the folder of {path} cannot be made: {error.strerror}.") from error
    text.check({"--output": path})
    counts = {file: _count_lines(file) for file in text.files}
    if len(set(counts.values())) > 1:
        problem = ", ".join(f"{file} has {lines} lines" for file, lines in counts.items())
        raise CommandError(f"{problem}; they must match.")
    lines = max(counts.values())
    windows = -(-lines // window)
    first, last = (min(windows * n // total * window, lines) for n in (number - 1, number))
    return Part(range(first, last), path)


def _count_lines(path: str) -> int:
    with open_file(path, "rb") as file:
        try:
            return sum(1 for _ in file)
        except READ_ERRORS as error:
            raise CommandError(f"{path} cannot be read: {error}.") from error


# ---- texts that are scored ----


class ScoredText(NamedTuple):
    """Lines of a text to score.

    Args:
        name: file of the text, or the name of lines without a file.
        label: name of the text in messages.
        lines: lines, at least one of them with text.
        unit: unit that line n of every text belongs to, such as "sentence pair".
        first: text that must have the same number of lines. None for the first text itself.
    """

    name: str
    label: str
    lines: Sequence[str]
    unit: str
    first: "ScoredText | None" = None

    def parsed(self, parse: Callable[..., list], **options: Any) -> list:
        """Return the lines parsed by `parse`.

        Raises:
            CommandError: `parse` raises ValueError, or the number of lines is wrong; the message names the text.
        """
        try:
            records = parse(self.lines, **options)
        except ValueError as error:
            raise CommandError(f"{self.label}: {error}") from error
        self.check_length()
        return records

    def check_length(self) -> None:
        """Raise CommandError unless the text has as many lines as the first one."""
        if self.first is not None and len(self.lines) != len(self.first.lines):
            raise CommandError(
                f"{self.first.label} has {len(self.first.lines)} lines and {self.label} has {len(self.lines)}. Line n "
                f"of every file must belong to the same {self.unit}."
            )


def read_scored(texts: Mapping[str, Text], unit: str) -> Iterator[ScoredText]:
    """Yield texts, each read only when it is needed.

    Args:
        texts: files, - for standard input, or lines, by their names.
        unit: unit that line n of every text belongs to.

    Raises:
        CommandError: standard input twice, or a text that is unreadable or empty.
    """
    if files_among(*texts.values()).count(STANDARD) > 1:
        raise CommandError("Standard input (-) can be read only once.")
    first = None
    for key, text in texts.items():
        name, standard = text_name(text, key), is_file(text) and text == STANDARD
        label = "standard input" if standard else name
        if is_file(text):
            LOG.info("reading %s", label)
        with user_errors():
            lines = split_lines(standard_input().read(), label) if standard else lines_of(text)
        if not any(line.strip() for line in lines):
            raise CommandError(f"{label} is empty ({len(lines)} lines without text).")
        scored = ScoredText(name, label, lines, unit, first)
        first = first or scored
        yield scored


def words_of_sides(
    sides: Sequence[ScoredText],
    systems: Sequence[tuple[ScoredText, Callable[[], Sequence[Collection[Link]]]]],
    words: str | None = None,
) -> list[tuple[list[str], list[str]]]:
    """Return the words of both sides of sentence pairs, split as the links count them.

    Args:
        sides: sources and targets. Empty where only the links are given.
        systems: texts of links, each with a function that returns the links of every pair.
        words: word separator, one of `SEPARATORS`. None: any white space, unless the links fit spaces as well.

    Raises:
        CommandError: links with an ambiguous word separator, or different numbers of lines.
    """
    for side in sides:
        side.check_length()
    pairs: list[tuple[str, str]] = list(zip(*(side.lines for side in sides), strict=True))  # empty without sides
    rows = [row for row, pair in enumerate(pairs) if separators_differ(*pair)]
    for text, parsed in systems if words is None and rows else ():
        links = parsed()
        separator = WordSeparator()
        linked = [LinkedPair(*pairs[row], links[row]) for row in rows if row < len(links)]
        separator.find(linked)
        for row, pair in zip(rows, linked, strict=False):
            try:
                separator.split(pair)
            except ValueError as error:
                raise CommandError(f"{text.label}: line {row + 1}: {error}") from error
    words = words or SEPARATORS[0]
    return [(split_words(source, words), split_words(target, words)) for source, target in pairs]


def joined_pairs(
    source: Readable | Iterable[str],
    window: int,
    name: str,
    longest: int = LONGEST_LINE,
    before: int = 0,
    cut: Callable[[int], Any] | None = None,
) -> Iterator[PairWindow]:
    """Yield windows of pairs from lines `source ||| target`, each with the error of the next line, or None.

    White space around the sides is removed; an empty line is an empty pair. For the arguments see `read_windows`.
    """
    first = before + 1
    for lines, error in read_windows(source, window, name, longest, cut, before):
        pairs: list[tuple[str, str]] = []
        for number, line in enumerate(lines, start=first):
            parts = _BETWEEN.split(line)
            separators = len(parts) - 1
            if separators != 1 and line.strip():
                times = f"{separators} times" if separators else "not at all"
                problem = (
                    f"line {number} of {name} has the separator ` {_SEPARATOR} ` {times}; it must be `source "
                    f"{_SEPARATOR} target`. For two files, or text with the separator, use --source and --target."
                )
                yield pairs, CommandError(problem)
                return
            pairs.append((parts[0].strip(), parts[-1].strip()))
        yield pairs, error
        first += len(lines)
