"""Logistic regression, and probabilities as log-odds."""

from collections.abc import Sequence

import numpy as np


def scaled_features(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip((values - scale[0]) / scale[1], -6, 6)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return the probabilities of log-odds."""
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return the log-odds of probabilities, between those of 1e-9 and 1 - 1e-9."""
    probability = np.clip(probability, 1e-9, 1 - 1e-9)
    return np.log(probability) - np.log1p(-probability)


def fit_logistic(values: np.ndarray, truths: np.ndarray, weights: np.ndarray, penalty: float = 0.01) -> np.ndarray:
    """Return the bias and weights of a logistic regression by Newton's method, (1 + features,).

    Minimised is the weighted mean of the cross-entropy plus `penalty / 2` times the squared weights, but for the bias.

    Args:
        values: (lines, features), scaled. truths: (lines,) of 0 and 1. weights: of the lines, (lines,).
    """
    design = np.column_stack([np.ones(len(values)), values])
    weights = weights / weights.sum()
    ridge = np.array([1e-9] + [penalty] * values.shape[1])
    found = np.zeros(design.shape[1])
    for _ in range(100):
        expected = sigmoid(design @ found)
        gradient = design.T @ (weights * (truths - expected)) - ridge * found
        curvature = (design * (weights * expected * (1 - expected))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        found += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return found


def mean_odds(probabilities: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Return the probabilities whose log-odds are the (weighted) means of those of the judges."""
    if len(probabilities) == 1:
        return probabilities[0]
    odds = np.stack([log_odds(one) for one in probabilities])
    shares = np.ones_like(odds) if weights is None else np.stack(weights).astype(float)
    return sigmoid((odds * shares).sum(axis=0) / np.maximum(shares.sum(axis=0), 1e-9))
