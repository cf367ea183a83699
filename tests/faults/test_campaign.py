"""The results file of the faults: every outcome is counted, and one that is bad is told and decides the status."""

import json
import sys
from types import SimpleNamespace

import campaign
import pytest
from outcomes import TOTALS, Outcome

GOOD = [Outcome("kill", "a", "survived"), Outcome("kill", "b", "survived"), Outcome("fuzz", "c", "refused")]
BAD = [Outcome("fuzz", f"{result}", result, "seen") for result in TOTALS.values()]


def tried(monkeypatch, tmp_path, outcomes) -> tuple[int, dict]:
    asked = []
    module = SimpleNamespace(run=lambda folder, *, full: asked.append((folder.name, full)) or outcomes)
    monkeypatch.setitem(sys.modules, "signals", module)
    status = campaign.main(["--output", str(tmp_path / "faults.json"), "--only", "signals"])
    assert asked == [("signals", True)]
    return status, json.loads((tmp_path / "faults.json").read_text())


def test_what_is_good_is_counted(monkeypatch, tmp_path):
    status, results = tried(monkeypatch, tmp_path, GOOD)
    assert status == 0
    assert list(results)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert results["table"] == [
        {"kind": "kill", "tried": 2, "survived": 2},
        {"kind": "fuzz", "tried": 1, "refused": 1},
    ]
    assert results["tried"] == 3
    assert results["bad"] == []


@pytest.mark.parametrize("outcome", BAD, ids=lambda outcome: outcome.result)
def test_each_kind_of_bad_outcome_is_told(monkeypatch, tmp_path, capsys, outcome):
    status, results = tried(monkeypatch, tmp_path, [*GOOD, outcome])
    assert status == 1
    totals = [results[name] for name in TOTALS]
    assert totals == [int(outcome == bad) for bad in BAD]
    assert results["bad"] == [vars(outcome)]
    assert outcome.result in capsys.readouterr().err


def test_runs_of_several_kinds_and_seeds_become_one(monkeypatch, tmp_path):
    parts = []
    for number, outcomes in enumerate(([*GOOD, BAD[0]], GOOD)):
        tried(monkeypatch, tmp_path, outcomes)
        parts.append(tmp_path / f"{number}.json")
        (tmp_path / "faults.json").rename(parts[-1])
    joined = tmp_path / "joined.json"
    assert campaign.main(["--output", str(joined), "--join", *map(str, parts)]) == 0
    results = json.loads(joined.read_text())
    assert results["tried"] == 7
    assert results["lost"] == 1
    assert results["bad"] == [vars(BAD[0])]
    assert results["table"] == [
        {"kind": "kill", "tried": 4, "survived": 4},
        {"kind": "fuzz", "tried": 3, "refused": 2, "lost": 1},
    ]
    run = {"kinds": ["signals"], "seed": 0, "warm": False, "commit": results["commit"]}
    assert results["config"] == {"kinds": ["signals"], "runs": [run, run]}
    assert campaign.main(["--output", str(tmp_path / "more.json"), "--join", str(joined), str(parts[1])]) == 0
    more = json.loads((tmp_path / "more.json").read_text())
    assert (more["tried"], more["lost"], more["config"]["runs"]) == (10, 1, [run] * 3)
