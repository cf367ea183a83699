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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from hf_attncal.io.files import fill_folder, whole_file, writing
from hf_attncal.io.gate import check_folder

from .contents import Chart, PairView, Report, pair_view_html, with_null
from .templates import FOLDER, cell, display, report_templates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 200
_OVERVIEW = "report.json"  # the name of the file that says what the others are


def write_files(report: Report, folder: str | Path) -> None:
    """Write every chart as NAME.json and NAME.csv, one with a figure as NAME.png and NAME.svg, too, and report.json.

    All are whole in a folder in `folder` before the first of them takes its place, and `report.json` is the last to do
    so. Files that have such a name are replaced, others in `folder` stay. `report.pairs` is not read. The same charts
    give the same bytes with the same version of matplotlib.

    Args:
        report: its charts, and what `report.json` says of them.
        folder: where; made if it is missing.

    Raises:
        ValueError: a chart has a number that is not finite; no file has changed.
        OSError: see `hf_attncal.io.files.writing`; likewise.
        ModuleNotFoundError: a chart has a figure, and matplotlib is not installed.
    """
    folder = Path(folder)
    overview = {
        "title": report.title,
        "summary": report.summary,
        "caveats": report.caveats,
        "sections": [
            {"title": section.title, "text": section.text, "charts": [chart.name for chart in section.charts]}
            for section in report.sections
        ],
        "record": report.record,
    }

    def save(unfinished: Path) -> None:
        for chart in report.charts:
            (unfinished / f"{chart.name}.json").write_bytes(_json(chart.numbers))
            (unfinished / f"{chart.name}.csv").write_bytes(csv_text(chart).encode())
            if chart.draw is not None:
                figure = chart.draw()
                (unfinished / f"{chart.name}.svg").write_bytes(svg_text(figure, chart.name).encode())
                picture = unfinished / f"{chart.name}.png"
                figure.savefig(picture, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
        (unfinished / _OVERVIEW).write_bytes(_json(overview))

    with writing(folder):
        check_folder(folder, "--report")
        fill_folder(folder, save, last=(_OVERVIEW,))


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
        ValueError: a pair has weights that are not finite.
        OSError: see `hf_attncal.io.files.writing`.
        ModuleNotFoundError: a chart has a figure, and matplotlib is not installed.
    """
    pairs = iter(report.pairs)
    first = next(pairs, None)
    scripts = ((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in ("pair", "picture", "page"))
    script = "\n".join(('"use strict"; {', *scripts, "}"))
    pieces = (
        report_templates()
        .get_template("page.html.jinja")
        .generate(
            report=report,
            charts={chart.name: _chart_on_page(chart) for chart in report.charts},
            most_rows=_MOST_ROWS,
            made=_record_groups(report.record),
            record=json.dumps(report.record, indent=1, ensure_ascii=False),
            first=None if first is None else pair_view_html(first),
            pairs=map(packed, chain([] if first is None else [first], pairs)),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            steps=WEIGHT_STEPS,
            signed_steps=SIGNED_STEPS,
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
    for place in sorted(places, key=lambda place: Path(place).suffix == ".html"):  # figures first
        if Path(place).suffix == ".html":
            write_page(report, place)
            written["Page"] = str(place)
        else:
            write_files(report, place)
            written["Figures"] = str(place)
    return replace(report, written=written)


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
        wide, folded = len(chart.columns) > _MOST_COLUMNS, 0
        if wide and chart.rows:  # the first columns that have nothing but words
            words = (all(isinstance(row[n], str) for row in chart.rows) for n in range(len(chart.columns)))
            folded = sum(takewhile(bool, words))
        return _ChartOnPage(None, False, wide and not folded, folded, downloads)
    figure = chart.draw()
    downloads[f"{chart.name}.svg"] = _address("image/svg+xml", svg_text(figure, chart.name))
    svg = svg_text(figure, chart.name, text_as_paths=False)
    # The text in the cells of a heat map is as dark or light as they ask for: its colours must stay.
    light = "<image" in svg or "QuadMesh" in svg
    wide = figure.get_figwidth() > _MOST_INCHES
    return _ChartOnPage(_inline(svg, chart, recoloured=not light), light, wide, 0, downloads)


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


def packed(pair: PairView) -> tuple[dict[str, Any], str]:
    """Pack a pair for the page: its facts as plain data for JSON, and its weights as compressed bytes in base64.

    The bytes are compressed by zlib. For each way of looking, in order, they are the step of each layer and head,
    float32 in little-endian order, then the weights in these steps, (layers, heads, target tokens, source tokens),
    unsigned bytes or, where `signed`, signed ones. NULL is one more source token, the last. So a weight is rounded by
    at most half a step: a step is the largest weight of the layer and head divided by `WEIGHT_STEPS`, or
    `SIGNED_STEPS`.

    Raises:
        ValueError: weights that are not finite.
    """
    ways: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, weights in pair.weights.items():
        layers, heads = weights.values.shape[:2]
        way = {"name": name, "label": display(name), "layers": layers, "heads": heads, "signed": weights.signed}
        ways.append(way | {"null": weights.null is not None})
        values = with_null(weights).astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"Pair {pair.index} (counted from 0) has weights of {name!r} that are not finite.")
        values = values if weights.signed else values.clip(min=0)
        most, kind = (SIGNED_STEPS, np.int8) if weights.signed else (WEIGHT_STEPS, np.uint8)
        steps = (np.abs(values).max(axis=(2, 3), initial=0) / most).astype("<f4")
        in_steps = values / np.where(steps > 0, steps, 1).astype(np.float64)[..., None, None]
        parts += [steps.tobytes(), np.rint(in_steps).clip(-most, most).astype(kind).tobytes()]
    known = {
        "index": pair.index,
        "source": pair.source,
        "target": pair.target,
        "sourceTokens": list(pair.source_tokens),
        "targetTokens": list(pair.target_tokens),
        "sourceWords": list(pair.source_words),
        "targetWords": list(pair.target_words),
        "links": None if pair.links is None else list(map(list, pair.links)),
        "linkKind": pair.link_kind,
        "without": None if pair.without is None else asdict(pair.without),
        "notes": {name: float(value) for name, value in pair.notes.items() if math.isfinite(value)},
        "weights": ways,
    }
    return known, base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()
