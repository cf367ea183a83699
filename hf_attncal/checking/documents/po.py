"""PO files of gettext (polib): an entry is a pair, and a note on it a comment of the translator."""

import re

from hf_attncal.decoding import decoded
from hf_attncal.errors import one_line

from .segments import MOST_SEGMENTS, Segment, SegmentPair, plain

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_LINE = re.compile(r'\s*(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"\s*|\s*(?:#.*)?')
_NO_TEXT = re.compile(r"translator[-_]credits$|external ref=")  # names of translators, sums of pictures
_ACCELERATOR = re.compile(r"[_&](?=[^\W_])")
_TAGS = re.compile(r"</?[A-Za-z][^<>]{0,500}>")


def read_po(data: bytes, name: str) -> list[SegmentPair]:
    """Read the entries of a PO file that are in use: no obsolete and no fuzzy ones, of plurals the last.

    Raises:
        ValueError: its encoding is not what its head says, or polib cannot read it; the message has the line.
    """
    import polib

    if data.count(b"\nmsgid ") > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} entries. Split it.")
    text = _text_of(data, name)
    if not re.search(r"^msgid\s", text, re.MULTILINE):
        raise ValueError("has no line that begins with `msgid`: it is no PO file.")
    for number, line in enumerate(text.split("\n"), start=1):
        if not _LINE.fullmatch(line):
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
            sides = (_side(text, line, entry.msgctxt or "", at) for text in (source, target))
            pair = SegmentPair(*sides)
            if pair.source is not None:
                found.append(pair)
    return found


def note_po(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write notes as comments (`# attncal: ...`) before the entries."""
    from .formats import inserted

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


def _text_of(data: bytes, name: str) -> str:
    charset = _charset(data)
    if charset.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    try:
        return data.decode(charset)
    except (LookupError, UnicodeError) as error:
        raise ValueError(
            f"says that it is {charset}, and cannot be read so: convert it with `msgconv -t UTF-8`."
        ) from error


def _side(text: str, line: int, key: str, at: int) -> Segment | None:
    if not any(map(str.isalnum, text)):
        return None
    menu = len(_ACCELERATOR.findall(text)) == 1 and len(text) < 80
    text_read = _ACCELERATOR.sub("", text) if menu else text
    return Segment(plain(_TAGS.sub(" ", text_read)), "entry", line, plain(key), text, at)
