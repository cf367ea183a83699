"""Other encodings, nothing, and words parted otherwise; every command is tried, and a wrong answer would be seen."""

from collections import Counter

import pytest
from fuzz import Answer
from outcomes import bad, table
from texts import EMPTY, ENCODINGS, NOTHING, PARTED, _same, lexicon_of, run

from hf_attncal.command_table import ALIASES, COMMANDS


@pytest.mark.slow
def test_texts(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert not bad(outcomes), bad(outcomes)
    kinds = {row["kind"]: row for row in table(outcomes)}
    assert set(kinds) == {ENCODINGS, EMPTY, PARTED}
    assert kinds[PARTED]["survived"] >= 24  # of 36: those with a record


def test_every_command_is_given_nothing():
    assert NOTHING.keys() == COMMANDS.keys() | ALIASES.keys()


def test_a_lexicon_of_other_words_is_seen():
    right = lexicon_of(["a\u00a0b c"], ["d e"], ["1-1"], "spaces")
    assert right == Counter({("c", "e"): 1})
    assert right != lexicon_of(["a\u00a0b c"], ["d e"], ["1-1"], "white-space")
    answer = Answer(0, b"source\nb\te\t1\n", "")
    assert _same(answer, right)[0] == "wrong"
