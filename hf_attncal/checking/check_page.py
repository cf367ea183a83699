"""The page of `attncal check --format html`: each line with what was left out and what was made up."""

from html import escape

from .checker import PairVerdict, marked_text

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}
body{color:#222;background:#fff}
article{border-top:1px solid #ccc;padding:.6em 0}
p{margin:.2em 0}
del{background:#fbd5d5;text-decoration:line-through;border-radius:.2em}
ins{background:#fbe8b0;text-decoration:none;border-radius:.2em}
small{color:#555}
b{color:#a30000}
@media(prefers-color-scheme:dark){body{color:#e4e6e9;background:#15171a}article{border-color:#454a51}
del{background:#6b2a2a;color:inherit}ins{background:#5c4a10;color:inherit}small{color:#a2a7ae}b{color:#ff9a9a}}
"""
PAGE_FOOT = "</body>\n</html>"
_TOLD = {
    "left_out": "left out",
    "made_up": "made up",
    "repeats": "repeats itself",
    "detached": "no translation",
    "changed": "changed",
}


def check_page_head(source: str, target: str) -> str:
    """Return the beginning of a page, which needs no other file; `source` and `target` are the names of the texts."""
    title = f"{escape(source)} and {escape(target)}, checked"
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        "<p><del>left out</del> of the source, <ins>made up</ins> in the target; the probability of each, in bold "
        "where it is above its alarm.</p>"
    )


def page_line(number: int, verdict: PairVerdict) -> str:
    """Return a line of the page, in one line of HTML; `number` is that of the line in its file, from 1."""
    scores = ", ".join(_score(verdict, name) for name in _TOLD)
    names = "".join(f"; {escape(name)}" for name in verdict.names)
    source = marked_text(verdict.source, verdict.left_out_spans, "<del>", "</del>", escape)
    target = marked_text(verdict.target, verdict.made_up_spans, "<ins>", "</ins>", escape)
    text = f"<article><small>{number}: {scores}{names}</small><p>{source}</p><p>{target}</p></article>"
    return text.replace("\r", " ").replace("\n", " ")


def _score(verdict: PairVerdict, name: str) -> str:
    text = f"{_TOLD[name]} {getattr(verdict, name):.2f}"
    return f"<b>{text}</b>" if name in verdict.flagged else text
