"""Rules that hold for translations in any language: same numbers, placeholders and addresses, no repeated words.

The weight of a broken rule is learned from clean text: a rule that clean lines often break is weak evidence.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from hf_attncal.data.segmentation import Segments

from .copies import copied_words
from .facts import EXCHANGED, LACKS, NEGATION, NO_DENIALS, BothDenials, find_facts, kept_names, words_with_numbers
from .number_values import Languages
from .placeholders import ADDRESS, MASK, Span, compare_placeholders, masked
from .tables import TABLES

_WORDS = re.compile(rf"[^\W_]+|{MASK}+")
_AROUND = " \t\u00a0\"'”“’‘»«›‹)]}）」』"
_QUESTIONS, _ENDS = "?？؟\u037e", ".!:…。！：।॥։"
_BRACKETS = (("(（", ")）"), ("[［", "]］"))  # braces belong to placeholders
# Brackets without a partner: smileys, and marks of enumerations such as a) 12) iv)
_LONE_BRACKET = re.compile(r"[:;=]-?[()\[\]]+|[([]-?[:;=](?!\w)|(?<![\w(\[])(?:\w|\d\d|[ivx]+)[)\]]")
_GOES_ON = re.compile(r"[,–-]?(?: |\s?\n ?)?")  # between a sequence of words and its repetition
_LONGEST = 12  # words in a repetition
_DOUBLED = re.compile(r"(?<![\w=<\[.-])([^\W\d_]{2,})(?: |[ \t]?\n[ \t]{0,40})(\1)\b(?![=>\]-])", re.IGNORECASE)
_MAY_DOUBLE = frozenset(TABLES["may_double"].split())
_UNIT_PATTERNS = "|".join(f"({names})" for names in TABLES["units"].values())
_UNIT = re.compile(
    rf"[\d{MASK}][)\]]?[ \u00a0\u202f-]?(?:{_UNIT_PATTERNS})(?![^\W_])"
    rf"|([$€£¥]|\b(?:usd|eur|gbp|jpy)\b) ?[\d{MASK}]",
    re.IGNORECASE,
)
_UNIT_NAMES = (*TABLES["units"], "")
_PRIOR = 0.05  # share of wrong lines, the same for each cause
# Good lines sometimes break these rules. A larger prior would use up all false alarms that the alarm allows.
_WEAK_RULE_PRIOR = 0.005


class Break(NamedTuple):
    """A broken rule.

    Args:
        reason: Reason in words, with the values of both sides.
        source, target: First character of the fault and the one after the last, on each side. Default: None, no place.
    """

    reason: str
    source: tuple[int, int] | None = None
    target: tuple[int, int] | None = None


_KEPT = Break("")  # result of a rule that applies and is kept


def _placeholders(source: str, target: str, language: str | None) -> Break | None:
    if not any(sign in source or sign in target for sign in "%{<$:"):
        return None
    difference = compare_placeholders(source, target, language)
    if difference is not None:
        return _exchanged(*difference)
    return _KEPT if masked(source) != source else None


def _addresses(source: str, target: str) -> Break | None:
    if not any(sign in source or sign in target for sign in ("://", "www.", "@")):
        return None
    sides = [
        {match[0].lower().replace("http:", "https:"): match for match in ADDRESS.finditer(text)}
        for text in (source, target)
    ]
    if not sides[0]:
        return None
    lost, new = (
        next(((match[0], match.span()) for form, match in side.items() if form not in other), None)
        for side, other in (sides, sides[::-1])
    )
    return _exchanged(lost, new) if lost else _KEPT  # translators add addresses for reports


def _exchanged(source: tuple[str, Span] | None, target: tuple[str, Span] | None) -> Break:
    """Return the break of a text that is only on one side, or differs between both."""
    parts = [
        f"“{one[0]}” {'is only' if other is None else ''} in the {name}"
        for one, other, name in ((source, target, "source"), (target, source, "translation"))
        if one
    ]
    return Break(", ".join(" ".join(part.split()) for part in parts), source and source[1], target and target[1])


def _doubled(source: str, target: str) -> Break | None:
    if " " not in target:
        return None
    for match in _DOUBLED.finditer(target):
        word = match[2]
        # "bytes Bytes" and "FILE FILE" are two words
        if word.lower() not in _MAY_DOUBLE and (word.islower() or (word == match[1] and not word.isupper())):
            return _KEPT if _DOUBLED.search(source) else Break(f"“{match[0]}” in the translation", None, match.span())
    return _KEPT


def _repeated(source: str, target: str) -> Break | None:
    if target.count(" ") < 3:
        return None
    repeated = _repetition(target)
    if repeated is None or _repetition(source):
        return _KEPT
    return Break(f"“{target[slice(*repeated)]}” in the translation", None, repeated)


def _repetition(text: str) -> Span | None:
    """Return the characters of a sequence of two or more words repeated at once, punctuation ignored."""
    matches = list(_WORDS.finditer(text.lower()))
    words = [f"{place}" if match[0][0] == MASK else match[0] for place, match in enumerate(matches)]
    if len(set(words)) + 2 > len(words):
        return None
    for start, word in enumerate(words):
        for again in range(start + 2, min(start + _LONGEST, (len(words) + start) // 2) + 1):
            if words[again] == word and words[start:again] == words[again : 2 * again - start]:
                between = text[matches[again - 1].end() : matches[again].start()]
                if len(set(words[start:again])) > 1 and _GOES_ON.fullmatch(between):
                    return matches[start].start(), matches[2 * again - start - 1].end()
                return None  # a single repeated word is another rule, and a heading may begin as its text
    return None


def _end_marks(source: str, target: str) -> Break | None:
    marks = _end_mark(source), _end_mark(target)
    if not any(marks):
        return None
    if marks[0] == marks[1]:
        return _KEPT
    ends = [
        f"“{text.rstrip(_AROUND)[-1]}”" if mark else "no end mark"
        for text, mark in zip((source, target), marks, strict=True)
    ]
    return Break(f"{ends[0]} at the end of the source, {ends[1]} at the end of the translation")


def _end_mark(text: str) -> str:
    """Return the class of the end mark: "?", "." for any other, or "" for none and for abbreviations (p.m.)."""
    text = text.rstrip(_AROUND)
    end = text[-1:]
    if end == "." != text[-2:-1] and text[-3:-2] in (".", " "):  # p.m.
        return ""
    return "?" if end in _QUESTIONS else "." if end in _ENDS else ""


def _brackets(source: str, target: str) -> Break | None:
    if not any(sign in target for kind in _BRACKETS for signs in kind for sign in signs):
        return None
    lone = _lone_bracket(target)
    if lone is None or _lone_bracket(source) is not None:
        return _KEPT
    return Break(f"“{target[lone]}” has no partner in the translation", None, (lone, lone + 1))


def _lone_bracket(text: str) -> int | None:
    """Return the first bracket without a partner, smileys and enumeration marks ignored."""
    lone: list[int] = []
    for opening, closing in _BRACKETS:
        opened: list[int] = []
        for place, sign in enumerate(text):
            if sign in opening:
                opened.append(place)
            elif sign in closing and (not opened or opened.pop() is None):
                lone.append(place)
        lone += opened
    ignored = {place for match in _LONE_BRACKET.finditer(text) for place in range(*match.span())} if lone else set()
    return min(set(lone) - ignored, default=None)


# Name of a rule on masked texts -> function that returns its break, `_KEPT`, or None if it does not apply.
_OF_TEXTS: dict[str, Callable[[str, str], Break | None]] = {
    "doubled word": _doubled,
    "repeated words": _repeated,
    "wrong end mark": _end_marks,
    "wrong brackets": _brackets,
}
REPETITIONS = ("doubled word", "repeated words")
WRONG_PLACEHOLDERS, WRONG_ADDRESS = "wrong placeholders", "wrong address"
WRONG_NUMBER, WRONG_NAME = "wrong number", "wrong name"
UNTRANSLATED, WRONG_UNIT = "untranslated", "wrong unit"
NEGATIONS_OF_SIDES = ("negation lost", "negation added")
# Rules that the learned verdict uses.
RULE_NAMES = (WRONG_PLACEHOLDERS, WRONG_ADDRESS, *_OF_TEXTS, WRONG_NUMBER, WRONG_NAME, *NEGATIONS_OF_SIDES)
_WEAK_RULES = frozenset(("wrong end mark", WRONG_NAME, *NEGATIONS_OF_SIDES))
# Shares of right entries of software catalogues that break a rule, for rules that were not learned.
DEFAULT_SHARES: dict[str, float] = TABLES["rule_shares"]


@lru_cache(maxsize=1 << 12)  # used by the learned verdict and by the findings of the same line
def check_rules(
    source: Segments, target: Segments, languages: Languages = (None, None), denials: BothDenials = NO_DENIALS
) -> dict[str, Break | None]:
    """Return the break of each rule that applies to a pair, by its name; None if the rule is kept.

    A rule applies if the pair could break it: the number rule if a side has a number, the negation rules if a side
    has a negation.

    Args:
        source, target: Words of both texts.
        languages: Languages of both, for numbers in words; see `compare_numbers`. Default: unknown.
        denials: Words of negation and names of both sides. Default: none.
    """
    texts = masked(source.text), masked(target.text)
    results = {
        WRONG_PLACEHOLDERS: _placeholders(source.text, target.text, languages[1]),
        WRONG_ADDRESS: _addresses(source.text, target.text),
        **{name: rule(*texts) for name, rule in _OF_TEXTS.items()},
        WRONG_NUMBER: _numbers(source, target, languages),
        WRONG_UNIT: _units(*texts),
        UNTRANSLATED: _untranslated(source, target, languages),
    }
    results[WRONG_NAME] = _names(source, target, denials)
    facts = find_facts(source, target, languages, denials)
    for side, (text, other) in enumerate(((source, "translation"), (target, "source"))):
        negations = [fact for fact in facts[side] if fact.group == NEGATION]
        lost = next((fact.place for fact in negations if fact.found == LACKS), None)
        if lost is not None:
            word, span = _word(text, lost)
            places = (None, span) if side else (span, None)
            results[NEGATIONS_OF_SIDES[side]] = Break(f"“{word}”: the {other} has no negation", *places)
        elif negations:
            results[NEGATIONS_OF_SIDES[side]] = _KEPT
    return {name: None if result is _KEPT else result for name, result in results.items() if result is not None}


def _numbers(source: Segments, target: Segments, languages: Languages) -> Break | None:
    sides = words_with_numbers(source, target, languages)
    if not any(sides):
        return None
    lone = [
        next((_word(side, place) for place, (_, how) in found.items() if how == EXCHANGED), None)
        for side, found in zip((source, target), sides, strict=True)
    ]
    return _KEPT if None in lone else _exchanged(*lone)


def _units(source: str, target: str) -> Break | None:
    units = _units_of(source), _units_of(target)
    if not any(units):
        return None
    names = [Counter(name for name, *_ in side) for side in units]
    lost, new = (
        next(((text, span) for unit, text, span in reversed(side) if of_side[unit] > of_other[unit]), None)
        for side, of_side, of_other in zip(units, names, reversed(names), strict=True)
    )
    return _exchanged(lost, new) if lost and new else _KEPT


def _units_of(text: str) -> list[tuple[str, str, Span]]:
    """Return the units and currencies beside numbers: name, text with the number, and its characters."""
    if not any(character.isdigit() or character == MASK for character in text):
        return []
    return [
        (
            TABLES["currencies"].get(match[match.lastindex].lower()) or _UNIT_NAMES[match.lastindex - 1],
            match[0].strip(MASK),
            match.span(),
        )
        for match in _UNIT.finditer(text)
        if match.lastindex
    ]


def _untranslated(source: Segments, target: Segments, languages: Languages) -> Break | None:
    spans = copied_words(masked(source.text), masked(target.text), languages)
    if not isinstance(spans, tuple):
        return None if spans is None else _KEPT
    return Break(f"“{target.text[slice(*spans[1])]}” is not translated", *spans)


def _names(source: Segments, target: Segments, denials: BothDenials) -> Break | None:
    # a name that only the translation has may be a word, such as the German noun Name
    names = [(place, has) for side, place, has in kept_names(source, target, denials) if not side]
    lost = next((_word(source, place) for place, has in names if not has), None)
    return _exchanged(lost, None) if lost else _KEPT if names else None


def _word(side: Segments, place: int) -> tuple[str, Span]:
    return side.words[place], side.spans[place]


def wrong_by_rules(broken: Iterable[str], shares: Mapping[str, float]) -> float:
    """Return the probability that a line breaking these rules is wrong, with a prior of one line in twenty."""
    right = 1.0
    for name in broken:
        share, prior = shares.get(name, 1.0), _WEAK_RULE_PRIOR if name in _WEAK_RULES else _PRIOR
        right *= share / (share + prior)
    return 1 - right
