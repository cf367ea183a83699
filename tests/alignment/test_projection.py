"""Tags, spans and markup over links: what is planted arrives, and nothing is lost without a word."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_attncal.alignment.projection import (
    Element,
    Span,
    bio_tags,
    parse_markup,
    project_markup,
    project_spans,
    project_tags,
    spans_of,
)

# Structures are drawn by Python's generator: hypothesis draws its seed, which is far faster.
drawn = st.integers(0, 2**32).map(random.Random)

# ---- tags ----


def slow_tag(tags, links, scores, j):
    """By the definition: of the tags that are linked to j that with most weight, of equals the first in the source."""
    weights = [(i, score) for (i, target), score in zip(links, scores, strict=True) if target == j]
    totals = {tags[i]: sum(score for other, score in weights if tags[other] == tags[i]) for i, _ in weights}
    best = max(totals.values(), default=None)
    return next((tags[i] for i, _ in sorted(weights) if totals[tags[i]] == best), None)


def linked_pair(draw: random.Random) -> tuple[tuple[int, int], list[tuple[int, int]], list[float]]:
    """Numbers of words, links, and scores that are exact in binary."""
    lengths = draw.randint(1, 7), draw.randint(1, 7)
    cells = [(i, j) for i in range(lengths[0]) for j in range(lengths[1])]
    links = draw.sample(cells, draw.randint(0, min(12, len(cells))))
    return lengths, links, [draw.choice([0.25, 0.5, 0.75, 1.0]) for _ in links]


@given(drawn)
def test_a_target_word_has_the_tag_that_most_of_its_links_have(draw):
    (source, target), links, scores = linked_pair(draw)
    tags = draw.choices("ABC", k=source)
    for given_scores in (None, scores):
        found = project_tags(tags, links, target, given_scores)
        weights = given_scores or [1.0] * len(links)
        assert found == [slow_tag(tags, links, weights, j) for j in range(target)]


def test_scores_outweigh_numbers():
    links = [(0, 0), (1, 0), (2, 0)]
    assert project_tags("ABB", links, 2) == ["B", None]
    assert project_tags("ABB", links, 2, [0.9, 0.3, 0.3]) == ["A", None]
    assert project_tags("AB", links[:2], 1) == ["A"]


@pytest.mark.parametrize(
    ("links", "scores", "told"),
    [
        ([(2, 0)], None, "link 2-0 lies outside a pair of 2 source and 1 target words"),
        ([(0, 1)], None, "link 0-1 lies outside"),
        ([(-1, 0)], None, "link -1-0 lies outside"),
        ([(0, 0)], [], "`scores` must have one score per link, 1, got 0"),
    ],
)
def test_links_that_do_not_fit_are_refused(links, scores, told):
    with pytest.raises(ValueError, match=told):
        project_tags("AB", links, 1, scores)
    with pytest.raises(ValueError, match=told):
        project_spans([], links, 2, 1, scores)
    with pytest.raises(ValueError, match=told):
        project_markup("a b", "c", links, scores)


# ---- spans ----


@given(drawn)
def test_spans_are_pieces_of_linked_words_that_share_none(draw):
    (source, target), links, scores = linked_pair(draw)
    starts = sorted(draw.sample(range(source), draw.randint(0, min(3, source))))
    ends = [*starts, source][1:]
    spans = [Span(start, draw.randint(start + 1, end), "X") for start, end in zip(starts, ends, strict=True)]
    places = project_spans(spans, links, source, target, scores)
    inside = [next((n for n, span in enumerate(spans) if span.start <= i < span.stop), None) for i in range(source)]
    owners = project_tags(inside, links, target, scores)  # the rule for tags says whose a word is
    linked = {j for _, j in links}
    totals = [Counter() for _ in range(target)]
    for (i, j), score in zip(links, scores, strict=True):
        totals[j][inside[i]] += score
    for number in [number for number in range(len(spans)) if number not in owners]:
        tied = [j for j in range(target) if totals[j][number] and totals[j][number] == max(totals[j].values())]
        spare = [j for j in tied if owners.count(owners[j]) > 1 and owners[j] is not None]
        for j in [j for j in tied if owners[j] is None] or spare[:1]:
            owners[j] = number
    taken = Counter(j for place in places if place for j in range(*place[:2]))
    assert max(taken.values(), default=0) <= 1
    for number, place in enumerate(places):
        owned = [j for j in range(target) if j in linked and owners[j] == number]
        if not owned:
            assert place is None
            continue
        within = [j for j in owned if place.start <= j < place.stop]
        assert (within[0], within[-1] + 1) == place[:2]
        assert place.dropped == len(owned) - len(within)
        assert all(j in within or j not in linked for j in range(*place[:2]))


def test_the_piece_with_the_most_links_is_the_span():
    links = [(0, 0), (1, 1), (0, 2), (0, 4)]  # 1 is outside, 3 is not linked
    assert project_spans([Span(0, 1, "X")], links, 2, 5) == [(2, 5, 1)]
    assert project_spans([Span(0, 1, "X")], links, 2, 5, [0.9, 0.9, 0.3, 0.3]) == [(0, 1, 2)]
    assert project_spans([Span(0, 1, "X")], [(0, 0), (1, 1), (0, 2)], 2, 3) == [(0, 1, 1)]  # of equals the first


def test_a_span_without_links_is_not_placed():
    assert project_spans([Span(0, 1, "X"), Span(1, 2, "Y")], [(1, 0)], 2, 1) == [None, (0, 1, 0)]
    assert project_spans([Span(0, 1, "X")], [], 1, 0) == [None]


@pytest.mark.parametrize("spans", [[(0, 0)], [(1, 3)], [(-1, 1)], [(0, 2), (1, 2)]])
def test_invalid_spans_are_refused(spans):
    with pytest.raises(ValueError, match=r"`spans`.*0.*1"):
        project_spans([Span(*span, "X") for span in spans], [], 2, 1)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=8))
def test_bio_tags_are_read_and_written(tags):
    spans = spans_of(tags)
    written = bio_tags(spans, len(tags))
    assert spans_of(written) == spans
    assert [tag[1:] for tag in written] == [tag[1:] for tag in tags]  # only a B in the place of an I


# ---- markup ----


def tree(elements) -> list:
    """Begin and end tags, and those within, without an order of neighbours."""
    return sorted((element.begin, element.end, tree(element.children)) for element in elements)


def some_words(draw: random.Random) -> str:
    return " ".join(draw.choices(["a", "b&amp;c", "&lt;", "<", "3", "x>y"], k=draw.randint(0, 3)))


def marked(draw: random.Random, depth: int = 2) -> str:
    """A text with elements in it, of all kinds, with and without white space around tags."""
    pieces = [some_words(draw)]
    for _ in range(draw.randint(0, 2 if depth else 0)):
        name = f"{draw.choice('bi')}{draw.randint(0, 9)}"
        within = draw.choice(["", " "]) + marked(draw, depth - 1) + draw.choice(["", " "])
        kinds = [
            f"<{name}>{within}</{name}>",
            f"<{name} c='>'>{within}</{name}>",
            f'<x id="{name}"/>',
            "<br>",
            "<!-- <b> -->",
        ]
        pieces += [draw.choice(["", " "]) + draw.choice(kinds) + draw.choice(["", " "]), some_words(draw)]
    return "".join(pieces)


@given(drawn)
def test_every_tag_is_in_the_target_once_and_within_what_it_was_in(draw):
    text = marked(draw)
    source = parse_markup(text)
    target = draw.choices(["u", "v&w", "<", "&amp;", "<b>", "x"], k=draw.randint(0, 6))
    cells = [(i, j) for i in range(len(source.words)) for j in range(len(target))]
    links = draw.sample(cells, draw.randint(0, min(10, len(cells))))
    found = project_markup(text, draw.choice([" ", "  ", "\t"]).join(target), links)
    again = parse_markup(found.text)  # which raises unless it is balanced
    assert list(again.words) == target
    assert tree(again.elements) == tree(source.elements)
    assert not again.inside_words


@given(drawn)
def test_over_links_to_itself_a_text_keeps_its_elements_where_they_are(draw):
    text = marked(draw)
    source = parse_markup(text)
    identity = [(i, i) for i in range(len(source.words))]
    found = project_markup(text, " ".join(source.words), identity)

    def places(elements: list[Element]) -> list:
        return [(one.begin, one.start, one.stop, places(one.children)) for one in elements]

    if not source.inside_words:  # else two elements may share a word
        assert (found.unlinked, found.split) == ((), ())
        assert places(parse_markup(found.text).elements) == places(source.elements)


@pytest.mark.parametrize(
    ("source", "target", "links", "result"),
    [
        ("<b>the old</b> house", "la vieille maison", "0-0 1-1 2-2", "<b>la vieille</b> maison"),
        ("<b>the <i>old</i></b> house", "la vieille maison", "0-0 1-1 2-2", "<b>la <i>vieille</i></b> maison"),
        ("a <b>red</b> car", "une voiture rouge", "0-0 1-2 2-1", "une voiture <b>rouge</b>"),
        ('<a href="x>y" id=1>here</a> it is', "il est ici", "0-2 1-0 2-1", 'il est <a href="x>y" id=1>ici</a>'),
        ("R&amp;D &lt; 3 < 4", "R&D < 3 < 4", "0-0", "R&amp;D &lt; 3 &lt; 4"),
        # without words: with the word behind, or with the one that they touch
        ("one <br/>two three", "trois deux un", "0-2 1-1 2-0", "trois <br/>deux un"),
        ("one<fn id='1'/> two", "deux un", "0-1 1-0", "deux un<fn id='1'/>"),
        ("one two <end/>", "un deux", "0-0 1-1", "un deux<end/>"),
        ("<begin/> one two", "un deux", "0-0", "<begin/>un deux"),
        ("<b>one <x/></b> two", "un deux", "0-0 1-1", "<b>un<x/></b> deux"),
        ("<BR><img src=a> one", "un", "0-0", "<BR><img src=a>un"),
        ("<!-- <b> --> one", "un", "0-0", "<!-- <b> -->un"),
        ("<br/>", "", "", "<br/>"),
        # white space of the target stays
        ("<b>one</b> two", " un\tdeux ", "0-0 1-1", " <b>un</b>\tdeux "),
    ],
)
def test_markup_goes_where_its_words_go(source, target, links, result):
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    found = project_markup(source, target, pairs)
    assert (found.text, found.unlinked, found.split, found.inside_words) == (result, (), (), ())


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("I <b>like</b>", "j' <b>aime</b>"),
        ("<i>I <b>like</b></i>", "j' <i><b>aime</b></i>"),
        ("<i>I</i> <b>like</b>", "j' <b></b><i>aime</i>"),  # one word, and two that want it
    ],
)
def test_a_tie_does_not_empty_an_element_that_has_a_link(source, result):
    assert project_markup(source, "j' aime", [(0, 1), (1, 1)]).text == result
    assert project_spans([Span(1, 2, "X")], [(0, 1), (1, 1)], 2, 2) == [(1, 2, 0)]
    assert project_spans([Span(0, 1, "X"), Span(1, 2, "Y")], [(0, 0), (0, 1), (1, 1)], 2, 2) == [(0, 1, 0), (1, 2, 0)]


BLOCKS = {
    "a man<br>a dog": "ein mann <br>ein hund",
    "a man<hr/>a dog": "ein mann <hr/>ein hund",
    "a <b>man</b><br/>a <i>dog</i>": "ein <b>mann</b> <br/>ein <i>hund</i>",
    "<P>a man</P><P>a dog</P>": "<P>ein mann</P> <P>ein hund</P>",
    "a man<p>a dog</p>": "ein mann <p>ein hund</p>",
    "<p>a man</p>a dog": "<p>ein mann</p> ein hund",
    "<b>a man<p></b>a dog": None,
    "<ul><li>a man</li><li>a dog</li></ul>": "<ul><li>ein mann</li> <li>ein hund</li></ul>",
    "<dl><dt>a man</dt><dd>a dog</dd></dl>": "<dl><dt>ein mann</dt> <dd>ein hund</dd></dl>",
    "<tr><th>a man</th><td>a dog</td></tr>": "<tr><th>ein mann</th> <td>ein hund</td></tr>",
    "<h1>a man</h1><pre>a dog</pre>": "<h1>ein mann</h1> <pre>ein hund</pre>",
    "a man<!-- n --><div>a dog</div>": "ein mann<!-- n --> <div>ein hund</div>",
    "<b>a man</b><i>a dog</i>": None,
    "a man<wbr>a dog": None,
}


@pytest.mark.parametrize(("source", "result"), BLOCKS.items())
def test_block_elements_separate_words(source, result):
    if result is None:
        with pytest.raises(ValueError, match=r"outside|ended"):
            project_markup(source, "ein mann ein hund", [(n, n) for n in range(4)])
    else:
        assert project_markup(source, "ein mann ein hund", [(n, n) for n in range(4)]).text == result


def test_an_element_whose_words_are_taken_is_put_next_to_them():
    found = project_markup("a <b>b</b> c d", "u v w", [(0, 0), (1, 2), (2, 2), (3, 1)], [1, 0.2, 0.9, 1])
    assert (found.text, found.unlinked) == ("u v <b></b>w", ("<b>",))


def test_elements_without_a_clear_place_are_reported():
    found = project_markup("a <b><i>new</i></b> cat", "un chat", [(0, 0), (2, 1)])
    assert (found.text, found.unlinked) == ("un <b><i></i></b>chat", ("<b>", "<i>"))
    found = project_markup("<b>calls up</b> him", "ruft ihn an", [(0, 0), (1, 2), (2, 1)])
    assert (found.text, found.split) == ("<b>ruft</b> ihn an", ("<b>",))
    found = project_markup("un<b>believ</b>able x", "unglaublich x", [(0, 0), (1, 1)])
    assert (found.text, found.inside_words) == ("<b>unglaublich</b> x", ("<b>", "</b>"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a <b>c", r"'<b>' has no end tag. Write `</b>`"),
        ("a</b> c", r"'</b>' does not end an open element: there is no open element"),
        ("<b><i>a</b></i>", r"'</b>' does not end an open element: `<i>` must be ended first"),
        ("a <b c d", r"'<b c d' starts an incomplete tag. Write `&lt;`"),
        ('<a href="x>y</a>', "an incomplete tag"),
        ("<!-- a", "an incomplete tag"),
        ("</br>", "does not end an open element"),
    ],
)
def test_markup_that_is_not_balanced_is_refused(text, told):
    with pytest.raises(ValueError, match=told):
        parse_markup(text)


def test_elements_too_deep_in_each_other_are_refused():
    parse_markup("<b>" * 99 + "a" + "</b>" * 99)
    with pytest.raises(ValueError, match=r"'<b>'.*100 elements"):
        parse_markup("<b>" * 2000 + "a" + "</b>" * 2000)


@pytest.mark.parametrize(
    ("source", "links", "elements"),
    [
        ("<a/>a " * 1600, [], 1600),
        ("<a>a</a> " * 1000, [(i, i * 4) for i in range(1000)], 1000),
        ("<a>" * 90 + "a " * 4000 + "</a>" * 90, [(i, i) for i in range(4000)], 90),
    ],
    ids=("empty", "each word", "nested"),
)
def test_the_longest_lines(source, links, elements):
    """Code that is quadratic in the number of words would take minutes."""
    found = project_markup(source, "b " * 5000, links)
    assert found.text.count("<a") == elements


def test_a_long_line_of_marks_takes_no_time():
    parse_markup("<" * 50_000 + "& &amp" * 1000)
    with pytest.raises(ValueError, match="an incomplete tag"):
        parse_markup("<a " + "b='c' " * 20_000)
