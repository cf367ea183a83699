"""The counts of `tests/prose.py` do not rise: lower a bound when you have lowered its count."""

import prose
import pytest

BOUNDS = {
    "summary_begins_with_what": 0,
    "summary_with_what_as_noun": 0,
    "argument_begins_with_preposition": 0,
    "argument_begins_with_what": 0,
    "argument_without_it": 0,
    "that_of": 0,
    "so_many": 6,
    "too_at_the_end": 0,
    "alone": 1,
    "rare_words": 0,
    "code_that_says": 0,
    "comment_begins_with_preposition": 0,
    "variables": 79,
}


@pytest.fixture(scope="module")
def counts():
    return prose.counts()


@pytest.mark.parametrize("turn", BOUNDS)
def test_turns_of_phrase_do_not_rise(counts, turn):
    assert counts[turn] <= BOUNDS[turn], f"{turn}: python tests/prose.py counts them, TURNS there defines them"


def test_each_turn_is_counted(tmp_path):
    (tmp_path / "module.py").write_text(
        '"""How they compare with that of others, too."""\n\nfound = 1  # of the links\n'
    )
    counts = prose.counts(tmp_path)
    assert set(counts) == set(BOUNDS)
    assert {turn for turn, count in counts.items() if count} == {
        "summary_begins_with_what",
        "that_of",
        "too_at_the_end",
        "comment_begins_with_preposition",
        "variables",
    }
