"""What the experiment writes and prints of a self-test."""

import json

import pytest


@pytest.fixture
def experiment_of(experiment, tmp_path, monkeypatch):
    """The script, with a result in the place of a training."""
    script = experiment("self_test")

    def score(value: float) -> dict:
        intervals = {"accuracy": (value - 0.1, value + 0.1)}
        return {"accuracy": value, "by_chance": 0.2, "one_place": 0.25, "intervals": intervals}

    found = {
        "training": {"config": {}, "steps": 3, "wall_seconds": 1.0, "parameters": 9, "test": {"bleu": 1.0}},
        "methods": {"attention": {"links": score(0.5)}, "alti": {"links": score(0.8)}},
        "best_method": "alti",
        "metrics": {"hide": {"sufficiency": {"usable": False, "above_random": 0.5, "interval": (-1, 2), "tau": None}}},
    }
    given = {}

    def run(folder, **options):
        given.update(options)
        return dict(found)

    monkeypatch.setattr(script, "run_self_test", run)
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    return script, given


def test_a_result_is_written_and_its_tables_are_printed(experiment_of, tmp_path, capsys):
    script, given = experiment_of
    script.main(["--seed", "3", "--steps", "7"])
    written = json.loads((tmp_path / "analysis" / "self_test_seed3.json").read_text())
    assert given == {"steps": 7, "seed": 3, "measured": 30, "bootstrap": 1000}
    assert (written["config"]["seed"], written["best_method"], written["training"]["steps"]) == (3, "alti", 3)
    assert written["software"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:6] == [
        "| alti | 80.0 (70.0 to 90.0) |",
        "| attention | 50.0 (40.0 to 60.0) |",
        "| (a word drawn at random) | 20.0 |",
        "| (always one place) | 25.0 |",
    ]
    assert lines[-1] == "| hide: sufficiency | NO | 0.50 | - |"
