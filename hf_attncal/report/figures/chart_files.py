"""Write the charts of a report as files: pictures for papers and slides, numbers for programs and spreadsheets."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.io.files import fill_folder, writing
from hf_attncal.io.gate import check_folder

from .contents import Chart, Report

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
