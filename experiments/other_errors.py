"""Errors planted into clean pairs by another hand than the one that the check learns from.

The package's generator (`hf_attncal.data.translation_errors`) makes what a check learns. A measure on the
same errors flatters, so these are made otherwise: other clauses, other lengths, other places, and kinds that nothing
is learned from.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence

Pair = tuple[str, str]
_DENIALS = {"not", "n't", "no", "never", "nicht", "kein", "keine", "pas", "jamais", "betg", "nagin", "nagina"}
# Words of a sort, of which one is put for another.
_SORTS = tuple(
    text.split()
    for text in (
        "red blue green yellow white black brown orange pink grey",
        "man woman boy girl",
        "men women boys girls children",
        "dog cat horse bird cow",
        "mother father brother sister son daughter uncle aunt",
        "monday tuesday wednesday thursday friday saturday sunday",
        "big small",
        "yesterday today tomorrow",
        "first second third fourth",
        "rouge bleu vert jaune blanc noir",
        "homme femme",
        "hommes femmes",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "grand petit",
        "hier demain",
        "premier deuxième troisième",
        "million milliard",
    )
)
_NAMES = (("Tom", "Peter", "Paul", "John", "Jim", "Bill"), ("Maria", "Mary", "Anna", "Kate", "Jane"))
_VERBS = {"is", "was", "are", "were", "can", "will", "would", "has", "have", "had"}


def errors(pairs: Sequence[Pair], seed: int, most: int = 500) -> dict[str, list[Pair]]:
    """Return up to `most` pairs with an error of each kind; a kind takes those pairs that have a place for it."""
    made: dict[str, list[Pair]] = {kind: [] for kind in KINDS}
    for number, (source, target) in enumerate(pairs):
        for kind, make in KINDS.items():
            rng = random.Random(f"{seed} {number} {kind}")
            other = pairs[rng.randrange(len(pairs))]
            if len(made[kind]) < most and other != (source, target):
                made[kind] += list(make(source.split(), target.split(), other, rng))[:1]
    return made


def _said(source: Sequence[str], target: Sequence[str]) -> Pair:
    return " ".join(source), " ".join(target)


def _inserted(source, target, other, rng) -> Iterator[Pair]:
    words = other[1].split()
    if len(words) >= 5 and len(target) > 1:
        length = rng.randint(4, min(8, len(words) - 1))
        start, place = rng.randint(0, len(words) - 1 - length), rng.randint(1, len(target) - 1)
        yield _said(source, [*target[:place], *words[start : start + length], *target[place:]])


def _left_out(source, target, other, rng) -> Iterator[Pair]:
    if len(target) >= 9:
        length = rng.randint(3, 5)
        start = rng.randint(0, len(target) - 1 - length)
        yield _said(source, [*target[:start], *target[start + length :]])


def _cut(source, target, other, rng) -> Iterator[Pair]:
    if len(target) >= 6:
        yield _said(source, target[: len(target) // 2])


def _repeated(source, target, other, rng) -> Iterator[Pair]:
    if len(target) > 6:
        length = rng.randint(2, 4)
        start = rng.randint(0, len(target) - 1 - length)
        yield _said(source, [*target[: start + length], *target[start:]])


def _doubled(source, target, other, rng) -> Iterator[Pair]:
    place = rng.randrange(len(target))
    if target[place].isalpha() and len(target[place]) > 2:
        yield _said(source, [*target[: place + 1], *target[place:]])


def _number(source, target, other, rng) -> Iterator[Pair]:
    for place, word in enumerate(target):
        if re.fullmatch(r"\d[\d.,:]*", word) and len(word) > 1:
            digit = rng.choice([k for k, character in enumerate(word) if character.isdigit()])
            changed = word[:digit] + str((int(word[digit]) + rng.randint(1, 9)) % 10) + word[digit + 1 :]
            yield _said(source, [*target[:place], changed, *target[place + 1 :]])


def _denial_dropped(source, target, other, rng) -> Iterator[Pair]:
    for place, word in enumerate(target):
        if word.lower() in _DENIALS:
            yield _said(source, [*target[:place], *target[place + 1 :]])


def _denial_added(source, target, other, rng) -> Iterator[Pair]:
    if not any(word.lower() in _DENIALS | {"nothing", "nobody"} for word in (*source, *target)):
        for place, word in enumerate(target):
            if word.lower() in _VERBS:
                yield _said(source, [*target[: place + 1], "not", *target[place + 1 :]])


def _name(source, target, other, rng) -> Iterator[Pair]:
    names = [word for word in other[1].split()[1:] if word.istitle() and len(word) > 2 and word not in source]
    for place, word in enumerate(target[1:], 1):
        if names and word.istitle() and len(word) > 2 and word in source:
            yield _said(source, [*target[:place], rng.choice(names), *target[place + 1 :]])


def _wrong_word(source, target, other, rng) -> Iterator[Pair]:
    for place, word in enumerate(target):
        group = next((group for group in _SORTS if word.lower() in group), None)
        news = [one for one in group or () if one != word.lower() and one not in target]
        if news:
            new = rng.choice(news)
            new = new.capitalize() if word.istitle() else new
            yield _said(source, [*target[:place], new, *target[place + 1 :]])


def _other_name(source, target, other, rng) -> Iterator[Pair]:
    for place, word in enumerate(target):
        group = next((group for group in _NAMES if word in group), None)
        if group and word in source:
            yield _said(
                source, [*target[:place], rng.choice([one for one in group if one != word]), *target[place + 1 :]]
            )


def _end_mark(source, target, other, rng) -> Iterator[Pair]:
    if target[-1] == "?" == source[-1]:
        yield _said(source, [*target[:-1], "."])


def _bracket(source, target, other, rng) -> Iterator[Pair]:
    place = rng.randrange(len(target))
    yield _said([*source, "(", "A", ")"], [*target[:place], *target[place:], "(", "A"])


def _placeholder(source, target, other, rng) -> Iterator[Pair]:
    place = rng.randint(0, len(target) - 1)
    yield _said([*source[:1], "{name}", *source[1:]], [*target[:place], "{nom}", *target[place:]])


KINDS: dict[str, Callable] = {
    "inserted clause": _inserted,
    "added sentence": lambda source, target, other, rng: iter([_said(source, [*target, *other[1].split()])]),
    "missing sentence": lambda source, target, other, rng: iter([_said([*source, *other[0].split()], target)]),
    "clause left out": _left_out,
    "cut at half": _cut,
    "wrong sentence": lambda source, target, other, rng: iter([_said(source, other[1].split())]),
    "repeated phrase": _repeated,
    "doubled word": _doubled,
    "number": _number,
    "negation dropped": _denial_dropped,
    "negation added": _denial_added,
    "name": _name,
    "name of the list": _other_name,
    "wrong word": _wrong_word,
    "end mark": _end_mark,
    "bracket": _bracket,
    "placeholder": _placeholder,
    "untranslated": lambda source, target, other, rng: iter([_said(source, source)] if source != target else []),
}
