"""Reader and writer of XLIFF 1.2 and 2, and of its relatives .sdlxliff, .mqxliff and .mxliff."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape

from .segments import (
    Document,
    FileLanguages,
    Notes,
    Segment,
    SegmentPair,
    check_segments,
    has_words,
    inserted,
    language_code,
    notices_on,
    plain,
    without_tags,
)

_TEXTS = ("source", "target")
_NOT_READ = ("header", "alt-trans", "matches", "glossary")
# Inline elements with code as text, in XLIFF 1.2 and 2.
_CODE_ELEMENTS = frozenset(("bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec", "cp"))
_NOT_TRANSLATED = ("new", "needs-translation", "initial")  # states of a target or a segment
_MOST_LEVELS = 200  # nested elements
_LIKE_ASCII = re.compile(rb"""encoding\s*=\s*["'](?:utf-8|us-ascii|iso-8859-\d+|windows-125\d)["']""", re.IGNORECASE)


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
        self.untranslated: list[int] = []  # lines
        self.languages: FileLanguages = (None, None)
        self.is_xliff = False
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
        except LookupError as error:
            raise ValueError(f"has an {error}. Convert it to UTF-8.") from error

    def _refuse(self, *_: object) -> None:
        raise ValueError("defines entities, which may read other files or fill the memory. Remove them.")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        self.is_xliff |= name == "xliff"
        if self._skipped or name in _NOT_READ or (attributes.get("translate") == "no" and name != "mrk"):
            self._skipped += 1
            return
        line = self._parser.CurrentLineNumber
        if len(self._open) > _MOST_LEVELS:
            raise ValueError(f"line {line} has more than {_MOST_LEVELS} nested elements. Is it XLIFF?")
        self._open.append(_Element(name, attributes, line, self._parser.CurrentByteIndex))
        if not any(self.languages):
            keys = ("source-language", "target-language") if name == "file" else ("srcLang", "trgLang")
            self.languages = language_code(attributes.get(keys[0])), language_code(attributes.get(keys[1]))

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
        """Add the pairs of a <trans-unit>, with notes after its texts, or the pair of a <segment>."""
        texts = {part.name: part for part in unit if part.name in (*_TEXTS, "seg-source")}
        source, target = map(texts.get, _TEXTS)
        self.targets += target is not None
        if unit.name == "trans-unit" and texts:
            place = self.data.index(b">", max(part.end for part in texts.values())) + 1
        states = {part.attributes.get("state") for part in (unit, target) if part is not None}
        if not states.isdisjoint(_NOT_TRANSLATED):
            self.untranslated.append(unit.line)
            return
        sources, targets = _marked_segments(texts.get("seg-source")), _marked_segments(target)
        parts = [(key, source, target)]
        if len(sources) > 1 and sources.keys() == targets.keys():
            parts = [(f"{key}/{name}", sources[name], targets[name]) for name in sources]
        for name, *elements in parts:
            source_side, target_side = (_side(element, name, place) for element in elements)
            if source_side is not None:
                self.pairs.append(SegmentPair(source_side, target_side))
                check_segments(len(self.pairs))


def _key_of(unit: _Element) -> str:
    return unit.attributes.get("resname") or unit.attributes.get("id") or ""


def _marked_segments(element: _Element | None) -> dict[str, _Element]:
    """Return the elements `<mrk mtype="seg">` in an element by their ids."""
    segments = {}
    for part in element or ():
        is_segment = part.name == "mrk" and part.attributes.get("mtype") == "seg"
        segments.update({part.attributes.get("mid", ""): part} if is_segment else _marked_segments(part))
    return segments


def _side(element: _Element | None, key: str, place: int) -> Segment | None:
    """Return the segment of a <source>, <target> or <mrk>; None if there is none or it has no words."""
    if element is None:
        return None
    texts: list[str] = []
    raw: list[str] = []

    def read(parts: Iterable[str | _Element], is_code: bool) -> None:
        for part in parts:
            if isinstance(part, str):
                raw.append(part)
                texts.append("" if is_code else part)
            elif part.name == "mrk":  # an annotation, which translations may leave out
                read(part.content, is_code)
            else:
                name = next(filter(None, map(part.attributes.get, ("id", "i", "x"))), "")
                raw.append(f'<{part.name} id="{name}"/>' if name else f"<{part.name}/>")
                texts.append(" " if part.name in _CODE_ELEMENTS else "")
                read(part.content, is_code or part.name in _CODE_ELEMENTS)

    read(element.content, False)
    text = plain(without_tags("".join(texts)))
    return Segment(text, "entry", element.line, key, "".join(raw), place) if has_words(text) else None


def read_xliff(data: bytes, name: str) -> Document:
    """Read the units of an XLIFF file, 1.2 or 2, except those with the state of an untranslated one.

    Raises:
        ValueError: The file is not XML, defines entities, has no translation, or has too many units.
    """
    reader = _XliffReader(data)
    reader.read()
    if not reader.is_xliff:
        raise ValueError("has no <xliff>: is it another kind of XML?")
    if reader.pairs and not reader.targets:
        raise ValueError("has no <target>: it is not translated yet. Name the file of a translation.")
    total = len(reader.pairs) + len(reader.untranslated)
    notices = notices_on("not translated yet, by their state", reader.untranslated, total, "units")
    return Document(name, data, tuple(reader.pairs), (), notices, reader.languages)


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
