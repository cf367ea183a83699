"""Headlines and tables are what `experiments/tables.py` makes of results/*.json; the results have one form."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# ---- what is committed ----


def test_every_document_and_the_headlines_are_up_to_date(tables, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert tables.main() == 0, f"{capsys.readouterr().out.strip()}: run `python experiments/tables.py`"


def test_every_table_stands_in_one_place(tables):
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = Counter()
    for path in documents:
        names = [block["name"] for block in tables.BLOCK.finditer(path.read_text(encoding="utf-8"))]
        assert not names or path.relative_to(ROOT).as_posix() in tables.DOCUMENTS
        found.update(names)
    assert found == Counter(list(tables.TABLES))


def test_a_changed_number_is_noticed(tables):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = text.replace("(3 seeds)", "(4 seeds)", 1)
    assert changed != text
    assert tables.fill(changed) == text


def test_every_result_begins_the_same_way():
    """A result starts with the fields of `records.record`; a note made by hand starts with `what`."""
    untraced = []
    for path in (ROOT / "results").rglob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        if path.name != "headlines.json" and next(iter(result)) != "what":
            made = [name for name in ("command", "commit") if name in result]
            expected = ["config", *made, "software", "hardware", "data_sha256"]
            assert list(result)[: len(expected)] == expected, path
            assert len(made) != 1, path
            untraced += [path] if not made else []
    assert len(untraced) <= 170  # made from 20 to 23 November 2026, before the command was written down


def test_headlines_are_the_numbers_of_their_sources():
    """Recomputed from the places that each names: a median or a mean, in percent or not, less its base or not."""
    figures = json.loads((ROOT / "results" / "headlines.json").read_text(encoding="utf-8"))
    assert len({figure["name"] for figure in figures}) == len(figures) > 50
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "spread", "seeds", "signature", "source"]
        numbers = []
        for place in figure["source"]:
            file, keys = place.split("#/")
            number = json.loads((ROOT / file).read_text(encoding="utf-8"))
            for key in keys.split("/"):
                number = number[int(key)] if isinstance(number, list) else number[key]
            numbers.append(number)
        between = any(part in figure["name"] for part in ("_bleu_to_", "bleu_minus_"))
        if between and not figure["source"][0].endswith("/minus_baseline"):
            half = len(numbers) // 2
            numbers = [ours - base for ours, base in zip(numbers[:half], numbers[half:], strict=True)]
        factor = 100 if figure["unit"] == "%" else 1  # sources are fractions
        numbers = [number * factor for number in numbers]
        expected = sum(numbers) / len(numbers)
        assert figure["value"] == pytest.approx(expected, abs=1e-9), figure["name"]
        assert len(figure["seeds"]) in (0, len(numbers)), figure["name"]
        for kind, spread in (figure["spread"] or {}).items():
            if kind == "half_range":
                assert spread == pytest.approx((max(numbers) - min(numbers)) / 2), figure["name"]
            else:
                assert kind in ("interval_95", "extremes")
                assert spread[0] <= figure["value"] <= spread[1], figure["name"]
        generated = figure["unit"] in ("BLEU", "ROUGE")
        measures = ("_aer", "/aer", "/f1", "accuracy", "/ece", "/ece_before", "/auc", "/precision_at_90")
        measured = figure["name"].endswith(measures) or "/aer_" in figure["name"]
        difference = ("_minus_" in figure["name"] or figure["name"].endswith("_cost")) and not generated
        assert bool(figure["signature"]) == (generated or (measured and not difference)), figure["name"]


def test_without_results_every_table_reads_not_run(tables, results):
    assert tables.collect() == []
    for name, table in tables.TABLES.items():
        assert "not run" in table(), name
