"""Texts that commands read: sentence pairs by windows, parts of them, and whole texts that are scored."""

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from hf_attncal.io.encoding import DamagedFile
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import Text, lines_of, split_lines
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
    joined_pairs,
    open_file,
    parallel_lines,
    read_windows,
    standard_input,
    text_name,
)

from .linked_pairs import LinkedPair, WordParting, readings_differ, recorded_words
from .pharaoh import Link
from .words import WORDS, split_words

_PAIRS = 1024  # that are read together where all are


class PairText:
    """Sentence pairs that are read a window at a time.

    Args:
        source: a file, or its lines; "-" for standard input. Without `target`, lines `source ||| target`, or pairs.
        target: a file, or its lines.
        longest: most bytes of a line of a file; None for 10,000.

    Raises:
        CommandError: there is no source, or it is standard input although there is a target.
    """

    def __init__(self, source: Any, target: Any = None, longest: int | None = None):
        if source is None or (source == STANDARD and target is not None):
            raise CommandError("--source and --target go together: give both, or lines `source ||| target`.")
        self.source = _path_or_list(source)
        self.target = None if target is None else _path_or_list(target)
        self.longest = longest or LONGEST_LINE
        self._sides = [self.source] if self.target is None else [self.source, self.target]

    @property
    def files(self) -> list[str]:
        """The files that are read."""
        return [file for file in files_among(*self._sides) if file != STANDARD]

    def check(self, outputs: Mapping[str, Any], *others: "PairText") -> None:
        """Refuse files that cannot be read, and outputs that cannot be written or are inputs; see `check_files`.

        Args:
            outputs: files that will be written, by the options that name them.
            others: texts that are read, too.
        """
        files = [file for text in (self, *others) for file in text.files]
        check_files(files, outputs, standard=self.source == STANDARD)

    def pairs(self) -> list[tuple]:
        """Read all pairs.

        Raises:
            CommandError: a file or a line cannot be read.
        """
        found: list[tuple] = []
        with self.windows(_PAIRS) as windows:
            for pairs, error in windows:
                if error is not None:
                    raise error
                found += pairs
        return found

    @contextmanager
    def windows(self, size: int, part: "Part | None" = None) -> Iterator[Iterator[PairWindow]]:
        """Open the text and give its pairs, at most `size` at a time; someone who types gets each line answered.

        With a group comes what is wrong with the line after it, or None.

        Args:
            size: most pairs at a time.
            part: the lines to read; None for all of them.

        Raises:
            CommandError: a file cannot be opened.
        """
        before = 0 if part is None else part.lines.start
        with ExitStack() as stack:
            if self.source == STANDARD:
                file, size, name = stack.enter_context(input_lines(None, size))
                yield joined_pairs(file, size, name, self.longest)
                return
            names = [text_name(side, name) for side, name in zip(self._sides, ("source", "target"), strict=False)]
            sides = [stack.enter_context(_opened(side, part)) for side in self._sides]
            if self.target is not None:
                yield parallel_lines(sides, size, names, self.longest, before)
            elif isinstance(self.source, str) or any(isinstance(line, str) for line in self.source[:1]):
                yield joined_pairs(sides[0], size, names[0], self.longest, before)
            else:
                yield read_windows(self.source, size)


def _path_or_list(side: Any) -> str | list:
    return os.fspath(side) if is_file(side) else list(side)


# ---- parts of a text ----


class Part(NamedTuple):
    """One part of a text: its lines, from 0, and the file that gets their links."""

    lines: range
    path: str


@contextmanager
def _opened(side: str | list, part: Part | None) -> Iterator[Readable | list]:
    """Open a file, at the first line of a part if one is given; lists are as they are."""
    if isinstance(side, list):
        yield side
        return
    with open_file(side, "rb") as file:
        if part is not None:
            deque(islice(file, part.lines.start), maxlen=0)
        yield file if part is None else _FirstLines(file, len(part.lines))


class _FirstLines:
    """The first lines of an open file, for `read_windows`."""

    def __init__(self, file: BinaryIO, lines: int):
        self._file, self._left = file, lines

    def readline(self, most: int = -1, /) -> bytes:
        if not self._left:
            return b""
        data = self._file.readline(most)
        self._left -= data.endswith(b"\n")
        return data


def part_of(shard: str, output: str | None, text: PairText, window: int) -> Part:
    """Return part I of N of a text. Parts begin where a window does, so that batches are those of one run.

    Args:
        shard: `I/N`, from 1.
        output: a folder, or the name of a file with `{}` for the number of the part.
        text: the text, in files.
        window: lines that are worked on together.

    Raises:
        CommandError: the part cannot be made, or its output exists.
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
        told = ", ".join(f"{file} has {lines} lines" for file, lines in counts.items())
        raise CommandError(f"{told}; they must match.")
    lines = max(counts.values())
    windows = -(-lines // window)
    first, last = (min(windows * n // total * window, lines) for n in (number - 1, number))
    return Part(range(first, last), path)


def _count_lines(path: str) -> int:
    with open_file(path, "rb") as file:
        try:
            return sum(1 for _ in file)
        except (OSError, DamagedFile) as error:
            raise CommandError(f"{path} cannot be read: {error}.") from error


# ---- texts that are scored ----


class ScoredText(NamedTuple):
    """The lines of a text.

    Args:
        name: its file, or what lines without one are called.
        told: what messages call it.
        lines: at least one has text.
        unit: what a line of it and of every other text belong to, such as "sentence pair".
        first: the text whose number of lines it must have; None for that text itself.
    """

    name: str
    told: str
    lines: Sequence[str]
    unit: str
    first: "ScoredText | None" = None

    def parsed(self, parse: Callable[..., list], **options: Any) -> list:
        """Return what `parse` makes of the lines.

        Raises:
            CommandError: in place of a ValueError, or for another number of lines; it names the text.
        """
        try:
            found = parse(self.lines, **options)
        except ValueError as error:
            raise CommandError(f"{self.told}: {error}") from error
        self.check_length()
        return found

    def check_length(self) -> None:
        """Raise CommandError for another number of lines than that of the first text."""
        if self.first is not None and len(self.lines) != len(self.first.lines):
            raise CommandError(
                f"{self.first.told} has {len(self.first.lines)} lines and {self.told} has {len(self.lines)}. Line n "
                f"of every file must belong to the same {self.unit}."
            )


def read_scored(texts: Mapping[str, Text], unit: str) -> Iterator[ScoredText]:
    """Yield texts, each read when it is asked for.

    Args:
        texts: files, - for standard input, or lines with the names that they are called by.
        unit: see `ScoredText`.

    Raises:
        CommandError: standard input is named twice, or a text cannot be read or is empty.
    """
    if files_among(*texts.values()).count(STANDARD) > 1:
        raise CommandError("Standard input (-) can be read only once.")
    return _read(texts, unit)


def _read(texts: Mapping[str, Text], unit: str) -> Iterator[ScoredText]:
    first = None
    for key, text in texts.items():
        name, standard = text_name(text, key), is_file(text) and text == STANDARD
        told = "standard input" if standard else name
        if is_file(text):
            LOG.info("reading %s", told)
        with user_errors():
            lines = split_lines(standard_input().read(), told) if standard else lines_of(text)
        if not any(line.strip() for line in lines):
            raise CommandError(f"{told} is empty ({len(lines)} lines without text).")
        read = ScoredText(name, told, lines, unit, first)
        first = first or read
        yield read


def words_of_sides(
    sides: Sequence[ScoredText],
    systems: Sequence[tuple[ScoredText, Callable[[], Sequence[Collection[Link]]]]],
    words: str | None = None,
) -> list[tuple[list[str], list[str]]]:
    """Return the words of both sides of sentence pairs, as links of them count words.

    Args:
        sides: the sources and the targets; none where only the links are known.
        systems: texts of links, with what gives the links of each pair.
        words: what parts words, one of `WORDS`; None: what stands on record beside the links, or what they fit.

    Raises:
        CommandError: links that do not count the same words, or that may count either; different numbers of lines.
    """
    for side in sides:
        side.check_length()
    pairs: list[tuple[str, str]] = list(zip(*(side.lines for side in sides), strict=True))  # none without sides
    rows = [row for row, pair in enumerate(pairs) if readings_differ(*pair)]
    found = {text.told: recorded_words(text.name) for text, _ in systems} if words is None else {}
    for text, parsed in systems if words is None and rows else ():
        links = parsed()
        parting = WordParting(found[text.told], text.name)
        some = [LinkedPair(*pairs[row], links[row]) for row in rows if row < len(links)]
        parting.find(some)
        for row, pair in zip(rows, some, strict=False):
            try:
                parting.split(pair)
            except ValueError as error:
                raise CommandError(f"{text.told}: line {row + 1}: {error}") from error
        found[text.told] = parting.words
    said = {by: told for told, by in found.items() if by is not None}
    if len(said) > 1:
        raise CommandError(
            f"{said[WORDS[1]]} counts words that spaces part, and {said[WORDS[0]]} those that any white space parts, "
            "no-break spaces too. Links of the same words are needed: align again with --words."
        )
    words = words or next(iter(said), WORDS[0])
    return [(split_words(source, words), split_words(target, words)) for source, target in pairs]
