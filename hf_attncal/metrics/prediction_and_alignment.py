"""Compare prediction with alignment, word by word (Mask-Align: Chen et al., ACL 2021, section 3.7, Fig. 7)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hf_attncal.data.pharaoh import GoldAlignment, Link, check_inside_sentences

from .base import Measured
from .means import means

# Correct or wrong (c, w) prediction (P) and alignment (A).
CATEGORIES = ("cPcA", "wPcA", "cPwA", "wPwA")


@dataclass(frozen=True)
class PredictionAndAlignment:
    """Shares of target words that are predicted or aligned correctly.

    Args:
        shares: for each of `CATEGORIES` its share, with the 95 % interval over pairs. The shares add up to 1.
        words: number of words that were counted: those with a gold link.
        unlinked: number of words without a gold link; they are left out, as no alignment of them can be correct.
    """

    shares: dict[str, Measured]
    words: int
    unlinked: int


def prediction_and_alignment(
    gold: Sequence[GoldAlignment],
    links: Sequence[Collection[Link]],
    predicted: Sequence[ArrayLike],
    source_lengths: Sequence[int],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> PredictionAndAlignment:
    """Sort target words by whether they are predicted and whether they are aligned correctly.

    A word is aligned correctly if one of its links is a possible one (sure ones are possible, too).

    Args:
        gold: annotated links of every pair.
        links: proposed links of every pair.
        predicted: for every pair (target words,), whether a word is predicted correctly, as `Observations.predicted`.
        source_lengths: number of source words of every pair.
        bootstrap: number of resamples of the pairs for the intervals; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: unequal numbers of pairs, a link outside its pair, or no word with a gold link.
    """
    if not len(gold) == len(links) == len(predicted) == len(source_lengths):
        raise ValueError(
            f"All arguments must have the same pairs, got {len(gold)} in `gold`, {len(links)} in `links`, "
            f"{len(predicted)} in `predicted` and {len(source_lengths)} in `source_lengths`."
        )
    lengths = [(length, len(words)) for length, words in zip(source_lengths, predicted, strict=True)]
    for alignments in (gold, links):
        check_inside_sentences(alignments, lengths)
    counts = np.zeros((len(gold), len(CATEGORIES), 2))
    total = 0
    for row, (annotated, proposed, right) in enumerate(zip(gold, links, predicted, strict=True)):
        aligned = {j for _, j in annotated.possible & frozenset(proposed)}
        linked = {j for _, j in annotated.possible}
        for j in linked:
            counts[row, CATEGORIES.index(f"{'c' if right[j] else 'w'}P{'c' if j in aligned else 'w'}A"), 0] += 1
        counts[row, :, 1] = len(linked)
        total += len(right)
    words = int(counts[:, 0, 1].sum())
    if not words:
        raise ValueError("`gold` must link at least one target word, got no link.")
    shares = dict(zip(CATEGORIES, means(counts, bootstrap, seed), strict=True))
    return PredictionAndAlignment(shares, words, total - words)
