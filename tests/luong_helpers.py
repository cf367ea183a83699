"""Tiny random recurrent models."""

import torch
from helpers import scatter

from hf_attncal import LuongConfig, LuongForConditionalGeneration

TINY = {
    "vocab_size": 11,
    "d_model": 4,
    "embedding_size": 3,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "window_width": 1,
    "max_source_length": 6,
    "dropout": 0.0,
}


def tiny_luong(**settings) -> LuongForConditionalGeneration:
    """Return a tiny random model in float64 with scattered parameters; `settings` override fields."""
    torch.manual_seed(3)
    model = LuongForConditionalGeneration(LuongConfig(**TINY | settings)).double()
    scatter(model, 0.6)
    if model.config.calibration == "annealed":
        model.set_annealing_step(4)
    return model
