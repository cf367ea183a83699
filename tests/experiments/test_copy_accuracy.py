"""The accuracy of links on copied words, against loops, and what it is compared with."""

import pytest
from copy_accuracy import COPIES, copy_accuracy, copy_counts
from hypothesis import given
from hypothesis import strategies as st

from hf_attncal.data.synthetic.planted import copied_words

PAIRS = [("the cat saw the dog", "dog saw a dog the"), ("one two three", "two"), ("", "two"), ("x y", "")]
# dog, saw, dog: `a` is not in the source, and `the` twice.
COPIED = [[(4, 0), (2, 1), (4, 3)], [(1, 0)], [], []]


def by_loops(pairs, links) -> tuple[int, int]:
    right = copies = 0
    for (source, target), of_pair in zip(pairs, links, strict=True):
        for j, word in enumerate(target.split()):
            places = [i for i, other in enumerate(source.split()) if other == word]
            if len(places) == 1:
                copies += 1
                right += sorted({i for i, other in of_pair if other == j}) == places
    return right, copies


texts = st.lists(st.sampled_from("abcdef"), max_size=8).map(" ".join)
some_links = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)))


@given(st.lists(st.tuples(st.tuples(texts, texts), some_links), min_size=1, max_size=5))
def test_counts_are_those_of_loops(found):
    pairs, links = map(list, zip(*found, strict=True))
    assert tuple(copy_counts(pairs, links).sum(axis=0)) == by_loops(pairs, links)
    assert tuple(copy_counts(pairs, [copied_words(*pair) for pair in pairs])[:, 0]) == tuple(
        copy_counts(pairs, links)[:, 1]
    )


def test_which_words_are_copies():
    assert [copied_words(*pair) for pair in PAIRS] == COPIED
    assert copied_words("A a", "a A B") == [(1, 0), (0, 1)]  # letter by letter


@pytest.mark.parametrize(
    ("links", "right"),
    [
        ([(4, 0), (2, 1), (4, 3), (0, 4)], 3),  # what is said of other words does not count
        ([(4, 0), (2, 1), (0, 1)], 1),  # two links of a word are no answer
        ([(3, 0), (2, 3)], 0),
        ([], 0),
    ],
)
def test_a_copy_is_right_by_its_only_link(links, right):
    score = copy_accuracy(PAIRS, [links, [(1, 0)], [], []])
    assert score.accuracy == (right + 1) / 4
    assert (score.pairs, score.copies, score.target_words) == (4, 4, 7)


def test_what_it_is_compared_with():
    score = copy_accuracy(PAIRS, COPIED)
    assert score.accuracy == 1
    assert score.by_chance == pytest.approx((3 / 5 + 1 / 3) / 4)
    assert score.one_place == 2 / 4
    assert score.signature.startswith("CopyAccuracy|once:source|links:only|n:4|version:")


def test_the_interval_is_over_pairs():
    pairs, links = [("a b", "a")] * 40, [[(0, 0)]] * 30 + [[(1, 0)]] * 10
    assert copy_accuracy(pairs, links).interval is None
    low, high = copy_accuracy(pairs, links, bootstrap=500, seed=1).interval
    assert 0.5 < low < 0.75 < high < 0.95
    better = copy_counts(pairs, [[(0, 0)]] * 40)
    assert COPIES.paired_interval(copy_counts(pairs, links), better, 100, 0)[0] > 0
