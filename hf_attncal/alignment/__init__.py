"""Word alignment: the `WordAligner`, Pharaoh files, symmetrisation, scores, and links read off attention.

Training is in `hf_attncal.training.word_alignment`.
"""

from hf_attncal.data.pharaoh import GoldAlignment, check_index_base, parse_alignments, parse_hypotheses
from hf_attncal.data.words import subword_word_ids
from hf_attncal.metrics.aer import AER_METRIC, AlignmentScore, alignment_error_rate, paired_bootstrap

from .aligner import WordAligner, WordAlignment
from .generated import GeneratedAlignment, align_generated
from .links import argmax_links, extract_links, word_attention
from .seq2seq import Seq2SeqAttention, select_attention, seq2seq_weights
from .symmetrization import SYMMETRIZATIONS, harmonic, symmetrize, symmetrize_links

__all__ = [
    "AER_METRIC",
    "SYMMETRIZATIONS",
    "AlignmentScore",
    "GeneratedAlignment",
    "GoldAlignment",
    "Seq2SeqAttention",
    "WordAligner",
    "WordAlignment",
    "align_generated",
    "alignment_error_rate",
    "argmax_links",
    "check_index_base",
    "extract_links",
    "harmonic",
    "paired_bootstrap",
    "parse_alignments",
    "parse_hypotheses",
    "select_attention",
    "seq2seq_weights",
    "subword_word_ids",
    "symmetrize",
    "symmetrize_links",
    "word_attention",
]
