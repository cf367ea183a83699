"""Alarms of a text: the likeness above which a pair is flagged, and how sure a broken rule is.

The alarm learned from clean text flags 1 in 100 of its lines. In text of another kind all log-odds are higher, and
and short and long pairs differ. Most pairs are assumed to be right, at most a tenth wrong: above the median,
log-odds fall off exponentially, at the rate of the ninth decile, and 1 in 100 right pairs of a length is above the
alarm. It is never below the learned one, and at most `MOST_RISE` above it.

A broken rule has a probability of its own, from the share of right pairs that break the rule and the share of pairs
that may be wrong in this way. A rule that more pairs of a text break than may be wrong is a habit of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class TextAlarms:
    """Alarms of a text.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of the right pairs that break each rule.
        lengths: Logarithms of the numbers of words at which `levels` hold, ascending, (L,). Default: one length.
        levels: Log-odds of likeness above which a pair is flagged, (L,). Default: the ordinary alarm.
        pairs: Number of pairs of the text. Default: 0.
        between: Number of pairs above the ordinary alarm that are below the alarm of the text. Default: 0.
    """

    ordinary: float
    shares: Mapping[str, float]
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(1))
    levels: np.ndarray | None = None
    pairs: int = 0
    between: int = 0

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
    likeness: Sequence[float],
    words: Sequence[int],
    breaks: Sequence[Mapping[str, object]],
) -> TextAlarms:
    """Estimate the alarms of a text, whose pairs are mostly right.

    Args:
        ordinary: Alarm learned from clean text, a probability.
        shares: Share of clean pairs that break each rule.
        likeness: Probability of likeness of each pair, (pairs,).
        words: Number of source words of each pair, (pairs,).
        breaks: Result of `rules.check_rules` for each pair.
    """
    shares = _shares_of_text(shares, breaks)
    if len(likeness) < _FEWEST:
        return TextAlarms(ordinary, shares, pairs=len(likeness))
    scores, lengths = log_odds(np.clip(likeness, _LEAST, 1 - _LEAST)), np.log(np.maximum(words, 1))
    learned = float(log_odds(np.array(ordinary)))
    groups = np.array_split(lengths.argsort(kind="stable"), max(1, len(scores) // _OF_LENGTH))
    middle, high = np.array([np.quantile(scores[group], (0.5, 1 - _WRONG)) for group in groups]).T
    own = middle + (high - middle) * np.log(50) / np.log(0.5 / _WRONG)
    levels = learned + min(1.0, len(scores) / _ENOUGH) * (own - learned)
    levels = np.clip(levels, learned, learned + MOST_RISE)
    centres = np.array([lengths[group].mean() for group in groups])
    between = (scores > learned) & (scores <= np.interp(lengths, centres, levels))
    return TextAlarms(ordinary, shares, centres, levels, len(scores), int(between.sum()))


def _shares_of_text(shares: Mapping[str, float], breaks: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the share of right pairs of a text that break each rule, at least the learned share."""
    result = dict(shares)
    for name, wrong in _WRONG_BY_RULE.items():
        applies = [rules[name] for rules in breaks if name in rules]
        broken = sum(found is not None for found in applies)
        # two more may be wrong by chance in a short text
        result[name] = max(shares.get(name, 0.0), (broken - wrong * len(applies) - 2) / max(1, len(applies)))
    return result
