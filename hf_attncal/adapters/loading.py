"""Load a PEFT adapter of any method from a folder or Hub repository into its base model."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftConfig, PeftModel, PeftType
from transformers import PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from hf_attncal.inference.files import blamed, check_model_files, check_types, file_beside, read_object, tensor_types
from hf_attncal.inference.opening import check_name
from hf_attncal.layouts import ADAPTER_WEIGHTS
from hf_attncal.models.limits import check_names
from hf_attncal.models.loading import check_finite

from .checkpoints import FILE_PREFIX, embedding_weights, peft_uses_old_names


def with_adapter(
    model: PreTrainedModel, config: PeftConfig, name: str | Path, revision: str | None = None
) -> PreTrainedModel:
    """Load an adapter and its added tokens into its base model, for inference, and return that model.

    Args:
        model: base model.
        config: configuration from `adapter_config`.
        name: folder or Hub name of the adapter.
        revision: branch, tag or commit of `name`.

    Raises:
        ValueError: the weights do not match the configuration, are not floating-point numbers, or are not finite.
    """
    config.inference_mode = True
    check_types(name)
    with peft_uses_old_names(), blamed(f"adapter_config.json or adapter_model.safetensors in {name}"):
        if weights := file_beside(name, ADAPTER_WEIGHTS, revision):
            _make_room(model, tensor_types(weights))
        # `from_pretrained` only warns of missing weights, and ignores unexpected ones.
        adapted = PeftModel(model, config)
        report = adapted.load_adapter(str(name), "default", revision=revision)
    # Our adapters check this themselves. Methods other than LoRA may share weights, which PEFT counts as missing.
    missing, unexpected = report.missing_keys, report.unexpected_keys
    if config.peft_type == PeftType.LORA and (missing or unexpected):
        raise ValueError(
            f"the weights in {name} do not match its adapter_config.json: {len(missing)} are missing {missing[:3]}, "
            f"{len(unexpected)} are unexpected {unexpected[:3]}. Save the adapter again."
        )
    check_finite(adapted)
    base: Any = adapted.get_base_model()
    return base


def _make_room(model: PreTrainedModel, types: Mapping[str, tuple[str, list[int]]]) -> None:
    """Resize the model's vocabulary to the embeddings in an adapter's file, if there are any."""
    for name in embedding_weights(model):
        _, shape = types.get(f"{FILE_PREFIX}{name}", ("", []))
        if shape[1:] == list(model.get_parameter(name).shape[1:]) and shape[0] not in (0, model.config.vocab_size):
            model.resize_token_embeddings(shape[0], mean_resizing=False)
            return


def adapter_config(name: str | Path, revision: str | None = None) -> PeftConfig:
    """Load and check the configuration of an adapter.

    Args:
        name: folder or Hub name of the adapter.
        revision: branch, tag or commit of `name`.

    Raises:
        ValueError: a `peft_type` unknown to PEFT, a learned prompt, or a base model that is not named, not found, or
            an adapter itself.
    """
    file = find_adapter_config_file(str(name), revision=revision)
    check_model_files(name)
    assert file is not None  # callers have checked that it is an adapter
    values = read_object(Path(file))
    peft_type = values.get("peft_type")
    config_classes: dict[Any, type[PeftConfig]] = PEFT_TYPE_TO_CONFIG_MAPPING
    if not isinstance(peft_type, str) or peft_type not in config_classes:
        raise ValueError(
            f"`peft_type` of the adapter {name} must be a method that PEFT supports, got {peft_type!r}. Update "
            "peft, import the package that adds the method, or correct adapter_config.json."
        )
    kinds = {field.name: field.type for field in dataclasses.fields(config_classes[peft_type])}
    with blamed(file):
        check_names(values, kinds)
        for key in values.keys() & kinds:
            if kinds[key] in (bool, "bool") and not isinstance(values[key], bool):
                raise ValueError(f"`{key}` must be true or false, got {values[key]!r}.")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unexpected keyword arguments")  # written by a later PEFT
            config = PeftConfig.from_pretrained(str(name), revision=revision)
    if getattr(config, "megatron_config", None):
        raise ValueError(
            f"{file}: `megatron_config` must be empty, got {config.megatron_config!r}, because PEFT would import a "
            "module that it names."
        )
    if config.is_prompt_learning:
        raise ValueError(
            f"`peft_type` of the adapter {name} must be a method that changes layers of the model (LoRA, attention "
            f"calibration, ...), got {config.peft_type.value}, a learned prompt. Load it with PEFT's own functions."
        )
    base = config.base_model_name_or_path
    if not base or not isinstance(base, str):
        raise ValueError(f"`base_model_name_or_path` of the adapter {name} must name a model, got {base!r}.")
    try:
        check_name(base, config.revision)
    except OSError as error:
        raise ValueError(
            f"`base_model_name_or_path` of the adapter {name} cannot be loaded: {error} Make that model available, or "
            "correct adapter_config.json."
        ) from error
    if find_adapter_config_file(base, revision=config.revision) is not None:
        raise ValueError(
            f"`base_model_name_or_path` of the adapter {name} is {base}, which is an adapter itself. Merge {base} "
            "into its own model, save it, and enter the result in adapter_config.json."
        )
    return config
