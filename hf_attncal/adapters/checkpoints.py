"""Save one adapter in a folder, in a chosen precision, and load it back into a model."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from hf_attncal.layouts import check_one_model

from .layers import adapter_layers

FILE_PREFIX = "base_model.model."  # prefix of the weights in every adapter file


def check_adapter_name(name: str) -> None:
    """Check that PEFT and the Trainer can use an adapter's name as the name of a folder and a module.

    Raises:
        ValueError: a path, an empty name, or a name with a dot.
    """
    if not name or set(name) & set("/\\.\0"):
        raise ValueError(f"`adapter_name` must be the name of a folder, without `/` and dots, got {name!r}.")


def save_adapter(
    model: nn.Module, folder: str | Path, *, adapter_name: str | None = None, dtype: torch.dtype | None = None
) -> Path:
    """Save one adapter with its configuration and card, in any precision.

    `save_pretrained` keeps the precision of training, which an exact resume needs. To share an adapter, half of the
    bytes are enough: `save_adapter(model, "folder", dtype=torch.bfloat16)`. Both also save the embeddings if tokens
    were added to the base model.

    Args:
        model: a PEFT model, or a transformers model with `add_adapter` / `load_adapter`.
        adapter_name: name of an adapter of any method. Default: `None`, the active attention-calibration adapter.
        dtype: floating-point type of the saved weights. Default: `None`, the type of each tensor. Counters stay
            integers.

    Returns:
        The folder.

    Raises:
        ValueError: there is no such adapter, or the folder holds a whole model.
    """
    configs: dict[str, Any] = getattr(model, "peft_config", {})
    if adapter_name is None:
        active = {layer.active_name for layer in adapter_layers(model)} - {None}
        adapter_name = next(iter(active), None)
    if adapter_name is None or adapter_name not in configs:
        raise ValueError(f"`adapter_name` must be one of the adapters {sorted(configs)}, got {adapter_name!r}.")
    check_adapter_name(adapter_name)
    state = _state(model, adapter_name)
    if not state:
        raise ValueError(f"`adapter_name` has no weights in the model, got {adapter_name!r}. Rename the adapter.")
    if dtype is not None:
        state = {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
    state = {f"{FILE_PREFIX}{name.removeprefix(FILE_PREFIX)}": t for name, t in state.items()}
    folder = Path(folder)
    check_one_model(folder, saves_adapter=True)
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(configs[adapter_name])
    config.inference_mode = True
    if config.base_model_name_or_path is None:
        config.base_model_name_or_path = getattr(model, "name_or_path", None) or None
    save_file(
        {name: tensor.detach().contiguous().cpu().clone() for name, tensor in state.items()},  # some may be tied
        folder / SAFETENSORS_WEIGHTS_NAME,
        metadata={"format": "pt"},
    )
    config.save_pretrained(str(folder))
    return folder


def restore_adapter(model: nn.Module, folder: str | Path, adapter_name: str) -> None:
    """Load the weights that `save_adapter` or PEFT saved into an existing adapter of the model.

    Raises:
        ValueError: the file does not hold exactly this adapter's weights.
        OSError: there is no such file.
    """
    state = load_file(Path(folder) / SAFETENSORS_WEIGHTS_NAME)
    state = {name.removeprefix(FILE_PREFIX): tensor for name, tensor in state.items()}
    own = {name.removeprefix(FILE_PREFIX) for name in _state(model, adapter_name)}
    if own != state.keys():
        raise ValueError(
            f"{folder} does not hold the adapter {adapter_name!r} of this model: {len(own - state.keys())} weights "
            f"are missing, {len(state.keys() - own)} are unexpected."
        )
    set_peft_model_state_dict(model, state, adapter_name=adapter_name)


def _state(model: Any, adapter_name: str) -> dict[str, torch.Tensor]:
    """Return the weights of an adapter, with the embeddings if the vocabulary size differs from the saved base model.

    This replaces PEFT's `save_embedding_layers="auto"`, which downloads from the Hub.
    """
    config, resized = model.peft_config[adapter_name], False
    base = config.base_model_name_or_path or getattr(model, "name_or_path", None)
    if base:
        with suppress(OSError, ValueError):  # without the base model's files assume the same tokens, as PEFT does
            saved = type(model.config).from_pretrained(base, revision=config.revision, local_files_only=True)
            resized = saved.vocab_size != model.config.vocab_size
    return get_peft_model_state_dict(model, adapter_name=adapter_name, save_embedding_layers=resized)


def embedding_weights(model: PreTrainedModel) -> set[str]:
    """Return the names of all input and output embedding weights, including tied ones."""
    layers = filter(None, (model.get_input_embeddings(), model.get_output_embeddings()))
    own = {id(weight) for layer in layers for weight in layer.parameters()}
    return {name for name, weight in model.named_parameters(remove_duplicate=False) if id(weight) in own}


@contextmanager
def peft_uses_old_names() -> Iterator[None]:
    """Silence a deprecation warning of transformers: PEFT 0.21 reads an attribute by its old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield
