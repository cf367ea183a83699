"""Changed numbers, negations and names: detection, and the table against loops."""

import math

import numpy as np
import pytest

from hf_attncal.checking.evidence import LinkEvidence
from hf_attncal.checking.facts import (
    EXCHANGED,
    FACT_EDGES,
    FACT_GROUPS,
    HAS,
    LACKS,
    NEGATION,
    PLANTED_FACTS,
    Fact,
    FactModel,
    fact_features,
    find_facts,
    kept_names,
)
from hf_attncal.checking.fitting import DenialCounts, fit_fact_table
from hf_attncal.data.segmentation import white_space_words


def facts(source, target):
    """Return (word, group, has a counterpart) per side."""
    sides = white_space_words(source), white_space_words(target)
    return [
        [(side.words[fact.place], list(FACT_GROUPS.values())[fact.group][0], fact.found == HAS) for fact in of_side]
        for side, of_side in zip(sides, find_facts(*sides, ("de", "en")), strict=True)
    ]


def test_a_name_that_the_other_side_keeps():
    """Kept words are learned from their share on both sides, while clean lines hardly lack any."""
    counts = DenialCounts()
    pairs = [(["Tom", "geht", "nach", "Boston"], ["Tom", "goes", "to", "Boston"])] * 40
    assert len(list(counts.passing([*pairs, (["die", "Rose"], ["the", "flower"])]))) == 41
    words = ({"tom": 41, "boston": 90, "rose": 1}, {"tom": 40, "boston": 40})
    denials = counts.keeping(counts.found(), words, [])
    assert [set(one.kept) for one in denials] == [{"tom"}, {"tom", "boston"}]
    for source, target, names in (
        ("Tom geht", "Peter goes", [(0, 0, False)]),
        ("er geht nach Boston", "he goes to Paris", []),  # no such name in German
        ("Toms Haus", "Tom 's house", [(1, 0, True)]),
    ):
        assert kept_names(white_space_words(source), white_space_words(target), denials) == names
    lost = [line("Tom geht", "he goes")] * 2
    assert [set(one.kept) for one in counts.keeping(counts.found(), words, lost)] == [set(), set()]


def test_a_number_is_compared_by_its_value_and_told_by_its_form():
    source, target = (white_space_words(text) for text in ("zwei von 2011-2012 , 15", "3 of 2011-2013 , 15"))
    names = list(FACT_GROUPS)
    found = [
        [(fact.place, names[fact.group], fact.found) for fact in side]
        for side in find_facts(source, target, ("de", "en"))
    ]
    assert found == [
        [(0, "number in words", EXCHANGED), (2, "long number", EXCHANGED), (4, "short number", HAS)],
        [(0, "short number", EXCHANGED), (2, "long number", EXCHANGED), (4, "short number", HAS)],
    ]


@pytest.mark.parametrize(
    ("source", "target", "has"),
    [
        ("ich kam nicht", "I did not come", [True]),
        ("ich kam nicht", "I came", [False]),
        ("er ne kam", "he came", []),
        ("er kam nicht", "he came without", [True]),
        ("er kam nicht", "he was unhappy", [True]),
    ],
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
    words = ["a", "not", "7", "198", "zwei", "Anna", "Bert", "nicht"]
    for _ in range(number):
        source, target = (generator.choice(words, size=generator.integers(1, 6)).tolist() for _ in range(2))
        known = [generator.normal(1, 4, len(side)).tolist() for side in (source, target)]
        yield line(" ".join(source), " ".join(target), known)


def test_the_table_is_a_ratio_of_shares():
    """The table equals a count in loops: share of counterparts times share of bins, with a prior of five words."""
    good = list(some_lines(1, 60))
    bad = [(one, PLANTED_FACTS[number % 3], ((0, 1), (0, 2))) for number, one in enumerate(some_lines(2, 80))]
    table = fit_fact_table(good, bad, "known", ("de", "en"))
    edges, kinds = FACT_EDGES["known"], list(FACT_GROUPS.values())
    seen = []
    for changed, lines in enumerate(([(one, None, None) for one in good], bad)):
        for one, kind, places in lines:
            for side, found in enumerate(find_facts(one.source, one.target, ("de", "en"))):
                for place, group, has in found:
                    if not changed or (kind in kinds[group] and place in places[side]):
                        value = sum(one.known[side][place] >= edge for edge in edges)
                        seen.append((changed, side, group, has, value))
    assert {len(found) for found in seen} == {5}

    def share(changed, side, group, has, value):
        group = 1 if changed and group == 2 else group  # numbers in words are not planted: as short ones
        of_group = [one for one in seen if one[:3] == (changed, side, group)]
        of_has = [one for one in of_group if one[3] == has]
        alike = [one for one in seen if one[0] == changed and one[3] == has]
        prior = (sum(one[4] == value for one in alike) + 0.5) / (len(alike) + 0.5 * (len(edges) + 1))
        inside = (sum(one[4] == value for one in of_has) + 5 * prior) / (len(of_has) + 5)
        return (len(of_has) + 0.5) / (len(of_group) + 1.5) * (inside if group > 2 else 1)

    compared = 0
    for side, group, has, value in np.ndindex(table.shape):
        planted = sum(one[:3] == (1, side, 1 if group == 2 else group) for one in seen)
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
    assert fact_features(evidence) == [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0]


def test_evidence_is_looked_up_by_group_counterpart_and_bin():
    table = np.arange(2 * 5 * 3 * 6, dtype=float).reshape(2, 5, 3, 6)
    model = FactModel(table, np.zeros(11), "known")

    def evidence(of):
        return model.evidence(of, find_facts(of.source, of.target, (None, None)))

    found = evidence(line("in 1998", "in 1993", [[0, 5.0], [0, -9.0]]))
    assert found == [[(1, 0, table[0, 0, EXCHANGED, 4])], [(1, 0, table[1, 0, EXCHANGED, 0])]]
    assert evidence(line("in 1998", "in ?", [[0, 5.0], [0, -9.0]])) == [[(1, 0, table[0, 0, LACKS, 4])], []]
    assert evidence(line("a", "b")) == [[], []]


def test_what_denies_is_learned_from_clean_pairs():
    """A word that may translate a negation, and the negation of a language without a built-in list."""
    counts = DenialCounts()
    german = [("er kommt nicht", "he does not come")] * 50 + [("er kommt ohne ihn", "he does not bring him")] * 10
    german += [("er kommt mit ihm", "he comes with him")] * 200 + [("er sieht ihn", "he sees him")] * 40
    assert len(list(counts.passing([tuple(map(str.split, pair)) for pair in german]))) == 300
    learned = counts.found()
    assert learned[0].words == {"ohne"}
    assert not learned[0].negations
    other = DenialCounts()
    pairs = [("ona ei idzie", "she does not go")] * 20 + [("ona idzie", "she goes")] * 100
    list(other.passing([tuple(map(str.split, pair)) for pair in pairs]))
    denials = other.found()
    assert denials[0].negations == {"ei"}
    lost = find_facts(white_space_words("ona ei idzie"), white_space_words("she goes"), denials=denials)
    assert lost == ([Fact(1, NEGATION, LACKS)], [])
    kept = find_facts(white_space_words("ona ei idzie"), white_space_words("she does not go"), denials=denials)
    assert [fact.found for side in kept for fact in side] == [HAS, HAS]
