"""Contents of a report and their templates: charts, sentence pairs with token weights, and findings."""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment

from hf_attncal.drawing import page
from hf_attncal.metrics.base import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent

_ALTI = re.compile(r"(?<![\w`])alti(?!\w)(?!\.\w)(?!`)")


@dataclass(frozen=True)
class PairWeights:
    """Weights between the tokens of one sentence pair, from attention or one method.

    Args:
        values: (layers, heads, target tokens, source tokens), finite floats, negative only if `signed`; a method
            without layers and heads has one of each.
        null: (layers, heads, target tokens), share of NULL; None without NULL.
        signed: True if negative values have a meaning (occlusion). Default: False.
    """

    values: np.ndarray
    null: np.ndarray | None = None
    signed: bool = False


@dataclass(frozen=True)
class ChangedWord:
    """A word of a translation, compared with another translation.

    Args:
        text: the word.
        changed: True if the other translation lacks it.
        loss: fall of its log-probability without the source word, in nats; 0 if unknown.
    """

    text: str
    changed: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class Without:
    """Effect of removing a source word.

    Args:
        word: source word.
        given: words of the translation of the user; empty for a translation of the model.
        before, after: words of the model's translations with and without the source word.
    """

    word: str
    given: Sequence[ChangedWord]
    before: Sequence[ChangedWord]
    after: Sequence[ChangedWord]


@dataclass(frozen=True)
class PairView:
    """View of a sentence pair.

    Args:
        index: index in the corpus, counted from 0.
        source, target: texts, with words separated by white space.
        source_tokens, target_tokens: readable tokens, special tokens included.
        source_words, target_words: index of the word of each token, -1 for special tokens.
        weights: method -> weights, in the order of the menu.
        links: pairs (i source word, j target word); None to show no links.
        notes: name -> value for this pair (reliability, entropy, share of NULL).
        link_kind: name of a link in the legend. Default: "gold link".
        without: effect of removing a source word; None if not computed.
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


def with_null(weights: PairWeights) -> np.ndarray:
    """Return weights (layers, heads, target tokens, source tokens), with NULL, if any, as last source token."""
    if weights.null is None:
        return weights.values
    return np.concatenate([weights.values, weights.null[..., None]], axis=-1)


def word_weights(pair: PairView, name: str) -> np.ndarray:
    """Return word weights, mean over layers and heads: (target words, source words and NULL if any)."""
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
    """Figure and table of numbers, with title and caption.

    Args:
        name: stem of the file names: letters, digits and `_`.
        title: title, a few words.
        caption: explanation in sentences.
        columns: column names of the table, with units.
        rows: rows of the table, a cell per column; None for an empty cell.
        draw: function that returns the figure. Default: no figure.
        source: paper with figure, table or equation. Default: none.
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
        """All fields except the figure, as plain data for JSON."""
        return {name: getattr(self, name) for name in ("name", "title", "caption", "source", "columns", "rows")}


@dataclass(frozen=True)
class Section:
    """Charts under a common heading, after an introduction of a few sentences."""

    title: str
    text: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Report:
    """Report on a model. It prints as findings, caveats and paths of its files.

    Args:
        title: name of the model.
        summary: findings of one or two sentences, the most important first.
        caveats: limits of the findings.
        sections: sections in the order of the page.
        pairs: views for the sentence browser, read once, in order.
        record: settings, versions and hashes, from `metrics.records.record`.
        about: name -> short text below the title: languages, scores, amount of text, date.
        written: kind of output -> path.
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
        """Charts of all sections, in order."""
        return [chart for section in self.sections for chart in section.charts]

    def __str__(self) -> str:
        lines = [_point(sentence) for sentence in self.summary]
        if self.caveats:
            lines += ["", "Limits of these findings:", *map(_point, self.caveats)]
        for kind, place in self.written.items():
            lines += ["", f"{kind}: {place}"]
        return "\n".join(lines)


def _point(sentence: str) -> str:
    return textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ")


@cache
def report_templates() -> Environment:
    """Return the templates of this folder with their filters."""
    templates = page.environment(FOLDER)
    templates.policies["json.dumps_kwargs"] = {}  # do not sort keys
    templates.filters |= {"cell": cell, "display": display}
    return templates


def cell(value: str | int | float | None) -> str:
    """Return the text of a table cell; numbers have four digits."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else display(str(value))


def display(text: str) -> str:
    """Return the text with the name of the paper in place of the method `alti`."""
    return _ALTI.sub("ALTI+", text)


def listed(names: Sequence[str]) -> str:
    """Return names as `a`, `a and b` or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sentence_pairs(count: int) -> str:
    """Return a number of sentence pairs in words."""
    return f"{count:,} sentence pair{'' if count == 1 else 's'}"


def percent(share: Measured) -> str:
    """Return a share in percent, with its interval if it has one."""
    value, *bounds = (f"{100 * number:.1f}" for number in (share.value, *(share.interval or ())))
    return f"{value} % ({bounds[0]} to {bounds[1]})" if bounds else f"{value} %"


def nats(measured: Measured) -> str:
    """Return a number of nats with its interval; small numbers have two significant digits."""
    value, *bounds = (
        f"{number:z.2f}" if abs(number) >= 0.1 or not number else f"{number:.2g}"
        for number in (measured.value, *(measured.interval or ()))
    )
    return f"{value} nats ({bounds[0]} to {bounds[1]})" if bounds else f"{value} nats"
