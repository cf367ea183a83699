"""Streams of lines: read in windows from files and pipes, and written atomically or to pipes."""

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeVar, runtime_checkable

from hf_attncal.io.errors import CommandError, explain, one_line, user_errors
from hf_attncal.io.files import (
    READ_ERRORS,
    Text,
    check_line,
    check_readable,
    compressing,
    decoded,
    give_name,
    is_compressed,
    is_file,
    open_to_read,
    text_name,
)
from hf_attncal.io.gate import check_file, is_special, locked, note_inputs
from hf_attncal.io.messages import LOG

STANDARD = "-"  # file name of standard input or output
LONGEST_LINE = 10_000  # bytes; aligning two such sides takes at most 3 GB and 10 seconds

# Batches of lines per window: enough to sort by length, few enough for the memory.
BATCHES_PER_WINDOW = 16
# POSIX: a pipe takes up to this number of bytes in one piece, or none of them.
_PIPE_BUFFER = 4096
_LINES_AT_ONCE = 1024  # lines per window where the batch size does not matter
_PIECE = 1 << 16

Item = TypeVar("Item")
PairWindow = tuple[Sequence[tuple[str, str]], CommandError | None]


# ---- lines ----


@runtime_checkable
class Readable(Protocol):
    """Stream of bytes that is read by lines."""

    def readline(self, size: int = -1, /) -> bytes: ...


class Output(Protocol):
    """Stream that bytes are written to."""

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
    """Yield windows of lines without line ends and byte-order mark, each with the error of the next line, or None.

    Args:
        source: stream in UTF-8, in which only LF and CRLF end a line; or lines, or tuples of lines.
        window: maximum number of lines in a window.
        name: name of `source` in messages.
        longest: maximum number of bytes of a line in a stream. Default: 10,000.
        cut: function called with the number of each longer line, which returns the line to read instead; None for the
            truncated line. Default: a longer line is an error.
        before: number of lines before `source`. Default: 0.
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
    number = before
    try:
        while raw := source.readline(longest + len(codecs.BOM_UTF8 + b"\r\n")):
            if number == 0 and not (raw := raw.removeprefix(codecs.BOM_UTF8)):
                return  # only a byte-order mark, no line
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            whole = len(line) <= longest
            # The last character of a truncated line may be incomplete, and is dropped.
            text = decoded(line[:longest], name, number, whole)
            if not whole:
                if cut is None:
                    raise CommandError(too_long(number, name, longest))
                replaced = cut(number)
                text = text if replaced is None else replaced
                while raw and not raw.endswith(b"\n"):
                    raw = source.readline(_PIECE)
            yield text
    except ValueError as error:
        raise CommandError(str(error)) from error
    except READ_ERRORS as error:
        problem = "damaged or incomplete" + (", or its suffix is wrong" if number == before else "")
        raise CommandError(f"{name} cannot be read after line {number}: {error}. It is {problem}.") from error


def _checked(lines: Iterable[Any], name: str, before: int) -> Iterator[Any]:
    """Yield lines, or tuples of lines; raise CommandError for a NUL."""
    for number, line in enumerate(lines, start=before + 1):
        with user_errors():
            check_line(line, number, name)
        yield line


def line_error(number: int, problem: str, error: Exception) -> CommandError:
    """Return the error for the user about a line that could not be processed."""
    message = one_line(error) if isinstance(error, ValueError) else explain(error)
    return CommandError(f"line {number} {problem}: {message}")


def write_lines(target: Output, lines: Iterable[str]) -> None:
    """Write lines with line ends, and flush.

    They are written in pieces of whole lines that a pipe takes at once: a reader never reads half a line of a killed
    run, unless a single line is longer than such a piece. An error of `lines` follows after the lines before it.
    """
    piece = b""
    try:
        for line in lines:
            data = line.encode() + b"\n"
            if piece and len(piece) + len(data) > _PIPE_BUFFER:
                # After an error or Ctrl-C within the write, this piece must not be written again.
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
    """Return an object as a line of JSON, with floats rounded to six decimals, the precision of float32."""
    return json.dumps(_rounded(values), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [_rounded(entry) for entry in value]
    return round(value, 6) if isinstance(value, float) else value


def progress_bar(label: str, wanted: bool | None):
    """Return a progress bar of lines on standard error; by default only on a terminal and without -q."""
    from tqdm.auto import tqdm

    if wanted is None and "TQDM_DISABLE" in os.environ:  # by -q, or by the user
        wanted = False
    return tqdm(desc=label, unit=" lines", file=sys.stderr, disable=None if wanted is None else not wanted)


# ---- pairs of lines ----


def rows_of_texts(texts: Mapping[str, Text], longest: int = LONGEST_LINE) -> Iterator[tuple[str, ...]]:
    """Yield line n of every text together.

    Args:
        texts: files, or lines, by their names in messages.
        longest: maximum number of bytes of a line of a file. Default: 10,000.

    Raises:
        CommandError: error of `parallel_lines`, after all lines before it.
    """
    names = [text_name(text, name) for name, text in texts.items()]
    with ExitStack() as stack:

        def opened(text: Text) -> Readable | Iterable[str]:
            if not isinstance(text, str | os.PathLike):
                return text
            return standard_input() if text == STANDARD else stack.enter_context(open_file(os.fspath(text), "rb"))

        sides = list(map(opened, texts.values()))
        for rows, error in parallel_lines(sides, _LINES_AT_ONCE, names, longest):
            yield from rows
            if error is not None:
                raise error


def files_among(*texts: object) -> list[str]:
    """Return the file names among texts."""
    return [os.fspath(text) for text in texts if is_file(text)]


def counted(items: Iterable[Item], label: str, wanted: bool | None) -> Iterator[Item]:
    """Yield items and count them on a `progress_bar`."""
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
    cut: Callable[[int], Any] | None = None,
) -> Iterator[tuple[list[Any], CommandError | None]]:
    """Yield windows of line n of every file (or list of lines), each with the error of the next line, or None.

    Different numbers of lines are also an error. For the arguments see `read_windows`.
    """
    named = zip(files, names, strict=True)
    sides = [read_windows(file, window, name, longest, cut, before) for file, name in named]
    for groups in zip_longest(*sides, fillvalue=([], None)):
        lines, errors = zip(*groups, strict=True)
        rows = list(zip(*lines, strict=False))
        failed = [(len(side), place) for place, (side, error) in enumerate(groups) if error is not None]
        error = errors[min(failed)[1]] if failed else None  # the error of the earliest line
        numbers = [before + len(side) for side in lines]
        if error is None and len(set(numbers)) > 1:
            for side, rest in enumerate(sides):
                for more, failure in rest:
                    numbers[side] += len(more)
                    error = error or failure  # the number of lines that follow is unknown
            side = next((side for side, number in enumerate(numbers) if number != numbers[0]), 0)
            error = error or CommandError(
                f"{names[0]} has {numbers[0]} lines, {names[side]} has {numbers[side]}; they must match. "
                f"All files have the first {before + len(rows)}."
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
    """Re-raise an OSError as CommandError with the name of the output, except for a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{name} cannot be written: {error.strerror or error}.") from error


class NamedOutput:
    """Output stream whose errors of writing contain its name."""

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
    """Open a file to read it, decompressed by its suffix, or to write it without compression.

    Raises:
        CommandError: the file cannot be opened.
    """
    try:
        if mode == "rb":
            note_inputs(path)
            file = open_to_read(path)
        else:
            file = open(path, "wb")  # noqa: SIM115
    except (OSError, ValueError, EOFError) as error:  # ValueError: a zero byte in the name
        raise CommandError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
    LOG.info("%s %s", "reading" if mode == "rb" else "writing", path)
    return file


class _Lines:
    """Lines as a stream of bytes."""

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
    """Open a text; yield its stream, the number of lines per window, and its name in messages.

    Args:
        text: file (plain or compressed) or lines. None or `-`: standard input.
        window: number of lines per window. Lines typed at a terminal come one at a time.
        name: name of lines in messages. Default: "the lines".

    Raises:
        CommandError: the text cannot be opened, or standard input is closed.
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
    """Open an output file, named `path`.partial until it is complete (and after an error).

    It is compressed by its suffix. A pipe or a device (/dev/null) is written directly.

    Args:
        path: path of the file. None or -: standard output.
        option: option that names the file, for messages. Default: --output.

    Raises:
        CommandError: the file cannot be written, or another process writes it.
    """
    sys.stdout.flush()  # earlier output comes first
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
        return
    check_file(path, option)
    compressed, special = is_compressed(path), is_special(path)
    path = path if special else os.path.realpath(path)  # a symbolic link stays one
    partial = path if special else f"{path}.partial"
    name = f"{option} {path}"
    with ExitStack() as stack:
        try:
            if not special:
                stack.enter_context(locked(partial))
        except BlockingIOError as error:
            message = f"{partial} is being written by another process. Wait for it, or name another file."
            raise CommandError(message) from error
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise CommandError(f"{partial} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
        try:
            with _writing(name):
                file = open_file(partial, "wb")
                with compressing(file) if compressed else file as file:
                    yield NamedOutput(file, name)
                if not special:
                    give_name(Path(partial), Path(path))
        except CommandError as error:
            message = str(error)
            with suppress(OSError):
                if not special and _whole_lines(partial, compressed):
                    message += f" What was written before is in {partial}."
                elif not special:
                    os.unlink(partial)
            raise CommandError(message) from error


def _whole_lines(path: str, compressed: bool) -> bool:
    """Remove an incomplete last line, as left by a full disk; return False if no line remains.

    A compressed file stays unchanged.
    """
    if compressed:
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
    """Check that the files of a command can be read and written, before it loads a model.

    Args:
        inputs: input files.
        outputs: option -> output file or None. The file of --output may be - for standard output.
        standard: True if the command reads standard input, which must then be open. Default: None, True if there are
            no `inputs`.

    Raises:
        CommandError: a file cannot be read or written; the message names it.
    """
    named = {option: os.fspath(path) for option, path in outputs.items() if path is not None}
    if named.get("--output") == STANDARD:
        del named["--output"]
    for option, path in named.items():
        if path == STANDARD:
            raise CommandError(f"{option} - is not supported. Give a file name, or leave {option} out.")
        folder = Path(path).resolve().parent
        if Path(path).is_dir() or not folder.is_dir():
            problem = "is a folder" if Path(path).is_dir() else f"is in {folder}, which is not a folder"
            raise CommandError(f"{option} {path} {problem}.")
    if standard or (standard is None and not inputs):
        standard_input()
    check_readable(*inputs)


def check_text(source: Text | None, outputs: Mapping[str, str | os.PathLike[str] | None]) -> Text:
    """Return a text after checking it and the output files; see `check_files`.

    Raises:
        CommandError: no text, or a file that cannot be read or written.
    """
    if source is None:
        raise CommandError("`source` must be a file or its lines, got None.")
    files = [path for path in files_among(source) if path != STANDARD]
    check_files(files, outputs, standard=is_file(source) and not files)
    return source


def too_long(number: int, name: str, longest: int) -> str:
    """Return the message about a line that is too long."""
    return f"line {number} of {name} has more than {longest} bytes. Split it, or raise --longest-line."
