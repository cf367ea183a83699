"""Counts of linked words, their probabilities, what is left out, and the memory that it takes."""

import random
from collections import Counter
from dataclasses import astuple

import pytest

from hf_attncal.alignment.linked_texts import Entry, count_links


def counted(pairs, **options) -> list[Entry]:
    return list(count_links([pair[:2] for pair in pairs], [links for *_, links in pairs], **options))


PAIRS = [
    ("the old house", "das alte Haus", [(0, 0), (1, 1), (2, 2)]),
    ("The house", "das Haus", [(0, 0), (1, 1)]),
    ("the house", "Haus das", [(0, 1), (1, 0), (0, 0)]),
]


def test_probabilities_are_shares_of_the_links_of_a_word():
    assert counted(PAIRS, lowercase=True) == [
        Entry("house", "haus", 3, 1, 0.75),
        Entry("old", "alte", 1, 1, 1),
        Entry("the", "das", 3, 0.75, 1),
        Entry("the", "haus", 1, 0.25, 0.25),
    ]
    cased = [(entry.source, entry.target, entry.count) for entry in counted(PAIRS)]
    assert cased[:2] == [("The", "das", 1), ("house", "Haus", 3)]


def test_it_is_the_loop_over_the_definition():
    generator = random.Random(2)
    pairs = []
    for _ in range(200):
        sides = [generator.choices(letters, k=5) for letters in ("abcdef", "uvwxyz")]
        links = generator.sample([(i, j) for i in range(5) for j in range(5)], 4)
        pairs.append((*map(" ".join, sides), links))
    linked = [(s.split()[i], t.split()[j]) for s, t, links in pairs for i, j in links]
    found = counted(pairs)
    assert {(entry.source, entry.target): entry.count for entry in found} == Counter(linked)
    for source, target, count, forward, backward in map(astuple, found):
        assert forward == pytest.approx(count / sum(one[0] == source for one in linked))
        assert backward == pytest.approx(count / sum(one[1] == target for one in linked))
    assert found == sorted(found, key=lambda entry: (entry.source, -entry.count, entry.target))


def test_rare_links_are_left_out_without_changing_probabilities():
    whole = counted(PAIRS, lowercase=True)
    assert counted(PAIRS, lowercase=True, least_count=2) == [entry for entry in whole if entry.count >= 2]
    assert counted(PAIRS, lowercase=True, top=1) == whole[:3]
    assert counted([]) == []


@pytest.mark.parametrize("link", [(3, 0), (0, 3), (-1, 0)])
def test_a_link_of_a_word_that_is_not_there_is_refused(link):
    with pytest.raises(ValueError, match=rf"link {link[0]}-{link[1]}.*3 source.*3 target"):
        counted([("a a a", "b b b", [(0, 0), link])])
