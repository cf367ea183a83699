"""HTML pages (stylesheet and templates), widths of text, and tables for terminals."""

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
# Widths of characters in em; wide East Asian characters are 1, all others `_OTHER`.
_WIDTHS = {"ijlI.,:;'|!()[]/ft’": 0.4, "mwMW@%—…ЖШЩЮЫжшщюы": 1.0}
_CHARACTERS = {character: width for characters, width in _WIDTHS.items() for character in characters}
_CAPITAL, _OTHER = 0.75, 0.63
# Characters that HTML does not allow: control characters, surrogates and noncharacters.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def text_width(text: str) -> float:
    """Return an upper estimate of the width of a text in a proportional font, in em."""
    return sum(map(_character_width, text))


@cache
def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return _CHARACTERS.get(character, _CAPITAL if character.isupper() else _OTHER)


def shown(text: str) -> str:
    """Return the text with U+FFFD in place of characters that HTML does not allow."""
    return _NOT_TEXT.sub("\ufffd", text)


def text_table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, headings first; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()


# ---- pages ----


def environment(folder: Path = _FOLDER) -> "Environment":
    """Return the templates of a folder, with autoescape; they can import the templates of `drawing`."""
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
    """Return the beginning of a self-contained page that ends with `PAGE_FOOT`.

    Args:
        title: title and heading.
        lead: text below the heading; a `Markup` is HTML, other text is escaped.
        kind: CSS class of the lines.
    """
    lead = lead if hasattr(lead, "__html__") else shown(lead)
    return str(_frame().beginning(shown(title), lead, kind)).strip()


@cache
def _frame() -> Any:
    return environment().get_template("frame.html.jinja").module
