"""What all pages have in common: their head, the one stylesheet, and how their templates are read."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hf_attncal.drawing.page_text import shown

_FOLDER = Path(__file__).parent
PAGE_FOOT = "</main>\n</body>\n</html>"


def environment(folder: Path = _FOLDER) -> Environment:
    """Return the templates of a folder, which can import those of this one; everything they print is escaped."""
    found = Environment(
        loader=FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["style"] = (_FOLDER / "page.css").read_text(encoding="utf-8")
    return found


def page_beginning(title: str, lead: str | Markup, kind: str) -> str:
    """Return the beginning of a page that is written line by line, and that `PAGE_FOOT` ends.

    It needs no other file and no script.

    Args:
        title: its title and heading.
        lead: what stands below the heading; a `Markup` is HTML, other text is escaped.
        kind: class of the lines, for the stylesheet.
    """
    lead = lead if isinstance(lead, Markup) else shown(lead)
    return str(_frame().beginning(shown(title), lead, kind)).strip()


@cache
def _frame():
    return environment().get_template("frame.html.jinja").module
