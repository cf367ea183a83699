"""The benchmark of calibrated attention on tiny tensors: its forms, and sources of another length."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """The benchmark and what all share."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("calibrated_attention"), importlib.import_module("common")


def test_long_sources_beside_the_stock_attention(modules, monkeypatch, tmp_path):
    benchmark, common = modules
    shape = "--d-model 16 --layers 1 --heads 2 --ffn 16 --vocab 60 --batch 4 --length 4 --source-length 9"
    run = f"{shape} --new-tokens 2 --beams 2 --repeats 1 --warmup 0 --threads 1 --device cpu --sizes 2,3,9"
    monkeypatch.setattr(sys, "argv", ["x", *run.split(), "--output", str(tmp_path / "x.json")])
    benchmark.main()
    found = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert found["attention"]["2,3,9"].keys() == {"product", "kernel", "row factor", "stock"}
    assert not any("peak_bytes" in key for key in found["generation"])  # of a GPU alone

    batch = common.batch(common.parser("", 1, 1, 1).parse_args(shape.split()))
    assert [batch[name].shape for name in ("input_ids", "attention_mask", "labels")] == [(4, 9), (4, 9), (4, 4)]
    assert batch["attention_mask"].sum(1).tolist() == [7, 9, 9, 9]
    assert (batch["labels"] != -100).sum(1).tolist() == [3, 4, 4, 4]


def test_benchmarks_of_a_gpu_in_their_order(modules, monkeypatch, tmp_path, capsys):
    """Each has options that its script knows; what fails does not keep the others from running, and time does."""
    on_gpu, began, clock = importlib.import_module("on_gpu"), [], iter([0.0, 1.0, 2.0, 3.0, 4.0, 99.0, *[100.0] * 20])

    def run(path: str, run_name: str) -> None:
        source = Path(path).read_text(encoding="utf-8")
        shared = (BENCHMARKS / "common.py").read_text(encoding="utf-8")
        began.append(Path(path).stem)
        for option in (word for word in sys.argv if word.startswith("--")):
            assert f'"{option}"' in source + shared, f"{path}: {option}"
        if len(began) == 2:
            raise RuntimeError("out of memory")

    monkeypatch.setattr(on_gpu.runpy, "run_path", run)
    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setattr(on_gpu.time, "monotonic", lambda: next(clock))
    assert on_gpu.main(["--seconds", "50", "--first", "training_cuda", "--output", str(tmp_path)]) == {
        "training_cuda": True,
        "calibrated_attention_cuda_bf16": False,
    }
    assert began == ["training", "calibrated_attention"]
    assert "generation_cuda_bf16: no time" in capsys.readouterr().out

    monkeypatch.setattr(on_gpu.time, "monotonic", lambda: 0.0)
    assert on_gpu.main(["--output", str(tmp_path)]).keys() == on_gpu.RUNS.keys()
