"""ROUGE-1, -2, -L and -Lsum by the package `rouge-score`, with a signature that says how they were computed."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Self

from hf_attncal.extras import need

need("rouge")

import numpy as np
from nltk.stem.porter import PorterStemmer
from nltk.tokenize.punkt import PunktSentenceTokenizer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

from hf_attncal.data.segmentation import segment
from hf_attncal.data.words import is_punctuation

from .base import Metric

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TOKENIZERS = ("rouge", "words", "none")
# Of sums (..., 2): F1 and pairs.
ROUGE = Metric("ROUGE", lambda sums: 100 * sums[..., 0] / sums[..., 1])
# Without the trained parameters, which nltk would have to fetch: it knows no abbreviations.
_PUNKT = PunktSentenceTokenizer()


@dataclass(frozen=True)
class RougeScore:
    """Means over the pairs of F1 (0 to 100, not rounded), and the signature that says how they were computed."""

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    signature: str
    intervals: dict[str, tuple[float, float]] | None = None  # 95 % confidence interval of each

    @classmethod
    def of(cls, counts: dict[str, np.ndarray], signature: str, bootstrap: int = 0, seed: int = 0) -> Self:
        """The score of what `rouge_counts` gives; the other arguments are as of `rouge`.

        Raises:
            ValueError: negative `bootstrap`.
        """
        scores = {name: float(ROUGE.score(of_pairs.sum(axis=0))) for name, of_pairs in counts.items()}
        found = {name: ROUGE.interval(of_pairs, bootstrap, seed) for name, of_pairs in counts.items()}
        return cls(**scores, signature=signature, intervals=None if None in found.values() else found)


def rouge(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    tokenize: str = "rouge",
    *,
    stemmer: bool = False,
    bootstrap: int = 0,
    seed: int = 0,
) -> RougeScore:
    """ROUGE by `rouge-score`.

    ROUGE-L takes a summary for one sentence. ROUGE-Lsum goes by sentences: the lines of a summary that has line
    ends, and of any other what nltk's Punkt parts without a trained model, at white space alone. That ends a sentence
    at each `.`, `!` and `?` but those of initials and ellipses, so behind abbreviations, too.

    Args:
        hypotheses: the summaries to be scored.
        references: of each its reference, or several: then each measure is that of the reference with which it is
            largest. The signature says how many (`refs:2`, or `refs:1-3`).
        tokenize: "rouge" is that of `rouge-score`: lower case, and nothing but runs of a-z and 0-9 (so `####` and
            `ü` are no part of a word); "words" for other languages than English: lower case, and the words of
            `data.segmentation` but marks of punctuation, in Chinese and Japanese an ideograph each; "none" for text
            that is already split into tokens: at white space.
        stemmer: compare the stems of English words (Porter, for words of more than three letters).
        bootstrap: resamples of the pairs for the intervals; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: see `rouge_counts`; negative `bootstrap`.
    """
    counts = rouge_counts(hypotheses, references, tokenize, stemmer=stemmer)
    return RougeScore.of(counts, rouge_signature(references, tokenize, stemmer=stemmer), bootstrap, seed)


def rouge_signature(
    references: Sequence[str | Sequence[str]], tokenize: str = "rouge", *, stemmer: bool = False
) -> str:
    """What the scores of `rouge` with these arguments are signed with."""
    numbers = [len(_several(those)) for those in references]
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
    """For each of `MEASURES` an array (pairs, 2): F1, and 1 for the pair.

    Two systems on the same pairs are compared by `ROUGE.paired_interval` of their counts of a measure.

    Warns:
        UserWarning: "rouge" drops letters of the references, as it does all that are not a-z.

    Raises:
        ValueError: no summaries, not as many hypotheses as references, an empty list of references, or no such
            tokenisation.
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
        tokenizer = _Whole(str.split if tokenize == "none" else _words, stemmer)
    *whole, by_sentence = MEASURES
    of_whole, of_sentences = (RougeScorer(names, tokenizer=tokenizer) for names in (whole, [by_sentence]))
    counts = {name: np.ones((len(references), 2)) for name in MEASURES}
    for number, (found, those) in enumerate(zip(hypotheses, references, strict=True)):
        if not (those := _several(those)):
            raise ValueError(f"`references[{number}]` must have at least one reference, got none.")
        scores = of_whole.score_multi(those, found)
        scores |= of_sentences.score_multi([_sentence_lines(one) for one in those], _sentence_lines(found))
        for name in MEASURES:
            counts[name][number, 0] = scores[name].fmeasure
    return counts


def _several(references: str | Sequence[str]) -> Sequence[str]:
    return [references] if isinstance(references, str) else references


def _sentence_lines(text: str) -> str:
    """A summary with its sentences on a line each, which `rouge-score` takes for sentences."""
    if "\n" in text.strip():
        return text
    starts = [start for start, _ in _PUNKT.span_tokenize(text)][1:]
    # Punkt ends a sentence inside of `x.(y)`, too, which may be one token.
    cuts = [0, *(start for start in starts if text[start - 1].isspace()), len(text)]
    return "\n".join(text[start:end] for start, end in pairwise(cuts))


def _warn_of_dropped_letters(references: Sequence[str | Sequence[str]]) -> None:
    letters = [letter for those in references for text in _several(those) for letter in text if letter.isalpha()]
    dropped = [letter for letter in letters if not letter.isascii()]
    if dropped:
        share = f"{len(dropped) / len(letters):.1%}".replace("%", " %")
        warnings.warn(
            f"The tokenisation `rouge` knows English alone: it drops {len(dropped)} of the {len(letters)} letters of "
            f"the references ({share}; the first is {dropped[0]!r}), and parts words there. For text in other "
            'languages pass --tokenize words (`tokenize="words"`, in a training evaluation.rouge_tokenize=words).',
            stacklevel=4,
        )


def _words(text: str) -> list[str]:
    """Words in lower case, without punctuation, in any script."""
    return [word for word in segment(text.lower()).words if not is_punctuation(word)]


class _Whole(Tokenizer):
    """Tokens of which nothing is thrown away; `rouge-score` itself keeps letters and digits of ASCII alone."""

    def __init__(self, split: Callable[[str], list[str]], stemmer: bool):
        self.split = split
        self.stemmer = PorterStemmer() if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        tokens = self.split(text)
        if self.stemmer is None:
            return tokens
        return [self.stemmer.stem(token) if len(token) > 3 else token for token in tokens]
