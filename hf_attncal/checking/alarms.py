"""Set the alarm of a check on a text without labels, clean or not, and say what an alarm means on a text.

Most lines of a text are right, but not all, so its largest scores tell nothing of right lines. The log-odds of the
bulk do: they are those of clean text, moved and stretched, and so is the bar that a share of right lines exceeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .check_model import CLEAN_SHARES, CheckModel
from .logistic import log_odds

FEWEST = 200  # lines that a bulk is told by
_BULK = (0.1, 0.7)  # shares of the lines, the least suspect first, that are held to be right
_TAIL, _MOST_FAULTY, _ROUNDS = 0.97, 0.3, 5  # faulty lines are counted where 3 % of the right ones are
_MOST_STRETCHED, _MOST_OFF = 2.0, 0.35  # standard deviations of clean text, as one of the text's own
_FLAT = 0.1  # standard deviation of log-odds of a bulk in which nothing is suspect: all lies at one end


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
    moved, stretched, why = _fit(model, scores)
    if model.clean is None:
        return TextAlarm(model.alarm, None, 0.0, len(scores), why)
    bar = moved + stretched * float(np.interp(1 - false_alarms, CLEAN_SHARES, model.clean))
    flagged = float((scores > bar).mean()) if len(scores) else 0.0
    return TextAlarm(float(model.wrong_of(bar)), None if why else false_alarms, flagged, len(scores), why)


def meaning(model: CheckModel, wrong: Sequence[float]) -> TextAlarm:
    """Return what the alarm of a model means on a text whose lines are `wrong` with these probabilities."""
    scores = log_odds(np.asarray(wrong, dtype=float))
    moved, stretched, why = _fit(model, scores)
    right = None
    if not why:
        bar = (float(log_odds(np.array(model.alarm))) - moved) / stretched
        right = 1 - float(np.interp(bar, model.clean, CLEAN_SHARES))
    flagged = float((scores > log_odds(np.array(model.alarm))).mean()) if len(scores) else 0.0
    return TextAlarm(model.alarm, right, flagged, len(scores), why)


def _fit(model: CheckModel, scores: np.ndarray) -> tuple[float, float, str]:
    """Return by how much the bulk of a text is moved and stretched beside clean text, and why that is not to trust."""
    if model.clean is None:
        return 0.0, 1.0, "an encoder has learned no clean text of yours"
    if len(scores) < FEWEST:
        return 0.0, 1.0, f"fewer than {FEWEST} lines"
    shares = np.array([share for share in CLEAN_SHARES if _BULK[0] <= share <= _BULK[1]])
    theirs, faulty = np.interp(shares, CLEAN_SHARES, model.clean), 0.0
    for _ in range(_ROUNDS):  # faulty lines push right ones down the order
        ours = np.quantile(scores, shares * (1 - faulty))
        flat = max(ours.std(), theirs.std()) < _FLAT
        common = float(np.cov(ours, theirs, bias=True)[0, 1])
        stretched = 1.0 if flat else max(1e-3, common / max(float(theirs.var()), 1e-9))
        moved = float(ours.mean() - stretched * theirs.mean())
        beyond = moved + stretched * float(np.interp(_TAIL, CLEAN_SHARES, model.clean))
        faulty = min(_MOST_FAULTY, max(0.0, (float((scores > beyond).mean()) - 1 + _TAIL) / _TAIL))
    off = float(np.abs(ours - moved - stretched * theirs).max()) / max(float(ours.std()), _FLAT if flat else 1e-9)
    if not 1 / _MOST_STRETCHED <= stretched <= _MOST_STRETCHED or off > _MOST_OFF:
        return moved, stretched, "its lines are too unlike the clean text"
    return moved, stretched, ""
