"""Estimate how good an aligner is, as far as that shows without annotated links."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import partial

from hf_attncal.data.piecewise import until_failure

from .aligner import Sentence, WordAligner

# Models below it had error rates above 60 %; good ones have 0.6 and more (docs/log.md).
LEAST_SCORE, GOOD_SCORE = 0.4, 0.6
# Exchanged sides score higher by more than this where the aligner learned the other order. On nine texts the right
# order scored higher by 0.14 (captions against debates) to 0.43 (everyday Japanese).
_EXCHANGED = 0.1


@dataclass(frozen=True)
class Quality:
    """Quality of an aligner, estimated on sentence pairs that it aligned.

    Args:
        pairs: how many were aligned.
        mean_score: mean of `WordAlignment.score`: how strongly both directions see the best partner of a word.
        null: mean probability of a word to have no partner.
        agreement: of the links that a direction finds likelier than not, the share that both find.
    """

    pairs: int
    mean_score: float
    null: float
    agreement: float


def estimate_quality(aligner: WordAligner, pairs: Iterable[tuple[Sentence, Sentence]]) -> Quality:
    """Align the pairs and see; a model of two directions is needed.

    It tells a model that has learned from one that has not, and not which of two good ones is better.

    Raises:
        ValueError: no pair has words on both sides.
    """
    raw, pairs = copy(aligner), list(pairs)
    raw.probabilities = None  # which need not know each way to merge
    aligned = [result for result in raw.align(pairs, symmetrize="harmonic") if result.score is not None]
    if not aligned:
        raise ValueError("`pairs` must have one with words on both sides, got none.")
    nulls = [null for result in aligned for null in (*result.source_null, *result.target_null)]
    both, either = (
        sum(len(result.links) for result in raw.align(pairs, symmetrize=method, threshold=0.5))
        for method in ("intersection", "union")
    )
    score = sum(result.score for result in aligned) / len(aligned)
    return Quality(len(aligned), score, sum(nulls) / len(nulls), both / max(1, either))


def exchanged_scores(
    aligner: WordAligner, pairs: Iterable[tuple[Sentence, Sentence]], **options
) -> tuple[float, float] | None:
    """Return the mean score of the pairs, and with source and target exchanged, if the second is clearly higher.

    None if it is not, and where a pair cannot be aligned.

    Args:
        options: of `WordAligner.align`.
    """
    raw, pairs, means = copy(aligner), list(pairs), []
    raw.probabilities = None
    for sides in (pairs, [(target, source) for source, target in pairs]):
        aligned, failure = until_failure(partial(raw.align, symmetrize="harmonic", **options), sides)
        scores = [one.score for one in aligned if one.score is not None]
        if failure is not None or not scores:
            return None
        means.append(sum(scores) / len(scores))
    return tuple(means) if means[1] > means[0] + _EXCHANGED else None
