"""Readers of files in one language: lines, JSON, Markdown (markdown-it-py), SubRip and WebVTT.

pysubs2 also reads subtitles, but it has no line numbers, and without a word it appends cues whose times it cannot read
to the text of the cue before, and drops the text before the first cue.
"""

import html
import json
import re
from collections.abc import Iterator

from hf_attncal.io.errors import one_line

from ..tables import TABLES
from .segments import (
    CODE,
    Document,
    Notes,
    Segment,
    check_segments,
    has_words,
    inserted,
    language_code,
    line_end,
    lines_with_places,
    notices_on,
    plain,
    text_of,
    without_tags,
)

_JSON_TOKEN = re.compile(r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<is_key>\s*:)?|[{}\[\],]|(?P<other>[^\s{}\[\],:"]+)')
_REFERENCE = re.compile(r"\$t\([^()]*\)|(?<!\w)@(?:\.\w+)?:\(?[\w.]+")  # to other keys: i18next, Vue
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(.*?\r?\n)\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FRONT_MATTER_TEXT = re.compile(
    r"^(?:title|description|summary|subtitle|lead)[ \t]*[:=][ \t]*"
    r"(?:[>|][-+\d]*[ \t]*\r?\n(?P<block>(?:[ \t].*\r?\n)+)|(?P<line>.+?)\s*$)",
    re.MULTILINE,
)
_FRONT_MATTER_KEPT = re.compile(
    r"^[ \t]*[\w-]+[ \t]*[:=][ \t]*(?:true|false|-?\d+(?:\.\d+)?)(?=[ \t]*\r?$)", re.MULTILINE
)
_ANCHOR = re.compile(r"\s*\{\s*:?\s*#([\w-]+)[^}]*\}\s*$")  # {#name} behind a heading
_HTML_TAGS = re.compile(r"<!--.*?-->|<[^>]{0,2000}>", re.DOTALL)
_HTML_ADDRESS = re.compile(r"""\b(?:href|src)\s*=\s*["']([^"']+)""")
_FORMULA = re.compile(r"\$\$[^$]+\$\$|(?<![\w$\\])\$(?=\S)[^$\n]{1,200}(?<=\S)\$(?![\w$])")
_TEXT_IN_FORMULA = re.compile(r"\\(?:text|mbox|operatorname)\w*\{[^{}]*\}|\s+")
_LANGUAGE_IN_ADDRESS = re.compile(r"(?<![a-z])[a-z]{2}(?:[-_][a-z]{2,4})?(?![a-z])", re.IGNORECASE)
_IN_CODE = re.compile(  # comments, and texts with words
    r"/\*[\s\S]*?\*/|<!--[\s\S]*?-->|\"{3}[\s\S]*?\"{3}|(?:^|(?<=\s))(?:#|//|--|;|%)(?:\s.*)?$|^\s*(?:#|//).*$"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|(?<=>)[^<>{}\n]+(?=</)|(?<=:)\s+[^\W\d_]+[ ,].*$",
    re.MULTILINE,
)
_HTML_TEXT = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
_TIME = r"(?:(\d{1,3})\s*:\s*)?(\d{1,2})\s*:\s*(\d{1,2})(?:\s*[.,:;]\s*(\d{1,3}))?"
_CUE_TIMES = re.compile(rf"\s*{_TIME}\s*(?:[-–—=]{{1,3}}>|→)\s*{_TIME}(?:\s.*)?")
_ARROW = re.compile(r"[-–—=]>|→")
_LONG_TIME = re.compile(rf"\d\s*:\s*\d+\s*:\s*\d|>\s*{_TIME}\s*$")  # in a line with an arrow
_TIME_SIGNS = "0123456789:.,;–—- \t"
_VTT_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
_CUE_MARKUP = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_MOST_CUES = 50_000
_MOST_MARKDOWN, _LONGEST_PARAGRAPH = 8_000_000, 100_000  # characters


def read_lines_of(data: bytes, name: str) -> Document:
    """Read the lines of plain text; each line is a segment."""
    lines = enumerate(lines_with_places(data, text_of(data, name)), start=1)
    return Document(name, data, (), tuple(Segment(line, "line", number, at=at) for number, (line, at) in lines))


# ---- JSON ----


def read_json(data: bytes, name: str) -> Document:
    """Read the texts of a JSON file; the key of a segment is its path, joined by dots.

    Raises:
        ValueError: The file is not JSON; the message has the line.
    """
    text = text_of(data, name)
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"is not valid JSON, or has too many nested brackets: {one_line(error)}.") from error
    items = list(content.values()) if isinstance(content, dict) else []
    is_chrome = bool(items) and all(isinstance(item, dict) and isinstance(item.get("message"), str) for item in items)
    segments: dict[str, Segment] = {}
    repeated: list[int] = []
    not_text: list[int] = []
    language = None
    for path, value, line in _json_values(text):
        if path == ["@@locale"]:
            language = language_code(str(value))
        if (is_chrome and path[1:] != ["message"]) or (path and str(path[0]).startswith("@")):
            continue  # metadata of Chrome or ARB
        key = ".".join(map(str, path[:1] if is_chrome else path))
        if key in segments:
            repeated.append(line)
        if not isinstance(value, str):
            not_text.append(line)
        elif _NO_CHARACTER.search(value):
            raise ValueError(f"line {line} has an escape for no character (\\u0000 or half of a pair). Correct it.")
        elif has_words(value):
            kept_parts = tuple(_REFERENCE.findall(value))
            segments[key] = Segment(plain(without_tags(value)), "entry", line, key, value, kept_parts=kept_parts)
            check_segments(len(segments))
    notices = notices_on("not text", not_text, len(segments) + len(not_text), "values")
    notices += notices_on("repeated, of which the last is checked", repeated, len(segments), "keys")
    return Document(name, data, (), tuple(segments.values()), notices, (language, None))


def _json_values(text: str) -> Iterator[tuple[list[str | int], object, int]]:
    """Yield path, value and line of each value of valid JSON that is neither an object nor an array."""
    path: list[str | int] = []
    line, done = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line, done = line + text.count("\n", done, token.start()), token.start()
        if token["is_key"]:
            path[-1] = json.loads(token["text"])
        elif token["text"] or token["other"]:
            yield path.copy(), json.loads(token["text"] or token["other"]), line
        elif token[0] in "{[":
            path.append("" if token[0] == "{" else 0)
        elif token[0] in "}]":
            path.pop()
        elif isinstance(path[-1], int):
            path[-1] += 1


# ---- Markdown ----


def read_markdown(data: bytes, name: str) -> Document:
    """Read the segments of a Markdown file (CommonMark with tables), with title and description of its front matter.

    Code, addresses of links and formulas are the kept parts of a segment.

    Raises:
        ValueError: The file is not UTF-8, or too long to be read in a minute.
    """
    from markdown_it import MarkdownIt

    text = text_of(data, name)
    if len(text) > _MOST_MARKDOWN or max(map(len, re.split(r"\n\s*\n", text))) > _LONGEST_PARAGRAPH:
        raise ValueError(
            f"has more than 8 MB or a paragraph of more than {_LONGEST_PARAGRAPH:,} characters. Split it."
        )
    segments, text = _front_matter(text)
    lists, before = 0, ""
    row: list | None = None  # tokens of the cells of the open row
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        kind, line = token.type, token.map[0] + 1 if token.map else 0
        if kind in ("list_item_open", "list_item_close"):
            lists += token.nesting
        elif kind == "tr_open":
            row, row_line = [], line
        elif kind == "tr_close" and row is not None:
            cells = [cell for cell in map(_inline_text, row) if cell]
            if any(map(has_words, cells)):
                kept_parts = tuple(part for cell in row for part in _kept_parts(cell))
                segments.append(Segment(" | ".join(cells), "row", row_line, kept_parts=kept_parts))
            row = None
        elif kind in ("fence", "code_block") and token.content.strip():
            kept_parts = _code_lines(token.content, token.info)
            segments.append(Segment(plain(token.content), CODE, line, kept_parts=kept_parts))
        elif kind == "html_block":
            content = plain(_HTML_TAGS.sub(" ", _HTML_TEXT.sub(" ", token.content)))
            if has_words(content):
                kept_parts = tuple(map(_address, _HTML_ADDRESS.findall(token.content)))
                segments.append(Segment(content, "html", line, kept_parts=kept_parts))
        elif kind == "inline" and row is not None:
            row.append(token)
        elif kind == "inline":
            content = _inline_text(token)
            anchor = _ANCHOR.search(content)
            content = _ANCHOR.sub("", content)
            if has_words(content):
                block = "heading" if before == "heading_open" else "item" if lists else "paragraph"
                block = CODE if _is_code(token) else block
                key = anchor[1] if anchor else ""
                segments.append(Segment(content, block, line, key, kept_parts=_kept_parts(token)))
        before = kind
        check_segments(len(segments))
    return Document(name, data, (), tuple(segments))


def _front_matter(text: str) -> tuple[list[Segment], str]:
    """Return the segments of the front matter, and the text with empty lines in its place.

    They are title and description, and the rest as code whose numbers and switches are kept.
    """
    front = _FRONT_MATTER.match(text)
    if front is None:
        return [], text
    kept_parts = tuple(map(plain, _FRONT_MATTER_KEPT.findall(front[2])))
    segments = [Segment(plain(front[2]), CODE, 1, kept_parts=kept_parts)] if kept_parts else []
    for field in _FRONT_MATTER_TEXT.finditer(front[2]):
        number = text.count("\n", 0, front.start(2) + field.start()) + 1
        if has_words(content := field["block"] or field["line"].strip("\"'")):
            segments.append(Segment(plain(content), "front matter", number))
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


def _kept_parts(token) -> tuple[str, ...]:
    """Return the code, addresses and formulas of a paragraph."""
    parts = [_TEXT_IN_FORMULA.sub("", formula) for formula in _FORMULA.findall(token.content)]
    for child in token.children or ():
        if child.type == "code_inline":
            parts.append(plain(child.content))
        elif child.type in ("link_open", "image") and child.info != "auto":
            parts.append(_address(child.attrs.get("href") or child.attrs.get("src") or ""))
        elif child.type == "html_inline":
            parts.extend(map(_address, _HTML_ADDRESS.findall(child.content)))
    return tuple(filter(None, parts))


def _address(address: str) -> str:
    """Return what translations keep of an address: no language, anchor or scheme; "" for articles of Wikipedia."""
    place = address.partition("#")[0].partition("://")[2] or address.partition("#")[0]
    return "" if "wikipedia" in place else _LANGUAGE_IN_ADDRESS.sub("", place.removeprefix("www.")).strip("/.")


def _code_lines(code: str, language: str) -> tuple[str, ...]:
    """Return the lines of code without comments and texts, which may be translated."""
    if language.strip().partition(" ")[0].lower() in TABLES["prose_fences"]:
        return ()
    return tuple(filter(has_words, map(plain, _IN_CODE.sub("", code).split("\n"))))


# ---- subtitles ----


def read_subtitles(data: bytes, name: str) -> Document:
    """Read the cues of a SubRip or WebVTT file. The key of a cue is its number or name above its times.

    A cue ends before the next number and times, so that empty lines belong to its text.

    Raises:
        ValueError: The file is not UTF-8, or has too many cues.
    """
    lines = lines_with_places(data, text_of(data, name))
    is_vtt = bool(lines) and lines[0][0].startswith("WEBVTT")
    starts = [place for place, (line, _) in enumerate(lines) if _is_time_line(line)]
    if len(starts) > _MOST_CUES:
        raise ValueError(f"has more than {_MOST_CUES:,} cues. Split it.")
    begins = [place - _has_name(lines, place, is_vtt) for place in starts]
    segments: list[Segment] = []
    unreadable: list[int] = []
    spans = zip(begins, starts, [*begins, len(lines)][1:], strict=True)
    for number, (begin, place, stop) in enumerate(spans, start=1):
        texts = _cue_lines([line for line, _ in lines[place + 1 : stop]], is_vtt)
        content = plain(_CUE_MARKUP.sub("", " ".join(texts)))
        content = html.unescape(content) if is_vtt else content
        times = _CUE_TIMES.fullmatch(lines[place][0])
        if times is None:
            unreadable.append(place + 1)
        elif has_words(content):
            key = lines[begin][0].strip() if begin < place else str(number)
            start, end = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
            time = start, max(start, end)
            segments.append(Segment(content, "cue", begin + 1, key, " ".join(texts), lines[begin][1], time=time))
    notices = notices_on("times that cannot be read", unreadable, len(starts), "cues")
    before = [place + 1 for place in range(begins[0] if begins and not is_vtt else 0) if has_words(lines[place][0])]
    notices += notices_on("not checked, before the first cue", before, len(lines), "lines")
    return Document(name, data, (), tuple(segments), notices)


def _is_time_line(line: str) -> bool:
    """Return whether a line is the times of a cue, also if they cannot be read."""
    if _ARROW.search(line):
        return bool(_LONG_TIME.search(line) or _CUE_TIMES.fullmatch(line))
    return line.count(":") > 3 and not line.strip(_TIME_SIGNS)


def _has_name(lines: list[tuple[str, int]], place: int, is_vtt: bool) -> bool:
    """Return whether the line before the times of a cue is its number or, after an empty line of WebVTT, its name."""
    line = lines[place - 1][0].strip() if place else ""
    return line.isdigit() or (is_vtt and bool(line) and not lines[place - 2][0].strip())


def _cue_lines(lines: list[str], is_vtt: bool) -> list[str]:
    """Return the lines of text that follow the times of a cue, up to a comment or style of WebVTT."""
    block = (
        n
        for n, line in enumerate(lines)
        if is_vtt and _VTT_BLOCK.match(line) and not "".join(lines[n - 1 : n]).strip()
    )
    return list(filter(str.strip, lines[: next(block, len(lines))]))


def note_vtt(data: bytes, notes: Notes) -> bytes:
    """Insert notes into a WebVTT file, each as a comment (`NOTE`) before the cue that it belongs to.

    Args:
        data: Content of the file.
        notes: Position of the first byte of each cue that has a note, and the lines of the note.
    """
    end = line_end(data)
    pieces = []
    for at, lines in notes:
        text = [line.replace("-->", "→") for line in lines]
        pieces.append((at, b"NOTE " + end.join(line.encode() for line in text) + end + end))
    return inserted(data, pieces)


def _seconds(parts) -> float:
    hours, minutes, seconds, fraction = parts
    return 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction or 0}")
