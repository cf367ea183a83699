"""The one rule by which words are looked up: what it makes equal, and that it moves no word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_attncal.data.segmentation import EMPTY_WORD, fold, fold_line, raw_means, segment, without_spaces
from hf_attncal.data.words import split_words


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("L’Été", "l'été"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("„Haus“", '"haus"'),
        ("''", '"'),
        ("``", '"'),
        ("`", "'"),
        ("10\u00a0000", "10000"),
        ("10\u2009%", "10%"),
        ("１９９４", "1994"),
        ("١٩٩٤", "1994"),
        ("－", "-"),
        ("a–b", "a-b"),
        ("co\u00adoperate", "cooperate"),
        ("ﬁn", "fin"),
        ("ｶﾞ", "ガ"),
        ("\u00a0", EMPTY_WORD),
        ("\u200b", EMPTY_WORD),
        ("日本", "日本"),
    ],
)
def test_words_are_folded(word, folded):
    assert fold(word) == folded


@given(st.text(max_size=12))
def test_words_keep_their_number_and_folding_twice_is_folding_once(text):
    line = fold_line(text)
    assert len(line.split()) == len(text.split())
    assert fold_line(line) == line
    for word in split_words(text, "spaces"):
        assert without_spaces(word).split() == [without_spaces(word)]


def test_words_are_split_at_white_space():
    text = "10\u00a0000 Mark\tund\u3000so  "
    assert split_words(text) == ["10", "000", "Mark", "und", "so"]
    assert split_words(text, "spaces") == ["10\u00a0000", "Mark", "und\u3000so"]


def test_raw_text_is_cut_in_words_between_spaces():
    found = segment("10\u00a0%, \u00a0 ok", "spaces")
    assert found.words == ("10", "%", ",", "ok")
    assert (found.owners, found.raw_words) == ((0, None, None, 2), 3)
    assert found.spans == ((0, 2), (3, 4), (4, 5), (8, 10))
    assert raw_means([0.5, 0.1, 0.1, 0.2], found) == (0.5, 1.0, 0.2)
