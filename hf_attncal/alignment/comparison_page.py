"""A page of sentence pairs with the links of two aligners."""

from pathlib import Path
from types import SimpleNamespace

from hf_attncal.data.pharaoh import Link
from hf_attncal.io.files import whole_file

from .comparison import AlignerComparison, differing_lines
from .pictures import PairPicture, place, templates


def write_links_page(compared: AlignerComparison, path: str | Path, most: int = 50) -> None:
    """Write an HTML page of the pairs in which the first two aligners differ most.

    It needs no other file and no script, and is whole or as it was.

    Args:
        compared: their comparison.
        path: of the file.
        most: pairs on the page.

    Raises:
        OSError: see `hf_attncal.io.files.writing`.
    """
    (first, second), pairs = list(compared.links)[:2], compared.pairs
    links = compared.links[first], compared.links[second]
    rows = differing_lines(*links)
    shown = []
    for row in rows[:most]:
        kinds = _kinds(set(links[0][row]), set(links[1][row]))
        shown.append({"number": row + 1, "kinds": kinds, "picture": _picture(*pairs[row], kinds)})
    names = {"first": f"{first} alone", "second": f"{second} alone", "both": "both"}
    page = templates().get_template("comparison.html.jinja")
    text = page.render(first=first, second=second, names=names, rows=shown, count=len(rows))
    with whole_file(path, option="--page") as partial:
        partial.write_bytes(text.encode("utf-8", "replace"))  # half of a character is no text


def _kinds(first: set[Link], second: set[Link]) -> dict[Link, str]:
    return dict.fromkeys(first, "first") | dict.fromkeys(second, "second") | dict.fromkeys(first & second, "both")


def _picture(source, target, kinds: dict[Link, str]) -> PairPicture:
    links = sorted(kinds)
    return place(
        SimpleNamespace(
            source=source, target=target, links=links, scores=[1.0] * len(links), source_null=None, target_null=None
        )
    )
