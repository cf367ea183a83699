"""Read lines of UTF-8, also compressed, and write a file or a folder atomically.

A file is renamed to its name only when it is complete and on the disk, as a process may be killed at any system call
and the power may fail. Files are compressed by gzip, by the suffix .gz of their names; they are reproducible, without
names and times.
"""

import codecs
import errno
import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TextIO, TypeGuard

from hf_attncal.layouts import UNFINISHED

from .errors import CommandError
from .gate import check_file, is_special, note_inputs, saving_into

COMPRESSED = ".gz"
# Errors of reading a file that is damaged, incomplete, followed by other bytes, or not compressed at all.
READ_ERRORS = (OSError, EOFError, zlib.error)
# First bytes of compressed files, and the programs that decompress them.
_PROGRAMS = {b"\x1f\x8b": "zcat", b"\xfd7zXZ\x00": "xzcat", b"\x28\xb5\x2f\xfd": "zstdcat"}
# Encodings by byte-order mark. The mark of UTF-32LE begins with the mark of UTF-16LE, so it comes first.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# A full disk, quota or file; and the messages of safetensors and tokenizers, then torch, for it.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_IN_WORDS = re.compile(
    rf"os error ({'|'.join(map(str, _FULL))})\b|PytorchStreamWriter failed|inline_container|iostream error"
)


# ---- reading ----

Text = str | os.PathLike[str] | Iterable[str]  # a file, or its lines


def is_file(text: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a text is the name of a file, not a list of lines."""
    return isinstance(text, str | os.PathLike)


def text_name(text: object, name: str) -> str:
    """Return the name of a text in messages: its file, or `name` for lines."""
    return os.fspath(text) if is_file(text) else name


def lines_of(text: Text | Iterable[Any]) -> list[Any]:
    """Return the lines of a text, or objects in place of lines; raises as `read_lines`, and for a NUL."""
    if isinstance(text, str | os.PathLike):
        return read_lines(text)
    lines = list(text)
    for number, line in enumerate(lines, start=1):
        check_line(line, number)
    return lines


def read_pairs(source: Text, target: Text) -> tuple[list[str], list[str]]:
    """Read two parallel texts.

    Args:
        source, target: files or lines.

    Raises:
        ValueError: different numbers of lines, or a file that `read_lines` refuses.
    """
    sides = {"source": source, "target": target}
    lines = [lines_of(text) for text in sides.values()]
    if len(lines[0]) != len(lines[1]):
        names = [text_name(text, side) for side, text in sides.items()]
        raise ValueError(
            f"Parallel files must have the same number of lines, but `{names[0]}` has {len(lines[0])} and "
            f"`{names[1]}` has {len(lines[1])}. Check that both belong to the same split and are filtered alike."
        )
    return lines[0], lines[1]


def check_readable(*paths: str | None) -> None:
    """Check that inputs are readable; None is skipped.

    Raises:
        CommandError: an input is missing, a folder, or has no read permission.
    """
    for path in paths:
        if path is None or (os.access(path, os.R_OK) and not os.path.isdir(path)):
            continue
        problem = (
            "is a folder, not a file" if os.path.isdir(path) else "has no read permission. Change its permissions"
        )
        raise CommandError(
            f"{path} {problem}." if os.path.lexists(path) else f"There is no file {path or repr(path)}."
        )


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Read the lines of a UTF-8 text file, without line ends; a `.gz` file is decompressed.

    Only LF and CRLF end a line. Unicode separators such as U+2028 and the form feed do not: they would shift every
    later line against the other language.

    Args:
        path: path of the file.

    Raises:
        ValueError: the file is missing, is neither a regular file nor a pipe (`<(command)`, which is read once),
            cannot be read or decompressed, is not UTF-8 or has a NUL (`decoded`), or has no text.
    """
    path = Path(path)
    if not path.is_file() and not path.is_fifo():
        problem = "is a directory" if path.is_dir() else "is a device" if path.exists() else "does not exist"
        raise ValueError(f"Text file `{path}` {problem}. Give the path of a text file (plain or .gz).")
    try:
        note_inputs(path)
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"Text file `{path}` cannot be read: {error.strerror or error}.") from error
    try:
        text = gzip.decompress(data) if is_compressed(path) else data
    except READ_ERRORS as error:
        raise ValueError(
            f"Text file `{path}` cannot be decompressed ({error}). It is damaged or not a {path.suffix} file: "
            "fetch it again, or rename it if it is plain text."
        ) from error
    return split_lines(text, str(path))


def split_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a text in bytes; see `read_lines`. `name` is its name in messages."""
    text = decoded(data.removeprefix(codecs.BOM_UTF8), name)
    if not text.strip():
        raise ValueError(f"`{name}` is empty ({len(data)} bytes without text). Give a file with sentences.")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def load_yaml(text: str | TextIO) -> Any:
    """Parse YAML; `1e-3` is a number.

    Raises:
        ValueError: malformed YAML or a duplicate key; the message has one line.
    """
    import yaml

    try:
        return yaml.load(text, _yaml_loader())
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


@cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader, except that `1e-3` is a number and a duplicate key is an error.

        YAML 1.1 takes `1e-3` (no dot) for text, unlike users and every other reader. YAML forbids duplicate keys;
        PyYAML keeps the last one.
        """

        def compose_mapping_node(self, anchor):
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                line = key.start_mark.line + 1
                if key.value in lines:
                    problem = f"the key `{key.value}` is given twice, in lines {lines[key.value]} and {line}"
                    raise yaml.composer.ComposerError(problem=problem)
                lines[key.value] = line
            return node

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )

    return Loader


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- files compressed by gzip ----


def is_compressed(path: str | PurePath) -> bool:
    """Return whether the name of a file has the suffix of a compressed file."""
    return PurePath(path).suffix == COMPRESSED


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file to read its decompressed bytes; concatenated compressed files read like one.

    Raises:
        OSError, EOFError: the file cannot be opened, or has no bytes, which gzip takes for an empty text. The stream
            raises `READ_ERRORS`.
    """
    file = open(path, "rb")  # noqa: SIM115
    if not is_compressed(path):
        return file
    if not file.peek(1):
        file.close()
        raise EOFError("0 bytes; a .gz file has more even without text")
    return _closing(gzip.GzipFile(fileobj=file), file)


class _Writer(gzip.GzipFile):
    """Compressed output; `flush` does not flush the compressor, as that would add bytes each time."""

    def flush(self, *_: Any) -> None:
        """Do nothing; closing the file completes it."""


def compressing(file: BinaryIO) -> BinaryIO:
    """Wrap `file` in a stream that compresses into it and closes it."""
    return _closing(_Writer("", "wb", compresslevel=6, fileobj=file, mtime=0), file)


def _closing(packed: Any, file: BinaryIO) -> BinaryIO:
    """Return a stream of gzip that closes its file."""
    packed.myfileobj = file
    return packed


# ---- characters ----


def decoded(data: bytes, name: str, number: int = 1, whole: bool = True) -> str:
    """Decode a text, or lines of a text.

    Args:
        data: bytes in UTF-8, without a byte-order mark.
        name: name of the text in messages.
        number: number of the first line in `data`. Default: 1.
        whole: False to drop an incomplete character at the end. Default: True.

    Raises:
        ValueError: the data is not UTF-8 or has a NUL. The message has the line and a remedy.
    """
    wrong = None
    try:
        text, _ = codecs.utf_8_decode(data, "strict", whole)
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    at = data.find(0, 0, wrong)
    if at >= 0:
        problem = "has a NUL byte (byte {})"
        remedy = "Convert the text to UTF-8 (`iconv`); if it is UTF-8, delete the NUL bytes: `tr -d '\\000'`."
    elif wrong is None:
        return text
    else:
        at, problem = wrong, "is not UTF-8 (byte {})"
        remedy = "Convert the text first, for example with `iconv -f latin1 -t utf-8`."
        if number == 1:
            encoding = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)
            program = next((program for mark, program in _PROGRAMS.items() if data.startswith(mark)), None)
            if encoding is not None:
                problem = f"is {encoding}, not UTF-8"
                remedy = f"Convert the text first: `iconv -f {encoding} -t UTF-8`."
            elif program is not None:
                remedy = f"It is compressed: give `<({program} FILE)`, or a .gz file under a name that ends with .gz."
    number, at = number + data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at)
    raise ValueError(f"line {number} of {name} {problem.format(at)}. {remedy}")


def check_line(line: Any, number: int, name: str = "the lines") -> None:
    """Raise ValueError for a text, or a list or tuple of texts, with a NUL; the message has `number` and `name`."""
    if _has_nul(line):
        raise ValueError(f"line {number} of {name} has a NUL byte. Delete it.")


def _has_nul(line: Any) -> bool:
    return "\0" in line if isinstance(line, str) else isinstance(line, list | tuple) and any(map(_has_nul, line))


# ---- writing ----


def write_json(values: Any, *paths: str | Path) -> None:
    """Write values as JSON to every path, each file atomically.

    Raises:
        TypeError: `values` contains an object that JSON does not support; no file has changed.
        OSError: a file cannot be written.
    """
    for path in paths:
        write_text(json_text(values), path)


def json_text(values: Any) -> str:
    """Return values as JSON text, in the format of all files of this package."""
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def write_text(text: str, path: str | Path) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(text.encode(), path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write a file atomically."""
    with whole_file(path) as partial:
        partial.write_bytes(data)


@contextmanager
def whole_file(path: str | Path, option: str | None = None) -> Iterator[Path]:
    """Write a file atomically in the block; missing folders are made.

    The file is written under a temporary name beside its own and renamed by `give_name`. A pipe or a device is written
    directly.

    Args:
        path: name of the file.
        option: option with which the user named the file. Default: none, for a file with a fixed name.

    Yields:
        Temporary name, or the name of the pipe.

    Raises:
        CommandError: the write is refused; see `gate.check_file`.
        OSError: the file cannot be written.
    """
    if is_special(path) and not os.path.isdir(path):
        with writing(path):
            yield Path(path)
        return
    check_file(path, option)
    path = Path(path).resolve()  # a symbolic link stays one
    partial = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # a link would be written through
        try:
            yield partial
            give_name(partial, path)
        except OSError as error:
            if error.filename == str(partial):  # the user asked for another name
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        finally:
            partial.unlink(missing_ok=True)


def give_name(complete: Path, final: Path) -> None:
    """Sync a complete file or folder to the disk, and rename it.

    Args:
        complete: file or folder.
        final: new name, on the same file system. An existing file is replaced; an existing folder is an error.
    """
    to_disk(*complete.rglob("*"), complete)
    complete.replace(final)
    to_disk(final.parent)


def fill_folder(
    folder: str | Path, save: Callable[[Path], Any], last: tuple[str, ...] = (), by: str | None = None
) -> None:
    """Save files into a folder, each atomically, after all of them are on the disk.

    Args:
        folder: folder, made if it is missing. Files of the same names are replaced, others stay.
        save: function that writes the files into the folder of its argument, `unfinished/filled` in `folder`.
        last: patterns of names to move last, in this order. Old files of these names are removed first, so a folder
            with them is complete. Default: none.
        by: writer of a whole model; see `gate.saving_into`. Default: none, for other files or a claimed folder.

    Raises:
        CommandError: see `gate.saving_into`; or, without `by`, a file of a model has one of the names.
    """
    folder = Path(folder)
    staged = folder / UNFINISHED / "filled"
    with saving_into(folder, by, own=by is not None):
        shutil.rmtree(staged, ignore_errors=True)  # left over from a killed process
        staged.mkdir(parents=True)
        try:
            save(staged)
            make_readable(staged)
            to_disk(*staged.rglob("*"))
            ranks = {
                path.relative_to(staged): max((n for n, name in enumerate(last, 1) if path.match(name)), default=0)
                for path in sorted(staged.rglob("*"))
                if path.is_file()
            }
            names = sorted(ranks, key=ranks.__getitem__)
            for name in names:
                check_file(folder.resolve() / name)
            for name in reversed(names):
                if ranks[name]:
                    (folder / name).unlink(missing_ok=True)
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (staged / name).replace(folder / name)
            to_disk(*{(folder / name).parent for name in names}, folder)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
            with suppress(OSError):  # it has other unfinished files
                staged.parent.rmdir()


def make_readable(folder: str | Path) -> None:
    """Set the usual mode of weights in a folder, as safetensors restricts them to their owner."""
    umask = os.umask(0o077)
    os.umask(umask)
    for file in Path(folder).rglob("*.safetensors"):
        file.chmod(0o666 & ~umask)


def to_disk(*paths: Path) -> None:
    """Sync files, or the names in folders, to the disk, so that they survive a power failure.

    Raises:
        OSError: a file cannot be written. Errors for folders are ignored, as some file systems cannot sync them.
    """
    for path in paths:
        with suppress(OSError) if path.is_dir() else nullcontext():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Re-raise the error of a full disk in the block with `path` as its file name.

    Raises:
        OSError: the disk is full. `filename` is the copy if a file was copied, else `path`, as the system names no
            file at a write, and safetensors, tokenizers and torch raise errors of their own.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and (error.filename is None or error.filename2 is not None):
            raise OSError(error.errno, error.strerror, error.filename2 or str(path)) from error
        raise
    except Exception as error:
        if _FULL_IN_WORDS.search(str(error)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise
