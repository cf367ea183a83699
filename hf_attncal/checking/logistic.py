"""Logistic regression, small networks, and log-odds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

_MOST = 5.0  # standard deviations at which a feature is clipped


def scaled_features(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip((values - scale[0]) / scale[1], -6, 6)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return the probabilities of log-odds."""
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return the log-odds of probabilities, clipped to 1e-9 and 1 - 1e-9."""
    probability = np.clip(probability, 1e-9, 1 - 1e-9)
    return np.log(probability) - np.log1p(-probability)


def fit_logistic(values: np.ndarray, truths: np.ndarray, weights: np.ndarray, penalty: float = 0.01) -> np.ndarray:
    """Fit a logistic regression by Newton's method; return its bias and weights, (1 + features,).

    The objective is the weighted mean cross-entropy plus `penalty / 2` times the squared weights, without the bias.

    Args:
        values: Scaled features, (lines, features).
        truths: Labels, 0 or 1, (lines,).
        weights: Weights of the lines, (lines,).
    """
    design = np.column_stack([np.ones(len(values)), values])
    weights = weights / weights.sum()
    ridge = np.array([1e-9] + [penalty] * values.shape[1])
    solution = np.zeros(design.shape[1])
    for _ in range(100):
        expected = sigmoid(design @ solution)
        gradient = design.T @ (weights * (truths - expected)) - ridge * solution
        curvature = (design * (weights * expected * (1 - expected))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        solution += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return solution


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
        values = np.clip((features - self.scale[0]) / self.scale[1], -_MOST, _MOST)
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


def fit_network(
    features: np.ndarray,
    truths: np.ndarray,
    weights: np.ndarray | None = None,
    hidden: Sequence[int] = (32, 16),
    steps: int = 3000,
    decay: float = 1e-2,
    seed: int = 0,
) -> Network:
    """Fit a network by cross-entropy.

    Args:
        features: Features, (rows, F).
        truths: Labels, 0 or 1, (rows,).
        weights: Weights of the rows. Default: None, both labels have the same total weight.
        hidden: Sizes of the hidden layers. Default: (32, 16).
        steps: Number of AdamW steps of 1,024 rows each. Default: 3000.
        decay: Weight decay. Default: 0.01.
        seed: Seed of the initial weights and of the batches. Default: 0.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = np.stack([features.mean(axis=0), features.std(axis=0) + 1e-3])
    values = torch.from_numpy(np.clip((features - scale[0]) / scale[1], -_MOST, _MOST)).float()
    truth = torch.from_numpy(np.asarray(truths)).float()
    if weights is None:
        weights = np.where(truths > 0, 0.5 / max(truths.mean(), 1e-9), 0.5 / max(1 - truths.mean(), 1e-9))
    weight = torch.from_numpy(weights / weights.mean()).float()
    sizes = [features.shape[1], *hidden, 1]
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers.append((torch.rand(inputs + 1, outputs, generator=generator) * 2 - 1) / inputs**0.5)
        layers[-1].requires_grad_()
    optimizer = torch.optim.AdamW(layers, lr=3e-3, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(values), (1024,), generator=generator)
        outputs_of_batch = values[some]
        for number, layer in enumerate(layers):
            outputs_of_batch = (outputs_of_batch if number == 0 else outputs_of_batch.tanh()) @ layer[:-1] + layer[-1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs_of_batch[:, 0], truth[some], weight=weight[some]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return Network(scale, tuple(layer.detach().double().numpy() for layer in layers))


def mean_network(networks: Sequence[Network]) -> Network:
    """Merge two-layer networks over the same features into one that returns their mean."""
    inner = np.concatenate([network.layers[0] for network in networks], axis=1)
    outer = np.concatenate([network.layers[1][:-1] for network in networks]) / len(networks)
    bias = np.mean([network.layers[1][-1] for network in networks], axis=0)
    return Network(networks[0].scale, (inner, np.concatenate([outer, bias[None]])))


def _rounded(values: np.ndarray) -> list:
    return np.vectorize(lambda value: float(f"{value:.6g}"), otypes=[float])(values).tolist()
