"""Word alignment: the `WordAligner` over sources of weights, symmetrisation, lexicons and labels.

Training is in `hf_attncal.alignment.aligner_job`, scores in `hf_attncal.metrics.aer`, Pharaoh files in
`hf_attncal.data.pharaoh`; what users of the aligner need of them is here, too.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time `__getattr__` below imports these
    from hf_attncal.alignment.aligner import WordAligner as WordAligner
    from hf_attncal.alignment.attention_heads import select_attention as select_attention
    from hf_attncal.alignment.gold import Calibration as Calibration
    from hf_attncal.alignment.gold import calibrate_links as calibrate_links
    from hf_attncal.alignment.linked_texts import ComparedLinks as ComparedLinks
    from hf_attncal.alignment.linked_texts import compare_links as compare_links
    from hf_attncal.alignment.linked_texts import count_links as count_links
    from hf_attncal.alignment.links import SYMMETRIZATIONS as SYMMETRIZATIONS
    from hf_attncal.alignment.links import WordAlignment as WordAlignment
    from hf_attncal.alignment.links import argmax_links as argmax_links
    from hf_attncal.alignment.links import symmetrize_batch as symmetrize_batch
    from hf_attncal.alignment.links import symmetrize_links as symmetrize_links
    from hf_attncal.alignment.probabilities import LinkProbabilities as LinkProbabilities
    from hf_attncal.alignment.projection import ProjectedLine as ProjectedLine
    from hf_attncal.alignment.projection import project_labels as project_labels
    from hf_attncal.alignment.seq2seq import Seq2SeqAttention as Seq2SeqAttention
    from hf_attncal.alignment.seq2seq import seq2seq_weights as seq2seq_weights
    from hf_attncal.alignment.sources import Adaptation as Adaptation
    from hf_attncal.alignment.sources import Weights as Weights
    from hf_attncal.alignment.sources import WeightSource as WeightSource
    from hf_attncal.alignment.statistical import quick_aligner as quick_aligner
    from hf_attncal.alignment.streaming import AlignBatch as AlignBatch
    from hf_attncal.data.linked_pairs import Gold as Gold
    from hf_attncal.data.pharaoh import GoldAlignment as GoldAlignment
    from hf_attncal.data.pharaoh import parse_alignments as parse_alignments
    from hf_attncal.metrics.aer import AER_METRIC as AER_METRIC
    from hf_attncal.metrics.aer import AlignmentScore as AlignmentScore
    from hf_attncal.metrics.aer import alignment_error_rate as alignment_error_rate

# Names are imported when they are used: together they need transformers, which an aligner that counts does not.
_MODULES = {
    "hf_attncal.alignment.aligner": ("WordAligner",),
    "hf_attncal.alignment.streaming": ("AlignBatch",),
    "hf_attncal.alignment.gold": ("Calibration", "calibrate_links"),
    "hf_attncal.alignment.projection": ("ProjectedLine", "project_labels"),
    "hf_attncal.alignment.linked_texts": ("ComparedLinks", "compare_links", "count_links"),
    "hf_attncal.alignment.probabilities": ("LinkProbabilities",),
    "hf_attncal.alignment.statistical": ("quick_aligner",),
    "hf_attncal.alignment.attention_heads": ("select_attention",),
    "hf_attncal.alignment.seq2seq": ("Seq2SeqAttention", "seq2seq_weights"),
    "hf_attncal.alignment.sources": ("Adaptation", "Weights", "WeightSource"),
    "hf_attncal.alignment.links": (
        "SYMMETRIZATIONS",
        "WordAlignment",
        "argmax_links",
        "symmetrize_batch",
        "symmetrize_links",
    ),
    "hf_attncal.data.linked_pairs": ("Gold",),
    "hf_attncal.data.pharaoh": ("GoldAlignment", "parse_alignments"),
    "hf_attncal.metrics.aer": ("AER_METRIC", "AlignmentScore", "alignment_error_rate"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_LAZY)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
