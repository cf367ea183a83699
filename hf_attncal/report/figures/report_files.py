"""Files of a report: a self-contained HTML page, or its charts as pictures and numbers."""

import base64
import csv
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from html import escape
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_attncal.io.files import fill_folder, whole_file, writing
from hf_attncal.io.gate import check_folder

from .contents import FOLDER, Chart, PairView, Report, display, report_templates, with_null

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 200
_OVERVIEW = "report.json"  # file with findings and the list of charts


def write_files(report: Report, folder: str | Path) -> None:
    """Write each chart as NAME.json and NAME.csv, its figure as NAME.png and NAME.svg, and `report.json`.

    All files are written completely before they replace existing ones, `report.json` last. Other files in `folder`
    stay. Equal charts give equal bytes with the same version of matplotlib.

    Args:
        report: report with the charts; its `pairs` are not read.
        folder: output folder, created if missing.

    Raises:
        ValueError: a chart has a number that is not finite; no file has changed.
        OSError: see `hf_attncal.io.files.writing`; no file has changed.
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
    """Return the table of a chart as CSV with a header line."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([chart.columns, *chart.rows])
    return file.getvalue()


def svg_text(figure: "Figure", name: str, text_as_paths: bool = True) -> str:
    """Return a figure as reproducible SVG.

    Args:
        figure: figure of matplotlib.
        name: name of the chart, the seed of the ids in the SVG.
        text_as_paths: draw letters as paths, which look the same everywhere. Default: True.
    """
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path" if text_as_paths else "none"}):
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return file.getvalue()


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


_MAX_ROWS = 500  # rows of a table on the page
_MAX_INCHES, _MAX_COLUMNS = 9.0, 6  # width of a figure, or columns of a table, next to another chart
# A weight is stored as a byte, relative to the largest weight of its layer and head: from 0 up, or with a sign.
WEIGHT_STEPS, SIGNED_STEPS = 255, 127


def write_page(report: Report, path: str | Path, option: str = "--report") -> None:
    """Write a report as a self-contained HTML file, which uses no network and no other file.

    Pairs are read one by one. After an error the old file stays.

    Args:
        report: report to write.
        path: path of the file; missing folders are created.
        option: name of the option in messages. Default: "--report".

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
            most_rows=_MAX_ROWS,
            record=json.dumps(report.record, indent=1, ensure_ascii=False),
            has_pairs=first is not None,
            pairs=map(packed, chain([] if first is None else [first], pairs)),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            steps=WEIGHT_STEPS,
            signed_steps=SIGNED_STEPS,
        )
    )
    with whole_file(path, option=option) as partial, open(partial, "wb") as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "replace"))  # lone surrogates cannot be encoded


def write_report(report: Report, places: Sequence[str | Path]) -> Report:
    """Write a report to paths (.html: page, others: folder of figures), and return it with them in `written`.

    Raises:
        OSError, ValueError, ModuleNotFoundError: see `write_page` and `write_files`.
    """
    paths = {}
    for place in sorted(places, key=lambda place: Path(place).suffix == ".html"):  # figures first
        if Path(place).suffix == ".html":
            write_page(report, place)
            paths["Page"] = str(place)
        else:
            write_files(report, place)
            paths["Figures"] = str(place)
    return replace(report, written=paths)


# ---- charts ----


def _chart_on_page(chart: Chart) -> dict[str, Any]:
    """Return a chart for the template.

    Returns:
        `svg`: figure, None for a table only. `wide`: True if the chart needs the full width of the page. `folded`:
        number of leading text columns that a folded table shows, 0 for a table that is not folded.
    """
    if chart.draw is None:
        wide, folded = len(chart.columns) > _MAX_COLUMNS, 0
        if wide and chart.rows:  # leading columns that contain only text
            words = (all(isinstance(row[n], str) for row in chart.rows) for n in range(len(chart.columns)))
            folded = sum(takewhile(bool, words))
        return {"svg": None, "wide": wide and not folded, "folded": folded}
    figure = chart.draw()
    svg = svg_text(figure, chart.name, text_as_paths=False)
    wide = figure.get_figwidth() > _MAX_INCHES
    return {"svg": _inline(svg, chart), "wide": wide, "folded": 0}


def _inline(svg: str, chart: Chart) -> str:
    """Return an SVG of matplotlib for embedding in the page, with responsive width and unique ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    attributes = dict(re.findall(r'(\w+)="([^"]*)"', head))
    width, box = attributes["width"], attributes["viewBox"]
    body = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', f"{chart.name}-", body)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{escape(display(chart.title))}" viewBox="{box}" width="{width}" style="--width:{width}">{body}'
    )


# ---- pairs ----


def packed(pair: PairView) -> tuple[dict[str, Any], str]:
    """Return a pair for the page: plain data for JSON, and its weights as zlib-compressed bytes in base64.

    Per method, in order, the bytes are the step of each layer and head (float32, little-endian), and then the weights
    in steps, (layers, heads, target tokens, source tokens), as unsigned bytes, or signed ones if `signed`. NULL is the
    last source token. A step is the largest weight of the layer and head divided by `WEIGHT_STEPS` or `SIGNED_STEPS`,
    so rounding changes a weight by at most half a step.

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
    data = {
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
    return data, base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()
