"""Compression by the suffix of a file's name (.gz, .xz, .zst), and strict decoding of UTF-8.

Compressed files are reproducible: they contain no names and no times.
"""

import codecs
import gzip
import io
import lzma
import unicodedata
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from hf_attncal.io.extras import need

# ---- compression ----

# First bytes of a compressed file.
MARKS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}


class DamagedFile(Exception):
    """Error of a compressed file that is truncated, damaged, empty, followed by other bytes, or of another format."""


SUPPORTED_FORMATS = "plain, .gz, .xz or .zst"

_PIECE = 1 << 17
_PACKED_PIECE = 1 << 12  # bytes decompressed at once: they expand to at most some hundred MB


def suffix_of(path: str | Path) -> str | None:
    """Return the suffix of a compressed file's name, or None for a plain file.

    Raises:
        ModuleNotFoundError: a .zst file, and the extra `zst` is not installed.
    """
    suffix = Path(path).suffix
    if suffix == ".zst":
        need("zst")
    return suffix if suffix in MARKS else None


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file to read its decompressed bytes; concatenated compressed files read like one.

    Raises:
        OSError: the file cannot be opened.
        ModuleNotFoundError: a .zst file without the extra `zst`.
        DamagedFile: raised by the stream for an incomplete file.
    """
    suffix = suffix_of(path)
    return decompressing(open(path, "rb"), suffix)


def decompressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """Wrap `file` in a stream that decompresses it and closes it; return `file` itself if `suffix` is None.

    The stream raises DamagedFile if the file is incomplete.
    """
    return file if suffix is None else io.BufferedReader(_Unpacked(file, suffix), _PIECE)


def compressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """Wrap `file` in a stream that compresses into it and closes it; return `file` itself if `suffix` is None.

    Flushing the stream does not flush the compressor, as that would add bytes each time.
    """
    if suffix is None:
        return file
    packed: Any
    if suffix == ".gz":
        packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
    elif suffix == ".xz":
        packed = lzma.LZMAFile(file, "wb")  # noqa: SIM115
    else:
        need("zst")
        import zstandard

        packed = zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False)
    return io.BufferedWriter(_Packed(packed, file), _PIECE)


def looks_like(data: bytes) -> str | None:
    """Return the suffix of the compressed format with these first bytes, or None for plain text."""
    return next((suffix for suffix, mark in MARKS.items() if data.startswith(mark)), None)


class _Packed(io.RawIOBase):
    """Stream that writes into a compressor, and closes it and its file."""

    def __init__(self, packed: Any, file: BinaryIO):
        self._packed, self._file = packed, file

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._packed.write(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        try:
            with self._file:
                self._packed.close()
        finally:
            super().close()


def _unpacker(suffix: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return the constructor of a format's decompressors, and their error class."""
    if suffix == ".gz":
        return partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), zlib.error
    if suffix == ".xz":
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


class _Unpacked(io.RawIOBase):
    """Stream that reads the parts of a compressed file (members, streams, frames) one by one, each to its end.

    The readers of gzip, lzma and zstandard accept an empty file as complete. The reader of lzma also accepts garbage
    after the first stream, and the reader of zstandard a truncated file.
    """

    def __init__(self, file: BinaryIO, suffix: str):
        self._file, self._suffix = file, suffix
        self._new, self._error = _unpacker(suffix)
        self._part: Any = None  # decompressor of the current part
        self._parts = 0  # number of parts so far
        self._packed, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._file.read(_PACKED_PIECE)
            if not self._packed and self._part is None and self._parts:
                return 0
            if not self._packed:
                empty = f"0 bytes; a {self._suffix} file has more even without text"
                raise DamagedFile("it ends too early" if self._parts else empty)
            if self._part is None:
                if self._parts and self._suffix != ".zst":  # zero bytes after a part are padding
                    self._packed = self._packed.lstrip(b"\0")
                    if not self._packed:
                        continue
                self._part, self._parts = self._new(), self._parts + 1
            try:
                self._ready = memoryview(self._part.decompress(self._packed))
            except self._error as error:
                place = f" after part {self._parts - 1}" if self._parts > 1 else ""
                raise DamagedFile(f"incomplete {self._suffix} data{place}: {error}") from error
            self._packed = b""
            if self._part.eof:
                self._packed, self._part = self._part.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


# ---- characters ----

HEAD = 1 << 16  # bytes at the start of a text from which its encoding is inferred
# Encodings by byte-order mark. The mark of UTF-32LE begins with the mark of UTF-16LE, so it comes first.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_UNMARKED = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
_NOT_TEXT = {"Cc", "Cn", "Co", "Cs"}  # Unicode categories


def decoded(data: bytes, name: str, number: int = 1, head: bytes | None = None, whole: bool = True) -> str:
    """Decode a text, or lines of a text.

    Args:
        data: bytes in UTF-8, without a byte-order mark.
        name: name of the text in messages.
        number: number of the first line in `data`. Default: 1.
        head: first bytes of the text. Default: `data`.
        whole: False to drop an incomplete character at the end. Default: True.

    Raises:
        ValueError: the data is not UTF-8 or has a NUL. The message has the line, the likely encoding and a remedy.
    """
    head = data if head is None else head
    try:
        text, _ = codecs.utf_8_decode(data, "strict", whole)
    except UnicodeDecodeError as error:
        at, problem = error.start, "is not UTF-8 (byte {})"
        remedy = "Convert the text first, for example with `iconv -f latin1 -t utf-8`."
        if number == 1 and (suffix := looks_like(data)):
            remedy = f"It looks like a {suffix} file: rename it to end with {suffix}."
    else:
        if "\0" not in text:
            return text
        at, problem = data.index(0), "has a NUL byte (byte {})"
        remedy = "If the file is text, delete the NUL bytes: `tr -d '\\000'`."
    if encoding := other_encoding(head):
        problem, remedy = f"is {encoding}, not UTF-8", f"Convert the text first: `iconv -f {encoding} -t UTF-8`."
    number, at = number + data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at)
    raise ValueError(f"line {number} of {name} {problem.format(at)}. {remedy}")


def other_encoding(head: bytes) -> str | None:
    """Return the `iconv` name of the encoding if a text starts like UTF-16 or UTF-32, else None.

    Without a byte-order mark, a NUL is required, which every space and line end has in these encodings. Bytes that may
    also be UTF-8 must decode to characters below U+2070, as other text with a NUL would look like Chinese.
    """
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    head = head[:HEAD]
    scores: dict[str, int] = {}
    for name in _UNMARKED if b"\0" in head else ():
        with suppress(UnicodeDecodeError):
            # A line ends after its LF byte, in the middle of a character.
            missing = -len(head) % (4 if "32" in name else 2) if head.endswith(b"\n") else 0
            text = codecs.getincrementaldecoder(name)().decode(head + bytes(missing))
            wrong = sum(letter not in "\t\n\r" and unicodedata.category(letter) in _NOT_TEXT for letter in text)
            foreign = 0
            with suppress(UnicodeDecodeError):
                codecs.utf_8_decode(head, "strict", False)
                foreign = sum(letter >= "\u2070" for letter in text)
            if any(map(str.isalnum, text)) and 50 * wrong <= len(text) and 10 * foreign <= len(text):
                scores[name] = sum(map(str.isascii, text)) - 10 * wrong
    return max(scores, key=lambda name: scores[name], default=None)


def check_line(line: Any, number: int, name: str = "the lines") -> None:
    """Raise ValueError for a text, or a list or tuple of texts, with a NUL; the message has `number` and `name`."""
    if _has_nul(line):
        raise ValueError(f"line {number} of {name} has a NUL byte. Delete it.")


def _has_nul(line: Any) -> bool:
    return "\0" in line if isinstance(line, str) else isinstance(line, list | tuple) and any(map(_has_nul, line))
