"""Facts: numbers, negations and names, single words whose form or sense a good translation keeps.

The chain of `check_model` needs several adjacent words without a partner. A changed digit, a dropped "not" and a wrong
name are one word each, and an aligner often links them anyway. So they are compared by form with the other side: a
number by its value (`number_values`), a name by its letters, a negation by the presence of another one. The weight of
a fact without a counterpart is learned from clean pairs, where some facts have none, and from planted errors.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hf_attncal.data.segmentation import Segments
from hf_attncal.data.words import NEGATIONS

from .evidence import Both, LinkEvidence
from .number_values import Languages, Number, compare_numbers
from .placeholders import masked
from .tables import TABLES

FACT_GROUPS: dict[str, list[str]] = TABLES["fact_groups"]  # group of facts -> planted errors that change it
PLANTED_FACTS = tuple(dict.fromkeys(kind for kinds in FACT_GROUPS.values() for kind in kinds))
_LONG, SHORT, IN_WORDS, NEGATION, _NAME = range(len(FACT_GROUPS))
_SHORT_DIGITS = 2
# Bin edges for a field of `LinkEvidence`; few bins, as planted facts are few.
FACT_EDGES = {"known": (-3.0, 0.0, 2.0, 4.0, 6.0), "best": (0.1, 0.3, 0.6, 0.9)}
_WORDS_THAT_DENY = "|".join([*filter(str.isalpha, NEGATIONS), *TABLES["denials"]])
_DENIES = re.compile(rf"(?:n ?['’] ?t(?![^\W_])|(?<![^\W_])(?:n['’]|(?:{_WORDS_THAT_DENY})(?![^\W_])))", re.IGNORECASE)
# Negations of one language that are other words in these: "no" is "in the" in Portuguese.
_NO_NEGATION_IN = {"no": ("pt", "de", "fr", "nl", "da"), "non": ("en", "de", "es", "pt"), "nulla": ("it",)}
_POLITE = frozenset(("sie", "ihr", "ihnen", "ihre", "ihren", "ihrem", "ihrer", "ihres", "usted", "ustedes", "lei"))
_BEFORE_SENTENCES = frozenset(".!?:;\"'“”„«»‘’()-–—…")
_QUOTES = frozenset("\"'“”„«»‹›`‘’")
# "not only ... but" and "not least" deny nothing.
_NO_DENIAL_BEFORE = frozenset(
    ("only", "least", "nur", "zuletzt", "seulement", "solo", "sólo", "solamente", "soltanto")
)
MOST_EVIDENCE = 8.0


# Status of a fact: missing on the other side, present, or a missing number where that side has another one.
LACKS, HAS, EXCHANGED = range(3)


class Fact(NamedTuple):
    """A number, a negation or a name: index of its word, its group, and its status (`LACKS`, ...)."""

    place: int
    group: int
    found: int


BothFacts = Both[list[Fact]]
FactEvidence = tuple[int, int, float]  # place, group, and the evidence against it


class Denials(NamedTuple):
    """Further words of negation of one side beside the built-in lists, by `fitting.DenialCounts`; in lower case.

    Args:
        words: Words that may translate a negation ("ohne", "verschweigen").
        negations: Negations, for a language without a built-in list.
        kept: Words that translations keep as they are, such as names. Default: none.
    """

    words: frozenset[str]
    negations: frozenset[str]
    kept: frozenset[str] = frozenset()


NO_DENIALS = (Denials(frozenset(), frozenset()),) * 2
BothDenials = Both[Denials]


def kept_names(source: Segments, target: Segments, denials: BothDenials) -> list[tuple[int, int, bool]]:
    """Return the side and the index of each kept name, and whether the other side has a similar word."""
    pair = source.words, target.words
    return [
        (
            side,
            place,
            any(len(other) > 2 and (alike(word.lower(), other.lower()) or word in other) for other in pair[1 - side]),
        )
        for side, words in enumerate(pair)
        for place, word in enumerate(words)
        if word[0].isupper() and word.lower() in denials[side].kept
    ]


@lru_cache(maxsize=1 << 12)  # used by facts and rules for the same line
def find_facts(
    source: Segments, target: Segments, languages: Languages = (None, None), denials: BothDenials = NO_DENIALS
) -> BothFacts:
    """Return the numbers, negations and names of both sides, in their order.

    A name is a capitalised word of three letters or more that does not begin a sentence. In German this includes
    nouns, which does no harm, as the model learns how often they have no counterpart.

    Args:
        source, target: Words of both texts.
        languages: Languages of both, for numbers in words; see `compare_numbers`. Default: unknown.
        denials: Words of negation of both sides. Default: none.
    """
    pair = source.words, target.words
    groups = [_groups(words, more.negations) for words, more in zip(pair, denials, strict=True)]
    numbers = words_with_numbers(source, target, languages)
    denied = [
        any(
            match[0].lower() != "no" or language not in _NO_NEGATION_IN["no"]
            for match in _DENIES.finditer(masked(side.text))
        )
        or not (more.words | more.negations).isdisjoint(map(str.lower, side.words))
        for side, more, language in zip((source, target), denials, languages, strict=True)
    ]
    facts_of_sides: tuple[list[Fact], list[Fact]] = ([], [])
    for side, (words, facts) in enumerate(zip(pair, groups, strict=True)):
        facts_of_sides[side].extend(Fact(place, *fact) for place, fact in numbers[side].items())
        capitals: list[str] | None = None
        for place, group in facts.items():
            if place in numbers[side]:
                continue
            if group == NEGATION:
                if languages[side] in _NO_NEGATION_IN.get(words[place].lower(), ()) or not _denies_at(words, place):
                    continue
                has = denied[1 - side]  # the number may differ: many languages deny twice
            else:
                if not place or words[place - 1] in _BEFORE_SENTENCES:
                    continue
                if capitals is None:
                    capitals = _capitals(pair[1 - side], groups[1 - side])
                form = words[place].lower()
                has = any(alike(form, other) for other in capitals)
            facts_of_sides[side].append(Fact(place, group, int(has)))
        facts_of_sides[side].sort()
    return facts_of_sides


@lru_cache(maxsize=1 << 12)  # used by facts, rules and word classes for the same line
def words_with_numbers(source: Segments, target: Segments, languages: Languages) -> list[dict[int, tuple[int, int]]]:
    """Map the index of each word with a number to its group and status, per side."""
    compared = compare_numbers(masked(source.text), masked(target.text), languages)
    facts_of_sides = [_words_of(side, numbers) for side, numbers in zip((source, target), compared, strict=True)]
    if all(LACKS in [how for _, how in facts.values()] for facts in facts_of_sides):
        return [
            {place: (group, how or EXCHANGED) for place, (group, how) in facts.items()} for facts in facts_of_sides
        ]
    return facts_of_sides


def _words_of(side: Segments, numbers: Sequence[Number]) -> dict[int, tuple[int, int]]:
    facts: dict[int, tuple[int, int]] = {}
    if not numbers:
        return facts
    spans = side.spans
    starts = [start for start, _ in spans]
    for number in numbers:
        length = number.stop - number.start
        group = IN_WORDS if number.in_words else SHORT if length <= _SHORT_DIGITS else _LONG
        for place in range(bisect_right(starts, number.start) - 1, bisect_right(starts, number.stop - 1)):
            if number.in_words and not side.words[place][0].isalpha():
                continue
            before, had = facts.get(place, (group, HAS))
            facts[place] = min(before, group), min(had, int(number.has_counterpart))
    return facts


def _groups(words: Sequence[str], negations: frozenset[str]) -> dict[int, int]:
    groups = {place: group for place, word in enumerate(words) if (group := _group(word)) is not None}
    if negations:
        groups |= {place: NEGATION for place, word in enumerate(words) if word.lower() in negations}
    return dict(sorted(groups.items()))


@lru_cache(maxsize=1 << 16)
def _group(word: str) -> int | None:
    if word.lower().replace("’", "'") in NEGATIONS:
        return NEGATION
    return _NAME if len(word) > 2 and word[0].isupper() and word.lower() not in _POLITE else None


def _denies_at(words: Sequence[str], place: int) -> bool:
    """Return whether a negation denies, and is neither a tag, an abbreviation nor part of a comparison."""
    word, before, after = words[place], words[place - 1] if place else "", "".join(words[place + 1 : place + 2])
    return not (
        # "isn't it?" is "oder?" in German
        ("?" in words[place:] and "." not in words[place : words.index("?", place)])
        or (word in ("Not", "None") and place)  # the German noun, the value of Python
        or before in ("or", "oder", "ou", "o", "/")
        or after in ("-", "/")  # whether or not, non-empty, yes/no
        or after.lower() in _NO_DENIAL_BEFORE
        or before == "if"  # a condition, which a translation may call the default
        or (before in _QUOTES and after in _QUOTES)
        or (after in ("more", "less", "fewer", "later") and "than" in words[place + 2 : place + 5])
        or (word.lower() == "no" and (after in (".", ":", "°") or after[:1].isdigit()))  # No. 7
    )


def _capitals(words: Sequence[str], groups: dict[int, int]) -> list[str]:
    """Return the capitalised words of a side in lower case, or all its words if none is capitalised."""
    capitals = [words[place].lower() for place, group in groups.items() if group == _NAME]
    return capitals or [word.lower() for word in words]


@lru_cache(maxsize=1 << 14)
def _letter_pairs(word: str) -> frozenset[str]:
    return frozenset(word[place : place + 2] for place in range(len(word) - 1))


def alike(first: str, second: str) -> bool:
    """Return whether words are spelt alike (Dice coefficient of letter bigrams); numbers must be equal."""
    if first == second:
        return True
    if first[:1].isdigit() or second[:1].isdigit():
        return False
    return shared_letters(first, second) > 0.55


def shared_letters(first: str, second: str) -> float:
    """Return the Dice coefficient of the letter bigrams of two texts."""
    a, b = _letter_pairs(first), _letter_pairs(second)
    return 2 * len(a & b) / max(1, len(a) + len(b))


def alike_among(first: Iterable[str], second: Iterable[str]) -> Both[set[str]]:
    """Return the words of each side for which the other side has a similarly spelt word.

    This is `alike` for all pairs at once, without its rule for numbers.

    Args:
        first, second: Words of both sides. None may begin with a digit, because only equal numbers are alike.
    """
    matched: Both[set[str]] = set(), set()
    others = [(other, _letter_pairs(other)) for other in second]
    for word in first:
        letters = _letter_pairs(word)
        for other, more in others:
            if word == other or 2 * len(letters & more) > 0.55 * (len(letters) + len(more)):
                matched[0].add(word)
                matched[1].add(other)
    return matched


@dataclass(frozen=True)
class FactModel:
    """Model of facts with and without a counterpart, made by `check_learning.fit_facts`.

    Args:
        table: Log-ratio of the frequencies in changed and in clean pairs, (2 sides, groups, status, bins of `field`).
        head: Bias and weights of the `fact_features` of a line, (1 + 2 * groups,).
        field: Field of `LinkEvidence` that is binned, "known" or "best".
    """

    table: np.ndarray
    head: np.ndarray
    field: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"field": self.field, "table": self.table.tolist(), "head": self.head.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "FactModel":
        return cls(np.array(values["table"], float), np.array(values["head"], float), values["field"])

    def evidence(self, line: LinkEvidence, facts: BothFacts) -> list[list[FactEvidence]]:
        """Return the index, the group and the evidence against each fact, per side.

        Args:
            line: Evidence of the pair.
            facts: Facts of the pair, from `find_facts`.
        """
        if not any(facts):
            return [[], []]
        edges, sides = FACT_EDGES[self.field], getattr(line, self.field)
        return [
            [
                (fact.place, fact.group, float(table[fact.group, fact.found, bisect_right(edges, value)]))
                for fact, value in zip(found, values[[fact.place for fact in found]].tolist(), strict=True)
            ]
            for table, found, values in zip(self.table, facts, sides, strict=True)
        ]


# Model before training.
NO_FACTS = FactModel(np.zeros((2, len(FACT_GROUPS), 3, 5)), np.array([-30.0] + [0.0] * 2 * len(FACT_GROUPS)), "best")


def fact_features(evidence: Sequence[Sequence[FactEvidence]]) -> list[float]:
    """Return the largest evidence against a fact of each group, source first; 0 for none."""
    values = [0.0] * (2 * len(FACT_GROUPS))
    for side, found in enumerate(evidence):
        for _, group, value in found:
            column = side * len(FACT_GROUPS) + group
            values[column] = max(values[column], min(value, MOST_EVIDENCE))
    return values


def changed_facts(evidence: Sequence[Sequence[FactEvidence]]) -> tuple[str, ...]:
    """Return the name of the change of the fact with the most evidence against it, from `FactModel.evidence`."""
    against, group, side = max(
        ((value, group, side) for side, found in enumerate(evidence) for _, group, value in found), default=(0.0, 0, 0)
    )
    if against <= 0:
        return ()
    if group == NEGATION:
        return ("negation added" if side else "negation lost",)
    return ("wrong name" if group == _NAME else "wrong number",)
