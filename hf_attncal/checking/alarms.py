"""Set the alarm of a check on a text without labels, clean or not, and say what an alarm means on a text.

Most lines of a text are right, but not all, so its largest scores tell nothing of right lines. The bulk does: the odds
of its lines to lie above a level are those of clean lines times a factor, the same at each level. So the factor that
the bulk tells says which level a share of the right lines exceeds. Only the order of scores counts, not their scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .check_model import CLEAN_SHARES, CheckModel
from .logistic import log_odds, sigmoid

FEWEST = 200  # lines that a bulk is told by
_BULK = (0.3, 0.85)  # shares of clean lines below the levels that are looked at
_TAIL, _MOST_FAULTY, _ROUNDS = 0.97, 0.3, 5  # faulty lines are counted where 3 % of clean ones are
_MOST_OFF = 0.8  # log-odds at a level
_BEYOND = 10.0  # nats


@dataclass(frozen=True)
class TextAlarm:
    """What an alarm means on a text.

    Args:
        alarm: probability of `wrong` above which a line is flagged.
        right: share of the right lines that are expected above it; None if the text tells too little.
        flagged: share of all lines that are above it.
        lines: that were looked at.
        why: why too little is told; empty where enough is.
    """

    alarm: float
    right: float | None
    flagged: float
    lines: int
    why: str = ""

    def __str__(self) -> str:
        told = f"The alarm {self.alarm:.2g} flags {100 * self.flagged:.1f} % of the {self.lines} lines looked at"
        if self.right is None:
            return f"{told}; how many of them are right is not known: {self.why}."
        return f"{told}, and would flag about {100 * self.right:.1f} % of right lines."


def alarm_for(model: CheckModel, scores: np.ndarray, false_alarms: float) -> TextAlarm:
    """Return the alarm that a share of the right lines of a text exceeds.

    Args:
        model: learned from clean text.
        scores: log-odds of `wrong` of the lines, (lines,).
        false_alarms: that share, above 0 and below 1.
    """
    more, why = _shift(model, scores)
    if not len(model.clean):
        return TextAlarm(model.alarm, None, 0.0, len(scores), why)
    levels, below = _levels(model)
    bar = float(np.interp(float(log_odds(np.array(1 - false_alarms))) + more, below, levels))
    flagged = float((scores > bar).mean()) if len(scores) else 0.0
    return TextAlarm(float(sigmoid(np.array(bar))), None if why else false_alarms, flagged, len(scores), why)


def meaning(model: CheckModel, wrong: Sequence[float]) -> TextAlarm:
    """Return what the alarm of a model means on a text whose lines are `wrong` with these probabilities."""
    scores, bar = log_odds(np.asarray(wrong, dtype=float)), float(log_odds(np.array(model.alarm)))
    more, why = _shift(model, scores)
    right = None
    if not why:
        levels, below = _levels(model)
        right = float(sigmoid(more - np.interp(bar, levels, below)))
    flagged = float((scores > bar).mean()) if len(scores) else 0.0
    return TextAlarm(model.alarm, right, flagged, len(scores), why)


def _levels(model: CheckModel) -> tuple[np.ndarray, np.ndarray]:
    """Return log-odds of `wrong`, ascending, and the log-odds of a clean line to lie below each.

    Beyond the last of clean text, one nat more is one nat less likely.
    """
    levels, last = np.unique(model.clean[::-1], return_index=True)
    below = log_odds(np.array(CLEAN_SHARES)[::-1][last])
    return np.append(levels, levels[-1] + _BEYOND), np.append(below, below[-1] + _BEYOND)


def _shift(model: CheckModel, scores: np.ndarray) -> tuple[float, str]:
    """Return by how much a text raises the log-odds of a line to lie above a level, and why that is not to trust."""
    if not len(model.clean):
        return 0.0, "an encoder has learned no clean text of yours"
    if len(scores) < FEWEST:
        return 0.0, f"fewer than {FEWEST} lines"
    levels, below = _levels(model)
    bulk = (below >= log_odds(np.array(_BULK[0]))) & (below <= log_odds(np.array(_BULK[1])))
    if not bulk.any():
        return 0.0, "its check learned from lines that all look alike"
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
    return more, "its lines are too unlike the clean text" if np.abs(off - more).max() > _MOST_OFF else ""
