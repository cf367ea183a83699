"""The page of `attncal check --format html`, for a reviewer: flagged lines in words, with marks; others folded.

It needs no other file and no script: filters and reasons are CSS.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from tempfile import SpooledTemporaryFile

from markupsafe import Markup

from hf_attncal.drawing.page import PAGE_FOOT, page_beginning

from .verdicts import VERDICTS, FlaggedSpan, PairVerdict, marked_text

_TOLD = {
    "left_out": "left out",
    "made_up": "made up",
    "repeats": "repeats itself",
    "detached": "no translation",
    "changed": "changed",
}
_QUOTED = 48  # characters
_HELD = 1 << 24  # bytes of a page before it waits in a file
_FOLD = 200  # clean lines


def check_page(verdicts: Iterable[PairVerdict], source: str, target: str) -> Iterator[str]:
    """Yield the lines of a page; `source` and `target` are the names of the texts.

    What is counted stands on top, so all lines are made before the first is given.
    """
    counts: Counter[str] = Counter()
    with SpooledTemporaryFile(_HELD, "w+", encoding="utf-8", newline="\n") as body:
        for flagged, lines in groupby(verdicts, key=lambda verdict: bool(verdict.flagged)):
            for written in map(_article, lines) if flagged else _folds(lines):
                body.write(f"{written[0]}\n")
                counts.update(written[1])
        lead = Markup(
            "<del>Left out</del> of the source, <ins>made up</ins> in the target: point at a mark, or go to it with "
            "the Tab key, to see why. A percentage says how sure it is. Lines without a finding are folded."
        )
        yield page_beginning(f"{source} and {target}, checked", lead, "checked")
        yield _filters(counts)
        body.seek(0)
        for line in body:
            yield line.rstrip("\n")
    yield PAGE_FOOT


def _filters(counts: Counter) -> str:
    """Return how many lines there are of each kind, each a button that shows these alone."""
    kinds = [("all", "all findings", counts["flagged"]), *((name, _TOLD[name], counts[name]) for name in VERDICTS)]
    buttons = "".join(
        f'<input type="radio" name="kind" id="kind-{name}"{" checked" if name == "all" else ""}>'
        f'<label for="kind-{name}">{told} <b>{count:,}</b></label>'
        for name, told, count in kinds
        if count or name == "all"
    )
    lines = counts["flagged"] + counts["clean"]
    told = f"{counts['flagged']:,} of {lines:,} lines have a finding."
    return f'<fieldset class="kinds"><legend>{told}</legend>{buttons}</fieldset>'


def _article(verdict: PairVerdict) -> tuple[str, list[str]]:
    head = f"{escape(verdict_in_words(verdict))} <small>{100 * verdict.wrong:.0f} %</small>"
    source = _marked(verdict.source, verdict.left_out_spans, "del")
    target = _marked(verdict.target, verdict.made_up_spans, "ins")
    text = (
        f'<article class="{" ".join(verdict.flagged)}" id="line-{verdict.line}"><h2><small>{verdict.line}</small> '
        f"{head}</h2><p>{source}</p><p>{target}</p></article>"
    )
    return _one_line(text), ["flagged", *verdict.flagged]


def _folds(lines: Iterable[PairVerdict]) -> Iterator[tuple[str, list[str]]]:
    """Yield clean lines that follow each other as what can be unfolded, `_FOLD` at most."""
    for _, numbered in groupby(enumerate(lines), key=lambda pair: pair[0] // _FOLD):
        fold = [verdict for _, verdict in numbered]
        first, last = fold[0].line, fold[-1].line
        told = f"line {first}" if first == last else f"{len(fold)} lines, {first} to {last}"
        rows = "\n".join(
            _one_line(
                f"<article><small>{verdict.line}</small><p>{escape(verdict.source)}</p><p>{escape(verdict.target)}</p>"
                "</article>"
            )
            for verdict in fold
        )
        yield f"<details><summary>{told}: no finding</summary>\n{rows}\n</details>", ["clean"] * len(fold)


def _marked(text: str, spans: Sequence[FlaggedSpan], tag: str) -> str:
    why = [escape(f"{span.reason}, {100 * span.probability:.0f} %") for span in spans]
    return marked_text(text, spans, [f'<{tag} tabindex="0" data-why="{one}">' for one in why], f"</{tag}>", escape)


def verdict_in_words(verdict: PairVerdict) -> str:
    """Return what is wrong with a line that is flagged, in one line of words."""
    detached = "detached" in verdict.flagged
    told = ["no translation of this source"] * detached + [*verdict.names]
    if not detached:
        for name, spans, text in (
            ("left_out", verdict.left_out_spans, verdict.source),
            ("made_up", verdict.made_up_spans, verdict.target),
        ):
            if spans:
                first = text[slice(*spans[0].characters)]
                quoted = (
                    first if len(first) <= _QUOTED else f"{first[:_QUOTED].rpartition(' ')[0] or first[:_QUOTED]} …"
                )
                more = f" and {len(spans) - 1} more" if len(spans) > 1 else ""
                told.append(f"{_TOLD[name]}: “{quoted}”{more}")
        if "repeats" in verdict.flagged:
            told.append("the target repeats itself")
    return "; ".join(told) or ", ".join(_TOLD[name] for name in verdict.flagged)


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
