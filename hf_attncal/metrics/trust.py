"""The one verdict on the attention of a model: whether it may be read as what the model translates from.

It goes by what taking source tokens away does to the log-probability of target tokens. `inference/source_use.py`
measures that on any encoder-decoder; here are its means over a corpus, and what they come to.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from .base import FEWEST_SENTENCES, Measured, Metric, ratio

Level = Literal["do not", "in part", "trust"]
# Nats of a target token. A loss below the first is as good as none; with the second, another source makes the target
# less likely by the factor e at each token.
LEAST_LOSS, MUCH_LOSS = 0.05, 1.0
ENOUGH = 0.7  # of what the best tokens come to: then two thirds of the links are right (docs/log.md)
_LOSS = Metric("SourceUse", ratio)
_SHARE = Metric("SourceUse", lambda sums: _share(sums))
_OPENINGS = {
    "trust": "Trust the attention of this model",
    "in part": "Trust the attention of this model in part",
    "do not": "Do not trust the attention of this model",
}


@dataclass(frozen=True)
class SourceUse:
    """What a model loses without its source, or parts of it: sums over each pair, (pairs, 2) each.

    All but the first are falls, in nats, of the log-probability of target tokens when one source token gives way to
    another: those that somebody names, less the mean of all source tokens; and, in the second column, those that are
    best, less the same mean.

    Args:
        swapped: falls when the source is that of another pair; and target tokens. None without two different sources.
        attention, diagonal, contribution: of the tokens with the most attention, in the same place, and with the
            largest contribution. `contribution` is None without masks, or if none carries information.
        informed: at how many of the target tokens masks tell source tokens apart; None for a model without masks.
    """

    swapped: np.ndarray | None
    attention: np.ndarray
    diagonal: np.ndarray
    contribution: np.ndarray | None
    informed: float | None


@dataclass(frozen=True)
class AttentionVerdict:
    """Whether to trust the attention of a model, and why; printed, a sentence or two.

    Args:
        level: "trust", "in part" or "do not".
        reasons: what decided, in words.
        missing: what was not measured, in words; of a verdict "trust" nothing is.
        measured: the numbers behind it, by name.
    """

    level: Level
    reasons: tuple[str, ...]
    missing: tuple[str, ...]
    measured: dict[str, Measured | float | int | None]

    def __str__(self) -> str:
        missing = f" Not measured: {'; '.join(self.missing)}." if self.missing else ""
        return f"{_OPENINGS[self.level]}: {'; '.join(self.reasons)}.{missing}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; `text` is what is printed."""
        numbers = {name: asdict(of) if isinstance(of, Measured) else of for name, of in self.measured.items()}
        return {"level": self.level, "text": str(self), "missing": list(self.missing), "measured": numbers}


def verdict_of(use: SourceUse | None, *, bootstrap: int = 1000, seed: int = 0) -> AttentionVerdict:
    """Decide whether to trust the attention of a model; every number counts with the cautious end of its interval.

    - "do not": the model hardly loses anything with another source, or the tokens with the most attention are not
      shown to matter more than any others and than those in the same place; or one of the two was not measured.
    - "trust": it loses much; the tokens with the most attention come to seven tenths of the best; and the masks tell
      source tokens apart, and name those that matter better than chance.
    - "in part": all between.

    Args:
        use: what was measured; None for nothing.
        bootstrap, seed: of the intervals over pairs; without any, or with fewer than `FEWEST_SENTENCES` pairs, nothing
            is shown.
    """
    if use is None:
        lacking = f"what it loses without its source, on {FEWEST_SENTENCES} sentence pairs or more"
        return AttentionVerdict("do not", ("nothing is shown",), (lacking,), {"pairs": 0})
    if not all(np.isfinite(of).all() for of in (use.swapped, use.attention, use.diagonal) if of is not None):
        reason = "its log-probabilities are not finite numbers"
        return AttentionVerdict("do not", (reason,), ("all else",), {"pairs": len(use.attention)})
    pairs = len(use.attention)
    judged = _Judged({"pairs": pairs, "source": None, "masks": use.informed}, bootstrap, seed)
    if pairs < FEWEST_SENTENCES or not bootstrap:
        judged.against.append("nothing is shown")
        few = f"intervals, for which {FEWEST_SENTENCES} sentence pairs are the least, and there are {pairs}"
        judged.missing.append(few)
    judged.source(use)
    judged.attention(use)
    judged.masks(use)
    missing = tuple(judged.missing)
    if judged.against:
        return AttentionVerdict("do not", tuple(judged.against), missing, judged.measured)
    if judged.short or missing:
        return AttentionVerdict("in part", (*judged.short, *judged.good), missing, judged.measured)
    return AttentionVerdict("trust", tuple(judged.good), (), judged.measured)


@dataclass
class _Judged:
    """Reasons of a verdict, collected: against the attention, for trust in part, for trust; and what is missing."""

    measured: dict[str, Measured | float | int | None]
    bootstrap: int
    seed: int
    against: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def source(self, use: SourceUse) -> None:
        """Judge by what the model loses with another source."""
        if use.swapped is None:
            self.against.append("whether it reads its source is not known")
            self.missing.append("what it loses with another source, for which two different ones are needed")
            return
        loss = self.measured["source"] = _LOSS.measured(use.swapped, self.bootstrap, self.seed)
        with_another = f"with another sentence as its source a target token loses {_told(loss, ' nats')}"
        least = loss.interval[0] if loss.interval else loss.value
        if least < LEAST_LOSS:
            self.against.append(f"it is not shown to read its source, for {with_another}")
        elif least < MUCH_LOSS:
            self.short.append(f"it leans on its source little, for {with_another}")
        else:
            self.good.append(f"it reads its source, for {with_another}")

    def attention(self, use: SourceUse) -> None:
        """Judge by how much the tokens with the most attention matter."""
        share = self.measured["attention"] = _SHARE.measured(use.attention, self.bootstrap, self.seed)
        ahead = _SHARE.difference(use.attention, use.diagonal, max(self.bootstrap, 1), self.seed)
        self.measured["above_diagonal"] = ahead
        most = "the source tokens with the most attention"
        come_to = f"come to {_told(share, ' %')} of what the best ones do, where chance comes to 0"
        if share.interval and share.interval[0] <= 0:
            self.against.append(f"{most} are not shown to matter more than any others: they {come_to}")
        elif ahead.interval and ahead.interval[0] <= 0:
            diagonal = _SHARE.measured(use.diagonal, self.bootstrap, self.seed)
            self.against.append(
                f"{most} are not shown to matter more than those in the same place, for which nobody has to look at "
                f"it: they {come_to}, the diagonal to {_told(diagonal, ' %')}"
            )
        else:
            few = share.interval and share.interval[0] < ENOUGH
            (self.short if few else self.good).append(f"{most} {come_to}")

    def masks(self, use: SourceUse) -> None:
        """Judge by whether masks name the source tokens that matter."""
        if use.informed is None:
            self.missing.append("masks, which it does not have, and so contributions")
        elif use.contribution is None:
            self.short.append(
                f"its masks have learned nothing (they tell source tokens apart at {100 * use.informed:.0f} % of the "
                "target tokens), so that contributions say nothing"
            )
        else:
            named = self.measured["contributions"] = _SHARE.measured(use.contribution, self.bootstrap, self.seed)
            told = f"those with the largest contribution come to {_told(named, ' %')}"
            learned = named.interval and named.interval[0] > 0
            (self.good if learned else self.short).append(
                told if learned else f"its masks have learned nothing: {told}"
            )


def _told(measured: Measured, unit: str) -> str:
    """Write a number with its unit, and its interval if it has one."""
    numbers = measured.value, *(measured.interval or ())
    value, *bounds = (f"{100 * number:z.0f}" if unit == " %" else f"{number:z.2f}" for number in numbers)
    return f"{value}{unit} ({bounds[0]} to {bounds[1]})" if bounds else f"{value}{unit}"


def _share(sums: np.ndarray) -> np.ndarray:
    """Divide what somebody's tokens come to by what the best do, (..., 2) to (...), from -1 to 1; 0 of nothing."""
    return np.where(sums[..., 1] > 0, sums[..., 0] / np.maximum(sums[..., 1], 1e-9), 0).clip(-1, 1)
