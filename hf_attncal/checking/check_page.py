"""Page of a check for a reviewer: findings with marks and reasons; texts without a finding are folded.

It is one file without scripts: filters and reasons are CSS.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from hf_attncal.drawing.page import PAGE_FOOT, environment, page_beginning

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
    parts, counts, total = _parts(), Counter[str](), 0
    with SpooledTemporaryFile(_HELD, "w+", encoding="utf-8", newline="\n") as body:
        for flagged, group in groupby(rows, key=lambda row: bool(row.faults)):
            size = 1 if flagged else _FOLD
            for _, numbered in groupby(enumerate(group), key=lambda pair: pair[0] // size):
                some = [row for _, row in numbered]
                body.write(_one_line(parts.article(some[0]).strip()) if flagged else parts.fold(some, noun).strip())
                body.write("\n")
                counts.update(kind for row in some for kind in ("all" if flagged else "", *dict.fromkeys(row.kinds)))
                total += len(some)
        yield page_beginning(title, Markup(f"{_LEAD} {escape(more)}".rstrip()), "checked")
        kinds = ["all", *(kind for kind in counts if kind not in ("all", ""))]
        yield _one_line(parts.filters(kinds, counts, counts["all"], total, noun).strip())
        body.seek(0)
        for line in body:
            yield line.rstrip("\n")
    yield PAGE_FOOT


@cache
def _parts() -> Any:
    """Return the macros of the template."""
    templates = environment(Path(__file__).parent)
    templates.filters |= {"id": kind_id, "percent": _percent, "marked": _marked, "line": _one_line}
    return templates.get_template("check_page.html.jinja").module


def _percent(probability: float) -> str:
    return f"{100 * probability:.0f} %"


def _marked(text: str, spans: Sequence[FlaggedSpan], tag: str) -> Markup:
    begin = Markup('<{} tabindex="0" data-why="{}, {}">')
    marks = [begin.format(tag, span.reason, _percent(span.probability)) for span in spans]
    return Markup(marked_text(text, spans, marks, f"</{tag}>", escape))


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
