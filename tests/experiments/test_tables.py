"""The tables of README.md and docs/ are what `experiments/tables.py` makes of results/*.json."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "experiments" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_is_up_to_date(tables):
    for name in tables.DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert tables.BLOCK.search(text), f"{name} has no table"
        assert tables.fill(text) == text, f"{name} is out of date: run `python experiments/tables.py`"


def test_a_changed_number_is_noticed(tables):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = text.replace("| baseline | 3", "| baseline | 4", 1)
    assert changed != text
    assert tables.fill(changed) == text


def test_a_result_that_is_missing_reads_not_run(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.multi30k().count(f"| {tables.NOT_RUN} |") > 0
    assert tables.benchmark("training", {}) == f"{tables.NOT_RUN}\n"
    assert tables.aligning() == tables.aligners() == f"{tables.NOT_RUN}\n"
    assert tables.adapter_attention() == tables.adapter_cost() == f"{tables.NOT_RUN}\n"
    assert tables.adapters("nowhere").count(f"| {tables.NOT_RUN} |") > 0


def test_adapters_against_their_bases(tables, tmp_path, monkeypatch):
    """Each seed has a base of its own; all weights have none and take that of the same seed."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    scores = {"fixed": {1: (31.0, 30.0), 2: (33.0, 34.0)}, "full": {1: (36.0, None)}}
    for method, runs in scores.items():
        for seed, (trained, base) in runs.items():
            bleu = {"trained": {"bleu": trained, "signature": "S"}} | ({"base": {"bleu": base}} if base else {})
            run = {
                "config": {"training": {"seed": seed}},
                "trained_parameters": 1000,
                "valid": bleu,
                "test": bleu,
                "wall_seconds": 90,
            }
            if method == "fixed":
                run["attention"] = {"reliability_level": [0.1, 0.5]}
            (tmp_path / f"{method}_seed{seed}.json").write_text(json.dumps(run))
    lines = tables.adapters(".").splitlines()
    assert lines[2].startswith("| base | - | 32.00 ± 2.00 (2 seeds) | 32.00 ± 2.00 (2 seeds) | -")
    fixed = next(line for line in lines if line.startswith("| fixed |"))
    assert fixed.endswith("| 32.00 ± 1.00 (2 seeds) | +0.00 (-1.00 to +1.00) | 0.500 | 1.5 |")
    full = next(line for line in lines if line.startswith("| all weights |"))
    assert full.endswith("| 36.00 | +6.00 (+6.00 to +6.00) | - | 1.5 |")
    assert lines[-1] == "sacreBLEU `S`"


def spread(median: float) -> dict:
    return {"median": median, "min": median - 1, "max": median + 1, "n": 3}


def test_speed_of_the_aligner(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    parts = {
        "forward": {"pairs_per_second": spread(50.26), "ratio_to_encoder": spread(5.0)},
        "text_to_links": {"pairs_per_second": spread(40), "ratio_to_encoder": spread(4.0)},
    }
    result = {
        "environment": {"cpu": "a processor", "threads": 2},
        "settings": {"dtype": "float32"},
        "encoder": {"config": {"num_hidden_layers": 12}, "pairs_per_second": spread(10)},
        "aligners": {"small": parts, "base": parts},
        "training": {"small": {"bf16": True, "tokens_per_second": spread(900)}},
        "memory": {"model": "small", "runs": [{"lines": n, "peak_bytes": 2**20 * n} for n in (500, 1000)]},
    }
    (tmp_path / "benchmark_aligning_cpu.json").write_text(json.dumps(result))
    lines = tables.aligning().splitlines()
    where = "a processor, 2 thread(s), float32"
    assert lines[2] == f"| encoder, 12 layers | 10.0 | 1 | - | - | - | {where} |"
    row = "50.3 | 5.00 (4.00 to 6.00) | 40.0 | 4.00 (3.00 to 5.00)"
    assert lines[3] == f"| small | {row} | 900 (bf16) | {where} |"
    assert lines[4] == f"| base | {row} | not run | {where} |"
    peaks = "500 MB for 500 lines, 1000 MB for 1,000 lines"
    assert lines[-1] == f"Peak memory of `attncal align run` (small; {where}): {peaks}."


def test_error_rates_of_aligners(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    test = {"aer": 0.0812, "interval": [0.07, 0.095], "precision": 0.93, "recall": 0.9}
    systems = {
        "peer": {
            "dev": {"aer": 0.1},
            "test": test | {"signature": "AER|base:0|symm:union|n:3"},
            "symmetrization": "union",
            "seconds": 90,
        },
        "ours": {
            "dev": {"aer": 0.09},
            "test": test | {"interval": None, "signature": "AER|base:0|symm:harmonic|n:3"},
            "symmetrization": "harmonic",
            "seconds": 6,
            "training_seconds": 60,
        },
        "untested": {"dev": {"aer": 0.2}, "symmetrization": "harmonic", "seconds": 6},
    }
    (tmp_path / "aligners_de-en.json").write_text(json.dumps({"pair": "de-en", "systems": systems}))
    reported = [
        {"pair": "de-en", "name": "old", "aer": 17.8, "same_files": False},
        {"pair": "de-en", "name": "fast", "aer": 20.0, "same_files": True},
        {"pair": "xx-en", "name": "other", "aer": 1.0, "same_files": True},
    ]
    (tmp_path / "reported_aligners.json").write_text(json.dumps({"rows": reported}))
    assert tables.aligners().splitlines()[2:] == [
        "| peer, de-en | 10.0 | 8.1 (7.0 to 9.5) | 93.0 | 90.0 | union | 1.5 |",
        "| ours, de-en | 9.0 | 8.1 | 93.0 | 90.0 | harmonic | 1.1 |",
        "| untested, de-en | 20.0 | not run | - | - | harmonic | 0.1 |",
        "| old, de-en (published, whole test set) | - | 17.8 | - | - | - | - |",
        "| fast, de-en (measured elsewhere on these files) | - | 20.0 | - | - | - | - |",
        "",
        "`AER|base:0|symm:*|n:3`",
    ]


def test_ablation(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.ablation() == "not run\n"
    scored = {"dev": 0.5, "test": 0.25, "interval": [0.2, 0.3]}
    row = {
        "masked": True,
        "leaky": False,
        "agreement": True,
        "with_end_punctuation": scored,
        "without_end_punctuation": scored | {"test": 0.35},
        "valid": {"prediction_accuracy": 0.125},
    }
    rows = [row, row | {"masked": False, "agreement": False}]
    (tmp_path / "aligner_ablation.json").write_text(json.dumps({"rows": rows}))
    assert tables.ablation().splitlines()[2:] == [
        "| masked + agreement | 50.0 | 25.0 (20.0 to 30.0) | 35.0 | 12.5 |",
        "| none | 50.0 | 25.0 (20.0 to 30.0) | 35.0 | 12.5 |",
    ]
