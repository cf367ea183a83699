"""Write a report: as one HTML file that needs no other file and no network, or its charts as files.

Charts are pictures for papers and slides, and numbers for programs and spreadsheets.
"""

import base64
import csv
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from hf_attncal.io.files import fill_folder, whole_file, writing
from hf_attncal.io.gate import check_folder
from hf_attncal.report.figures.contents import PairView, PairWeights, check_pair, pair_view_html, with_null

from .contents import Chart, Report
from .templates import FOLDER, cell, display, report_templates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 200
_OVERVIEW = "report"  # the name of the file that says what the others are


def write_files(report: Report, folder: str | Path) -> None:
    """Write every chart as NAME.json and NAME.csv, one with a figure as NAME.png and NAME.svg, too, and report.json.

    All are whole in a folder in `folder` before the first of them takes its place, and `report.json` is the last to do
    so. Files that have such a name are replaced, others in `folder` stay. `report.pairs` is not read. The same charts
    give the same bytes with the same version of matplotlib.

    Args:
        report: its charts, and what `report.json` says of them.
        folder: where; made if it is missing.

    Raises:
        ValueError: see `check_charts`; no file has changed.
        OSError: see `hf_attncal.io.files.writing`; likewise.
        ModuleNotFoundError: a chart has a figure, and matplotlib is not installed.
    """
    check_charts(report)
    folder = Path(folder)
    last = f"{_OVERVIEW}.json"

    def save(unfinished: Path) -> None:
        for name, data in _files(report):
            (unfinished / name).write_bytes(data)
        (unfinished / last).write_bytes(_json(_overview(report)))

    with writing(folder):
        check_folder(folder, "--report")
        fill_folder(folder, save, last=(last,))


def check_charts(report: Report) -> None:
    """Raise ValueError if a chart cannot be files, or has no table.

    Raises:
        ValueError: a name with other characters than letters, digits and `_`, a name of two charts or that of
            `report.json`; a row that has not a cell for each column; a number that is not finite.
    """
    seen = {_OVERVIEW}
    for chart in charts_of(report):
        if not re.fullmatch(r"[A-Za-z0-9_]+", chart.name):
            raise ValueError(f"The `name` of a chart must be letters, digits and _, got {chart.name!r}.")
        if chart.name.lower() in seen:
            raise ValueError(f"Two files would have the name of the chart {chart.name!r}: give it another `name`.")
        seen.add(chart.name.lower())
        for number, row in enumerate(chart.rows):
            if len(row) != len(chart.columns):
                raise ValueError(
                    f"Row {number} of the chart {chart.name!r} must have a cell for each of its {len(chart.columns)} "
                    f"`columns`, got {len(row)}."
                )
        try:
            _json(_numbers(chart))
        except ValueError as error:
            raise ValueError(
                f"The chart {chart.name!r} has a number that is not finite: give None where there is none."
            ) from error


def charts_of(report: Report) -> Iterator[Chart]:
    """Yield all charts, in order."""
    for section in report.sections:
        yield from section.charts


# ---- one chart ----


def csv_text(chart: Chart) -> str:
    """Write the table of a chart as CSV, with a line of names; a cell without anything to say is empty."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([chart.columns, *chart.rows])
    return file.getvalue()


def svg_text(figure: "Figure", name: str, text_as_paths: bool = True) -> str:
    """Write a figure as SVG, the same each time.

    Args:
        figure: of matplotlib.
        name: of the chart, from which the names inside are made.
        text_as_paths: letters are drawn, so that they look the same everywhere; else the text is text.
    """
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path" if text_as_paths else "none"}):
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return file.getvalue()


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return file.getvalue()


def _files(report: Report) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file of the charts."""
    for chart in charts_of(report):
        yield f"{chart.name}.json", _json(_numbers(chart))
        yield f"{chart.name}.csv", csv_text(chart).encode()
        if chart.draw is not None:
            figure = chart.draw()
            yield f"{chart.name}.svg", svg_text(figure, chart.name).encode()
            yield f"{chart.name}.png", _png(figure)


def _numbers(chart: Chart) -> dict[str, Any]:
    return {name: getattr(chart, name) for name in ("name", "title", "caption", "source", "columns", "rows")}


def _overview(report: Report) -> dict[str, Any]:
    sections = [
        {"title": section.title, "text": section.text, "charts": [chart.name for chart in section.charts]}
        for section in report.sections
    ]
    return {
        "title": report.title,
        "summary": report.summary,
        "caveats": report.caveats,
        "sections": sections,
        "record": report.record,
    }


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


_LARGEST_DOWNLOAD = 300_000  # bytes of a file that the page carries
_MOST_ROWS = 500  # of a table on the page
_MOST_INCHES, _MOST_COLUMNS = 9.0, 6  # of a figure, and of a table without one, beside another chart
_GROUPS = {"config": "Settings", "data_sha256": "Text (SHA-256)"}  # of the record
# A weight is a byte, in these steps of the largest one of its layer and head: from 0 on, or to both sides of it.
WEIGHT_STEPS, SIGNED_STEPS = 255, 127


def write_page(report: Report, path: str | Path, option: str = "--report") -> None:
    """Write a report as one HTML file that uses no network, no other file, and no script but its own.

    Pairs are taken one by one, and none is kept. The file is whole or as it was.

    Args:
        report: what is on the page.
        path: path of the file; missing folders are made.
        option: option that messages name.

    Raises:
        ValueError: see `files.check_charts` and `check_pair`.
        OSError: see `hf_attncal.io.files.writing`.
        ModuleNotFoundError: a chart has a figure, and matplotlib is not installed.
    """
    check_charts(report)
    pairs = iter(report.pairs)
    first = next(pairs, None)
    pieces = (
        report_templates()
        .get_template("page.html.jinja")
        .generate(
            report=report,
            charts={chart.name: _chart_on_page(chart) for chart in charts_of(report)},
            most_rows=_MOST_ROWS,
            made=_record_groups(report.record),
            record=json.dumps(report.record, indent=1, ensure_ascii=False),
            first=None if first is None else pair_view_html(first),
            pairs=map(_packed_text, chain([] if first is None else [first], pairs)),
            **_browser_parts(),
        )
    )
    with whole_file(path, option=option) as partial, open(partial, "wb") as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "replace"))  # half of a character is no text


def write_report(report: Report, places: Sequence[str | Path]) -> Report:
    """Write a report to places, and return it with these: a name that ends in .html is a page, others are folders.

    Raises:
        OSError, ValueError, ModuleNotFoundError: see `write_page` and `write_files`.
    """
    written = {}
    for place in sorted(places, key=is_page):  # figures first
        (write_page if is_page(place) else write_files)(report, place)
        written["Page" if is_page(place) else "Figures"] = str(place)
    return replace(report, written=written)


def is_page(place: str | Path) -> bool:
    """Return whether a report that is written to a place is a page there, and not a folder of figures."""
    return Path(place).suffix == ".html"


def _browser_parts() -> dict[str, Any]:
    """Return what the template of the sentence browser needs: script and its hash, steps of weights."""
    script = "\n".join(('"use strict"; {', *(_text(f"{name}.js") for name in ("pair", "picture", "page")), "}"))
    return {
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "steps": WEIGHT_STEPS,
        "signed_steps": SIGNED_STEPS,
    }


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _record_groups(record: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the record as heading -> name -> value in words; what belongs to no group is first."""
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
    return cell(value)


# ---- charts ----


@dataclass(frozen=True)
class _ChartOnPage:
    """A chart as the page shows it.

    Args:
        svg: its figure; None where it has none.
        light: the figure stays dark on white, because its colours are those of an image.
        wide: it needs all columns of the page, for its figure or its table.
        folded: of a wide table without a figure, how many columns of words it begins with: the page shows them, and
            the whole table where it is unfolded. 0: the table is as it is.
        downloads: name of a file -> its address; None where it is too large for the page.
    """

    svg: str | None
    light: bool
    wide: bool
    folded: int
    downloads: dict[str, str | None]


def _chart_on_page(chart: Chart) -> _ChartOnPage:
    downloads = {f"{chart.name}.csv": _address("text/csv", csv_text(chart))}
    if chart.draw is None:
        wide = len(chart.columns) > _MOST_COLUMNS
        folded = _columns_of_words(chart) if wide else 0
        return _ChartOnPage(None, False, wide and not folded, folded, downloads)
    figure = chart.draw()
    downloads[f"{chart.name}.svg"] = _address("image/svg+xml", svg_text(figure, chart.name))
    svg = svg_text(figure, chart.name, text_as_paths=False)
    # The text in the cells of a heat map is as dark or light as they ask for: its colours must stay.
    light = "<image" in svg or "QuadMesh" in svg
    wide = figure.get_figwidth() > _MOST_INCHES
    return _ChartOnPage(_inline(svg, chart, recoloured=not light), light, wide, 0, downloads)


def _columns_of_words(chart: Chart) -> int:
    """Count the columns of a table that have nothing but words, from the first on."""
    words = (all(isinstance(row[n], str) for row in chart.rows) for n in range(len(chart.columns)))
    return sum(takewhile(bool, words)) if chart.rows else 0


def _address(kind: str, text: str) -> str | None:
    """Return the address by which the page carries a file; None where it is too large for that."""
    return None if len(text) > _LARGEST_DOWNLOAD else f"data:{kind};charset=utf-8,{quote(text, errors='replace')}"


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
    """Return an SVG of matplotlib as part of a page: as wide as there is room, its names unlike other charts'."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    attributes = dict(re.findall(r'(\w+)="([^"]*)"', head))
    width, box = attributes["width"], attributes["viewBox"]
    body = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', f"{chart.name}-", body)
    if recoloured:
        body = re.sub("|".join(_RECOLOURED), lambda found: _RECOLOURED[found[0]], body)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{escape(display(chart.title))}" viewBox="{box}" width="{width}" style="--width:{width}">{body}'
    )


# ---- pairs ----


def packed(pair: PairView) -> tuple[dict[str, Any], bytes]:
    """Pack a pair for the page: its facts as plain data for JSON, and its weights as compressed bytes.

    The bytes are compressed by zlib. For each way of looking, in order, they are the step of each layer and head,
    float32 in little-endian order, then the weights in these steps, (layers, heads, target tokens, source tokens),
    unsigned bytes or, where `signed`, signed ones. NULL is one more source token, the last. So a weight is rounded by
    at most half a step: a step is the largest weight of the layer and head divided by `WEIGHT_STEPS`, or
    `SIGNED_STEPS`.

    Raises:
        ValueError: see `check_pair`.
    """
    check_pair(pair)
    ways: list[dict[str, Any]] = []
    parts: list[np.ndarray] = []
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
        "linkKind": pair.link_kind,
        "without": None if pair.without is None else asdict(pair.without),
        "notes": {name: float(value) for name, value in pair.notes.items() if math.isfinite(value)},
        "weights": ways,
    }
    return known, zlib.compress(b"".join(part.tobytes() for part in parts), 9)


def _in_steps(weights: PairWeights) -> tuple[np.ndarray, np.ndarray]:
    """Return the step of each layer and head, and the weights in them."""
    values = with_null(weights).astype(np.float64)
    values = values if weights.signed else values.clip(min=0)
    most, kind = (SIGNED_STEPS, np.int8) if weights.signed else (WEIGHT_STEPS, np.uint8)
    steps = (np.abs(values).max(axis=(2, 3), initial=0) / most).astype("<f4")
    in_steps = values / np.where(steps > 0, steps, 1).astype(np.float64)[..., None, None]
    return steps, np.rint(in_steps).clip(-most, most).astype(kind)


def _packed_text(pair: PairView) -> tuple[dict[str, Any], str]:
    """Return what `packed` does, the weights as base64."""
    known, weights = packed(pair)
    return known, base64.b64encode(weights).decode()
