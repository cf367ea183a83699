"""Invented words in pairs of the grammar."""

from collections import Counter

from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.data.synthetic.planted import INVENTED, copied_words, is_only_signs, plant_copies

PAIRS = generate_pairs(300, seed=2)


def test_an_invented_word_takes_the_places_of_two_words_that_are_linked_with_nothing_else():
    planted = plant_copies(PAIRS)
    changed = 0
    for before, after in zip(PAIRS, planted, strict=True):
        assert after.links == before.links
        places = [
            [n for n, words in enumerate(zip(before[side], after[side], strict=True)) if words[0] != words[1]]
            for side in (0, 1)
        ]
        if before == after:
            continue
        (i,), (j,) = places
        assert {link for link in after.links if link[0] == i or link[1] == j} == {(i, j)}
        assert after.source[i] == after.target[j] in INVENTED
        assert (i, j) in copied_words(" ".join(after.source), " ".join(after.target))
        changed += 1
    assert changed > 250


def test_invented_words_are_no_words_of_the_grammar_and_all_are_used():
    known = {word for pair in generate_pairs(3000) for side in pair[:2] for word in side}
    assert len(set(INVENTED)) == len(INVENTED)
    assert not known & set(INVENTED)
    drawn = Counter(word for pair in plant_copies(generate_pairs(3000)) for word in pair.source if word in INVENTED)
    assert len(drawn) == len(INVENTED)
    assert max(drawn.values()) < 3 * min(drawn.values())


def test_a_seed_decides():
    assert plant_copies(PAIRS, seed=1) == plant_copies(PAIRS, seed=1) != plant_copies(PAIRS, seed=2)
    assert plant_copies(PAIRS)[:10] == plant_copies(PAIRS[:10])


def test_punctuation_has_neither_letters_nor_digits():
    assert [word for word in ("Haus", ",", "3", "...", "?!", "'s") if is_only_signs(word)] == [",", "...", "?!"]
