"""XLIFF 1.2 and 2, and TMX: read with the places of elements (defusedxml over expat), so that a note can be put in."""

import io
import re
from typing import Any
from xml.sax.handler import ContentHandler
from xml.sax.saxutils import escape

from .segments import Segment, SegmentPair, check_segments, plain

# Elements within a text whose own text is code: of XLIFF 1.2, of XLIFF 2, of TMX.
_CODE = frozenset(("bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp"))
_TAGS = re.compile(r"</?[A-Za-z][^<>]{0,500}>")
_LIKE_ASCII = re.compile(rb"""encoding\s*=\s*["'](?:utf-8|us-ascii|iso-8859-\d+|windows-125\d)["']""", re.IGNORECASE)


class _Reader(ContentHandler):
    """Collects the texts of elements, with where they begin and end.

    Args:
        data: of the file.
    """

    unit = ()  # names of the elements that hold a text in two languages
    texts = ()  # names of those that hold a text

    def __init__(self, data: bytes):
        super().__init__()
        self.data = data
        self.parser: Any = None
        self.found: list[SegmentPair] = []
        self.names: list[str] = []
        self.skipped = 0  # elements that are open in a part that is not read
        self.text: list[str] | None = None
        self.raw: list[str] = []
        self.code = 0

    @property
    def at(self) -> int:
        return self.parser._parser.CurrentByteIndex

    @property
    def line(self) -> int:
        return self.parser._parser.CurrentLineNumber

    def after(self) -> int:
        """Return the byte after the tag that is being read."""
        return self.data.index(b">", self.at) + 1

    def startElement(self, name, attrs):
        name = name.rpartition(":")[2]
        self.names.append(name)
        if self.skipped or self.skips(name, attrs):
            self.skipped += 1
        elif self.text is not None:
            kept = attrs.get("id") or attrs.get("i") or attrs.get("x") or ""
            self.raw.append(f"<{name} {kept}>" if kept else f"<{name}>")
            self.code += name in _CODE
            self.text.append(" " if name in _CODE else "")
        elif name in self.texts:
            self.text, self.raw, self.code = [], [], 0
            self.begin_text(name, attrs)
        else:
            self.begin(name, attrs)

    def endElement(self, name):
        name = name.rpartition(":")[2]
        self.names.pop()
        if self.skipped:
            self.skipped -= 1
        elif self.text is not None and name in self.texts and not self.code:
            text = "".join(self.text)
            self.text = None
            self.end_text(name, plain(_TAGS.sub(" ", text)), "".join(self.raw))
        elif self.text is not None:
            self.code -= name in _CODE
        else:
            self.end(name)

    def characters(self, content):
        if self.text is not None and not self.skipped:
            self.raw.append(content)
            if not self.code:
                self.text.append(content)

    def skips(self, name, attrs) -> bool:
        return False

    def begin(self, name, attrs) -> None:
        pass

    def end(self, name) -> None:
        pass

    def begin_text(self, name, attrs) -> None:
        pass

    def end_text(self, name, text: str, raw: str) -> None:
        pass

    def add(self, source: Segment | None, target: Segment | None) -> None:
        if source is not None:
            self.found.append(SegmentPair(source, target))
            check_segments(len(self.found))


class _Xliff(_Reader):
    texts = ("source", "target")

    def __init__(self, data: bytes):
        super().__init__(data)
        self.key, self.unit_key, self.place, self.line_of = "", "", 0, 0
        self.sides: dict[str, tuple[str, str, int]] = {}
        self.targets = 0

    def skips(self, name, attrs):
        return name in ("alt-trans", "seg-source", "matches", "glossary") or attrs.get("translate") == "no"

    def begin(self, name, attrs):
        if name in ("trans-unit", "unit"):
            self.key = self.unit_key = attrs.get("resname") or attrs.get("id") or ""
            self.sides, self.place = {}, 0
        elif name == "segment":
            self.key = f"{self.unit_key}/{attrs['id']}" if "id" in attrs else self.unit_key
            self.sides = {}
        if name in ("segment", "ignorable", "originalData") and not self.place:
            self.place = self.at

    def begin_text(self, name, attrs):
        self.line_of = self.line

    def end_text(self, name, text, raw):
        if self.names[-1:] not in (["trans-unit"], ["segment"]):
            return
        self.targets += name == "target"
        self.sides[name] = text, raw, self.line_of
        if self.names[-1] == "trans-unit":
            self.place = self.after()

    def end(self, name):
        if name == "notes" and self.names[-1:] == ["unit"]:
            self.place = self.at
        if name in ("trans-unit", "segment"):
            sides = []
            for side in self.texts:
                text, raw, line = self.sides.get(side, ("", "", 0))
                words = any(map(str.isalnum, text))
                sides.append(Segment(text, "entry", line, self.key, raw, self.place) if words else None)
            self.add(*sides)
            self.sides = {}


class _Tmx(_Reader):
    texts = ("seg",)

    def __init__(self, data: bytes):
        super().__init__(data)
        self.source_language, self.language, self.key, self.place = "", "", "", 0
        self.sides: dict[str, Segment] = {}
        self.languages: dict[str, None] = {}

    def begin(self, name, attrs):
        if name == "header":
            self.source_language = attrs.get("srclang", "").lower()
        elif name == "tu":
            self.sides, self.key, self.place = {}, attrs.get("tuid", ""), 0
        elif name == "tuv":
            self.place = self.place or self.at
            self.language = (attrs.get("xml:lang") or attrs.get("lang") or "").lower()

    def begin_text(self, name, attrs):
        self.line_of = self.line

    def end_text(self, name, text, raw):
        if not any(map(str.isalnum, text)):
            return
        self.languages[self.language] = None
        self.sides[self.language] = Segment(text, "entry", self.line_of, self.key, raw, self.place)

    def end(self, name):
        if name != "tu":
            return
        if len(self.languages) > 2:
            raise ValueError(f"has texts in {', '.join(self.languages)}: keep two languages in one TMX file.")
        first = self.source_language
        if first not in self.languages:
            first = next((known for known in self.languages if known.partition("-")[0] == first.partition("-")[0]), "")
        first = first or next(iter(self.languages), "")
        other = next((known for known in self.languages if known != first), None)
        self.add(self.sides.get(first), self.sides.get(other) if other else None)


def read_xliff(data: bytes, name: str) -> list[SegmentPair]:
    """Read the units of an XLIFF file, 1.2 or 2.

    Raises:
        ValueError: it is no XML or defines entities, has no translation at all, or far too many units.
    """
    reader = _Xliff(data)
    _parse(reader, b"xliff")
    if reader.found and not reader.targets:
        raise ValueError("has no <target>: it is not translated yet. Name the file of a translation.")
    return reader.found


def read_tmx(data: bytes, name: str) -> list[SegmentPair]:
    """Read the units of a TMX file with two languages.

    Raises:
        ValueError: it is no XML or defines entities, has more than two languages, or far too many units.
    """
    reader = _Tmx(data)
    _parse(reader, b"tmx")
    return reader.found


def note_xliff(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write a <note> behind the <target> (XLIFF 1.2), or in the <notes> of the unit (2)."""

    def piece(at: int, lines: list[str]) -> str:
        second = re.search(rb"<(?:\w+:)?unit\b", data) is not None
        texts = [f'<note category="attncal">{line}</note>' if second else
                 f'<note from="attncal" annotates="target">{line}</note>' for line in lines]  # fmt: skip
        if not second:
            return "".join(f"{_indent(data, at)}{text}" for text in texts)
        if data.startswith(b"</", at):
            return "".join(texts)
        return f"<notes>{''.join(texts)}</notes>{_indent(data, at)}"

    return _inserted(data, notes, piece)


def note_tmx(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write a <note> before the first <tuv> of a unit."""
    return _inserted(data, notes, lambda at, lines: "".join(f"<note>{x}</note>{_indent(data, at)}" for x in lines))


def _inserted(data: bytes, notes, piece) -> bytes:
    from .formats import inserted

    head = data[:200]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or (b"encoding" in head and not _LIKE_ASCII.search(head)):
        raise ValueError("takes notes only in UTF-8: convert it first, or ask for --format json.")
    pieces = [(at, piece(at, [escape(line) for line in lines])) for at, lines in notes]
    return inserted(data, [(at, text.encode("ascii", "xmlcharrefreplace")) for at, text in pieces])


def _indent(data: bytes, at: int) -> str:
    """Return the line end and the white space that begin the line of a byte; "" if it is not XML on lines."""
    begin = data.rfind(b"\n", 0, at) + 1
    space = re.match(rb"[ \t]*", data[begin:at])[0].decode()
    end = "\r\n" if data[begin - 2 : begin] == b"\r\n" else "\n"
    return end + space if begin else ""


def _parse(reader: _Reader, root: bytes) -> None:
    from xml.sax import SAXParseException

    from defusedxml import DefusedXmlException
    from defusedxml.expatreader import DefusedExpatParser

    # TMX names a DTD, which expat does not fetch; what it declares here is refused.
    parser = DefusedExpatParser(forbid_dtd=False, forbid_entities=True, forbid_external=False)
    parser.setContentHandler(reader)
    reader.parser = parser
    try:
        parser.parse(io.BytesIO(reader.data))
    except DefusedXmlException as error:
        raise ValueError("defines entities, which may read other files or fill the memory: it is not read.") from error
    except SAXParseException as error:
        raise ValueError(f"line {error.getLineNumber()} is no XML: {error.getMessage()}.") from error
    if root not in reader.data[:100_000]:
        raise ValueError(f"has no <{root.decode()}>: is it another kind of XML?")
