"""Compute ROUGE-1, -2, -L and -Lsum with the package `rouge-score`."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Self

from hf_attncal.io.extras import need

need("rouge")

import numpy as np
from nltk.stem.porter import PorterStemmer
from nltk.tokenize.punkt import PunktSentenceTokenizer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

from hf_attncal.data.segmentation import segment
from hf_attncal.data.words import is_punctuation

from .base import Metric

ROUGE_MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TOKENIZERS = ("rouge", "words", "none")
# Scores sums (..., 2): F1, and number of pairs.
ROUGE = Metric("ROUGE", lambda sums: 100 * sums[..., 0] / sums[..., 1])
# nltk would have to download the trained parameters. Without them, abbreviations end a sentence.
_PUNKT = PunktSentenceTokenizer()


@dataclass(frozen=True)
class RougeScore:
    """Mean F1 over the pairs (0 to 100, not rounded) and its signature."""

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    signature: str
    intervals: dict[str, tuple[float, float]] | None = None  # 95 % confidence interval of each measure

    @classmethod
    def of(cls, counts: dict[str, np.ndarray], signature: str, bootstrap: int = 0, seed: int = 0) -> Self:
        """Return the scores of `rouge_counts`. See `rouge` for `bootstrap` and `seed`.

        Raises:
            ValueError: negative `bootstrap`.
        """
        scores = {name: float(ROUGE.score(by_pair.sum(axis=0))) for name, by_pair in counts.items()}
        intervals = {name: ROUGE.interval(by_pair, bootstrap, seed) for name, by_pair in counts.items()}
        computed = {name: interval for name, interval in intervals.items() if interval is not None}
        return cls(**scores, signature=signature, intervals=computed if len(computed) == len(intervals) else None)


def rouge(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    tokenize: str = "rouge",
    *,
    stemmer: bool = False,
    bootstrap: int = 0,
    seed: int = 0,
) -> RougeScore:
    """Compute ROUGE with `rouge-score`.

    ROUGE-L treats a summary as one sentence. ROUGE-Lsum compares sentence by sentence. Sentences are the lines of a
    summary with line ends; other summaries are split by nltk's Punkt without a trained model, at each `.`, `!` and `?`
    followed by white space, except after initials and ellipses. Abbreviations therefore also end a sentence.

    Args:
        hypotheses: summaries to score.
        references: one reference per summary, or several. Each measure uses the reference with the highest score. The
            signature shows their number (`refs:2`, or `refs:1-3`).
        tokenize: tokenizer. "rouge" keeps runs of a-z and 0-9 in lower case, as `rouge-score` does (`####` and `ü` are
            lost). "words", for languages other than English, keeps the words of `data.segmentation` in lower case
            without punctuation, in Chinese and Japanese one per ideograph. "none" splits text that is already
            tokenised at white space.
        stemmer: True to compare the stems of English words (Porter, for words of more than three letters).
        bootstrap: number of resamples of the pairs for the intervals; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: negative `bootstrap`, or an argument that `rouge_counts` refuses.
    """
    counts = rouge_counts(hypotheses, references, tokenize, stemmer=stemmer)
    return RougeScore.of(counts, rouge_signature(references, tokenize, stemmer=stemmer), bootstrap, seed)


def rouge_signature(
    references: Sequence[str | Sequence[str]], tokenize: str = "rouge", *, stemmer: bool = False
) -> str:
    """Return the signature of `rouge` for these arguments."""
    numbers = [len(_as_list(alternatives)) for alternatives in references]
    least, most = min(numbers), max(numbers)
    return ROUGE.signature(
        score="F1",
        tok=tokenize,
        stem="porter" if stemmer else "no",
        sent="lines+punkt",
        refs=str(most) if least == most else f"{least}-{most}",
        average="mean",
        n=str(len(references)),
        rouge_score=version("rouge-score"),
        nltk=version("nltk"),
    )


def rouge_counts(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    tokenize: str = "rouge",
    *,
    stemmer: bool = False,
) -> dict[str, np.ndarray]:
    """Return an array (pairs, 2) per measure of `ROUGE_MEASURES`: F1 of the pair, and 1.

    `ROUGE.paired_interval` compares the counts of two systems on the same pairs.

    Warns:
        UserWarning: "rouge" drops letters of the references, because they are not a-z.

    Raises:
        ValueError: no summaries, unequal numbers of hypotheses and references, an empty list of references, or an
            unknown tokenisation.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            "`hypotheses` and `references` must have the same number of lines, at least one, got "
            f"{len(hypotheses)} and {len(references)}. Give one summary per reference."
        )
    if tokenize not in TOKENIZERS:
        raise ValueError(f"`tokenize` must be one of {TOKENIZERS}, got {tokenize!r}.")
    if tokenize == "rouge":
        _warn_of_dropped_letters(references)
        tokenizer = DefaultTokenizer(stemmer)
    else:
        tokenizer = _WordTokenizer(str.split if tokenize == "none" else _words, stemmer)
    *whole, by_sentence = ROUGE_MEASURES
    text_scorer, sentence_scorer = (RougeScorer(names, tokenizer=tokenizer) for names in (whole, [by_sentence]))
    counts = {name: np.ones((len(references), 2)) for name in ROUGE_MEASURES}
    for number, (summary, alternatives) in enumerate(zip(hypotheses, references, strict=True)):
        if not (alternatives := _as_list(alternatives)):
            raise ValueError(f"`references[{number}]` must have at least one reference, got none.")
        scores = text_scorer.score_multi(alternatives, summary)
        scores |= sentence_scorer.score_multi(list(map(_sentence_lines, alternatives)), _sentence_lines(summary))
        for name in ROUGE_MEASURES:
            counts[name][number, 0] = scores[name].fmeasure
    return counts


def _as_list(references: str | Sequence[str]) -> Sequence[str]:
    return [references] if isinstance(references, str) else references


def _sentence_lines(text: str) -> str:
    """Put each sentence of a summary on its own line, as `rouge-score` expects."""
    if "\n" in text.strip():
        return text
    starts = [start for start, _ in _PUNKT.span_tokenize(text)][1:]
    # Punkt also ends a sentence inside `x.(y)`, which may be one token.
    cuts = [0, *(start for start in starts if text[start - 1].isspace()), len(text)]
    return "\n".join(text[start:end] for start, end in pairwise(cuts))


def _warn_of_dropped_letters(references: Sequence[str | Sequence[str]]) -> None:
    texts = [text for alternatives in references for text in _as_list(alternatives)]
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    dropped = [letter for letter in letters if not letter.isascii()]
    if dropped:
        share = f"{len(dropped) / len(letters):.1%}".replace("%", " %")
        warnings.warn(
            f"The tokenizer `rouge` is for English only: it drops {len(dropped)} of the {len(letters)} letters "
            f"of the references ({share}; the first is {dropped[0]!r}). For other languages use --tokenize words "
            '(`tokenize="words"`; in training, evaluation.rouge_tokenize=words).',
            stacklevel=4,
        )


def _words(text: str) -> list[str]:
    """Return the words of text in any script, in lower case and without punctuation."""
    return [word for word in segment(text.lower()).words if not is_punctuation(word)]


class _WordTokenizer(Tokenizer):
    """Tokenizer that keeps all characters; the one of `rouge-score` keeps only ASCII letters and digits."""

    def __init__(self, split: Callable[[str], list[str]], stemmer: bool):
        self.split = split
        self.stemmer = PorterStemmer() if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        tokens = self.split(text)
        if self.stemmer is None:
            return tokens
        return [self.stemmer.stem(token) if len(token) > 3 else token for token in tokens]
