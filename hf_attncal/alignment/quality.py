"""Estimate how good an aligner is without annotated links, and warn of a text that it does not know."""

import warnings
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_attncal.io.errors import until_failure

if TYPE_CHECKING:
    from .aligner import Sentence, WordAligner
    from .merging import WordAlignment


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


def estimate_quality(aligner: "WordAligner", pairs: "Iterable[tuple[Sentence, Sentence]]") -> Quality:
    """Align the pairs and see; a model of two directions is needed.

    It tells a model that has learned from one that has not, and not which of two good ones is better.

    Raises:
        ValueError: no pair has words on both sides.
    """
    raw, pairs = copy(aligner), list(pairs)
    raw.probabilities = None  # which need not know each way to merge
    aligned = raw.align(pairs, symmetrize="harmonic")
    scores = [result.score for result in aligned if result.score is not None]
    aligned = [result for result in aligned if result.score is not None]
    if not scores:
        raise ValueError("`pairs` must have one with words on both sides, got none.")
    nulls = [null for result in aligned for null in (*(result.source_null or ()), *(result.target_null or ()))]
    both, either = (
        sum(len(result.links) for result in raw.align(pairs, symmetrize=method, threshold=0.5))
        for method in ("intersection", "union")
    )
    return Quality(len(scores), sum(scores) / len(scores), sum(nulls) / len(nulls), both / max(1, either))


def exchanged_scores(
    aligner: "WordAligner", pairs: "Iterable[tuple[Sentence, Sentence]]", **options
) -> tuple[float, float] | None:
    """Return the mean score of the pairs, and with source and target exchanged, if the second is clearly higher.

    None if it is not, and where a pair cannot be aligned.

    Args:
        options: of `WordAligner.align`.
    """
    raw, pairs, means = copy(aligner), list(pairs), []
    raw.probabilities = None

    def align(some: "Sequence[tuple[Sentence, Sentence]]") -> "Sequence[WordAlignment]":
        return raw.align(some, symmetrize="harmonic", **options)

    for sides in (pairs, [(target, source) for source, target in pairs]):
        aligned, failure = until_failure(align, sides)
        scores = [one.score for one in aligned if one.score is not None]
        if failure is not None or not scores:
            return None
        means.append(sum(scores) / len(scores))
    given, exchanged = means
    return (given, exchanged) if exchanged > given + _EXCHANGED else None


# ---- while a text is aligned ----

# So many have to have a low score before anything is said of it.
_PAIRS_TO_JUDGE = 100
# Pairs from the beginning whose scores are compared with those of source and target exchanged; fewer say nothing.
_PAIRS_TO_EXCHANGE, _FEWEST_TO_EXCHANGE = 100, 20
# Of text like that which probabilities were learned from, 30 to 46 % of the pairs count as unlike it, of other text
# 62 % or more.
_UNLIKE = 0.6


class Judge:
    """Watches the pairs of a text and their alignments, and warns at the end.

    Args:
        aligner: what aligns them.
        adapts: it learns from the text as it goes.
        shows_scores: the user sees the probabilities of links, or chooses by them.
        options: `tokenize` and `words`, as of `WordAligner.align`.
    """

    def __init__(self, aligner: "WordAligner", adapts: bool, shows_scores: bool, **options):
        self.aligner, self.adapts, self.shows_scores, self.options = aligner, adapts, shows_scores, options
        self._two_ways = "harmonic" in getattr(aligner.source, "symmetrizations", ())
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list = []
        self._exchanged: tuple[float, float] | None = None

    def see(self, pairs: "Sequence[tuple[Sentence, Sentence]]") -> None:
        """Take note of the pairs that are aligned next."""
        new = not self._sample
        self._sample += pairs[: _PAIRS_TO_EXCHANGE - len(self._sample)]
        if new and self.adapts:
            self._compare()  # once it has read them, it knows the text either way

    def add(self, alignments: "Sequence[WordAlignment]") -> None:
        """Take note of pairs that were aligned."""
        scores = [alignment.score for alignment in alignments if alignment.score is not None]
        self._scored, self._total = self._scored + len(scores), self._total + sum(scores)
        self._unlike += sum(alignment.shift == 1 for alignment in alignments)

    def warn(self) -> None:
        """Say what was noticed.

        Warns:
            UserWarning: probabilities are too high for this text, source and target are exchanged, or links are bad.
        """
        if not self._scored:
            return
        enough = self._scored >= _FEWEST_TO_EXCHANGE
        if self.shows_scores and enough and self._unlike > _UNLIKE * self._scored:
            warnings.warn(
                f"{self._unlike / self._scored:.0%} of the pairs are unlike the text that the probabilities of links "
                "were learned from: the aligner knows fewer of their words, or is less sure. Their probabilities are "
                "at most the scores of the model, and may still be too high. Annotate some dozens of pairs of this "
                "text and calibrate again (`attncal align calibrate`).",
                stacklevel=3,
            )
        mean = self._total / self._scored
        if mean < GOOD_SCORE and not self.adapts:
            self._compare()
        if self._exchanged:
            warnings.warn(
                "source and target are probably exchanged: the mean score of a pair is {:.2f}, and {:.2f} the other "
                "way round. Give the files in the order that the aligner has learned.".format(*self._exchanged),
                stacklevel=3,
            )
        elif self._scored >= _PAIRS_TO_JUDGE and mean < LEAST_SCORE and self._two_ways:
            warnings.warn(
                f"the links are probably bad: the mean score of a pair is {mean:.2f}, that of a good aligner above "
                "0.6. Either it does not know this text: let it learn from it (--adapt), or train it with this text "
                "among its own (`attncal align train --source TRAIN THIS --target TRAIN THIS`). Or the lines do not "
                "belong together.",
                stacklevel=3,
            )

    def _compare(self) -> None:
        """Compare the scores of the first pairs with those that they have exchanged."""
        if len(self._sample) >= _FEWEST_TO_EXCHANGE and self._two_ways:
            self._exchanged = exchanged_scores(self.aligner, self._sample, **self.options)
