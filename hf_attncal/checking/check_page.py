"""Page of a check for a reviewer: findings with marks and reasons; texts without a finding are folded.

It is one file without scripts: filters and reasons are CSS.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

from markupsafe import Markup

from hf_attncal.drawing.page import PAGE_FOOT, page_beginning

from .evidence import Both
from .verdicts import FlaggedSpan, kind_id, marked_text

_HELD = 1 << 24  # bytes of a page that stay in memory
_FOLD = 200  # clean texts per fold
_LEAD = (
    "<del>Omission</del> in the source, <ins>addition</ins> in the translation: point at a mark, or go to it with the "
    "Tab key, to see why. Percentages are probabilities. Texts without a finding are folded."
)


class PageRow(NamedTuple):
    """A pair of texts on the page.

    Args:
        place: Number of the line, or positions in the files.
        texts: Source and target.
        marks: Marked spans of both, in order. Default: none.
        faults: Text, probability and id ("" for a line) of each fault; () for a clean pair. Default: ().
        kinds: Kinds of the faults, for the filter. Default: ().
    """

    place: str
    texts: Both[str]
    marks: Both[Sequence[FlaggedSpan]] = ((), ())
    faults: Sequence[tuple[str, float, str]] = ()
    kinds: Sequence[str] = ()


def check_page(rows: Iterable[PageRow], title: str, noun: str, more: str = "") -> Iterator[str]:
    """Yield the lines of a page.

    The counts are at the top, so all lines are made before the first is yielded.

    Args:
        rows: Pairs of texts, in order.
        title: Title of the page.
        noun: Name of a pair: "line" or "segment".
        more: Further text below the title. Default: "".
    """
    counts: Counter[str] = Counter()
    total = 0
    with SpooledTemporaryFile(_HELD, "w+", encoding="utf-8", newline="\n") as body:
        for flagged, group in groupby(rows, key=lambda row: bool(row.faults)):
            for row in group if flagged else ():
                body.write(f"{_article(row)}\n")
                counts.update({"all": 1, **dict.fromkeys(row.kinds, 1)})
                total += 1
            for _, numbered in () if flagged else groupby(enumerate(group), key=lambda pair: pair[0] // _FOLD):
                fold = [row for _, row in numbered]
                body.write(f"{_fold(fold, noun)}\n")
                total += len(fold)
        yield page_beginning(title, Markup(f"{_LEAD} {escape(more)}".rstrip()), "checked")
        yield _filters(counts, f"{counts['all']:,} of {total:,} {noun}s have a finding.")
        body.seek(0)
        for line in body:
            yield line.rstrip("\n")
    yield PAGE_FOOT


def _filters(counts: Counter[str], heading: str) -> str:
    """Return the filter buttons of the page, with the number of pairs of each kind, and their style."""
    kinds = [("all", "all"), *((kind_id(kind), kind) for kind in counts if kind != "all")]
    buttons = "".join(
        f'<input type="radio" name="kind" id="kind-{name}"{" checked" if name == "all" else ""}>'
        f'<label for="kind-{name}">{escape(kind)} <b>{counts["all" if name == "all" else kind]:,}</b></label>'
        for name, kind in kinds
    )
    style = "".join(
        f".checked:has(#kind-{name}:checked) > :is(article:not(.{name}), details) {{ display: none; }}"
        for name, _ in kinds[1:]
    )
    return f'<style>{style}</style><fieldset class="kinds"><legend>{heading}</legend>{buttons}</fieldset>'


def _article(row: PageRow) -> str:
    faults = "".join(
        f"<h2><small>{escape(row.place)}</small> {escape(text)} <small>{100 * probability:.0f} %"
        f"{name and f' · <code>{name}</code>'}</small></h2>"
        for text, probability, name in row.faults
    )
    source, target = (
        _marked(text, spans, tag) for text, spans, tag in zip(row.texts, row.marks, ("del", "ins"), strict=True)
    )
    classes, place = " ".join(map(kind_id, row.kinds)), escape(row.place.split()[0])
    return _one_line(f'<article class="{classes}" id="line-{place}">{faults}<p>{source}</p><p>{target}</p></article>')


def _fold(rows: Sequence[PageRow], noun: str) -> str:
    """Return adjacent clean pairs, folded."""
    first, last = rows[0].place, rows[-1].place
    heading = f"{noun} {first}" if len(rows) == 1 else f"{len(rows)} {noun}s, {first} to {last}"
    lines = "\n".join(
        _one_line(
            f"<article><small>{escape(row.place)}</small><p>{escape(row.texts[0])}</p><p>{escape(row.texts[1])}</p>"
            "</article>"
        )
        for row in rows
    )
    return f"<details><summary>{escape(heading)}: no finding</summary>\n{lines}\n</details>"


def _marked(text: str, spans: Sequence[FlaggedSpan], tag: str) -> str:
    why = [escape(f"{span.reason}, {100 * span.probability:.0f} %") for span in spans]
    return marked_text(text, spans, [f'<{tag} tabindex="0" data-why="{one}">' for one in why], f"</{tag}>", escape)


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
