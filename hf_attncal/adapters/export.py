"""From an adapted model to files: a full calibrated model, or the adapter alone in a chosen precision."""

import copy
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from peft.utils.other import AuxiliaryTrainingWrapper
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_attncal.models.configuration_attncal import AttnCalBartConfig, AttnCalMarianConfig
from hf_attncal.models.modeling_attncal_bart import AttnCalBartForConditionalGeneration
from hf_attncal.models.modeling_attncal_marian import AttnCalMarianMTModel

from .layers import CHILD, AdapterLayer, active_settings, adapter_layers, cross_attentions

_FULL_MODELS = {
    "marian": (AttnCalMarianConfig, AttnCalMarianMTModel),
    "bart": (AttnCalBartConfig, AttnCalBartForConditionalGeneration),
}
_PREFIX = "base_model.model."  # of the weights in every adapter file
# A score of NULL that leaves it no weight at all, in every floating-point type.
_NO_NULL = -1e4


def export_calibrated(model: nn.Module) -> PreTrainedModel:
    """A full `AttnCal...` model that computes what the base model with its active adapter computes.

    It owns its weights, saves its code with `save_pretrained`, and loads with `trust_remote_code=True` where this
    package is not installed. Adapters of other methods that are active (LoRA) are merged into its weights. The given
    model is not changed.

    Args:
        model: a PEFT model, or a transformers model with `add_adapter` / `load_adapter`.

    Raises:
        ValueError: there is no active attention-calibration adapter; there is no full model of this architecture; the
            full model could not compute the same (`layers` with `renormalize=False`, `modules_to_save`).
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    settings = active_settings(base)
    if settings is None:
        raise ValueError(
            "the model has no active attention-calibration adapter to export. Load one, or `set_adapter` it."
        )
    model_type = base.config.model_type
    if model_type not in _FULL_MODELS or base.get_output_embeddings() is None:
        raise ValueError(
            f"there are full models for {sorted(_FULL_MODELS)} with a language modelling head, got "
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

    config_class, model_class = _FULL_MODELS[model_type]
    calibrated = settings.calibration is not None
    values = {key: value for key, value in base.config.to_dict().items() if key not in ("model_type", "architectures")}
    config = config_class(
        **values,
        calibration=settings.calibration,
        calibration_weight=settings.calibration_weight,
        annealing_steps=settings.annealing_steps,
        mask_projection=settings.mask_projection,
        mask_penalty=settings.mask_penalty,
        renormalize=settings.renormalize and calibrated,
        leaky=settings.leaky,
        null_key_std=settings.null_key_std,
        null_bias=settings.null_bias if settings.leaky else None,
        label_smoothing=settings.label_smoothing,
        attn_implementation=base.config._attn_implementation,
    )
    full = model_class(config).to(device=base.device, dtype=base.dtype)
    merged = _with_others_merged(base)
    own = {module: name for name, module in full.named_modules()}
    weights = {}
    for number, (_, attention) in cross_attentions(full).items():
        layer = getattr(merged.get_decoder().layers[number].encoder_attn, CHILD, None)
        active = layer is not None and layer.active_name is not None
        for name, tensor in (_active(layer) if active else _idle(attention)).items():
            weights[f"{own[attention]}.{name}"] = tensor
    steps = [tensor for name, tensor in weights.items() if name.endswith(".annealing_step")]
    for step in steps:  # idle layers have not counted
        step.fill_(max(map(int, steps)))
    for name in full.state_dict():
        if name not in weights:
            weights[name] = _base_tensor(merged, name)
    full.load_state_dict(weights)
    full.generation_config = copy.deepcopy(base.generation_config)
    return full.train(base.training)


def _active(layer: AdapterLayer) -> dict[str, Tensor]:
    """The parameters of the active adapter under their names in a full model's cross-attention."""
    tensors = {}
    if layer.switches.calibration is not None:
        tensors["mask_network.query_weight"] = layer.mask_network.query_weight
        tensors["mask_network.key_weight"] = layer.mask_network.key_weight
    if layer.switches.calibration == "gated":
        tensors |= {"gate.weight": layer.gate.weight, "gate.bias": layer.gate.bias}
    if layer.annealing_step is not None:
        tensors["annealing_step"] = layer.annealing_step.clone()
    if layer.switches.leaky:
        tensors |= {"null_key": layer.null_key, "null_value": layer.null_value, "null_bias": layer.null_bias}
    return tensors


def _idle(attention: nn.Module) -> dict[str, Tensor]:
    """Values with which a full model's cross-attention computes the plain one: a constant mask, no weight on NULL."""
    state = attention.state_dict()
    tensors = {name: torch.zeros_like(state[name]) for name in state if not name.split(".")[0].endswith("_proj")}
    if "null_bias" in tensors:
        tensors["null_bias"].fill_(_NO_NULL)
    return tensors


def _with_others_merged(base: nn.Module) -> nn.Module:
    """`base`, or a copy of it in which the active adapters of other methods are part of the weights."""

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
    """The parameter or buffer of this name, in the modules that adapters of other methods wrap."""
    *path, leaf = name.split(".")
    module = model
    for part in path:
        module = getattr(module, part)
        if isinstance(module, BaseTunerLayer) and not isinstance(module, AdapterLayer):
            module = module.get_base_layer()
    return getattr(module, leaf)


def save_adapter(
    model: nn.Module, folder: str | Path, *, adapter_name: str | None = None, dtype: torch.dtype | None = None
) -> Path:
    """Save one adapter, its configuration and its card, in a precision of its own.

    `save_pretrained` keeps the precision of training, as an exact resume needs; to share an adapter, half of the bytes
    will do: `save_adapter(model, "folder", dtype=torch.bfloat16)`.

    Args:
        model: a PEFT model, or a transformers model with `add_adapter` / `load_adapter`.
        adapter_name: an adapter of any method; `None` for the active attention-calibration adapter.
        dtype: `None` to keep each tensor's. Counters stay integers.

    Returns:
        The folder.

    Raises:
        ValueError: there is no such adapter.
    """
    configs = getattr(model, "peft_config", {})
    if adapter_name is None:
        active = {layer.active_name for layer in adapter_layers(model)} - {None}
        adapter_name = next(iter(active), None)
    if adapter_name not in configs:
        raise ValueError(f"`adapter_name` must be one of the adapters {sorted(configs)}, got {adapter_name!r}.")
    state = get_peft_model_state_dict(model, adapter_name=adapter_name, save_embedding_layers=False)
    if not state:
        raise ValueError(f"the adapter {adapter_name!r} has no weights under its name: rename it.")
    if dtype is not None:
        state = {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
    state = {f"{_PREFIX}{name.removeprefix(_PREFIX)}": t for name, t in state.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(configs[adapter_name])
    config.inference_mode = True
    if config.base_model_name_or_path is None:
        config.base_model_name_or_path = getattr(model, "name_or_path", None) or None
    save_file(
        {name: tensor.detach().contiguous().cpu() for name, tensor in state.items()},
        folder / SAFETENSORS_WEIGHTS_NAME,
        metadata={"format": "pt"},
    )
    config.save_pretrained(str(folder))
    return folder


def restore_adapter(model: nn.Module, folder: str | Path, adapter_name: str) -> None:
    """Fill an adapter that the model already has with the weights that `save_adapter` or PEFT wrote.

    Raises:
        ValueError: the file does not hold exactly this adapter's weights.
        OSError: there is no such file.
    """
    state = load_file(Path(folder) / SAFETENSORS_WEIGHTS_NAME)
    state = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
    own = get_peft_model_state_dict(model, adapter_name=adapter_name, save_embedding_layers=False)
    own = {name.removeprefix(_PREFIX) for name in own}
    if own != state.keys():
        raise ValueError(
            f"{folder} does not hold the adapter {adapter_name!r} of this model: {len(own - state.keys())} weights "
            f"are missing, {len(state.keys() - own)} are unexpected."
        )
    set_peft_model_state_dict(model, state, adapter_name=adapter_name)
