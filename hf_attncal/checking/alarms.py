"""Alarms of a text: the likeness above which a pair is flagged, and how sure a broken rule is.

The alarm learned from clean text flags 1 in 100 of its lines. In text of another kind all log-odds are higher, and
and short and long pairs differ. Most pairs are assumed to be right, at most a tenth wrong: above the median,
log-odds fall off exponentially, at the rate of the ninth decile, and 1 in 100 right pairs of a length is above the
alarm. It is never below the learned one, and at most `MOST_RISE` above it. The ratio of the lengths of both sides is
compared with the usual ratio of the text: a cut or padded translation of software is found by it rather than by words.

A broken rule has a probability of its own, from the share of right pairs that break the rule and the share of pairs
that may be wrong in this way. A rule that more pairs of a text break than may be wrong is a habit of the text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .logistic import log_odds, sigmoid
from .rules import DEFAULT_SHARES, WRONG_NAME

MOST_RISE = 4.0  # log-odds
_FEWEST, _ENOUGH = 6, 50  # pairs from which a text has an alarm of its own, first in part
_OF_LENGTH = 100  # pairs of similar length that share an alarm
_WRONG = 0.1  # share of a text that may be wrong
# Share of the pairs to which a rule applies that may be wrong, twice the expected share.
_WRONG_BY_RULE = {"wrong end mark": 0.01, WRONG_NAME: 0.01}  # rules that some texts break as a habit
_LEAST = 1e-9
_FEWEST_LENGTHS, _WORDS_OF_LENGTH = 20, 3  # pairs, of at least so many words, from which the text has a usual ratio
# Spread of the log-ratio of lengths, in units of the text: `_FIXED + characters ** -0.5`. From a deviation of `_OFF`,
# which 1 in 200 right pairs has, the share of right pairs falls by `_FALLING` nats per unit.
_FIXED, _OFF, _FALLING, _TAIL = 0.05, 3.3, 1.5, 0.005
_WRONG_LENGTH = 0.01  # share of pairs that are cut or padded
_WEIGHT = 0.7  # log-odds of likeness per unit of deviation


@dataclass(frozen=True)
class TextAlarms:
    """Alarms of a text.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of the right pairs that break each rule.
        lengths: Logarithms of the numbers of words at which `levels` hold, ascending, (L,). Default: one length.
        levels: Log-odds of likeness above which a pair is flagged, (L,). Default: the ordinary alarm.
        usual_length: Median log-ratio of target to source characters, and its spread in units of
            `0.05 + characters ** -0.5`. Default: None, unknown.
        pairs: Number of pairs of the text. Default: 0.
        between: Number of pairs above the ordinary alarm that are below the alarm of the text. Default: 0.
    """

    ordinary: float
    shares: Mapping[str, float]
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(1))
    levels: np.ndarray | None = None
    usual_length: tuple[float, float] | None = None
    pairs: int = 0
    between: int = 0

    def deviation(self, source: str, target: str) -> float:
        """Return how far the log-ratio of the lengths is from the usual one, in its spread; 0 if that is unknown."""
        if self.usual_length is None:
            return 0.0
        middle, spread = self.usual_length
        return (_log_ratio(source, target) - middle) / (spread * _spread(source))

    def likeness(self, likeness: float, deviation: float) -> float:
        """Return the probability of likeness together with the deviation of the length."""
        if not deviation:
            return likeness
        return float(sigmoid(log_odds(np.clip(likeness, _LEAST, 1 - _LEAST)) + _WEIGHT * abs(deviation)))

    def of_length(self, deviation: float) -> float:
        """Return the probability that a pair with this deviation of its length is wrong."""
        return _WRONG_LENGTH / (_WRONG_LENGTH + _TAIL * math.exp(_FALLING * (_OFF - abs(deviation))))

    def alarm(self, words: int) -> float:
        """Return the probability of likeness above which a pair of `words` source words is flagged."""
        if self.levels is None:
            return self.ordinary
        return float(sigmoid(np.interp(np.log(max(words, 1)), self.lengths, self.levels)))

    def of_rule(self, name: str) -> float:
        """Return the probability that a pair that breaks a rule is wrong."""
        prior = _WRONG_BY_RULE.get(name, _WRONG) / 2
        return prior / (prior + self.shares.get(name, DEFAULT_SHARES[name]))

    def __str__(self) -> str:
        if not self.between or self.levels is None:
            return f"alarm {self.ordinary:.2g}, as on ordinary text"
        low, high = sigmoid(self.levels.min()), sigmoid(self.levels.max())
        here = f"{low:.2g}" if high - low < 0.01 else f"{low:.2g} to {high:.2g} by length"
        return (
            f"alarm {here} here, {self.ordinary:.2g} on ordinary text: {self.between} of {self.pairs} pairs lie "
            f"between. --alarm {self.ordinary:.2g} shows them"
        )


def alarms_of_text(
    ordinary: float,
    shares: Mapping[str, float],
    texts: Sequence[tuple[str, str]],
    words: Sequence[int],
    likeness: Sequence[float],
    breaks: Sequence[Mapping[str, object]],
) -> TextAlarms:
    """Estimate the alarms of a text, whose pairs are mostly right.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of clean pairs that break each rule.
        texts: Both sides of each pair.
        words: Number of source words of each pair, (pairs,).
        likeness: Probability of likeness of each pair, (pairs,).
        breaks: Result of `rules.check_rules` for each pair.
    """
    alarms = TextAlarms(
        ordinary, _shares_of_text(shares, breaks), usual_length=_usual_length(texts, words), pairs=len(texts)
    )
    if len(texts) < _FEWEST:
        return alarms
    together = [alarms.likeness(one, alarms.deviation(*pair)) for one, pair in zip(likeness, texts, strict=True)]
    scores, lengths = log_odds(np.clip(together, _LEAST, 1 - _LEAST)), np.log(np.maximum(words, 1))
    learned = float(log_odds(np.array(ordinary)))
    groups = np.array_split(lengths.argsort(kind="stable"), max(1, len(scores) // _OF_LENGTH))
    middle, high = np.array([np.quantile(scores[group], (0.5, 1 - _WRONG)) for group in groups]).T
    own = middle + (high - middle) * np.log(50) / np.log(0.5 / _WRONG)
    levels = learned + min(1.0, len(scores) / _ENOUGH) * (own - learned)
    levels = np.clip(levels, learned, learned + MOST_RISE)
    centres = np.array([lengths[group].mean() for group in groups])
    between = (scores > learned) & (scores <= np.interp(lengths, centres, levels))
    return replace(alarms, lengths=centres, levels=levels, between=int(between.sum()))


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
