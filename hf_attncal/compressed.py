"""Files that are compressed or not, as their name ends: .gz, .xz and .zst (which needs an extra), read and written.

What is written depends on what was written alone: no names and no times.
"""

import gzip
import io
import lzma
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hf_attncal.extras import need

# What such a file begins with.
MARKS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}


class DamagedFile(Exception):
    """A compressed file is cut, damaged or empty, has something else behind it, or is of another kind."""


TOLD = "plain, .gz, .xz or .zst"

_PIECE = 1 << 17
_PACKED_PIECE = 1 << 12  # bytes that are decompressed at once, to a hundred MB at worst


def suffix_of(path: str | Path) -> str | None:
    """How the name of a compressed file ends; None for a plain one."""
    suffix = Path(path).suffix
    return suffix if suffix in MARKS else None


def check_suffix(path: str | Path) -> None:
    """Refuse a file that cannot be read or written here for its name.

    Raises:
        ModuleNotFoundError: it is a .zst file, and the extra is not installed.
    """
    if suffix_of(path) == ".zst":
        need("zst")


def open_to_read(path: str | Path) -> BinaryIO:
    """The bytes of a file, decompressed; concatenated files read like one.

    Raises:
        OSError: it cannot be opened.
        ModuleNotFoundError: see `check_suffix`.
        DamagedFile: by what is returned, when it is read.
    """
    check_suffix(path)
    return decompressing(open(path, "rb"), suffix_of(path))


def decompressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """A stream of what `file`, which it closes, has compressed; `file` itself where `suffix` is None.

    To read it raises DamagedFile where the file is not whole.
    """
    return file if suffix is None else io.BufferedReader(_Unpacked(file, suffix), _PIECE)


def compressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """A stream that compresses what is written into `file`, which it closes; `file` itself where `suffix` is None.

    To flush it does nothing: each time would cost bytes.
    """
    if suffix is None:
        return file
    packers = {".gz": _gzip, ".xz": partial(lzma.open, mode="wb"), ".zst": _frames}
    return _Packed(packers[suffix](file), file)


def looks_like(data: bytes) -> str | None:
    """The suffix that a file with this beginning should have; None for plain text."""
    return next((suffix for suffix, mark in MARKS.items() if data.startswith(mark)), None)


def _gzip(file: BinaryIO) -> BinaryIO:
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)


def _frames(file: BinaryIO) -> BinaryIO:
    need("zst")
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False)


class _Packed(io.BufferedIOBase):
    """Collects what is written, since a compressor likes it in large pieces; closes compressor and file."""

    def __init__(self, packed: BinaryIO, file: BinaryIO):
        self._packed, self._file, self._waiting = packed, file, bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._waiting += data
        if len(self._waiting) >= _PIECE:
            self._pack()
        return len(data)

    def _pack(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        self._packed.write(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if self.closed:
            return
        try:
            with self._file:
                self._pack()
                self._packed.close()
        finally:
            super().close()


def _unpacker(suffix: str):
    """What makes the decompressor of each part of a file, and the error that this raises."""
    if suffix == ".gz":
        return partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), zlib.error
    if suffix == ".xz":
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


class _Unpacked(io.RawIOBase):
    """The parts of a compressed file (members, streams, frames), one after the other, each read to its end.

    The readers of gzip, lzma and zstandard take an empty file for a whole one, lzma's also one with garbage behind its
    first stream, zstandard's also one that is cut.
    """

    def __init__(self, file: BinaryIO, suffix: str):
        self._file, self._suffix = file, suffix
        self._new, self._error = _unpacker(suffix)
        self._part = None  # decompressor of the part that is being read
        self._parts = self._padding = 0  # parts that were begun, zero bytes since the last
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._file.read(_PACKED_PIECE)
            if not self._packed:
                self._check_end()
                return 0
            if self._part is None and not self._begins():
                continue
            try:
                self._ready = memoryview(self._part.decompress(self._packed))
            except self._error as error:
                behind = f" behind part {self._parts - 1}" if self._parts > 1 else ""
                raise DamagedFile(f"no whole {self._suffix} data{behind}: {error}") from error
            self._packed = b""
            if self._part.eof:
                self._packed, self._part = self._part.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _begins(self) -> bool:
        """Begin a part, unless only padding is left: zero bytes, which .xz (by fours) and .gz may have behind one."""
        if self._parts and self._suffix != ".zst":
            packed = self._packed.lstrip(b"\0")
            self._padding += len(self._packed) - len(packed)
            self._packed = packed
            if not packed:
                return False
            self._check_padding()
        self._part, self._parts, self._padding = self._new(), self._parts + 1, 0
        return True

    def _check_padding(self) -> None:
        if self._suffix == ".xz" and self._padding % 4:
            raise DamagedFile(f"{self._padding} zero bytes behind part {self._parts}, a .xz file has them by fours")

    def _check_end(self) -> None:
        if not self._parts:
            raise DamagedFile(f"0 bytes, even a {self._suffix} file of no text has more")
        if self._part is not None:
            raise DamagedFile("it ends too early")
        self._check_padding()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
