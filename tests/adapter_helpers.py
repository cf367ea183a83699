"""Tiny base models on disk and adapters on them, for the tests of adapters."""

import copy
import functools
from pathlib import Path

import pytest
import torch
from helpers import TINY, scatter
from peft import PeftModel, get_peft_model
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
)

from hf_attncal.adapters import AttentionCalibrationConfig

BACKBONES = {
    "marian": (MarianConfig, MarianMTModel),
    "bart": (BartConfig, BartForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
    "pegasus": (PegasusConfig, PegasusForConditionalGeneration),
    "m2m_100": (M2M100Config, M2M100ForConditionalGeneration),
}
CALIBRATED = {
    "fixed": {"calibration": "fixed"},
    "annealed": {"calibration": "annealed", "annealing_steps": 10},
    "gated": {"calibration": "gated"},
    "fixed, trained inputs": {"calibration": "fixed", "mask_inputs": "trained"},
    "gated, head": {"calibration": "gated", "mask_projection": "head", "output_gate": True},
    "fixed, layer 1": {"calibration": "fixed", "layers": [1], "calibration_weight": 0.5},
    "gated, not renormalized": {"calibration": "gated", "renormalize": False},
}
LEAKY = {
    "leaky": {"calibration": None, "leaky": True},
    "gated, leaky": {"calibration": "gated", "leaky": True},
    "annealed, leaky, layer 0": {
        **{"calibration": "annealed", "annealing_steps": 10, "leaky": True, "output_gate": True},
        "layers": [0],
    },
    "output gate": {"calibration": None, "output_gate": True},
}
SETTINGS = CALIBRATED | LEAKY
# Every backbone with every setting. The usual run takes each setting once and each backbone twice or more, because the
# other combinations run the same code.
PAIRS = [
    pytest.param(
        backbone,
        values,
        id=f"{backbone}, {name}",
        marks=() if (index + number) % len(BACKBONES) == 0 else pytest.mark.slow,
    )
    for number, backbone in enumerate(BACKBONES)
    for index, (name, values) in enumerate(SETTINGS.items())
]


def save_base(folder: Path, backbone: str, dtype: torch.dtype = torch.float64, **config) -> Path:
    """Save a tiny random base model, and return its folder."""
    config_class, model_class = BACKBONES[backbone]
    torch.manual_seed(3)
    no_layerdrop = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}  # not the default of M2M100
    model = model_class(config_class(**TINY | no_layerdrop | config)).to(dtype)
    scatter(model)
    model.save_pretrained(folder / backbone)
    return folder / backbone


def load_base(folder: Path) -> PreTrainedModel:
    """Return the base model of a folder in evaluation mode; its files are read once."""
    stats = ((file.name, file.stat()) for file in sorted(folder.iterdir()))
    return copy.deepcopy(_base_of(folder, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)))


@functools.lru_cache(maxsize=16)
def _base_of(folder: Path, files: tuple) -> PreTrainedModel:
    return read_base(folder)


def read_base(folder: Path) -> PreTrainedModel:
    """Load the base model from its files, which draws random numbers."""
    return BACKBONES[folder.name][1].from_pretrained(folder).eval()


def adapter_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if ".attncal_" in name}


def scatter_adapter(model: torch.nn.Module, seed: int = 7) -> None:
    """Give the adapters random parameters and 4 steps of annealing, so that no term is 0 by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for name, buffer in model.named_buffers():
            if name.endswith("annealing_step"):
                buffer.fill_(4)


def adapted(folder: Path, **settings) -> PeftModel:
    """Return the base model of a folder with a scattered adapter, in evaluation mode."""
    model = get_peft_model(load_base(folder), AttentionCalibrationConfig(**settings))
    scatter_adapter(model)
    return model.eval()


def logits(model, batch) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch).logits
