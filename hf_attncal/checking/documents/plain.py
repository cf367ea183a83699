"""Plain text with a key on each line, and tables with a column for each language."""

import csv
import io

from hf_attncal.decoding import decoded

from .segments import Segment, SegmentPair, check_segments, lines_with_places, plain

_SOURCE = ("source", "src", "original", "source text")
_TARGET = ("target", "tgt", "trg", "translation", "target text")
_KEY = ("key", "id", "name", "context", "ref", "reference")


def read_keyed(data: bytes, name: str) -> list[Segment]:
    """Read lines `KEY<TAB>text`; a line without text is no segment.

    Raises:
        ValueError: it is not UTF-8, or a line has no key or the key of another.
    """
    text = decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    found, keys = [], {}
    for number, (line, at) in enumerate(lines_with_places(data, text), start=1):
        if not line.strip():
            continue
        key, tab, rest = line.partition("\t")
        if not tab or not key.strip():
            raise ValueError(f"line {number} has no key: write `MAT 1:3`, a tab and the text.")
        if keys.setdefault(key, number) != number:
            raise ValueError(f"line {number} has the key {key[:40]!r} of line {keys[key]}: a key stands once.")
        if rest.strip():
            found.append(Segment(plain(rest), "verse", number, key.strip(), at=at))
    return found


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
                           (_SOURCE, _TARGET, _KEY)]  # fmt: skip
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


def read_lines_of(data: bytes, name: str) -> list[Segment]:
    """Read lines of plain text, each a segment."""
    text = decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    lines = lines_with_places(data, text)
    return [Segment(line, "line", number, at=at) for number, (line, at) in enumerate(lines, start=1)]
