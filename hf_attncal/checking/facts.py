"""Numbers, negations and names: single words of which a good translation keeps the form or the sense.

The chain of `check_model` wants several words without a partner in a row. A changed digit, a dropped "not" and a wrong
name are one word each, and an aligner often links them all the same. So these words are compared with the other side
by form: a number by its value (`number_values`), a name by its letters, a negation by whether there is any. What a
word without such a counterpart tells is learned from clean pairs, where some have none, and from planted errors.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hf_attncal.data.segmentation import Segments
from hf_attncal.data.words import NEGATIONS

from .evidence import Both, LinkEvidence, both
from .number_values import Languages, Number, compare_numbers

# How often a number has no equal in clean text depends on how it is written. Group -> planted errors that change it.
FACT_GROUPS = {
    "long number": ("number",),
    "short number": ("number",),
    "number in words": ("number",),
    "negation": ("negation", "added negation"),
    "name": ("name",),
}
PLANTED_FACTS = tuple(dict.fromkeys(kind for kinds in FACT_GROUPS.values() for kind in kinds))
_LONG, _SHORT, _IN_WORDS, NEGATION, _NAME = range(len(FACT_GROUPS))
_SHORT_DIGITS = 2
# Values of a field of `LinkEvidence` are counted between these: planted facts are few.
FACT_EDGES = {"known": (-3.0, 0.0, 2.0, 4.0, 6.0), "best": (0.1, 0.3, 0.6, 0.9)}
# What may stand for a negation on the other side, though it is none by itself.
_DENY_TOO = frozenset(
    {
        *("without", "ohne", "sans", "sin", "sem", "senza", "zonder", "uden", "utan", "hardly", "barely"),
        *("scarcely", "rarely", "seldom", "kaum", "selten", "weder", "noch", "nein", "unable", "lack"),
        *("lacks", "lacked", "lacking", "refuse", "refused", "refuses", "fail", "failed", "fails"),
        *("except", "few", "little", "wenig", "wenige", "avoid", "deny", "denied", "stop", "stopped"),
        *("absent", "wrong", "out", "ni"),
    }
)  # fmt: skip
_DENIES_INSIDE = re.compile(
    r"(?:un(?![dist])|dis|miss|non|in(?=[bcdehjklopqrsuy])|im(?=p)|ir(?=r))\w{3,}"
    r"|\w{2,}(?:los(?:e[nrsm]?)?|less)"
)
_BEFORE_SENTENCES = frozenset(".!?:;\"'“”„«»‘’()-–—…")
# A word denies if so many of its lines without a known negation are denied by the other side, and is a negation.
_DENIES_FROM, _IS_NEGATION_FROM = 0.3, 0.6
_DENIED_OFTEN = 5  # lines
# A word is kept if the other side has it, too, in more than such a share of its places: the first by which only so
# many clean lines lack one.
_KEPT_FROM, _MAY_LACK = (0.85, 0.9, 0.95, 0.98), 0.002
_NONE_KNOWN = 0.002  # share of the lines with a known negation below which a language is held to have none
_PRIOR = 5  # counts that a cell takes over from those of all groups
_FEWEST = 5  # planted words of a group and a side: with fewer it says nothing
_MOST_EVIDENCE = 8.0


# How a fact is found: the other side lacks it, has it, or lacks it and has another number that this side lacks.
LACKS, HAS, EXCHANGED = range(3)


class Fact(NamedTuple):
    """A number, a negation or a name: its place among the words, its group, and how it is found (`LACKS`, ...)."""

    place: int
    group: int
    found: int


BothFacts = Both[list[Fact]]
FactEvidence = tuple[int, int, float]  # place, group, and the evidence against it


class Denials(NamedTuple):
    """What one side denies with, beside the words that are known, as `DenialCounts` learns it; in lower case.

    Args:
        words: that may stand for a negation on the other side ("ohne", "verschweigen").
        negations: that are one, of a language of which none are known.
        kept: words that the other side keeps as they are, such as names.
    """

    words: frozenset[str]
    negations: frozenset[str]
    kept: frozenset[str] = frozenset()


NO_DENIALS = (Denials(frozenset(), frozenset()),) * 2
BothDenials = Both[Denials]


class DenialCounts:
    """Learns from clean pairs which words deny: those of lines without a negation whose other side often has one.

    And which are kept: those that the other side nearly always has, too.
    """

    def __init__(self) -> None:
        self._lines, self._denied = [0, 0], [0, 0]  # without a known negation; of these, denied by the other side
        self._of_words: tuple[Counter, Counter] = (Counter(), Counter())
        self._of_denied: tuple[Counter, Counter] = (Counter(), Counter())
        self._known = [0, 0]
        self._shared: Counter = Counter()

    def passing(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Iterator:
        for pair in pairs:
            sides = [{word.lower() for word in words} for words in pair]
            self._shared.update(word for word in sides[0] & sides[1] if len(word) > 2 and word.isalpha())
            denies = [not NEGATIONS.isdisjoint(words) for words in sides]
            for side, words in enumerate(sides):
                self._known[side] += denies[side]
                if not denies[side]:
                    self._lines[side] += 1
                    self._of_words[side].update(words)
                    if denies[1 - side]:
                        self._denied[side] += 1
                        self._of_denied[side].update(words)
            yield pair

    def found(self) -> BothDenials:
        """Return what was learned of both sides, but for what is kept."""
        return both(map(self._found, (0, 1)))

    def keeping(
        self, denials: BothDenials, counts: Sequence[Mapping[str, int]], lines: Sequence[LinkEvidence]
    ) -> BothDenials:
        """Return denials with what is kept: of as many words as clean lines allow, which hardly lack any.

        Args:
            counts: how often each side has its words.
        """
        for least in _KEPT_FROM:
            kept = (
                frozenset(w for w, often in self._shared.items() if often > least * (of_side.get(w, math.inf) + 1))
                for of_side in counts
            )
            found = both(one._replace(kept=words) for one, words in zip(denials, kept, strict=True))
            if sum(map(bool, (lacking_kept(line, found) for line in lines))) <= _MAY_LACK * len(lines):
                return found
        return denials

    def _found(self, side: int) -> Denials:
        usual = self._denied[side] / max(1, self._lines[side])
        least = max(_DENIES_FROM, min(_IS_NEGATION_FROM, 3 * usual))
        shares = {
            word: count / self._of_words[side][word]
            for word, count in self._of_denied[side].items()
            if count >= _DENIED_OFTEN and count >= least * self._of_words[side][word]
        }
        none_known = self._known[side] < _NONE_KNOWN * sum(self._lines)
        negations = [word for word, share in shares.items() if none_known and share >= _IS_NEGATION_FROM]
        return Denials(frozenset(shares), frozenset(negations))


def lacking_kept(line: LinkEvidence, denials: BothDenials) -> list[tuple[int, int]]:
    """Return the side and the place of each kept name of which the other side has nothing alike."""
    pair = line.source.words, line.target.words
    found = [
        (side, place)
        for side, words in enumerate(pair)
        for place, word in enumerate(words)
        if word[0].isupper() and word.lower() in denials[side].kept
    ]
    return [
        (side, place)
        for side, place in found
        if not any(len(other) > 2 and alike(pair[side][place].lower(), other.lower()) for other in pair[1 - side])
    ]


@lru_cache(maxsize=1 << 12)  # facts and rules ask for a line each
def find_facts(
    source: Segments,
    target: Segments,
    languages: Languages = (None, None),
    denials: BothDenials = NO_DENIALS,
) -> BothFacts:
    """Return the numbers, negations and names of both sides, in their order.

    A name is a capitalised word of three letters or more that begins no sentence: in German any noun, which costs
    nothing, as the clean text shows how often a noun has no counterpart.

    Args:
        source, target: the texts with their words.
        languages: of both, for numbers in words; see `compare_numbers`. denials: of both.
    """
    pair = source.words, target.words
    groups = [_groups(words, more.negations) for words, more in zip(pair, denials, strict=True)]
    numbers = words_with_numbers(source, target, languages)
    denied = [
        any(map(_denies, words)) or (more.words and not more.words.isdisjoint(map(str.lower, words)))
        for words, more in zip(pair, denials, strict=True)
    ]
    found: tuple[list[Fact], list[Fact]] = ([], [])
    for side, (words, facts) in enumerate(zip(pair, groups, strict=True)):
        found[side].extend(Fact(place, *fact) for place, fact in numbers[side].items())
        capitals: list[str] | None = None
        for place, group in facts.items():
            if place in numbers[side]:
                continue
            if group == NEGATION:
                if "?" in words[place:] or (words[place] == "Not" and place):
                    continue  # "isn't it?", for which others say "oder?"; "why don't you"; the noun
                has = bool(denied[1 - side])  # not their number: many languages deny twice
            else:
                if not place or words[place - 1] in _BEFORE_SENTENCES:
                    continue
                if capitals is None:
                    capitals = _capitals(pair[1 - side], groups[1 - side])
                form = words[place].lower()
                has = any(alike(form, other) for other in capitals)
            found[side].append(Fact(place, group, int(has)))
        found[side].sort()
    return found


@lru_cache(maxsize=1 << 12)  # facts, rules and the classes of words ask for a line each
def words_with_numbers(source: Segments, target: Segments, languages: Languages) -> list[dict[int, tuple[int, int]]]:
    """Return for the place of each word with a number its group, and how the numbers in it are found."""
    compared = compare_numbers(source.text, target.text, languages)
    found = [_words_of(side, numbers) for side, numbers in zip((source, target), compared, strict=True)]
    if all(LACKS in [how for _, how in facts.values()] for facts in found):
        return [{place: (group, how or EXCHANGED) for place, (group, how) in facts.items()} for facts in found]
    return found


def _words_of(side: Segments, numbers: Sequence[Number]) -> dict[int, tuple[int, int]]:
    facts: dict[int, tuple[int, int]] = {}
    if not numbers:
        return facts
    spans = side.spans
    starts = [start for start, _ in spans]
    for number in numbers:
        length = number.stop - number.start
        group = _IN_WORDS if number.in_words else _SHORT if length <= _SHORT_DIGITS else _LONG
        for place in range(bisect_right(starts, number.start) - 1, bisect_right(starts, number.stop - 1)):
            if number.in_words and not side.words[place][0].isalpha():
                continue
            before, had = facts.get(place, (group, HAS))
            facts[place] = min(before, group), min(had, int(number.has_counterpart))
    return facts


def _groups(words: Sequence[str], negations: frozenset[str]) -> dict[int, int]:
    found = {place: group for place, word in enumerate(words) if (group := _group(word)) is not None}
    if negations:
        found |= {place: NEGATION for place, word in enumerate(words) if word.lower() in negations}
    return dict(sorted(found.items()))


@lru_cache(maxsize=1 << 16)
def _group(word: str) -> int | None:
    if word.lower() in NEGATIONS:
        return NEGATION
    return _NAME if len(word) > 2 and word[0].isupper() else None


@lru_cache(maxsize=1 << 16)
def _denies(word: str) -> bool:
    word = word.lower()
    return word in NEGATIONS or word in _DENY_TOO or _DENIES_INSIDE.fullmatch(word) is not None


def _capitals(words: Sequence[str], groups: dict[int, int]) -> list[str]:
    """Return the capitalised words of a side in lower case, or all its words where none is capitalised."""
    capitals = [words[place].lower() for place, group in groups.items() if group == _NAME]
    return capitals or [word.lower() for word in words]


@lru_cache(maxsize=1 << 14)
def _letter_pairs(word: str) -> frozenset[str]:
    return frozenset(word[place : place + 2] for place in range(len(word) - 1))


def alike(first: str, second: str) -> bool:
    """Return whether words are spelt alike (Dice coefficient of pairs of letters); numbers must be the same."""
    if first == second:
        return True
    if first[:1].isdigit() or second[:1].isdigit():
        return False
    a, b = _letter_pairs(first), _letter_pairs(second)
    return 2 * len(a & b) > 0.55 * (len(a) + len(b))


def alike_among(first: Iterable[str], second: Iterable[str]) -> Both[set[str]]:
    """Return which words of both have one that is `alike` in the other; no word begins with a digit."""
    found: Both[set[str]] = set(), set()
    others = [(other, _letter_pairs(other)) for other in second]
    for word in first:
        letters = _letter_pairs(word)
        for other, more in others:
            if word == other or 2 * len(letters & more) > 0.55 * (len(letters) + len(more)):
                found[0].add(word)
                found[1].add(other)
    return found


@dataclass(frozen=True)
class FactModel:
    """What facts with and without a counterpart say, as `check_learning.fit_facts` learns it.

    Args:
        table: log-ratio of how often a fact is found so where it was changed and in clean pairs, (2 sides, groups, how
            it is found, bins of `field`).
        head: bias and weights of the line's `features`, (1 + 2 * groups,).
        field: the field of `LinkEvidence` that is counted, "known" or "best".
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
        """Return the place, the group and the evidence against each fact of the source, and of the target.

        Args:
            facts: as `find_facts` finds them.
        """
        if not any(facts):
            return [[], []]
        edges, sides = FACT_EDGES[self.field], getattr(line, self.field)
        return [
            [
                (
                    fact.place,
                    fact.group,
                    float(table[fact.group, fact.found, bisect_right(edges, value)]),
                )
                for fact, value in zip(found, values[[fact.place for fact in found]].tolist(), strict=True)
            ]
            for table, found, values in zip(self.table, facts, sides, strict=True)
        ]


# Of a model that has not learned from facts yet.
NO_FACTS = FactModel(np.zeros((2, len(FACT_GROUPS), 3, 5)), np.array([-30.0] + [0.0] * 2 * len(FACT_GROUPS)), "best")


def fact_features(evidence: Sequence[Sequence[FactEvidence]]) -> list[float]:
    """Return the largest evidence against a fact of each group, of the source and then of the target; 0 for none."""
    values = [0.0] * (2 * len(FACT_GROUPS))
    for side, found in enumerate(evidence):
        for _, group, value in found:
            column = side * len(FACT_GROUPS) + group
            values[column] = max(values[column], min(value, _MOST_EVIDENCE))
    return values


def changed_facts(evidence: Sequence[Sequence[FactEvidence]], broken: Sequence[str]) -> tuple[str, ...]:
    """Return what was changed by name: the rules that are broken, or else what there is the most evidence against.

    Args:
        evidence: as `FactModel.evidence` gives it. broken: names of broken rules.
    """
    if broken:
        return tuple(broken)
    against, group, side = max(
        ((value, group, side) for side, found in enumerate(evidence) for _, group, value in found), default=(0.0, 0, 0)
    )
    if against <= 0:
        return ()
    if group == NEGATION:
        return ("negation added" if side else "negation lost",)
    return ("wrong name" if group == _NAME else "wrong number",)


def fit_fact_table(
    good: Sequence[LinkEvidence],
    bad: Sequence[tuple[LinkEvidence, str, Both[Sequence[int]]]],
    field: str,
    languages: Languages = (None, None),
    denials: BothDenials = NO_DENIALS,
) -> np.ndarray:
    """Return the `FactModel.table`.

    A number is compared by its value, and what the aligner thinks of it counts nothing.

    Args:
        good: of clean pairs.
        bad: of pairs with planted errors; with the kind, and the places of the words that were changed on each side.
        field: see `FactModel`. languages, denials: see `find_facts`.
    """
    edges, kinds = FACT_EDGES[field], list(FACT_GROUPS.values())
    counts = np.zeros((2, 2, len(kinds), 3, len(edges) + 1))  # clean or changed, side, group, how it is found, bin
    nowhere: Both[Sequence[int]] = (), ()
    lines = [(0, line, "", nowhere) for line in good] + [(1, *line) for line in bad]
    for changed, line, kind, places in lines:
        for side, facts in enumerate(find_facts(line.source, line.target, languages, denials)):
            values = getattr(line, field)[side]
            for place, group, how in facts:
                if not changed or (kind in kinds[group] and place in places[side]):
                    counts[changed, side, group, how, bisect_right(edges, values[place])] += 1
    logs = []
    for changed, of_all in enumerate(counts):
        bins = of_all.sum(axis=(0, 1)) + 0.5
        if changed:
            of_all[:, _IN_WORDS] = of_all[:, _SHORT]  # only digits are planted
        bins /= bins.sum(axis=-1, keepdims=True)
        of_has = of_all.sum(axis=-1)
        has = (of_has + 0.5) / (of_has.sum(axis=-1, keepdims=True) + 1.5)
        inside = (of_all + _PRIOR * bins) / (of_has[..., None] + _PRIOR)
        inside[:, : _IN_WORDS + 1] = 1.0
        logs.append(np.log(has)[..., None] + np.log(inside))
    table = logs[1] - logs[0]
    table[counts[1].sum(axis=(-1, -2)) < _FEWEST] = 0.0
    return np.clip(table, -_MOST_EVIDENCE, _MOST_EVIDENCE)
