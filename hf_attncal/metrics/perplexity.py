"""Compute the perplexity of a language model, with a signature that says what was counted."""

from dataclasses import dataclass

import numpy as np

from .base import Metric

# Of sums (..., 2): nats and predictions.
PERPLEXITY = Metric("Perplexity", lambda sums: np.exp(sums[..., 0] / sums[..., 1]), lower_is_better=True)


@dataclass(frozen=True)
class PerplexityScore:
    """Cross-entropy in nats per predicted token, its exponential, and how many tokens were predicted."""

    cross_entropy: float
    perplexity: float
    tokens: int
    signature: str


def perplexity(counts: np.ndarray, *, unit: str, end: bool, unknown: int) -> PerplexityScore:
    """Compute perplexity over all predictions of all sequences; the first token is given, not predicted.

    Args:
        counts: (sequences, 2): sum of the negative log-probabilities, in nats, and number of predictions.
        unit: name of the unit that a token is; perplexities of different units cannot be compared.
        end: whether the end of a sequence is predicted, too.
        unknown: number of tokens outside the vocabulary; the model sees them all as the same token.

    Raises:
        ValueError: no prediction, or a `unit` that a signature cannot hold.
    """
    nats, tokens = counts.sum(axis=0) if len(counts) else (0.0, 0)
    if not tokens:
        raise ValueError("`counts` must have at least one prediction, got none.")
    signature = PERPLEXITY.signature(
        unit=unit, end="counted" if end else "excluded", unknown=str(unknown), n=str(len(counts))
    )
    return PerplexityScore(
        float(nats / tokens), float(PERPLEXITY.score(np.array([nats, tokens]))), int(tokens), signature
    )
