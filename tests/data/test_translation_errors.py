"""Planted translation errors: each has its kind and its position."""

import pytest

from hf_attncal.data.translation_errors import KINDS, clause_spans, plant_errors

TEXT = """
Heute kam Berta nicht , weil ihr altes Auto in 1987 kaputt war . | \
Today Berta did not come , because her old car was broken in 1987 .
Der Hund schlief lange , und Paula las drei neue Bücher . | The dog slept for long , and Paula read three new books .
Ja | Yes
Gestern sah Emil 12 kleine Enten am Ufer . | Emil saw 12 little ducks on the shore .
"""
PAIRS = [tuple(tuple(side.split()) for side in line.split("|")) for line in TEXT.strip().split("\n")]


@pytest.fixture(scope="module")
def errors():
    return [error for seed in range(30) for error in plant_errors(PAIRS, seed=seed)]


def of(errors, kind):
    found = [error for error in errors if error.kind == kind]
    assert found, kind
    return [(error, *PAIRS[error.original]) for error in found]


def test_every_kind_is_planted_and_places_are_of_words(errors):
    assert {error.kind for error in errors} == set(KINDS)
    for error in errors:
        for places, words in ((error.omission or (), error.source), (error.addition, error.target)):
            assert list(places) == sorted(set(places))
            assert all(0 <= place < len(words) and any(map(str.isalnum, words[place])) for place in places)


def test_something_is_wrong_with_every_pair(errors):
    for error in errors:
        assert (error.source, error.target) != PAIRS[error.original], error


def test_a_pair_of_one_word_keeps_a_word_on_both_sides():
    pairs = [(("nicht",), ("not",)), (("Ja",), ("Yes",)), (("12",), ("12",))]
    errors = [error for seed in range(30) for error in plant_errors(pairs, seed=seed)]
    assert {"unrelated", "insertion"} <= {error.kind for error in errors}
    assert all(error.source and error.target for error in errors)


def test_an_omission_takes_a_clause_from_the_target_or_adds_one_to_the_source(errors):
    for error, source, target in of(errors, "omission"):
        assert error.omission
        assert not error.addition
        if error.source == source:
            assert len(error.target) < len(target)
        else:
            left = [word for place, word in enumerate(error.source) if place not in error.omission]
            assert error.target == target
            assert [word for word in left if word.isalnum()] == [word for word in source if word.isalnum()]


def test_without_what_was_inserted_the_target_is_the_clean_one(errors):
    for error, source, target in of(errors, "insertion"):
        assert error.source == source
        left = [word for place, word in enumerate(error.target) if place not in error.addition and word.isalnum()]
        assert left == [word for word in target if word.isalnum()]


def test_a_truncation_is_a_part_of_the_target(errors):
    for error, source, target in of(errors, "truncation"):
        assert error.source == source
        assert len(error.target) < len(target)
        assert error.omission is None
        rest = iter(target)
        assert all(word in rest for word in error.target)


def test_one_number_one_negation_and_one_name(errors):
    for error, source, target in of(errors, "number"):
        (place,), (left,) = error.addition, error.omission
        assert source[left] == target[place] != error.target[place]
        assert error.target[place].isdecimal()
        assert error.target[:place] + error.target[place + 1 :] == target[:place] + target[place + 1 :]
    for error, source, target in of(errors, "negation"):
        assert [source[place] for place in error.omission] == ["nicht"]
        assert error.target == tuple(word for word in target if word != "not")
    for error, source, target in of(errors, "name"):
        (place,), (left,) = error.addition, error.omission
        assert source[left] == target[place]
        assert error.target[place] in {"Berta", "Paula", "Emil"} - {target[place]}


def test_a_repeated_word_occurred_before(errors):
    for error, source, target in of(errors, "repetition"):
        assert error.source == source
        first = error.addition[0]
        words = {error.target[place] for place in error.addition}
        assert words <= set(error.target[:first]) | {"and"}
        assert error.target[:first] == target[:first] or error.target[first - 1] == ","


def test_whole_sides(errors):
    targets = {target for _, target in PAIRS}
    for error, source, target in of(errors, "unrelated"):
        assert (error.source, error.target in targets - {target}) == (source, True)
    for error, source, target in of(errors, "swapped"):
        assert (error.source, error.target) == (target, source)
    for error, source, _ in of(errors, "untranslated"):
        assert error.source == source
        assert error.target[-1] == source[-1]
        assert error.addition


def test_a_seed_gives_the_same_errors_and_no_other():
    assert plant_errors(PAIRS, seed=3) == plant_errors(PAIRS, seed=3)
    assert plant_errors(PAIRS, seed=3) != plant_errors(PAIRS, seed=4)


def test_clauses_and_negations_of_another_language():
    assert clause_spans(("a", ",", "b", "c")) == [(0, 2), (2, 4)]
    assert clause_spans(("a", ".")) == [(0, 2)]
    pair = (("el", "no", "vino"), ("on", "nie", "przyszedł"))
    assert not plant_errors([pair, pair], ["negation"], negations=frozenset())
    error, *_ = plant_errors([pair, pair], ["negation"], negations=frozenset({"no", "nie"}))
    assert (error.target, error.omission) == (("on", "przyszedł"), (1,))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="'typo'"):
        plant_errors(PAIRS, ["typo"])
    with pytest.raises(ValueError, match="got 1"):
        plant_errors(PAIRS[:1])
