"""Word alignment: Pharaoh files, alignment error rate, and links read off attention."""

from .aer import AlignmentScore, GoldAlignment, alignment_error_rate, check_index_base, parse_alignments
from .extraction import argmax_links, extract_links, subword_word_ids, word_attention

__all__ = [
    "AlignmentScore",
    "GoldAlignment",
    "alignment_error_rate",
    "argmax_links",
    "check_index_base",
    "extract_links",
    "parse_alignments",
    "subword_word_ids",
    "word_attention",
]
