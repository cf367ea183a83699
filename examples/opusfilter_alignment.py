"""A filter of OpusFilter: a sentence pair whose words have no partners on the other side is no translation.

    steps:
      - type: filter
        parameters:
          inputs: [text.en.gz, text.fr.gz]
          outputs: [clean.en.gz, clean.fr.gz]
          filters:
            - AlignmentFilter: {aligner: aligner, threshold: 0.5}
              module: opusfilter_alignment # this file; its folder in PYTHONPATH

The score of a pair is `WordAlignment.score`, from 0 to 1; 0 where a side is empty. Words are what white space parts,
so text is tokenised first (OpusFilter's preprocessor `Tokenizer`). Which threshold: docs/alignment.md.
"""

from itertools import islice

from opusfilter import CLEAN_HIGH, FilterABC

from hf_attncal import WordAligner


class AlignmentFilter(FilterABC):
    """Accepts pairs that score above `threshold`; `aligner` is the folder or Hub name of a word aligner."""

    score_direction, accept_threshold, reject_threshold = CLEAN_HIGH, -1, 1

    def __init__(self, aligner, threshold=0.5, batch_size=1024, **kwargs):
        super().__init__(**kwargs)
        self.aligner, self.threshold, self.batch_size = WordAligner.from_pretrained(aligner), threshold, batch_size

    def score(self, pairs):
        pairs = iter(pairs)
        while batch := list(islice(pairs, self.batch_size)):
            yield from (found.score or 0.0 for found in self.aligner.align(batch))

    def accept(self, score):
        return score > self.threshold

    def filter(self, pairs):  # OpusFilter's own asks for the score of one pair after the other
        pairs = iter(pairs)
        while batch := list(islice(pairs, self.batch_size)):
            yield from (pair for pair, good in zip(batch, self.decisions(batch), strict=True) if good)
