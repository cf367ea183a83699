"""Damaged files beside an aligner are refused by name or answered as before; and what judges that can say no."""

import pytest
from fuzz import Answer
from learned import MISSING, TURNED, TWICE, Aligner, damaged, run, ways
from outcomes import bad


@pytest.mark.slow
def test_some_damaged_files(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert len(outcomes) > 30
    assert bad(outcomes) == []
    assert {outcome.result for outcome in outcomes} == {"survived", "refused"}


@pytest.mark.slow
def test_every_damaged_file(tmp_path):
    outcomes = run(tmp_path, full=True)
    assert len(outcomes) > 2000
    assert bad(outcomes) == []


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Answer(0, b"right\n", ""), "survived"),
        (Answer(0, b"wrong\n", ""), "wrong"),
        (Answer(1, b"", "attncal: error: check.json cannot be used: `best` is missing.\n"), "refused"),
        (Answer(1, b"", "attncal: error: `best` is missing.\n"), "wrong"),
        (Answer(1, b"r", "attncal: error: check.json cannot be used: `best` is missing.\n"), "wrong"),
        (Answer(1, b"", "attncal: error: check.json\nTraceback ...\n"), "traceback"),
        (Answer(None, b"", ""), "hung"),
    ],
)
def test_what_a_command_was(monkeypatch, tmp_path, answer, result):
    monkeypatch.setattr("learned.here", lambda command: answer)
    aligner = Aligner(tmp_path, (["check", "MODEL"],), (b"right\n",))
    assert aligner.judged("(?=.*check.json)(?=.*best)", tmp_path)[0] == result


def test_damages_are_made(tmp_path):
    import random

    content = {"a": {"b": [1, 2]}, "c": None}
    assert list(ways(content, random.Random(1)))[:2] == [("a",), ("a", "b")]
    assert damaged(content, ("a", "b"), TURNED) == '{"a": {"b": [2, 1]}, "c": null}'
    assert damaged(content, ("a", "b", 0), 1) is damaged(content, ("c",), None) is None
    assert damaged(content, ("a", "b", 0), float("nan")) == '{"a": {"b": [NaN, 2]}, "c": null}'
    assert damaged(content, ("c",), MISSING) == '{"a": {"b": [1, 2]}}'
    assert damaged(content, ("c",), TWICE) == '{"a": {"b": [1, 2]}, "c": 0, "c": null}'
