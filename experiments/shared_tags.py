"""How many of the nearest neighbours of a word have its tag: what a picture of embeddings shows, as a number."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.metrics.base import Metric

SHARED_TAGS = Metric("SharedTags", lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1))


@dataclass(frozen=True)
class SharedTags:
    """The share of neighbours with the tag of their word (0 to 1), and that of neighbours drawn at random."""

    share: float
    chance: float
    signature: str
    words: int
    neighbours: int  # of each word
    interval: tuple[float, float] | None = None  # 95 % confidence interval of `share`, over words


def shared_tags(
    neighbours: np.ndarray, tags: Sequence[str], *, similarity: str = "cosine", bootstrap: int = 0, seed: int = 0
) -> SharedTags:
    """Score nearest neighbours.

    Args:
        neighbours: see `shared_tag_counts`.
        tags: of every word.
        similarity: what the neighbours are nearest by, for the signature.
        bootstrap: resamples of the words for the interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: see `shared_tag_counts`; negative `bootstrap`.
    """
    counts = shared_tag_counts(neighbours, tags)
    words, number = neighbours.shape
    of_tag = Counter(tags)
    return SharedTags(
        share=float(SHARED_TAGS.score(counts.sum(axis=0))),
        chance=sum(n * (n - 1) for n in of_tag.values()) / (words * (words - 1)),
        signature=SHARED_TAGS.signature(neighbours=str(number), similarity=similarity, tags=str(len(of_tag))),
        words=words,
        neighbours=number,
        interval=SHARED_TAGS.interval(counts, bootstrap, seed),
    )


def shared_tag_counts(neighbours: np.ndarray, tags: Sequence[str]) -> np.ndarray:
    """(words, 2): neighbours with the tag of the word, and neighbours.

    Two tables of the same words are compared by `SHARED_TAGS.paired_interval` of their counts.

    Args:
        neighbours: (words, count), indices of words; never the word itself.
        tags: of every word.

    Raises:
        ValueError: fewer than two words, another number of tags, or a word among its own neighbours.
    """
    words = len(neighbours)
    if len(tags) != words or words < 2:
        raise ValueError(f"`tags` must be those of at least two words, got {len(tags)} for {words} words.")
    own = (neighbours == np.arange(words)[:, None]).any(axis=1)
    if own.any():
        raise ValueError(f"`neighbours` of word {own.argmax()} has the word itself. Leave it out.")
    tags = np.asarray(tags)
    same = tags[neighbours] == tags[:, None]
    return np.stack([same.sum(axis=1), np.full(words, neighbours.shape[1])], axis=1)
