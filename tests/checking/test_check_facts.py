"""Numbers, negations and names that a translation changed: what counts as one, the table against loops."""

import math

import numpy as np
import pytest

from hf_attncal.checking.evidence import LinkEvidence
from hf_attncal.checking.facts import (
    FACT_EDGES,
    FACT_GROUPS,
    FactModel,
    fact_features,
    find_facts,
    fit_fact_table,
)
from hf_attncal.data.segmentation import white_space_words


def facts(source, target):
    """(word, group, has a counterpart) of each side."""
    sides = source.split(), target.split()
    found = find_facts(*sides)
    return [
        [(words[fact.place], FACT_GROUPS[fact.group], fact.has_counterpart) for fact in of_side]
        for words, of_side in zip(sides, found, strict=True)
    ]


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("in 1998", "im Jahr 1998", True),
        ("in 1998", "im Jahr 1993", False),
        ("10,000 men", "10 000 hommes", True),
        ("10 , 000 men", "10.000 Menschen", True),
        ("3.5", "3 , 5", True),
        ("007", "7", True),
        ("0", "0", True),
        ("0", "7", False),
        ("\u0663", "3", True),
        ("x\u00b2", "x 2", True),
        ("1 and 2", "2 et 1", True),
        ("3 men", "three men", False),
    ],
)
def test_numbers_are_compared_by_their_digits(source, target, same):
    for side in facts(source, target):
        assert {has for _, group, has in side if group == "number"} <= {same}
    assert any(group == "number" for _, group, _ in facts(source, target)[0])


@pytest.mark.parametrize(
    ("source", "target", "has"),
    [("ich kam nicht", "I did not come", [True]), ("ich kam nicht", "I came", [False]), ("er ne kam", "he came", [])],
)
def test_a_negation_needs_any_on_the_other_side(source, target, has):
    assert [found for _, group, found in facts(source, target)[0] if group == "negation"] == has


def test_a_sentence_may_deny_twice_on_one_side():
    assert [has for side in facts("nobody said nothing", "niemand sprach") for *_, has in side] == [True] * 3


def test_names_are_compared_by_their_letters():
    assert facts("Tom saw Boston", "Tom sah Boston")[0] == [("Boston", "name", True)]
    assert facts("he saw Boston . Then Mary", "er sah London")[0] == [
        ("Boston", "name", False),
        ("Mary", "name", False),
    ]
    assert facts("to Catalonia", "nach Katalonien")[1] == [("Katalonien", "name", True)]
    assert facts("to Boston", "nach boston")[0] == [("Boston", "name", True)]  # no capital there
    assert facts("", "to Boston")[1] == [("Boston", "name", False)]
    assert facts("", "") == [[], []]


def line(source, target, known=None):
    sides = white_space_words(source), white_space_words(target)
    values = known or [[0.0] * len(side.words) for side in sides]
    values = tuple(np.array(side, dtype=float) for side in values)
    return LinkEvidence(*sides, values, values, np.zeros(len(sides[1].words)))


def some_lines(seed, number):
    generator = np.random.default_rng(seed)
    words = ["a", "not", "7", "8", "Anna", "Bert", "nicht"]
    for _ in range(number):
        source, target = (generator.choice(words, size=generator.integers(1, 6)).tolist() for _ in range(2))
        known = [generator.normal(1, 4, len(side)).tolist() for side in (source, target)]
        yield line(" ".join(source), " ".join(target), known)


def test_the_table_is_a_ratio_of_shares():
    """Against a count in loops: a share of counterparts, times one of bins with a prior of five words."""
    good = list(some_lines(1, 60))
    bad = [(one, FACT_GROUPS[number % 3], ((0, 1), (0, 2))) for number, one in enumerate(some_lines(2, 80))]
    table = fit_fact_table(good, bad, "known")
    edges = FACT_EDGES["known"]
    seen = []
    for changed, lines in enumerate(([(one, None, None) for one in good], bad)):
        for one, kind, places in lines:
            pair = one.source.words, one.target.words
            for side, found in enumerate(find_facts(*pair)):
                for place, group, has in found:
                    if not changed or (FACT_GROUPS[group] == kind and place in places[side]):
                        value = sum(one.known[side][place] >= edge for edge in edges)
                        seen.append((changed, side, group, has, value))
    assert {len(found) for found in seen} == {5}

    def share(changed, side, group, has, value):
        of_group = [one for one in seen if one[:3] == (changed, side, group)]
        of_has = [one for one in of_group if one[3] == has]
        alike = [one for one in seen if one[0] == changed and one[3] == has]
        prior = (sum(one[4] == value for one in alike) + 0.5) / (len(alike) + 0.5 * (len(edges) + 1))
        inside = (sum(one[4] == value for one in of_has) + 5 * prior) / (len(of_has) + 5)
        return (len(of_has) + 0.5) / (len(of_group) + 1) * inside

    compared = 0
    for side, group, has, value in np.ndindex(table.shape):
        planted = sum(one[:3] == (1, side, group) for one in seen)
        expected = (
            math.log(share(1, side, group, has, value) / share(0, side, group, has, value)) if planted >= 5 else 0
        )
        assert table[side, group, has, value] == pytest.approx(max(-8, min(8, expected)), abs=1e-12)
        compared += planted >= 5
    assert compared > 20


def test_what_was_hardly_ever_planted_says_nothing():
    table = fit_fact_table(
        list(some_lines(1, 30)), [(one, "number", ((0,), (0,))) for one in some_lines(2, 3)], "best"
    )
    assert not table.any()


def test_features_are_the_largest_evidence_of_each_group():
    evidence = [[(0, 0, 2.0), (3, 0, 3.0), (4, 2, -1.0)], [(1, 1, 9.5)]]
    assert fact_features(evidence) == [3.0, 0.0, 0.0, 0.0, 8.0, 0.0]


def test_evidence_is_looked_up_by_group_counterpart_and_bin():
    table = np.arange(2 * 3 * 2 * 6, dtype=float).reshape(2, 3, 2, 6)
    model = FactModel(table, np.zeros(7), "known")
    found = model.evidence(line("in 1998", "in 1993", [[0, 5.0], [0, -9.0]]))
    assert found == [[(1, 0, table[0, 0, 0, 4])], [(1, 0, table[1, 0, 0, 0])]]
    assert model.evidence(line("a", "b")) == [[], []]
