"""Text of files: decoding, lines with their places, insertion of notes, and text without markup."""

import re

from hf_attncal.io.files import decoded

_TAGS = re.compile(r"</?[A-Za-z](?![^<>\s]*(?:://|@))[^<>]{0,500}>")


def text_of(data: bytes, name: str) -> str:
    """Decode UTF-8 with or without a byte order mark; raise ValueError with the file name for other encodings."""
    return decoded(data.removeprefix(b"\xef\xbb\xbf"), name)


def line_end(data: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in data else b"\n"


def has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def plain(text: str) -> str:
    """Return a text in one line, with single spaces."""
    return " ".join(text.split())


def without_tags(text: str) -> str:
    return _TAGS.sub(" ", text)


def lines_with_places(data: bytes, text: str) -> list[tuple[str, int]]:
    """Return each line of a text without its end, and its first byte; `data` may have a byte order mark."""
    at = len(data) - len(text.encode())
    lines = []
    for line in text.splitlines(keepends=True) if "\x0b" not in text else text.split("\n"):
        lines.append((line.rstrip("\r\n"), at))
        at += len(line.encode())
    return lines


def inserted(data: bytes, pieces: list[tuple[int, bytes]]) -> bytes:
    """Insert pieces into data before the given bytes, in ascending order."""
    parts, done = [], 0
    for at, piece in pieces:
        parts += [data[done:at], piece]
        done = at
    return b"".join([*parts, data[done:]])
