"""From the bytes of a text to its characters: UTF-8, or an error that says what they are and how to convert them."""

import codecs
import unicodedata
from contextlib import suppress
from typing import Any

from .compressed import looks_like

HEAD = 1 << 16  # bytes from the start of a text that show its encoding
# What a mark at the start says. That of UTF-32LE begins with that of UTF-16LE.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_UNMARKED = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
_NO_TEXT = {"Cc", "Cn", "Co", "Cs"}  # categories of Unicode


def decoded(data: bytes, name: str, number: int = 1, head: bytes | None = None, whole: bool = True) -> str:
    """Decode a text, or lines of one.

    Args:
        data: UTF-8, without a byte-order mark.
        name: what messages call the text.
        number: of the first line in `data`.
        head: the first bytes of the text; None: `data` begins it.
        whole: False: a character that is cut off at the end is left out.

    Raises:
        ValueError: it is not UTF-8, or has a NUL; the message has the line, what the text looks like, and a remedy.
    """
    head = data if head is None else head
    try:
        text, _ = codecs.utf_8_decode(data, "strict", whole)
    except UnicodeDecodeError as error:
        at, problem = error.start, "is not UTF-8 (byte {})"
        remedy = "Convert the text first, for example with `iconv -f latin1 -t utf-8`."
        if number == 1 and (suffix := looks_like(data)):
            remedy = f"It looks like a {suffix} file: give it a name that ends so."
    else:
        if "\0" not in text:
            return text
        at, problem = data.index(0), "has a NUL, which no text has (byte {})"
        remedy = "If it is text all the same, delete them: `tr -d '\\000'`."
    if encoding := other_encoding(head):
        problem, remedy = f"is {encoding}, not UTF-8", f"Convert the text first: `iconv -f {encoding} -t UTF-8`."
    number, at = number + data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at)
    raise ValueError(f"line {number} of {name} {problem.format(at)}. {remedy}")


def other_encoding(head: bytes) -> str | None:
    """Return what `iconv` calls the encoding of a text in UTF-16 or UTF-32 that begins so, or None for another.

    Without a mark it needs a NUL, which every space and line end has there. Bytes that UTF-8 could be, too, must be
    letters of an alphabet and marks (below U+2070): other text with a NUL would look like Chinese.
    """
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    head = head[:HEAD]
    found: dict[str, int] = {}
    for name in _UNMARKED if b"\0" in head else ():
        with suppress(UnicodeDecodeError):
            cut = -len(head) % (4 if "32" in name else 2) if head.endswith(b"\n") else 0  # a line that LF ended
            text = codecs.getincrementaldecoder(name)().decode(head + bytes(cut))
            wrong = sum(letter not in "\t\n\r" and unicodedata.category(letter) in _NO_TEXT for letter in text)
            foreign = 0
            with suppress(UnicodeDecodeError):
                codecs.utf_8_decode(head, "strict", False)
                foreign = sum(letter >= "\u2070" for letter in text)
            if any(map(str.isalnum, text)) and 50 * wrong <= len(text) and 10 * foreign <= len(text):
                found[name] = sum(map(str.isascii, text)) - 10 * wrong
    return max(found, key=lambda name: found[name], default=None)


def check_line(line: Any, number: int, name: str = "the lines") -> None:
    """Raise ValueError for a text, or a list or tuple of texts, with a NUL; the message has `number` and `name`."""
    if _has_nul(line):
        raise ValueError(f"line {number} of {name} has a NUL, which no text has. Delete it.")


def _has_nul(line: Any) -> bool:
    return "\0" in line if isinstance(line, str) else isinstance(line, list | tuple) and any(map(_has_nul, line))
