"""Files in two languages: PO (polib), XLIFF 1.2 and 2 (defusedxml over expat), CSV and TSV.

A reader returns the pairs of a file; a writer puts notes into its bytes. Elements of XLIFF are read with their places.
"""

import csv
import io
import re
from typing import Any
from xml.sax.handler import ContentHandler
from xml.sax.saxutils import escape

from hf_attncal.io.encoding import decoded
from hf_attncal.io.errors import one_line

from .segments import MOST_SEGMENTS, Segment, SegmentPair, check_segments, inserted, plain

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_PO_LINE = re.compile(r'\s*(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"\s*|\s*(?:#.*)?')
_NO_TEXT = re.compile(r"translator[-_]credits$|external ref=")  # names of translators, sums of pictures
_ACCELERATOR = re.compile(r"[_&](?=[^\W_])")
_TAGS = re.compile(r"</?[A-Za-z][^<>]{0,500}>")
_XLIFF_TEXTS = ("source", "target")
_XLIFF_NOT_READ = ("alt-trans", "seg-source", "matches", "glossary")
# Elements within a text whose own text is code, in XLIFF 1.2 and 2.
_XLIFF_CODE = frozenset(("bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec", "cp"))
_LIKE_ASCII = re.compile(rb"""encoding\s*=\s*["'](?:utf-8|us-ascii|iso-8859-\d+|windows-125\d)["']""", re.IGNORECASE)
_SOURCE_COLUMNS = ("source", "src", "original", "source text")
_TARGET_COLUMNS = ("target", "tgt", "trg", "translation", "target text")
_KEY_COLUMNS = ("key", "id", "name", "context", "ref", "reference")


# ---- PO ----


def read_po(data: bytes, name: str) -> list[SegmentPair]:
    """Read the entries of a PO file that are in use: no obsolete and no fuzzy ones, of plurals the last.

    Raises:
        ValueError: its encoding is not what its head says, or polib cannot read it; the message has the line.
    """
    import polib

    if data.count(b"\nmsgid ") > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} entries. Split it.")
    text = _po_text(data, name)
    if not re.search(r"^msgid\s", text, re.MULTILINE):
        raise ValueError("has no line that begins with `msgid`: it is no PO file.")
    for number, line in enumerate(text.split("\n"), start=1):
        if not _PO_LINE.fullmatch(line):
            raise ValueError(f"is no PO file that can be read (line {number}): `msgfmt --check` says what is wrong.")
    try:
        # A name of a file is short, and has no line end.
        entries = polib.pofile(text + "\n")
    except (OSError, UnicodeError, IndexError, KeyError, AttributeError) as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"line {line[1]}" if line else one_line(error)
        raise ValueError(f"is no PO file that can be read ({where}): `msgfmt --check` says what is wrong.") from error
    begins = [0]
    for line in data.split(b"\n"):
        begins.append(begins[-1] + len(line) + 1)
    found = []
    for entry in entries:
        if entry.obsolete or entry.fuzzy or not entry.msgid or _NO_TEXT.match(entry.msgid):
            continue
        line = max(1, entry.linenum)
        at = begins[min(line, len(begins)) - 1]
        forms = [(entry.msgid, entry.msgstr)]
        if entry.msgid_plural:
            last = max(entry.msgstr_plural, default=0)
            forms = [(entry.msgid_plural, entry.msgstr_plural.get(last, ""))]
        for source, target in forms:
            sides = (_po_side(text, line, entry.msgctxt or "", at) for text in (source, target))
            pair = SegmentPair(*sides)
            if pair.source is not None:
                found.append(pair)
    return found


def note_po(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write notes as comments (`# attncal: ...`) before the entries."""
    end = b"\r\n" if b"\r\n" in data else b"\n"
    charset = _charset(data)
    pieces = []
    for at, lines in notes:
        pieces.append((at, b"".join(b"# " + line.encode(charset, "replace") + end for line in lines)))
    return inserted(data, pieces)


def _charset(data: bytes) -> str:
    head = _CHARSET.search(data[:8192])
    name = head[1].decode("ascii", "replace") if head else "utf-8"
    return "utf-8" if name == "CHARSET" else name  # as in a template


def _po_text(data: bytes, name: str) -> str:
    charset = _charset(data)
    if charset.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    try:
        return data.decode(charset)
    except (LookupError, UnicodeError) as error:
        raise ValueError(
            f"says that it is {charset}, and cannot be read so: convert it with `msgconv -t UTF-8`."
        ) from error


def _po_side(text: str, line: int, key: str, at: int) -> Segment | None:
    if not any(map(str.isalnum, text)):
        return None
    menu = len(_ACCELERATOR.findall(text)) == 1 and len(text) < 80
    text_read = _ACCELERATOR.sub("", text) if menu else text
    return Segment(plain(_TAGS.sub(" ", text_read)), "entry", line, plain(key), text, at)


# ---- XLIFF ----


class _XliffReader(ContentHandler):
    """Reader of the units of a file, with the places of their translations.

    Args:
        data: Bytes of the file.
    """

    def __init__(self, data: bytes):
        super().__init__()
        self.data = data
        self.parser: Any = None
        self.found: list[SegmentPair] = []
        self.names: list[str] = []  # open elements
        self.skipped = 0  # open elements within a part that is not read
        self.text: list[str] | None = None  # of the open <source> or <target>
        self.raw: list[str] = []
        self.code = 0
        self.key, self.unit_key, self.place, self.line = "", "", 0, 0
        self.sides: dict[str, tuple[str, str, int]] = {}
        self.targets = 0

    @property
    def at(self) -> int:
        return self.parser._parser.CurrentByteIndex

    def startElement(self, name, attrs):
        name = name.rpartition(":")[2]
        self.names.append(name)
        if self.skipped or name in _XLIFF_NOT_READ or attrs.get("translate") == "no":
            self.skipped += 1
        elif self.text is not None:
            kept = attrs.get("id") or attrs.get("i") or attrs.get("x") or ""
            self.raw.append(f"<{name} {kept}>" if kept else f"<{name}>")
            self.code += name in _XLIFF_CODE
            self.text.append(" " if name in _XLIFF_CODE else "")
        elif name in _XLIFF_TEXTS:
            self.text, self.raw, self.code = [], [], 0
            self.line = self.parser._parser.CurrentLineNumber
        else:
            self._begin(name, attrs)

    def endElement(self, name):
        name = name.rpartition(":")[2]
        self.names.pop()
        if self.skipped:
            self.skipped -= 1
        elif self.text is not None and name in _XLIFF_TEXTS and not self.code:
            text = "".join(self.text)
            self.text = None
            self._end_text(name, plain(_TAGS.sub(" ", text)), "".join(self.raw))
        elif self.text is not None:
            self.code -= name in _XLIFF_CODE
        else:
            self._end(name)

    def characters(self, content):
        if self.text is not None and not self.skipped:
            self.raw.append(content)
            if not self.code:
                self.text.append(content)

    def _begin(self, name, attrs) -> None:
        if name in ("trans-unit", "unit"):
            self.key = self.unit_key = attrs.get("resname") or attrs.get("id") or ""
            self.sides, self.place = {}, 0
        elif name == "segment":
            self.key = f"{self.unit_key}/{attrs['id']}" if "id" in attrs else self.unit_key
            self.sides = {}
        if name in ("segment", "ignorable", "originalData") and not self.place:
            self.place = self.at

    def _end_text(self, name, text: str, raw: str) -> None:
        if self.names[-1:] not in (["trans-unit"], ["segment"]):
            return
        self.targets += name == "target"
        self.sides[name] = text, raw, self.line
        if self.names[-1] == "trans-unit":
            self.place = self.data.index(b">", self.at) + 1

    def _end(self, name) -> None:
        if name == "notes" and self.names[-1:] == ["unit"]:
            self.place = self.at
        if name in ("trans-unit", "segment"):
            sides = []
            for side in _XLIFF_TEXTS:
                text, raw, line = self.sides.get(side, ("", "", 0))
                words = any(map(str.isalnum, text))
                sides.append(Segment(text, "entry", line, self.key, raw, self.place) if words else None)
            if sides[0] is not None:
                self.found.append(SegmentPair(*sides))
                check_segments(len(self.found))
            self.sides = {}


def read_xliff(data: bytes, name: str) -> list[SegmentPair]:
    """Read the units of an XLIFF file, 1.2 or 2.

    Raises:
        ValueError: it is no XML or defines entities, has no translation at all, or far too many units.
    """
    reader = _XliffReader(data)
    _parse_xliff(reader)
    if reader.found and not reader.targets:
        raise ValueError("has no <target>: it is not translated yet. Name the file of a translation.")
    return reader.found


def note_xliff(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write a <note> behind the <target> (XLIFF 1.2), or in the <notes> of the unit (2)."""
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
    """Return the line end and the white space that begin the line of a byte; "" if it is not XML on lines."""
    begin = data.rfind(b"\n", 0, at) + 1
    space = re.match(rb"[ \t]*", data[begin:at])[0].decode()
    end = "\r\n" if data[begin - 2 : begin] == b"\r\n" else "\n"
    return end + space if begin else ""


def _parse_xliff(reader: _XliffReader) -> None:
    from xml.sax import SAXParseException

    from defusedxml import DefusedXmlException
    from defusedxml.expatreader import DefusedExpatParser

    # A DTD may be named, and expat does not fetch it; what it declares here is refused.
    parser = DefusedExpatParser(forbid_dtd=False, forbid_entities=True, forbid_external=False)
    parser.setContentHandler(reader)
    reader.parser = parser
    try:
        parser.parse(io.BytesIO(reader.data))
    except DefusedXmlException as error:
        raise ValueError("defines entities, which may read other files or fill the memory: it is not read.") from error
    except SAXParseException as error:
        raise ValueError(f"line {error.getLineNumber()} is no XML: {error.getMessage()}.") from error
    if b"xliff" not in reader.data[:100_000]:
        raise ValueError("has no <xliff>: is it another kind of XML?")


# ---- CSV and TSV ----


def read_csv(data: bytes, name: str) -> list[SegmentPair]:
    """Read a table with commas or semicolons; see `_read_table`."""
    text = decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    head = text[: text.find("\n") + 1 or len(text)]
    return _read_table(text, ";" if head.count(";") > head.count(",") else ",", '"')


def read_tsv(data: bytes, name: str) -> list[SegmentPair]:
    """Read a table with tabs; see `_read_table`."""
    return _read_table(decoded(data.removeprefix(b"\xef\xbb\xbf"), name), "\t", None)


def _read_table(text: str, separator: str, quote: str | None) -> list[SegmentPair]:
    """Read pairs: of the columns that the first row calls source and target, or else of the first two.

    Raises:
        ValueError: a row has too few columns, or a field cannot be read.
    """
    quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    rows = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, quoting=quoting, strict=True
    )
    source, target, key = 0, 1, None
    found: list[SegmentPair] = []
    line, first = 1, True
    try:
        for row in rows:
            begin, line = line, rows.line_num + 1
            if not any(map(str.strip, row)):
                continue
            if first:
                first = False
                names = [cell.strip().lower() for cell in row]
                columns = [next((names.index(name) for name in known if name in names), None) for known in
                           (_SOURCE_COLUMNS, _TARGET_COLUMNS, _KEY_COLUMNS)]  # fmt: skip
                if columns[0] is not None and columns[1] is not None:
                    source, target, key = columns
                    continue
            if len(row) <= max(source, target):
                raise ValueError(f"line {begin} has {len(row)} columns, and the translation is column {target + 1}.")
            of_key = row[key].strip() if key is not None and key < len(row) else ""
            sides = (
                Segment(plain(row[n]), "row", begin, of_key) if row[n].strip() else None for n in (source, target)
            )
            found.append(SegmentPair(*sides))
            check_segments(len(found), "rows")
    except csv.Error as error:
        raise ValueError(f"line {line} cannot be read: {error}.") from error
    return [pair for pair in found if any(pair)]
