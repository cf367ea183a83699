"""Turn the scores of links into probabilities that the links are right: Platt scaling, learned on annotated pairs.

`p = sigmoid(slope * logit(score) + intercept)` (Platt 1999) keeps the order of the scores. Both parameters are learned
for each symmetrisation (`gold.calibrate_links`).

They hold for text like the annotated pairs. On other text scores are too high, and a calibration that raises them
makes it worse. So `p' = p + d (min(p, score) - p)`: with d = 1, no probability is above its score. d rises from 0 to 1
as the pair's share of uncounted tokens goes from the median of the annotated pairs to their third quartile, or its
score from their median to their first quartile, whichever is further.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_attncal.inference.files import file_beside
from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.layouts import PROBABILITIES_FILE

from .links import SYMMETRIZATIONS, WordAlignment

# Scores are clipped to [_CLIP, 1 - _CLIP]. Chosen on dev (docs/log.md).
_CLIP = 1e-3
# Quantiles of the annotated pairs: d is 0 up to the first and 1 from the second on. Chosen on dev of several texts
# (docs/log.md).
LIKE, UNLIKE = 0.5, 0.75
_ALWAYS_UNLIKE = 2.0, 1.0  # range of scores that no score reaches, so that d is 1


class Platt(NamedTuple):
    """`p = sigmoid(slope * logit(score) + intercept)`."""

    slope: float
    intercept: float

    @classmethod
    def fit(cls, scores: Sequence[float], right: Sequence[bool]) -> "Platt":
        """Fit both parameters by maximum likelihood. Platt's targets are inside (0, 1), so both are finite.

        Raises:
            ValueError: no scores.
        """
        if not len(scores):
            raise ValueError("`scores` must have at least one link to learn probabilities from, got none.")
        x, y = torch.from_numpy(_logits(scores)), torch.tensor(right, dtype=torch.float64)
        hits = float(y.sum())
        targets = torch.where(y > 0, (hits + 1) / (hits + 2), 1 / (len(y) - hits + 2))
        parameters = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = torch.nn.functional.binary_cross_entropy_with_logits(parameters[0] * x + parameters[1], targets)
            value.backward()
            return value

        with torch.enable_grad():
            optimizer.step(loss)
        return cls(*parameters.tolist())

    def of(self, scores: Sequence[float]) -> tuple[float, ...]:
        """Return the probability of each score."""
        return tuple((1 / (1 + np.exp(-self.slope * _logits(scores) - self.intercept))).tolist())


def _rise(value: float, begin: float, end: float) -> float:
    """Return 0 up to `begin`, 1 from `end` on, and a linear rise in between."""
    if begin < value < end:
        return (value - begin) / (end - begin)
    return float(value > begin)


def _logits(scores: Sequence[float]) -> np.ndarray:
    clipped = np.clip(np.asarray(scores, dtype=float), _CLIP, 1 - _CLIP)
    return np.log(clipped) - np.log1p(-clipped)


@dataclass(frozen=True)
class LinkProbabilities:
    """Rules that turn the score of a link into the probability that it is right.

    Args:
        rules: Platt parameters by symmetrisation.
        pairs: Number of annotated pairs that the rules were learned from.
        settings: Attention settings of an encoder-decoder. Default: None, the default reading or another model.
        unknown: Shares of uncounted tokens at which d starts to rise and reaches 1. Default: None, no counts.
        score: Pair scores at which d starts to rise and reaches 1. Default: None.

    Raises:
        ValueError: no rules or an unknown symmetrisation; a slope not above 0, or an intercept that is not finite;
            `pairs` below 1; decreasing shares, or increasing scores.
    """

    rules: Mapping[str, Platt]
    pairs: int
    settings: Mapping[str, Any] | None = None
    unknown: tuple[float, float] | None = None
    score: tuple[float, float] | None = None

    def __post_init__(self):
        if not self.rules or not set(self.rules) <= set(SYMMETRIZATIONS):
            raise ValueError(f"`rules` must have keys of {SYMMETRIZATIONS}, one or more, got {list(self.rules)}.")
        for name, rule in self.rules.items():
            if not (0 < rule.slope < math.inf and math.isfinite(rule.intercept)):
                raise ValueError(f"`rules` must have a slope above 0 and a finite intercept, got {rule} for {name!r}.")
        if self.pairs < 1:
            raise ValueError(f"`pairs` must be >= 1, got {self.pairs}.")
        if self.unknown is not None and self.unknown[0] > self.unknown[1]:
            raise ValueError(f"`unknown` must be two shares, the smaller first, or None, got {self.unknown}.")
        if self.score is not None and self.score[0] < self.score[1]:
            raise ValueError(f"`score` must be two scores, the larger first, or None, got {self.score}.")

    def shift(self, unknown: float | None, score: float | None) -> float:
        """Return d of a pair: 0 for a pair like the annotated ones, 1 for an unlike one.

        Args:
            unknown: Share of the pair's tokens that were never counted.
            score: Score of the pair.
        """
        shifts = [0.0]
        if unknown is not None and self.unknown is not None:
            shifts.append(_rise(unknown, *self.unknown))
        if score is not None and self.score is not None:
            shifts.append(_rise(-score, -self.score[0], -self.score[1]))
        return max(shifts)

    def of_another_text(self) -> "LinkProbabilities":
        """Return rules for a model that was adapted: every pair is unlike the annotated ones."""
        return replace(self, score=_ALWAYS_UNLIKE)

    def applied(
        self, alignment: WordAlignment, least: float | None = None, unknown: float | None = None
    ) -> WordAlignment:
        """Replace the scores of an alignment by probabilities.

        Args:
            alignment: Alignment with the model's scores.
            least: Minimum probability of a link. Default: None, all links.
            unknown: Share of the pair's tokens that were never counted. Default: None, unknown.
        """
        scores = self.rules[alignment.symmetrization].of(alignment.scores)
        shift = self.shift(unknown, alignment.score)
        if shift:
            scores = tuple(p + shift * (min(p, s) - p) for p, s in zip(scores, alignment.scores, strict=True))
        probable = replace(alignment, scores=scores, calibrated=True, shift=shift)
        return probable if least is None else probable.at_least(least)

    def check(self, symmetrization: str, settings: Mapping[str, Any] | None) -> None:
        """Raise ValueError unless the rules were learned for this symmetrisation and these settings."""
        if settings != self.settings:
            raise ValueError(
                f"`settings` of the link probabilities are {self.settings}, got {settings}. Calibrate again, or use "
                "the scores of the model."
            )
        if symmetrization not in self.rules:
            raise ValueError(
                f"`symmetrize` must be one of {list(self.rules)}, for which link probabilities were learned, got "
                f"{symmetrization!r}. Choose one of these, or use the scores of the model."
            )

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Save the rules in `folder`, for its checkpoint or for another `model`; return the path of the file."""
        path = Path(folder) / PROBABILITIES_FILE
        rules = {name: rule._asdict() for name, rule in self.rules.items()}
        values = {"pairs": self.pairs, "settings": self.settings, "rules": rules}
        write_sealed({**values, "unknown": self.unknown, "score": self.score}, path, model)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "LinkProbabilities":
        """Load the rules from a file.

        Raises:
            ValueError: the file holds something else, or belongs to another model. The message names it.
        """
        with sealed(Path(path)) as values:
            rules = {name: Platt(**rule) for name, rule in values["rules"].items()}
            ends = (None if values.get(name) is None else tuple(values[name]) for name in ("unknown", "score"))
            return cls(rules, values["pairs"], values.get("settings"), *ends)


def saved_probabilities(name: str | Path, revision: str | None = None) -> LinkProbabilities | None:
    """Load the rules saved with a checkpoint or an adapter, in a folder or on the Hub; None if there are none.

    Raises:
        ValueError: see `LinkProbabilities.load`.
    """
    file = file_beside(name, PROBABILITIES_FILE, revision)
    return None if file is None else LinkProbabilities.load(file)
