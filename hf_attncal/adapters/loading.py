"""From the folder or repository of a PEFT adapter, of any method, to a model with it."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftConfig, PeftModel, PeftType
from transformers import PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from hf_attncal.inference.files import (
    blamed,
    check_model_files,
    check_types,
    file_beside,
    read_object,
    tensor_types,
)
from hf_attncal.inference.opening import check_name
from hf_attncal.layouts import ADAPTER_WEIGHTS
from hf_attncal.models.limits import check_names
from hf_attncal.models.loading import check_finite

from .checkpoints import FILE_PREFIX, embedding_weights, peft_uses_old_names


def with_adapter(
    model: PreTrainedModel, config: PeftConfig, name: str | Path, revision: str | None = None
) -> PreTrainedModel:
    """Put an adapter into its base model, for inference, and return that model, with the tokens that it brings.

    Args:
        model: the base model.
        config: of `adapter_config`.
        name: folder or Hub name of the adapter.
        revision: branch, tag or commit of `name`.

    Raises:
        ValueError: the weights are not those of the configuration, are no floating-point numbers, or not finite.
    """
    config.inference_mode = True
    check_types(name)
    with peft_uses_old_names(), blamed(f"adapter_config.json or adapter_model.safetensors in {name}"):
        if weights := file_beside(name, ADAPTER_WEIGHTS, revision):
            _make_room(model, tensor_types(weights))
        # `from_pretrained` would only warn of missing weights, and ignore unexpected ones.
        adapted = PeftModel(model, config)
        report = adapted.load_adapter(str(name), "default", revision=revision)
    # Our adapters check this themselves. Other kinds share weights between layers, which PEFT counts as missing.
    missing, unexpected = report.missing_keys, report.unexpected_keys
    if config.peft_type == PeftType.LORA and (missing or unexpected):
        raise ValueError(
            f"{name} does not hold the weights that its adapter_config.json describes: {len(missing)} are missing "
            f"{missing[:3]}, {len(unexpected)} are unexpected {unexpected[:3]}. Save the adapter anew."
        )
    check_finite(adapted)
    base: Any = adapted.get_base_model()
    return base


def _make_room(model: PreTrainedModel, types: Mapping[str, tuple[str, list[int]]]) -> None:
    """Give a model as many tokens as the embeddings in an adapter's file have, if there are any of its width."""
    for name in embedding_weights(model):
        _, shape = types.get(f"{FILE_PREFIX}{name}", ("", []))
        if shape[1:] == list(model.get_parameter(name).shape[1:]) and shape[0] not in (0, model.config.vocab_size):
            model.resize_token_embeddings(shape[0], mean_resizing=False)
            return


def adapter_config(name: str | Path, revision: str | None = None) -> PeftConfig:
    """Load the configuration of an adapter that can be put into a model.

    Args:
        name: folder or Hub name of the adapter.
        revision: branch, tag or commit of `name`.

    Raises:
        ValueError: a kind that PEFT does not know, a learned prompt, or an adapter whose base model is not stated, is
            missing, or is an adapter itself.
    """
    file = find_adapter_config_file(str(name), revision=revision)
    check_model_files(name)
    assert file is not None  # whoever asks has seen that it is an adapter
    values = read_object(Path(file))
    kind = values.get("peft_type")
    known: dict[Any, type[PeftConfig]] = PEFT_TYPE_TO_CONFIG_MAPPING
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(
            f"{name} is an adapter whose `peft_type` must be a kind that PEFT knows, got {kind!r}. Update "
            "peft, import the package that adds that kind to it, or correct adapter_config.json."
        )
    kinds = {field.name: field.type for field in dataclasses.fields(known[kind])}
    with blamed(file):
        check_names(values, kinds)
        for key in values.keys() & kinds:
            if kinds[key] in (bool, "bool") and not isinstance(values[key], bool):
                raise ValueError(f"`{key}` must be true or false, got {values[key]!r}.")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unexpected keyword arguments")  # of a later PEFT
            config = PeftConfig.from_pretrained(str(name), revision=revision)
    if getattr(config, "megatron_config", None):
        raise ValueError(
            f"{file}: `megatron_config` must be empty, got {config.megatron_config!r}: PEFT would import the "
            "module that `megatron_core` names."
        )
    if config.is_prompt_learning:
        raise ValueError(
            f"{name} is an adapter of the kind {config.peft_type.value} (`peft_type`), which is outside the model: "
            "load it with PEFT. Adapters inside the model (LoRA, ours, ...) can be used here."
        )
    base = config.base_model_name_or_path
    if not base or not isinstance(base, str):
        raise ValueError(f"{name} is an adapter whose `base_model_name_or_path` names no model, got {base!r}.")
    try:
        check_name(base, config.revision)
    except OSError as error:
        raise ValueError(
            f"{name} is an adapter whose `base_model_name_or_path` cannot be loaded: {error} Run this where that "
            "model is, or correct it in adapter_config.json."
        ) from error
    if find_adapter_config_file(base, revision=config.revision) is not None:
        raise ValueError(
            f"{name} is an adapter for {base}, which is an adapter itself. Merge that one into its own model, "
            "save it, and name the result in `base_model_name_or_path` of adapter_config.json."
        )
    return config
