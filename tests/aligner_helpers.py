"""Tiny word aligners, and text for them."""

import torch
from helpers import scatter

from hf_attncal import WordAligner
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.data.tokenizer import fast_tokenizer
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.models.modeling_mask_align import MaskAlignModel

TEXT = ["the old house is a small house", "das alte Haus ist ein kleines Haus", "東京 に ある Straße é"]
PAIRS = [
    ("the old house", "das alte Haus"),
    ("a", "ein"),
    ("the small house is old the small house is old", "das kleine Haus"),
    ("house", "das kleine Haus ist ein kleines altes Haus ist klein"),
    ("the house is a house", "das Haus ist ein Haus"),
]
LIMIT = 40


def tiny_mask_align(tokenizer, **config) -> MaskAlignModel:
    """Return a small random model whose attention is far from uniform."""
    torch.manual_seed(5)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "attention_heads": 2, "ffn_dim": 16}
    options = {"vocab_size": len(tokenizer), "max_position_embeddings": LIMIT, "pad_token_id": tokenizer.pad_token_id}
    model = MaskAlignModel(MaskAlignConfig(**sizes | options | config)).eval()
    scatter(model, 0.3)
    return model


def counting_aligner(pairs) -> WordAligner:
    """Return `quick_aligner` of some pairs as a transformers model and tokenizer, which can be saved."""
    quick = quick_aligner(pairs)
    fields = {name: value for name, value in vars(quick.model.config).items() if name != "model_type"}
    model = HMMAlignModel(HMMAlignConfig(**fields)).eval()
    model.load_state_dict(quick.model.state_dict())
    aligner = WordAligner(model, fast_tokenizer(quick.tokenizer.backend_tokenizer))
    assert aligner.align(pairs[:10]) == quick.align(pairs[:10])
    return aligner
