"""Inputs and settings that look whole: refused or answered rightly; and a wrong answer would be seen."""

import json

import pytest
from fuzz import Answer
from inputs import APPENDED, COMPRESSED, FEW, LINKS, SETTINGS, refused, run, survived, told_of_one
from outcomes import bad, table


def test_inputs_that_look_whole(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert not bad(outcomes), bad(outcomes)
    kinds = {row["kind"]: row for row in table(outcomes)}
    assert set(kinds) == {COMPRESSED, SETTINGS, LINKS, FEW}
    assert (kinds[COMPRESSED]["survived"], kinds[COMPRESSED]["refused"]) == (3, 33)
    assert kinds[LINKS]["survived"] == 2


@pytest.mark.slow
def test_an_output_that_is_appended_to(tmp_path):
    outcomes = run(tmp_path, full=True)
    assert not bad(outcomes), bad(outcomes)
    assert {"kind": APPENDED, "tried": 2, "survived": 2} in table(outcomes)


def test_wrong_answers_are_seen():
    told = Answer(1, b"", "attncal: error: links.xz is cut.\n")
    assert refused(told, "links.xz")[0] == "refused"
    assert refused(told, "links.gz")[0] == refused(Answer(1, b"0-0\n", told.err), "links.xz")[0] == "lost"
    assert refused(Answer(0, b"0-0\n", ""), "links.xz")[0] == "wrong"
    assert refused(Answer(1, b"", "Traceback ..."), "")[0] == "traceback"
    assert refused(Answer(None, b"", ""), "")[0] == "hung"
    assert survived(Answer(0, b"a\n", ""), b"a\n")[0] == "survived"
    assert survived(Answer(0, b"a\n", ""), b"kept\na\n")[0] == "wrong"
    assert survived(told, b"")[0] == "lost"


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ({"interval": None, "p_value": None}, ""),
        ({"interval": [0.1, 0.2], "p_value": None}, "interval"),
        ({"interval": None, "p_value": 0.001}, "p_value"),
        ({"above_first": {"rouge1": {"difference": 1.0, "interval": [1.0, 1.0]}}}, "interval"),
    ],
)
def test_an_interval_of_one_sentence_is_seen(row, seen):
    found = told_of_one(Answer(0, json.dumps({"scores": [row]}).encode(), ""), ["p_value"])
    assert (found == "") == (seen == "")
    assert seen in found
