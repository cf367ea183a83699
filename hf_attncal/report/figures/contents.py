"""Define the contents of a report, which `report/` fills and the writers of pages and files read."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .pair_view import PairView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float | None


@dataclass(frozen=True)
class Chart:
    """A figure or a table of numbers, with what it needs to be understood alone.

    Args:
        name: stem of its files, letters, digits and `_`.
        title: what is shown, in a few words.
        caption: how to read it and what to beware of, in plain words; sentences.
        source: paper and figure, table or equation that it follows; "" for none.
        columns: names of the columns of its table, with units.
        rows: its numbers, a cell for each column; None where there is nothing to say.
        draw: makes the figure; None where the table is all there is.
    """

    name: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    draw: Callable[[], "Figure"] | None = None
    source: str = ""


@dataclass(frozen=True)
class Section:
    """Charts that belong together, under a heading of their own, after a few sentences on what they say."""

    title: str
    text: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Report:
    """A report on a model, whoever shows it.

    Args:
        title: what was analysed.
        summary: the findings, a sentence or two each, the most important first.
        caveats: what the findings do not say, in plain words.
        sections: in the order of the page.
        pairs: for the sentence browser; read once, in order.
        record: how it was made, as `metrics.records.record` has it, JSON.
        about: what the title says besides, in a few words each: languages, scores, how much text, the date.
        written: what it was written to, by what that is.

    Printed, it has the findings, what they do not say, and where it was written.
    """

    title: str
    summary: Sequence[str]
    caveats: Sequence[str]
    sections: Sequence[Section]
    pairs: Iterable[PairView] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [_point(sentence) for sentence in self.summary]
        if self.caveats:
            lines += ["", "What this does not say:", *map(_point, self.caveats)]
        for kind, place in self.written.items():
            lines += ["", f"{kind}: {place}"]
        return "\n".join(lines)


def _point(sentence: str) -> str:
    return textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ")
