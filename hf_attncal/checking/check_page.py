"""The page of `attncal check --format html`: each line with what was left out and what was made up."""

from html import escape

from markupsafe import Markup

from hf_attncal.drawing.page import PAGE_FOOT as PAGE_FOOT
from hf_attncal.drawing.page import page_beginning

from .checker import PairVerdict, marked_text

_TOLD = {
    "wrong": "wrong",
    "left_out": "left out",
    "made_up": "made up",
    "repeats": "repeats itself",
    "detached": "no translation",
    "changed": "changed",
}


def check_page_head(source: str, target: str) -> str:
    """Return the beginning of a page, which needs no other file; `source` and `target` are the names of the texts."""
    lead = Markup(
        "<del>left out</del> of the source, <ins>made up</ins> in the target; how probable it is that anything "
        "is wrong, and each cause, in bold where the line is flagged for it."
    )
    return page_beginning(f"{source} and {target}, checked", lead, "checked")


def page_line(verdict: PairVerdict) -> str:
    """Return a line of the page, in one line of HTML."""
    scores = ", ".join(_score(verdict, name) for name in _TOLD)
    names = "".join(f"; {escape(name)}" for name in verdict.names)
    source = marked_text(verdict.source, verdict.left_out_spans, "<del>", "</del>", escape)
    target = marked_text(verdict.target, verdict.made_up_spans, "<ins>", "</ins>", escape)
    text = f"<article><small>{verdict.line}: {scores}{names}</small><p>{source}</p><p>{target}</p></article>"
    return text.replace("\r", " ").replace("\n", " ")


def _score(verdict: PairVerdict, name: str) -> str:
    text = f"{_TOLD[name]} {getattr(verdict, name):.2f}"
    return f"<b>{text}</b>" if name in verdict.flagged else text
