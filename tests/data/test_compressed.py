"""Compressed files: what is written is read, always the same bytes, and what is damaged is never taken for whole."""

import gzip

import pytest

from hf_attncal.commands import main
from hf_attncal.io.files import READ_ERRORS, compressing, open_to_read, read_lines

TEXT = "".join(f"line {number} of a text, with ä\n" for number in range(20_000)).encode()


def write(path, pieces) -> bytes:
    with compressing(open(path, "wb")) as file:
        for piece in pieces:
            file.write(piece)
            file.flush()
    return path.read_bytes()


def test_written_text_is_read_back_and_bytes_depend_only_on_the_text(tmp_path):
    whole = write(tmp_path / "a.gz", [TEXT])
    assert len(whole) < len(TEXT) / 5
    with open_to_read(tmp_path / "a.gz") as file:
        assert file.read() == TEXT
    assert write(tmp_path / "b.gz", [TEXT]) == whole
    lines = write(tmp_path / "c.gz", TEXT.splitlines(keepends=True))
    assert len(lines) < 1.1 * len(whole)  # a flush after each line costs nothing


@pytest.mark.parametrize("text", [b"", TEXT])
def test_other_programs_read_it_and_joined_files_read_like_one(tmp_path, text):
    ours = write(tmp_path / "a.gz", [text])
    assert gzip.decompress(ours) == text
    (tmp_path / "b.gz").write_bytes(ours + gzip.compress(b"second\n") + b"\0" * 4 + ours)
    with open_to_read(tmp_path / "b.gz") as file:
        assert file.read() == text + b"second\n" + text
    assert read_lines(tmp_path / "b.gz") == (text + b"second\n" + text).decode().splitlines()


@pytest.mark.parametrize(
    "damage",
    [
        lambda one, two: b"",
        lambda one, two: b"\0" * 8,
        lambda one, two: b"\0" * 8 + one,
        lambda one, two: one + b"garbage",
        lambda one, two: one + two[:-1],
        lambda one, two: one[:3],
        lambda one, two: one + two[:-3] + bytes([two[-3] ^ 1]) + two[-2:],
        lambda one, two: one[:20] + two,
        lambda one, two: b"plain text\n",
    ],
)
def test_a_file_that_is_not_whole_is_never_a_shorter_text(tmp_path, capsys, damage):
    """This holds for training text, which is read at once, and for commands, which read line by line."""
    path = tmp_path / "a.gz"
    path.write_bytes(damage(write(path, [TEXT[:30_000]]), write(path, [b"second\n"])))
    with pytest.raises(ValueError, match=r"a\.gz.*(decompressed \(\w.*\)|is empty)"):
        read_lines(path)
    with pytest.raises(READ_ERRORS), open_to_read(path) as file:
        file.read()
    assert main(["score", str(path), str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error


def test_an_empty_file_is_damaged_only_with_the_suffix(tmp_path):
    """A full disk leaves it; a plain one has no lines, and a whole one of no text, too."""
    for name, data in (("a", b""), ("a.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(data)
        with open_to_read(tmp_path / name) as file:
            assert file.read() == b""
    (tmp_path / "b.gz").write_bytes(b"")
    with pytest.raises(EOFError, match=r"^0 bytes.*\.gz"):
        open_to_read(tmp_path / "b.gz")


@pytest.mark.parametrize(
    ("data", "program"),
    [(gzip.compress(b"a", mtime=0), "zcat"), (b"\xfd7zXZ\0ab", "xzcat"), (b"\x28\xb5\x2f\xfda", "zstdcat")],
)
def test_a_compressed_file_of_another_name_is_reported(tmp_path, data, program):
    (tmp_path / "packed.txt").write_bytes(data)
    with pytest.raises(ValueError, match=rf"packed\.txt.*`<\({program} FILE\)`"):
        read_lines(tmp_path / "packed.txt")
