"""The tables of README.md and docs/ are what `benchmarks/tables.py` makes of results/*.json."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_is_up_to_date(tables):
    for name in tables.DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert tables.BLOCK.search(text), f"{name} has no table"
        assert tables.fill(text) == text, f"{name} is out of date: run `python benchmarks/tables.py`"


def test_a_changed_number_is_noticed(tables):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = text.replace("| baseline | 3", "| baseline | 4", 1)
    assert changed != text
    assert tables.fill(changed) == text


def test_a_result_that_is_missing_reads_not_run(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.multi30k().count(f"| {tables.NOT_RUN} |") > 0
    assert tables.benchmark("training", {}) == f"{tables.NOT_RUN}\n"
