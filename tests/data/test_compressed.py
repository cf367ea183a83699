"""Compressed files: what is written is read, always the same bytes, and what is damaged is never taken for whole."""

import gzip
import lzma
import subprocess
import sys

import pytest
import zstandard

from hf_attncal.data.compressed import ERRORS, MARKS, compressing, looks_like, open_to_read
from hf_attncal.data.text import read_lines
from hf_attncal.extras import need

SUFFIXES = sorted(MARKS)
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
TEXT = "".join(f"line {number} of a text, with ä\n" for number in range(20_000)).encode()


def write(path, pieces) -> bytes:
    with compressing(open(path, "wb"), path.suffix) as file:
        for piece in pieces:
            file.write(piece)
            file.flush()
    return path.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_and_depends_on_the_text_alone(tmp_path, suffix):
    whole = write(tmp_path / f"a{suffix}", [TEXT])
    assert len(whole) < len(TEXT) / 5
    assert looks_like(whole) == suffix
    with open_to_read(tmp_path / f"a{suffix}") as file:
        assert file.read() == TEXT
    assert write(tmp_path / f"b{suffix}", [TEXT]) == whole
    lines = write(tmp_path / f"c{suffix}", TEXT.splitlines(keepends=True))
    assert len(lines) < 1.1 * len(whole)  # a flush after each line costs nothing


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("text", [b"", b"x", TEXT])
def test_other_programs_read_it_and_joined_files_read_like_one(tmp_path, suffix, text):
    ours = write(tmp_path / f"a{suffix}", [text])
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(suffix)
    assert (unpack or (lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)))(ours) == text
    (tmp_path / f"b{suffix}").write_bytes(ours + PACK[suffix](b"second\n") + ours)
    with open_to_read(tmp_path / f"b{suffix}") as file:
        assert file.read() == text + b"second\n" + text


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("cut", [3, 50, -1])
def test_a_cut_or_damaged_file_is_an_error(tmp_path, suffix, cut):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix](TEXT)[:cut])
    with pytest.raises(ERRORS), open_to_read(path) as file:
        file.read()
    with pytest.raises(ValueError, match=rf"a\{suffix}. cannot be decompressed .*damaged or not a \{suffix} file"):
        read_lines(path)
    damaged = bytearray(PACK[suffix](TEXT))
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    with open_to_read(path) as file:
        try:
            assert file.read() != TEXT  # zstandard.compress writes no checksum
        except ERRORS:
            return
    assert suffix == ".zst"


def test_a_damaged_file_of_ours_is_always_an_error(tmp_path):
    """Ours have checksums."""
    path = tmp_path / "a.zst"
    damaged = bytearray(write(path, [TEXT]))
    damaged[len(damaged) // 2] ^= 0x01
    path.write_bytes(damaged)
    with pytest.raises(ERRORS), open_to_read(path) as file:
        file.read()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_what_its_name_says_is_told(tmp_path, suffix):
    plain, packed = tmp_path / f"plain{suffix}", tmp_path / "packed.txt"
    plain.write_bytes(b"plain text\n")
    packed.write_bytes(PACK[suffix](TEXT))
    with pytest.raises(ValueError, match=rf"damaged or not a \{suffix} file"):
        read_lines(plain)
    with pytest.raises(ValueError, match=rf"packed.txt. looks like a \{suffix} file. Give it a name"):
        read_lines(packed)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_for_training_is_read(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(PACK[suffix](b"a\nb\n"))
    assert read_lines(path) == ["a", "b"]


def test_a_zst_file_without_the_extra_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_attncal.extras.find_spec", lambda name: None)
    for use in (lambda: need("zst"), lambda: read_lines(tmp_path / "a.zst"), lambda: write(tmp_path / "b.zst", [b""])):
        (tmp_path / "a.zst").write_bytes(b"")
        with pytest.raises(ModuleNotFoundError, match=r"zstandard is not installed.*hf_attncal\[zst\]"):
            use()


def test_commands_start_without_the_library():
    code = "import hf_attncal.cli, hf_attncal.data.compressed, sys; print('zstandard' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
