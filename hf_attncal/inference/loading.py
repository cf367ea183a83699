"""Load a model by the name of a model or of an adapter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from hf_attncal.data.languages import set_languages
from hf_attncal.families import FAMILIES, register
from hf_attncal.layouts import CONFIG, LAYOUTS
from hf_attncal.models.limits import check_labels, check_sizes, check_token_ids
from hf_attncal.models.loading import check_finite, check_report

from .files import blamed, check_model_files, check_size_of_weights, check_types, file_beside, read_object
from .opening import TOKENIZER_FILES, check_name

register()  # makes the Auto classes below load our models


def load_config(name: str | Path, *, trust_remote_code: bool = False, revision: str | None = None) -> PretrainedConfig:
    """Load the configuration of a model, or of an adapter's base model; arguments as in `load_seq2seq`.

    Raises:
        OSError, ValueError: there is no configuration, or it is invalid.
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
    """Load the configuration of a model that is not an adapter, with more checks than `AutoConfig`.

    Args:
        name, trust_remote_code, revision: see `load_seq2seq`.
        role: text that messages add to the name of the file.
    """
    check_model_files(name)
    file = Path(name) / CONFIG
    what = str(file) if file.is_file() else f"the configuration of {name}"
    with blamed(f"{what}{role}"):
        if path := file_beside(name, CONFIG, revision):
            values = read_object(path)
            for key in ("dtype", "torch_dtype"):
                torch_dtype(values.get(key), key)
            if not trust_remote_code:
                _check_kernels(values)
            check_labels(values)
            check_size_of_weights(path.parent, values)
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code, revision=revision)
        check_sizes(config)
        if isinstance(vocabulary := _vocabulary(config), int):
            check_token_ids(config, vocabulary)
    return config


def _check_kernels(values: dict) -> None:
    """Raise ValueError for kernels from the Hub, which are code, in a configuration or one nested in it."""
    for key, value in values.items():
        if key in ("attn_implementation", "_attn_implementation"):
            if "/" in str(value):
                raise ValueError(f"`{key}` must not name code on the Hub, got {value!r}. Remove it.")
        elif isinstance(value, dict):
            _check_kernels(value)


def load_seq2seq(
    name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    languages: str | Sequence[str] | None = None,
) -> tuple[PreTrainedModel, object]:
    """Load an encoder-decoder and its tokenizer on the CPU, with the languages set.

    Args:
        name: folder or Hub name of a model, or of a PEFT adapter (ours, LoRA, ...). An adapter is put into the base
            model that its configuration names. If the adapter has no tokenizer, the base model's is used.
        dtype: floating-point type of PyTorch or its name. Default: None, the type in which the model is saved.
        trust_remote_code: True to run model code in the checkpoint.
        revision: branch, tag or commit of `name` on the Hub. An adapter's configuration has its base model's revision.
        languages: see `data.languages.set_languages`.

    Raises:
        OSError, ValueError: a file is missing or damaged (the message names it), `dtype` is not a floating-point type,
            weights are missing or not finite, the tokenizer belongs to another model, the adapter cannot be used, for
            example because its file has missing or unexpected weights, or the tokenizer does not have the languages.
    """
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    adapter = _adapter_config(name, revision)
    if adapter is None:
        model, tokenizer = load_whole(AutoModelForSeq2SeqLM, name, dtype=dtype, revision=revision, **options)
        set_languages(model, tokenizer, languages)
        return model, tokenizer

    base, base_revision = adapter.base_model_name_or_path, adapter.revision
    load_config(base, revision=base_revision, **options)  # raises an error for sizes that cannot be built
    model = _model(AutoModelForSeq2SeqLM, base, dtype=dtype, revision=base_revision, **options)
    # The adapter's modules are put into the base model, so that it works like any model of transformers.
    model = LAYOUTS["adapter"].loader().with_adapter(model, adapter, name, revision)
    if any(file_beside(name, file, revision) for file in TOKENIZER_FILES):
        remedy = f"Save it again, or remove its files to use the tokenizer of {base}."
        tokenizer = load_tokenizer(name, model.config, remedy, revision=revision, **options)
    else:
        tokenizer = load_tokenizer(base, model.config, revision=base_revision, **options)
    set_languages(model, tokenizer, languages)
    return model, tokenizer


def load_whole(
    auto_class, name: str | Path, *, dtype: str | torch.dtype | None = None, finite: bool = True, **options
) -> tuple:
    """Load a model that is not an adapter by its Auto class, and its tokenizer.

    Args:
        finite: True to check that all weights are finite, which reads all of them.
        The others: see `load_seq2seq`.
    """
    config = load_config(name, **options)  # raises an error for sizes that cannot be built
    tokenizer = load_tokenizer(name, config, **options)
    model = _model(auto_class, name, dtype=dtype, **options)
    if finite:
        check_finite(model)
    return model, tokenizer


def _model(auto_class, name: str | Path, *, dtype: str | torch.dtype | None, **options) -> PreTrainedModel:
    dtype = torch_dtype(dtype)
    with blamed(f"config.json, generation_config.json or the weights in {name}"):
        model, report = auto_class.from_pretrained(
            name, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    # An encoder saved with another head lacks its pooler, which we do not use.
    report["missing_keys"] = {key for key in report["missing_keys"] if not key.startswith("pooler.")}
    check_report(name, model, report, all_known=model.config.model_type in FAMILIES)
    check_types(name, {key for key, tensor in model.state_dict().items() if tensor.is_floating_point()})
    vocabulary = _vocabulary(model.config)
    if model.can_generate() and vocabulary is not None:
        with blamed(f"generation_config.json in {name}"):
            check_token_ids(model.generation_config, vocabulary)
    return model


def load_tokenizer(name: str | Path, config: PretrainedConfig, remedy: str = "Save it again.", **options):
    """Load the tokenizer of a model or adapter.

    Raises:
        ValueError: the tokenizer cannot be loaded, or has tokens that the model of this configuration does not have.
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
        raise ValueError(f"{what} cannot be loaded: {problem}. {remedy}") from error
    if not isinstance(longest, int | float):
        raise ValueError(f"{what} must have a number as `model_max_length`, got {longest!r}. {remedy}")
    if tokenizer.is_fast and len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError(f"{what} gives several tokens the same number. {remedy}")
    if tokenizer.is_fast and getattr(tokenizer.backend_tokenizer.model, "dropout", None):
        tokenizer.backend_tokenizer.model.dropout = None  # it is for training, and tokenises a text at random
    # bart-large-cnn has no embedding for its mask token, which never occurs in text.
    largest, token = max((number, token) for token, number in vocabulary.items() if token != tokenizer.mask_token)
    size = _vocabulary(config)
    if isinstance(size, int) and largest >= size:
        raise ValueError(
            f"{what} belongs to another model: its token {token!r} has the number {largest}, but the model has only "
            f"{size} tokens (`vocab_size`). {remedy}"
        )
    return tokenizer


def _vocabulary(config: PretrainedConfig) -> int | None:
    """Return the size of a model's (larger) vocabulary, or None if its configuration does not state it."""
    sizes = [getattr(config, name, None) for name in ("vocab_size", "decoder_vocab_size")]
    return max((size for size in sizes if size is not None), default=None)


def torch_dtype(dtype: str | torch.dtype | None, field: str = "dtype") -> str | torch.dtype:
    """Return the `dtype` of `from_pretrained`: a floating-point type, or "auto" for the saved type.

    Raises:
        ValueError: another value; the message names `field`.
    """
    if dtype in (None, "auto"):
        return "auto"
    torch_type = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(torch_type, torch.dtype) or not torch_type.is_floating_point:
        raise ValueError(
            f"`{field}` must be a floating-point type of PyTorch ('float32', 'bfloat16', 'float16', ...), or None for "
            f"the type of the file, got {dtype!r}."
        )
    return torch_type


def _adapter_config(name: str | Path, revision: str | None):
    """Load the PEFT configuration in a folder or repository; return None if it holds a model.

    Raises:
        OSError, ValueError: see `check_name` and `adapters.loading.adapter_config`.
    """
    check_name(name, revision)
    if find_adapter_config_file(str(name), revision=revision) is None:
        return None
    return LAYOUTS["adapter"].loader().adapter_config(name, revision)
