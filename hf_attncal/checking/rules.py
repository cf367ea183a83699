"""Rules of form that a translation keeps whatever its languages: numbers, placeholders, addresses, no word said twice.

What a broken rule tells is learned from clean text, like all else: a rule that clean lines often break says little.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from .evidence import LinkEvidence
from .facts import EXCHANGED, words_with_numbers
from .number_values import Languages

_PRINTF = r"(?<![\d%])%(?:\d+\$|\(\w+\))?[-+0#]*\d*(?:\.\d+)?(?:hh?|ll?|[Lzjt])?[diouxXeEfFgGcs@](?![^\W\d_])"
_PLACEHOLDER = re.compile(rf"{_PRINTF}|\$?\{{ ?[\w.$:-]* ?\}}|%\w+%|\$\(\w+\)|</?[A-Za-z][^<>]{{0,200}}>")
_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)[!-~]*[\w/#=&-]|[\w.%+-]+@[\w-]+(?:\.[\w-]+)+")
_DOUBLED = re.compile(r"\b([^\W\d_]{2,})\s+\1\b", re.IGNORECASE)
# Words that stand twice in good sentences: "that that", "die die", "nous nous", "had had".
_MAY_DOUBLE = frozenset(
    {
        *("that", "had", "her", "is", "it", "you", "so", "very", "bye", "no", "ja", "nein", "der", "die"),
        *("das", "sie", "dass", "den", "dem", "nous", "vous", "en", "se", "que", "lo", "la", "si", "dat"),
        *("er", "het", "ze", "wat", "at", "det", "som", "de", "du", "ha", "haha"),
    }
)  # fmt: skip
_PRIOR = 0.05  # share of lines, as of each cause


def _placeholders(source: str, target: str) -> bool:
    return placeholders_of(source) != placeholders_of(target)


def _addresses(source: str, target: str) -> bool:
    return _counted(_ADDRESS, source) != _counted(_ADDRESS, target)


def _doubled(source: str, target: str) -> bool:
    found = [match[1].lower() for match in _DOUBLED.finditer(target)]
    return any(word not in _MAY_DOUBLE for word in found) and not _DOUBLED.search(source)


def placeholders_of(text: str) -> Counter:
    """Return the placeholders and tags of a text, and how often each stands there."""
    return _counted(_PLACEHOLDER, text)


def _counted(pattern: re.Pattern, text: str) -> Counter:
    return Counter(found.replace(" ", "").lower() for found in pattern.findall(text))


# Name of what is wrong -> whether the target of a source has it.
RULES: dict[str, Callable[[str, str], bool]] = {
    "wrong placeholders": _placeholders,
    "wrong address": _addresses,
    "doubled word": _doubled,
}
WRONG_NUMBER = "wrong number"


def broken_rules(line: LinkEvidence, languages: Languages) -> tuple[str, ...]:
    """Return the names of the rules that a line breaks; `languages` as for `find_facts`."""
    found = [name for name, broken in RULES.items() if broken(line.source.text, line.target.text)]
    sides = words_with_numbers(line.source, line.target, languages)
    if not found and any(how == EXCHANGED for side in sides for _, how in side.values()):
        found.append(WRONG_NUMBER)
    return tuple(found)


def fit_rules(lines: Iterable[LinkEvidence], languages: Languages) -> dict[str, float]:
    """Return the share of clean lines, and one more, that break each rule."""
    counts, total = dict.fromkeys((*RULES, WRONG_NUMBER), 1), 1
    for line in lines:
        total += 1
        for name in broken_rules(line, languages):
            counts[name] += 1
    return {name: count / total for name, count in counts.items()}


def wrong_by_rules(broken: Iterable[str], shares: Mapping[str, float]) -> float:
    """Return the probability that a line which breaks these rules is wrong, if one line in twenty is."""
    right = 1.0
    for name in broken:
        share = shares.get(name, 1.0)
        right *= share / (share + _PRIOR)
    return 1 - right
