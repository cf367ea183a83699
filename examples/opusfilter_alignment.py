"""Filters of OpusFilter: a sentence pair whose words have no partners on the other side is no translation.

    steps:
      - type: filter
        parameters:
          inputs: [text.en.gz, text.fr.gz]
          outputs: [clean.en.gz, clean.fr.gz]
          filters:
            - AlignmentFilter: {aligner: aligner, threshold: 0.5}
              module: opusfilter_alignment # this file; its folder in PYTHONPATH
            - CheckFilter: {aligner: aligner, threshold: 0.5}
              module: opusfilter_alignment

`AlignmentFilter` scores by `WordAlignment.score`, from 0 to 1; 0 where a side is empty. `CheckFilter` needs an aligner
for which `attncal check` has learned what good pairs look like, and scores by the probability that nothing is wrong.
Words are what white space parts, unless the aligner was trained on raw text (`--tokenize`). Which threshold:
docs/alignment.md.
"""

from itertools import islice

from opusfilter import CLEAN_HIGH, FilterABC

from hf_attncal import WordAligner
from hf_attncal.checking.checker import Checker


class AlignmentFilter(FilterABC):
    """Accepts pairs that score above `threshold`; `aligner` is the folder or Hub name of a word aligner."""

    score_direction, accept_threshold, reject_threshold = CLEAN_HIGH, -1, 1

    def __init__(self, aligner, threshold=0.5, batch_size=1024, **kwargs):
        super().__init__(**kwargs)
        self.scorer, self.threshold, self.batch_size = self.load(aligner), threshold, batch_size

    def load(self, name):
        return WordAligner.from_pretrained(name)

    def scores(self, pairs):
        return [found.score or 0.0 for found in self.scorer.align(pairs)]

    def score(self, pairs):
        pairs = iter(pairs)
        while batch := list(islice(pairs, self.batch_size)):
            yield from self.scores(batch)

    def accept(self, score):
        return score > self.threshold

    def filter(self, pairs):  # OpusFilter's own asks for the score of one pair after the other
        pairs = iter(pairs)
        while batch := list(islice(pairs, self.batch_size)):
            yield from (pair for pair, good in zip(batch, self.decisions(batch), strict=True) if good)


class CheckFilter(AlignmentFilter):
    """Filter that keeps pairs without a probable omission, addition, repetition or change."""

    def load(self, name):
        return Checker.from_pretrained(name)

    def scores(self, pairs):
        return [1 - verdict.wrong for verdict in self.scorer.check(pairs)]
