"""Rules that hold for translations in any language: same numbers, placeholders and addresses, no repeated words.

The weight of a broken rule is learned from clean text: a rule that clean lines often break is weak evidence.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from hf_attncal.data.segmentation import Segments

from .evidence import LinkEvidence
from .facts import EXCHANGED, LACKS, NEGATION, NO_DENIALS, BothDenials, find_facts, kept_names, words_with_numbers
from .number_values import Languages

_PRINTF = r"(?<![\d%])%(?:\d+\$|\(\w+\))?[-+0#]*\d*(?:\.\d+)?(?:hh?|ll?|[Lzjt])?[diouxXeEfFgGcs@](?![^\W\d_])"
_PLACEHOLDER = re.compile(rf"{_PRINTF}|\$?\{{ ?[\w.$:-]* ?\}}|%\w+%|\$\(\w+\)|</?[A-Za-z][^<>]{{0,200}}>")
_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)[!-~]*[\w/#=&-]|[\w.%+-]+@[\w-]+(?:\.[\w-]+)+")
_WORDS = re.compile(r"[^\W_]+")
_AROUND = " \t\u00a0\"'”“’‘»«›‹)]}）」』"
_QUESTIONS, _ENDS = "?？؟\u037e", ".!:…。！：।॥։"
_BRACKETS = (("(（", ")）"), ("[［", "]］"))  # braces belong to placeholders
_NO_BRACKET = re.compile(r"[:;=]-?[()\[\]]+|[([]-?[:;=](?!\w)|(?<![\w(\[])(?:\w|\d\d|[ivx]+)[)\]]")  # :-) a) 12) iv)
_LONGEST = 12  # words in a repetition
_DOUBLED = re.compile(r"\b([^\W\d_]{2,})\s+\1\b", re.IGNORECASE)
# Words that may follow themselves in good sentences: "that that", "die die", "nous nous", "had had".
_MAY_DOUBLE = frozenset(
    {
        *("that", "had", "her", "is", "it", "you", "so", "very", "bye", "no", "ja", "nein", "der", "die"),
        *("das", "sie", "dass", "den", "dem", "nous", "vous", "en", "se", "que", "lo", "la", "si", "dat"),
        *("er", "het", "ze", "wat", "at", "det", "som", "de", "du", "ha", "haha"),
    }
)  # fmt: skip
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
Span = tuple[int, int]


def _placeholders(source: str, target: str) -> Break | None:
    if not any(sign in source or sign in target for sign in "%{<$"):
        return None
    return _differing(_PLACEHOLDER, source, target)


def _addresses(source: str, target: str) -> Break | None:
    if not any(sign in source or sign in target for sign in ("://", "www.", "@")):
        return None
    return _differing(_ADDRESS, source, target)


def _differing(pattern: re.Pattern, source: str, target: str) -> Break | None:
    """Compare the matches of a pattern on both sides; None if there is none."""
    sides = [
        [(match[0].replace(" ", "").lower(), match[0], match.span()) for match in pattern.finditer(text)]
        for text in (source, target)
    ]
    if not any(sides):
        return None
    counts = [Counter(form for form, *_ in side) for side in sides]
    if counts[0] == counts[1]:
        return _KEPT
    lone: list[tuple[str, Span] | None] = []
    for side, (mine, other) in zip(sides, (counts, counts[::-1]), strict=True):
        more = mine - other
        lone.append(next(((text, span) for form, text, span in side if more[form]), None))
    return _exchanged(*lone)


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
        if match[1].lower() not in _MAY_DOUBLE:
            return _KEPT if _DOUBLED.search(source) else Break(f"“{match[0]}” in the translation", None, match.span())
    return _KEPT


def placeholders_of(text: str) -> Counter:
    """Count the placeholders and tags of a text."""
    return Counter(found.replace(" ", "").lower() for found in _PLACEHOLDER.findall(text))


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
    words = [match[0] for match in matches]
    if len(set(words)) + 2 > len(words):
        return None
    for start, word in enumerate(words):
        for again in range(start + 2, min(start + _LONGEST, (len(words) + start) // 2) + 1):
            if words[again] == word and words[start:again] == words[again : 2 * again - start]:
                if len(set(words[start:again])) > 1:  # a single repeated word is another rule
                    return matches[start].start(), matches[2 * again - start - 1].end()
                return None
    return None


def _end_marks(source: str, target: str) -> Break | None:
    marks = _end_mark(source), _end_mark(target)
    if not any(marks):
        return None
    if marks[0] == marks[1]:
        return _KEPT
    ends = [
        text.rstrip(_AROUND)[-1:] if mark else "no end mark"
        for text, mark in zip((source, target), marks, strict=True)
    ]
    return Break(
        "{} at the end of the source, {} at the end of the translation".format(
            *(f"“{end}”" if len(end) == 1 else end for end in ends)
        )
    )


def _end_mark(text: str) -> str:
    """Return the class of the end mark: "?", "." for any other, or "" for none and for abbreviations (p.m.)."""
    text = text.rstrip(_AROUND)
    end = text[-1:]
    if end == "." and text[-3:-2] in (".", " "):  # p.m.
        return ""
    return "?" if end in _QUESTIONS else "." if end in _ENDS else ""


def _brackets(source: str, target: str) -> Break | None:
    if not any(sign in target for kind in _BRACKETS for signs in kind for sign in signs):
        return None
    if not _left_open(target) or _left_open(source):
        return _KEPT
    return Break("brackets of the translation are not closed")


def _left_open(text: str) -> bool:
    """Return whether brackets are unbalanced, smileys and enumeration marks ignored."""
    text = _NO_BRACKET.sub("", text)
    return any(sum(map(text.count, opening)) != sum(map(text.count, closing)) for opening, closing in _BRACKETS)


# Name of a rule on texts -> function that returns its break, `_KEPT`, or None if it does not apply.
_OF_TEXTS: dict[str, Callable[[str, str], Break | None]] = {
    "wrong placeholders": _placeholders,
    "wrong address": _addresses,
    "doubled word": _doubled,
    "repeated words": _repeated,
    "wrong end mark": _end_marks,
    "wrong brackets": _brackets,
}
WRONG_NUMBER, WRONG_NAME = "wrong number", "wrong name"
NEGATIONS_OF_SIDES = ("negation lost", "negation added")
# Rules that the learned verdict uses; their shares are in check.json.
RULE_NAMES = (*_OF_TEXTS, WRONG_NUMBER, WRONG_NAME, *NEGATIONS_OF_SIDES)
# Shares of clean captions and everyday sentences that break a rule, for rules missing in encoder_check.json.
DEFAULT_SHARES = {
    "repeated words": 0.002,
    "wrong brackets": 0.002,
    **dict.fromkeys(("wrong end mark", WRONG_NAME, *NEGATIONS_OF_SIDES), 1.0),
}


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
    results = {name: rule(source.text, target.text) for name, rule in _OF_TEXTS.items()}
    in_signs = any(results[name] not in (None, _KEPT) for name in ("wrong placeholders", "wrong address"))
    results[WRONG_NUMBER] = None if in_signs else _numbers(source, target, languages)
    results[WRONG_NAME] = _names(source, target, denials)
    facts = find_facts(source, target, languages, denials)
    for name, side, words, other in zip(
        NEGATIONS_OF_SIDES, facts, (source, target), ("translation", "source"), strict=True
    ):
        negations = [fact for fact in side if fact.group == NEGATION]
        lost = next((fact.place for fact in negations if fact.found == LACKS), None)
        if lost is not None:
            span = words.spans[lost]
            places = (span, None) if words is source else (None, span)
            results[name] = Break(f"“{words.words[lost]}”: the {other} has no negation", *places)
        elif negations:
            results[name] = _KEPT
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


def _names(source: Segments, target: Segments, denials: BothDenials) -> Break | None:
    names = kept_names(source, target, denials)
    if not names:
        return None
    lost = next(((side, place) for side, place, has in names if not has), None)
    if lost is None:
        return _KEPT
    word = _word((source, target)[lost[0]], lost[1])
    return _exchanged(None, word) if lost[0] else _exchanged(word, None)


def _word(side: Segments, place: int) -> tuple[str, Span]:
    return side.words[place], side.spans[place]


def broken_rules(
    source: Segments, target: Segments, languages: Languages, denials: BothDenials = NO_DENIALS
) -> tuple[str, ...]:
    """Return the names of the rules of `RULE_NAMES` that a pair breaks; see `check_rules`."""
    checked = check_rules(source, target, languages, denials)
    return tuple(name for name in RULE_NAMES if checked.get(name))


def fit_rules(
    lines: Iterable[LinkEvidence], languages: Languages, denials: BothDenials = NO_DENIALS
) -> dict[str, float]:
    """Return the share of clean lines that break each rule, with add-one smoothing."""
    counts, total = dict.fromkeys(RULE_NAMES, 1), 1
    for line in lines:
        total += 1
        for name in broken_rules(line.source, line.target, languages, denials):
            counts[name] += 1
    return {name: count / total for name, count in counts.items()}


def wrong_by_rules(broken: Iterable[str], shares: Mapping[str, float]) -> float:
    """Return the probability that a line breaking these rules is wrong, with a prior of one line in twenty."""
    right = 1.0
    for name in broken:
        share, prior = shares.get(name, 1.0), _WEAK_RULE_PRIOR if DEFAULT_SHARES.get(name) == 1.0 else _PRIOR
        right *= share / (share + prior)
    return 1 - right
