"""Precision, recall and F1 of chunks as the CoNLL-2000 shared task counts them (its script `conlleval`).

A chunk that was found is right if its type, its first and its last word are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.data.chunk_tags import chunks_of, is_chunk_tag
from hf_attncal.metrics.base import Metric

# Columns of the counts of a sentence.
_CORRECT, _FOUND, _GOLD, _RIGHT_TAGS, _WORDS = range(5)


def _f1(sums: np.ndarray) -> np.ndarray:
    return 2 * sums[..., _CORRECT] / np.maximum(sums[..., _FOUND] + sums[..., _GOLD], 1)


CHUNK_F1 = Metric("ChunkF1", _f1)


@dataclass(frozen=True)
class ChunkScore:
    """Scores of a whole corpus, as fractions between 0 and 1, and how they were computed.

    `accuracy` is that of the tags, word by word; a score without anything to divide by is 0, as in `conlleval`.
    """

    f1: float
    precision: float
    recall: float
    accuracy: float
    signature: str
    sentences: int
    words: int
    gold: int  # chunks
    found: int
    correct: int
    interval: tuple[float, float] | None = None  # 95 % confidence interval of `f1`


def chunk_score(
    gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], *, bootstrap: int = 0, seed: int = 0
) -> ChunkScore:
    """Score chunk tags against those of the annotation.

    Args:
        gold: tags of every sentence, one for a word (see `hf_attncal.data.chunk_tags`).
        found: those to be scored.
        bootstrap: resamples of the sentences for the interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: see `chunk_counts`; negative `bootstrap`.
    """
    counts = chunk_counts(gold, found)
    sums = counts.sum(axis=0)
    return ChunkScore(
        f1=float(_f1(sums)),
        precision=float(sums[_CORRECT] / max(sums[_FOUND], 1)),
        recall=float(sums[_CORRECT] / max(sums[_GOLD], 1)),
        accuracy=float(sums[_RIGHT_TAGS] / max(sums[_WORDS], 1)),
        signature=CHUNK_F1.signature(average="micro", mode="conlleval"),
        sentences=len(counts),
        words=int(sums[_WORDS]),
        gold=int(sums[_GOLD]),
        found=int(sums[_FOUND]),
        correct=int(sums[_CORRECT]),
        interval=CHUNK_F1.interval(counts, bootstrap, seed),
    )


def chunk_counts(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> np.ndarray:
    """(sentences, 5): chunks found that are right, chunks found, chunks of the annotation, right tags, words.

    Two systems on the same sentences are compared by `CHUNK_F1.paired_interval` of their counts.

    Raises:
        ValueError: not the same sentences, none, another number of tags than words, or what is no tag (which).
    """
    if len(gold) != len(found) or not gold:
        raise ValueError(
            f"`gold` and `found` must be tags of the same sentences, at least one, got {len(gold)} and {len(found)}."
        )
    return np.array([_counts(n, *pair) for n, pair in enumerate(zip(gold, found, strict=True), start=1)])


def _counts(number: int, gold: Sequence[str], found: Sequence[str]) -> list[int]:
    if len(gold) != len(found):
        raise ValueError(f"sentence {number}: {len(found)} tags do not fit its {len(gold)} words. Give one a word.")
    for word, tag in enumerate(zip(gold, found, strict=True), start=1):
        wrong = next((one for one in tag if not is_chunk_tag(one)), None)
        if wrong is not None:
            raise ValueError(
                f"sentence {number}, word {word}: a chunk tag is `O`, `B-TYPE` or `I-TYPE`, got {wrong!r}."
            )
    chunks, others = (set(chunks_of(tags)) for tags in (gold, found))
    right = sum(a == b for a, b in zip(gold, found, strict=True))
    return [len(chunks & others), len(others), len(chunks), right, len(gold)]
