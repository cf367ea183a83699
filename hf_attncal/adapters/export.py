"""Export of an adapted model to a full calibrated model."""

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

from hf_attncal.families import stock_type, translators
from hf_attncal.models.configuration_attncal import AttnCalConfigMixin

from .configuration import AttentionCalibrationConfig
from .layers import CHILD, AdapterLayer, active_settings, cross_attentions

# A score of NULL that gives it weight 0 in every floating-point type.
_NO_NULL = -1e4


def export_calibrated(model: nn.Module) -> PreTrainedModel:
    """Return a full `AttnCal...` model that computes the same as the base model with its active adapter.

    The model has its own weights, saves its code with `save_pretrained`, and loads with `trust_remote_code=True` even
    if this package is not installed. Active adapters of other methods (LoRA) are merged into its weights. `model` is
    not changed.

    Args:
        model: PEFT model, or transformers model with `add_adapter` / `load_adapter`.

    Raises:
        ValueError: there is no active attention-calibration adapter; this package has no full model of this
            architecture; or the full model could not compute the same (`layers` with `renormalize=False`,
            `modules_to_save`).
    """
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    settings = _exportable_settings(base)
    family = translators()[stock_type(base.config.model_type)]
    values = {key: value for key, value in base.config.to_dict().items() if key not in ("model_type", "architectures")}
    shared = (field.name for field in dataclasses.fields(AttnCalConfigMixin) if hasattr(settings, field.name))
    values |= {name: getattr(settings, name) for name in shared}
    values["renormalize"] = settings.renormalize and settings.calibration is not None
    values["null_bias"] = settings.null_bias if settings.leaky else None
    config = family.config_class(**values, attn_implementation=base.config._attn_implementation)
    full = family.model_class(config).to(device=base.device, dtype=base.dtype)
    merged = _with_others_merged(base)
    layers = {name: getattr(attention, CHILD, None) for name, attention in cross_attentions(merged).values()}
    full.load_state_dict({name: _exported(merged, layers, name, weight) for name, weight in full.state_dict().items()})
    if full.annealing_step is not None:
        steps = [layer.annealing_step for layer in layers.values() if layer is not None]
        full.set_annealing_step(max(step for step in steps if step is not None))  # other layers have counted none
    full.generation_config = copy.deepcopy(base.generation_config)
    return full.train(base.training)


def _exportable_settings(base: Any) -> AttentionCalibrationConfig:
    """Return the configuration of the active adapter, after checking that the model can be exported."""
    settings = active_settings(base)
    if settings is None:
        raise ValueError(
            "`model` has no active attention-calibration adapter. Load one, or activate it with `set_adapter`."
        )
    model_type = stock_type(base.config.model_type)  # an `AttnCal...` model with every switch off counts as stock
    families = sorted(name for name, family in translators().items() if "guided" in family.switches)
    if model_type not in families or base.get_output_embeddings() is None:
        raise ValueError(
            f"`model` must have a language modelling head and a model_type in {families}, got "
            f"{type(base).__name__} (model_type '{model_type}'). Share the adapter instead."
        )
    partial = settings.layers is not None and len(settings.layers) < len(cross_attentions(base))
    if partial and settings.calibration is not None and not settings.renormalize:
        raise ValueError(
            f"`layers={settings.layers}` with `renormalize=False` cannot be exported, because the full model "
            "calibrates all layers. Train the adapter with `renormalize=True`, or on all layers."
        )
    if any(isinstance(module, AuxiliaryTrainingWrapper) for module in base.modules()):
        raise ValueError("a model with `modules_to_save` cannot be exported. Merge that adapter first.")
    return settings


def _exported(merged: nn.Module, layers: dict[str, AdapterLayer | None], name: str, weight: Tensor) -> Tensor:
    """Return one weight of the full model, from the base model or from its adapter.

    Args:
        merged: base model with the adapters of other methods merged.
        layers: name of a cross-attention -> its adapter layer.
        name: name of the weight in the full model.
        weight: its initial value.
    """
    owner = next((owner for owner in layers if name.startswith(f"{owner}.")), "")
    layer, part = layers.get(owner), name.removeprefix(f"{owner}.")
    is_adapted = layer is not None and layer.active_name is not None
    if not owner or part.partition(".")[0].endswith("_proj"):
        weight = _base_tensor(merged, name)
        side = {"q_proj.weight": "query", "k_proj.weight": "key"}.get(part)
        if layer is not None and side is not None and layer.head_change is not None:
            weight = weight + layer.head_change.weight(side).to(weight)
        return weight
    return attrgetter(part)(layer) if is_adapted else torch.full_like(weight, _NO_NULL if part == "null.bias" else 0)


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
