"""Table of the formats of documents, and their opening.

A reader takes `(data, name)` and returns a `Document`: the segments of a file in one language, or the pairs of a
bilingual one, and notices on text that it does not read. It raises ValueError with the problem; the caller puts the
file name before it. A writer takes `(data, notes)` and returns the file with the notes inserted and no other change.
"""

import os
import re
import warnings
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from hf_attncal.io.errors import CommandError, one_line
from hf_attncal.io.files import is_compressed, open_to_read

from ..tables import TABLES
from .bilingual_files import note_po, read_csv, read_po, read_tsv
from .segments import Document, Notes, check_segments, language_code
from .text_files import note_vtt, read_json, read_lines_of, read_markdown, read_subtitles
from .xliff_files import note_xliff, read_xliff

Reader = Callable[..., Document]
Writer = Callable[[bytes, Notes], bytes]

_MOST_BYTES = 1 << 28
_LINES, _NO_LINES = (re.compile("|".join(TABLES[name])) for name in ("line_suffixes", "other_suffixes"))


class Format(NamedTuple):
    """Format of documents.

    Args:
        name: Name in messages.
        suffixes: Suffixes of file names.
        read: Reader.
        bilingual: True if one file has both languages. Default: False.
        note: Writer of notes. Default: None, the format has no notes.
        extra: True if the reader needs the extra `documents`. Default: False.
        has_columns: True if the reader takes `columns`. Default: False.
        has_keys: True if segments are paired by their keys. Default: False.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    bilingual: bool = False
    note: Writer | None = None
    extra: bool = False
    has_columns: bool = False
    has_keys: bool = False


LINES = Format("lines", (), read_lines_of)
FORMATS = (
    Format("PO", (".po", ".pot"), read_po, True, note_po, extra=True),
    Format("XLIFF", (".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff"), read_xliff, True, note_xliff),
    Format("CSV", (".csv",), read_csv, True, has_columns=True),
    Format("TSV", (".tsv", ".tab"), read_tsv, True, has_columns=True),
    Format("JSON", (".json", ".arb"), read_json, has_keys=True),
    Format("Markdown", (".md", ".markdown", ".mdx"), read_markdown, extra=True),
    Format("SubRip", (".srt",), read_subtitles),
    Format("WebVTT", (".vtt",), read_subtitles, note=note_vtt),
)  # fmt: skip


def format_of(name: object) -> Format | None:
    """Return the format of a file name; None for lines of plain text, and for anything but a name.

    Raises:
        CommandError: The format has no reader; only known suffixes are read as lines of text.
    """
    if not isinstance(name, str | os.PathLike):
        return None
    path = PurePath(os.fspath(name))
    suffix = (PurePath(path.stem) if is_compressed(path) else path).suffix.lower()
    row = next((row for row in FORMATS if suffix in row.suffixes), None)
    code = suffix[1:]
    if row is None and (_NO_LINES.fullmatch(code) or not _LINES.fullmatch(code)):
        raise CommandError(
            f"{os.fspath(name)}: {code.upper()} files cannot be checked. Convert the file to XLIFF, TSV or Markdown; "
            "if it is text with a sentence per line, let its name end with .txt."
        )
    return row


def is_document(source: object, target: object) -> bool:
    """Return whether a file is a document, and not lines of text."""
    return any(list(map(format_of, (source, target))))  # a list, as both names are tested


def read_document(name: str, row: Format, columns: str | None = None) -> Document:
    """Read a file, and warn of text in it that is not checked.

    Args:
        name: Name of the file.
        row: Format.
        columns: Columns of source and translation in a table, separated by a comma. Default: None, by their names.

    Raises:
        CommandError: The file cannot be read; the message has its name, the problem and a remedy.
        ModuleNotFoundError: A package of the extra is missing.
    """
    if row.extra:
        from hf_attncal.io.extras import need

        need("documents")
    if columns is not None and not row.has_columns:
        raise CommandError(f"--columns is for CSV and TSV, and {name} is {row.name}. Leave it out.")
    with open_to_read(name) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{name} has more than {_MOST_BYTES >> 20} MB. Split it, by chapters for example.")
    try:
        document = row.read(data, name, *([columns] if row.has_columns else []))
        check_segments(len(document.pairs) + len(document.segments))
    except ValueError as error:
        message = one_line(error)
        raise CommandError(message if name in message else f"{name} {message}") from error
    if not document.pairs and not document.segments:
        reasons = f" ({'; '.join(document.notices)})" if document.notices else ""
        raise CommandError(f"{name} has no text to check{reasons}. Is it {row.name}?")
    languages = list(document.languages)
    languages[row.bilingual] = languages[row.bilingual] or _language_of_name(name)
    notices = tuple(f"{name}: {notice}" for notice in document.notices)
    for notice in notices:
        warnings.warn(f"{notice}.", stacklevel=2)
    return document._replace(notices=notices, languages=(languages[0], languages[1]))


def _language_of_name(name: str) -> str | None:
    """Return the language of a file by its name (`book.de.srt`, `app_de.arb`) or folder (`de/LC_MESSAGES/x.po`)."""
    path = PurePath(name)
    path = PurePath(path.stem) if is_compressed(path) else path
    stem = path.stem
    folders = PurePath(name).parts[-3:-1][::-1]
    ending = re.search(r"_([a-z]{2}(?:_[A-Z]{2})?)$", stem)
    names = (stem.rpartition(".")[2], ending and ending[1], *folders)
    return next(filter(None, map(language_code, names)), None)


def noted(document: Document, row: Format, notes: Notes) -> bytes:
    """Return the bytes of a document with notes; without notes, its bytes unchanged."""
    return row.note(document.data, notes) if notes and row.note else document.data
