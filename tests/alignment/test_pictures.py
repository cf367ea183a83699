"""The picture of an aligned pair: what lies where, and the HTML of it."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from picture_helpers import HOSTILE, SOURCE, SOURCE_MARKS, TARGET, TARGET_MARKS, pictures_of

from hf_attncal.alignment.pictures import PAGE_FOOT, page_head, page_pair, pair_html, place, text_width

ENGLISH, FRENCH = ["I", "do", "not", "think", "so", "."], ["je", "ne", "le", "pense", "pas", "."]
LINKS = ((0, 0), (1, 1), (2, 1), (2, 4), (3, 3), (5, 5))


def aligned(source=ENGLISH, target=FRENCH, links=LINKS, null=0.2) -> SimpleNamespace:
    scores = tuple((n + 1) / (len(links) + 1) for n in range(len(links)))
    nulls = {name: None if null is None else (null,) * len(side) for name, side in (("s", source), ("t", target))}
    return SimpleNamespace(
        source=source, target=target, links=links, scores=scores, source_null=nulls["s"], target_null=nulls["t"]
    )


# ---- layout ----


def test_curves_run_from_word_to_word():
    pair = aligned()
    picture = place(pair)
    assert [link.link for link in picture.links] == list(LINKS)
    assert [link.score for link in picture.links] == list(pair.scores)
    for link in picture.links:
        (first, above), *_, (last, below) = link.curve
        assert (first, last) == (picture.source.words[link.link[0]].x, picture.target.words[link.link[1]].x)
        assert picture.source.y < above < below < picture.target.y


def test_words_do_not_touch_and_are_inside_the_picture():
    picture = place(aligned())
    for row, words in ((picture.source, ENGLISH), (picture.target, FRENCH)):
        assert [word.text for word in row.words] == words
        edges = [(word.x - text_width(word.text) / 2, word.x + text_width(word.text) / 2) for word in row.words]
        assert all(left[1] + 0.5 < right[0] for left, right in pairwise(edges))
        assert edges[0][0] >= 0
        assert edges[-1][1] <= picture.width
    assert picture.target.y < picture.height


@pytest.mark.parametrize(
    ("words", "right_to_left"),
    [
        ("הבית הישן .", True),
        ("البيت 2024 NATO القديم", True),
        ("the ה house", False),
        (". , 3", False),
        ("東京 に", False),
    ],
)
def test_a_row_runs_as_its_script_does(words, right_to_left):
    words = words.split()
    picture = place(aligned(source=words, links=()))
    assert picture.source.right_to_left is right_to_left
    assert [word.text for word in picture.source.words] == words  # the order is that of the sentence
    places = [word.x for word in picture.source.words]
    assert places == sorted(places, reverse=right_to_left)
    assert not picture.target.right_to_left  # each row for itself


def test_words_without_a_link_are_marked():
    picture = place(aligned(null=0.87))
    assert [word.text for word in picture.source.words if word.mark] == ["so"]
    assert [word.text for word in picture.target.words if word.mark] == ["le"]
    assert picture.source.words[4].mark == "∅ .87"
    assert place(aligned(null=None)).source.words[4].mark == "∅"  # an encoder-decoder does not know


def test_an_empty_side_and_an_empty_pair():
    assert [word.mark for word in place(aligned(["a"], [], ())).source.words] == ["∅ .20"]
    empty = place(aligned([], [], ()))
    assert (empty.width, empty.source.words, empty.links) == (0, (), ())


# ---- HTML ----


def test_html_shows_words_links_scores_and_nulls():
    (found,) = pictures_of(pair_html(aligned(), "a <caption>"))
    assert tuple(found.links) == LINKS
    assert (found.groups[SOURCE], found.groups[TARGET]) == (ENGLISH, FRENCH)
    assert (found.groups[SOURCE_MARKS], found.groups[TARGET_MARKS]) == (["∅ .20"], ["∅ .20"])
    assert "not – pas: .57" in found.titles
    assert "so: no partner .20" in found.titles
    assert found.caption == "a <caption>"


def test_hostile_text_is_text():
    pair = aligned(HOSTILE, HOSTILE[::-1], tuple((n, n) for n in range(len(HOSTILE) - 1)))
    page = "\n".join((page_head("<script>alert(5)</script>"), page_pair(1, pair), page_pair(2, pair), PAGE_FOOT))
    for found in pictures_of(page):
        assert (found.groups[SOURCE], found.groups[TARGET]) == (HOSTILE, HOSTILE[::-1])
        assert len(found.links) == len(HOSTILE) - 1
    assert "<script" not in page


def test_characters_that_html_forbids_are_replaced():
    html = page_head("a\udcff") + pair_html(aligned(["a\x00b\x1b", "\ud800"], ["\ufffe"], ((0, 0),)))
    assert html.encode("utf-8")
    (found,) = pictures_of(html.partition('<main class="pairs">')[2])
    assert (found.groups[SOURCE], found.groups[TARGET]) == (["a\ufffdb\ufffd", "\ufffd"], ["\ufffd"])


def test_a_page_is_whole_and_needs_nothing_else():
    page = "\n".join((page_head("aligner"), page_pair(7, aligned()), PAGE_FOOT))
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>")
    assert len(pictures_of(page)) == 1  # and every tag is closed
    assert 'id="pair7"' in page
    assert "default-src 'none'" in page  # a browser would load nothing
    assert not [word for word in ("@import", "url(", "src=") if word in page]


def test_a_pair_is_one_line():
    assert "\n" not in page_pair(1, aligned()) + pair_html(aligned(), "caption")
