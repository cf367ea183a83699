"""Bytes that are no UTF-8 are named, with the line of `iconv` that mends them; a NUL is no letter."""

import gzip
import itertools
import subprocess
from pathlib import Path

import pytest

from hf_attncal.commands import main
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import decoded, lines_of, read_lines
from hf_attncal.io.streams import read_windows

TEXTS = {
    "English": "a man\na dog\n",
    "German": "schöne „Grüße“ – ja\nfür Tiere\n",
    "Russian": "Привет, мир\nкак дела\n",
    "Chinese": "一个人在那里。\n我们 是\n",
    "Japanese": "これは　テストです。\n東京\n",
    "Hindi": "नमस्ते दुनिया\n",
    "emoji": "hi 😀\nyes\n",
}
ENCODINGS = ("UTF-16", "UTF-32")


@pytest.mark.parametrize(("text", "encoding"), [*zip(TEXTS.values(), itertools.cycle(ENCODINGS))])
def test_utf_16_and_32_are_named_and_what_is_named_mends_them(text, encoding, tmp_path):
    """Read whole, and line by line, where the first line ends in the middle of a character."""
    data = text.encode(encoding)
    (tmp_path / "wide.txt").write_bytes(data)
    (tmp_path / "wide.txt.gz").write_bytes(gzip.compress(data))
    told = rf"line 1 of \S+ is {encoding}, not UTF-8\. .*`iconv -f {encoding} -t UTF-8`"
    for name in ("wide.txt", "wide.txt.gz"):
        with pytest.raises(ValueError, match=told):
            read_lines(tmp_path / name)
    with (tmp_path / "wide.txt").open("rb") as file:
        ((lines, error),) = read_windows(file, 10, "input")
    assert lines == []
    assert isinstance(error, CommandError)
    assert f"line 1 of input is {encoding}, not UTF-8" in str(error)
    mended = subprocess.run(["iconv", "-f", encoding, "-t", "UTF-8"], input=data, capture_output=True, check=True)
    assert mended.stdout.decode() == text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a b\nc\0d\n", r"line 2 of x has a NUL byte \(byte 2\)\."),
        ("你好\n".encode() + b"\0\n", "line 2 of x has a NUL"),
        ("café\nschön\n".encode("latin1"), r"line 1 of x is not UTF-8 \(byte 4\)\..*iconv -f latin1 -t utf-8"),
        (gzip.compress(b"a\n", mtime=0), r"line 1 of x is not UTF-8 .*is compressed"),
    ],
)
def test_other_encodings_are_named(data, told):
    with pytest.raises(ValueError, match=told):
        decoded(data, "x")


def test_text_that_is_utf_8_is_returned():
    for text in TEXTS.values():
        assert decoded(text.encode(), "x") == text


def test_lines_of_lists_have_no_nul_either():
    with pytest.raises(ValueError, match="line 2 of the lines has a NUL"):
        lines_of(["a", "b\0"])
    windows = list(read_windows([("a", "b"), (["a", "\0"], "b"), ("c", "d")], 1, "pairs"))
    assert windows[0] == ([("a", "b")], None)
    assert "line 2 of pairs has a NUL" in str(windows[1][1])
    assert len(windows) == 2


@pytest.mark.parametrize(
    "command",
    [
        "align quick --source WIDE --target plain",
        "align project --source plain --target plain --links links --tags WIDE",
        "score links WIDE",
        "train --source WIDE --target plain --output new",
        "train --config WIDE --source plain --target plain --output new",
    ],
)
def test_commands_name_utf_16(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, data in {"plain": b"a b\n", "links": b"0-0\n", "WIDE": "job: a\n".encode("utf-16")}.items():
        Path(name).write_bytes(data)
    assert main(command.split()) == 1
    assert "line 1 of WIDE is UTF-16, not UTF-8" in capsys.readouterr().err
