"""The index of the tables: every table has an entry, and what an entry names exists."""

import re
from pathlib import Path

import pytest
import yaml

from hf_attncal.training.sections import read_settings

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"data": "DATA", "runs": "RUNS", "eflomal": "eflomal", "fast_align": "fast_align"}
INDEX = yaml.safe_load((ROOT / "experiments" / "index.yaml").read_text(encoding="utf-8"))
KEYS = {"at", "tables", "page", "data", "each", "run", "then", "results"}


@pytest.fixture(scope="module")
def runner(experiment):
    return experiment("run")


def test_every_table_of_the_docs_has_one_entry(tables):
    indexed = [table for entry in INDEX.values() for table in entry["tables"]]
    assert len(indexed) == len(set(indexed))
    retold = {"headlines", "compared"} | {name for name in tables.TABLES if name.startswith("for-")}
    assert set(indexed) == set(tables.TABLES) - retold


@pytest.mark.parametrize("name", INDEX)
def test_an_entry_names_what_there_is(runner, name):
    entry = INDEX[name]
    assert set(entry) <= KEYS
    commands = list(runner.commands_of(entry, PLACES))
    assert commands
    for command in commands:
        assert not re.search(r"\{\w+\}", " ".join(command))
        if command[1] == "-m" or "at" in entry:
            continue
        script = ROOT / command[1]
        shared = ("benchmarks/common.py", "experiments/frozen.py", "hf_attncal/training/job.py")
        code = script.read_text(encoding="utf-8") + "".join((ROOT / path).read_text("utf-8") for path in shared)
        for option in (word for word in command if word.startswith("--")):
            # Some scripts add several options in a loop over their names.
            assert f'"{option}"' in code or f'"{option[2:]}"' in code, (command[1], option)
        if "--config" in command:
            file = command[command.index("--config") + 1]
            read_settings(str(ROOT / file), [word for word in command if re.match(r"[a-z_.]+=", word)])
    for pattern in entry["results"]:
        assert list((ROOT / "results").glob(f"{pattern}.json")) or list((ROOT / "results").glob(pattern)), pattern


def test_values_and_places_are_filled_in_or_left_out(runner):
    command = "python a.py --data {data} --eflomal {eflomal} --seed {seed}"
    entry = {"tables": [], "each": {"seed": [1, 2]}, "run": [command], "then": ["attncal align {data}"]}
    first, second, last = (command[1:] for command in runner.commands_of(entry, {"data": "D"}))
    assert first == ["a.py", "--data", "D", "--seed", "1"]
    assert second[-1] == "2"
    assert last == ["-m", "hf_attncal", "align", "D"]
    (only, _) = runner.commands_of(entry, {"data": "D"}, {"seed": "2"})
    assert only[-1] == "2"


def test_a_table_leads_to_its_entry_and_an_unknown_name_to_those_there_are(runner, capsys):
    assert runner.entry_of("which-more") == INDEX["encoder-prior"]
    with pytest.raises(SystemExit):
        runner.main(["nothing"])
    assert "`nothing` is no entry" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        runner.main(["noisy-pairs"])
    assert "check out commit" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        runner.main(["adapters"])
    assert "--data must name the folder that has multi30k" in capsys.readouterr().err
