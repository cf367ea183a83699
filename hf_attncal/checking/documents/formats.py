"""The formats of documents: a row for each, with who reads it and who writes notes into it.

A reader takes `(data, name)` and returns the segments of a file in one language, or the pairs of a bilingual one. A
writer takes `(data, notes)`, notes being `(byte, lines of text)` in ascending order, and returns the file with them;
nothing else in it changes. A reader raises ValueError with what is wrong with the file; its name comes before that.
"""

import os
from pkgutil import resolve_name
from typing import NamedTuple

from hf_attncal.compressed import open_to_read
from hf_attncal.errors import CommandError, one_line

from .segments import Document, check_segments

_HERE = "hf_attncal.checking.documents"
_MOST_BYTES = 1 << 28


class Format(NamedTuple):
    """How files of one kind are read.

    Args:
        name: what messages call it.
        suffixes: ends of file names.
        read: function that reads it.
        bilingual: both languages are in one file.
        note: function that writes notes into it; "" for none.
        keyed: segments with the same key belong together, so nothing has to be paired.
        extra: it needs the extra `documents`.
    """

    name: str
    suffixes: tuple[str, ...]
    read: str
    bilingual: bool = False
    note: str = ""
    keyed: bool = False
    extra: bool = False


LINES = Format("lines", (), f"{_HERE}.plain:read_lines_of")
VERSES = Format("text with keys", (".vref", ".verses"), f"{_HERE}.plain:read_keyed", keyed=True)
FORMATS = (
    Format("PO", (".po", ".pot"), f"{_HERE}.po:read_po", True, f"{_HERE}.po:note_po", extra=True),
    Format("XLIFF", (".xlf", ".xliff"), f"{_HERE}.xml_files:read_xliff", True, f"{_HERE}.xml_files:note_xliff",
           extra=True),
    Format("TMX", (".tmx",), f"{_HERE}.xml_files:read_tmx", True, f"{_HERE}.xml_files:note_tmx", extra=True),
    Format("CSV", (".csv",), f"{_HERE}.plain:read_csv", True),
    Format("TSV", (".tsv", ".tab"), f"{_HERE}.plain:read_tsv", True),
    Format("Markdown", (".md", ".markdown", ".mdx"), f"{_HERE}.markdown:read_markdown", extra=True),
    Format("SubRip", (".srt",), f"{_HERE}.subtitles:read_subtitles"),
    Format("WebVTT", (".vtt",), f"{_HERE}.subtitles:read_subtitles", note=f"{_HERE}.subtitles:note_vtt"),
    Format("USFM", (".usfm", ".sfm"), f"{_HERE}.usfm:read_usfm", note=f"{_HERE}.usfm:note_usfm", keyed=True),
    Format("EPUB", (".epub",), f"{_HERE}.epub:read_epub", extra=True),
    VERSES,
)  # fmt: skip


def format_of(name: object) -> Format | None:
    """Return the format that the name of a file says, or None for lines of plain text, or what is no name."""
    if not isinstance(name, str | os.PathLike):
        return None
    text = os.fspath(name).lower()
    return next((row for row in FORMATS if text.endswith(row.suffixes)), None)


def is_document(source: object, target: object) -> bool:
    """Return whether what is to be checked is a bilingual file, or two documents that are more than lines."""
    return format_of(source) is not None and (target is None or format_of(target) is not None)


def read_document(name: str, row: Format) -> Document:
    """Read a file.

    Raises:
        CommandError: it cannot be read; the message has its name, what is wrong, and a remedy.
        ModuleNotFoundError: a package of the extra is missing.
    """
    if row.extra:
        from hf_attncal.extras import need

        need("documents")
    with open_to_read(name) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{name} has more than {_MOST_BYTES >> 20} MB. Split it, by chapters for example.")
    try:
        found = resolve_name(row.read)(data, name)
    except ValueError as error:
        message = one_line(error)
        raise CommandError(message if name in message else f"{name} {message}") from error
    check_found(name, row, found)
    is_pair = row.bilingual
    return Document(name, data, tuple(found) if is_pair else (), () if is_pair else tuple(found))


def check_found(name: str, row: Format, found: list) -> None:
    """Raise CommandError for a file with no segments, or far too many."""
    if not found:
        raise CommandError(f"{name} has no text that could be checked. Is it {row.name}?")
    try:
        check_segments(len(found))
    except ValueError as error:
        raise CommandError(f"{name} {error}") from error


def noted(document: Document, row: Format, notes: list[tuple[int, list[str]]]) -> bytes:
    """Return the bytes of a document with notes in it; without notes, exactly its bytes."""
    return resolve_name(row.note)(document.data, notes) if notes else document.data


def inserted(data: bytes, pieces: list[tuple[int, bytes]]) -> bytes:
    """Return data with pieces put in before these bytes, in ascending order."""
    parts, done = [], 0
    for at, piece in pieces:
        parts += [data[done:at], piece]
        done = at
    return b"".join([*parts, data[done:]])
