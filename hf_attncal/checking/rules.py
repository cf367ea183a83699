"""Rules that hold for translations in any language: same numbers, placeholders and addresses, no repeated words.

The weight of a broken rule is learned from clean text: a rule that clean lines often break is weak evidence.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from .evidence import LinkEvidence
from .facts import (
    EXCHANGED,
    LACKS,
    NEGATION,
    NO_DENIALS,
    BothDenials,
    BothFacts,
    find_facts,
    lost_names,
    words_with_numbers,
)
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


def _placeholders(source: str, target: str) -> bool:
    if not any(sign in source or sign in target for sign in "%{<$"):
        return False
    return placeholders_of(source) != placeholders_of(target)


def _addresses(source: str, target: str) -> bool:
    if not any(sign in source or sign in target for sign in ("://", "www.", "@")):
        return False
    return _counted(_ADDRESS, source) != _counted(_ADDRESS, target)


def _doubled(source: str, target: str) -> bool:
    doubled = [match[1].lower() for match in _DOUBLED.finditer(target)]
    return any(word not in _MAY_DOUBLE for word in doubled) and not _DOUBLED.search(source)


def placeholders_of(text: str) -> Counter:
    """Count the placeholders and tags of a text."""
    return _counted(_PLACEHOLDER, text)


def _repeated(source: str, target: str) -> bool:
    return _repeats_words(target) and not _repeats_words(source)


def _repeats_words(text: str) -> bool:
    """Return whether a sequence of two or more words is repeated at once, punctuation ignored."""
    words = _WORDS.findall(text.lower())
    if len(set(words)) + 2 > len(words):
        return False
    for start, word in enumerate(words):
        for again in range(start + 2, min(start + _LONGEST, (len(words) + start) // 2) + 1):
            if words[again] == word and words[start:again] == words[again : 2 * again - start]:
                return len(set(words[start:again])) > 1  # a single repeated word is another rule
    return False


def _end_marks(source: str, target: str) -> bool:
    return len({_end_mark(source), _end_mark(target)}) > 1


def _end_mark(text: str) -> str:
    """Return the class of the end mark: "?", "." for any other, or "" for none and for abbreviations (p.m.)."""
    text = text.rstrip(_AROUND)
    end = text[-1:]
    if end == "." and text[-3:-2] in (".", " "):  # p.m.
        return ""
    return "?" if end in _QUESTIONS else "." if end in _ENDS else ""


def _brackets(source: str, target: str) -> bool:
    return _left_open(target) and not _left_open(source)


def _left_open(text: str) -> bool:
    """Return whether brackets are unbalanced, smileys and enumeration marks ignored."""
    if not any(sign in text for kind in _BRACKETS for signs in kind for sign in signs):
        return False
    text = _NO_BRACKET.sub("", text)
    return any(sum(map(text.count, opening)) != sum(map(text.count, closing)) for opening, closing in _BRACKETS)


def _counted(pattern: re.Pattern, text: str) -> Counter:
    return Counter(found.replace(" ", "").lower() for found in pattern.findall(text))


# Name of a fault -> function that returns whether a source and its target have it.
RULES: dict[str, Callable[[str, str], bool]] = {
    "wrong placeholders": _placeholders,
    "wrong address": _addresses,
    "doubled word": _doubled,
    "repeated words": _repeated,
    "wrong end mark": _end_marks,
    "wrong brackets": _brackets,
}
WRONG_NUMBER, WRONG_NAME = "wrong number", "wrong name"
NEGATIONS_OF_SIDES = ("negation lost", "negation added")
RULE_NAMES = (*RULES, WRONG_NUMBER, WRONG_NAME, *NEGATIONS_OF_SIDES)
# Shares of clean captions and everyday sentences that break a rule, for rules missing in encoder_check.json.
DEFAULT_SHARES = {
    "repeated words": 0.002,
    "wrong brackets": 0.002,
    **dict.fromkeys(("wrong end mark", WRONG_NAME, *NEGATIONS_OF_SIDES), 1.0),
}


def broken_rules(
    line: LinkEvidence, facts: BothFacts, languages: Languages, denials: BothDenials = NO_DENIALS
) -> tuple[str, ...]:
    """Return the names of the rules that a line breaks; `facts` are from `find_facts` with the same settings."""
    names = [name for name, broken in RULES.items() if broken(line.source.text, line.target.text)]
    sides = words_with_numbers(line.source, line.target, languages)
    if not names and any(how == EXCHANGED for side in sides for _, how in side.values()):
        names.append(WRONG_NUMBER)
    if lost_names(line, denials):
        names.append(WRONG_NAME)
    for name, side in zip(NEGATIONS_OF_SIDES, facts, strict=True):
        if any(fact.group == NEGATION and fact.found == LACKS for fact in side):
            names.append(name)
    return tuple(names)


def fit_rules(
    lines: Iterable[LinkEvidence], languages: Languages, denials: BothDenials = NO_DENIALS
) -> dict[str, float]:
    """Return the share of clean lines that break each rule, with add-one smoothing."""
    counts, total = dict.fromkeys(RULE_NAMES, 1), 1
    for line in lines:
        total += 1
        for name in broken_rules(line, find_facts(line.source, line.target, languages, denials), languages, denials):
            counts[name] += 1
    return {name: count / total for name, count in counts.items()}


def wrong_by_rules(broken: Iterable[str], shares: Mapping[str, float]) -> float:
    """Return the probability that a line breaking these rules is wrong, with a prior of one line in twenty."""
    right = 1.0
    for name in broken:
        share, prior = shares.get(name, 1.0), _WEAK_RULE_PRIOR if DEFAULT_SHARES.get(name) == 1.0 else _PRIOR
        right *= share / (share + prior)
    return 1 - right
