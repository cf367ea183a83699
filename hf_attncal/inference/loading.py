"""Load an encoder-decoder by its name, be it that of a model or that of an adapter."""

import json
import re
import warnings
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from hf_attncal.families import register

register()  # the Auto classes below load our models, too

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")


def load_config(name: str | Path, *, trust_remote_code: bool = False, revision: str | None = None) -> PretrainedConfig:
    """The configuration of a model, or of the model that an adapter was trained on; arguments as of `load_seq2seq`.

    Raises:
        OSError, ValueError: there is none, as transformers and PEFT say it.
    """
    adapter = _adapter_config(name, revision)
    if adapter is not None:
        name, revision = adapter.base_model_name_or_path, adapter.revision
    return AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code, revision=revision)


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
        OSError, ValueError: as transformers and PEFT say it; a `dtype` that is none; an adapter that cannot be used
            (which, why, and what to do), or of ours or a LoRA whose file has missing or unexpected weights.
    """
    options = {"trust_remote_code": trust_remote_code}
    dtype = _torch_dtype(dtype)
    adapter = _adapter_config(name, revision)
    if adapter is None:
        model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype=dtype, revision=revision, **options)
        return model, AutoTokenizer.from_pretrained(name, revision=revision, **options)

    from peft import PeftModel, PeftType

    base, base_revision = adapter.base_model_name_or_path, adapter.revision
    model = AutoModelForSeq2SeqLM.from_pretrained(base, dtype=dtype, revision=base_revision, **options)
    adapter.inference_mode = True
    with warnings.catch_warnings():
        # PEFT 0.21 asks transformers 5.23 by the old name.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
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
    if any(file_beside(name, file, revision) for file in _TOKENIZER_FILES):
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, **options)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"the tokenizer in {name} cannot be loaded: {error}. Save it anew, or remove its files to use that of "
                f"{base}."
            ) from error
    else:
        tokenizer = AutoTokenizer.from_pretrained(base, revision=base_revision, **options)
    # The base model itself, with the adapter in it: what works with models of transformers works with it.
    return adapted.get_base_model(), tokenizer


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


def _torch_dtype(dtype: str | torch.dtype | None) -> str | torch.dtype:
    """What `from_pretrained` takes: a floating-point type, or "auto" for that of the file."""
    if dtype in (None, "auto"):
        return "auto"
    known = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(known, torch.dtype) or not known.is_floating_point:
        raise ValueError(
            "`dtype` must be a floating-point type of PyTorch ('float32', 'bfloat16', 'float16', ...), or None for "
            f"that of the file, got {dtype!r}."
        )
    return known


def _adapter_config(name: str | Path, revision: str | None):
    """The PEFT configuration in a folder or repository; None where it holds a model.

    Raises:
        ValueError: an adapter of a kind that PEFT does not know, or a prompt; one that does not say what it was
            trained on, or names a folder that is not there or another adapter.
    """
    file = find_adapter_config_file(str(name), revision=revision)
    if file is None:
        return None

    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftConfig

    import hf_attncal.adapters  # noqa: F401 (tells PEFT about our kind)

    kind = json.loads(Path(file).read_text(encoding="utf-8")).get("peft_type")
    if kind not in PEFT_TYPE_TO_CONFIG_MAPPING:
        raise ValueError(
            f"{name} is an adapter whose `peft_type` must be a kind that PEFT knows, got {kind!r}. Update "
            "peft, import what adds that kind to it, or mend adapter_config.json."
        )
    config = PeftConfig.from_pretrained(str(name), revision=revision)
    if config.is_prompt_learning:
        raise ValueError(
            f"{name} is an adapter of the kind {config.peft_type.value}, which lives outside the model: load it with "
            "PEFT. Adapters inside the model (LoRA, ours, ...) can be used here."
        )
    base = config.base_model_name_or_path
    if not base:
        raise ValueError(f"{name} is an adapter whose `base_model_name_or_path` is empty: it names no model.")
    if not Path(base).is_dir() and not _HUB_NAME.fullmatch(base):
        raise ValueError(
            f"{name} is an adapter for {base}, which is neither a folder here nor a name on the Hub. Go where that "
            "folder is, or mend `base_model_name_or_path` in adapter_config.json."
        )
    if find_adapter_config_file(base, revision=config.revision) is not None:
        raise ValueError(
            f"{name} is an adapter for {base}, which is an adapter itself. Merge that one into its own model, "
            "save it, and name the result in `base_model_name_or_path` of adapter_config.json."
        )
    return config
