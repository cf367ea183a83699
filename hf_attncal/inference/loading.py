"""Load a model by its name, be it that of a model or that of an adapter for one."""

import dataclasses
import warnings
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from hf_attncal.extras import need
from hf_attncal.families import FAMILIES, register
from hf_attncal.models.limits import check_labels, check_names, check_sizes, check_token_ids
from hf_attncal.models.loading import check_finite, check_report

from .files import blamed, check_model_files, check_types, read_object
from .names import TOKENIZER_FILES, check_name, is_hub_name

register()  # the Auto classes below load our models, too


def load_config(name: str | Path, *, trust_remote_code: bool = False, revision: str | None = None) -> PretrainedConfig:
    """The configuration of a model, or of the model that an adapter was trained on; arguments as of `load_seq2seq`.

    Raises:
        OSError, ValueError: there is none, or one that no model can have.
    """
    adapter = _adapter_config(name, revision)
    if adapter is None:
        return model_config(name, trust_remote_code=trust_remote_code, revision=revision)
    base, revision = adapter.base_model_name_or_path, adapter.revision
    role = ", the `base_model_name_or_path` of the adapter,"
    return model_config(base, trust_remote_code=trust_remote_code, revision=revision, role=role)


def model_config(
    name: str | Path, *, trust_remote_code: bool = False, revision: str | None = None, role: str = ""
) -> PretrainedConfig:
    """The configuration of a model that is no adapter, in place of `AutoConfig`; else as `load_config`.

    Args:
        role: what messages add to the name of the file.
    """
    check_model_files(name)
    file = Path(name) / "config.json"
    what = str(file) if file.is_file() else f"the configuration of {name}"
    with blamed(f"{what}{role}"):
        if found := file_beside(name, "config.json", revision):
            values = read_object(found)
            check_labels(values)
            for key in ("dtype", "torch_dtype"):
                torch_dtype(values.get(key), key)
            if not trust_remote_code:
                _check_kernels(values)
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code, revision=revision)
        check_sizes(config)
        if isinstance(vocabulary := _vocabulary(config), int):
            check_token_ids(config, vocabulary)
    return config


def _check_kernels(values: dict) -> None:
    """Refuse kernels of the Hub, which are code, in a configuration and in those of its parts."""
    for key, value in values.items():
        if key in ("attn_implementation", "_attn_implementation"):
            if "/" in str(value):
                raise ValueError(f"`{key}` must name no code of the Hub, got {value!r}. Remove it.")
        elif isinstance(value, dict):
            _check_kernels(value)


def load_seq2seq(
    name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> tuple[PreTrainedModel, object]:
    """An encoder-decoder and its tokenizer, on the CPU.

    Args:
        name: folder or Hub name of a model, or of a PEFT adapter (ours, LoRA, ...). An adapter is put into the model
            that its configuration names; the tokenizer is that model's where the adapter comes without one.
        dtype: a floating-point type of PyTorch or its name; None for the one that the model is saved in.
        trust_remote_code: run the model code that comes with the model.
        revision: branch, tag or commit of `name` on the Hub. That of an adapter's model is in its configuration.

    Raises:
        OSError, ValueError: a file is not there or damaged (which); a `dtype` that is none; a model whose weights are
            not all there, or not finite; a tokenizer that is not the model's; an adapter that cannot be used (which,
            why, and what to do), or of ours or a LoRA whose file has missing or unexpected weights.
    """
    options = {"trust_remote_code": trust_remote_code}
    adapter = _adapter_config(name, revision)
    if adapter is None:
        return load_whole(AutoModelForSeq2SeqLM, name, dtype=dtype, revision=revision, **options)

    from peft import PeftModel, PeftType

    from hf_attncal.adapters.checkpoints import peft_uses_old_names

    base, base_revision = adapter.base_model_name_or_path, adapter.revision
    model = _model(AutoModelForSeq2SeqLM, base, dtype=dtype, revision=base_revision, **options)
    adapter.inference_mode = True
    check_types(name)
    with peft_uses_old_names(), blamed(f"adapter_config.json or adapter_model.safetensors in {name}"):
        # Not its `from_pretrained`, which only warns of missing weights and is silent about others.
        adapted = PeftModel(model, adapter)
        found = adapted.load_adapter(str(name), "default", revision=revision)
    # Ours looks itself. Other kinds share weights between layers, which PEFT counts as missing.
    missing, unexpected = found.missing_keys, found.unexpected_keys
    if adapter.peft_type == PeftType.LORA and (missing or unexpected):
        raise ValueError(
            f"{name} does not hold the weights that its adapter_config.json describes: {len(missing)} are missing "
            f"{missing[:3]}, {len(unexpected)} are unexpected {unexpected[:3]}. Save the adapter anew."
        )
    check_finite(adapted)
    if any(file_beside(name, file, revision) for file in TOKENIZER_FILES):
        mend = f"Save it anew, or remove its files to use that of {base}."
        tokenizer = _tokenizer(name, model.config, mend, revision=revision, **options)
    else:
        tokenizer = _tokenizer(base, model.config, revision=base_revision, **options)
    # The base model itself, with the adapter in it: what works with models of transformers works with it.
    return adapted.get_base_model(), tokenizer


def load_whole(auto_class, name: str | Path, *, dtype: str | torch.dtype | None = None, **options) -> tuple:
    """A model, which is no adapter, by the Auto class of its kind, and its tokenizer; else as `load_seq2seq`."""
    model = _model(auto_class, name, dtype=dtype, **options)
    check_finite(model)
    return model, _tokenizer(name, model.config, **options)


def _model(auto_class, name: str | Path, *, dtype: str | torch.dtype | None, **options) -> PreTrainedModel:
    dtype = torch_dtype(dtype)
    load_config(name, **options)  # refuses what could not be built
    with blamed(f"config.json, generation_config.json or the weights in {name}"):
        model, report = auto_class.from_pretrained(
            name, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    # Of an encoder that was saved under another head: it is read off the first token, and nothing here reads it.
    report["missing_keys"] = {key for key in report["missing_keys"] if not key.startswith("pooler.")}
    check_report(name, model, report, all_known=model.config.model_type in FAMILIES)
    check_types(name, {key for key, tensor in model.state_dict().items() if tensor.is_floating_point()})
    if model.can_generate():
        with blamed(f"generation_config.json in {name}"):
            check_token_ids(model.generation_config, _vocabulary(model.config))
    return model


def brings_code(name: str | Path) -> bool:
    """Whether a model, or the one that an adapter was trained on, names code of its own (`auto_map`)."""
    adapter, values = _values_of(name, "adapter_config.json"), []
    for part in {str(name), str(adapter.get("base_model_name_or_path") or name)}:
        values += [_values_of(part, file) for file in ("config.json", "tokenizer_config.json")]
    return any(found.get("auto_map") for found in values)


# Fields of a generation configuration for which transformers runs code of the Hub, with the values that do not ask so.
_DECODED_BY_CODE = {
    "constraints": (None, []),
    "force_words_ids": (None, []),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0),
    "dola_layers": (None,),
}


def decoded_by_code(name: str | Path) -> list[str]:
    """Fields of generation_config.json that transformers would run code of the Hub for, which is not the model's."""
    values = _values_of(name, "generation_config.json")
    return [field for field, unset in _DECODED_BY_CODE.items() if values.get(field) not in unset]


def _values_of(name: str | Path, file: str) -> dict:
    """What a JSON file of a model holds; nothing where there is none, or one that cannot be read."""
    try:
        found = file_beside(name, file)
        return {} if found is None else read_object(found)
    except (OSError, ValueError):
        return {}


def _tokenizer(name: str | Path, config: PretrainedConfig, mend: str = "Save it anew.", **options):
    """The tokenizer beside a model or adapter.

    Raises:
        ValueError: it cannot be loaded, or has tokens that the model of this configuration does not have.
    """
    what = f"the tokenizer in {name} ({', '.join(TOKENIZER_FILES)})"
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        vocabulary = tokenizer.get_vocab()
        longest = tokenizer.model_max_length
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise
        problem = " ".join(str(error).split())
        raise ValueError(f"{what} cannot be loaded: {problem}. {mend}") from error
    if not isinstance(longest, int | float):
        raise ValueError(f"{what} must have a number as `model_max_length`, got {longest!r}. {mend}")
    if tokenizer.is_fast and len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError(f"{what} has a number for several tokens. {mend}")
    # bart-large-cnn has no embedding of its mask token, which no text gives.
    largest, token = max((number, token) for token, number in vocabulary.items() if token != tokenizer.mask_token)
    size = _vocabulary(config)
    if isinstance(size, int) and largest >= size:
        raise ValueError(
            f"{what} is that of another model: it has the token {token!r} with the number {largest}, "
            f"the model has {size} (`vocab_size`). {mend}"
        )
    return tokenizer


def _vocabulary(config: PretrainedConfig) -> int | None:
    """How many tokens a model has, the larger of two vocabularies; None where its configuration does not say it."""
    sizes = [getattr(config, name, None) for name in ("vocab_size", "decoder_vocab_size")]
    return max((size for size in sizes if size is not None), default=None)


def file_beside(name: str | Path, file: str, revision: str | None = None) -> Path | None:
    """A file of a model's or adapter's folder or repository, downloaded if need be; None where there is none."""
    found = cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def torch_dtype(dtype: str | torch.dtype | None, field: str = "dtype") -> str | torch.dtype:
    """What `from_pretrained` takes: a floating-point type, or "auto" for that of the file; errors name the field."""
    if dtype in (None, "auto"):
        return "auto"
    known = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(known, torch.dtype) or not known.is_floating_point:
        raise ValueError(
            f"`{field}` must be a floating-point type of PyTorch ('float32', 'bfloat16', 'float16', ...), or None for "
            f"that of the file, got {dtype!r}."
        )
    return known


def _adapter_config(name: str | Path, revision: str | None):
    """The PEFT configuration in a folder or repository; None where it holds a model.

    Raises:
        OSError: there is nothing of that name; see `check_name`.
        ValueError: an adapter of a kind that PEFT does not know, or a prompt; one that does not say what it was
            trained on, or names a folder that is not there or another adapter.
    """
    check_name(name, revision)
    file = find_adapter_config_file(str(name), revision=revision)
    if file is None:
        return None

    need("adapters")
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftConfig

    import hf_attncal.adapters  # noqa: F401 (tells PEFT about our kind)

    check_model_files(name)
    values = read_object(Path(file))
    kind = values.get("peft_type")
    if not isinstance(kind, str) or kind not in PEFT_TYPE_TO_CONFIG_MAPPING:
        raise ValueError(
            f"{name} is an adapter whose `peft_type` must be a kind that PEFT knows, got {kind!r}. Update "
            "peft, import what adds that kind to it, or mend adapter_config.json."
        )
    kinds = {field.name: field.type for field in dataclasses.fields(PEFT_TYPE_TO_CONFIG_MAPPING[kind])}
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
            f"{name} is an adapter of the kind {config.peft_type.value}, which lives outside the model (`peft_type`): "
            "load it with PEFT. Adapters inside the model (LoRA, ours, ...) can be used here."
        )
    base = config.base_model_name_or_path
    if not base or not isinstance(base, str):
        raise ValueError(f"{name} is an adapter whose `base_model_name_or_path` names no model, got {base!r}.")
    if not Path(base).is_dir() and not is_hub_name(base):
        raise ValueError(
            f"{name} is an adapter for {base}, which is neither a folder here nor a name on the Hub. Go where that "
            "folder is, or mend `base_model_name_or_path` in adapter_config.json."
        )
    try:
        check_name(base, config.revision)
    except OSError as error:
        raise ValueError(f"{name} is an adapter whose `base_model_name_or_path` cannot be loaded: {error}") from error
    if find_adapter_config_file(base, revision=config.revision) is not None:
        raise ValueError(
            f"{name} is an adapter for {base}, which is an adapter itself. Merge that one into its own model, "
            "save it, and name the result in `base_model_name_or_path` of adapter_config.json."
        )
    return config
