"""From an adapted model to a full calibrated model."""

import copy
import dataclasses
from operator import attrgetter
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_attncal.families import backbones, stock_type
from hf_attncal.models.configuration_attncal import AttnCalConfigMixin

from .layers import CHILD, AdapterLayer, active_settings, cross_attentions

# A score of NULL that leaves it no weight at all, in every floating-point type.
_NO_NULL = -1e4


def export_calibrated(model: nn.Module) -> PreTrainedModel:
    """Make a full `AttnCal...` model that computes the same as the base model with its active adapter.

    It owns its weights, saves its code with `save_pretrained`, and loads with `trust_remote_code=True` where this
    package is not installed. Adapters of other methods that are active (LoRA) are merged into its weights. The given
    model is not changed.

    Args:
        model: a PEFT model, or a transformers model with `add_adapter` / `load_adapter`.

    Raises:
        ValueError: there is no active attention-calibration adapter; there is no full model of this architecture; the
            full model could not compute the same (`layers` with `renormalize=False`, `modules_to_save`).
    """
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    settings = active_settings(base)
    if settings is None:
        raise ValueError(
            "the model has no active attention-calibration adapter to export. Load one, or `set_adapter` it."
        )
    model_type = stock_type(base.config.model_type)  # ours with every switch off
    if model_type not in backbones() or base.get_output_embeddings() is None:
        raise ValueError(
            f"there are full models for {sorted(backbones())} with a language modelling head, got "
            f"{type(base).__name__} (model_type '{model_type}'). Share the adapter itself."
        )
    partial = settings.layers is not None and len(settings.layers) < len(cross_attentions(base))
    if partial and settings.calibration is not None and not settings.renormalize:
        raise ValueError(
            f"`layers={settings.layers}` with `renormalize=False` cannot be exported: the full model calibrates all "
            "layers, and only a renormalised calibration can leave the others as they are."
        )
    if any(isinstance(module, AuxiliaryTrainingWrapper) for module in base.modules()):
        raise ValueError("a model with `modules_to_save` cannot be exported: merge that adapter first.")

    family = backbones()[model_type]
    calibrated = settings.calibration is not None
    values = {key: value for key, value in base.config.to_dict().items() if key not in ("model_type", "architectures")}
    shared = (field.name for field in dataclasses.fields(AttnCalConfigMixin) if hasattr(settings, field.name))
    values |= {name: getattr(settings, name) for name in shared}
    values["renormalize"] = settings.renormalize and calibrated
    values["null_bias"] = settings.null_bias if settings.leaky else None
    config = family.config_class(**values, attn_implementation=base.config._attn_implementation)
    full = family.model_class(config).to(device=base.device, dtype=base.dtype)
    merged = _with_others_merged(base)
    own = {module: name for name, module in full.named_modules()}
    weights, steps = {}, set()
    for number, (_, attention) in cross_attentions(full).items():
        layer: Any = getattr(merged.get_decoder().layers[number].encoder_attn, CHILD, None)
        adapted = layer is not None and layer.active_name is not None
        for name, tensor in attention.state_dict().items():
            if name.partition(".")[0].endswith("_proj"):
                continue
            idle = torch.full_like(tensor, _NO_NULL if name == "null.bias" else 0)
            weights[f"{own[attention]}.{name}"] = attrgetter(name)(layer) if adapted else idle
        if adapted:
            steps.add(layer.annealing_step)
    for name in full.state_dict():
        if name not in weights:
            weights[name] = _base_tensor(merged, name)
    for number, (name, _) in cross_attentions(full).items():
        layer = getattr(merged.get_decoder().layers[number].encoder_attn, CHILD, None)
        for side in ("query", "key") if layer is not None and layer.head_change is not None else ():
            changed = f"{name}.{side[0]}_proj.weight"
            weights[changed] = weights[changed] + layer.head_change.weight(side).to(weights[changed])
    full.load_state_dict(weights)
    if full.annealing_step is not None:
        full.set_annealing_step(max(steps))  # layers without the adapter have not counted
    full.generation_config = copy.deepcopy(base.generation_config)
    return full.train(base.training)


def _with_others_merged(base: nn.Module) -> Any:
    """Return `base`, or a copy of it with the active adapters of other methods merged into its weights."""

    def others(model: nn.Module) -> list[BaseTunerLayer]:
        layers = (module for module in model.modules() if isinstance(module, BaseTunerLayer))
        return [layer for layer in layers if not isinstance(layer, AdapterLayer)]

    if not others(base):
        return base
    base = copy.deepcopy(base)
    for layer in others(base):
        if not layer.disable_adapters:
            layer.merge()
    return base


def _base_tensor(model: nn.Module, name: str) -> Tensor:
    """Return the parameter or buffer of this name, also from a module that an adapter of another method wraps."""
    *path, leaf = name.split(".")
    module = model
    for part in path:
        module = getattr(module, part)
        if isinstance(module, BaseTunerLayer) and not isinstance(module, AdapterLayer):
            module = module.get_base_layer()
    return getattr(module, leaf)
