"""Contents of a report: charts, sentence pairs with weights between their tokens, and findings."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .templates import display, report_templates

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PairWeights:
    """Weights between the tokens of one sentence pair, from attention or one method.

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
class ChangedWord:
    """A word of a translation, compared with another translation.

    Args:
        text: the word.
        changed: whether the other translation lacks it.
        loss: fall of its log-probability in nats when the source word is hidden; 0 if not known.
    """

    text: str
    changed: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class Without:
    """What changes when a source word is taken away.

    Args:
        word: the source word.
        given: words of the translation on the page, if it is not the model's own.
        before, after: words of the model's translations of the whole source, and without the word.
    """

    word: str
    given: Sequence[ChangedWord]
    before: Sequence[ChangedWord]
    after: Sequence[ChangedWord]


@dataclass(frozen=True)
class PairView:
    """A sentence pair to look at.

    Args:
        index: its place in the corpus, from 0.
        source, target: its texts; their words are what `str.split()` gives.
        source_tokens, target_tokens: as the model reads them, special ones included, for a person to read.
        source_words, target_words: the number of the word of each token, -1 for a token of none.
        weights: name of a way of looking -> what it sees, in the order in which they are offered.
        links: (i source word, j target word); None where there are none to show.
        notes: name -> value, what is known of this pair alone (reliability, entropy, share of NULL).
        link_kind: what a link is, in words.
        without: the effect of taking a source word away; None if it was not computed.
    """

    index: int
    source: str
    target: str
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]
    source_words: Sequence[int]
    target_words: Sequence[int]
    weights: Mapping[str, PairWeights]
    links: Sequence[tuple[int, int]] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    link_kind: str = "gold link"
    without: Without | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the weights between words, mean over layers and heads."""
        return pair_view_html(self)


def with_null(weights: PairWeights) -> np.ndarray:
    """Return weights (layers, heads, target tokens, source tokens), with NULL, if any, as the last source token."""
    if weights.null is None:
        return weights.values
    return np.concatenate([weights.values, weights.null[..., None]], axis=-1)


def pair_view_html(pair: PairView) -> str:
    """Return a pair as HTML: for each way of looking the weights between words, mean over layers and heads; no script.

    A heat map has a row for each target word, with source words and, last, NULL if there is one.
    """
    maps = []
    for name, weights in pair.weights.items():
        rows = words_of_way(pair, name)
        numbers = zip(weights.values.shape[:2], ("layers", "heads"), strict=True)
        means = [f"{count} {what}" for count, what in numbers if count > 1]
        what = f"mean of {' and '.join(means)}" if means else ""
        maps.append({"name": display(name), "what": what, "rows": rows, "largest": np.abs(rows).max(initial=0)})
    template = report_templates().get_template("pair.html.jinja")
    return template.render(pair=pair, maps=maps, links=set(map(tuple, pair.links or ())))


def words_of_way(pair: PairView, name: str) -> np.ndarray:
    """Return weights between words, mean over layers and heads: (target words, source words, with NULL if any)."""
    import torch

    from hf_attncal.data.words import WordTokens
    from hf_attncal.inference.word_attention import word_attention

    weights = pair.weights[name]
    values = torch.from_numpy(with_null(weights).mean(axis=(0, 1)))
    source, target = pair.source.split(), pair.target.split()
    columns = [*pair.source_words, len(source)] if weights.null is not None else pair.source_words
    return word_attention(
        values,
        WordTokens(np.array([]), np.array(columns), len(source) + (weights.null is not None)),
        WordTokens(np.array([]), np.array(pair.target_words), len(target)),
    ).numpy()


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

    @property
    def numbers(self) -> dict[str, Any]:
        """Return all but the figure, as plain data for JSON."""
        return {name: getattr(self, name) for name in ("name", "title", "caption", "source", "columns", "rows")}


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

    @property
    def charts(self) -> list[Chart]:
        """Return the charts of all sections, in order."""
        return [chart for section in self.sections for chart in section.charts]

    def __str__(self) -> str:
        lines = [_point(sentence) for sentence in self.summary]
        if self.caveats:
            lines += ["", "What this does not say:", *map(_point, self.caveats)]
        for kind, place in self.written.items():
            lines += ["", f"{kind}: {place}"]
        return "\n".join(lines)


def _point(sentence: str) -> str:
    return textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ")
