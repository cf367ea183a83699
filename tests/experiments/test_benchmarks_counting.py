"""The benchmark of the aligner that counts: what it divides by what."""

import importlib
from argparse import Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = {"train": 6.0, "run": 2.0, "eflomal-align": 4.0, "--help": 0.5, "attncal-before": 9.0}


@pytest.fixture
def counting(monkeypatch):
    """The benchmark, with seconds by the last of these words that a command has; and the commands that it ran."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module, commands = importlib.import_module("counting"), []

    def seconds_of(command: list[str]) -> float:
        commands.append(command)
        return [seconds for word, seconds in SECONDS.items() if word in command][-1]

    monkeypatch.setattr(module, "cpu_seconds", seconds_of)
    return module, commands


def test_learning_is_training_and_aligning_and_eflomal_is_measured_in_turn(counting, tmp_path):
    module, commands = counting
    args = Namespace(learning_repeats=2, eflomal="eflomal-align", pairs=80)
    measured = module.measure_learning(args, ["a", "b"], tmp_path)
    assert [measured[name]["median"] for name in ("pairs_per_cpu_second", "eflomal_pairs_per_cpu_second")] == [10, 20]
    assert measured["pairs_per_cpu_second_aligning"] == {"median": 40, "min": 40, "max": 40, "n": 2}
    assert measured["ratio_to_eflomal"]["median"] == 0.5
    kinds = [next(word for word in ("train", "run", "eflomal-align") if word in command) for command in commands]
    assert kinds == ["train", "run", "eflomal-align"] * 2
    assert commands[0][-1] == commands[1][commands[1].index("run") + 1] == str(tmp_path / "aligner0")
    assert "eflomal_pairs_per_cpu_second" not in module.measure_learning(
        Namespace(**vars(args) | {"eflomal": None}), ["a", "b"], tmp_path
    )


def test_the_start_is_measured_on_the_first_lines(counting, tmp_path):
    module, commands = counting
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{name} {number}\n" for number in range(9)))
    args = Namespace(repeats=3, lines=4, before="attncal-before")
    measured = module.measure_start(args, [str(tmp_path / name) for name in ("a", "b")], tmp_path)
    assert {name: seconds["cpu_seconds"]["median"] for name, seconds in measured.items()} == {
        "help": 0.5, "run_help": 0.5, "run": 2.0,
    }  # fmt: skip
    assert measured["run"]["cpu_seconds_before"] == {"median": 9, "min": 9, "max": 9, "n": 3}
    assert len(commands) == 18
    source = Path(commands[4][commands[4].index("--source") + 1])
    assert source.read_text() == "a 0\na 1\na 2\na 3\n"
