"""What a report consists of. Whoever measures fills these; whoever writes a page or files reads them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

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
class Weights:
    """Weights of one sentence pair between tokens, by one way of looking.

    Args:
        values: (layers, heads, target tokens, source tokens), float; one layer and one head where the way of looking
            has none. Finite; negative only where `signed`.
        null: (layers, heads, target tokens), the share of NULL; None where there is none.
        signed: whether values below 0 mean something (gradients, occlusion).
    """

    values: np.ndarray
    null: np.ndarray | None = None
    signed: bool = False


@dataclass(frozen=True)
class PairView:
    """A sentence pair to look at.

    Args:
        index: its place in the corpus, from 0.
        source, target: its texts; their words are what `str.split()` gives.
        source_tokens, target_tokens: as the model reads them, special ones included, for a person to read.
        source_words, target_words: the number of the word of each token, -1 for a token of none.
        weights: name of a way of looking -> what it sees, in the order in which they are offered.
        links: gold links (i source word, j target word); None where there is no gold.
        notes: name -> value, what is known of this pair alone (reliability, entropy, share of NULL).
    """

    index: int
    source: str
    target: str
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]
    source_words: Sequence[int]
    target_words: Sequence[int]
    weights: Mapping[str, Weights]
    links: Sequence[tuple[int, int]] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """What a notebook shows: its weights between words, mean over layers and heads."""
        from .page import pair_html

        return pair_html(self)


@dataclass(frozen=True)
class Section:
    """Charts that belong together, under a heading of their own, after a few sentences on what they say."""

    title: str
    text: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Report:
    """All of a report.

    Args:
        title: what was analysed.
        summary: the findings, a sentence or two each, the most important first.
        caveats: what the findings do not say, in plain words.
        sections: in the order of the page.
        pairs: for the sentence browser; read once, in order.
        record: how it was made, as `metrics.records.record` has it, JSON.
        about: what the title says besides, in a few words each: languages, scores, how much text, the date.
    """

    title: str
    summary: Sequence[str]
    caveats: Sequence[str]
    sections: Sequence[Section]
    pairs: Iterable[PairView] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
