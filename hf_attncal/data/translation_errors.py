"""Plant translation errors into clean sentence pairs, with known omissions and additions.

Each kind of error has a function. Its arguments are the pair to change, another pair of the same text (`other`), from
which words may come, and a random generator. It returns the source and the target with the error, the indices of the
omitted source words (None if they are not known), and the indices of the added target words. It returns None if the
pair has no place for the error, for example no number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_attncal.data.words import NEGATIONS, is_punctuation

Words = tuple[str, ...]
Pair = tuple[Words, Words]

_CLAUSE_ENDS = frozenset(",;:.!?，。；、！？।")
_MIN_CLAUSE, _MAX_CLAUSE = 3, 12  # words of a clause that is inserted into another sentence


@dataclass(frozen=True)
class PlantedError:
    """Sentence pair with a planted error.

    Args:
        source, target: words of the pair, with the error.
        kind: kind of error, one of `KINDS`.
        omission: source words (from 0, sorted) that the target no longer translates; None if they are not known.
        addition: target words (from 0, sorted) that translate nothing in the source.
        original: number of the clean pair, from 0.
    """

    source: Words
    target: Words
    kind: str
    omission: tuple[int, ...] | None
    addition: tuple[int, ...]
    original: int = 0


def plant_errors(
    pairs: Sequence[Pair], kinds: Sequence[str] | None = None, seed: int = 0, negations: frozenset[str] = NEGATIONS
) -> list[PlantedError]:
    """Plant one error of each kind into each pair that has a place for it.

    Args:
        pairs: (source words, target words) of good translations.
        kinds: kinds of error, from `KINDS`. Default: all.
        seed: seed of the positions and words that are drawn. Default: 0.
        negations: negations in lower case. Default: `NEGATIONS`.

    Raises:
        ValueError: an unknown kind, or fewer than two pairs (clauses come from another pair).
    """
    kinds = tuple(KINDS) if kinds is None else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"`kinds` must be some of {', '.join(KINDS)}, got {unknown[0]!r}.")
    if len(pairs) < 2:
        raise ValueError(f"`pairs` must have two or more pairs, as clauses come from another pair, got {len(pairs)}.")
    errors = []
    names = [pair[1][place] for pair in pairs for place in _name_places(*pair)]
    for number, pair in enumerate(pairs):
        generator = np.random.default_rng((seed, number))
        second_pair = pairs[(number + 1 + int(generator.integers(len(pairs) - 1))) % len(pairs)]
        for kind in kinds:
            if kind == "negation":
                planted = _negation(pair, negations)
            elif kind == "added negation":  # the source without its own
                planted = _swapped_sides(_negation(pair[::-1], negations))
            elif kind == "name":
                planted = _name(pair, names, np.random.default_rng((seed, number, 1)))
            else:
                planted = KINDS[kind](pair, second_pair, generator)
            if planted is not None and all(planted[:2]):  # a side may have lost its only word
                source, target, omission, addition = planted
                omission = None if omission is None else tuple(omission)
                errors.append(PlantedError(source, target, kind, omission, tuple(addition), number))
    return errors


def clause_spans(words: Words) -> list[tuple[int, int]]:
    """Return the (start, end) word offsets of clauses; a clause ends with a comma, a full stop etc."""
    ends = [place + 1 for place, word in enumerate(words) if word in _CLAUSE_ENDS]
    if not ends or ends[-1] != len(words):
        ends.append(len(words))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _omission(pair: Pair, other: Pair, generator):
    """Drop a clause of the target whose source clause is known: both sides have the same number of clauses.

    In other pairs, a clause of another source is inserted into the source.
    """
    source, target = pair
    clauses, translated = clause_spans(source), clause_spans(target)
    if len(clauses) == len(translated) > 1:
        chosen = int(generator.integers(len(clauses)))
        (begin, end), (start, stop) = clauses[chosen], translated[chosen]
        if end - begin >= _MIN_CLAUSE and stop - start >= _MIN_CLAUSE:
            return source, target[:start] + target[stop:], _content(source, begin, end), ()
    clause = _clause(other[0], generator)
    source, begin, end = _inserted(source, clause, generator)
    return source, target, _content(source, begin, end), ()


def _truncation(pair: Pair, other: Pair, generator):
    """Remove the end of the target, or words inside it."""
    source, target = pair
    if len(target) < 2 * _MIN_CLAUSE:
        return None
    length = int(len(target) * generator.uniform(0.15, 0.7))
    start = len(target) - length if generator.random() < 0.5 else int(generator.integers(len(target) - length))
    return source, target[:start] + target[start + length :], None, ()


def _insertion(pair: Pair, other: Pair, generator):
    """Insert a clause of another target into this one."""
    target, begin, end = _inserted(pair[1], _clause(other[1], generator), generator)
    return pair[0], target, (), _content(target, begin, end)


def _replacement(pair: Pair, other: Pair, generator):
    """Replace some words of the target by a clause of another target."""
    source, target = pair
    clause = _clause(other[1], generator)
    if len(target) < 2 * _MIN_CLAUSE:
        return None
    length = max(_MIN_CLAUSE, min(int(len(target) * generator.uniform(0.3, 0.8)), len(target) - 1))
    start = int(generator.integers(len(target) - length + 1))
    replaced = target[:start] + clause + target[start + length :]
    return source, replaced, None, _content(replaced, start, start + len(clause))


def _unrelated(pair: Pair, other: Pair, generator):
    """Replace the target by the target of another pair."""
    return pair[0], other[1], _content(pair[0], 0, len(pair[0])), _content(other[1], 0, len(other[1]))


def _repetition(pair: Pair, other: Pair, generator):
    """Repeat some words of the target once or many times, before or instead of the words that follow."""
    source, target = pair
    words = [place for place, word in enumerate(target) if not is_punctuation(word)]
    if len(words) < _MIN_CLAUSE:
        return None
    length = int(generator.integers(1, min(6, len(words)) + 1))
    start = int(generator.integers(len(target) - length + 1))
    phrase = target[start : start + length]
    if all(map(is_punctuation, phrase)) or (length == 1 and len(phrase[0]) < 4):
        return None
    joined = _drawn([(), ("and",), (",",)], generator) if length > 1 else ()
    times = 1 + int(generator.geometric(0.45))
    end = start + length
    rest = target[end:] if generator.random() < 0.5 else target[min(end + length * times, len(target)) :]
    repeated = target[:end] + (*joined, *phrase) * times + rest
    return source, repeated, None, _content(repeated, end, end + (length + len(joined)) * times)


def _number(pair: Pair, other: Pair, generator):
    """Change a digit of a number in the target that the source also has."""
    source, target = pair
    place = _drawn([j for j, word in enumerate(target) if any(map(str.isdecimal, word)) and word in source], generator)
    if place is None:
        return None
    changed = _drawn([k for k, character in enumerate(target[place]) if character.isdecimal()], generator)
    digit = str((int(target[place][changed]) + 1 + int(generator.integers(8))) % 10)
    word = target[place][:changed] + digit + target[place][changed + 1 :]
    if word in source:
        return None
    return source, _with_word(target, place, word), (source.index(target[place]),), (place,)


def _negation(pair: Pair, negations: frozenset[str]):
    """Drop the only negation of the target if the source also has exactly one."""
    source, target = pair
    denied = [[place for place, word in enumerate(side) if word.lower() in negations] for side in pair]
    if len(denied[0]) != 1 or len(denied[1]) != 1:
        return None
    place = denied[1][0]
    return source, target[:place] + target[place + 1 :], (denied[0][0],), ()


def _swapped_sides(planted):
    """Exchange the sides of a planted error: its omission becomes an addition."""
    if planted is None:
        return None
    target, source, addition, _ = planted
    return source, target, (), addition


def _name(pair: Pair, names: Sequence[str], generator):
    """Replace a name in the target (see `_name_places`) by one of `names`."""
    source, target = pair
    place = _drawn(_name_places(source, target), generator)
    name = None if place is None else _drawn(names, generator)
    if name is None or name in source:
        return None
    return source, _with_word(target, place, name), (source.index(target[place]),), (place,)


def _name_places(source: Words, target: Words) -> list[int]:
    """Return the positions of names in `target`: capitalised words that `source` has in the same spelling.

    Left out are the first word of `target`, because any word is capitalised there, and words of one or two letters.
    """
    return [
        place for place, word in enumerate(target) if place and len(word) > 2 and word.istitle() and word in source
    ]


def _word(pair: Pair, other: Pair, generator):
    """Replace a word of the target by a word of another target; both are capitalised, or neither is."""
    source, target = pair
    present = {word.lower() for word in source + target}
    words = [
        [(place, word) for place, word in enumerate(side) if place and len(word) > 3 and word.isalpha()]
        for side in (other[1], target)
    ]
    new = _drawn([word for _, word in words[0] if word.lower() not in present], generator)
    if new is None:
        return None
    place = _drawn([place for place, word in words[1] if word.istitle() == new.istitle()], generator)
    return None if place is None else (source, _with_word(target, place, new), None, (place,))


def _doubled(pair: Pair, other: Pair, generator):
    """Write a word of the target twice."""
    source, target = pair
    place = _drawn([place for place, word in enumerate(target) if len(word) > 2 and word.isalpha()], generator)
    return None if place is None else (source, (*target[: place + 1], *target[place:]), (), (place + 1,))


def _placeholder(pair: Pair, other: Pair, generator):
    """Insert a placeholder into the source, and a different one into the target."""
    source, target = pair
    i, j = (int(generator.integers(len(side) + 1)) for side in pair)
    wrong = _drawn(("{nom}", "{0}", "%s"), generator)
    return (*source[:i], "{name}", *source[i:]), (*target[:j], wrong, *target[j:]), (i,), (j,)


def _bracket(pair: Pair, other: Pair, generator):
    """Append a word in brackets to both sides, without the closing bracket in the target."""
    source, target = pair
    return (*source, "(", *source[:1], ")"), (*target, "(", *target[:1]), (), ()


def _end_mark(pair: Pair, other: Pair, generator):
    """Plant a wrong end mark in the target: a question mark for a full stop, or the reverse.

    Returns:
        The source, the changed target, and no wrong words on either side. None if the sides do not end with the same
        one of the two marks.
    """
    source, target = pair
    if source[-1] != target[-1] or target[-1] not in (".", "?"):
        return None
    return source, (*target[:-1], "?" if target[-1] == "." else "."), (), ()


def _swapped(pair: Pair, other: Pair, generator):
    """Exchange source and target."""
    source, target = pair
    return target, source, _content(target, 0, len(target)), _content(source, 0, len(source))


def _untranslated(pair: Pair, other: Pair, generator):
    """Replace the target, or its end, by the same part of the source."""
    source, target = pair
    if source == target:
        return None
    keep = 0 if generator.random() < 0.5 else int(len(target) * generator.uniform(0.1, 0.6))
    begin = int(len(source) * keep / max(1, len(target)))
    copied = target[:keep] + source[begin:]
    omission = _content(source, begin, len(source))
    return source, copied, omission, _content(copied, keep, len(copied))


def _drawn(options: Sequence, generator: np.random.Generator) -> Any:
    """Draw one of the options; None if there are none."""
    return options[int(generator.integers(len(options)))] if options else None


def _with_word(words: Words, place: int, word: str) -> Words:
    return (*words[:place], word, *words[place + 1 :])


def _clause(words: Words, generator) -> Words:
    spans = [span for span in clause_spans(words) if span[1] - span[0] >= _MIN_CLAUSE] or [(0, len(words))]
    begin, end = _drawn(spans, generator)
    if end - begin > _MAX_CLAUSE:
        begin += int(generator.integers(end - begin - _MAX_CLAUSE + 1))
        end = begin + _MAX_CLAUSE
    return words[begin:end]


def _inserted(words: Words, clause: Words, generator) -> tuple[Words, int, int]:
    place = _drawn([begin for begin, _ in clause_spans(words)] + [len(words)], generator)
    return words[:place] + clause + words[place:], place, place + len(clause)


def _content(words: Words, begin: int, end: int) -> tuple[int, ...]:
    """Return the positions in `words`, from `begin` to before `end`, that are not punctuation."""
    return tuple(place for place in range(begin, end) if not is_punctuation(words[place]))


KINDS: dict[str, Callable] = {
    "omission": _omission,
    "truncation": _truncation,
    "insertion": _insertion,
    "replacement": _replacement,
    "unrelated": _unrelated,
    "repetition": _repetition,
    "number": _number,
    "negation": _negation,
    "added negation": _negation,
    "name": _name,
    "word": _word,
    "doubled word": _doubled,
    "placeholder": _placeholder,
    "bracket": _bracket,
    "end mark": _end_mark,
    "swapped": _swapped,
    "untranslated": _untranslated,
}
