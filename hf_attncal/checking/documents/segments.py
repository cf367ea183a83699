"""Segments of a document, with their text and position."""

from dataclasses import dataclass
from typing import NamedTuple

from hf_attncal.io.encoding import decoded

CODE = "code block"  # kind of a segment that is not translated
MOST_SEGMENTS = 200_000
Notes = list[tuple[int, list[str]]]  # lines of text to insert before a byte, in ascending order


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text that is translated as a whole.

    Args:
        text: Text without markup, in one line.
        kind: Kind of the segment: paragraph, heading, item, row, cue, entry, line, or `CODE`.
        line: Line of the file on which it begins, from 1.
        key: Name in the file: id of an entry, number of a cue, anchor of a heading. Default: "".
        raw: Text with placeholders and tags; "" if it equals `text`. Default: "".
        at: Byte of the file before which a note on it is written. Default: 0.
        time: Begin and end of a cue, in seconds. Default: None.
    """

    text: str
    kind: str
    line: int
    key: str = ""
    raw: str = ""
    at: int = 0
    time: tuple[float, float] | None = None


class SegmentPair(NamedTuple):
    """A segment and its translation; None for a missing side."""

    source: Segment | None
    target: Segment | None


class Document(NamedTuple):
    """Document in memory.

    Args:
        name: Name of the file.
        data: Bytes of the file.
        pairs: Segment pairs of a bilingual file. Default: ().
        segments: Segments of a file in one language. Default: ().
    """

    name: str
    data: bytes
    pairs: tuple[SegmentPair, ...] = ()
    segments: tuple[Segment, ...] = ()


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


def check_segments(segments: int, what: str = "segments") -> None:
    """Raise ValueError if there are too many segments to pair in reasonable time."""
    if segments > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} {what}. Split it, by chapters for example.")


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
