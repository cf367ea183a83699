"""Markdown: headings, paragraphs, items of lists, rows of tables and blocks of code (markdown-it-py)."""

import re

from hf_attncal.decoding import decoded

from .segments import CODE, Segment, check_segments, plain

_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FRONT_TEXT = re.compile(r"^(?:title|description|summary|subtitle|lead)\s*:\s*(.+?)\s*$", re.MULTILINE)
_ANCHOR = re.compile(r"\s*\{\s*:?\s*#([\w-]+)[^}]*\}\s*$")  # {#name} behind a heading
_TAGS = re.compile(r"<!--.*?-->|<[^>]{0,2000}>", re.DOTALL)
_HTML_TEXT = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL | re.IGNORECASE)


def read_markdown(data: bytes, name: str) -> list[Segment]:
    """Read the segments of a Markdown file (CommonMark with tables); front matter gives its title and description.

    Raises:
        ValueError: it is not UTF-8.
    """
    from markdown_it import MarkdownIt

    text = decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    found, front = [], _FRONT.match(text)
    if front is not None:
        for line in _FRONT_TEXT.finditer(front[1]):
            number = text.count("\n", 0, front.start(1) + line.start()) + 1
            found.append(Segment(plain(line[1].strip("\"'")), "front matter", number))
        text = "\n" * text.count("\n", 0, front.end()) + text[front.end() :]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    lists, row, before = 0, None, ""
    for token in tokens:
        kind = token.type
        line = token.map[0] + 1 if token.map else 0
        if kind in ("list_item_open", "list_item_close"):
            lists += token.nesting
        elif kind == "tr_open":
            row = [line, []]
        elif kind == "tr_close":
            cells = [cell for cell in row[1] if cell]
            if any(map(_has_words, cells)):
                found.append(Segment(" | ".join(cells), "row", row[0]))
            row = None
        elif kind in ("fence", "code_block") and token.content.strip():
            found.append(Segment(plain(token.content), CODE, line))
        elif kind == "html_block":
            content = plain(_TAGS.sub(" ", _HTML_TEXT.sub(" ", token.content)))
            if _has_words(content):
                found.append(Segment(content, "html", line))
        elif kind == "inline":
            content = _text(token)
            if row is not None:
                row[1].append(content)
                continue
            anchor = _ANCHOR.search(content)
            content = _ANCHOR.sub("", content)
            if _has_words(content):
                block = "heading" if before == "heading_open" else "item" if lists else "paragraph"
                if all(child.type == "code_inline" or not _has_words(child.content) for child in token.children):
                    block = CODE
                found.append(Segment(content, block, line, anchor[1] if anchor else ""))
        before = kind
        check_segments(len(found))
    return found


def _text(token) -> str:
    parts = []
    for child in token.children or ():
        if child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "image":
            parts.append(_text(child))
        elif child.type in ("text", "code_inline"):
            parts.append(child.content)
    return plain("".join(parts))


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))
