"""A page of sentence pairs with the links of two aligners."""

from pathlib import Path

from hf_attncal.alignment.comparison import AlignerComparison, differing_lines
from hf_attncal.data.pharaoh import Link
from hf_attncal.files import whole_file

from .templates import FOLDER, environment

_SIGNS = {"first": "◧", "second": "◨", "both": "■"}


def write_links_page(compared: AlignerComparison, path: str | Path, most: int = 50) -> None:
    """Write an HTML page of the pairs in which the first two aligners differ most.

    It needs no other file and no script, and is whole or as it was.

    Args:
        compared: their comparison.
        path: of the file.
        most: pairs on the page.

    Raises:
        OSError: see `hf_attncal.files.writing`.
    """
    (first, second), pairs = list(compared.links)[:2], compared.pairs
    links = compared.links[first], compared.links[second]
    rows = differing_lines(*links)
    shown = [
        {
            "number": row + 1,
            "source": pairs[row][0],
            "target": pairs[row][1],
            "kinds": _kinds(set(links[0][row]), set(links[1][row])),
        }
        for row in rows[:most]
    ]
    page = (
        environment()
        .get_template("links.html.jinja")
        .render(
            first=first,
            second=second,
            rows=shown,
            count=len(rows),
            signs=_SIGNS,
            style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        )
    )
    with whole_file(path) as partial:
        partial.write_bytes(page.encode("utf-8", "replace"))  # half of a character is no text


def _kinds(first: set[Link], second: set[Link]) -> dict[Link, str]:
    return dict.fromkeys(first, "first") | dict.fromkeys(second, "second") | dict.fromkeys(first & second, "both")
