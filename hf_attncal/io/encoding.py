"""Files compressed by gzip, by the suffix .gz of their names, and strict decoding of UTF-8.

Compressed files are reproducible: they contain no names and no times.
"""

import codecs
import gzip
import zlib
from pathlib import Path, PurePath
from typing import Any, BinaryIO

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
    try:
        text, _ = codecs.utf_8_decode(data, "strict", whole)
    except UnicodeDecodeError as error:
        at, problem = error.start, "is not UTF-8 (byte {})"
        remedy = "Convert the text first, for example with `iconv -f latin1 -t utf-8`."
        if number == 1:
            encoding = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)
            program = next((program for mark, program in _PROGRAMS.items() if data.startswith(mark)), None)
            if encoding is not None:
                problem = f"is {encoding}, not UTF-8"
                remedy = f"Convert the text first: `iconv -f {encoding} -t UTF-8`."
            elif program is not None:
                remedy = f"It is compressed: give `<({program} FILE)`, or a .gz file under a name that ends with .gz."
    else:
        if "\0" not in text:
            return text
        at, problem = data.index(0), "has a NUL byte (byte {})"
        remedy = "Convert the text to UTF-8 (`iconv`); if it is UTF-8, delete the NUL bytes: `tr -d '\\000'`."
    number, at = number + data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at)
    raise ValueError(f"line {number} of {name} {problem.format(at)}. {remedy}")


def check_line(line: Any, number: int, name: str = "the lines") -> None:
    """Raise ValueError for a text, or a list or tuple of texts, with a NUL; the message has `number` and `name`."""
    if _has_nul(line):
        raise ValueError(f"line {number} of {name} has a NUL byte. Delete it.")


def _has_nul(line: Any) -> bool:
    return "\0" in line if isinstance(line, str) else isinstance(line, list | tuple) and any(map(_has_nul, line))
