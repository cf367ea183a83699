"""Alarms of a text: how sure its likeness is to be a fault, and how sure a broken rule is.

The alarm learned from clean text flags 1 in 100 of its lines. In text of another kind all log-odds are higher, and
short and long pairs differ. Most pairs are assumed to be right: above the median, log-odds fall off exponentially, at
a rate that an upper quantile gives.

- Lines may be the output of a poor system: the alarm of their length is what 1 in 100 right lines exceeds, at most
  `MOST_RISE` above the learned one and never below it.
- A document is a translation by people, at most a tenth of it wrong: each cause has its own tail, which gives the
  probability of a fault without the learned alarm. The length of the translation, compared with the usual ratio of
  the document, is part of the evidence of an omission or addition.
- A broken rule has a probability of its own, from the share of right pairs that break the rule and the share of pairs
  that may be wrong in this way. A rule that more pairs of a text break than may be wrong is a habit of the text.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from .logistic import log_odds, sigmoid
from .rules import DEFAULT_SHARES, WRONG_NAME

MOST_RISE = 4.0  # log-odds
_FEWEST, _ENOUGH = 6, 50  # pairs from which a text has alarms of its own, first in part
_OF_LENGTH = {False: 300, True: 200}  # pairs of similar length that share an alarm, in lines and in documents
_QUANTILE = {False: 0.75, True: 0.85}  # upper quantile of right pairs
_WRONG = 0.1  # share of the pairs to which a rule applies that may be wrong
_ROUNDS, _FAR = 4, 3.7  # fits of a tail, and nats from which a pair is left out of the next
_WRONG_BY_RULE = {"wrong end mark": 0.01, WRONG_NAME: 0.01}  # rules that some texts break as a habit
_WRONG_BY_RULE |= {"negation added": 0.01}  # right ones abound: "unlocked" and "nicht gesperrt"
_LEAST = 1e-6
# Causes with a tail of their own: log-odds that a unit of deviation in length adds, expected share of faulty pairs.
_CAUSES = {"omission": (-1.0, 0.009), "added": (1.0, 0.012), "unrelated": (0.0, 0.003)}
_RESOLVED = 0.05  # pairs
FEWEST_WORDS = 4  # source words below which likeness is no evidence
_USUAL_SCALE, _PAIRS_OF_USUAL = 2.0, 20  # scale of a tail in software catalogues, and its weight in pairs
_FEWEST_LENGTHS, _WORDS_OF_LENGTH = 20, 3  # pairs, and their least number of words, for a usual ratio
_FIXED = 0.05  # spread of the log-ratio of lengths in units of the text: this plus `characters ** -0.5`

_SENTENCE_BREAK, _OF_SENTENCE = re.compile(r"[.!?]\s+(?=[^\W\d_a-z])"), 2.0  # and its weight in the deviation


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
        pairs: Number of pairs of the text. Default: 0.
        between: Number of pairs above the ordinary alarm that the text does not flag. Default: 0.
    """

    ordinary: float
    shares: Mapping[str, float]
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(1))
    levels: np.ndarray | None = None
    tails: Mapping[str, Tail] = field(default_factory=dict)
    usual_length: tuple[float, float] | None = None
    pairs: int = 0
    between: int = 0

    def deviation(self, source: str, target: str) -> float:
        """Return how far the log-ratio of the lengths is from the usual one, in its spread; 0 if that is unknown.

        A sentence more or less adds to it.
        """
        if self.usual_length is None:
            return 0.0
        middle, spread = self.usual_length
        sentences = len(_SENTENCE_BREAK.findall(target)) - len(_SENTENCE_BREAK.findall(source))
        return (_log_ratio(source, target) - middle) / (spread * _spread(source)) + _OF_SENTENCE * sentences

    def of_causes(self, causes: Mapping[str, float], words: int, deviation: float) -> dict[str, float]:
        """Return the probability that a pair of a document is wrong by each cause; 0 below a number of words."""
        if words < FEWEST_WORDS:
            return dict.fromkeys(self.tails, 0.0)
        length, result = np.log(words), {}
        for name, (middle, scale) in self.tails.items():
            above = _score(name, causes, deviation) - np.interp(length, self.lengths, middle)
            share = 0.5 * math.exp(-max(0.0, float(above / np.interp(length, self.lengths, scale))))
            result[name] = self._probability(_CAUSES[name][1], share)
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
            here = (
                f"alarm {low:.2g} here, " if high - low < 0.01 else f"alarm {low:.2g} to {high:.2g} here by length, "
            )
        return (
            f"{here or 'alarm '}{self.ordinary:.2g} on ordinary text: {self.between} of {self.pairs} pairs lie above "
            f"it and are usual here. --alarm {self.ordinary:.2g} reports them"
        )


def alarms_of_text(
    ordinary: float,
    shares: Mapping[str, float],
    texts: Sequence[tuple[str, str]],
    words: Sequence[int],
    causes: Sequence[Mapping[str, float]],
    breaks: Sequence[Mapping[str, object]],
    document: bool = False,
) -> TextAlarms:
    """Estimate the alarms of a text, whose pairs are mostly right.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of clean pairs that break each rule.
        texts: Both sides of each pair.
        words: Number of source words of each pair, (pairs,).
        causes: Probability of "likeness" and of each cause, for each pair.
        breaks: Result of `rules.check_rules` for each pair.
        document: True for a document, False for lines. Default: False.
    """
    alarms = TextAlarms(ordinary, _shares_of_text(shares, breaks), pairs=len(texts))
    if len(texts) < _FEWEST:
        return alarms
    if document:
        alarms = replace(alarms, usual_length=_usual_length(texts, words))
    lengths = np.log(np.maximum(words, 1))
    long = lengths >= np.log(FEWEST_WORDS) if document else lengths >= 0
    groups = np.array_split(np.flatnonzero(long)[lengths[long].argsort(kind="stable")],
                            max(1, int(long.sum()) // _OF_LENGTH[document]))  # fmt: skip
    groups = [group for group in groups if len(group)]
    alarms = replace(alarms, lengths=np.array([lengths[group].mean() for group in groups] or [0.0]))
    likeness = np.array([_odds(one["likeness"]) for one in causes])
    learned = _odds(ordinary)
    if not document:
        tail = _tail(likeness, groups, _QUANTILE[False])
        own = tail.middle + tail.scale * math.log(50)  # 1 in 100 right lines
        levels = learned + min(1.0, len(texts) / _ENOUGH) * (own - learned)
        levels = np.clip(levels, learned, learned + MOST_RISE)
        between = (likeness > learned) & (likeness <= np.interp(lengths, alarms.lengths, levels))
        return replace(alarms, levels=levels, between=int(between.sum()))
    if not groups:
        return alarms
    deviations = [alarms.deviation(*pair) for pair in texts]
    tails = {
        name: _tail(
            np.array([_score(name, *pair) for pair in zip(causes, deviations, strict=True)]),
            groups,
            _QUANTILE[True],
            _ROUNDS,
        )
        for name in _CAUSES
    }
    alarms = replace(alarms, tails=tails)
    flagged = [max(alarms.of_causes(*pair).values()) > 0.5 for pair in zip(causes, words, deviations, strict=True)]
    return replace(alarms, between=int(((likeness > learned) & ~np.array(flagged)).sum()))


def _score(name: str, causes: Mapping[str, float], deviation: float) -> float:
    return _odds(causes[name]) + _CAUSES[name][0] * deviation


def _odds(probability: float) -> float:
    return float(log_odds(np.clip(probability, _LEAST, 1 - _LEAST)))


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


def _log_ratio(source: str, target: str) -> float:
    return math.log((len(target) + 1) / (len(source) + 1))


def _spread(source: str) -> float:
    return _FIXED + (len(source) + 1) ** -0.5


def _shares_of_text(shares: Mapping[str, float], breaks: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the share of right pairs of a text that break each rule, at least the learned share."""
    result = dict(shares)
    for name, wrong in _WRONG_BY_RULE.items():
        applies = [rules[name] for rules in breaks if name in rules]
        broken = sum(found is not None for found in applies)
        # two more may be wrong by chance in a short text
        result[name] = max(shares.get(name, 0.0), (broken - wrong * len(applies) - 2) / max(1, len(applies)))
    return result
