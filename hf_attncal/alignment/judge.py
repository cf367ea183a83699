"""What the scores say of a text while it is aligned: that the aligner does not know it, or reads it the wrong way."""

import warnings
from collections.abc import Sequence

from .aligner import Sentence, WordAligner
from .mask_align import MaskAlignSource
from .merging import WordAlignment
from .quality import GOOD_SCORE, LEAST_SCORE, exchanged_scores

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

    def __init__(self, aligner: WordAligner, adapts: bool, shows_scores: bool, **options):
        self.aligner, self.adapts, self.shows_scores, self.options = aligner, adapts, shows_scores, options
        self._two_ways = isinstance(aligner.source, MaskAlignSource)
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list[tuple[Sentence, Sentence]] = []
        self._exchanged: tuple[float, float] | None = None

    def see(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> None:
        """Take note of the pairs that are aligned next."""
        new = not self._sample
        self._sample += pairs[: _PAIRS_TO_EXCHANGE - len(self._sample)]
        if new and self.adapts:
            self._compare()  # once it has read them, it knows the text either way

    def add(self, alignments: Sequence[WordAlignment]) -> None:
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
