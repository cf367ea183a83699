"""Readers of files in one language: lines, Markdown (markdown-it-py), SubRip and WebVTT.

pysubs2 also reads subtitles, but it loses line numbers and the space between cues, and is slow.
"""

import re

from .segments import (
    CODE,
    Notes,
    Segment,
    check_segments,
    has_words,
    inserted,
    line_end,
    lines_with_places,
    plain,
    text_of,
)

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FRONT_MATTER_TEXT = re.compile(r"^(?:title|description|summary|subtitle|lead)\s*:\s*(.+?)\s*$", re.MULTILINE)
_ANCHOR = re.compile(r"\s*\{\s*:?\s*#([\w-]+)[^}]*\}\s*$")  # {#name} behind a heading
_HTML_TAGS = re.compile(r"<!--.*?-->|<[^>]{0,2000}>", re.DOTALL)
_HTML_TEXT = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
_CUE_TIMES = re.compile(
    r"\s*(?:(\d{1,3}):)?(\d\d):(\d\d)[.,](\d{1,3})\s*-->\s*(?:(\d{1,3}):)?(\d\d):(\d\d)[.,](\d{1,3})(?:\s.*)?"
)
_CUE_MARKUP = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_MOST_CUES = 50_000


def read_lines_of(data: bytes, name: str) -> list[Segment]:
    """Read the lines of plain text; each line is a segment."""
    lines = lines_with_places(data, text_of(data, name))
    return [Segment(line, "line", number, at=at) for number, (line, at) in enumerate(lines, start=1)]


# ---- Markdown ----


def read_markdown(data: bytes, name: str) -> list[Segment]:
    """Read the segments of a Markdown file (CommonMark with tables), with title and description of its front matter.

    Raises:
        ValueError: The file is not UTF-8.
    """
    from markdown_it import MarkdownIt

    segments, text = _front_matter(text_of(data, name))
    lists, before = 0, ""
    row: list[str] | None = None  # cells of the open row
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        kind, line = token.type, token.map[0] + 1 if token.map else 0
        if kind in ("list_item_open", "list_item_close"):
            lists += token.nesting
        elif kind == "tr_open":
            row, row_line = [], line
        elif kind == "tr_close" and row is not None:
            cells = [cell for cell in row if cell]
            if any(map(has_words, cells)):
                segments.append(Segment(" | ".join(cells), "row", row_line))
            row = None
        elif kind in ("fence", "code_block") and token.content.strip():
            segments.append(Segment(plain(token.content), CODE, line))
        elif kind == "html_block":
            content = plain(_HTML_TAGS.sub(" ", _HTML_TEXT.sub(" ", token.content)))
            if has_words(content):
                segments.append(Segment(content, "html", line))
        elif kind == "inline" and row is not None:
            row.append(_inline_text(token))
        elif kind == "inline":
            content = _inline_text(token)
            anchor = _ANCHOR.search(content)
            content = _ANCHOR.sub("", content)
            if has_words(content):
                block = "heading" if before == "heading_open" else "item" if lists else "paragraph"
                block = CODE if _is_code(token) else block
                segments.append(Segment(content, block, line, anchor[1] if anchor else ""))
        before = kind
        check_segments(len(segments))
    return segments


def _front_matter(text: str) -> tuple[list[Segment], str]:
    """Return title and description of the front matter, and the text with empty lines in its place."""
    front = _FRONT_MATTER.match(text)
    if front is None:
        return [], text
    segments = []
    for line in _FRONT_MATTER_TEXT.finditer(front[1]):
        number = text.count("\n", 0, front.start(1) + line.start()) + 1
        segments.append(Segment(plain(line[1].strip("\"'")), "front matter", number))
    return segments, "\n" * text.count("\n", 0, front.end()) + text[front.end() :]


def _is_code(token) -> bool:
    return all(child.type == "code_inline" or not has_words(child.content) for child in token.children)


def _inline_text(token) -> str:
    parts = []
    for child in token.children or ():
        if child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "image":
            parts.append(_inline_text(child))
        elif child.type in ("text", "code_inline"):
            parts.append(child.content)
    return plain("".join(parts))


# ---- subtitles ----


def read_subtitles(data: bytes, name: str) -> list[Segment]:
    """Read the cues of a SubRip or WebVTT file. The key of a cue is the line above its times, or else its number.

    Raises:
        ValueError: The file is not UTF-8, or has too many cues.
    """
    if data.count(b"-->") > _MOST_CUES:
        raise ValueError(f"has more than {_MOST_CUES:,} cues. Split it.")
    text = _subtitle_text(data, name)
    segments: list[Segment] = []
    lines = lines_with_places(data, text)
    number = place = 0
    while place < len(lines):
        times = _CUE_TIMES.fullmatch(lines[place][0]) if "-->" in lines[place][0] else None
        if times is None:
            place += 1
            continue
        number += 1
        has_name = place and lines[place - 1][0].strip()
        first = place - 1 if has_name else place
        key = lines[first][0].strip() if has_name else str(number)
        place += 1
        texts = []
        while place < len(lines) and lines[place][0].strip() and "-->" not in lines[place][0]:
            texts.append(lines[place][0])
            place += 1
        # Without an empty line before the next cue, the last line is its number.
        if place < len(lines) and "-->" in lines[place][0] and texts:
            texts.pop()
        content = plain(_CUE_MARKUP.sub("", " ".join(texts)))
        if has_words(content):
            time = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
            segments.append(Segment(content, "cue", first + 1, key, " ".join(texts), lines[first][1], time=time))
    return segments


def note_vtt(data: bytes, notes: Notes) -> bytes:
    """Return a WebVTT file with each note inserted as a comment (`NOTE`) before its cue.

    Args:
        data: Content of the file.
        notes: First byte of each cue, and the lines of its note.
    """
    end = line_end(data)
    pieces = []
    for at, lines in notes:
        text = [line.replace("-->", "→") for line in lines]
        pieces.append((at, b"NOTE " + end.join(line.encode() for line in text) + end + end))
    return inserted(data, pieces)


def _subtitle_text(data: bytes, name: str) -> str:
    try:
        return text_of(data, name)
    except ValueError as error:
        if "is not UTF-8 (byte" in str(error) and b"\0" not in data:
            message = str(error).partition(". ")[0]
            raise ValueError(
                f"{message}. Old subtitles are often Windows-1252 (Western languages): `iconv -f cp1252 -t UTF-8`."
            ) from error
        raise


def _seconds(parts) -> float:
    hours, minutes, seconds, fraction = parts
    return 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")
