"""What a document is made of: its segments, each with its text and its place."""

from dataclasses import dataclass
from typing import NamedTuple

from hf_attncal.io.encoding import decoded

CODE = "code block"  # a kind of segment that is compared as it is, and not translated
MOST_SEGMENTS = 200_000
Notes = list[tuple[int, list[str]]]  # byte before which lines of text are written, in ascending order


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text that is translated as a whole.

    Args:
        text: its text without markup, in one line, as an aligner reads it.
        kind: what it is: paragraph, heading, item, row, cue, entry, line, or `CODE`.
        line: of the file on which it begins, from 1.
        key: its name in the file: id of an entry, number of a cue, anchor of a heading; "" for none.
        raw: its text with placeholders and tags; "" where that is the same.
        at: byte of the file before which a note on it is written.
        time: seconds at which a cue begins and ends.
    """

    text: str
    kind: str
    line: int
    key: str = ""
    raw: str = ""
    at: int = 0
    time: tuple[float, float] | None = None


class SegmentPair(NamedTuple):
    """A segment and its translation; a side is None where there is none."""

    source: Segment | None
    target: Segment | None


class Document(NamedTuple):
    """A file that was read.

    Args:
        name: of the file.
        data: its bytes.
        pairs: of a bilingual file.
        segments: of a file in one language.
    """

    name: str
    data: bytes
    pairs: tuple[SegmentPair, ...] = ()
    segments: tuple[Segment, ...] = ()


def text_of(data: bytes, name: str) -> str:
    """Decode UTF-8 with or without a mark; raise ValueError with the name of the file for anything else."""
    return decoded(data.removeprefix(b"\xef\xbb\xbf"), name)


def line_end(data: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in data else b"\n"


def has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def plain(text: str) -> str:
    """Return a text in one line, with single spaces."""
    return " ".join(text.split())


def check_segments(segments: int, what: str = "segments") -> None:
    """Raise ValueError for more segments than can be paired in reasonable time."""
    if segments > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} {what}. Split it, by chapters for example.")


def lines_with_places(data: bytes, text: str) -> list[tuple[str, int]]:
    """Return each line of a text without its end, and the byte at which it begins; `data` may begin with a mark."""
    at = len(data) - len(text.encode())
    found = []
    for line in text.splitlines(keepends=True) if "\x0b" not in text else text.split("\n"):
        found.append((line.rstrip("\r\n"), at))
        at += len(line.encode())
    return found


def inserted(data: bytes, pieces: list[tuple[int, bytes]]) -> bytes:
    """Return data with pieces put in before these bytes, in ascending order."""
    parts, done = [], 0
    for at, piece in pieces:
        parts += [data[done:at], piece]
        done = at
    return b"".join([*parts, data[done:]])
