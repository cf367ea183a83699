"""Estimate the quality of alignments without annotated links."""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.io.errors import until_failure

if TYPE_CHECKING:
    from .aligner import Sentence, WordAligner

# Mean pair scores: below the first, AER was above 60 %; good models reach the second (docs/log.md).
LEAST_SCORE, GOOD_SCORE = 0.4, 0.6
# Source and target seem exchanged if the opposite order scores higher by this. On nine texts the right order scored
# higher by 0.14 (captions against debates) to 0.43 (everyday Japanese).
_MIN_EXCHANGE_GAIN = 0.1
# The first pairs of a text are also aligned in the opposite order, if there are enough of them.
MAX_PAIRS_TO_EXCHANGE, MIN_PAIRS_TO_EXCHANGE = 100, 20


def mean_score(aligner: "WordAligner", pairs: "Iterable[tuple[Sentence, Sentence]]", **options) -> float | None:
    """Return the mean score of pairs; None if one cannot be aligned, or none has words on both sides.

    It shows an aligner that learned nothing; it does not rank good ones.

    Args:
        aligner: Word aligner of two directions; its probabilities are not used.
        pairs: Sentence pairs.
        options: Options of `WordAligner.align`.
    """
    raw = copy(aligner)
    raw.probabilities = None  # they may lack the symmetrisation
    aligned, failure = until_failure(partial(raw.align, symmetrize="harmonic", **options), list(pairs))
    scores = [one.score for one in aligned if one.score is not None]
    return sum(scores) / len(scores) if scores and failure is None else None


def exchange_warning(aligner: "WordAligner", pairs: "Sequence[tuple[Sentence, Sentence]]", **options) -> str | None:
    """Return a warning if source and target seem exchanged, else None.

    Fewer than 20 pairs, or an aligner of only one direction, give no warning.

    Args:
        aligner: Word aligner.
        pairs: First pairs of a text, of which 100 are enough.
        options: Options of `WordAligner.align`.
    """
    if len(pairs) < MIN_PAIRS_TO_EXCHANGE or "harmonic" not in aligner.source.symmetrizations:
        return None
    straight, opposite = (mean_score(aligner, sides, **options) for sides in (pairs, [pair[::-1] for pair in pairs]))
    if straight is None or opposite is None or opposite <= straight + _MIN_EXCHANGE_GAIN:
        return None
    return (
        f"source and target are probably exchanged: the mean score of a pair is {straight:.2f}, and {opposite:.2f} in "
        "the opposite order. Exchange them."
    )
