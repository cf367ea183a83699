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


class DamagedFrame(Exception):
    """What a .zst file has in it is no frame."""


# What reading one may raise where it is damaged.
ERRORS = (gzip.BadGzipFile, EOFError, lzma.LZMAError, zlib.error, DamagedFrame)
TOLD = "plain, .gz, .xz or .zst"

_PIECE = 1 << 17
_ZST_PIECE = 1 << 12  # bytes that are decompressed at once, to a hundred MB at worst


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

    What is no file of its suffix, or cut, is one of `ERRORS` when it is read.

    Raises:
        OSError: it cannot be opened.
        ModuleNotFoundError: see `check_suffix`.
    """
    check_suffix(path)
    opener = {".gz": gzip.open, ".xz": lzma.open, ".zst": _open_frames}.get(suffix_of(path), open)
    return opener(path, "rb")


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


def _open_frames(path: str | Path, mode: str) -> BinaryIO:
    return io.BufferedReader(_ZstdReader(open(path, mode)), _PIECE)


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


class _ZstdReader(io.RawIOBase):
    """Frames of a .zst file, one after the other. zstandard's own readers take a cut file for a whole one."""

    def __init__(self, file: BinaryIO):
        import zstandard

        self._file, self._decompressor, self._error = file, zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._frame = None
        self._packed, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._file.read(_ZST_PIECE)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("Compressed file ended in the middle of a frame")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._ready = memoryview(self._frame.decompress(self._packed))
            except self._error as error:
                raise DamagedFrame(str(error)) from error
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
