"""The benchmark from a wheel to a shared page: its steps follow on each other, and a failure is told."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["tokenizer.vocab_size=150", "model.d_model=16", "training.max_steps=2"]


@pytest.fixture
def attncal(tmp_path):
    """A command of this tree."""
    program = tmp_path / "attncal"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m hf_attncal "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def first_page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("first_page")


@pytest.mark.slow
def test_the_page_is_published_and_each_step_timed(first_page, attncal, tmp_path, monkeypatch):
    output = tmp_path / "page.json"
    monkeypatch.setattr(sys, "argv", ["first_page.py", "--attncal", attncal, "--pairs", "80", "--output", str(output)])
    sys.argv += SMALL
    first_page.main()
    result = json.loads(output.read_text())
    steps = result["steps"]
    assert list(steps) == ["train a model", "write its report", "publish the report"]
    assert all(step["minutes"] > 0 and step["cpu_minutes"] > 0 for step in steps.values())
    assert result["minutes"] == pytest.approx(sum(step["minutes"] for step in steps.values()), abs=0.01)
    assert result["config"]["installed"] is False
