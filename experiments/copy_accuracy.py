"""Whether the words that a target has copied from its source are aligned with the words that they are copies of.

A target word that stands exactly once in the source, letter by letter the same, has a partner that is known without
annotation. It may stand more often in the target: every time it is the same word of the source that it copies.

This scores an aligner on copies alone and says nothing of words that were rephrased. A model that predicts source
tokens from its decoder's states can score without having understood more than which token it writes.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.synthetic.planted import copied_words
from hf_attncal.metrics.base import Metric

COPIES = Metric("CopyAccuracy", lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1))


@dataclass(frozen=True)
class CopyAccuracy:
    """Share of copies (0 to 1) whose only link is to the word that they copy, and what it is to be compared with.

    Args:
        accuracy: of the links.
        by_chance: of a source word that is drawn at random for each copy.
        one_place: of the one place in the source that is right most often, with hindsight, for all copies.
        signature: how it was computed.
        pairs: of texts.
        copies: target words that were scored.
        target_words: all there are.
        interval: 95 % confidence interval of `accuracy`, over pairs.
    """

    accuracy: float
    by_chance: float
    one_place: float
    signature: str
    pairs: int
    copies: int
    target_words: int
    interval: tuple[float, float] | None = None


def copy_accuracy(
    pairs: Sequence[tuple[str, str]], links: Sequence[Collection[Link]], *, bootstrap: int = 0, seed: int = 0
) -> CopyAccuracy:
    """Score links against copies.

    Args:
        pairs: (source, target); words are what white space parts.
        links: those of each pair, (i source, j target). A copy without a link is wrong, and so is one with several.
        bootstrap: resamples of the pairs for the interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: another number of pairs than of links, no copy in any pair, or negative `bootstrap`.
    """
    counts = copy_counts(pairs, links)
    right, copies = counts.sum(axis=0).tolist()
    if not copies:
        raise ValueError("`pairs` must have a target word that stands exactly once in its source, got none.")
    places = [(i, len(source.split())) for source, target in pairs for i, _ in copied_words(source, target)]
    return CopyAccuracy(
        accuracy=right / copies,
        by_chance=float(np.mean([1 / length for _, length in places])),
        one_place=max(Counter(i for i, _ in places).values()) / copies,
        signature=COPIES.signature(once="source", links="only", n=str(len(pairs))),
        pairs=len(pairs),
        copies=copies,
        target_words=sum(len(target.split()) for _, target in pairs),
        interval=COPIES.interval(counts, bootstrap, seed),
    )


def copy_counts(pairs: Sequence[tuple[str, str]], links: Sequence[Collection[Link]]) -> np.ndarray:
    """(pairs, 2): copies that are linked with their word and no other, and copies.

    Two aligners on the same pairs are compared by `COPIES.paired_interval` of their counts.

    Raises:
        ValueError: another number of pairs than of links.
    """
    if len(pairs) != len(links):
        raise ValueError(f"`links` must be those of every pair, got {len(links)} for {len(pairs)} pairs.")
    counts = np.zeros((len(pairs), 2), dtype=np.int64)
    for row, (pair, found) in enumerate(zip(pairs, links, strict=True)):
        of_word: dict[int, set[int]] = {}
        for i, j in found:
            of_word.setdefault(j, set()).add(i)
        copies = copied_words(*pair)
        counts[row] = sum(of_word.get(j) == {i} for i, j in copies), len(copies)
    return counts
