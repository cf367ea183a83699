"""Segments of a document, with their text and position; and the text of files, with its lines and without markup."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hf_attncal.io.files import decoded

CODE = "code block"  # kind of a segment that is not translated
MOST_SEGMENTS = 200_000
Notes = list[tuple[int, list[str]]]  # lines of text to insert before a byte, in ascending order
FileLanguages = tuple[str | None, str | None]
_MOST_LISTED = 10  # lines in a notice
_TAGS = re.compile(r"</?[A-Za-z](?![^<>\s]*(?:://|@))[^<>]{0,500}>")
_CODE = re.compile(r"([A-Za-z]{2})((?:[-_][A-Za-z0-9]{2,4}){0,2})")


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
        kept_parts: Parts that a translation keeps as they are: code, addresses, formulas. Default: ().
    """

    text: str
    kind: str
    line: int
    key: str = ""
    raw: str = ""
    at: int = 0
    time: tuple[float, float] | None = None
    kept_parts: tuple[str, ...] = ()


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
        notices: Messages on text that is not checked, and on choices of the reader. Default: ().
        languages: Codes of source and target language by the file or its name, None if unknown; for a file in one
            language, that language is the first. Default: unknown.
    """

    name: str
    data: bytes
    pairs: tuple[SegmentPair, ...] = ()
    segments: tuple[Segment, ...] = ()
    notices: tuple[str, ...] = ()
    languages: FileLanguages = (None, None)


def language_code(name: str | None) -> str | None:
    """Return a language code such as `de`, `pt-BR` or `zh-Hans` in its standard form; None for another name."""
    import langcodes

    code = _CODE.fullmatch((name or "").partition(".")[0].partition("@")[0])
    tag = code and (code[1].lower() + code[2]).replace("_", "-")
    return langcodes.standardize_tag(tag) if tag and langcodes.tag_is_valid(tag) else None


def notices_on(problem: str, lines: Sequence[int], total: int, noun: str) -> tuple[str, ...]:
    """Return the notice `not translated yet: 14 of 120 entries, line 3, 9, ...`; none if there are no lines."""
    more = ", ..." if len(lines) > _MOST_LISTED else ""
    shown = ", ".join(map(str, lines[:_MOST_LISTED]))
    return (f"{problem}: {len(lines):,} of {total:,} {noun}, line {shown}{more}",) if lines else ()


def changed_parts(source: Iterable[Segment], target: Iterable[Segment]) -> str | None:
    """Return a reason with the kept parts (code, addresses, formulas) that differ; None if all match.

    A part without its markup on the other side, or mentioned once more, is no difference.
    """
    sides = tuple(source), tuple(target)
    messages = []
    for side, other, wrong in ((*sides, "is missing"), (*sides[::-1], "is not in the source")):
        parts = dict.fromkeys(part for one in side for part in one.kept_parts)
        parts_of_other = {part for one in other for part in one.kept_parts}
        text = " ".join(one.text for one in other)
        differ = [f"“{part}”" for part in parts if part not in parts_of_other and part not in text]
        if differ:
            messages.append(f"{', '.join(differ[:3])} {wrong}")
    return ", and ".join(messages) or None


def check_segments(segments: int, what: str = "segments") -> None:
    """Raise ValueError if there are too many segments to pair in reasonable time."""
    if segments > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} {what}. Split it, by chapters for example.")


# ---- text of files ----


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
    """Return each line of a text without its end, and its first byte; `data` may have a byte order mark.

    Lines end as in `io.files.split_lines`, or with a carriage return if there is no other end.
    """
    at = len(data) - len(text.encode())
    lines = []
    for line in re.findall(r"[^\n]*\n|[^\n]+" if "\n" in text else r"[^\r]*\r|[^\r]+", text):
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
