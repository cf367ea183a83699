"""Words as `attncal check` sees them: in classes, by how frequent they are in clean text, and what else they are."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.data.words import NEGATIONS, is_punctuation

from .evidence import LinkEvidence
from .facts import HAS, alike_among, words_with_numbers
from .number_values import Languages, language_of

# A word is more frequent than this: one in so many words of its side.
BANDS = (3e-6, 2e-5, 1.5e-4, 1.2e-3, 1.2e-2)
CLASSES = (
    *(f"frequency {band}" for band in range(len(BANDS) + 1)),
    "rare, with its like", "number", "number, with its like", "negation", "punctuation",
)  # fmt: skip
_LIKE, _NUMBER, _NUMBER_LIKE, _NEGATION, PUNCTUATION = range(len(BANDS) + 1, len(CLASSES))
MOST_WORDS = 40_000  # of a side that are kept, the most frequent ones
_RARE = 1  # the highest band of which the form counts
_MOST_ODDS = 3.0  # log-odds of a language


class Vocabulary:
    """Frequencies of the words on each side of clean text, in lower case.

    Args:
        counts: of each side: word -> how often. Those beyond the most frequent are left out.
        totals: words of each side in all.
        languages: of each side, as far as its number words tell; see `number_values.language_of`.
    """

    def __init__(
        self,
        counts: tuple[dict[str, int], dict[str, int]],
        totals: tuple[int, int],
        languages: Languages = (None, None),
    ):
        self.counts, self.totals, self.languages = counts, totals, languages
        self._known: list[dict[str, tuple[int, float, float]]] = [{}, {}]

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], most: int = MOST_WORDS) -> "Vocabulary":
        counters: tuple[Counter, Counter] = (Counter(), Counter())
        for pair in pairs:
            for counter, side in zip(counters, pair, strict=True):
                counter.update(word.lower() for word in side)
        kept = tuple(dict(counter.most_common(most)) for counter in counters)
        return cls(kept, tuple(counter.total() for counter in counters), tuple(map(language_of, kept)))

    def without(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> "Vocabulary":
        """Return what is left without some of the pairs."""
        counts = tuple(dict(side) for side in self.counts)
        for pair in pairs:
            for side, words in zip(counts, pair, strict=True):
                for word in map(str.lower, words):
                    left = side.pop(word, 0) - 1
                    if left > 0:
                        side[word] = left
        return Vocabulary(counts, self.totals, self.languages)

    def look_up(self, word: str, side: int) -> tuple[int, float, float]:
        """Return the class of a word alone, its surprisal in nats, and its log-odds of being in the source language.

        The odds are 0 for punctuation, for numbers and for what neither side knows.
        """
        known = self._known[side]
        if word not in known:
            if len(known) > 1 << 17:
                known.clear()
            known[word] = self._look_up(word.lower(), side)
        return known[word]

    def _look_up(self, word: str, side: int) -> tuple[int, float, float]:
        rates = [
            (counts.get(word, 0) + 0.1) / (total + 1) for counts, total in zip(self.counts, self.totals, strict=True)
        ]
        surprisal = -math.log(rates[side])
        if is_punctuation(word):
            return PUNCTUATION, surprisal, 0.0
        if any(map(str.isdigit, word)):
            return _NUMBER, surprisal, 0.0
        band = sum(rates[side] > least for least in BANDS) if word in self.counts[side] else 0
        if word in NEGATIONS:
            band = _NEGATION
        # One more on both sides: a word that was seen once tells little of its language.
        seen = [
            (counts.get(word, 0) + 1) / (total + 1) for counts, total in zip(self.counts, self.totals, strict=True)
        ]
        known = any(word in counts for counts in self.counts)
        odds = math.log(seen[0] / seen[1]) if known else 0.0
        return band, surprisal, max(-_MOST_ODDS, min(_MOST_ODDS, odds))


@dataclass(frozen=True, slots=True)
class Sides:
    """Words of a pair as the model sees them: arrays of each side.

    Args:
        classes: of the words, (S,) and (T,).
        surprisal, odds: see `Vocabulary.look_up`.
    """

    classes: tuple[np.ndarray, np.ndarray]
    surprisal: tuple[np.ndarray, np.ndarray]
    odds: tuple[np.ndarray, np.ndarray]


def seen(vocabulary: Vocabulary, evidence: LinkEvidence) -> Sides:
    """Return the classes of the words of a pair; a rare word and a number is looked for on the other side."""
    pair = evidence.source.words, evidence.target.words
    columns = [
        list(zip(*(vocabulary.look_up(word, side) for word in words), strict=True)) or [(), (), ()]
        for side, words in enumerate(pair)
    ]
    classes = [list(column[0]) for column in columns]
    forms = [
        {place: words[place].lower() for place, band in enumerate(found) if band <= _RARE}
        for words, found in zip(pair, classes, strict=True)
    ]
    numbers = words_with_numbers(evidence.source, evidence.target, vocabulary.languages)
    for side, like in enumerate(alike_among(*(set(found.values()) for found in forms))):
        for place, form in forms[side].items():
            if form in like:
                classes[side][place] = _LIKE
        for place, (_, how) in numbers[side].items():
            if how == HAS and classes[side][place] == _NUMBER:
                classes[side][place] = _NUMBER_LIKE
    surprisal, odds = (tuple(np.array(column[place], dtype=float) for column in columns) for place in (1, 2))
    for side, words in enumerate(pair):  # a name is the same in both languages
        for place, word in enumerate(words):
            if word[0].isupper() and word in pair[1 - side]:
                odds[side][place] = 0.0
    return Sides(tuple(np.array(found, dtype=np.int64) for found in classes), surprisal, odds)
