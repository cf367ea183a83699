"""The synthetic language pair: correct German, exact links, enough of it, and the same every time."""

from collections import Counter

import english_german_words as lexicon
import pytest
from english_german import _Grammar, generate_pairs, generate_split, write_pairs
from english_german_words import DETERMINERS, NOUNS, THE, A, Noun

MAN = Noun("person", "m", "man", "men", "Mann", "Männer")
WOMAN = Noun("person", "f", "woman", "women", "Frau", "Frauen")
CHILD = Noun("person", "n", "child", "children", "Kind", "Kinder")

# typed in from a grammar book: nominative, accusative, dative of masculine, feminine, neuter
DECLENSION = {
    THE: "der alte Mann, die alte Frau, das alte Kind, den alten Mann, die alte Frau, das alte Kind, "
    "dem alten Mann, der alten Frau, dem alten Kind",
    A: "ein alter Mann, eine alte Frau, ein altes Kind, einen alten Mann, eine alte Frau, ein altes Kind, "
    "einem alten Mann, einer alten Frau, einem alten Kind",
    DETERMINERS["singular"][1]: "dieser alte Mann, diese alte Frau, dieses alte Kind, diesen alten Mann, "
    "diese alte Frau, dieses alte Kind, diesem alten Mann, dieser alten Frau, diesem alten Kind",
}
PLURALS = {  # nominative, accusative, dative
    "the": "die alten Männer, die alten Männer, den alten Männern",
    "my": "meine alten Männer, meine alten Männer, meinen alten Männern",
    "two": "zwei alte Männer, zwei alte Männer, zwei alten Männern",
    "many": "viele alte Männer, viele alte Männer, vielen alten Männern",
    "all": "alle alten Männer, alle alten Männer, allen alten Männern",
    "-": "alte Männer, alte Männer, alten Männern",
}
CONJUNCTIONS = {german for _, german in lexicon.CONJUNCTIONS} | {"dass"}
FINITE = {form for lemma in ("sein", "war", "haben", "werden", *lexicon.MODALS.values())
          for form in lexicon.FINITE[lemma]}  # fmt: skip


def present_forms(verb):
    return {lexicon.verb_form(verb.german_infinitive, verb.german_third, person) for person in range(3)}


VERBS = [verb for verbs in lexicon.VERBS.values() for verb in verbs]
PREFIXES = {verb.german_infinitive.split("|")[0] for verb in VERBS if "|" in verb.german_infinitive}
PREPOSITIONS = {"mit", "an", "auf", "vor", "zu", "ein"}  # prefixes that are also words of their own
LAST_FORMS = {
    (verb.german_infinitive.split("|")[0] if "|" in verb.german_infinitive else "") + form
    for verb in VERBS
    for form in present_forms(verb)
}


@pytest.fixture(scope="module")
def pairs():
    return generate_pairs(6000, seed=3)


def text(words):
    return " ".join(word for word, _ in words)


def noun_phrase(noun, case, determiner, plural=False, adjective="old", negation=()):
    """Draw until the phrase has the adjective that we ask for and no owner."""
    grammar = _Grammar(0)
    for _ in range(2000):
        phrase = grammar.noun_group(noun, case, determiner, plural, negation)
        words = [word for word, _ in phrase.english]
        if adjective in words and "of" not in words and "'s" not in words:
            return phrase
    raise AssertionError("never drawn")


@pytest.mark.parametrize("determiner", DECLENSION)
def test_singular_declension(determiner):
    table = iter(DECLENSION[determiner].split(", "))
    for case in ("nom", "acc", "dat"):
        for noun in (MAN, WOMAN, CHILD):
            assert text(noun_phrase(noun, case, determiner).german) == next(table)


@pytest.mark.parametrize("english", PLURALS)
def test_plural_declension(english):
    determiner = next(determiner for determiner in DETERMINERS["plural"] if determiner.english == english)
    for case, expected in zip(("nom", "acc", "dat"), PLURALS[english].split(", "), strict=True):
        phrase = noun_phrase(MAN, case, determiner, plural=True)
        assert text(phrase.german) == expected
        assert text(phrase.english) == (english + " old men").removeprefix("- ")


PREDICATES = [  # verb, tense, person, negated, question; English; German in a main clause and in a subordinate one
    ("call+up", "present", 1, False, False, "calls up", "ruft ... an", "anruft"),
    ("call+up", "present", 0, False, True, "do ... call up", "rufe ... an", "anrufe"),
    ("call+up", "past", 1, False, False, "called up", "hat ... angerufen", "angerufen hat"),
    ("call+up", "past", 2, True, False, "did not ... call up", "haben ... angerufen", "angerufen haben"),
    ("go", "present", 1, True, False, "does not ... go", "geht", "geht"),
    ("go", "perfect", 0, False, False, "have ... gone", "bin ... gegangen", "gegangen bin"),
    ("go", "future", 2, False, True, "will ... go", "werden ... gehen", "gehen werden"),
    (
        "fall+asleep",
        "perfect",
        1,
        True,
        False,
        "has not ... fallen asleep",
        "ist ... eingeschlafen",
        "eingeschlafen ist",
    ),
    ("look_for", "past", 1, False, False, "looked for", "hat ... gesucht", "gesucht hat"),
]


@pytest.mark.parametrize("row", PREDICATES)
def test_verb_groups(row):
    base, tense, person, negated, question, english, main, subordinate = row
    verb = next(verb for verb in VERBS if verb.base == base)
    group = _Grammar(0).predicate(verb, tense, person, (99,) if negated else (), question)
    words = [text(group.auxiliaries), text([*group.main, *group.adverb])]
    assert " ... ".join(filter(None, words)) == english
    assert " ... ".join(filter(None, [group.finite[0], text(group.end)])) == main
    assert text(group.last) == subordinate
    main_meaning = set(group.main[0][1])
    assert all(set(meanings) == main_meaning for _, meanings in [*group.main, *group.adverb])


def test_links_join_translations(pairs):
    """Independent of how links are made: the words of every link must be translations in the dictionary."""
    forms = {}
    for noun in (noun for nouns in NOUNS.values() for noun in nouns):
        for english, plural in ((noun.singular, False), (noun.plural, True)):
            german = {lexicon.noun_form(noun, case, plural) for case in ("nom", "dat", "gen")}
            forms.setdefault(english, set()).update(german)
    checked = Counter()
    for pair in pairs:
        for i, word in enumerate(pair.source):
            if expected := forms.get(word if i else word.lower()):
                linked = [pair.target[j] for k, j in pair.links if k == i]
                assert len(linked) == 1, pair
                assert linked[0] in expected or linked[0].capitalize() in expected, pair
                checked[word] += 1
    assert len(checked) > 80


def clauses(pair):
    """The parts of the German sentence between its commas and the final mark."""
    start = 0
    for end, word in enumerate(pair.target):
        if word in {",", ".", "?"}:
            yield start, pair.target[start:end]
            start = end + 1


def test_subordinate_clauses_end_in_their_verb(pairs):
    checked = 0
    for pair in pairs:
        for _, words in clauses(pair):
            if words[0].lower() in CONJUNCTIONS:
                assert words[-1] in FINITE | LAST_FORMS, pair
                assert not PREFIXES & set(words) - PREPOSITIONS, pair
                checked += 1
    assert checked > 1000


def test_seeds(pairs):
    assert generate_pairs(100, seed=3) == pairs[:100]
    assert generate_pairs(100, seed=4) != pairs[:100]
    assert generate_pairs(0) == []


def test_split_shares_no_sentence():
    split = generate_split(3000, 300, 200, seed=7)
    assert [len(part) for part in split] == [3000, 300, 200]
    for side in (0, 1):
        sentences = [pair[side] for part in split for pair in part]
        assert len(set(sentences)) == len(sentences)
    assert generate_split(3000, 300, 200, seed=7) == split


def test_pairs_are_written_as_two_files_of_as_many_lines(tmp_path):
    pairs = generate_pairs(20, seed=3)
    write_pairs(pairs, tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "source").read_text(encoding="utf-8") == "".join(f"{' '.join(p.source)}\n" for p in pairs)
    assert (tmp_path / "target").read_text(encoding="utf-8") == "".join(f"{' '.join(p.target)}\n" for p in pairs)
