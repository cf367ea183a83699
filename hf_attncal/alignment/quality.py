"""Estimate the quality of alignments without annotated links, and warn of links that are probably bad."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.data.segmentation import fold, is_unspaced
from hf_attncal.data.words import split_words
from hf_attncal.io.errors import until_failure

if TYPE_CHECKING:
    from .aligner import Sentence, WordAligner
    from .links import WordAlignment

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


# ---- lines that are shifted ----

_PAIRS_TO_SHIFT, _MAX_SHIFT = 200, 3  # lines that are compared, and lines by which one side may be shifted
_MAX_FREQUENCY = 0.05  # a word in more of the lines does not identify one
# Minimum number of lines that share a word if one side is shifted, and its ratio to the number without the shift.
_MIN_SHARED, _MIN_RATIO = 8, 3


def shift_warning(pairs: "Sequence[tuple[Sentence, Sentence]]", last: int) -> str | None:
    """Return a warning if the lines of one side are shifted, else None.

    The lines are compared by rare words that are the same on both sides (numbers, names).

    Args:
        pairs: Neighbouring pairs.
        last: Line number of the last one.
    """
    sides = [
        [{fold(word) for word in (split_words(line) if isinstance(line, str) else line)} for line in side]
        for side in zip(*pairs, strict=True)
    ]
    if not sides:
        return None
    counts = [Counter(word for line in side for word in line) for side in sides]
    most = max(1, _MAX_FREQUENCY * len(pairs))
    rare = {word for word in counts[0].keys() & counts[1].keys() if max(of[word] for of in counts) <= most}
    sources, targets = ([line & rare for line in side] for side in sides)

    def shared(shift: int) -> int:
        return sum(
            not source.isdisjoint(target)
            for source, target in zip(sources[max(0, -shift) :], targets[max(0, shift) :], strict=False)
        )

    shift = max(range(-_MAX_SHIFT, _MAX_SHIFT + 1), key=lambda shift: (shared(shift), -abs(shift)))
    if shift == 0 or shared(shift) < max(_MIN_SHARED, _MIN_RATIO * shared(0)):
        return None
    return (
        f"the lines are shifted: near line {last}, {shared(shift)} of {len(pairs)} sources share a rare word with "
        f"the target line {abs(shift)} {'below' if shift > 0 else 'above'}, and {shared(0)} with their own. Links of "
        "such lines are wrong: find the line that is missing or added on one side."
    )


# ---- while a text is aligned ----

_MIN_PAIRS_TO_JUDGE = 100  # for the warning of a low mean score
# Share of pairs unlike the annotated ones: 30 to 46 % in similar text, at least 62 % in other text.
_MAX_UNLIKE = 0.6


class Judge:
    """Statistics of the alignments of a text, which warn of bad links at the end.

    Args:
        aligner: Word aligner.
        adapts: True if the aligner adapts to the text.
        shows_scores: True if probabilities of links are written or used to select links.
        options: `tokenize` and `words` of `WordAligner.align`.
    """

    def __init__(self, aligner: "WordAligner", adapts: bool, shows_scores: bool, **options):
        self.aligner, self.adapts, self.shows_scores, self.options = aligner, adapts, shows_scores, options
        self._two_ways = "harmonic" in aligner.source.symmetrizations
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list = []
        self._exchanged: str | None = None
        self._shifted: str | None = None
        self._seen = 0

    def see(self, pairs: "Sequence[tuple[Sentence, Sentence]]") -> None:
        """Add pairs that are aligned next to the sample."""
        first = not self._sample
        self._seen += len(pairs)
        self._shifted = self._shifted or shift_warning(pairs[-_PAIRS_TO_SHIFT:], self._seen)
        self._sample += pairs[: MAX_PAIRS_TO_EXCHANGE - len(self._sample)]
        if first and self.adapts:
            self._compare()  # before adaptation, after which both orders score well

    def add(self, alignments: "Sequence[WordAlignment]") -> None:
        """Add the scores of aligned pairs."""
        scores = [alignment.score for alignment in alignments if alignment.score is not None]
        self._scored, self._total = self._scored + len(scores), self._total + sum(scores)
        self._unlike += sum(alignment.shift == 1 for alignment in alignments)

    def warn(self) -> None:
        """Warn of bad links.

        Warns:
            UserWarning: lines shifted, probabilities too high for this text, source and target exchanged, or links
                probably bad.
        """
        if self._shifted:
            warnings.warn(self._shifted, stacklevel=3)
        if not (self.options.get("tokenize") or self.aligner.source.tokenize):
            for side, name in zip(zip(*self._sample, strict=True), ("source", "target"), strict=False):
                if is_unspaced(text if isinstance(text, str) else " ".join(text) for text in side):
                    warnings.warn(
                        f"the {name} has no spaces between its words, so that links count whole phrases. Split it "
                        "into words first, or use an aligner of raw text (data.raw_text=true) with --offsets.",
                        stacklevel=3,
                    )
        if not self._scored:
            return
        enough = self._scored >= MIN_PAIRS_TO_EXCHANGE
        if self.shows_scores and enough and self._unlike > _MAX_UNLIKE * self._scored:
            warnings.warn(
                f"{self._unlike / self._scored:.0%} of the pairs are unlike the annotated text of the calibration, so "
                "that probabilities of links may be too high. Annotate some dozens of pairs of this text and run "
                "`attncal align calibrate` again.",
                stacklevel=3,
            )
        mean = self._total / self._scored
        if mean < GOOD_SCORE and not self.adapts:
            self._compare()
        if self._exchanged:
            warnings.warn(self._exchanged, stacklevel=3)
        elif not self._shifted and self._scored >= _MIN_PAIRS_TO_JUDGE and mean < LEAST_SCORE and self._two_ways:
            warnings.warn(
                f"the links are probably bad: the mean score of a pair is {mean:.2f}, and a good aligner has 0.6 or "
                "more. Check that the lines are translations of each other; if they are, adapt the aligner (--adapt), "
                "or train it on this text as well (`attncal align train --source TRAIN THIS --target TRAIN THIS`).",
                stacklevel=3,
            )

    def _compare(self) -> None:
        """Compare the scores of the sample in both orders."""
        self._exchanged = exchange_warning(self.aligner, self._sample, **self.options)
