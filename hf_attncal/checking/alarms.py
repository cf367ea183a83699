"""Alarms of a text: how sure its likeness is to be a fault, and how sure a broken rule is.

The alarm learned from clean text flags 1 in 100 of its lines. In text of another kind all log-odds are higher, and
short and long pairs differ. Most pairs are assumed to be right: above the median, log-odds fall off exponentially, at
a rate that an upper quantile gives.

- Lines may be the output of a poor system: the alarm of their length is what 1 in 100 right lines exceeds, at most
  `MOST_RISE` above the learned one and never below it. Fewer than 200 lines keep the learned one.
- A document is a translation by people, at most a tenth of it wrong: each cause has its own tail, which gives the
  probability of a fault without the learned alarm. The length of the translation, compared with the usual ratio of
  the document, is part of the evidence of an omission or addition.
- A broken rule has a probability of its own, from the share of right pairs that break the rule and the share of pairs
  that may be wrong in this way. A rule that more pairs of a text break than may be wrong is a habit of the text.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from .logistic import log_odds, sigmoid
from .rules import DEFAULT_SHARES, WRONG_NAME

MOST_RISE = 4.0  # log-odds
_FEWEST_LINES, _FEWEST_SEGMENTS = 200, 6  # from which a text has alarms of its own
_LINES_OF_LENGTH, _SEGMENTS_OF_LENGTH = 300, 200  # pairs of similar length that share an alarm
_QUANTILE_OF_LINES, _QUANTILE_OF_SEGMENTS = 0.75, 0.85  # upper quantile of right pairs
_ROUNDS, _FAR = 4, 3.7  # fits of a tail, and nats from which a pair is left out of the next
_USUAL_SCALE, _PAIRS_OF_USUAL = 2.0, 20  # scale of a tail in software catalogues, and its weight in pairs
# Share of the pairs to which a rule applies that may be wrong: a tenth, or fewer for rules that texts break as a habit
# (end marks and names), or that right pairs break in many ways ("unlocked" and "nicht gesperrt").
_WRONG, _WRONG_BY_RULE = 0.1, dict.fromkeys(("wrong end mark", WRONG_NAME, "negation added"), 0.01)
_LEAST = 1e-6  # distance of a probability from 0 and 1
# Causes with a tail of their own: log-odds that a unit of deviation in length adds, expected share of faulty pairs.
_CAUSES = {"omission": (-1.0, 0.009), "added": (1.0, 0.003), "unrelated": (0.0, 0.0007)}
# Shares of right pairs of documents that break a rule. Many say a denial in other words ("not on hold", "entfernt").
# No rule is more than 85 % sure, as readings of real documents do not show it.
_SHARES_OF_DOCUMENTS = {name: max(share, 0.009) for name, share in DEFAULT_SHARES.items()} | {"negation lost": 0.03}
# Ratio of wrong to right pairs: most texts of another source come from another pair of the document. At most 2 in
# 1,000 right pairs of four words or more are taken to have such a text; 3 in 20,000 were counted.
_OF_ANOTHER, _OF_NO_OTHER, _MOST_OTHERS = 0.9 / 0.002, 0.1 / 0.998, 50
# The same of a probability of unrelated texts above `_UNLIKE`, which 2 in 4,770 right pairs had.
_UNLIKE, _RATIO_OF_UNLIKE = 0.95, 0.6 / 0.002
# The same of additions: most are sentences, which right translations seldom have more of.
_MORE_SENTENCES, _NO_MORE_SENTENCES = 0.8 / 0.1, 0.2 / 0.9
_WORD = re.compile(r"[^\W\d_]{3,}")
_RESOLVED = 0.05  # share of one pair that a text still shows
_FEWEST_WORDS = 4  # source words below which likeness is no evidence
_FEWEST_LENGTHS, _WORDS_OF_LENGTH = 20, 3  # pairs, and their least number of words, for a usual ratio
_FIXED = 0.05  # spread of the log-ratio of lengths in units of the text: this plus `characters ** -0.5`
# A letter after an end mark; not in "z. B." or after "bzw.". Breaks before small letters count only if the sides have
# the same number of others.
_SENTENCE_BREAK = re.compile(
    r"(?<!(?<![^\s.(])[^\W\d_])(?<!(?i:\b(?:ca|cf|nr|no|vs|bd|st|dr|mr|sr|ud)))"
    r"(?<!(?i:\b(?:bzw|usw|ggf|max|min|reg|vgl|abk|etc|inc|exp|ext|int|std|sek|tel|sog|núm|pág|env|mrs|sra|uds)))"
    r"(?<!(?i:\b(?:evtl|inkl|exkl|zzgl|resp|bspw|engl|dopp)))"
    r"[.!?]\s+(?=[¿¡\"'“„«(]?[^\W\d_a-zß-öø-ÿ]|[\"'“„«]?(?P<small>[^\W\d_]))"
)
_TEXT_AFTER_COLON = re.compile(r":\s+(?=[^\W\d_a-zß-öø-ÿ])")
_END_MARKS = (".", "!", "?", "…")
# Log-ratios of lengths, from the usual one, beyond which a sentence fewer or more is no other punctuation.
_SENTENCE_LOST, _SENTENCE_ADDED = -0.3, 0.3
_TEXT_GOES_ON = 0.15  # the same where text without an end mark follows the last sentence
_AROUND = " \t\n\"'”“’»«)]"


class Tail(NamedTuple):
    """Upper tail of the log-odds of right pairs, by length.

    Args:
        middle: Median, (L,).
        scale: Log-odds in which the share of pairs falls to 1 / e, (L,).
    """

    middle: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class TextAlarms:
    """Alarms of a text.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of the right pairs that break each rule.
        lengths: Logarithms of the numbers of words of `levels` and `tails`, ascending, (L,). Default: one length.
        levels: Log-odds of likeness above which a line is flagged, (L,). Default: the ordinary alarm.
        tails: Tail of each cause in a document. Default: none.
        usual_length: Median log-ratio of target to source characters, and its spread in units of
            `0.05 + characters ** -0.5`. Default: None, unknown.
        of_others: Pairs whose target is also the target of another source. Default: none.
        pairs: Number of pairs of the text. Default: 0.
        between: Number of pairs above the ordinary alarm that the text does not flag. Default: 0.
    """

    ordinary: float
    shares: Mapping[str, float]
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(1))
    levels: np.ndarray | None = None
    tails: Mapping[str, Tail] = field(default_factory=dict)
    usual_length: tuple[float, float] | None = None
    of_others: frozenset[tuple[str, str]] = frozenset()
    pairs: int = 0
    between: int = 0

    def deviation(self, source: str, target: str) -> float:
        """Return how far the log-ratio of the lengths is from the usual one, in its spread; 0 if that is unknown."""
        if self.usual_length is None:
            return 0.0
        middle, spread = self.usual_length
        return (_log_ratio(source, target) - middle) / (spread * _spread(source))

    def sentences_added(self, source: str, target: str) -> int:
        """Return 1 if a sentence is added, -1 if one is lost, and 0 if the lengths do not show it."""
        more = _more_sentences(source, target)
        if not more or self.usual_length is None:
            return 0
        longer = _log_ratio(source, target) - self.usual_length[0]
        goes_on = source.rstrip().endswith(_END_MARKS) and not target.rstrip(_AROUND).endswith(_END_MARKS)
        least = _TEXT_GOES_ON if goes_on else _SENTENCE_ADDED
        return (more > 0 and longer > least) - (more < 0 and longer < _SENTENCE_LOST)

    def of_causes(self, causes: Mapping[str, float], words: int, pair: tuple[str, str]) -> dict[str, float]:
        """Return the probability that a pair of a document is wrong by each cause; 0 below a number of words.

        Args:
            causes: Probability of each cause.
            words: Number of source words.
            pair: Texts of both sides.
        """
        if words < _FEWEST_WORDS:
            return dict.fromkeys(self.tails, 0.0)
        length, deviation, result = np.log(words), self.deviation(*pair), {}
        ratios = {
            "unrelated": _OF_ANOTHER if pair in self.of_others else _OF_NO_OTHER,
            "added": _MORE_SENTENCES if _more_sentences(*pair) > 0 else _NO_MORE_SENTENCES,
        }
        if causes["unrelated"] > _UNLIKE:
            ratios["unrelated"] *= _RATIO_OF_UNLIKE
        for name, (middle, scale) in self.tails.items():
            above = _score(name, causes, deviation) - np.interp(length, self.lengths, middle)
            share = 0.5 * math.exp(-max(0.0, float(above / np.interp(length, self.lengths, scale))))
            result[name] = self._probability(_CAUSES[name][1] * ratios.get(name, 1.0), share)
        return result

    def _probability(self, expected: float, share: float) -> float:
        """Return the probability of a fault, from its expected share and the share of right pairs that are as unusual.

        A text does not show shares far below one of its pairs, so that short texts have no sure findings.
        """
        return expected / (expected + max(share, _RESOLVED / max(1, self.pairs)))

    def alarm(self, words: int) -> float:
        """Return the probability of likeness above which a line of `words` source words is flagged."""
        if self.levels is None:
            return self.ordinary
        return float(sigmoid(np.interp(np.log(max(words, 1)), self.lengths, self.levels)))

    def of_rule(self, name: str) -> float:
        """Return the probability that a pair that breaks a rule is wrong."""
        prior = _WRONG_BY_RULE.get(name, _WRONG) / 2
        return prior / (prior + self.shares.get(name, DEFAULT_SHARES[name]))

    def __str__(self) -> str:
        if not self.between:
            return f"alarm {self.ordinary:.2g}, as on ordinary text"
        here = ""
        if self.levels is not None:
            low, high = sigmoid(self.levels.min()), sigmoid(self.levels.max())
            here = f"{low:.2g} here, " if high - low < 0.01 else f"{low:.2g} to {high:.2g} here by length, "
        return (
            f"alarm {here}{self.ordinary:.2g} on ordinary text: {self.between} of {self.pairs} pairs lie above "
            f"it and are usual here. --alarm {self.ordinary:.2g} reports them"
        )


def with_habits(ordinary: float, shares: Mapping[str, float], breaks: Sequence[Mapping[str, object]]) -> TextAlarms:
    """Return the alarms of ordinary text, with the share of right pairs of a text that break each rule.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of clean pairs that break each rule; the result is never below it.
        breaks: Result of `rules.check_rules` for each pair of the text.
    """
    of_text = dict(shares)
    for name, wrong in _WRONG_BY_RULE.items():
        applies = [rules[name] for rules in breaks if name in rules]
        broken = sum(found is not None for found in applies)
        # two more may be wrong by chance in a short text
        of_text[name] = max(shares.get(name, 0.0), (broken - wrong * len(applies) - 2) / max(1, len(applies)))
    return TextAlarms(ordinary, of_text, pairs=len(breaks))


def alarms_of_lines(alarms: TextAlarms, words: Sequence[int], likeness: Sequence[float]) -> TextAlarms:
    """Return alarms with a level for each length of lines, which may be the output of a poor system.

    Args:
        alarms: Alarms with the habits of the text.
        words: Number of source words of each line, (lines,).
        likeness: Probability of likeness of each line, (lines,).
    """
    if len(words) < _FEWEST_LINES:
        return alarms
    lengths, scores, learned = np.log(words), _odds(likeness), float(_odds(alarms.ordinary))
    groups = _groups(np.arange(len(words)), lengths, _LINES_OF_LENGTH)
    tail = _tail(scores, groups, _QUANTILE_OF_LINES)
    own = tail.middle + tail.scale * math.log(50)  # 1 in 100 right lines
    levels = np.clip(own, learned, learned + MOST_RISE)
    centres = np.array([lengths[group].mean() for group in groups])
    between = (scores > learned) & (scores <= np.interp(lengths, centres, levels))
    return replace(alarms, lengths=centres, levels=levels, between=int(between.sum()))


def alarms_of_segments(
    alarms: TextAlarms, texts: Sequence[tuple[str, str]], words: Sequence[int], causes: Sequence[Mapping[str, float]]
) -> TextAlarms:
    """Return alarms with a tail of each cause for the segments of a document, which is mostly right.

    Args:
        alarms: Alarms with the habits of the document.
        texts: Both sides of each segment.
        words: Number of source words of each segment, (segments,).
        causes: Probability of "likeness" and of each cause, for each segment.
    """
    shares = {name: max(alarms.shares.get(name, 0.0), share) for name, share in _SHARES_OF_DOCUMENTS.items()}
    alarms = replace(alarms, shares=shares)
    long = np.flatnonzero(np.array(words) >= _FEWEST_WORDS)
    if len(texts) < _FEWEST_SEGMENTS or not len(long):
        return alarms
    alarms = replace(alarms, usual_length=_usual_length(texts, words), of_others=_of_others(texts))
    lengths = np.log(words)
    groups = _groups(long, lengths, _SEGMENTS_OF_LENGTH)
    deviations = [alarms.deviation(*pair) for pair in texts]
    scores = {name: np.array(list(map(partial(_score, name), causes, deviations))) for name in _CAUSES}
    tails = {name: _tail(of_cause, groups, _QUANTILE_OF_SEGMENTS, _ROUNDS) for name, of_cause in scores.items()}
    alarms = replace(alarms, lengths=np.array([lengths[group].mean() for group in groups]), tails=tails)
    flagged = [max(one.values()) > 0.5 for one in map(alarms.of_causes, causes, words, texts)]
    above = [one["likeness"] > alarms.ordinary for one in causes]
    return replace(alarms, between=sum(one and not other for one, other in zip(above, flagged, strict=True)))


def _groups(numbers: np.ndarray, lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Return groups of `size` pairs or more (one group if there are fewer), in the order of their lengths."""
    return np.array_split(numbers[lengths[numbers].argsort(kind="stable")], max(1, len(numbers) // size))


def _score(name: str, causes: Mapping[str, float], deviation: float) -> float:
    return float(_odds(causes[name])) + _CAUSES[name][0] * deviation


def _odds(probability: float | Sequence[float]) -> np.ndarray:
    return log_odds(np.clip(probability, _LEAST, 1 - _LEAST))


def _tail(scores: np.ndarray, groups: Sequence[np.ndarray], quantile: float, rounds: int = 1) -> Tail:
    """Fit the tail of right pairs to the median and an upper quantile of each group, and to the usual scale.

    Each further round leaves out the pairs that are far in the tail of the round before, as they may be wrong.
    """
    sizes = np.array([len(group) for group in groups])
    kept_scores = [scores[group] for group in groups]
    for _ in range(rounds):
        middle, high = np.array([np.quantile(values, (0.5, quantile)) for values in kept_scores]).T
        scale = (high - middle) / math.log(0.5 / (1 - quantile))
        scale = (sizes * scale + _PAIRS_OF_USUAL * _USUAL_SCALE) / (sizes + _PAIRS_OF_USUAL)
        bars = middle + scale * (_FAR - math.log(2))
        kept_scores = [scores[group][scores[group] < bar] for group, bar in zip(groups, bars, strict=True)]
    return Tail(middle, scale)


def _usual_length(texts: Sequence[tuple[str, str]], words: Sequence[int]) -> tuple[float, float] | None:
    """Return the median log-ratio of the lengths of a text and its spread; None for too few pairs of some words."""
    some = [pair for pair, number in zip(texts, words, strict=True) if number >= _WORDS_OF_LENGTH]
    if len(some) < _FEWEST_LENGTHS:
        return None
    ratios = np.array([_log_ratio(*pair) for pair in some])
    middle = float(np.median(ratios))
    deviations = np.abs(ratios - middle) / [_spread(source) for source, _ in some]
    return middle, max(1.48 * float(np.median(deviations)), _FIXED)


def _of_others(texts: Sequence[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the pairs whose target is also the target of another source, where the sources have no word in common."""
    sources: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for source, target in texts:
        if words := frozenset(_WORD.findall(source.lower())):
            sources[target][source] = words
    return frozenset(
        (source, target)
        for target, others in sources.items()
        for source, words in others.items()
        if any(map(words.isdisjoint, islice(others.values(), _MOST_OTHERS)))
    )


def _more_sentences(source: str, target: str) -> int:
    """Return the number of sentences that the target has more than the source."""
    small, capital = zip(*map(_breaks, (source, target)), strict=True)
    more = capital[1] - capital[0] or max(0, small[1] - small[0])
    if source.rstrip().endswith(":"):
        more += len(_TEXT_AFTER_COLON.findall(target)) - len(_TEXT_AFTER_COLON.findall(source))
    return more


def sentence_ends(text: str) -> list[int]:
    """Return the character after each sentence or colon of a text but the last, in order."""
    ends = (match.start() + 1 for pattern in (_SENTENCE_BREAK, _TEXT_AFTER_COLON) for match in pattern.finditer(text))
    return sorted(ends)


def _breaks(text: str) -> tuple[int, int]:
    """Return the number of sentences that go on with a small letter, and of those with a capital."""
    small = [bool(found) for found in _SENTENCE_BREAK.findall(text)]
    return sum(small), len(small) - sum(small)


def _log_ratio(source: str, target: str) -> float:
    return math.log((len(target) + 1) / (len(source) + 1))


def _spread(source: str) -> float:
    return _FIXED + (len(source) + 1) ** -0.5
