"""Lines of code, and the file of what the code costs to read."""

import json

import headlines
import house
import pytest
import reach
import walks

from hf_attncal.command_table import COMMANDS

SOURCE = '''"""A docstring
of two lines."""

import os  # why


def half(
    number,
):
    """Return half of it."""

    # a comment
    text = """no
    docstring"""
    return number / 2, text, os
'''


def test_docstrings_comments_and_blank_lines_are_no_code():
    assert reach.lines_of_code(SOURCE) == 1 + 3 + 2 + 1
    assert reach.lines_of_code("") == 0


def test_a_file_is_written_and_keeps_the_minutes_of_the_tests(tmp_path, monkeypatch):
    stops = [walks.Stop("hf_attncal/files.py", "sha256"), walks.Stop("hf_attncal/data/corpora.py", "read_parallel")]
    monkeypatch.setattr(walks, "WALKS", {"short": lambda folder: stops})
    path = tmp_path / "house.json"
    path.write_text(json.dumps({"tests": {"minutes": 7.5}}))
    house.main(["--output", str(path)])
    result = json.loads(path.read_text())
    assert result["tests"] == {"minutes": 7.5}
    assert result["walks"] == {"short": {"stops": 2, "files": 2, "climbs": 1}}
    assert result["lines_of_code"].keys() == {"hf_attncal", "experiments"}
    assert min(result["lines_of_code"].values()) > 1000
    assert result["reach"].keys() == COMMANDS.keys()
    assert 0 < result["reach"]["publish"]["lines"] < result["reach"]["analyze"]["lines"]
    assert 0 < result["options"]["different"] < result["options"]["all"]
    assert {"software", "hardware"} <= result.keys()


@pytest.mark.parametrize(("options", "minutes"), [([], []), (["--tests"], [7.4])])
def test_the_minutes_of_the_tests_are_a_headline_where_they_were_run(results, monkeypatch, options, minutes):
    monkeypatch.setattr(walks, "WALKS", {})
    monkeypatch.setattr(reach, "lines_of_code", len)
    monkeypatch.setattr(reach, "reached_lines", len)
    monkeypatch.setattr(house, "run_tests", lambda: {"minutes": 7.4, "processes": 2, "result": "9 passed in 444 s"})
    house.main(["--output", str(results / "house.json"), *options])
    figures = {figure["name"]: figure for figure in headlines.collect()}
    assert [figures[name]["value"] for name in figures if name == "tests/minutes"] == minutes
    assert "house/lines_of_code" in figures
