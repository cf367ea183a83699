"""Pages and their text: the stylesheet and templates of all pages, widths of text, and tables for terminals."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_FOLDER = Path(__file__).parent
PAGE_FOOT = "</main>\n</body>\n</html>"
# Widths of characters; those of East Asia are as wide as high, other ones that are not named as `_OTHER`.
_WIDTHS = {"ijlI.,:;'|!()[]/ft’": 0.4, "mwMW@%—…ЖШЩЮЫжшщюы": 1.0}
_CHARACTERS = {character: width for characters, width in _WIDTHS.items() for character in characters}
_CAPITAL, _OTHER = 0.75, 0.63
# What HTML does not allow: control characters, halves of characters and what Unicode reserves.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def text_width(text: str) -> float:
    """Estimate how wide a text is in a usual proportional font, in em: rather too much than too little."""
    return sum(map(_character_width, text))


@cache
def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return _CHARACTERS.get(character, _CAPITAL if character.isupper() else _OTHER)


def shown(text: str) -> str:
    """Return the text with a replacement character for what no page may hold: control characters and the like."""
    return _NOT_TEXT.sub("\ufffd", text)


def text_table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: its headings, then its rows; the first column is aligned left, numbers right."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()


# ---- pages ----


def environment(folder: Path = _FOLDER) -> "Environment":
    """Return the templates of a folder, which can import those of this one; everything they print is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # not needed for tables in a terminal

    templates = Environment(
        loader=FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["style"] = (_FOLDER / "page.css").read_text(encoding="utf-8")
    return templates


def page_beginning(title: str, lead: "str | Markup", kind: str) -> str:
    """Return the beginning of a page that is written line by line, and that `PAGE_FOOT` ends.

    It needs no other file and no script.

    Args:
        title: its title and heading.
        lead: what stands below the heading; a `Markup` is HTML, other text is escaped.
        kind: class of the lines, for the stylesheet.
    """
    lead = lead if hasattr(lead, "__html__") else shown(lead)
    return str(_frame().beginning(shown(title), lead, kind)).strip()


@cache
def _frame() -> Any:
    return environment().get_template("frame.html.jinja").module
