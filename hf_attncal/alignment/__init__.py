"""Word alignment: the `WordAligner` over sources of weights, symmetrisation, and links of generated text.

Training is in `hf_attncal.training.word_alignment`, scores in `hf_attncal.metrics.aer`, Pharaoh files in
`hf_attncal.data.pharaoh`; what users of the aligner need of them is here, too.
"""

from hf_attncal.data.pharaoh import GoldAlignment, parse_alignments
from hf_attncal.metrics.aer import AER_METRIC, AlignmentScore, alignment_error_rate

from .adapting import Adaptation
from .aligner import WordAligner
from .batches import AlignBatch
from .check import Checker, PairVerdict
from .check_learning import learn_check
from .encoder import EncoderStates
from .generated import GeneratedAlignment, align_generated
from .gold import Calibration, Gold, calibrate
from .label_projection import ProjectedLine, project
from .link_counts import lexicon
from .links import argmax_links
from .merging import WordAlignment
from .probabilities import LinkProbabilities
from .quick import align_quick
from .selection import select, select_attention, select_states, select_states_by_agreement
from .seq2seq import Seq2SeqAttention, seq2seq_weights
from .sources import Weights, WeightSource
from .symmetrization import SYMMETRIZATIONS, harmonic, symmetrize, symmetrize_links

__all__ = [
    "AER_METRIC",
    "SYMMETRIZATIONS",
    "Adaptation",
    "AlignBatch",
    "AlignmentScore",
    "Calibration",
    "Checker",
    "EncoderStates",
    "GeneratedAlignment",
    "Gold",
    "GoldAlignment",
    "LinkProbabilities",
    "PairVerdict",
    "ProjectedLine",
    "Seq2SeqAttention",
    "WeightSource",
    "Weights",
    "WordAligner",
    "WordAlignment",
    "align_generated",
    "align_quick",
    "alignment_error_rate",
    "argmax_links",
    "calibrate",
    "harmonic",
    "learn_check",
    "lexicon",
    "parse_alignments",
    "project",
    "select",
    "select_attention",
    "select_states",
    "select_states_by_agreement",
    "seq2seq_weights",
    "symmetrize",
    "symmetrize_links",
]
