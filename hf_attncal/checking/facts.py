"""Numbers, negations and names: single words of which a good translation keeps the form or the sense.

The chain of `check_model` wants several words without a partner in a row. A changed digit, a dropped "not" and a wrong
name are one word each, and an aligner often links them all the same. So these words are compared with the other side
by form: a number by its digits, a name by its letters, a negation by whether there is any. What a word without such a
counterpart tells is learned from clean pairs, where some have none ("3" and "three"), and from planted errors.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hf_attncal.data.synthetic.translation_errors import NEGATIONS

from .evidence import LinkEvidence

FACT_GROUPS = ("number", "negation", "name")  # also kinds of planted errors
_NUMBER, _NEGATION, _NAME = range(len(FACT_GROUPS))
# Values of a field of `LinkEvidence` are counted between these: planted facts are few.
FACT_EDGES = {"known": (-3.0, 0.0, 2.0, 4.0, 6.0), "best": (0.1, 0.3, 0.6, 0.9)}
_BEFORE_SENTENCES = frozenset(".!?:;\"'“”„«»‘’()-–—…")
_INSIDE_NUMBERS = frozenset(",.'’:/-\u00a0")
_PRIOR = 5  # counts that a cell takes over from those of all groups
_FEWEST = 5  # planted words of a group and a side: with fewer it says nothing
_MOST_EVIDENCE = 8.0


class Fact(NamedTuple):
    """A number, a negation or a name: its place among the words, its group, whether the other side has its like."""

    place: int
    group: int
    has_counterpart: bool


def find_facts(source: Sequence[str], target: Sequence[str]) -> tuple[list[Fact], list[Fact]]:
    """Return the numbers, negations and names of both sides, in their order.

    A name is a capitalised word of three letters or more that begins no sentence: in German any noun, which costs
    nothing, as the clean text shows how often a noun has no counterpart.
    """
    pair = source, target
    groups = [_groups(words) for words in pair]
    numbers = [_number_forms(words, found) for words, found in zip(pair, groups, strict=True)]
    all_numbers = [set().union(*forms.values()) for forms in numbers]
    denied = [_NEGATION in found.values() for found in groups]
    found: tuple[list[Fact], list[Fact]] = ([], [])
    for side, (words, facts) in enumerate(zip(pair, groups, strict=True)):
        capitals: list[str] | None = None
        for place, group in facts.items():
            if group == _NUMBER:
                has = not numbers[side][place].isdisjoint(all_numbers[1 - side])
            elif group == _NEGATION:
                has = denied[1 - side]  # not their number: many languages deny twice
            else:
                if not place or words[place - 1] in _BEFORE_SENTENCES:
                    continue
                if capitals is None:
                    capitals = _capitals(pair[1 - side], groups[1 - side])
                form = words[place].lower()
                has = any(alike(form, other) for other in capitals)
            found[side].append(Fact(place, group, has))
    return found


def _groups(words: Sequence[str]) -> dict[int, int]:
    return {place: group for place, word in enumerate(words) if (group := _group(word)) is not None}


@lru_cache(maxsize=1 << 16)
def _group(word: str) -> int | None:
    if any(map(str.isdigit, word)):
        return _NUMBER
    if word.lower() in NEGATIONS:
        return _NEGATION
    return _NAME if len(word) > 2 and word[0].isupper() else None


@lru_cache(maxsize=1 << 14)
def _digits(word: str) -> str:
    digits = "".join(str(unicodedata.digit(character)) for character in word if character.isdigit())
    return digits.lstrip("0") or digits[:1]


def _number_forms(words: Sequence[str], groups: dict[int, int]) -> dict[int, set[str]]:
    """Return the digits of each number, and of the numbers beside it written as one with it (10 000, 3 . 5)."""
    places = [place for place, group in groups.items() if group == _NUMBER]
    forms = {place: {_digits(words[place])} for place in places}
    run: list[int] = []
    for number, place in enumerate(places, 1):
        run.append(place)
        after = places[number] if number < len(places) else None
        goes_on = after == place + 1 or (after == place + 2 and words[place + 1] in _INSIDE_NUMBERS)
        if not goes_on:
            if len(run) > 1:
                joined = "".join("".join(filter(str.isdigit, words[one])) for one in run).lstrip("0")
                for one in run:
                    forms[one].add(joined)
            run = []
    return forms


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


@dataclass(frozen=True)
class FactModel:
    """What facts with and without a counterpart say, as `check_learning.fit_facts` learns it.

    Args:
        table: log-ratio of how often a fact is found so where it was changed and in clean pairs, (2 sides, groups, has
            a counterpart, bins of `field`).
        head: bias and weights of the line's `features`, (1 + 2 * groups,).
        field: the field of `LinkEvidence` that is counted, "known" or "best".
    """

    table: np.ndarray
    head: np.ndarray
    field: str

    def evidence(self, line: LinkEvidence) -> list[list[tuple[int, int, float]]]:
        """Return the place, the group and the evidence against each fact of the source, and of the target."""
        facts = find_facts(line.source.words, line.target.words)
        if not any(facts):
            return [[], []]
        edges, sides = FACT_EDGES[self.field], getattr(line, self.field)
        return [
            [
                (
                    fact.place,
                    fact.group,
                    float(table[fact.group, int(fact.has_counterpart), bisect_right(edges, value)]),
                )
                for fact, value in zip(found, values[[fact.place for fact in found]].tolist(), strict=True)
            ]
            for table, found, values in zip(self.table, facts, sides, strict=True)
        ]


def fact_features(evidence: Sequence[Sequence[tuple[int, int, float]]]) -> list[float]:
    """Return the largest evidence against a fact of each group, of the source and then of the target; 0 for none."""
    values = [0.0] * (2 * len(FACT_GROUPS))
    for side, found in enumerate(evidence):
        for _, group, value in found:
            column = side * len(FACT_GROUPS) + group
            values[column] = max(values[column], min(value, _MOST_EVIDENCE))
    return values


def fit_fact_table(good: Sequence[LinkEvidence], bad: Sequence[tuple[LinkEvidence, str, Sequence]], field: str):
    """Return the `FactModel.table`.

    Args:
        good: of clean pairs.
        bad: of pairs with planted errors; with the kind, and the places of the words that were changed on each side.
        field: see `FactModel`.
    """
    edges = FACT_EDGES[field]
    counts = np.zeros(
        (2, 2, len(FACT_GROUPS), 2, len(edges) + 1)
    )  # clean or changed, side, group, has a counterpart, bin
    lines = [(0, line, None, None) for line in good] + [(1, *line) for line in bad]
    for changed, line, kind, places in lines:
        for side, facts in enumerate(find_facts(line.source.words, line.target.words)):
            values = getattr(line, field)[side]
            for place, group, has in facts:
                if not changed or (FACT_GROUPS[group] == kind and place in places[side]):
                    counts[changed, side, group, int(has), bisect_right(edges, values[place])] += 1
    logs = []
    for of_all in counts:
        bins = of_all.sum(axis=(0, 1)) + 0.5
        bins /= bins.sum(axis=-1, keepdims=True)
        of_has = of_all.sum(axis=-1)
        has = (of_has + 0.5) / (of_has.sum(axis=-1, keepdims=True) + 1)
        inside = (of_all + _PRIOR * bins) / (of_has[..., None] + _PRIOR)
        logs.append(np.log(has)[..., None] + np.log(inside))
    table = logs[1] - logs[0]
    table[counts[1].sum(axis=(-1, -2)) < _FEWEST] = 0.0
    return np.clip(table, -_MOST_EVIDENCE, _MOST_EVIDENCE)
