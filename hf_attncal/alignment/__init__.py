"""Word alignment: the `WordAligner` over sources of weights, symmetrisation, and links of generated text.

Training is in `hf_attncal.training.word_alignment`, scores in `hf_attncal.metrics.aer`, Pharaoh files in
`hf_attncal.data.pharaoh`; what users of the aligner need of them is here, too.
"""

import importlib

# Names are imported when they are used: together they need transformers, which an aligner that counts does not.
_MODULES = {
    "hf_attncal.alignment.adapting": ("Adaptation",),
    "hf_attncal.alignment.aligner": ("WordAligner",),
    "hf_attncal.alignment.batches": ("AlignBatch",),
    "hf_attncal.alignment.check": ("Checker", "PairVerdict"),
    "hf_attncal.alignment.check_learning": ("learn_check",),
    "hf_attncal.alignment.comparison": ("ComparedLinks", "compare_links"),
    "hf_attncal.alignment.encoder": ("EncoderStates",),
    "hf_attncal.alignment.generated": ("GeneratedAlignment", "align_generated"),
    "hf_attncal.alignment.gold": ("Calibration", "Gold", "calibrate"),
    "hf_attncal.alignment.label_projection": ("ProjectedLine", "project"),
    "hf_attncal.alignment.link_counts": ("lexicon",),
    "hf_attncal.alignment.links": ("argmax_links",),
    "hf_attncal.alignment.merging": ("WordAlignment",),
    "hf_attncal.alignment.probabilities": ("LinkProbabilities",),
    "hf_attncal.alignment.quick": ("align_quick",),
    "hf_attncal.alignment.selection": ("select", "select_attention", "select_states", "select_states_by_agreement"),
    "hf_attncal.alignment.seq2seq": ("Seq2SeqAttention", "seq2seq_weights"),
    "hf_attncal.alignment.sources": ("Weights", "WeightSource"),
    "hf_attncal.alignment.symmetrization": ("SYMMETRIZATIONS", "harmonic", "symmetrize", "symmetrize_links"),
    "hf_attncal.data.pharaoh": ("GoldAlignment", "parse_alignments"),
    "hf_attncal.metrics.aer": ("AER_METRIC", "AlignmentScore", "alignment_error_rate"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
