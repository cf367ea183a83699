"""Lines in and out: read in windows, written whole; from and to files, pipes, and several processes."""

import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import BinaryIO

from .common import CommandError

# Batches of lines that are read before any is worked on: enough to sort by length, few enough to stay in memory.
BATCHES_PER_WINDOW = 16
# POSIX: a pipe takes up to this many bytes in one piece, or none of them.
_PIPE_BUFFER = 4096
_SEPARATOR = "|||"

PairWindow = tuple[Sequence[tuple[str, str]], CommandError | None]


# ---- lines ----


def read_windows(
    source: BinaryIO, window: int, name: str = "the input"
) -> Iterator[tuple[list[str], CommandError | None]]:
    """Groups of at most `window` lines without line ends.

    With the last group comes what is wrong with the line after it, or `None`. `name` is what messages call `source`.
    """
    lines: list[str] = []
    number = 0
    try:
        for raw in source:
            number += 1
            lines.append(raw.decode("utf-8").rstrip("\r\n"))
            if len(lines) == window:
                yield lines, None
                lines = []
    except UnicodeDecodeError as error:
        yield lines, CommandError(f"line {number} of {name} is not UTF-8 (byte {error.start + 1}).")
        return
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        yield lines, CommandError(f"{name} cannot be read after line {number}: {error}. It is damaged or incomplete.")
        return
    if lines:
        yield lines, None


def write_lines(target: BinaryIO, lines: Iterable[str]) -> None:
    """Write lines, each with its line end, and flush.

    They go out in pieces of whole lines that a pipe takes at once: a reader never sees half a line of a run that is
    killed, unless the line alone is longer than such a piece.
    """
    piece = b""
    for line in lines:
        data = line.encode() + b"\n"
        if piece and len(piece) + len(data) > _PIPE_BUFFER:
            target.write(piece)
            target.flush()
            piece = b""
        piece += data
    target.write(piece)
    target.flush()


def progress_bar(label: str, wanted: bool | None):
    """A bar that counts lines on standard error; where `wanted` is None, only if that is a terminal."""
    from tqdm.auto import tqdm

    return tqdm(desc=label, unit=" lines", file=sys.stderr, disable=None if wanted is None else not wanted)


# ---- pairs of lines ----


def joined_pairs(source: BinaryIO, window: int, name: str) -> Iterator[PairWindow]:
    """Pairs from lines `source ||| target`, in groups of at most `window`; an empty line is a pair of empty sides.

    With the last group comes what is wrong with the line after it, or `None`.
    """
    first = 1
    for lines, error in read_windows(source, window, name):
        pairs = []
        for number, line in enumerate(lines, start=first):
            words = line.split()
            separators = words.count(_SEPARATOR)
            if separators != 1 and words:
                found = f"{separators} times" if separators else "not at all"
                yield (
                    pairs,
                    CommandError(
                        f"line {number} of {name} has the separator ` {_SEPARATOR} ` {found}, it must be `source "
                        f"{_SEPARATOR} target`. Text that contains the separator needs --source and --target."
                    ),
                )
                return
            middle = words.index(_SEPARATOR) if words else 0
            pairs.append((" ".join(words[:middle]), " ".join(words[middle + 1 :])))
        yield pairs, error
        first += len(lines)


def parallel_pairs(source: BinaryIO, target: BinaryIO, window: int, names: tuple[str, str]) -> Iterator[PairWindow]:
    """Pairs from two files, in groups of at most `window`.

    With the last group comes what is wrong with the line after it (or that one file has more lines), or `None`.
    """
    sides = [read_windows(file, window, name) for file, name in zip((source, target), names, strict=True)]
    before = 0
    for (source_lines, source_error), (target_lines, target_error) in zip_longest(*sides, fillvalue=([], None)):
        pairs = list(zip(source_lines, target_lines, strict=False))
        error = source_error or target_error
        if error is None and len(source_lines) != len(target_lines):
            rest = [sum(len(lines) for lines, _ in side) for side in sides]
            numbers = [before + len(source_lines) + rest[0], before + len(target_lines) + rest[1]]
            error = CommandError(
                f"{names[0]} has {numbers[0]} lines and {names[1]} has {numbers[1]}, they must have the same number. "
                f"The first {before + len(pairs)} were aligned."
            )
        yield pairs, error
        before += len(pairs)
        if error is not None:
            return


# ---- files ----


def open_file(path: str, mode: str) -> BinaryIO:
    """A file to read or to write; a .gz or .xz file is decompressed.

    Raises:
        CommandError: it cannot be opened.
    """
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(Path(path).suffix, open) if mode == "rb" else open
    try:
        return opener(path, mode)
    except OSError as error:
        raise CommandError(f"{path} cannot be opened: {error.strerror or error}.") from error


@contextmanager
def output_file(path: str) -> Iterator[BinaryIO]:
    """A file to write that gets its name when it is complete; until then, and after an error, it is `path`.partial.

    What is no regular file (a named pipe, /dev/null) is written to as it is.
    """
    path = os.path.realpath(path)  # a symbolic link stays one
    if os.path.exists(path) and not os.path.isfile(path):
        with open_file(path, "wb") as file:
            yield file
        return
    partial = f"{path}.partial"
    try:
        with open_file(partial, "wb") as file:
            yield file
        os.replace(partial, path)
    except CommandError as error:
        with suppress(OSError):
            if os.path.getsize(partial):
                error = CommandError(f"{error} What was aligned before is in {partial}.")
            else:
                os.unlink(partial)
        raise error from None
    except OSError as error:
        raise CommandError(f"--output {path} cannot be written: {error.strerror or error}.") from error


# ---- several processes ----


@contextmanager
def shared_output_file(path: str, window: int, rank: int, world: int) -> Iterator[BinaryIO]:
    """`output_file` for several processes: each writes the windows of lines whose number, modulo `world`, is `rank`.

    Each gets a file of its own; the first process puts them together. It must see the files of all.

    Raises:
        CommandError: in the first process, what the process of the first line that failed raised.
    """
    from torch import distributed

    # They meet once, at the end: no limit on how long the slowest takes.
    distributed.init_process_group("gloo", timeout=timedelta(days=365))
    try:
        parts = [f"{path}.partial.{number}" for number in range(world)]
        message = None
        try:
            with open_file(parts[rank], "wb") as part:
                yield part
        except CommandError as error:
            message = str(error)
        messages: list[str | None] = [None] * world
        distributed.all_gather_object(messages, message)
        try:
            if rank == 0:
                join_parts(parts, path, window, messages)
        finally:
            distributed.barrier()  # a process that ends earlier may have the launcher stop the others
    finally:
        distributed.destroy_process_group()


def join_parts(parts: list[str], output: str, window: int, messages: list[str | None]) -> None:
    """The windows of all parts in order, up to the first that is not full: the last one, or one with an error."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(part, "rb")) for part in parts]
        with output_file(output) as target:
            for number in count():
                lines = list(islice(files[number % len(files)], window))
                target.writelines(lines)
                if len(lines) < window:
                    break
            message = messages[number % len(files)]
            if message is not None:
                raise CommandError(message)
    for part in parts:
        os.unlink(part)
