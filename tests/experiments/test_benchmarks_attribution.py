"""The benchmark of attributions: a whole run on a tiny model, and what it states."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("attribution")


@pytest.mark.slow
def test_every_method_is_timed_against_a_forward_pass(benchmark, monkeypatch, tmp_path):
    shape = "--d-model 16 --layers 1 --heads 2 --ffn 16 --vocab 300 --batch 2 --pairs 2 --repeats 1 --warmup 0"
    output = tmp_path / "x.json"
    monkeypatch.setattr(benchmark, "GROWING", (2, 6))
    monkeypatch.setattr(sys, "argv", ["attribution", *shape.split(), "--threads", "1", "--output", str(output)])
    benchmark.main()
    result = json.loads(output.read_text(encoding="utf-8"))
    assert set(result["variants"]) == set(benchmark.METHODS) - {"posterior"} | {"observations", "faithfulness"}
    assert list(result["memory_growth"]) == ["2", "6"]
    assert result["memory_growth"]["2"] == 0
    assert result["config"]["mean_length"] > 3
    for timed in result["variants"].values():
        (ratio,) = [o / f for o, f in zip(timed["seconds"], timed["forward_seconds"], strict=True)]
        assert timed["over_forward"]["median"] == pytest.approx(ratio)
