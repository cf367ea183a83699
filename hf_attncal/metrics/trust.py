"""Verdict on the attention of a model: whether it shows the source tokens that the model uses.

The evidence is the fall of the log-probability of target tokens when source tokens are replaced.
`inference/source_use.py` measures these falls on any encoder-decoder model; this file averages and judges them.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from .base import FEWEST_SENTENCES, Measured, Metric, ratio

Level = Literal["do not", "in part", "trust"]
# Nats per target token. A loss below MIN_LOSS is as good as none. With LARGE_LOSS, another source makes each target
# token less likely by the factor e.
MIN_LOSS, LARGE_LOSS = 0.05, 1.0
TRUSTED_SHARE = 0.7  # share of the best tokens' effect at which two thirds of the links are right (docs/log.md)
_LOSS = Metric("SourceUse", ratio)
_SHARE = Metric("SourceUse", lambda sums: _share(sums))
_OPENINGS = {
    "trust": "Trust the attention of this model",
    "in part": "Trust the attention of this model in part",
    "do not": "Do not trust the attention of this model",
}


@dataclass(frozen=True)
class SourceUse:
    """Effect of the source on the target probabilities: sums over each pair, (pairs, 2) each.

    `attention`, `diagonal` and `contribution` are falls, in nats, of the log-probability of target tokens when one
    source token is replaced by another. The first column is the fall for the tokens that a method selects, minus the
    mean of all source tokens. The second is the fall for the best tokens, minus the same mean.

    Args:
        swapped: falls with the source of another pair, and numbers of target tokens. None without two different
            sources.
        attention: falls for the tokens with the most attention.
        diagonal: falls for the tokens at the same position.
        contribution: falls for the tokens with the largest contribution. None without masks, or if none carries
            information.
        informed: share of the target tokens at which masks distinguish source tokens. None for a model without masks.
        by_place: first column of `attention`, for the tokens with the most attention at each place where attention can
            be read, (pairs, layers, heads + 1, 2): the last head is the mean of all, and the steps are the one that
            predicts the target token and the next one, which reads it. Default: None, not measured.
    """

    swapped: np.ndarray | None
    attention: np.ndarray
    diagonal: np.ndarray
    contribution: np.ndarray | None
    informed: float | None
    by_place: np.ndarray | None = None


@dataclass(frozen=True)
class AttentionVerdict:
    """Verdict on the attention of a model, with its reasons. It prints as one or two sentences.

    Args:
        level: "trust", "in part" or "do not"; "do not" also if the attention could not be evaluated.
        reasons: reasons for the level; none if the attention could not be evaluated.
        missing: measures that could not be computed; none for the level "trust".
        measured: name -> number behind the verdict.
        advice: sentence with the layer, head and step at which to read the attention; "" if not known.
    """

    level: Level
    reasons: tuple[str, ...]
    missing: tuple[str, ...]
    measured: dict[str, Measured | float | int | None]
    advice: str = ""

    def __str__(self) -> str:
        if not self.reasons:
            return f"Attention not evaluated: {'; '.join(self.missing)}."
        missing = f" Not measured: {'; '.join(self.missing)}." if self.missing else ""
        return f"{_OPENINGS[self.level]}: {'; '.join(self.reasons)}.{self.advice}{missing}"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data for JSON; `text` is the printed form."""
        numbers = {
            name: asdict(value) if isinstance(value, Measured) else value for name, value in self.measured.items()
        }
        return {"level": self.level, "text": str(self), "missing": list(self.missing), "measured": numbers}


def verdict_of(use: SourceUse | None, *, pairs: int = 0, bootstrap: int = 1000, seed: int = 0) -> AttentionVerdict:
    """Return the verdict on the attention of a model. Each number counts with the lower end of its interval.

    - "do not": the model hardly loses anything with another source; or the tokens with the most attention do not
      clearly matter more than the average token and than the token at the same position.
    - "trust": the model loses much with another source; the tokens with the most attention reach 70 % of the effect of
      the best tokens; and masks distinguish source tokens and select those that matter better than chance.
    - "in part": all other cases.

    The attention is not evaluated with fewer than `FEWEST_SENTENCES` pairs, without resamples, or if nothing speaks
    against it but all sources are the same.

    Args:
        use: measured effects of the source; None if there are none.
        pairs: number of sentence pairs if `use` is None. Default: 0.
        bootstrap: number of resamples of the pairs. Default: 1000.
        seed: seed of the resamples.
    """
    if use is None:
        few = f"needs at least {FEWEST_SENTENCES} sentence pairs, got {pairs}"
        short = "needs source sentences of at least two words"
        return AttentionVerdict("do not", (), (few if pairs < FEWEST_SENTENCES else short,), {"pairs": pairs})
    if not all(np.isfinite(sums).all() for sums in (use.swapped, use.attention, use.diagonal) if sums is not None):
        reason = "its log-probabilities are not finite"
        return AttentionVerdict("do not", (reason,), ("everything else",), {"pairs": len(use.attention)})
    pairs = len(use.attention)
    judged = _Judged({"pairs": pairs, "source": None, "masks": use.informed}, bootstrap, seed)
    judged.source(use)
    judged.attention(use)
    advice = judged.place(use)
    judged.masks(use)
    if pairs < FEWEST_SENTENCES or not bootstrap:
        few = f"needs at least {FEWEST_SENTENCES} sentence pairs, got {pairs}"
        lacking = few if pairs < FEWEST_SENTENCES else "needs at least 1 resample (`bootstrap`), got 0"
        return AttentionVerdict("do not", (), (lacking,), judged.measured)
    missing = tuple(judged.missing)
    if judged.against:
        return AttentionVerdict("do not", tuple(judged.against), missing, judged.measured, advice)
    if use.swapped is None:
        return AttentionVerdict("do not", (), ("needs two different source sentences, got 1",), judged.measured)
    if judged.short or missing:
        return AttentionVerdict("in part", (*judged.short, *judged.good), missing, judged.measured, advice)
    return AttentionVerdict("trust", tuple(judged.good), (), judged.measured, advice)


@dataclass
class _Judged:
    """Reasons of a verdict, sorted by the level that they speak for, and the measures that are missing."""

    measured: dict[str, Measured | float | int | None]
    bootstrap: int
    seed: int
    against: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def source(self, use: SourceUse) -> None:
        """Judge by the loss with the source of another pair."""
        if use.swapped is None:
            self.missing.append("the loss with another source (needs two different sources)")
            return
        loss = self.measured["source"] = _LOSS.measured(use.swapped, self.bootstrap, self.seed)
        evidence = f"another source sentence costs a target token {_with_interval(loss, ' nats')}"
        least = loss.interval[0] if loss.interval else loss.value
        if least < MIN_LOSS:
            self.against.append(f"it does not clearly use its source, since {evidence}")
        elif least < LARGE_LOSS:
            self.short.append(f"it uses its source little, since {evidence}")
        else:
            self.good.append(f"it uses its source, since {evidence}")

    def attention(self, use: SourceUse) -> None:
        """Judge by the effect of the tokens with the most attention."""
        share = self.measured["attention"] = _SHARE.measured(use.attention, self.bootstrap, self.seed)
        ahead = _SHARE.difference(use.attention, use.diagonal, max(self.bootstrap, 1), self.seed)
        self.measured["above_diagonal"] = ahead
        diagonal = self.measured["diagonal"] = _SHARE.measured(use.diagonal, self.bootstrap, self.seed)
        most = "the source tokens with the most attention"
        effect = (
            f"have {_with_interval(share, ' %')} of the effect of the best tokens (random tokens: 0 %, tokens at the "
            f"same position: {_with_interval(diagonal, ' %')})"
        )
        if share.interval and share.interval[0] <= 0:
            self.against.append(f"{most} do not clearly matter more than others: they {effect}")
        elif ahead.interval and ahead.interval[0] <= 0:
            self.against.append(
                f"{most} do not clearly matter more than the tokens at the same position: they {effect}"
            )
        else:
            few = share.interval and share.interval[0] < TRUSTED_SHARE
            (self.short if few else self.good).append(f"{most} {effect}")

    def place(self, use: SourceUse) -> str:
        """Return a sentence with the best place to read the attention, chosen on every other pair."""
        if use.by_place is None or len(use.by_place) < 2 * FEWEST_SENTENCES or not self.bootstrap:
            return ""
        effects = use.by_place[::2].sum(axis=0)
        layer, head, step = (int(place) for place in np.unravel_index(effects.argmax(), effects.shape))
        sums = np.stack([use.by_place[1::2, layer, head, step], use.attention[1::2, 1]], axis=1)
        share = self.measured["best_place"] = _SHARE.measured(sums, self.bootstrap, self.seed)
        is_mean = head == effects.shape[1] - 1
        self.measured |= {"best_layer": layer, "best_head": None if is_mean else head, "best_step": step}
        heads = "the mean of its heads" if is_mean else f"its head {head}"
        steps = "reads" if step else "predicts"
        return (
            f" Read layer {layer} (counted from 0), {heads}, at the step that {steps} the target token: these tokens "
            f"have {_with_interval(share, ' %')} (chosen on half of the pairs, measured on the other half)."
        )

    def masks(self, use: SourceUse) -> None:
        """Judge by the effect of the tokens with the largest contribution."""
        if use.informed is None:
            self.missing.append("contributions (the model has no masks)")
        elif use.contribution is None:
            self.short.append(
                f"its masks have learned nothing (they distinguish source tokens at {100 * use.informed:.0f} % of the "
                "target tokens), so contributions mean nothing"
            )
        else:
            share = self.measured["contributions"] = _SHARE.measured(use.contribution, self.bootstrap, self.seed)
            effect = f"those with the largest contribution have {_with_interval(share, ' %')}"
            learned = share.interval and share.interval[0] > 0
            (self.good if learned else self.short).append(
                effect if learned else f"its masks have learned nothing: {effect}"
            )


def _with_interval(measured: Measured, unit: str) -> str:
    """Format a number with its unit and its interval, if any."""
    numbers = measured.value, *(measured.interval or ())
    value, *bounds = (f"{100 * number:z.0f}" if unit == " %" else f"{number:z.2f}" for number in numbers)
    return f"{value}{unit} ({bounds[0]} to {bounds[1]})" if bounds else f"{value}{unit}"


def _share(sums: np.ndarray) -> np.ndarray:
    """Divide the effect of the selected tokens by the best tokens', (..., 2) to (...), -1 to 1; 0 if the best is 0."""
    return np.where(sums[..., 1] > 0, sums[..., 0] / np.maximum(sums[..., 1], 1e-9), 0).clip(-1, 1)
