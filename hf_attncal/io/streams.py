"""Lines in and out: read in windows, written whole; from and to files and pipes."""

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeVar, runtime_checkable

from hf_attncal.io.encoding import HEAD, DamagedFile, check_line, compressing, decoded, open_to_read, suffix_of
from hf_attncal.io.errors import CommandError, explain, one_line, user_errors
from hf_attncal.io.files import Text, check_readable, give_name, is_file, read_pairs, text_name
from hf_attncal.io.gate import alone, check_file, is_special, open_descriptor, reads
from hf_attncal.io.messages import LOG

STANDARD = "-"  # as the name of a file: standard input or output
LONGEST_LINE = 10_000  # bytes: two such sides take at most 3 GB and 10 seconds to align

# Batches of lines that are read before any is worked on: enough to sort by length, few enough to stay in memory.
BATCHES_PER_WINDOW = 16
# POSIX: a pipe takes up to this many bytes in one piece, or none of them.
_PIPE_BUFFER = 4096
_WINDOW = 1024  # lines that are read together where the size of batches does not matter
_PIECE = 1 << 16
_SEPARATOR = "|||"
_BETWEEN = re.compile(r"(?<!\S)\|\|\|(?!\S)")

Item = TypeVar("Item")
PairWindow = tuple[Sequence[tuple[str, str]], CommandError | None]


# ---- lines ----


@runtime_checkable
class Readable(Protocol):
    """A stream of bytes that is read by lines."""

    def readline(self, size: int = -1, /) -> bytes: ...


class Output(Protocol):
    """A stream that bytes are written to."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


def read_windows(
    source: Readable | Iterable[Any],
    window: int,
    name: str = "the input",
    longest: int = LONGEST_LINE,
    cut: Callable[[int], Any] | None = None,
    before: int = 0,
) -> Iterator[tuple[list[Any], CommandError | None]]:
    """Yield at most `window` lines at a time, without line ends and without a byte-order mark.

    With the last group comes what is wrong with the line after it, or `None`.

    Args:
        source: UTF-8; only LF and CRLF end a line. Or the lines themselves, or tuples of them.
        window: most lines in a group.
        name: what messages call `source`.
        longest: most bytes of a line of a stream. More is never read at once.
        cut: called with the number of a longer line, of which the beginning is taken; without it, that is an error.
        before: number of lines that come before `source` begins.
    """
    lines: list[Any] = []
    error = None
    if isinstance(source, Readable):
        items = _lines_of_stream(source, name, longest, cut, before)
    else:
        items = _checked(source, name, before)
    try:
        for line in items:
            lines.append(line)
            if len(lines) == window:
                yield lines, None
                lines = []
    except CommandError as failure:
        error = failure
    if lines or error is not None:
        yield lines, error


def _lines_of_stream(
    source: Readable, name: str, longest: int, cut: Callable[[int], Any] | None, before: int
) -> Iterator[str]:
    """Yield the lines of a stream; see `read_windows`.

    Raises:
        CommandError: a line cannot be read, decoded or is too long.
    """
    number, head = before, b""
    try:
        while raw := source.readline(longest + len(codecs.BOM_UTF8 + b"\r\n")):
            if number == 0 and not (raw := raw.removeprefix(codecs.BOM_UTF8)):
                return  # a mark and nothing else: no line
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            whole = len(line) <= longest
            head += raw if len(head) < HEAD else b""
            # Of the beginning of a line the last character may be cut in two: it is left out.
            text = decoded(line[:longest], name, number, head, whole)
            if not whole:
                if cut is None:
                    raise CommandError(too_long(number, name, longest))
                cut(number)
                while raw and not raw.endswith(b"\n"):
                    raw = source.readline(_PIECE)
            yield text
    except ValueError as error:
        raise CommandError(str(error)) from error
    except (OSError, DamagedFile) as error:
        problem = "damaged or incomplete" + (", or not compressed as its name says" if number == before else "")
        raise CommandError(f"{name} cannot be read after line {number}: {error}. It is {problem}.") from error


def _checked(lines: Iterable[Any], name: str, before: int) -> Iterator[Any]:
    """Yield lines, or tuples of them; CommandError for one with a NUL."""
    for number, line in enumerate(lines, start=before + 1):
        with user_errors():
            check_line(line, number, name)
        yield line


def line_error(number: int, problem: str, error: Exception) -> CommandError:
    """Return the error for the user of a line that something failed on."""
    message = one_line(error) if isinstance(error, ValueError) else explain(error)
    return CommandError(f"line {number} {problem}: {message}")


def write_lines(target: Output, lines: Iterable[str]) -> None:
    """Write lines, each with its line end, and flush.

    They go out in pieces of whole lines that a pipe takes at once: a reader never sees half a line of a run that is
    killed, unless the line alone is longer than such a piece. An error of `lines` comes when those before are written.
    """
    piece = b""
    try:
        for line in lines:
            data = line.encode() + b"\n"
            if piece and len(piece) + len(data) > _PIPE_BUFFER:
                # An error or Ctrl-C in the middle of it must not write this piece again.
                full, piece = piece, b""
                target.write(full)
                target.flush()
            piece += data
    except Exception:
        target.write(piece)
        target.flush()
        raise
    target.write(piece)
    target.flush()


def json_line(values: dict[str, Any]) -> str:
    """Format an object as a line, with floats to six decimals, which float32 has."""
    return json.dumps(_rounded(values), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [_rounded(entry) for entry in value]
    return round(value, 6) if isinstance(value, float) else value


def progress_bar(label: str, wanted: bool | None):
    """Return a bar that counts lines on standard error; if `wanted` is None, only on a terminal and without -q."""
    from tqdm.auto import tqdm

    if wanted is None and "TQDM_DISABLE" in os.environ:  # by -q, or by the user
        wanted = False
    return tqdm(desc=label, unit=" lines", file=sys.stderr, disable=None if wanted is None else not wanted)


# ---- pairs of lines ----


def joined_pairs(
    source: Readable | Iterable[str], window: int, name: str, longest: int = LONGEST_LINE, before: int = 0
) -> Iterator[PairWindow]:
    """Yield pairs from lines `source ||| target`, at most `window` at a time; an empty line is an empty pair.

    Sides are as they stand there, without white space around them. With the last group comes what is wrong with the
    line after it, or `None`. Arguments are those of `read_windows`.
    """
    first = before + 1
    for lines, error in read_windows(source, window, name, longest, before=before):
        pairs: list[tuple[str, str]] = []
        for number, line in enumerate(lines, start=first):
            parts = _BETWEEN.split(line)
            separators = len(parts) - 1
            if separators != 1 and line.strip():
                times = f"{separators} times" if separators else "not at all"
                problem = (
                    f"line {number} of {name} has the separator ` {_SEPARATOR} ` {times}, it must be `source "
                    f"{_SEPARATOR} target`. Two files, or text with the separator, need --source and --target."
                )
                yield pairs, CommandError(problem)
                return
            pairs.append((parts[0].strip(), parts[-1].strip()))
        yield pairs, error
        first += len(lines)


def groups_by_size(pairs: Sequence[tuple[str, str]], most: int) -> Iterator[Sequence[tuple[str, str]]]:
    """Yield the pairs in order, one or as many at once as have at most `most` links between their characters."""
    start = cells = 0
    for stop, (source, target) in enumerate(pairs):
        cells += len(source) * len(target)
        if cells > most and stop > start:
            yield pairs[start:stop]
            start, cells = stop, len(source) * len(target)
    if pairs:
        yield pairs[start:]


def rows_of_files(names: Sequence[str], longest: int = LONGEST_LINE) -> Iterator[tuple[str, ...]]:
    """Yield line n of every file together; see `rows_of_texts`."""
    return rows_of_texts({str(place): name for place, name in enumerate(names)}, longest)


def rows_of_texts(texts: Mapping[str, Text], longest: int = LONGEST_LINE) -> Iterator[tuple[str, ...]]:
    """Yield line n of every text together.

    Args:
        texts: files, or lines with the names that messages give them.
        longest: most bytes of a line of a file.

    Raises:
        CommandError: what `parallel_lines` says, when all lines before it have been given.
    """
    names = [text_name(text, name) for name, text in texts.items()]
    with ExitStack() as stack:

        def opened(text: Text) -> Readable | Iterable[str]:
            if not isinstance(text, str | os.PathLike):
                return text
            return standard_input() if text == STANDARD else stack.enter_context(open_file(os.fspath(text), "rb"))

        sides = list(map(opened, texts.values()))
        for rows, error in parallel_lines(sides, _WINDOW, names, longest):
            yield from rows
            if error is not None:
                raise error


def files_among(*texts: object) -> list[str]:
    """Return the names of those texts that are files."""
    return [os.fspath(text) for text in texts if is_file(text)]


def counted(items: Iterable[Item], label: str, wanted: bool | None) -> Iterator[Item]:
    """Yield the items, and count them on a `progress_bar`."""
    with progress_bar(label, wanted) as bar:
        for item in items:
            yield item
            bar.update()


def parallel_lines(
    files: Sequence[Readable | Iterable[str]],
    window: int,
    names: Sequence[str],
    longest: int = LONGEST_LINE,
    before: int = 0,
) -> Iterator[tuple[list[Any], CommandError | None]]:
    """Yield line n of every file (or list of lines) together, at most `window` at a time.

    With the last group comes what is wrong with the line after it (or that one file has more lines), or `None`.
    Arguments are those of `read_windows`.
    """
    named = zip(files, names, strict=True)
    sides = [read_windows(file, window, name, longest, before=before) for file, name in named]
    for groups in zip_longest(*sides, fillvalue=([], None)):
        lines, errors = zip(*groups, strict=True)
        rows = list(zip(*lines, strict=False))
        failed = [(len(side), place) for place, (side, error) in enumerate(groups) if error is not None]
        error = errors[min(failed)[1]] if failed else None  # of the line that comes first
        numbers = [before + len(side) for side in lines]
        if error is None and len(set(numbers)) > 1:
            for side, rest in enumerate(sides):
                for more, failure in rest:
                    numbers[side] += len(more)
                    error = error or failure  # nobody knows how many lines follow
            other = next((side for side, number in enumerate(numbers) if number != numbers[0]), 0)
            error = error or CommandError(
                f"{names[0]} has {numbers[0]} lines and {names[other]} has {numbers[other]}, they must have the same "
                f"number. All files have the first {before + len(rows)}."
            )
        yield rows, error
        before += len(rows)
        if error is not None:
            return


# ---- files ----


def standard_input() -> BinaryIO:
    """Return standard input.

    Raises:
        CommandError: it is closed.
    """
    if sys.stdin is None:
        raise CommandError("standard input is closed. Give the command a file or a pipe to read (`< FILE`).")
    return sys.stdin.buffer


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turn an OSError into an error that names the output, unless its reader has left."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{name} cannot be written: {error.strerror or error}.") from error


class NamedOutput:
    """A stream that says its name when it cannot be written, whoever writes."""

    def __init__(self, stream: Any, name: str = "standard output"):
        self._stream, self._name = stream, name
        if hasattr(stream, "buffer"):
            self.buffer = NamedOutput(stream.buffer, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: str | bytes, /) -> int:
        with _writing(self._name):
            return self._stream.write(data)

    def flush(self) -> None:
        with _writing(self._name):
            self._stream.flush()


def open_file(path: str, mode: Literal["rb", "wb"]) -> BinaryIO:
    """Open a file to read it decompressed as its name says, or to write it as it is.

    Raises:
        CommandError: it cannot be opened.
    """
    try:
        if mode == "rb":
            reads(path)
            file = open_to_read(path)
        else:  # to open a file once more would empty it, and forget that it is appended to
            descriptor = open_descriptor(path)
            file = open(path if descriptor is None else os.dup(descriptor), "wb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise CommandError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
    LOG.info("%s %s", "reading" if mode == "rb" else "writing", path)
    return file


class _Lines:
    """Lines that are read as those of a file are."""

    def __init__(self, lines: Iterable[str]):
        self._lines, self._rest = enumerate(lines, start=1), b""

    def readline(self, size: int = -1, /) -> bytes:
        if not self._rest:
            number, line = next(self._lines, (0, None))
            if not number:
                return b""
            if not isinstance(line, str) or "\n" in line:
                raise CommandError(f"line {number} must be text without a line end, got {line!r}.")
            self._rest = line.encode("utf-8", "surrogatepass") + b"\n"
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


@contextmanager
def input_lines(text: Text | None, window: int, name: str = "the lines") -> Iterator[tuple[Readable, int, str]]:
    """Open a text; yield it, the number of lines to read at once, and its name in messages.

    Args:
        text: a file, plain or compressed, or lines; None or `-` for standard input.
        window: lines that make full batches. Someone who types wants each line answered.
        name: what messages call lines.

    Raises:
        CommandError: it cannot be opened, or standard input is closed.
    """
    if text is None or text == STANDARD:
        source = standard_input()
        yield source, 1 if source.isatty() else window, "the input"
    elif isinstance(text, str | os.PathLike):
        with open_file(os.fspath(text), "rb") as file:
            yield file, window, os.fspath(text)
    else:
        yield _Lines(text), window, name


@contextmanager
def output_lines(path: str | None, option: str = "--output") -> Iterator[Output]:
    """Open a file that gets its name when it is complete; until then, and after an error, it is `path`.partial.

    It is compressed as its name says. What is no regular file (a named pipe, /dev/null), and what the process has open
    already (/dev/stdout, /dev/fd/3), is written to as it is, behind what it has.

    Args:
        path: path of the file; None or - for standard output.
        option: option that names it, for messages.

    Raises:
        CommandError: it cannot be written, or another process is writing it.
    """
    sys.stdout.flush()  # what was printed before comes first
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
        return
    check_file(path, option)
    suffix, special = suffix_of(path), is_special(path)
    path = path if special else os.path.realpath(path)  # a symbolic link stays one
    partial = path if special else f"{path}.partial"
    name = f"{option} {path}"
    with ExitStack() as stack:
        try:
            if not special:
                stack.enter_context(alone(partial))
        except BlockingIOError as error:
            message = f"{partial} is being written by another process. Wait for it, or name another file."
            raise CommandError(message) from error
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise CommandError(f"{partial} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
        try:
            with _writing(name):
                with compressing(open_file(partial, "wb"), suffix) as file:
                    yield NamedOutput(file, name)
                if not special:
                    give_name(Path(partial), Path(path))
        except CommandError as error:
            message = str(error)
            with suppress(OSError):
                if not special and _whole_lines(partial, suffix):
                    message += f" What was written before is in {partial}."
                elif not special:
                    os.unlink(partial)
            raise CommandError(message) from error


def _whole_lines(path: str, suffix: str | None) -> bool:
    """Cut off the half line that a full disk leaves at the end of a file; return False if nothing else is in it.

    A compressed one is as it is.
    """
    if suffix is not None:
        return os.path.getsize(path) > 0
    end = 0
    with open(path, "r+b") as file:
        if os.path.getsize(path):
            with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                end = data.rfind(b"\n") + 1
        file.truncate(end)
    return end > 0


def check_files(
    inputs: Sequence[str], outputs: Mapping[str, str | os.PathLike[str] | None], standard: bool | None = None
) -> None:
    """Refuse files that a command cannot read or write, before it loads a model; the gate has refused others.

    Args:
        inputs: files that it reads; none where it reads standard input.
        outputs: files that it writes, or None, by the options that name them; --output may be - for standard output.
        standard: it reads standard input; None: if there are no inputs.

    Raises:
        CommandError: what is wrong, and with which.
        ModuleNotFoundError: a .zst file, without the extra.
    """
    named = {option: os.fspath(path) for option, path in outputs.items() if path is not None}
    if named.get("--output") == STANDARD:
        del named["--output"]
    for option, path in named.items():
        if path == STANDARD:
            raise CommandError(f"{option} - would be a file of that name. Give another, or leave {option} out.")
        folder = Path(path).resolve().parent
        if Path(path).is_dir() or not folder.is_dir():
            problem = "is a folder" if Path(path).is_dir() else f"lies in {folder}, which is no folder"
            raise CommandError(f"{option} {path} {problem}.")
    if standard or (standard is None and not inputs):
        standard_input()
    check_readable(*inputs)
    for path in named.values():
        suffix_of(path)


def check_text(source: Text | None, outputs: Mapping[str, str | os.PathLike[str] | None]) -> Text:
    """Return a text; refuse one that is missing, and files that cannot be read or written (see `check_files`).

    Raises:
        CommandError: what is wrong, and with which.
    """
    if source is None:
        raise CommandError("`source` must be a file or its lines, got None.")
    files = [path for path in files_among(source) if path != STANDARD]
    check_files(files, outputs, standard=is_file(source) and not files)
    return source


def read_sides(source: Text, target: Text, longest: int | None = None) -> tuple[list[str], list[str]]:
    """Read the whole of two parallel texts, whose lines a model can take: work and memory grow with their square.

    Args:
        source, target: files, or lines.
        longest: most bytes of a line (--longest-line); None: `LONGEST_LINE`.

    Raises:
        CommandError: a text cannot be read, they have different numbers of lines, or a line is too long; the message
            has its number and text.
    """
    longest = longest or LONGEST_LINE
    with user_errors():
        sides = read_pairs(source, target)
    for name, lines in zip((text_name(source, "source"), text_name(target, "target")), sides, strict=True):
        for number, line in enumerate(lines, start=1):
            if len(line.encode("utf-8", "surrogatepass")) > longest:
                raise CommandError(too_long(number, name, longest))
    return sides


def too_long(number: int, name: str, longest: int) -> str:
    """Return the message about a line of the file `name` that is too long."""
    return f"line {number} of {name} has more than {longest} bytes. Split it, or raise --longest-line."
