"""The formats of documents: a row for each, with who reads it and who writes notes into it.

A reader takes `(data, name)` and returns the segments of a file in one language, or the pairs of a bilingual one. A
writer takes `(data, notes)`, notes being `(byte, lines of text)` in ascending order, and returns the file with them;
nothing else in it changes. A reader raises ValueError with what is wrong with the file; its name comes before that.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hf_attncal.io.encoding import open_to_read
from hf_attncal.io.errors import CommandError, one_line

from .bilingual_files import note_po, note_xliff, read_csv, read_po, read_tsv, read_xliff
from .segments import Document, Notes, Segment, SegmentPair, check_segments
from .text_files import note_vtt, read_lines_of, read_markdown, read_subtitles

Reader = Callable[[bytes, str], Sequence[Segment] | Sequence[SegmentPair]]
Writer = Callable[[bytes, Notes], bytes]

_MOST_BYTES = 1 << 28


class Format(NamedTuple):
    """How files of one kind are read.

    Args:
        name: what messages call it.
        suffixes: ends of file names.
        read: function that reads it.
        bilingual: both languages are in one file.
        note: function that writes notes into it; None for none.
        extra: it needs the extra `documents`.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    bilingual: bool = False
    note: Writer | None = None
    extra: bool = False


# Translations in formats that are not read: they must not pass for lines of text.
NOT_READ = (".epub", ".usfm", ".sfm", ".tmx", ".vref", ".verses")
LINES = Format("lines", (), read_lines_of)
FORMATS = (
    Format("PO", (".po", ".pot"), read_po, True, note_po, extra=True),
    Format("XLIFF", (".xlf", ".xliff"), read_xliff, True, note_xliff),
    Format("CSV", (".csv",), read_csv, True),
    Format("TSV", (".tsv", ".tab"), read_tsv, True),
    Format("Markdown", (".md", ".markdown", ".mdx"), read_markdown, extra=True),
    Format("SubRip", (".srt",), read_subtitles),
    Format("WebVTT", (".vtt",), read_subtitles, note=note_vtt),
)  # fmt: skip


def format_of(name: object) -> Format | None:
    """Return the format of a file name; None for lines of plain text, and for anything but a name.

    Raises:
        CommandError: the format is not read.
    """
    if not isinstance(name, str | os.PathLike):
        return None
    text = os.fspath(name).lower()
    if text.endswith(NOT_READ):
        raise CommandError(
            f"{os.fspath(name)}: {text.rpartition('.')[2].upper()} files cannot be checked. Convert the file to "
            "XLIFF, TSV or Markdown."
        )
    return next((row for row in FORMATS if text.endswith(row.suffixes)), None)


def is_document(source: object, target: object) -> bool:
    """Return whether what is to be checked is a bilingual file, or two documents that are more than lines."""
    formats = format_of(source), format_of(target)
    return formats[0] is not None and (target is None or formats[1] is not None)


def read_document(name: str, row: Format) -> Document:
    """Read a file.

    Raises:
        CommandError: it cannot be read; the message has its name, what is wrong, and a remedy.
        ModuleNotFoundError: a package of the extra is missing.
    """
    if row.extra:
        from hf_attncal.io.extras import need

        need("documents")
    with open_to_read(name) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{name} has more than {_MOST_BYTES >> 20} MB. Split it, by chapters for example.")
    try:
        found = row.read(data, name)
        check_segments(len(found))
    except ValueError as error:
        message = one_line(error)
        raise CommandError(message if name in message else f"{name} {message}") from error
    if not found:
        raise CommandError(f"{name} has no text that could be checked. Is it {row.name}?")
    pairs = tuple(part for part in found if isinstance(part, SegmentPair))
    return Document(name, data, pairs, tuple(part for part in found if isinstance(part, Segment)))


def noted(document: Document, row: Format, notes: Notes) -> bytes:
    """Return the bytes of a document with notes in it; without notes, exactly its bytes."""
    return row.note(document.data, notes) if notes and row.note else document.data
