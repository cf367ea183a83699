"""The charts of a report as files: all of them or none, and the same each time."""

import csv
import json
from xml.etree import ElementTree

import pytest
from report_helpers import HOSTILE, chart, report

from hf_attncal.report.figures.report_files import write_files


def read_all(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_chart_is_there_in_every_form(tmp_path):
    from matplotlib.image import imread

    write_files(report(), tmp_path / "new" / "figures")
    files = read_all(tmp_path / "new" / "figures")
    assert sorted(files) == [
        "bars.csv", "bars.json", "bars.png", "bars.svg", "report.json", "table.csv", "table.json",
    ]  # fmt: skip
    assert list(csv.reader(files["bars.csv"].decode().splitlines())) == [
        ["what", "count", "share"],
        ["a", "1", "0.123456"],
        ["<b>", "", "2.0"],
    ]
    bars = json.loads(files["bars.json"])
    assert bars["rows"] == [["a", 1, 0.123456], ["<b>", None, 2.0]]
    assert HOSTILE in bars["caption"]
    assert imread(tmp_path / "new" / "figures" / "bars.png").shape[:2] == (400, 600)  # 3 x 2 inches
    assert ElementTree.fromstring(files["bars.svg"]).tag == "{http://www.w3.org/2000/svg}svg"
    overview = json.loads(files["report.json"])
    assert overview["sections"] == [{"title": "A section", "text": "What is in it.", "charts": ["bars", "table"]}]
    assert overview["record"] == {"config": {"text": HOSTILE}}


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_files(report(), tmp_path / name)
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


def test_files_of_the_same_name_are_replaced_and_others_stay(tmp_path):
    (tmp_path / "bars.csv").write_text("old")
    (tmp_path / "mine.txt").write_text("mine")
    write_files(report(), tmp_path)
    files = read_all(tmp_path)
    assert files["bars.csv"].startswith(b"what,")
    assert files["mine.txt"] == b"mine"
    assert len(files) == 8


def broken():
    raise RuntimeError("cannot be drawn")


@pytest.mark.parametrize(
    ("charts", "message"),
    [
        ([chart(), chart("second", draw=broken)], "cannot be drawn"),
        ([chart(rows=[("a", 1, float("nan"))])], "not JSON compliant"),
    ],
)
def test_an_error_does_not_change_the_folder(tmp_path, charts, message):
    (tmp_path / "report.json").write_text("old")
    with pytest.raises((ValueError, RuntimeError), match=message):
        write_files(report(charts=charts), tmp_path)
    assert read_all(tmp_path) == {"report.json": b"old"}
