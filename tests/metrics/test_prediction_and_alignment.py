"""Four kinds of target words: predicted or not, aligned or not."""

import pytest

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.link_errors import CATEGORIES, prediction_and_alignment

# The links of word 4 are possible ones alone; word 5 of the first pair has none.
GOLD = [
    GoldAlignment(
        frozenset({(0, 0), (1, 1), (2, 2), (3, 3)}), frozenset({(0, 0), (1, 1), (2, 2), (3, 3), (0, 4), (1, 4)})
    ),
    GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0)})),
]
LINKS = [{(0, 0), (1, 1), (0, 2), (0, 3), (1, 4), (2, 5)}, {(1, 0)}]
PREDICTED = [[True, False, True, False, True, True], [False]]
LENGTHS = [4, 2]


def test_every_word_with_a_gold_link_is_of_one_kind():
    found = prediction_and_alignment(*(of * 3 for of in (GOLD, LINKS, PREDICTED, LENGTHS)), bootstrap=30)
    counts = {"cPcA": 2, "wPcA": 1, "cPwA": 1, "wPwA": 2}  # words 0 and 4; 1; 2; 3 and that of the second pair
    assert {name: share.value for name, share in found.shares.items()} == {n: c / 6 for n, c in counts.items()}
    assert tuple(found.shares) == CATEGORIES
    assert (found.words, found.unlinked) == (18, 3)
    for share in found.shares.values():
        assert share.interval[0] <= share.value <= share.interval[1]


def test_a_word_without_a_proposed_link_is_aligned_wrongly():
    found = prediction_and_alignment(GOLD, [set(), set()], PREDICTED, LENGTHS, bootstrap=0)
    assert {name: share.value for name, share in found.shares.items()} == {
        "cPcA": 0,
        "wPcA": 0,
        "cPwA": 3 / 6,
        "wPwA": 3 / 6,
    }
    assert found.shares["cPwA"].interval is None


def test_input_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"2 in `gold`.*1 in `links`"):
        prediction_and_alignment(GOLD, LINKS[:1], PREDICTED, LENGTHS)
    with pytest.raises(ValueError, match=r"line 1: link 3-3.*3 source.*6 target"):
        prediction_and_alignment(GOLD, LINKS, PREDICTED, [3, 2])
    with pytest.raises(ValueError, match="line 2: link 0-3"):
        prediction_and_alignment(GOLD, [LINKS[0], {(0, 3)}], PREDICTED, LENGTHS)
    nothing = GoldAlignment(frozenset(), frozenset())
    with pytest.raises(ValueError, match="at least one target word"):
        prediction_and_alignment([nothing] * 2, LINKS, PREDICTED, LENGTHS)
