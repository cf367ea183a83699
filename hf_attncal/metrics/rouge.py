"""ROUGE-1, ROUGE-2 and ROUGE-L by the package `rouge-score`, with a signature that says how they were computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from hf_attncal.extras import need

need("rouge")

import numpy as np
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

from .base import Metric

MEASURES = ("rouge1", "rouge2", "rougeL")
TOKENIZERS = ("rouge", "none")
# Of sums (..., 2): F1 and pairs.
ROUGE = Metric("ROUGE", lambda sums: 100 * sums[..., 0] / sums[..., 1])


@dataclass(frozen=True)
class RougeScore:
    """Means over the pairs of F1 (0 to 100, not rounded), and the signature that says how they were computed."""

    rouge1: float
    rouge2: float
    rougeL: float
    signature: str
    intervals: dict[str, tuple[float, float]] | None = None  # 95 % confidence interval of each


def rouge(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "rouge",
    *,
    stemmer: bool = False,
    bootstrap: int = 0,
    seed: int = 0,
) -> RougeScore:
    """ROUGE of one reference a line, by `rouge-score`; ROUGE-L takes a line for one sentence.

    Args:
        hypotheses: the summaries to be scored.
        references: theirs, line by line.
        tokenize: "rouge" is that of `rouge-score`: lower case, and nothing but runs of a-z and 0-9 (so `####` and
            `ü` are no part of a word); "none" for text that is already split into tokens: at white space.
        stemmer: compare the stems of English words (Porter, for words of more than three letters).
        bootstrap: resamples of the pairs for the intervals; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: see `rouge_counts`; negative `bootstrap`.
    """
    counts = rouge_counts(hypotheses, references, tokenize, stemmer=stemmer)
    signature = ROUGE.signature(
        score="F1",
        tok=tokenize,
        stem="porter" if stemmer else "no",
        average="mean",
        n=str(len(references)),
        rouge_score=version("rouge-score"),
    )
    scores = {name: float(ROUGE.score(of_pairs.sum(axis=0))) for name, of_pairs in counts.items()}
    found = {name: ROUGE.interval(of_pairs, bootstrap, seed) for name, of_pairs in counts.items()}
    return RougeScore(**scores, signature=signature, intervals=found if bootstrap else None)


def rouge_counts(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "rouge", *, stemmer: bool = False
) -> dict[str, np.ndarray]:
    """For each of `MEASURES` an array (pairs, 2): F1, and 1 for the pair.

    Two systems on the same pairs are compared by `ROUGE.paired_interval` of their counts of a measure.

    Raises:
        ValueError: no lines, not as many hypotheses as references, or no such tokenisation.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            "`hypotheses` and `references` must have the same number of lines, at least one, got "
            f"{len(hypotheses)} and {len(references)}. Give one summary per reference."
        )
    if tokenize not in TOKENIZERS:
        raise ValueError(f"`tokenize` must be one of {TOKENIZERS}, got {tokenize!r}.")
    tokenizer = DefaultTokenizer(stemmer) if tokenize == "rouge" else _AtWhiteSpace(stemmer)
    scorer = RougeScorer(MEASURES, tokenizer=tokenizer)
    scores = [scorer.score(reference, found) for found, reference in zip(hypotheses, references, strict=True)]
    return {name: np.array([(score[name].fmeasure, 1.0) for score in scores]) for name in MEASURES}


class _AtWhiteSpace(Tokenizer):
    """Text that is tokenised already; `rouge-score` itself would throw away all but letters and digits of ASCII."""

    def __init__(self, stemmer: bool):
        self.stemmer = PorterStemmer() if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        tokens = text.split()
        if self.stemmer is None:
            return tokens
        return [self.stemmer.stem(token) if len(token) > 3 else token for token in tokens]
