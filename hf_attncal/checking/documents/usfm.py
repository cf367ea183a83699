"""USFM: the verses of a book of the Bible, by `MAT 1:3`. Headings and notes are left out."""

import re

from hf_attncal.decoding import decoded

from .segments import Segment, check_segments, lines_with_places, plain

_MARKER = re.compile(r"\\(\+?[a-z]+\d*)(\*?)(?:[ \t]|(?=[\\\r\n])|$)?")
_NOTES = re.compile(r"\\(f|fe|ef|x|ex|fig|rq|va|vp|rem)\b.*?\\\1\*")
_WORD = re.compile(r"\\(\+?(?:w[agh]?|rb|jmp))\s+([^\\|]*)\|[^\\]*\\\1\*")
# Markers of paragraphs with text of the verse before them; other paragraphs have headings and introductions.
_TEXT = re.compile(r"p[ormci]?\d*|m[ir]?|mi|nb|q[rcm]?\d*|pi\d*|li\d*|ph\d*|pm[ocr]?|tc\d*|tr|b|lit|cls|qa")


def read_usfm(data: bytes, name: str) -> list[Segment]:
    """Read the verses of a file.

    Raises:
        ValueError: it is not UTF-8, or a verse comes before any `\\id` or `\\c`.
    """
    text = decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    book = chapter = verse = ""
    begin, line_of, parts = 0, 0, []
    found: list[Segment] = []

    def close() -> None:
        content = plain(" ".join(parts))
        if verse and any(map(str.isalnum, content)):
            found.append(Segment(content, "verse", line_of, f"{book} {chapter}:{verse}", at=begin))
            check_segments(len(found))

    for number, (line, at) in enumerate(lines_with_places(data, text), start=1):
        line = _WORD.sub(r"\2", _NOTES.sub(" ", line)) if "\\" in line else line
        pieces = re.split(r"(?=\\(?:id|c|v|[a-z]+\d*)\b)", line)
        for piece in pieces:
            marker = _MARKER.match(piece)
            name_of = marker[1] if marker else ""
            rest = piece[marker.end() :] if marker else piece
            if name_of == "id":
                close()
                book, chapter, verse, parts = (rest.split() or ["?"])[0], "", "", []
            elif name_of == "c":
                close()
                chapter, verse, parts = (rest.split() or [""])[0], "", []
            elif name_of == "v":
                close()
                if not (book and chapter):
                    raise ValueError(rf"line {number} has a verse before any \id and \c: is it USFM?")
                verse, _, rest = rest.strip().partition(" ")
                begin, line_of, parts = at, number, [rest]
            elif marker is None or marker[2] or name_of.startswith("+") or _is_character(name_of):
                parts.append(rest)
            elif _TEXT.fullmatch(name_of):
                parts.append(" " + rest)
            # Anything else begins a heading, an introduction or a remark.
    close()
    return found


def note_usfm(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write notes as remarks (`\\rem`) on lines of their own before the lines of the verses."""
    from .formats import inserted

    end = b"\r\n" if b"\r\n" in data else b"\n"
    lines = [(at, b"".join(rb"\rem " + line.replace("\\", "/").encode() + end for line in of)) for at, of in notes]
    return inserted(data, lines)


def _is_character(marker: str) -> bool:
    return marker in _CHARACTERS


_CHARACTERS = frozenset(
    [
        "add",
        "addpn",
        "bk",
        "dc",
        "k",
        "lik",
        "liv",
        "nd",
        "ord",
        "pn",
        "png",
        "qs",
        "qac",
        "qt",
        "sig",
        "sls",
        "tl",
        "wj",
        "em",
        "bd",
        "it",
        "bdit",
        "no",
        "sc",
        "sup",
        "w",
        "wa",
        "wg",
        "wh",
        "rb",
    ]
)
