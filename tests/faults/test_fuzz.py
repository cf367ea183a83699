"""Hostile lines: each gets its right answer or an error that names it; and a wrong answer would be seen."""

import json
from dataclasses import replace
from itertools import product

import pytest
from fuzz import (
    ALIGN,
    OPTIONS,
    SCORE,
    TRANSLATE,
    WORDS,
    Answer,
    Case,
    answers_alone,
    judge,
    judge_option,
    judge_score,
    make_models,
    problem_of_links,
    problem_of_translation,
    run,
    run_cases,
    translate_case,
)
from outcomes import bad, table
from rules import pair_of, readable_lines, words_of

import hf_attncal.inference.answers as answers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def models(folder):
    return make_models(folder / "tiny")


def tried(outcomes) -> dict[str, int]:
    return {row["kind"]: row["tried"] for row in table(outcomes)}


def test_a_sample_of_hostile_lines(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert bad(outcomes) == []
    numbers = tried(outcomes)
    assert numbers.pop(OPTIONS) > 50
    assert numbers == dict.fromkeys((ALIGN, TRANSLATE, SCORE), 60)


@pytest.mark.slow
def test_a_thousand_hostile_lines_of_each_command(tmp_path):
    outcomes = run(tmp_path, full=True)
    assert bad(outcomes) == []
    rows = {row["kind"]: row for row in table(outcomes)}
    for kind in (ALIGN, TRANSLATE, SCORE):
        assert rows[kind]["tried"] == 1000
        assert min(rows[kind]["survived"], rows[kind]["refused"]) > 50


@pytest.mark.slow
def test_the_tiny_models_have_something_to_say(models, folder):
    """Else a line would not be missed where another stands in its place."""
    sides = [map(" ".join, product(words, repeat=3)) for words in (WORDS[:4], WORDS[5:9])]
    pairs = set(zip(*sides, strict=True))
    commands = {
        ("align", "run", models.mask_align): pairs,
        ("align", "run", models.translator): pairs,
        ("translate", models.translator, "max_new_tokens=5"): {source for source, _ in pairs},
    }
    for command, items in commands.items():
        answers = answers_alone([*command, "--device", "cpu"], items, folder)
        assert len(answers) == len(items)
        assert len(set(answers.values())) > len(items) / 5


def test_the_rules_themselves():
    assert words_of("a\u00a0b\u200bc\x1f\u2028d\x00") == ["a", "b\u200bc", "d\x00"]
    assert pair_of("a b\u3000|||\tc") == ("a b", "c")
    assert (pair_of(" \r"), pair_of("a|||b"), pair_of("a ||| b |||")) == (("", ""), None, None)
    assert readable_lines(b"\xef\xbb\xbfa\r\nb\rc\n\nd\r", 10) == (["a", "b\rc", "", "d"], None)
    assert readable_lines(b"a\n\xff\nb", 10) == (["a"], 2)
    assert readable_lines("aé".encode() + b"\xff\n", 2, cut=True) == (["a"], None)


# ---- a wrong answer is seen ----

PAIRS = [("a b", "c d"), ("", ""), ("a b c", "d")]
ALONE = dict(zip(PAIRS, ["0-0 1-1", "", "0-0 2-0"], strict=True))
REFUSED = Case(ALIGN, "by hand", (), PAIRS, r" line 4 ")
WHOLE = replace(REFUSED, told=None)
LATIN = "Convert the text first, for example with `iconv -f latin1 -t utf-8`."
ERROR = f"attncal: error: line 4 of the input is not UTF-8 (byte 1). {LATIN}\n"
RIGHT = Answer(1, b"0-0 1-1\n\n0-0 2-0\n", ERROR)


def results(case: Case, answer: Answer) -> list[str]:
    outcomes = judge(case, answer, lambda pair, line: problem_of_links((), pair, line, ALONE[pair]))
    assert all(outcome.detail for outcome in outcomes if outcome.result in ("lost", "wrong"))
    return [outcome.result for outcome in outcomes]


def test_a_right_answer_is_good():
    assert results(REFUSED, RIGHT) == ["survived"] * 3 + ["refused"]
    assert results(WHOLE, Answer(0, RIGHT.out, "")) == ["survived"] * 3


@pytest.mark.parametrize(
    ("out", "wrong"),
    [
        (b"0-0 1-2\n\n0-0 2-0\n", {0}),  # a link off by one, out of range
        (b"0-0 1-0\n\n0-0 2-0\n", {0}),  # in range
        (b"0-0 1-1\n\n0-0 2-0", {2}),  # half a line
        (b"0-0 1-1\n0-0 2-0\n", {1, 2}),  # a line is missing
        (b"0-0 1-1\n\n\n0-0 2-0\n", {2}),  # one too many
        (b"0-0 1-1\n\n0-0 2-0\n\n", {2}),
        (b"\n0-0 1-1\n0-0 2-0\n", {0, 1}),  # exchanged
        (b"1-1 0-0\n\n0-0  2-0\n", {0, 2}),  # not in order, not of this format
        (b"0-0 1-1\n\n\xff\n", {2}),
        (b"", {0, 1, 2}),
    ],
)
def test_wrong_lines_with_exit_status_0_are_seen(out, wrong):
    expected = ["wrong" if number in wrong else "survived" for number in range(3)]
    assert results(WHOLE, Answer(0, out, "")) == expected


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"err": ERROR.replace("4", "3")}, "lost"),  # another line
        ({"err": ERROR + "and more\n"}, "lost"),
        ({"err": ""}, "lost"),
        ({"status": 2}, "lost"),
        ({"status": 0, "err": ""}, "wrong"),
        ({"out": RIGHT.out + b"0-0\n"}, "lost"),  # a line for what was refused
    ],
)
def test_a_wrong_ending_is_seen(changes, last):
    assert results(REFUSED, replace(RIGHT, **changes)) == ["survived"] * 3 + [last]


def test_what_breaks_down_is_seen():
    assert results(REFUSED, replace(RIGHT, err="Traceback (most recent call last):\n")) == ["traceback"] * 4
    assert results(REFUSED, replace(RIGHT, status=None)) == ["hung"] * 4
    assert results(REFUSED, replace(RIGHT, out=b"0-0 1-1\n")) == ["survived", "lost", "lost", "refused"]
    assert results(WHOLE, Answer(1, RIGHT.out, ERROR)) == ["survived", "survived", "lost"]


def test_a_line_that_cannot_be_read_is_seen():
    for line in (b"x", b"[]", b"{}", b'{"links": 1, "source_null": [], "target_null": []}'):
        (outcome,) = judge(
            replace(WHOLE, items=PAIRS[:1]),
            Answer(0, line + b"\n", ""),
            lambda pair, line: problem_of_links(["json"], pair, line, line),
        )
        assert outcome.result == "wrong"


def test_wrong_columns_and_fields_are_seen():
    for line in ("0-0\t0.1 0.2\t0.3", "0-0\t0.1\t0.3\t", "0-0"):
        assert problem_of_links(["--null"], ("a", "b"), line, line)
    assert not problem_of_links(["--null"], ("a b", ""), "\t1.0000 1.0000\t", "\t1.0000 1.0000\t")
    assert problem_of_links(["--scores"], ("a", "b"), "0-0", "0-0")
    found = {"links": [[0, 0]], "source_null": [0.1], "target_null": [0.2]}
    assert not problem_of_links(["json"], ("a", "b"), json.dumps(found), json.dumps(found))
    for wrong in ({"links": [[0, 1]]}, {"links": [[0, 0], [0, 0]]}, {"source_null": []}):
        line = json.dumps(found | wrong)
        assert problem_of_links(["json"], ("a", "b"), line, line)
    assert problem_of_translation([], " ", "x", "x")
    assert problem_of_translation([], "a", "x", None)
    assert not problem_of_translation([], "a", "x", "x")
    for line in ("x", "-0.12\tx", "-0.1234 x"):
        assert problem_of_translation(["--scores"], "a", line, line)
    for text, line in (("a", "-0.1234\tx"), (" ", "\t")):
        assert not problem_of_translation(["--scores"], text, line, line)
    found = {"source": "a", "translation": "x", "score": -0.1, "tokens": ["x"], "token_scores": [-0.1]}
    found |= {"alignment": {"links": [[0, 0]]}}
    assert not problem_of_translation(["json"], "a", json.dumps(found), json.dumps(found))
    for wrong in ({"source": "b"}, {"tokens": []}, {"alignment": {"links": [[1, 0]]}}):
        line = json.dumps(found | wrong)
        assert problem_of_translation(["json"], "a", line, line)


@pytest.mark.slow
def test_a_command_that_drops_blank_lines_is_seen(models, folder, monkeypatch):
    write = answers.write_lines
    monkeypatch.setattr(answers, "write_lines", lambda target, lines: write(target, filter(None, lines)))
    outcomes = run_cases(translate_case, problem_of_translation, models, folder, 40, 0)
    assert bad(outcomes)


GOLD, LINKS = b"0-0 1-1 2p1\n0-0\n", b"0-0 2-1\n1-0\n"
# |A| = 3, |S| = 3, |A & S| = 1, |A & P| = 2
ROW = {"aer": 0.5, "precision": 2 / 3, "recall": 1 / 3, "f1": 4 / 9, "sentences": 2, "sure": 3, "possible": 4}
ROW |= {"proposed": 3, "sure_hits": 1, "possible_hits": 2}


def score_result(answer: Answer, links: bytes = LINKS, **options) -> str:
    return judge_score((GOLD, links), ("gold", "links"), answer, **{"ignored": False} | options)[0]


def test_wrong_scores_are_seen():
    def answer(**changes) -> Answer:
        return Answer(0, json.dumps({"scores": [ROW | changes]}).encode(), "")

    assert score_result(answer()) == "survived"
    for name, value in ROW.items():
        assert score_result(answer(**{name: value + (1e-6 if isinstance(value, float) else 1)})) == "wrong"
    assert score_result(answer(), ignored=True) == "wrong"
    # What had to be refused.
    for links in (b"0-0 2-1\n1:0\n", b"0-0 2-1\n", b"0-0 2-1\n\xff\n", b" \n \n"):
        assert score_result(answer(), links) == "wrong"


def test_wrong_errors_of_score_are_seen():
    def refused(line: int, name: str = "links") -> Answer:
        return Answer(1, b"", f"attncal: error: {name}: line {line}: 'x' is not a link\n")

    links = b"0-0 2-1\nx\n"
    assert score_result(refused(2), links) == "refused"
    assert score_result(refused(1), links) == score_result(refused(2, "gold"), links) == "lost"
    assert score_result(refused(2), LINKS) == "lost"
    assert score_result(replace(refused(2), out=b"{}"), links) == "lost"
    assert score_result(Answer(1, b"", "Traceback ..."), links) == "traceback"
    assert score_result(Answer(None, b"", ""), links) == "hung"


def test_wrong_answers_to_options_are_seen():
    told = "attncal score: error: Invalid value for --metric\n"
    right = Answer(2, b"", told)

    def result(answer: Answer) -> str:
        return judge_option(("score",), "--metric", "x", answer).result

    assert result(right) == "refused"
    assert result(replace(right, status=3)) == result(replace(right, err=told + "more\n")) == "lost"
    assert result(replace(right, err=told.replace("--metric", "--format"))) == "lost"
    assert result(Answer(0, b"", "")) == "wrong"
    assert result(replace(right, err="Traceback")) == "traceback"
