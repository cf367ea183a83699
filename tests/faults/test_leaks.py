"""Leaks in every kind of file are refused with their place; what only looks like one goes up."""

import leaks
import pytest
from outcomes import bad, table


def test_leaks_are_refused_and_nothing_else(tmp_path):
    outcomes = leaks.run(tmp_path / "model", full=False)
    assert not bad(outcomes), bad(outcomes)
    kinds = {row["kind"] for row in table(outcomes)}
    assert kinds == {
        leaks.SECRET,
        leaks.PLACE,
        leaks.USER,
        leaks.FOREIGN,
        leaks.BROKEN,
        leaks.LINKED,
        leaks.RUN,
        leaks.HARMLESS,
    }


@pytest.mark.parametrize(
    ("answer", "leak", "result"),
    [
        (None, True, "leaked"),
        (None, False, "survived"),
        ("README.md holds what looks like a token", True, "refused"),
        ("README.md holds what looks like a token", False, "lost"),
        ("a file holds a token", True, "wrong"),
        ("README.md\nholds a token", True, "wrong"),
        (f"README.md holds {'x' * 50}", True, "leaked"),
        (ValueError("x"), True, "traceback"),
    ],
)
def test_what_an_answer_is(monkeypatch, tmp_path, answer, leak, result):
    def published(folder):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(leaks, "_published", published)
    assert leaks.judged(tmp_path, "README.md", "x" * 50, leak)[0] == result
