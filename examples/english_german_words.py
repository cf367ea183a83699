"""Read the words of the synthetic language pair from the tables of `english_german_words.json`, and inflect them.

In the tables fields are separated by spaces, and words inside a field by "_".
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

# The first determiners of each number, which a negated clause with "nicht" may have. The next two become "kein".
PLAIN_DETERMINERS = 5


class Noun(NamedTuple):
    kind: str
    gender: str  # m, f, n
    singular: str
    plural: str
    german_singular: str
    german_plural: str
    preposition: str = ""
    german_preposition: str = ""


class Determiner(NamedTuple):
    english: str
    stem: str
    inflection: str  # definite, der, ein, strong, none


class Verb(NamedTuple):
    kinds: tuple[str, ...]
    auxiliary: str
    base: str
    past: str
    participle: str
    german_infinitive: str
    german_third: str
    german_participle: str


class Adverb(NamedTuple):
    english: list[str]
    german: list[str]
    links: list[list[int]]  # for each English word
    tenses: list[str]


def _split(table: Any) -> Any:
    """Split every line of text in the lists and mappings of a table into its fields."""
    if isinstance(table, dict):
        return {name: _split(part) for name, part in table.items()}
    return [_split(part) for part in table] if isinstance(table, list) else table.split()


def _adverb(english: str, german: str, links: str, tenses: str) -> Adverb:
    indices = [[int(digit) for digit in word] for word in links.split("/")]
    return Adverb(english.split("_"), german.split("_"), indices, tenses.split("/"))


_TABLES = json.loads((Path(__file__).parent / "english_german_words.json").read_text(encoding="utf-8"))
PERSON_NAMES, PARTICLES = _TABLES["names"], _TABLES["particles"]
FRAME_WEIGHTS, MODALS = _TABLES["frame_weights"], _TABLES["modals"]
# Contraction of German preposition and article.
CONTRACTIONS = {tuple(words.split()): contraction for words, contraction in _TABLES["contractions"].items()}
# Gender, English singular and plural, German singular and plural; places: English and German preposition.
NOUNS = {kind: [Noun(kind, *row) for row in rows] for kind, rows in _split(_TABLES["nouns"]).items()}
# English, German stem, German predicative form where it differs.
ADJECTIVES = _split(_TABLES["adjectives"])
# English subject and object, German nominative, accusative, dative; person (index of a verb form).
PRONOUNS = _split(_TABLES["pronouns"])
# First and third person singular, plural.
FINITE = _split(_TABLES["finite"])
# English; German infinitive, first and third person singular.
MATRIX_VERBS = _split(_TABLES["matrix_verbs"])
CONJUNCTIONS = _split(_TABLES["conjunctions"])
# English and German prepositions of a place in the dative.
NEAR = _split(_TABLES["near"])
# English, German, case.
COMPANY = _split(_TABLES["company"])
# Definite article by case: masculine, feminine, neuter, plural.
DEFINITE = _split(_TABLES["definite"])
# Endings of determiners and adjectives, in the same order.
DER_ENDINGS = _split(_TABLES["der_endings"])
# Determiners by number: English, German stem, inflection; "-" is no word.
DETERMINERS = {number: [Determiner(*row) for row in rows] for number, rows in _split(_TABLES["determiners"]).items()}
THE, A, KEIN = Determiner("the", "der", "definite"), Determiner("a", "ein", "ein"), Determiner("", "kein", "ein")
# English base, past and participle; German infinitive, third person singular and participle. "_" joins a preposition,
# "+" an adverb, which moves behind a pronoun; "|" marks a separable prefix. `kinds` are kinds of the object.
VERBS: dict[str, list[Verb]] = {}
for _group in _TABLES["verbs"]:
    _kinds, _auxiliary = tuple(_group["kinds"].split()), _group["auxiliary"]
    VERBS.setdefault(_group["frame"], []).extend(Verb(_kinds, _auxiliary, *row) for row in _split(_group["words"]))
# English, German, for each English word the digits of the German words it stands for, tenses.
ADVERBS: dict[str, list[Adverb]] = {}
for _row in _split(_TABLES["adverbs"]):
    for _tense in _adverb(*_row).tenses:
        ADVERBS.setdefault(_tense, []).append(_adverb(*_row))


# Inflection. A gender is m, f, n, or p for any plural; a person is an index into the forms of `FINITE`.


def _pick(forms: list[str], gender: str) -> str:
    return forms["mfnp".index(gender)]


def determiner_form(determiner: Determiner, case: str, gender: str) -> str:
    if determiner.inflection == "none":
        return determiner.stem
    if determiner.inflection == "definite":
        return _pick(DEFINITE[case], gender)
    if determiner.inflection == "ein" and (case, gender) in {("nom", "m"), ("nom", "n"), ("acc", "n")}:
        return determiner.stem
    return determiner.stem + _pick(DER_ENDINGS[case], gender)


def adjective_form(stem: str, determiner: Determiner, case: str, gender: str) -> str:
    """Inflect an adjective: strong without an inflected determiner, mixed after "ein", weak after "der"."""
    if determiner.inflection in {"none", "strong"}:
        return stem + _pick(DER_ENDINGS[case], gender)
    if gender == "p" or not (case == "nom" or (case == "acc" and gender != "m")):
        return stem + "en"
    return stem + (_pick(DER_ENDINGS["nom"], gender) if determiner.inflection == "ein" else "e")


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")
    if case != "gen" or noun.gender == "f":
        return noun.german_singular
    syllables = re.findall("[aeiouäöü]+", noun.german_singular.lower())
    return noun.german_singular + ("es" if len(syllables) == 1 else "s")


def verb_form(infinitive: str, third_person: str, person: int) -> str:
    """Return a form of the German present tense, without a separable prefix."""
    stem = infinitive.split("|")[-1]
    return (stem.removesuffix("n"), third_person, stem)[person]


def english_verb_form(base: str, person: int) -> str:
    """Return a form of the English present tense."""
    if person != 1:
        return base
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")
