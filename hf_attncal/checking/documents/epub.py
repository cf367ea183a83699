"""EPUB: the blocks of text of a book, in the order of its spine; and the blocks of a page of HTML."""

import io
import posixpath
import re
import zipfile
import zlib
from html.parser import HTMLParser
from urllib.parse import unquote

from .segments import CODE, Segment, check_segments, plain

_MOST_BYTES, _MOST_FILES, _MOST_TIMES = 1 << 28, 20_000, 200
_BLOCKS = {
    **{f"h{level}": "heading" for level in range(1, 7)},
    **dict.fromkeys(("p", "div", "section", "blockquote", "figcaption", "dd", "dt", "body", "article"), "paragraph"),
    **dict.fromkeys(("header", "footer", "aside", "nav", "main", "table", "ul", "ol", "dl", "hr"), "paragraph"),
    **{"li": "item", "tr": "row", "td": "row", "th": "row", "pre": CODE},
}
_UNSEEN = frozenset(("script", "style", "title", "head", "svg"))


def read_epub(data: bytes, name: str) -> list[Segment]:
    """Read the blocks of a book.

    Raises:
        ValueError: it is no EPUB, is damaged or locked, or would be far larger unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            return _blocks_of(book, len(data))
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"is no EPUB that can be read ({str(error).strip(chr(34))}): fetch or export it anew."
        ) from error


def _blocks_of(book: zipfile.ZipFile, size: int) -> list[Segment]:
    files = book.infolist()
    total = sum(file.file_size for file in files)
    if len(files) > _MOST_FILES or total > _MOST_BYTES or total > _MOST_TIMES * size + (1 << 20):
        raise ValueError(
            f"would have {total >> 20} MB in {len(files)} files unpacked, as no book has: it is not read."
        )
    container = _parsed(book, "META-INF/container.xml")
    package_name = next((node.get("full-path") for node in container if _tag(node) == "rootfile"), None)
    if package_name is None:
        raise ValueError("names no package in META-INF/container.xml: it is no EPUB.")
    package = list(_parsed(book, package_name))
    names = {node.get("id"): node.get("href") for node in package if _tag(node) == "item"}
    found: list[Segment] = []
    for node in package:
        href = names.get(node.get("idref")) if _tag(node) == "itemref" else None
        if href:
            part = posixpath.normpath(posixpath.join(posixpath.dirname(package_name), unquote(href)))
            found += html_blocks(_read(book, part).decode("utf-8", "replace"), part)
            check_segments(len(found))
    return found


def _read(book: zipfile.ZipFile, name: str) -> bytes:
    with book.open(name) as file:
        data = file.read(_MOST_BYTES + 1)  # sizes in the directory may lie
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{name} in it has more than {_MOST_BYTES >> 20} MB: it is not read.")
    return data


def _parsed(book: zipfile.ZipFile, name: str):
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        return fromstring(_read(book, name)).iter()
    except (ParseError, DefusedXmlException) as error:
        raise ValueError(f"has a {name} that is no XML or defines entities: it is not read.") from error


def _tag(node) -> str:
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def html_blocks(text: str, part: str = "") -> list[Segment]:
    """Return the blocks of text of a page of HTML, rows of tables as one each."""
    reader = _Blocks(part)
    reader.feed(text)
    reader.close()
    reader.flush()
    return reader.found


class _Blocks(HTMLParser):
    def __init__(self, part: str):
        super().__init__(convert_charrefs=True)
        self.part, self.found = part, []
        self.kinds: list[tuple[str, str]] = []
        self.parts: list[str] = []
        self.line, self.unseen, self.in_row = 0, 0, 0

    def handle_starttag(self, tag, attrs):
        self.unseen += tag in _UNSEEN
        if tag == "br":
            self.parts.append(" ")
        if tag in ("td", "th") and self.in_row:
            self.parts.append(" | " if self.parts else "")
        elif tag in _BLOCKS and not self.in_row:
            self.flush()
            if tag != "hr":
                self.kinds.append((tag, _BLOCKS[tag]))
        self.in_row += tag == "tr"

    def handle_endtag(self, tag):
        self.unseen -= tag in _UNSEEN and self.unseen > 0
        if tag == "tr" and self.in_row:
            self.in_row -= 1
        if tag in _BLOCKS and not self.in_row:
            self.flush()
            while self.kinds and any(tag == known for known, _ in self.kinds):
                if self.kinds.pop()[0] == tag:
                    break

    def handle_data(self, data):
        if not self.unseen:
            if not self.parts and data.strip():
                self.line = self.getpos()[0]
            if data.strip() or self.parts:
                self.parts.append(data)

    def flush(self):
        content = re.sub(r"(?: \| )+$", "", plain("".join(self.parts)))
        self.parts = []
        if any(map(str.isalnum, content)):
            kind = self.kinds[-1][1] if self.kinds else "paragraph"
            self.found.append(Segment(content, kind, max(1, self.line), part=self.part))
