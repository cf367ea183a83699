"""Logistic regression, small networks, and log-odds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_DEVIATIONS = 5.0  # standard deviations at which a feature is clipped


def scaled_features(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip((values - scale[0]) / scale[1], -6, 6)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return the probabilities of log-odds."""
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return the log-odds of probabilities, clipped to 1e-9 and 1 - 1e-9."""
    probability = np.clip(probability, 1e-9, 1 - 1e-9)
    return np.log(probability) - np.log1p(-probability)


def mean_odds(probabilities: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Return the probabilities with the (weighted) mean log-odds of the judges."""
    if len(probabilities) == 1:
        return probabilities[0]
    odds = np.stack([log_odds(one) for one in probabilities])
    shares = np.ones_like(odds) if weights is None else np.stack(weights).astype(float)
    return sigmoid((odds * shares).sum(axis=0) / np.maximum(shares.sum(axis=0), 1e-9))


@dataclass(frozen=True)
class Network:
    """Network of `tanh` layers from standardised features to log-odds; with one layer, a logistic regression.

    Args:
        scale: Mean and standard deviation of the features, (2, F).
        layers: Weights of each layer, (inputs + 1, outputs), with the biases in the last row.
    """

    scale: np.ndarray
    layers: tuple[np.ndarray, ...]

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return the log-odds, (rows,), from features (rows, F)."""
        values = np.clip((features - self.scale[0]) / self.scale[1], -MOST_DEVIATIONS, MOST_DEVIATIONS)
        for weights in self.layers[:-1]:
            values = np.tanh(values @ weights[:-1] + weights[-1])
        return (values @ self.layers[-1][:-1] + self.layers[-1][-1])[:, 0]

    def to_dict(self) -> dict[str, list]:
        """Return plain data with six digits."""
        return {"scale": _rounded(self.scale), "layers": [_rounded(one) for one in self.layers]}

    @classmethod
    def from_dict(cls, values: dict) -> "Network":
        return cls(np.array(values["scale"], float), tuple(np.array(one, float) for one in values["layers"]))


UNTRAINED = Network(np.zeros((2, 0)), ())  # placeholder before training


def _rounded(values: np.ndarray) -> list:
    return np.vectorize(lambda value: float(f"{value:.6g}"), otypes=[float])(values).tolist()
