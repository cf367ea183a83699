"""A word aligner of machine.py (`pip install sil-machine`) that asks one of ours.

    from machine_alignment import AttnCalAligner

    aligner = AttnCalAligner("aligner")  # folder or Hub name
    matrix = aligner.align("the house".split(), "das Haus".split())
    matrix[1, 1]

It goes wherever machine.py takes a `machine.translation.WordAligner`.
"""

from collections.abc import Sequence

from machine.translation.word_aligner import WordAligner as MachineAligner
from machine.translation.word_alignment_matrix import WordAlignmentMatrix

from hf_attncal import WordAligner


class AttnCalAligner(MachineAligner):
    """Links of `WordAligner.align` as matrices, (source words, target words).

    Args:
        name: folder or Hub name, as `WordAligner.from_pretrained` takes it, and so are its `options`.
    """

    def __init__(self, name: str, **options):
        self.aligner = WordAligner.from_pretrained(name, **options)

    def align(self, source_segment: Sequence[str], target_segment: Sequence[str]) -> WordAlignmentMatrix:
        return self.align_batch([(source_segment, target_segment)])[0]

    def align_batch(self, segments: Sequence[Sequence[Sequence[str]]]) -> list[WordAlignmentMatrix]:
        pairs = [(list(source), list(target)) for source, target in segments]
        return [
            WordAlignmentMatrix.from_word_pairs(len(source), len(target), alignment.links)
            for (source, target), alignment in zip(pairs, self.aligner.align(pairs), strict=True)
        ]
