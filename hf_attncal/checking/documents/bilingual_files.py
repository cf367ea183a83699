"""Readers of PO (polib), CSV and TSV: files with both languages. XLIFF is in `xliff_files.py`."""

import codecs
import csv
import gettext
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Literal

from hf_attncal.io.errors import one_line

from ..placeholders import compare_placeholders
from ..tables import TABLES
from .segments import (
    MOST_SEGMENTS,
    Document,
    Notes,
    Segment,
    SegmentPair,
    check_segments,
    has_words,
    inserted,
    language_code,
    line_end,
    notices_on,
    plain,
    text_of,
    without_tags,
)

_BROKEN_PO = "is not a valid PO file ({}): `msgfmt --check` shows the errors."
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_PO_LINE = re.compile(r'\s*(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"\s*|\s*(?:#.*)?')
_NO_TEXT = re.compile(r"translator[-_]credits$|external ref=")  # names of translators, checksums of pictures
# The key of a message (`user.name`), and the comment with its text.
_MESSAGE_KEY = re.compile(r"[a-z0-9-]{2,}(?:[._:][a-z0-9-]{2,})+")
_DEFAULT_TEXT = re.compile(r'Default: "(.*)"\Z', re.DOTALL)
_PLURAL_FORMS = re.compile(r"\bplural\s*=\s*([^;]{1,500})")
_NUMBERS, _MOST_FORMS = range(201), 6  # numbers whose plural forms are compared, and forms of a language
_NUMBER_PLACEHOLDER = re.compile(r"%.*[diun]|%L?\d+|%\((?:n|num|number|count|total)\w*\)s|\{.*\}")
# An accelerator is `(_F)` after the text, or a mark in a word; placeholders, entities and addresses have none.
_ACCELERATOR = re.compile(
    r"%\(\w*\)|\{[^{}]*\}|<[^<>]*>|&#?\w+;|\$\w+|\S+(?:://|@)\S+"
    r"|(?P<after>\s*\([_&]\w\))|(?<!\w)(?P<before>[^\W_]*)[_&](?P<rest>[^\W_]+)(?!\w)"
)
_NO_LINE_ENDS = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), " ")  # only polib splits at them
_LONGEST_MENU = 80  # characters of a text with an accelerator
_SEPARATORS = ",;\t|"
_SAMPLE = 4096  # characters from which the separator is inferred
_MOST_COLUMNS = 12  # names in a message
_COLUMNS: dict[str, list[str]] = TABLES["columns"]  # words in the names of columns
_KEY, _LANGUAGE, _OTHER = 2, 3, 4  # roles beside the two sides


# ---- PO ----


def read_po(data: bytes, name: str) -> Document:
    """Read the translated entries of a PO file, with a pair for each plural form; fuzzy entries are counted.

    Raises:
        ValueError: The encoding is not the one of the header, or polib cannot read it; the message has the line.
    """
    import polib

    if data.count(b"\nmsgid ") > MOST_SEGMENTS:
        raise ValueError(f"has more than {MOST_SEGMENTS:,} entries. Split it.")
    text = _po_text(data, name)
    if not re.search(r"^msgid\s", text, re.MULTILINE):
        raise ValueError("has no line that begins with `msgid`: it is not a PO file.")
    for number, line in enumerate(text.split("\n"), start=1):
        if not _PO_LINE.fullmatch(line):
            raise ValueError(_BROKEN_PO.format(f"line {number}"))
    try:
        # polib takes a text without a line end for a file name.
        file = polib.pofile(text.translate(_NO_LINE_ENDS) + "\n")
    except (OSError, UnicodeError, IndexError, KeyError, AttributeError) as error:
        named = re.search(r"line \d+", str(error))
        raise ValueError(_BROKEN_PO.format(named[0] if named else one_line(error))) from error
    begins = list(accumulate((len(line) + 1 for line in data.split(b"\n")), initial=0))
    forms = _numbers_of_forms(file.metadata.get("Plural-Forms", ""))
    pairs: list[SegmentPair] = []
    lines: dict[str, list[int]] = {
        "not checked, as they are fuzzy": [],
        "not translated yet": [],
        "not checked, as their source is a key": [],
    }
    for entry in file:
        if entry.obsolete or not entry.msgid or _NO_TEXT.match(entry.msgid):
            continue
        line = max(1, entry.linenum)
        if entry.fuzzy:
            lines["not checked, as they are fuzzy"].append(line)
        elif not any(map(str.strip, (entry.msgstr, *entry.msgstr_plural.values()))):
            lines["not translated yet"].append(line)
        elif (source_text := _source_text(entry)) is None:
            lines["not checked, as their source is a key"].append(line)
        else:
            entry.msgid = source_text
            at = begins[min(line, len(begins)) - 1]
            for key, source, target in _texts(entry, forms):
                # such as "." for "th" or "-" for "None"
                is_sign = bool(target.strip()) and not (has_words(target) or compare_placeholders(source, target))
                if not is_sign and (segment := _po_side(source, target, line, key, at)):
                    pairs.append(SegmentPair(segment, _po_side(target, source, line, key, at)))
    total = len(file) - len(file.obsolete_entries())
    notices = (notice for problem in lines for notice in notices_on(problem, lines[problem], total, "entries"))
    languages = (language_code(file.metadata.get(field)) for field in ("X-Source-Language", "Language"))
    return Document(name, data, tuple(pairs), (), tuple(notices), (next(languages), next(languages)))


def note_po(data: bytes, notes: Notes) -> bytes:
    """Write notes as comments (`# attncal: ...`) before the entries."""
    end, charset = line_end(data), _charset(data)
    return inserted(
        data, [(at, b"".join(b"# " + line.encode(charset, "replace") + end for line in lines)) for at, lines in notes]
    )


def _charset(data: bytes) -> str:
    head = _CHARSET.search(data[:8192])
    name = head[1].decode("ascii", "replace") if head else "utf-8"
    return "utf-8" if name == "CHARSET" else name  # the placeholder of a template


def _po_text(data: bytes, name: str) -> str:
    charset = _charset(data)
    if charset.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return text_of(data, name)
    try:
        return data.decode(charset)
    except (LookupError, UnicodeError) as error:
        raise ValueError(
            f"has the charset {charset} in its header, but is not valid {charset}: convert it with `msgconv -t UTF-8`."
        ) from error


def _source_text(entry) -> str | None:
    """Return the source of an entry; if it is a key, the text that a comment names, or None.

    A translation that has the key in it keeps a name (`apt.conf`).
    """
    if not _MESSAGE_KEY.fullmatch(entry.msgid) or not entry.msgstr or entry.msgid in entry.msgstr:
        return entry.msgid
    default = _DEFAULT_TEXT.match(entry.comment)
    return default and default[1]


def _numbers_of_forms(header: str) -> dict[int, list[int]]:
    """Map each plural form to the numbers that take it, by the formula of the header; empty without one."""
    formula = _PLURAL_FORMS.search(header)
    forms: list[int] = []
    with suppress(ValueError, ArithmeticError):
        forms = list(map(gettext.c2py(formula[1].strip()), _NUMBERS)) if formula else []
    kinds = set(forms) if len(set(forms)) <= _MOST_FORMS else ()
    return {form: [number for number in _NUMBERS if forms[number] == form] for form in kinds}


def _texts(entry, forms: Mapping[int, list[int]]) -> Iterator[tuple[str, str, str]]:
    """Yield key, source and translation for each form of an entry."""
    context = plain(entry.msgctxt or "")
    if not entry.msgid_plural:
        yield context, entry.msgid, entry.msgstr
        return
    for form in sorted({*forms, *entry.msgstr_plural}):
        text = entry.msgstr_plural.get(form, "")
        numbers = forms.get(form, [1] if form == 0 and len(entry.msgstr_plural) > 1 else [2, 3])
        yield f"{context} msgstr[{form}]".strip(), _plural_source(entry, text, numbers), text


def _plural_source(entry, text: str, numbers: list[int]) -> str:
    """Return the source of a plural form: `msgid` for the form of 1 only, or else `msgid_plural`.

    A singular form may have a placeholder of the number that `msgid` lacks. A form of one number, or of 0 and 1, may
    do without it.
    """
    sources = [entry.msgid, entry.msgid_plural] if 1 in numbers and 2 not in numbers else [entry.msgid_plural]
    for source in sources if text.strip() else ():
        lost, new = compare_placeholders(source, text) or (None, None)
        if lost and not new and (len(numbers) == 1 or numbers == [0, 1]) and _NUMBER_PLACEHOLDER.fullmatch(lost[0]):
            (begin, end), digits = lost[1], str(numbers[-1])
            source = f"{source[:begin]}{digits if digits in text else ''}{source[end:]}"
            lost, new = compare_placeholders(source, text) or (None, None)
        if not (lost or new):
            return source
    return sources[0]


def _po_side(text: str, partner: str, line: int, key: str, at: int) -> Segment | None:
    """Return the segment of a text, without its accelerator; a word that is also in `partner` is an identifier."""
    if not has_words(text):
        return None
    menu = text
    marks = [
        mark
        for mark in (_ACCELERATOR.finditer(text) if len(text) < _LONGEST_MENU else ())
        if mark["after"] or (mark["rest"] and not (mark["before"] and mark[0] in partner))
    ]
    if len(marks) == 1:
        menu = f"{text[: marks[0].start()]}{marks[0]['before'] or ''}{marks[0]['rest'] or ''}{text[marks[0].end() :]}"
    return Segment(plain(without_tags(menu)), "entry", line, key, text, at)


# ---- CSV and TSV ----


def read_csv(data: bytes, name: str, columns: str | None = None) -> Document:
    """Read a table whose separator is inferred; see `_read_table`."""
    text = _table_text(data, name)
    head = text[:_SAMPLE].rpartition("\n")[0] or text[:_SAMPLE]
    separator = max(_SEPARATORS, key=head.partition("\n")[0].count)
    with suppress(csv.Error):
        sniffed = csv.Sniffer().sniff(head, _SEPARATORS).delimiter
        separator = sniffed if sniffed in head.partition("\n")[0] else separator
    return _read_table(name, data, list(_rows(text, separator, csv.QUOTE_MINIMAL)), columns)


def read_tsv(data: bytes, name: str, columns: str | None = None) -> Document:
    """Read a table with tabs; quotes surround fields if all rows then have the same number; see `_read_table`."""
    text = _table_text(data, name)
    with suppress(ValueError):
        rows = list(_rows(text, "\t", csv.QUOTE_MINIMAL))
        if len({len(row) for _, row in rows}) == 1:
            return _read_table(name, data, rows, columns)
    return _read_table(name, data, list(_rows(text, "\t", csv.QUOTE_NONE)), columns)


def _table_text(data: bytes, name: str) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark, which spreadsheets write."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not data.startswith(codecs.BOM_UTF32_LE):
        return text_of(data.decode("utf-16").encode(), name)
    return text_of(data, name)


def _rows(text: str, separator: str, quoting: Literal[0, 3]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the cells of each row that is not empty.

    Raises:
        ValueError: A field cannot be read, or there are too many rows.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting, strict=True)
    begin = number = 1
    try:
        for row in rows:
            if any(map(str.strip, row)):
                check_segments(number, "rows")
                yield begin, row
                number += 1
            begin = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(f"line {begin} cannot be read: {error}.") from error


def _read_table(name: str, data: bytes, rows: list[tuple[int, list[str]]], columns: str | None) -> Document:
    """Read pairs from two columns: `columns`, the columns named by the first row, or the only two.

    Raises:
        ValueError: The columns are ambiguous, or a row has too few.
    """
    if not rows:
        return Document(name, data)
    head = [plain(cell) for cell in rows[0][1]]
    roles = [_role(cell) for cell in head]
    source, target = _columns(columns, head, roles)
    keys = (place for place, (role, _) in enumerate(roles) if role == _KEY and place not in (source, target))
    key = next(keys, None)
    has_names = any(role != _OTHER for role, _ in roles) or bool(columns and re.search(r"[^\d\s,]", columns))
    pairs: list[SegmentPair] = []
    for line, row in rows[has_names:]:
        if len(row) <= max(source, target):
            raise ValueError(f"line {line} has {len(row)} columns, and the translation is column {target + 1}.")
        of_key = plain(row[key]) if key is not None and key < len(row) else ""
        cells = (plain(row[source]), plain(row[target]))
        if any(cells):
            pairs.append(SegmentPair(*(Segment(text, "row", line, of_key) if text else None for text in cells)))
    shown = [head[place] if has_names else str(place + 1) for place in (source, target)]
    notice = f"columns: {shown[0]} -> {shown[1]}" + (f" (key: {head[key]})" if key is not None else "")
    return Document(name, data, tuple(pairs), (), (notice,), (roles[source][1], roles[target][1]))


def _role(name: str) -> tuple[int, str | None]:
    """Return the role of a column by its name (0 source, 1 target, `_KEY`, ...), and its language."""
    if name.lower().replace("_", " ") in _COLUMNS["key"]:
        return _KEY, None
    if language := _language(name):
        return _LANGUAGE, language
    words = [word for word in re.split(r"[\s_:.()\[\]/]+", name) if word and word.lower() not in _COLUMNS["filler"]]
    for role, side in enumerate(("source", "target")):
        rest = " ".join(word for word in words if word.lower() not in _COLUMNS[side])
        if len(rest) < len(" ".join(words)) and (not rest or _language(rest)):
            return role, _language(rest)
    language = _language(" ".join(words)) or _language(name.partition("(")[0].strip())
    return (_LANGUAGE if language else _OTHER), language


def _language(name: str) -> str | None:
    """Return the code of a language by its code or its name; languages without a code of two letters are not known."""
    import langcodes

    if code := language_code(name):
        return code
    with suppress(LookupError):
        code = str(langcodes.find(name)) if len(name) > 1 else ""
        return code if len(code) == 2 else None
    return None


def _columns(wanted: str | None, head: Sequence[str], roles: Sequence[tuple[int, str | None]]) -> list[int]:
    """Return the columns of source and translation: the wanted ones by name or number, or those with these roles."""
    if wanted:
        names = [cell.lower() for cell in head]
        items = [item.strip().lower() for item in wanted.split(",")]
        chosen = [names.index(one) if one in names else int(one) - 1 if one.isdecimal() else -1 for one in items]
    elif len(head) == 2 and all(role == _OTHER for role, _ in roles):
        return [0, 1]
    else:
        places = [[place for place, (role, _) in enumerate(roles) if role == side] for side in range(_OTHER)]
        sources, targets, _, languages = places
        chosen = [*sources, *([] if sources and targets else languages), *targets]
        chosen = chosen if max(len(sources), len(targets)) < 2 else []  # one side may be named by its language
    if len(set(chosen)) != 2 or not all(0 <= place < len(head) for place in chosen):
        raise ValueError(
            f"has the columns {', '.join(head[:_MOST_COLUMNS])}. Name source and translation by --columns, as names "
            "or numbers from 1: --columns 2,3."
        )
    return chosen
