"""Raw text to words and back: where it is cut, and that nothing is lost or counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_attncal.data.segmentation import raw_links, raw_means, segment, white_space_words

CUTS = {
    "Hello, world!": "Hello , world !",
    "well-known (and dear)...": "well - known ( and dear ) ...",
    "It costs 1,000.50 $, or 10%.": "It costs 1,000.50 $ , or 10 % .",
    "John's don't we’ll I'm 's": "John 's don 't we ’ll I 'm 's",
    "l'homme dell’arte O'Brien 'quoted'": "l' homme dell’ arte O' Brien ' quoted '",
    "п'ять об'єкт": "п'ять об'єкт",  # there the apostrophe is a letter
    "see https://example.org/a?b=c#d, or www.example.org.": "see https://example.org/a?b=c#d , or www.example.org .",
    "看https://example.org/x。好": "看 https://example.org/x 。 好",
    "mail a.b+c@example.org!": "mail a.b+c@example.org !",
    "我爱北京。": "我 爱 北 京 。",
    "これはペンです、東京タワー": "こ れ は ペン で す 、 東 京 タワー",
    "한국어를 배웁니다.": "한국어를 배웁니다 .",
    "สวัสดี": "ส วั ส ดี",  # marks stay with their letters
    "नमस्ते दुनिया।": "नमस्ते दुनिया ।",
    "e\u0301te\u0301 \U0001f469\u200d\U0001f469\u200d\U0001f467!": "e\u0301te\u0301 \U0001f469\u200d\U0001f469\u200d"
    "\U0001f467 !",
    "שלום, עולם": "שלום , עולם",
    f"{'S' * 60}!": f"{'S' * 60} !",  # took time without end
    " \u3000\t": "",
}
# What hypothesis would seldom think of: pieces that rules are about.
PIECES = ["'", "’", "s", "it's", "l'", "...", "--", "http://", "www.", "a@b.c", "1,0", "東", "ペ", "e\u0301", "\u0301"]
PIECES += [" ", "\u3000", "\x1c", "\u200b", "\u200d", "\U0001f469", "\r", "\n", "ก็", "$", "º"]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)


@pytest.mark.parametrize("text", CUTS)
def test_texts_are_cut_at_word_boundaries(text):
    assert " ".join(segment(text).words) == CUTS[text]


@given(texts)
def test_spans_are_in_order_and_cover_all_but_white_space(text):
    for found in (segment(text), white_space_words(text)):
        covered, end = set(), 0
        for word, span in zip(found.words, found.spans, strict=True):
            assert end <= span[0] < span[1] <= len(text)
            assert text[slice(*span)] == word
            covered |= set(range(*span))
            end = span[1]
        assert covered == {place for place, character in enumerate(text) if not character.isspace()}


@given(texts)
def test_every_white_space_word_has_one_that_stands_for_it_and_none_stands_for_another(text):
    found, raw = segment(text), white_space_words(text)
    assert found.raw_words == raw.raw_words == len(text.split())
    assert {owner for owner in found.owners if owner is not None} == set(range(found.raw_words))
    for owner, (start, end) in zip(found.owners, found.spans, strict=True):
        if owner is not None:
            assert raw.spans[owner][0] <= start < end <= raw.spans[owner][1]


@given(texts)
def test_words_once_cut_are_words(text):
    """Segmenting a text twice gives the same words, so that training and aligning agree."""
    once = " ".join(segment(text).words)
    assert segment(once).raw_words == len(segment(text).words)


@given(texts, texts, st.data())
def test_links_are_mapped_back_exactly(source_text, target_text, data):
    """Against all pairs of white-space words, looked at one by one."""
    source, target = segment(source_text), segment(target_text)
    cells = [(i, j) for i in range(len(source.words)) for j in range(len(target.words))]
    links = sorted(data.draw(st.sets(st.sampled_from(cells)))) if cells else []
    scores = [data.draw(st.floats(0, 1)) for _ in links]
    found = dict(zip(*raw_links(links, scores, source, target), strict=True))
    for i in range(source.raw_words):
        for j in range(target.raw_words):
            between = [
                score
                for (s, t), score in zip(links, scores, strict=True)
                if (source.owners[s], target.owners[t]) == (i, j)
            ]
            assert found.get((i, j)) == (max(between) if between else None)
    assert list(found) == sorted(found)


def test_tokenised_text_keeps_its_links():
    text = "the old house , 's 10"
    segments = segment(text)
    assert raw_links(((0, 1), (3, 3)), (0.5, 0.7), segments, segments) == (((0, 1), (3, 3)), (0.5, 0.7))


def test_marks_on_words_do_not_link_them():
    source, target = segment("Yes, I know."), segment("Ich weiß, ja.")
    assert source.words[1] == target.words[2] == ","
    assert raw_links(((1, 2), (0, 3)), (0.9, 0.8), source, target) == (((0, 2),), (0.8,))


def test_means_are_those_of_the_words_that_stand_for_one():
    assert raw_means([0.2, 0.4, 1.0, 0.5], segment("dell'arte, x")) == pytest.approx((0.3, 0.5))
