"""Set the alarm of a check on a text without labels, and estimate the false alarms of an alarm on a text.

Most lines of a text are right, but the lines with the largest scores may not be. The bulk is reliable: the odds of its
lines to exceed a level are the odds of clean lines times a factor, the same at each level. The factor is fitted on the
bulk and gives the level that a share of the right lines exceeds. Only the order of scores counts, not their scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .check_model import CLEAN_SHARES, CheckModel
from .logistic import log_odds, sigmoid

FEWEST = 200  # lines
_BULK = (0.3, 0.85)  # shares of clean lines below the lowest and the highest level of the bulk
_TAIL, _MOST_FAULTY, _ROUNDS = 0.97, 0.3, 5  # faulty lines are counted above the level of 3 % of the clean lines
_MAX_MISFIT = 0.8  # log-odds between a level and the fit
_BEYOND = 10.0  # nats


@dataclass(frozen=True)
class TextAlarm:
    """Effect of an alarm on a text.

    Args:
        alarm: Probability of `wrong` above which a line is flagged.
        right: Expected share of right lines above the alarm; None if it cannot be estimated.
        flagged: Share of all lines above the alarm.
        lines: Number of lines.
        why: Reason why `right` cannot be estimated. Default: "".
    """

    alarm: float
    right: float | None
    flagged: float
    lines: int
    why: str = ""

    def __str__(self) -> str:
        share = f"The alarm {self.alarm:.2g} flags {100 * self.flagged:.1f} % of {self.lines} lines"
        if self.right is None:
            return f"{share}; the share of false alarms is unknown: {self.why}."
        return f"{share}, and about {100 * self.right:.1f} % of the right lines."


def alarm_for(model: CheckModel, scores: np.ndarray, false_alarms: float) -> TextAlarm:
    """Return the alarm that a share of the right lines of a text exceeds.

    Args:
        model: Model learned from clean text.
        scores: Log-odds of `wrong`, (lines,).
        false_alarms: Share of right lines above the alarm, between 0 and 1.
    """
    more, why = _shift(model, scores)
    if not len(model.clean):
        return TextAlarm(model.alarm, None, 0.0, len(scores), why)
    levels, below = _levels(model)
    bar = float(np.interp(float(log_odds(np.array(1 - false_alarms))) + more, below, levels))
    flagged = float((scores > bar).mean()) if len(scores) else 0.0
    return TextAlarm(float(sigmoid(np.array(bar))), None if why else false_alarms, flagged, len(scores), why)


def meaning(model: CheckModel, wrong: Sequence[float]) -> TextAlarm:
    """Return the effect of a model's alarm on a text, from the probability `wrong` of each line."""
    scores, bar = log_odds(np.asarray(wrong, dtype=float)), float(log_odds(np.array(model.alarm)))
    more, why = _shift(model, scores)
    right = None
    if not why:
        levels, below = _levels(model)
        right = float(sigmoid(more - np.interp(bar, levels, below)))
    flagged = float((scores > bar).mean()) if len(scores) else 0.0
    return TextAlarm(model.alarm, right, flagged, len(scores), why)


def _levels(model: CheckModel) -> tuple[np.ndarray, np.ndarray]:
    """Return levels of the log-odds of `wrong`, ascending, and the log-odds of a clean line to be below each.

    Beyond the highest level of clean text, both grow at the same rate.
    """
    levels, last = np.unique(model.clean[::-1], return_index=True)
    below = log_odds(np.array(CLEAN_SHARES)[::-1][last])
    return np.append(levels, levels[-1] + _BEYOND), np.append(below, below[-1] + _BEYOND)


def _shift(model: CheckModel, scores: np.ndarray) -> tuple[float, str]:
    """Return the shift of the log-odds of a line to exceed a level, and the reason if it is not reliable."""
    if not len(model.clean):
        return 0.0, "an encoder was not fitted to clean text"
    if len(scores) < FEWEST:
        return 0.0, f"fewer than {FEWEST} lines"
    levels, below = _levels(model)
    bulk = (below >= log_odds(np.array(_BULK[0]))) & (below <= log_odds(np.array(_BULK[1])))
    if not bulk.any():
        return 0.0, "the clean text of its check has lines that all score alike"
    above = np.array([(scores > level).mean() for level in levels])
    tail = np.searchsorted(below, log_odds(np.array(_TAIL)))
    least = 0.5 / len(scores)
    faulty: float = 0.0
    for _ in range(_ROUNDS):
        right = np.clip((above[bulk] - faulty) / (1 - faulty), least, 1 - least)
        off = log_odds(right) + below[bulk]
        more = float(off.mean())
        expected = float(sigmoid(more - below[tail]))
        faulty = min(_MOST_FAULTY, max(0.0, float((above[tail] - expected) / (1 - expected))))
    return more, "its lines are too unlike the clean text" if np.abs(off - more).max() > _MAX_MISFIT else ""
