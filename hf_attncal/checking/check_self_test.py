"""Self-test of `attncal check`: plant what translations lose into clean pairs, and count flagged lines."""

import random
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

from hf_attncal.data.segmentation import Segments
from hf_attncal.data.words import NEGATIONS
from hf_attncal.drawing.page import text_table

from .checker import Checker, JudgedPair
from .evidence import Both

_SHORT = 4  # most words of a short source
_APART = 10  # one line in ten has a fault in the text that sets the alarms
_FAR = 20  # further lines that are tried for another text
_BLIND, _BEYOND, _HALF = 0.1, 3, 0.5  # share of flagged lines, multiple of the share in clean lines, share
Pair = Both[Segments]
Texts = Both[str]


@dataclass(frozen=True)
class KindCounts:
    """Counts of the lines with one kind of fault, each (flagged, planted).

    Args:
        kind: Kind of the fault; "none" for the clean lines.
        long, short: Lines whose source has more than four words, and the others.
    """

    kind: str
    long: tuple[int, int]
    short: tuple[int, int]

    @property
    def flagged(self) -> float:
        """Share of all lines that are flagged."""
        return (self.long[0] + self.short[0]) / max(1, self.long[1] + self.short[1])


@dataclass(frozen=True)
class SelfTest:
    """Flagged lines among those with a planted fault, and among the clean ones.

    Args:
        kinds: Counts of each kind that was planted.
        clean: Counts of the clean lines.
    """

    kinds: tuple[KindCounts, ...]
    clean: KindCounts

    def __str__(self) -> str:
        rows = (*self.kinds, self.clean)
        columns = {"planted": [row.kind for row in rows]}
        for name in ("long", "short"):
            counts = [getattr(row, name) for row in rows]
            columns[f"{name} lines"] = [str(planted) for _, planted in counts]
            columns[f"flagged{' ' * (name == 'short')}"] = [
                f"{100 * flagged / planted:.1f}" if planted else "-" for flagged, planted in counts
            ]
        text = f"Flagged lines are in percent. A short line has {_SHORT} source words or fewer."
        return "\n".join([*text_table(columns), "", text, *self.blind_to()])

    def blind_to(self) -> list[str]:
        """Return messages on the kinds that are hardly ever flagged, rarely flagged, or not planted."""
        least = max(_BLIND, _BEYOND * self.clean.flagged)
        blind = [row.kind for row in self.kinds if row.flagged < least]
        half = [row.kind for row in self.kinds if least <= row.flagged < _HALF]
        none = [kind for kind in FAULTS if kind not in {row.kind for row in self.kinds}]
        return [
            f"{message}: {', '.join(kinds)}."
            for message, kinds in (
                (f"Blind to (fewer than {100 * least:.0f} % flagged)", blind),
                ("Flagged less than half of the time", half),
                ("Not planted, as no line has a place for it", none),
            )
            if kinds
        ]


def plant_and_check(checker: Checker, pairs: Sequence[Texts], seed: int = 1) -> SelfTest:
    """Plant faults into clean pairs, and check these and the clean ones.

    The alarms are those of the clean text with a fault in one line of ten, as a text to check mostly is.

    Args:
        checker: Checker; it does not change, as a copy adapts to the pairs.
        pairs: Good (source, target) translations, preferably other text than the training text of the check.
        seed: Seed of the faults. Default: 1.

    Raises:
        ValueError: Fewer than two pairs have words on both sides, or none gets a verdict.
    """
    checker = copy(checker)
    if checker.encoder is not None:
        checker.encoder = copy(checker.encoder)
        checker.encoder.evidence_reader = copy(checker.encoder.evidence_reader)
    sides = [(checker.cut(source), checker.cut(target)) for source, target in pairs]
    sides = [pair for pair in sides if pair[0].words and pair[1].words]
    if len(sides) < 2:
        raise ValueError(f"`pairs` must have two or more pairs with words on both sides, got {len(sides)}.")
    clean = checker.judged((source.text, target.text) for source, target in sides)
    if not any(pair.causes for pair in clean):
        raise ValueError("No line gets a verdict, as their language is not known. Give text in another language.")
    if checker.encoder is not None:  # planted faults must not change the statistics of the text
        checker.encoder.evidence_reader.learns = False
    planted = list(_planted(sides, random.Random(seed)))
    judged = checker.judged(texts for _, _, texts in planted)
    of_lines: dict[int, list[JudgedPair]] = {}
    of_kinds: dict[str, list[tuple[int, JudgedPair]]] = {}
    for (kind, number, _), pair in zip(planted, judged, strict=True):
        of_lines.setdefault(number, []).append(pair)
        of_kinds.setdefault(kind, []).append((number, pair))
    mixed = list(clean)
    for place, number in enumerate(sorted(of_lines)[::_APART]):
        mixed[number] = of_lines[number][place % len(of_lines[number])]
    alarms = checker.text_alarms(mixed)

    def counts(kind: str, lines: Sequence[tuple[int, JudgedPair]]) -> KindCounts:
        by_length: dict[bool, list[bool]] = {False: [], True: []}
        verdicts = checker.verdicts([pair for _, pair in lines], alarms=alarms)
        for (number, _), verdict in zip(lines, verdicts, strict=True):
            by_length[_is_short(sides[number])].append(bool(verdict.flagged))
        return KindCounts(kind, *((sum(flags), len(flags)) for flags in by_length.values()))

    kinds = tuple(counts(kind, of_kinds[kind]) for kind in FAULTS if kind in of_kinds)
    return SelfTest(kinds, counts("none", list(enumerate(clean))))


def _is_short(pair: Pair) -> bool:
    return sum(any(map(str.isalnum, word)) for word in pair[0].words) <= _SHORT


# ---- faults: functions of a pair, the target of another pair and a source of chance; None for no place ----


def _planted(sides: Sequence[Pair], rng: random.Random) -> Iterator[tuple[str, int, Texts]]:
    """Yield the kind, the line and the texts of each fault, every kind in each line that has a place for it."""
    for number, pair in enumerate(sides):
        later = (sides[(number + step) % len(sides)] for step in range(1, min(_FAR, len(sides))))
        another = next((other for other in later if _is_short(other) == _is_short(pair)), sides[number - 1])
        for kind, plant in FAULTS.items():
            target = plant(*pair, another[1].text, rng)
            if target is not None and target.split() != pair[1].text.split():
                yield kind, number, (pair[0].text, target)


def _without(side: Segments, begin: int, end: int) -> str:
    """Return the text of a side without some of its words."""
    return side.text[: side.spans[begin][0]] + side.text[side.spans[end - 1][1] :].lstrip()


def _clause_left_out(source: Segments, target: Segments, other: str, rng: random.Random) -> str | None:
    length = rng.randint(3, 5)
    if len(target.words) < length + 4:
        return None
    begin = rng.randrange(1, len(target.words) - length)
    return _without(target, begin, begin + length)


def _cut_at_half(source: Segments, target: Segments, other: str, rng: random.Random) -> str | None:
    return target.text[: target.spans[len(target.words) // 2 - 1][1]] if len(target.words) > 2 else None


def _number(source: Segments, target: Segments, other: str, rng: random.Random) -> str | None:
    for word, (begin, end) in zip(target.words, target.spans, strict=True):
        if word.isdecimal() and word in source.words:
            return f"{target.text[:begin]}{int(word) + rng.randint(1, 8)}{target.text[end:]}"
    return None


def _negation(source: Segments, target: Segments, other: str, rng: random.Random) -> str | None:
    places = [[n for n, word in enumerate(side.words) if word.lower() in NEGATIONS] for side in (source, target)]
    return _without(target, places[1][0], places[1][0] + 1) if list(map(len, places)) == [1, 1] else None


def _phrase_again(source: Segments, target: Segments, other: str, rng: random.Random) -> str | None:
    begin, end = target.spans[0][0], target.spans[min(2, len(target.words) - 1)][1]
    return f"{target.text[begin:end]} {target.text}" if len(target.words) > 3 else None


FAULTS: dict[str, Callable[[Segments, Segments, str, random.Random], str | None]] = {
    "3 to 5 words left out": _clause_left_out,
    "cut at half": _cut_at_half,
    "sentence added": lambda source, target, other, rng: f"{target.text.rstrip()} {other}",
    "text of another line": lambda source, target, other, rng: other,
    "not translated": lambda source, target, other, rng: source.text,
    "number changed": _number,
    "negation dropped": _negation,
    "words repeated": _phrase_again,
}
