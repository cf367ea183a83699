"""Sentence pairs from wherever they are: two files, one of lines `source ||| target`, standard input, or lists."""

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from hf_attncal.io.encoding import DamagedFile
from hf_attncal.io.errors import CommandError
from hf_attncal.io.streams import (
    LONGEST_LINE,
    STANDARD,
    PairWindow,
    check_files,
    files_among,
    input_lines,
    is_file,
    joined_pairs,
    open_file,
    parallel_lines,
    read_windows,
    text_name,
)

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
        self.source, self.target = map(_path_or_list, (source, target))
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
        written = {option: None if path is None else os.fspath(path) for option, path in outputs.items()}
        check_files(files, written, standard=self.source == STANDARD)

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
        opened, before = (partial(open_file, mode="rb"), 0) if part is None else (part.open, part.lines.start)
        with ExitStack() as stack:
            if self.source == STANDARD:
                file, size, name = stack.enter_context(input_lines(None, size))
                yield joined_pairs(file, size, name, self.longest)
                return
            names = [text_name(side, name) for side, name in zip(self._sides, ("source", "target"), strict=False)]
            sides = [stack.enter_context(opened(side)) if is_file(side) else side for side in self._sides]
            if self.target is not None:
                yield parallel_lines(sides, size, names, self.longest, before)
            elif is_file(self.source) or any(isinstance(line, str) for line in self.source[:1]):
                yield joined_pairs(*sides, size, *names, self.longest, before)
            else:
                yield read_windows(self.source, size)


def _path_or_list(side: Any) -> str | list | None:
    return side if side is None else os.fspath(side) if is_file(side) else list(side)


# ---- parts of a text ----


class Part(NamedTuple):
    """One part of a text: its lines, from 0, and the file that gets their links."""

    lines: range
    path: str

    @contextmanager
    def open(self, path: str) -> "Iterator[_FirstLines]":
        """Open one input at the first line of the part."""
        with open_file(path, "rb") as file:
            deque(islice(file, self.lines.start), maxlen=0)
            yield _FirstLines(file, len(self.lines))


class _FirstLines:
    """The first lines of an open file, for `read_windows`."""

    def __init__(self, file: BinaryIO, lines: int):
        self._file, self._left = file, lines

    def readline(self, most: int) -> bytes:
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
    if output in (None, STANDARD) or "{}" in os.path.dirname(output):
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
