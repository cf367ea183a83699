"""Probability that nobody said a word, learned from words planted into spoken text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.layouts import TIMES_FILE

from .observed import EVIDENCE

ALARMS = 0.01  # share of spoken words that are marked
_PENALTY = 1e-3


@dataclass(frozen=True)
class Unspoken:
    """Logistic regression from the evidence of `Observation.evidence` to the probability that nobody said a word.

    Args:
        mean, deviation: mean and standard deviation of the evidence.
        weights: bias and weights of the standardised evidence.
        alarm: probability above which a word is marked; 1 in 100 spoken words of held-out speech exceed it.
    """

    mean: Sequence[float]
    deviation: Sequence[float]
    weights: Sequence[float]
    alarm: float = 0.5

    @classmethod
    def learn(cls, evidence: np.ndarray, planted: np.ndarray) -> "Unspoken":
        """Learn from the evidence of words, (words, `EVIDENCE`), and which of them were planted, (words,)."""
        mean, deviation = evidence.mean(axis=0), evidence.std(axis=0) + 1e-6
        values, truths = torch.from_numpy((evidence - mean) / deviation), torch.from_numpy(planted).double()
        weights = torch.zeros(values.shape[1] + 1, dtype=torch.double, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            odds = values @ weights[1:] + weights[0]
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(odds, truths)
            total = entropy + _PENALTY * weights[1:].square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)
        return cls(mean.tolist(), deviation.tolist(), weights.tolist())

    def probabilities(self, evidence: np.ndarray) -> np.ndarray:
        """Return the probability of each word that nobody said it, (words,)."""
        odds = (evidence - self.mean) / self.deviation @ np.array(self.weights[1:]) + self.weights[0]
        return 1 / (1 + np.exp(-np.clip(odds, -30, 30)))

    def save(self, folder: str | Path) -> None:
        """Write the file into the folder of the observer."""
        write_sealed(asdict(self), Path(folder) / TIMES_FILE)

    @classmethod
    def load(cls, folder: str | Path) -> "Unspoken":
        """Read the file from the folder of the observer.

        Raises:
            ValueError: the file is missing or was changed, or belongs to another observer.
        """
        with sealed(Path(folder) / TIMES_FILE) as values:
            loaded = cls(**values)
            if len(loaded.weights) != len(EVIDENCE) + 1 or len(loaded.mean) != len(EVIDENCE):
                raise ValueError(f"`weights` must have {len(EVIDENCE) + 1} values, got {len(loaded.weights)}")
            return loaded


BY_NULL = Unspoken((0, 0, 0), (1, 1, 1), (0, 1, 0, 0))  # the weight of NULL, in place of a learned probability
