"""Scores of links as probabilities that the links are right: Platt scaling, learned on annotated pairs.

A score says how sure a model is, and most are too sure. `p = sigmoid(slope * logit(score) + intercept)` (Platt 1999)
keeps the order of the scores. Its two parameters are learned for each way to merge the directions (`gold.calibrate`).

They hold for text like that they were learned from. In other text scores promise too much, and a calibration that
raises them makes it worse. So `p' = p + d (min(p, score) - p)`: for a pair unlike the annotated ones, d = 1, no
probability is above its score. d rises from 0 to 1 as the share of the pair's tokens that were never counted goes from
the median of the annotated pairs to their third quartile, or its score from the median to the first quartile,
whichever is further.
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

from .links import SYMMETRIZATIONS
from .merging import WordAlignment

# Scores are taken between it and 1 minus it: beyond, they tell nothing more. Chosen on dev, as the form was
# (docs/log.md).
_LEAST = 1e-3
# Quantiles of the annotated pairs, by how far they are from the middle: up to the first a pair is like them, and from
# the second on unlike. Chosen on dev of several texts (docs/log.md).
LIKE, UNLIKE = 0.5, 0.75
_NEVER = 2.0, 1.0  # a score from which every pair is unlike


class Platt(NamedTuple):
    """`p = sigmoid(slope * logit(score) + intercept)`."""

    slope: float
    intercept: float

    @classmethod
    def fit(cls, scores: Sequence[float], right: Sequence[bool]) -> "Platt":
        """Fit both numbers by maximum likelihood, with Platt's targets: inside 0 to 1, so always finite.

        Raises:
            ValueError: no score.
        """
        if not len(scores):
            raise ValueError("There is no link to learn probabilities from.")
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
    """Return 0 up to `begin`, 1 from `end` on, and in between the share of the way."""
    if begin < value < end:
        return (value - begin) / (end - begin)
    return float(value > begin)


def _logits(scores: Sequence[float]) -> np.ndarray:
    clipped = np.clip(np.asarray(scores, dtype=float), _LEAST, 1 - _LEAST)
    return np.log(clipped) - np.log1p(-clipped)


@dataclass(frozen=True)
class LinkProbabilities:
    """From the score of a link to the probability that the link is right.

    Args:
        rules: of each symmetrisation.
        pairs: number of annotated pairs that it was learned from.
        settings: which attention of an encoder-decoder was read; None where its default was, and for other models.
        unknown: shares of the tokens of a pair that the model never counted, up to which a pair is like those, and
            from which on unlike; None for models that do not count.
        score: scores of a pair, down to which it is like those, and from which on unlike; None where nothing is known.

    Raises:
        ValueError: no rule, or one of an unknown symmetrisation; a slope that is not above 0, or an intercept that is
            not finite; `pairs` below 1; shares that fall, or scores that rise.
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
        """Return how far a pair is from the annotated ones: 0 like them, 1 unlike.

        Args:
            unknown: share of its tokens that the model never counted. score: that of the pair.
        """
        shifts = [0.0]
        if unknown is not None and self.unknown is not None:
            shifts.append(_rise(unknown, *self.unknown))
        if score is not None and self.score is not None:
            shifts.append(_rise(-score, -self.score[0], -self.score[1]))
        return max(shifts)

    def of_another_text(self) -> "LinkProbabilities":
        """Return the same for a model that has changed: every pair is unlike the annotated ones."""
        return replace(self, score=_NEVER)

    def applied(
        self, alignment: WordAlignment, least: float | None = None, unknown: float | None = None
    ) -> WordAlignment:
        """Return the alignment with probabilities for scores, without the links that have less than `least`.

        Args:
            unknown: share of the tokens of the pair that the model never counted; None where that is not known.
        """
        scores = self.rules[alignment.symmetrization].of(alignment.scores)
        links, shift = alignment.links, self.shift(unknown, alignment.score)
        if shift:
            scores = tuple(p + shift * (min(p, s) - p) for p, s in zip(scores, alignment.scores, strict=True))
        if least is not None:
            kept = [place for place, score in enumerate(scores) if score >= least]
            links, scores = tuple(links[place] for place in kept), tuple(scores[place] for place in kept)
        return replace(alignment, links=links, scores=scores, calibrated=True, shift=shift)

    def check(self, symmetrization: str, settings: Mapping[str, Any] | None) -> None:
        """Raise ValueError where it was not learned for that symmetrisation, or from another attention."""
        if settings != self.settings:
            raise ValueError(
                f"Link probabilities were learned with the settings {self.settings}, got {settings}. Calibrate again, "
                "or ask for scores as the model has them."
            )
        if symmetrization not in self.rules:
            raise ValueError(
                f"`symmetrize` must be one that link probabilities were learned for, {list(self.rules)}, got "
                f"{symmetrization!r}. Ask for one of these, or for scores as the model has them."
            )

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Write it beside the checkpoint in `folder`, or of another `model`; return the path of the file."""
        path = Path(folder) / PROBABILITIES_FILE
        rules = {name: rule._asdict() for name, rule in self.rules.items()}
        learned = {"pairs": self.pairs, "settings": self.settings, "rules": rules}
        write_sealed({**learned, "unknown": self.unknown, "score": self.score}, path, model)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "LinkProbabilities":
        """Read what `save` wrote.

        Raises:
            ValueError: the file holds something else, or was learned for another model; the message names it.
        """
        with sealed(Path(path)) as values:
            rules = {name: Platt(**rule) for name, rule in values["rules"].items()}
            ends = (None if values.get(name) is None else tuple(values[name]) for name in ("unknown", "score"))
            return cls(rules, values["pairs"], values.get("settings"), *ends)


def saved_probabilities(name: str | Path, revision: str | None = None) -> LinkProbabilities | None:
    """Load the probabilities beside a checkpoint or an adapter, in a folder or on the Hub; None where there are none.

    Raises:
        ValueError: see `LinkProbabilities.load`.
    """
    file = file_beside(name, PROBABILITIES_FILE, revision)
    return None if file is None else LinkProbabilities.load(file)
