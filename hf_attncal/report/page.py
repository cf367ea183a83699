"""A report as one HTML file that needs nothing but itself, and a sentence pair as HTML for a notebook."""

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hf_attncal.extras import need
from hf_attncal.metrics.records import whole_file

from .contents import Cell, Chart, PairView, Report, Weights
from .files import charts_of, check_charts, csv_text, svg_text
from .names import display

_FOLDER = Path(__file__).parent
_LARGEST_DOWNLOAD = 300_000  # bytes of a file that the page carries
_MOST_ROWS = 500  # of a table on the page
_MOST_INCHES, _MOST_COLUMNS = 9.0, 6  # of a figure, and of a table without one, beside another chart
_GROUPS = {"config": "Settings", "data_sha256": "Text (SHA-256)"}  # of the record
# A weight is a byte, in these steps of the largest one of its layer and head: from 0 on, or to both sides of it.
STEPS, SIGNED_STEPS = 255, 127


def write_page(report: Report, path: str | Path) -> None:
    """Write a report as one HTML file: no network, no other file, no script but its own.

    Pairs are taken one by one, and none is kept. The file is whole or as it was.

    Args:
        report: what is on the page.
        path: of the file; folders that are missing are made.

    Raises:
        ValueError: see `files.check_charts` and `check_pair`.
        OSError: see `metrics.records.writing`.
        ModuleNotFoundError: a chart has a figure, and matplotlib is not installed.
    """
    check_charts(report)
    script = _text("page.js")
    pairs = iter(report.pairs)
    first = next(pairs, None)
    pieces = (
        _environment()
        .get_template("page.html.jinja")
        .generate(
            report=report,
            charts={chart.name: _chart_on_page(chart) for chart in charts_of(report)},
            most_rows=_MOST_ROWS,
            steps=STEPS,
            signed_steps=SIGNED_STEPS,
            made=_record_groups(report.record),
            record=json.dumps(report.record, indent=1, ensure_ascii=False),
            style=_text("page.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            first=None if first is None else pair_html(first),
            pairs=map(_packed_pair, chain([] if first is None else [first], pairs)),
        )
    )
    with whole_file(path) as partial, open(partial, "wb") as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "replace"))  # half of a character is no text


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {}  # in their own order
    environment.filters |= {"cell": _cell, "digits": _digits, "display": display}
    return environment


def _cell(value: Cell) -> str:
    """A cell of a table: four digits of a number, as many as a person compares."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else display(str(value))


def _record_groups(record: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Heading -> what -> how it was, in words; what belongs to no group is first."""
    groups = {_GROUPS.get(name, name.capitalize()): of for name, of in record.items() if isinstance(of, Mapping)}
    alone = {name: of for name, of in record.items() if not isinstance(of, Mapping)}
    groups = ({"Run": alone} if alone else {}) | groups
    return {name: {what.replace("_", " "): _in_words(of[what]) for what in of} for name, of in groups.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name.replace('_', ' ')}: {_in_words(of)}" for name, of in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_in_words, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _cell(value)


def _digits(value: float, largest: float) -> str:
    """A weight in a cell, `.93`, with as many digits as tell weights apart where `largest` is the largest."""
    if largest >= 10:
        places = 1 if largest < 100 else 0
    else:
        places = min(8, max(2, 1 - math.floor(math.log10(largest)))) if largest > 0 else 2
    text = f"{abs(value):.{places}f}".removeprefix("0" if places else "")
    return f"−{text}" if value < 0 and float(text) else text


# ---- charts ----


class _Download(NamedTuple):
    """A file that the page carries; `address` is None where it is too large for that."""

    name: str
    address: str | None


@dataclass(frozen=True)
class _ChartOnPage:
    """A chart as the page shows it.

    Args:
        svg: its figure; None where it has none.
        light: the figure stays dark on white, because its colours are those of an image.
        wide: it needs all columns of the page, for its figure or its table.
        folded: of a wide table without a figure, how many columns of words it begins with: the page shows them, and
            the whole table where it is unfolded. 0: the table is as it is.
        downloads: its files.
    """

    svg: str | None
    light: bool
    wide: bool
    folded: int
    downloads: Sequence[_Download]


def _chart_on_page(chart: Chart) -> _ChartOnPage:
    downloads = [_download(f"{chart.name}.csv", "text/csv", csv_text(chart))]
    if chart.draw is None:
        wide = len(chart.columns) > _MOST_COLUMNS
        folded = _columns_of_words(chart) if wide else 0
        return _ChartOnPage(None, False, wide and not folded, folded, downloads)
    need("plot")
    figure = chart.draw()
    downloads.append(_download(f"{chart.name}.svg", "image/svg+xml", svg_text(figure, chart.name)))
    svg = svg_text(figure, chart.name, text_as_paths=False)
    # The text in the cells of a heat map is as dark or light as they ask for: its colours must stay.
    light = "<image" in svg or "QuadMesh" in svg
    wide = figure.get_figwidth() > _MOST_INCHES
    return _ChartOnPage(_inline(svg, chart, recoloured=not light), light, wide, 0, downloads)


def _columns_of_words(chart: Chart) -> int:
    """How many columns of a table have nothing but words, from the first on."""
    words = (all(isinstance(row[n], str) for row in chart.rows) for n in range(len(chart.columns)))
    return sum(takewhile(bool, words)) if chart.rows else 0


def _download(name: str, kind: str, text: str) -> _Download:
    if len(text) > _LARGEST_DOWNLOAD:
        return _Download(name, None)
    return _Download(name, f"data:{kind};charset=utf-8,{quote(text, errors='replace')}")


# Colours of our figures, and what the page has for them in its light and its dark dress.
_RECOLOURED = {
    "#000000": "currentColor",
    "#222222": "currentColor",
    "#6b6b6b": "var(--faint)",
    "#ffffff": "var(--paper)",
    "#cccccc": "var(--line)",
    "#eeeeee": "var(--hair)",
}


def _inline(svg: str, chart: Chart, recoloured: bool) -> str:
    """An SVG of matplotlib as part of a page: as wide as there is room, its names unlike those of other charts."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    width, box = (re.search(rf'\b{name}="([^"]*)"', head)[1] for name in ("width", "viewBox"))
    body = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', f"{chart.name}-", body)
    if recoloured:
        body = re.sub("|".join(_RECOLOURED), lambda found: _RECOLOURED[found[0]], body)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{escape(display(chart.title))}" viewBox="{box}" width="{width}" style="--width:{width}">{body}'
    )


# ---- pairs ----


def packed(pair: PairView) -> tuple[dict[str, Any], bytes]:
    """What the page knows of a pair, as JSON, and its weights in few bytes.

    The bytes are compressed by zlib. For each way of looking, in order, they are the step of each layer and head,
    float32 in little-endian order, then the weights in these steps, (layers, heads, target tokens, source tokens),
    unsigned bytes or, where `signed`, signed ones. NULL is one more source token, the last. So a weight is rounded by
    at most half a step: a step is the largest weight of the layer and head divided by `STEPS` or `SIGNED_STEPS`.

    Raises:
        ValueError: see `check_pair`.
    """
    check_pair(pair)
    ways, parts = [], []
    for name, weights in pair.weights.items():
        layers, heads = weights.values.shape[:2]
        has_null = weights.null is not None
        ways.append(
            {
                "name": name,
                "label": display(name),
                "layers": layers,
                "heads": heads,
                "signed": weights.signed,
                "null": has_null,
            }
        )
        parts += _in_steps(weights)
    known = {
        "index": pair.index,
        "source": pair.source,
        "target": pair.target,
        "sourceTokens": list(pair.source_tokens),
        "targetTokens": list(pair.target_tokens),
        "sourceWords": [int(word) for word in pair.source_words],
        "targetWords": [int(word) for word in pair.target_words],
        "links": None if pair.links is None else [[int(word) for word in link] for link in pair.links],
        "notes": {name: float(value) for name, value in pair.notes.items() if math.isfinite(value)},
        "weights": ways,
    }
    return known, zlib.compress(b"".join(part.tobytes() for part in parts), 9)


def check_pair(pair: PairView) -> None:
    """Refuse a pair that is not what `PairView` and `Weights` ask for.

    Raises:
        ValueError: words of tokens, links or weights that do not fit its texts and tokens; weights that are not
            finite, or negative and not `signed`. The message names pair and field.
    """
    words = len(pair.source.split()), len(pair.target.split())
    tokens = len(pair.source_tokens), len(pair.target_tokens)
    of_tokens = {"source_words": pair.source_words, "target_words": pair.target_words}
    for (side, numbers), count, most in zip(of_tokens.items(), tokens, words, strict=True):
        if len(numbers) != count or not all(-1 <= word < most for word in numbers):
            raise ValueError(
                f"`{side}` of pair {pair.index} must have a number from -1 to {most - 1} for each of {count} tokens, "
                f"got {list(numbers)}."
            )
    for link in pair.links or ():
        if not all(0 <= word < most for word, most in zip(link, words, strict=True)):
            raise ValueError(
                f"`links` of pair {pair.index} has {tuple(link)}, but its texts have {words[0]} and {words[1]} words, "
                "which are counted from 0."
            )
    for name, weights in pair.weights.items():
        what, shape = f"`weights[{name!r}]` of pair {pair.index}", weights.values.shape
        if len(shape) != 4 or 0 in shape[:2] or shape[2:] != tokens[::-1]:
            raise ValueError(f"{what} must be of shape (layers, heads, {tokens[1]}, {tokens[0]}), got {shape}.")
        if weights.null is not None and weights.null.shape != shape[:3]:
            raise ValueError(f"`null` of {what} must be of shape {shape[:3]}, got {weights.null.shape}.")
        values = _with_null(weights)
        if not np.isfinite(values).all():
            raise ValueError(f"{what} must be finite.")
        # What cannot be negative may be so by rounding.
        if not weights.signed and values.size and -values.min() > 1e-4 * values.max():
            raise ValueError(f"{what} must not be negative unless it is `signed`, got {values.min():.4g}.")


def _with_null(weights: Weights) -> np.ndarray:
    """(layers, heads, target tokens, source tokens), with NULL as the last source token where there is one."""
    if weights.null is None:
        return weights.values
    return np.concatenate([weights.values, weights.null[..., None]], axis=-1)


def _in_steps(weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """The step of each layer and head, and the weights in them."""
    values = _with_null(weights).astype(np.float64)
    values = values if weights.signed else values.clip(min=0)
    most, kind = (SIGNED_STEPS, np.int8) if weights.signed else (STEPS, np.uint8)
    steps = (np.abs(values).max(axis=(2, 3), initial=0) / most).astype("<f4")
    in_steps = values / np.where(steps > 0, steps, 1).astype(np.float64)[..., None, None]
    return steps, np.rint(in_steps).clip(-most, most).astype(kind)


def _packed_pair(pair: PairView) -> tuple[dict[str, Any], str]:
    known, weights = packed(pair)
    return known, base64.b64encode(weights).decode()


# ---- a pair for a notebook ----


class _HeatMap(NamedTuple):
    """Weights between words.

    Args:
        name: of the way of looking.
        what: of which layers and heads.
        rows: of each target word, the weights of the source words and, last, of NULL where there is one.
        largest: of all, without its sign.
    """

    name: str
    what: str
    rows: np.ndarray
    largest: float


def pair_html(pair: PairView) -> str:
    """A pair as HTML: for each way of looking the weights between words, mean over layers and heads; no script.

    Raises:
        ValueError: see `check_pair`.
    """
    check_pair(pair)
    template = _environment().get_template("pair.html.jinja")
    maps = [_between_words(pair, name, weights) for name, weights in pair.weights.items()]
    return template.render(pair=pair, maps=maps, links=set(map(tuple, pair.links or ())))


def _between_words(pair: PairView, name: str, weights: Weights) -> _HeatMap:
    import torch

    from hf_attncal.analysis.words import word_attention
    from hf_attncal.data.words import WordTokens

    values = torch.from_numpy(_with_null(weights).mean(axis=(0, 1)))
    source, target = pair.source.split(), pair.target.split()
    columns = [*pair.source_words, len(source)] if weights.null is not None else pair.source_words
    rows = word_attention(
        values,
        WordTokens(np.array([]), np.array(columns), len(source) + (weights.null is not None)),
        WordTokens(np.array([]), np.array(pair.target_words), len(target)),
    ).numpy()
    layers, heads = weights.values.shape[:2]
    means = [f"{count} {what}" for count, what in ((layers, "layers"), (heads, "heads")) if count > 1]
    what = f"mean of {' and '.join(means)}" if means else ""
    return _HeatMap(display(name), what, rows, float(np.abs(rows).max(initial=0)))
