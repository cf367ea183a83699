"""Read and write files that are plain or compressed, by the suffix of their name: .gz, .xz and .zst (an extra).

Compressed files are reproducible: they hold no names and no times.
"""

import gzip
import io
import lzma
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hf_attncal.extras import need

# First bytes of a compressed file.
MARKS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}


class DamagedFile(Exception):
    """A compressed file is cut off, damaged, empty, followed by other bytes, or of another format."""


TOLD = "plain, .gz, .xz or .zst"

_PIECE = 1 << 17
_PACKED_PIECE = 1 << 12  # bytes decompressed at once: they become at most some hundred MB


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
        DamagedFile: raised by the stream when it reads a file that is not whole.
    """
    suffix = suffix_of(path)
    return decompressing(open(path, "rb"), suffix)


def decompressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """Wrap `file` in a stream that decompresses it and closes it; return `file` itself if `suffix` is None.

    The stream raises DamagedFile if the file is not whole.
    """
    return file if suffix is None else io.BufferedReader(_Unpacked(file, suffix), _PIECE)


def compressing(file: BinaryIO, suffix: str | None) -> BinaryIO:
    """Wrap `file` in a stream that compresses into it and closes it; return `file` itself if `suffix` is None.

    Flushing the stream does nothing, as each flush of a compressor costs bytes.
    """
    if suffix is None:
        return file
    if suffix == ".gz":
        packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
    elif suffix == ".xz":
        packed = lzma.LZMAFile(file, "wb")  # noqa: SIM115
    else:
        need("zst")
        import zstandard

        packed = zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False)
    return _Packed(packed, file)


def looks_like(data: bytes) -> str | None:
    """Return the suffix that a file with these first bytes should have, or None for plain text."""
    return next((suffix for suffix, mark in MARKS.items() if data.startswith(mark)), None)


class _Packed(io.BufferedIOBase):
    """Collects bytes into the large pieces that a compressor works best on; closes compressor and file."""

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
    """Return a function that makes a decompressor for a part of a file, and the error that decompressors raise."""
    if suffix == ".gz":
        return partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), zlib.error
    if suffix == ".xz":
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


class _Unpacked(io.RawIOBase):
    """Reads the parts of a compressed file (members, streams, frames) one after the other, each to its end.

    The readers of gzip, lzma and zstandard accept an empty file as whole; lzma's also accepts garbage after the first
    stream, and zstandard's a file that is cut off.
    """

    def __init__(self, file: BinaryIO, suffix: str):
        self._file, self._suffix = file, suffix
        self._new, self._error = _unpacker(suffix)
        self._part = None  # decompressor of the part being read
        self._parts = self._padding = 0  # number of parts begun, zero bytes after the last one
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
                place = f" after part {self._parts - 1}" if self._parts > 1 else ""
                raise DamagedFile(f"incomplete {self._suffix} data{place}: {error}") from error
            self._packed = b""
            if self._part.eof:
                self._packed, self._part = self._part.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _begins(self) -> bool:
        """Begin a part unless only padding is left: zero bytes, which .xz (in fours) and .gz allow after a part."""
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
            raise DamagedFile(f"{self._padding} zero bytes after part {self._parts}, a .xz file has them in fours")

    def _check_end(self) -> None:
        if not self._parts:
            raise DamagedFile(f"0 bytes; a {self._suffix} file has more even without text")
        if self._part is not None:
            raise DamagedFile("it ends too early")
        self._check_padding()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
