"""Compressed files: what is written is read, always the same bytes, and what is damaged is never taken for whole."""

import gzip
import lzma
import subprocess
import sys

import pytest
import zstandard

from hf_attncal.commands import main
from hf_attncal.io.encoding import MARKS, DamagedFile, compressing, looks_like, open_to_read
from hf_attncal.io.files import read_lines

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
def test_written_text_is_read_back_and_bytes_depend_only_on_the_text(tmp_path, suffix):
    whole = write(tmp_path / f"a{suffix}", [TEXT])
    assert len(whole) < len(TEXT) / 5
    assert looks_like(whole) == suffix
    with open_to_read(tmp_path / f"a{suffix}") as file:
        assert file.read() == TEXT
    assert write(tmp_path / f"b{suffix}", [TEXT]) == whole
    lines = write(tmp_path / f"c{suffix}", TEXT.splitlines(keepends=True))
    assert len(lines) < 1.1 * len(whole)  # a flush after each line costs nothing


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("text", [b"", TEXT])
def test_other_programs_read_it_and_joined_files_read_like_one(tmp_path, suffix, text):
    ours = write(tmp_path / f"a{suffix}", [text])
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(suffix)
    assert (unpack or (lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)))(ours) == text
    (tmp_path / f"b{suffix}").write_bytes(ours + PACK[suffix](b"second\n") + ours)
    with open_to_read(tmp_path / f"b{suffix}") as file:
        assert file.read() == text + b"second\n" + text


def test_a_damaged_file_of_ours_is_always_an_error(tmp_path):
    """Ours have checksums."""
    path = tmp_path / "a.zst"
    damaged = bytearray(write(path, [TEXT]))
    damaged[len(damaged) // 2] ^= 0x01
    path.write_bytes(damaged)
    with pytest.raises(DamagedFile), open_to_read(path) as file:
        file.read()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("where", ["between", "behind"])
@pytest.mark.parametrize("zeros", [1, 4, 512])
def test_zero_bytes_are_padding_where_the_format_has_it(tmp_path, suffix, where, zeros):
    """A .gz file has them as a tape leaves them, a .xz file in fours; a .zst file has none."""
    path, first, second = tmp_path / f"a{suffix}", PACK[suffix](b"first\n"), PACK[suffix](b"second\n")
    padding = b"\0" * zeros
    path.write_bytes(first + padding + second if where == "between" else first + second + padding)
    if suffix != ".zst":
        assert read_lines(path) == ["first", "second"]
    else:
        with pytest.raises(ValueError, match=rf"a\{suffix}.*after part"):
            read_lines(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda one, two: b"",
        lambda one, two: b"\0" * 8,
        lambda one, two: b"\0" * 8 + one,
        lambda one, two: one + b"garbage",
        lambda one, two: one + two[:-1],
        lambda one, two: one + two[:-3] + bytes([two[-3] ^ 1]) + two[-2:],
        lambda one, two: one[:20] + two,
    ],
)
def test_a_file_that_is_not_whole_is_never_a_shorter_text(tmp_path, capsys, suffix, damage):
    """This holds for training text, which is read at once, and for commands, which read line by line."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(damage(write(path, [TEXT[:30_000]]), write(path, [b"second\n"])))
    with pytest.raises(ValueError, match=rf"a\{suffix}.*decompressed \(\w.*\)"):
        read_lines(path)
    assert main(["score", str(path), str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
    assert "damaged" in error


def test_an_empty_file_is_damaged_only_with_a_suffix_of_compression(tmp_path, capsys):
    """A full disk leaves it; a plain one has no lines, and a whole one of no text, too."""
    for name, data in (("a", b""), *((f"a{suffix}", PACK[suffix](b"")) for suffix in SUFFIXES)):
        (tmp_path / name).write_bytes(data)
        with open_to_read(tmp_path / name) as file:
            assert file.read() == b""
    for suffix in SUFFIXES:
        (tmp_path / f"b{suffix}").write_bytes(b"")
        with pytest.raises(DamagedFile, match=rf"^0 bytes.*\{suffix}"):
            open_to_read(tmp_path / f"b{suffix}").read()


def test_skippable_frames_are_skipped(tmp_path):
    """`pzstd` writes such frames before and between others."""
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"
    (tmp_path / "a.zst").write_bytes(skipped + zstandard.compress(b"a\n") + skipped + zstandard.compress(b"b\n"))
    assert read_lines(tmp_path / "a.zst") == ["a", "b"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_whose_suffix_is_wrong_is_reported(tmp_path, suffix):
    plain, packed = tmp_path / f"plain{suffix}", tmp_path / "packed.txt"
    plain.write_bytes(b"plain text\n")
    packed.write_bytes(PACK[suffix](TEXT))
    with pytest.raises(ValueError, match=rf"damaged.*\{suffix}"):
        read_lines(plain)
    with pytest.raises(ValueError, match=rf"packed.txt.*\{suffix}"):
        read_lines(packed)


def test_commands_start_without_the_library():
    code = "import hf_attncal.commands, hf_attncal.io.encoding, sys; print('zstandard' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
