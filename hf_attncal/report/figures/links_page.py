"""A page of sentence pairs with the links of two aligners."""

from collections.abc import Collection, Sequence
from pathlib import Path

from hf_attncal.data.pharaoh import Link
from hf_attncal.files import whole_file

from .templates import FOLDER, environment

_SIGNS = {"first": "◧", "second": "◨", "both": "■"}


def write_links_page(
    names: tuple[str, str],
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    links: tuple[Sequence[Collection[Link]], Sequence[Collection[Link]]],
    rows: Sequence[int],
    count: int,
    path: str | Path,
) -> None:
    """Write an HTML page that needs no other file and no script; it is whole or as it was.

    Args:
        names: of the aligners.
        pairs: source and target words of each sentence pair.
        links: of both aligners, of each pair.
        rows: pairs that are shown, from 0, in this order.
        count: pairs in which they differ.
        path: of the file.

    Raises:
        OSError: see `hf_attncal.files.writing`.
    """
    shown = [
        {
            "number": row + 1,
            "source": pairs[row][0],
            "target": pairs[row][1],
            "kinds": _kinds(set(links[0][row]), set(links[1][row])),
        }
        for row in rows
    ]
    page = (
        environment()
        .get_template("links.html.jinja")
        .render(
            first=names[0],
            second=names[1],
            rows=shown,
            count=count,
            signs=_SIGNS,
            style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        )
    )
    with whole_file(path) as partial:
        partial.write_bytes(page.encode("utf-8", "replace"))  # half of a character is no text


def _kinds(first: set[Link], second: set[Link]) -> dict[Link, str]:
    return dict.fromkeys(first, "first") | dict.fromkeys(second, "second") | dict.fromkeys(first & second, "both")
