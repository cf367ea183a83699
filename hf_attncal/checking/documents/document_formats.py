"""Formats of documents: readers of files in two languages, and the table of all formats.

A reader takes `(data, name)` and returns the segments of a file in one language, or the pairs of a bilingual one. It
raises ValueError with the problem; the caller puts the file name before it. A writer takes `(data, notes)` and returns
the file with the notes inserted and no other change.
"""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

from hf_attncal.io.encoding import open_to_read
from hf_attncal.io.errors import CommandError, one_line

from .segments import (
    MOST_SEGMENTS,
    Document,
    Notes,
    Segment,
    SegmentPair,
    check_segments,
    has_words,
    inserted,
    line_end,
    plain,
    text_of,
)
from .text_files import note_vtt, read_lines_of, read_markdown, read_subtitles

_BROKEN_PO = "is not a valid PO file ({}): `msgfmt --check` shows the errors."
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_PO_LINE = re.compile(r'\s*(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"\s*|\s*(?:#.*)?')
_NO_TEXT = re.compile(r"translator[-_]credits$|external ref=")  # names of translators, checksums of pictures
_ACCELERATOR = re.compile(r"[_&](?=[^\W_])")
_TAGS = re.compile(r"</?[A-Za-z][^<>]{0,500}>")
_XLIFF_TEXTS = ("source", "target")
_XLIFF_NOT_READ = ("alt-trans", "seg-source", "matches", "glossary")
# Inline elements with code as text, in XLIFF 1.2 and 2.
_XLIFF_CODE = frozenset(("bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec", "cp"))
_LIKE_ASCII = re.compile(rb"""encoding\s*=\s*["'](?:utf-8|us-ascii|iso-8859-\d+|windows-125\d)["']""", re.IGNORECASE)
_COLUMNS = (  # names of the columns of the source, the translation and the key
    ("source", "src", "original", "source text"),
    ("target", "tgt", "trg", "translation", "target text"),
    ("key", "id", "name", "context", "ref", "reference"),
)


# ---- PO ----


def read_po(data: bytes, name: str) -> list[SegmentPair]:
    """Read the entries of a PO file except obsolete and fuzzy ones; of plurals, the last form.

    Raises:
        ValueError: The encoding is not the one of the header, or polib cannot read it; the message has the line.
    """
    import polib

    if data.count(b"\nmsgid ") > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} entries. Split it.")
    text = _po_text(data, name)
    if not re.search(r"^msgid\s", text, re.MULTILINE):
        raise ValueError("has no line that begins with `msgid`: it is not a PO file.")
    for number, line in enumerate(text.split("\n"), start=1):
        if not _PO_LINE.fullmatch(line):
            raise ValueError(_BROKEN_PO.format(f"line {number}"))
    try:
        # polib takes a text without a line end for a file name.
        entries = polib.pofile(text + "\n")
    except (OSError, UnicodeError, IndexError, KeyError, AttributeError) as error:
        named = re.search(r"line \d+", str(error))
        raise ValueError(_BROKEN_PO.format(named[0] if named else one_line(error))) from error
    begins = list(accumulate((len(line) + 1 for line in data.split(b"\n")), initial=0))
    pairs = []
    for entry in entries:
        if entry.obsolete or entry.fuzzy or not entry.msgid or _NO_TEXT.match(entry.msgid):
            continue
        texts = entry.msgid, entry.msgstr
        if entry.msgid_plural:
            last = max(entry.msgstr_plural, default=0)
            texts = entry.msgid_plural, entry.msgstr_plural.get(last, "")
        line = max(1, entry.linenum)
        at = begins[min(line, len(begins)) - 1]
        source, target = (_po_side(text, line, entry.msgctxt or "", at) for text in texts)
        if source is not None:
            pairs.append(SegmentPair(source, target))
    return pairs


def note_po(data: bytes, notes: Notes) -> bytes:
    """Write notes as comments (`# attncal: ...`) before the entries."""
    end, charset = line_end(data), _charset(data)
    return inserted(
        data, [(at, b"".join(b"# " + line.encode(charset, "replace") + end for line in lines)) for at, lines in notes]
    )


def _charset(data: bytes) -> str:
    head = _CHARSET.search(data[:8192])
    name = head[1].decode("ascii", "replace") if head else "utf-8"
    return "utf-8" if name == "CHARSET" else name  # the placeholder of a template


def _po_text(data: bytes, name: str) -> str:
    charset = _charset(data)
    if charset.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return text_of(data, name)
    try:
        return data.decode(charset)
    except (LookupError, UnicodeError) as error:
        raise ValueError(
            f"has the charset {charset} in its header, but is not valid {charset}: convert it with `msgconv -t UTF-8`."
        ) from error


def _po_side(text: str, line: int, key: str, at: int) -> Segment | None:
    if not has_words(text):
        return None
    menu = len(_ACCELERATOR.findall(text)) == 1 and len(text) < 80
    text_read = _ACCELERATOR.sub("", text) if menu else text
    return Segment(plain(_TAGS.sub(" ", text_read)), "entry", line, plain(key), text, at)


# ---- XLIFF ----


@dataclass(slots=True)
class _Element:
    """An XML element with its position.

    Args:
        name: Without its namespace.
        attributes: Attributes by name.
        line: Line on which it begins, from 1.
        begin: First byte of its tag.
        end: First byte of its end tag.
        content: Text and elements inside, in order.
    """

    name: str
    attributes: dict[str, str]
    line: int
    begin: int
    end: int = 0
    content: list["str | _Element"] = field(default_factory=list)

    def __iter__(self) -> Iterator["_Element"]:
        return (part for part in self.content if isinstance(part, _Element))


class _XliffReader:
    """Reader of the units of an XLIFF file; only one unit is in memory at a time.

    Args:
        data: Bytes of the file.
    """

    def __init__(self, data: bytes):
        self.data = data
        self.pairs: list[SegmentPair] = []
        self.targets = 0
        self._open: list[_Element] = []
        self._skipped = 0  # open elements within a part that is not read
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._refuse

    def read(self) -> None:
        try:
            self._parser.Parse(self.data, True)
        except expat.ExpatError as error:
            raise ValueError(f"line {error.lineno} is not valid XML: {expat.ErrorString(error.code)}.") from error

    def _refuse(self, *_: object) -> None:
        raise ValueError("defines entities, which may read other files or fill the memory. Remove them.")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if self._skipped or name in _XLIFF_NOT_READ or attributes.get("translate") == "no":
            self._skipped += 1
        else:
            place = self._parser.CurrentLineNumber, self._parser.CurrentByteIndex
            self._open.append(_Element(name, attributes, *place))

    def _text(self, text: str) -> None:
        if self._open and not self._skipped:
            self._open[-1].content.append(text)

    def _end(self, _: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        element = self._open.pop()
        element.end = self._parser.CurrentByteIndex
        if element.name == "trans-unit":
            self._add(element, _key_of(element), 0)
        elif element.name == "unit":
            self._add_segments(element)
        elif self._open:
            self._open[-1].content.append(element)

    def _add_segments(self, unit: _Element) -> None:
        """Add the segments of an XLIFF 2 unit; its notes are before them."""
        place, key = 0, _key_of(unit)
        for part in unit:
            if part.name == "notes":
                place = part.end
            elif part.name in ("segment", "ignorable", "originalData"):
                place = place or part.begin
            if part.name == "segment":
                self._add(part, f"{key}/{part.attributes['id']}" if "id" in part.attributes else key, place)

    def _add(self, unit: _Element, key: str, place: int) -> None:
        """Add the pair of a <trans-unit>, with notes after its texts, or of a <segment>."""
        texts = {part.name: part for part in unit if part.name in _XLIFF_TEXTS}
        self.targets += "target" in texts
        if unit.name == "trans-unit" and texts:
            place = self.data.index(b">", max(part.end for part in texts.values())) + 1
        source, target = (_xliff_side(texts.get(name), key, place) for name in _XLIFF_TEXTS)
        if source is not None:
            self.pairs.append(SegmentPair(source, target))
            check_segments(len(self.pairs))


def _key_of(unit: _Element) -> str:
    return unit.attributes.get("resname") or unit.attributes.get("id") or ""


def _xliff_side(element: _Element | None, key: str, place: int) -> Segment | None:
    """Return the segment of a <source> or <target>; None if there is none or it has no words."""
    if element is None:
        return None
    texts: list[str] = []
    raw: list[str] = []

    def read(parts: Iterable[str | _Element], is_code: bool) -> None:
        for part in parts:
            if isinstance(part, str):
                raw.append(part)
                texts.append("" if is_code else part)
            else:
                name = next(filter(None, map(part.attributes.get, ("id", "i", "x"))), "")
                raw.append(f"<{part.name} {name}>" if name else f"<{part.name}>")
                texts.append(" " if part.name in _XLIFF_CODE else "")
                read(part.content, is_code or part.name in _XLIFF_CODE)

    read(element.content, False)
    text = plain(_TAGS.sub(" ", "".join(texts)))
    return Segment(text, "entry", element.line, key, "".join(raw), place) if has_words(text) else None


def read_xliff(data: bytes, name: str) -> list[SegmentPair]:
    """Read the units of an XLIFF file, 1.2 or 2.

    Raises:
        ValueError: The file is not XML, defines entities, has no translation, or has too many units.
    """
    reader = _XliffReader(data)
    reader.read()
    if b"xliff" not in data[:100_000]:
        raise ValueError("has no <xliff>: is it another kind of XML?")
    if reader.pairs and not reader.targets:
        raise ValueError("has no <target>: it is not translated yet. Name the file of a translation.")
    return reader.pairs


def note_xliff(data: bytes, notes: Notes) -> bytes:
    """Write each note as a <note> after the <target> (XLIFF 1.2), or in the <notes> of the unit (2)."""
    head = data[:200]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or (b"encoding" in head and not _LIKE_ASCII.search(head)):
        raise ValueError("takes notes only in UTF-8: convert it first, or ask for --format json.")
    second = re.search(rb"<(?:\w+:)?unit\b", data) is not None
    mark = 'category="attncal"' if second else 'from="attncal" annotates="target"'
    pieces = []
    for at, lines in notes:
        texts = [f"<note {mark}>{escape(line)}</note>" for line in lines]
        if not second:
            piece = "".join(f"{_xml_indent(data, at)}{text}" for text in texts)
        elif data.startswith(b"</", at):
            piece = "".join(texts)
        else:
            piece = f"<notes>{''.join(texts)}</notes>{_xml_indent(data, at)}"
        pieces.append((at, piece.encode("ascii", "xmlcharrefreplace")))
    return inserted(data, pieces)


def _xml_indent(data: bytes, at: int) -> str:
    """Return the line end and indentation of the line of a byte; "" on the first line."""
    begin = data.rfind(b"\n", 0, at) + 1
    line = data[begin:at]
    space = line[: len(line) - len(line.lstrip(b" \t"))].decode()
    end = "\r\n" if data[begin - 2 : begin] == b"\r\n" else "\n"
    return end + space if begin else ""


# ---- CSV and TSV ----


def read_csv(data: bytes, name: str) -> list[SegmentPair]:
    """Read a table with commas or semicolons; see `_read_table`."""
    text = text_of(data, name)
    head = text[: text.find("\n") + 1 or len(text)]
    separator = ";" if head.count(";") > head.count(",") else ","
    return _read_table(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))


def read_tsv(data: bytes, name: str) -> list[SegmentPair]:
    """Read a table with tabs; see `_read_table`."""
    text = io.StringIO(text_of(data, name), newline="")
    return _read_table(csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True))


def _read_table(rows) -> list[SegmentPair]:
    """Read pairs from the columns named source and target in the first row, or else from the first two.

    Args:
        rows: Reader of the module `csv`.

    Raises:
        ValueError: A row has too few columns, or a field cannot be read.
    """
    source, target, key = 0, 1, None
    pairs: list[SegmentPair] = []
    line, first = 1, True
    try:
        for row in rows:
            begin, line = line, rows.line_num + 1
            if not any(map(str.strip, row)):
                continue
            if first:
                first = False
                names = [cell.strip().lower() for cell in row]
                columns = [
                    next((names.index(name) for name in aliases if name in names), None) for aliases in _COLUMNS
                ]
                if columns[0] is not None and columns[1] is not None:
                    source, target, key = columns[0], columns[1], columns[2]
                    continue
            if len(row) <= max(source, target):
                raise ValueError(f"line {begin} has {len(row)} columns, and the translation is column {target + 1}.")
            of_key = row[key].strip() if key is not None and key < len(row) else ""
            cells = (plain(row[source]), plain(row[target]))
            if any(cells):
                sides = (Segment(text, "row", begin, of_key) if text else None for text in cells)
                pairs.append(SegmentPair(*sides))
                check_segments(len(pairs), "rows")
    except csv.Error as error:
        raise ValueError(f"line {line} cannot be read: {error}.") from error
    return pairs


# ---- the table ----

Reader = Callable[[bytes, str], Sequence[Segment] | Sequence[SegmentPair]]
Writer = Callable[[bytes, Notes], bytes]

_MOST_BYTES = 1 << 28


class Format(NamedTuple):
    """Format of documents.

    Args:
        name: Name in messages.
        suffixes: Suffixes of file names.
        read: Reader.
        bilingual: True if one file has both languages. Default: False.
        note: Writer of notes. Default: None, the format has no notes.
        extra: True if the reader needs the extra `documents`. Default: False.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    bilingual: bool = False
    note: Writer | None = None
    extra: bool = False


# Formats of translations without a reader; they must not be read as lines of text.
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
        CommandError: The format has no reader.
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
    """Return whether the input is a bilingual file or two documents, and not lines of text."""
    formats = format_of(source), format_of(target)
    return formats[0] is not None and (target is None or formats[1] is not None)


def read_document(name: str, row: Format) -> Document:
    """Read a file.

    Raises:
        CommandError: The file cannot be read; the message has its name, the problem and a remedy.
        ModuleNotFoundError: A package of the extra is missing.
    """
    if row.extra:
        from hf_attncal.io.extras import need

        need("documents")
    with open_to_read(name) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{name} has more than {_MOST_BYTES >> 20} MB. Split it, by chapters for example.")
    try:
        parts = row.read(data, name)
        check_segments(len(parts))
    except ValueError as error:
        message = one_line(error)
        raise CommandError(message if name in message else f"{name} {message}") from error
    if not parts:
        raise CommandError(f"{name} has no text to check. Is it {row.name}?")
    pairs = tuple(part for part in parts if isinstance(part, SegmentPair))
    return Document(name, data, pairs, tuple(part for part in parts if isinstance(part, Segment)))


def noted(document: Document, row: Format, notes: Notes) -> bytes:
    """Return the bytes of a document with notes; without notes, its bytes unchanged."""
    return row.note(document.data, notes) if notes and row.note else document.data
