"""Tiny word aligners, and text for them."""

import torch
from helpers import scatter

from hf_attncal.models.configuration_mask_align import MaskAlignConfig
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
    """A small random model whose attention is far from uniform."""
    torch.manual_seed(5)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "attention_heads": 2, "ffn_dim": 16}
    options = {"vocab_size": len(tokenizer), "max_position_embeddings": LIMIT, "pad_token_id": tokenizer.pad_token_id}
    model = MaskAlignModel(MaskAlignConfig(**sizes | options | config)).eval()
    scatter(model, 0.3)
    return model
