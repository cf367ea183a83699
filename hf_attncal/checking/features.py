"""Word classes, features of words and features of lines for `attncal check`.

All lines of a window are processed together. Shapes use N = words of one side of all lines, L = lines, W = words of
the longest side, F = features.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex

from hf_attncal.data.words import NEGATIONS, is_punctuation

from .evidence import Both, LinkEvidence, both
from .facts import HAS, alike_among, words_with_numbers
from .number_values import Languages

# Lower bounds of the frequency bands, relative to the words of a side.
BANDS = (3e-6, 2e-5, 1.5e-4, 1.2e-3, 1.2e-2)
CLASSES = (
    *(f"frequency {band}" for band in range(len(BANDS) + 1)),
    "rare, with its like", "number", "number, with its like", "negation", "punctuation",
)  # fmt: skip
_LIKE, _NUMBER, _NUMBER_LIKE, _NEGATION, PUNCTUATION = range(len(BANDS) + 1, len(CLASSES))
_RARE = 1  # highest band in which words are compared by form
_MOST_ODDS = 3.0  # bound of the log-odds of a language
_ENTERED, _LEFT = 0.02, 0.25  # transition probabilities into and out of a run of words without a partner
_MOST_AGAINST = 8.0  # bound of the evidence against one word
_RAREST = 14.0  # nats
_WINDOWS = (2, 4, 6)  # words
_STRICT = 1.0  # nats per word, subtracted for strict runs and added for mild ones
_COMMON = 4.0  # nats of surprisal below which words may be repeated
_INSIDE = 8.0  # weight of a repetition inside a word
_NEAR = 4  # words
_REPEATED_LETTERS = regex.compile(r"(\p{L}{2,}?)\1{2,}")
_CLASSES = np.eye(len(CLASSES))
_SHIFTS = {"best": (-2, -1, 1, 2), "known": (-1, 1), "share": (-1, 1)}
_SHIFTS_OF_LESS = (-2, -1, 1, 2)
_EDGE = {"best": -1.0, "known": 3.0, "share": 0.8, "less than usual": 0.0}

_SIDE_FEATURES = (
    *("evidence", "unpartnered", "support", "language", "known", "run", "mass"),
    *("mild run", "strict run", "in 2 words", "in 4 words", "in 6 words", "in a row", "likeliest", "highest", "third"),
    *("middle", "first words", "last words", "weight", "share of weight"),
)
_REPEATED = ("repeated", "repeated much", "repeated near")
FEATURES = (
    *(f"{side} {name}" for side in ("source", "target") for name in _SIDE_FEATURES),
    *_REPEATED, "shorter", "longer", "length", "short", "more words",
)  # fmt: skip


class Vocabulary:
    """Frequencies of the words on each side of clean text, in lower case.

    Args:
        counts: Count of each of the most frequent words, per side.
        totals: Number of words on each side.
        languages: Languages of both sides by their number words; see `number_values.language_of`. Default: unknown.
    """

    def __init__(self, counts: Both[dict[str, int]], totals: Both[int], languages: Languages = (None, None)):
        self.counts, self.totals, self.languages = counts, totals, languages
        self.look_up = lru_cache(maxsize=1 << 18)(self._look_up)

    def _look_up(self, word: str, side: int) -> tuple[int, float, float]:
        """Return the class of a word, its surprisal in nats, and its log-odds of being in the source language.

        The odds are 0 for punctuation, numbers and words that are in neither vocabulary.
        """
        word = word.lower()
        numbers = [(counts.get(word, 0), total + 1) for counts, total in zip(self.counts, self.totals, strict=True)]
        rates = [(count + 0.1) / total for count, total in numbers]
        surprisal = -math.log(rates[side])
        if is_punctuation(word):
            return PUNCTUATION, surprisal, 0.0
        if any(map(str.isdigit, word)):
            return _NUMBER, surprisal, 0.0
        band = sum(rates[side] > least for least in BANDS) if word in self.counts[side] else 0
        if word in NEGATIONS:
            band = _NEGATION
        # Add-one smoothing on both sides: a single occurrence is weak evidence of the language.
        smoothed = [(count + 1) / total for count, total in numbers]
        odds = math.log(smoothed[0] / smoothed[1]) if any(word in counts for counts in self.counts) else 0.0
        return band, surprisal, max(-_MOST_ODDS, min(_MOST_ODDS, odds))


@dataclass(frozen=True, slots=True)
class Sides:
    """Words of a pair as arrays per side.

    Args:
        classes: Word classes, (S,) and (T,).
        surprisal, odds: Surprisal and log-odds of the source language, see `Vocabulary.look_up`.
    """

    classes: Both[np.ndarray]
    surprisal: Both[np.ndarray]
    odds: Both[np.ndarray]


def seen(vocabulary: Vocabulary, evidence: LinkEvidence) -> Sides:
    """Return the classes of the words of a pair; rare words and numbers are compared with the other side."""
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
    surprisal, odds = (both(np.array(column[place], dtype=float) for column in columns) for place in (1, 2))
    for side, words in enumerate(pair):  # a name is the same in both languages
        for place, word in enumerate(words):
            if word[0].isupper() and word in pair[1 - side]:
                odds[side][place] = 0.0
    return Sides(both(np.array(found, dtype=np.int64) for found in classes), surprisal, odds)


# ---- features of words and lines ----


def _known_of(lines: Sequence[LinkEvidence], side: int) -> list[np.ndarray]:
    """Return `LinkEvidence.known` of one side of each line; 0 for an aligner without counts."""
    return [np.zeros(len(line.best[side])) if line.known is None else line.known[side] for line in lines]


def _usual_of(lines: Sequence[LinkEvidence], side: int) -> list[np.ndarray]:
    """Return `LinkEvidence.usual` of one side of each line; 0 for an aligner without counts."""
    return [np.zeros((len(line.best[side]), 2)) if line.usual is None else line.usual[side] for line in lines]


def features_of_words(
    lines: Sequence[LinkEvidence], sides: Sequence[Sides], longer: Sequence[float], side: int
) -> np.ndarray:
    """Return the network's features of the words of one side, all lines concatenated, (N, F).

    Their order: best, known, forward, backward, share, claimed, jump before, jump after, near; best, known and share
    of the neighbours (`_SHIFTS`); surprisal, relative surprisal of the partner, partner is punctuation; words, other
    words, longer, support of both sides; place, first or last; `CLASSES`; usual, without a partner, less than usual,
    then the same of the partner; less than usual of the neighbours.

    Args:
        lines: Evidence of lines with words on both sides.
        sides: Words of each line.
        longer: `CheckModel.length_deviation` of each line.
        side: 0 for the source, 1 for the target.
    """
    lengths = np.array([len(line.links[side]) for line in lines])
    others = np.array([len(line.links[1 - side]) for line in lines])
    ends = lengths.cumsum()
    place = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    left = np.repeat(lengths, lengths) - 1 - place
    links = np.concatenate([line.links[side] for line in lines])
    classes = np.concatenate([one.classes[side] for one in sides])
    surprisal = np.concatenate([one.surprisal[side] for one in sides])
    other_surprisal = np.concatenate([one.surprisal[1 - side] for one in sides])
    other_classes = np.concatenate([one.classes[1 - side] for one in sides])
    of_partner = np.repeat(others.cumsum() - others, lengths) + links[:, -1].astype(np.int64)
    surprisal, other_surprisal = np.minimum(surprisal, _RAREST), np.minimum(other_surprisal, _RAREST)
    best = np.log(links[:, 0] + 0.005)
    known_values = np.concatenate(_known_of(lines, side))
    values = {"best": best, "known": np.clip(known_values, -4, 9), "share": links[:, 3]}
    usual, of_partners = (np.concatenate(_usual_of(lines, one)) for one in (side, 1 - side))
    of_partners = of_partners[of_partner]
    less = [one[:, 0] - values["known"] for one in (usual, of_partners)]
    values["less than usual"] = np.minimum(*less)

    def around(name: str, step: int) -> np.ndarray:
        inside = place >= -step if step < 0 else left >= step
        return np.where(inside, np.roll(values[name], -step), _EDGE[name])

    supports = []
    own = side, classes, surprisal, lengths
    for one, kinds, rare, sizes in (own, (1 - side, other_classes, other_surprisal, others)):
        weight, first = np.where(kinds == PUNCTUATION, 0, rare) + 1e-3, sizes.cumsum() - sizes
        best_of_words = np.concatenate([line.best[one] for line in lines])
        supports.append(np.add.reduceat(best_of_words * weight, first) / np.add.reduceat(weight, first))
    relative_length = np.log((others + 1) / (lengths + 1)), np.array(longer) * (1 if side else -1)
    of_line = np.column_stack([np.log(lengths), *relative_length, *supports])
    return np.column_stack([
        best, values["known"], links[:, 1:-1],
        *(around(name, step) for name, steps in _SHIFTS.items() for step in steps),
        surprisal, other_surprisal[of_partner] - surprisal, other_classes[of_partner] == PUNCTUATION,
        np.repeat(of_line, lengths, axis=0),
        place / np.repeat(lengths, lengths), (place < 2) * 1.0 - (left < 2),
        _CLASSES[classes], usual, less[0], of_partners, less[1],
        *(around("less than usual", step) for step in _SHIFTS_OF_LESS),
    ])  # fmt: skip


def side_by_side(values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Stack arrays of different lengths into one, (L, W), padded with 0; also return the mask."""
    lengths = np.array([len(one) for one in values])
    there = np.arange(max(lengths, default=0)) < lengths[:, None]
    stacked = np.zeros(there.shape)
    if len(values):
        stacked[there] = np.concatenate(values)
    return stacked, there


def chains(against: Sequence[np.ndarray], entered: float = _ENTERED, left: float = _LEFT) -> list[np.ndarray]:
    """Return the probability of each word to have no partner, (words,) per line.

    It is the forward-backward pass of a hidden Markov chain of two states; `exp(against)` is the ratio of the
    emissions. The first word has the same transition probability as any other.

    Args:
        against: Log-ratio of each word, (words,) per line.
        entered: Probability that a run of words without a partner begins at a word. Default: 0.02.
        left: Probability that a run ends before a word. Default: 0.25.
    """
    values, there = side_by_side(against)
    ratio = np.exp(np.clip(values, -_MOST_AGAINST, _MOST_AGAINST)).T
    forward, bad = np.empty(ratio.shape), np.zeros(ratio.shape[1])
    for place, odds in enumerate(ratio):
        before = entered * (1 - bad) + (1 - left) * bad
        bad = before * odds / (before * odds + 1 - before)
        forward[place] = bad
    posterior = np.empty(ratio.shape)
    later = np.ones(ratio.shape[1])  # likelihood ratio of the following words, for a word without and with a partner
    for place in range(len(ratio) - 1, -1, -1):
        odds = forward[place] * later / (1 - forward[place] + 1e-300)
        posterior[place] = odds / (1 + odds)
        follows = ratio[place] * later
        later = np.where(there[:, place], (left + (1 - left) * follows) / (1 - entered + entered * follows), 1.0)
    return [of_line[: len(one)] for of_line, one in zip(posterior.T, against, strict=True)]


def strongest_runs(against: np.ndarray) -> np.ndarray:
    """Return the largest sum of evidence over adjacent words, at least 0, (L,), from evidence (L, W)."""
    sums = np.pad(against.cumsum(axis=1), ((0, 0), (1, 0)))
    return (sums - np.minimum.accumulate(sums, axis=1)).max(axis=1)


def line_features(
    lines: Sequence[LinkEvidence],
    sides: Sequence[Sides],
    against: Sequence[Sequence[np.ndarray]],
    words: Sequence[Sequence[np.ndarray]],
    longer: Sequence[float],
) -> np.ndarray:
    """Return the `FEATURES` of lines, (L, F).

    Args:
        lines: Evidence of lines with words on both sides.
        sides: Words of each line.
        against: Evidence against each word, by side and line.
        words: Probability of each word to have no partner (`chains`), by side and line.
        longer: `CheckModel.length_deviation` of each line.
    """
    columns = [one for side in (0, 1) for one in _side_features(lines, sides, against[side], words[side], side)]
    columns += np.array([_repeated(*line) for line in zip(lines, sides, strict=True)]).T.tolist()
    deviation = np.array(longer)
    sizes = np.array([[len(line.source.words), len(line.target.words)] for line in lines], dtype=float)
    total = sizes.sum(axis=1)
    columns += [
        np.maximum(0, -deviation), np.maximum(0, deviation), np.log1p(total), 1 / (1 + total),
        np.log((sizes[:, 1] + 1) / (sizes[:, 0] + 1)),
    ]  # fmt: skip
    return np.column_stack(columns)


def _side_features(lines, sides, against, words, side: int) -> list[np.ndarray]:
    raw, there = side_by_side(against)
    values = np.clip(raw, -_MOST_AGAINST, _MOST_AGAINST)
    unpartnered, _ = side_by_side(words)
    marks = side_by_side([one.classes[side] for one in sides])[0] == PUNCTUATION
    surprisal = np.where(marks, 0.0, side_by_side([one.surprisal[side] for one in sides])[0])
    weights, all_weight = np.minimum(surprisal, _RAREST), surprisal.sum(axis=1)
    odds, _ = side_by_side([one.odds[side] for one in sides])
    best, _ = side_by_side([line.best[side] for line in lines])
    number = there.sum(axis=1)
    with_language = (odds != 0).sum(axis=1)  # names and numbers have no language
    sums = np.pad(values.cumsum(axis=1), ((0, 0), (1, 0)))
    windows = []
    for length in _WINDOWS:
        inside = np.arange(max(0, sums.shape[1] - length)) <= (number - length)[:, None]
        window = np.where(inside, sums[:, length:] - sums[:, :-length], -np.inf).max(axis=1, initial=-np.inf)
        window = np.where(number >= length, window, sums[:, -1])
        windows.append(np.sign(window) * np.log1p(np.abs(window)))
    counted = (unpartnered > 0.5) & ~marks
    rows = counted.cumsum(axis=1)
    rows = rows - np.maximum.accumulate(np.where((unpartnered > 0.5) & there, 0, rows), axis=1)
    is_word = there & ~marks
    is_word[~is_word.any(axis=1)] = there[~is_word.any(axis=1)]
    order = -np.sort(np.where(is_word, -values, np.inf), axis=1)
    counts, lines_of = is_word.sum(axis=1), np.arange(len(lines))
    of_known = np.clip(side_by_side(_known_of(lines, side))[0], -4, 9).sum(axis=1) / number
    heavy = (unpartnered * weights).sum(axis=1)
    support = np.where(all_weight > 0, (best * surprisal).sum(axis=1) / np.maximum(all_weight, 1e-9), 1.0)
    return [
        raw.sum(axis=1) / number, unpartnered.sum(axis=1) / number, support,
        odds.sum(axis=1) / (with_language + 1) * (1 if side else -1), of_known,
        np.log1p(strongest_runs(values)), np.log1p(unpartnered.sum(axis=1)),
        np.log1p(strongest_runs(np.where(there, values + _STRICT, 0))),
        np.log1p(strongest_runs(np.where(there, values - _STRICT, 0))),
        *windows, np.log1p(rows.max(axis=1)), unpartnered.max(axis=1), order[:, 0],
        order[lines_of, np.minimum(2, counts - 1)], order[lines_of, np.minimum(counts // 2, counts - 1)],
        values[:, :3].sum(axis=1), sums[:, -1] - sums[lines_of, np.maximum(0, number - 3)],
        np.log1p(heavy), heavy / (weights.sum(axis=1) + 1),
    ]  # fmt: skip


def _repeated(line: LinkEvidence, sides: Sides) -> tuple[float, float, float]:
    again = line.said_again * np.maximum(0, sides.surprisal[1] - _COMMON)
    inside = _inside(line.target.text)
    inside = max(0.0, inside - _inside(line.source.text)) if inside else 0.0
    if not inside and not again.any():
        return 0.0, 0.0, 0.0
    total = float(again.sum()) + _INSIDE * inside
    return total / max(1.0, float(sides.surprisal[1].sum())), math.log1p(total), math.log1p(_near(line, again))


def _inside(text: str) -> float:
    """Count repetitions of letter sequences inside words, from the third on (`WhiteWhiteWhite`)."""
    return sum(len(found[0]) / len(found[1]) - 1 for found in _REPEATED_LETTERS.finditer(text.lower()))


def _near(evidence: LinkEvidence, again: np.ndarray) -> float:
    """Return the part of `again` within four words of the previous occurrence."""
    if not again.any():
        return 0.0
    last: dict[str, int] = {}
    total = 0.0
    for place, word in enumerate(map(str.lower, evidence.target.words)):
        if place - last.get(word, -_NEAR - 1) <= _NEAR:
            total += again[place]
        last[word] = place
    return total
