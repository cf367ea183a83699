"""Load an encoder-decoder by its name, be it that of a model or that of an adapter."""

import re
import warnings
from pathlib import Path

from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

import hf_attncal  # noqa: F401 (registers its models with the Auto classes)

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def load_config(name: str | Path, *, trust_remote_code: bool = False, revision: str | None = None) -> PretrainedConfig:
    """The configuration of a model, or of the model that an adapter was trained on.

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
    dtype: str | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> tuple[PreTrainedModel, object]:
    """An encoder-decoder and its tokenizer, on the CPU.

    Args:
        name: folder or Hub name of a model, or of a PEFT adapter (ours, LoRA, ...). An adapter is put into the model
            that its configuration names; the tokenizer is that of the adapter's folder or else that model's.
        dtype: None for the one that the model is saved in.
        trust_remote_code: run the model code that comes with the model.
        revision: branch, tag or commit on the Hub.

    Raises:
        OSError, ValueError: as transformers and PEFT say it; an adapter file with missing or unexpected weights.
    """
    options = {"trust_remote_code": trust_remote_code}
    adapter = _adapter_config(name, revision)
    if adapter is None:
        model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype=dtype or "auto", revision=revision, **options)
        return model, AutoTokenizer.from_pretrained(name, revision=revision, **options)

    from peft import PeftModel

    base, base_revision = adapter.base_model_name_or_path, adapter.revision
    model = AutoModelForSeq2SeqLM.from_pretrained(base, dtype=dtype or "auto", revision=base_revision, **options)
    with warnings.catch_warnings():
        # PEFT 0.21 asks transformers 5.23 by the old name.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        adapted = PeftModel.from_pretrained(model, str(name), revision=revision)
    # The base model itself, with the adapter in it: what works with models of transformers works with it.
    model = adapted.get_base_model()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, **options)
    except (OSError, ValueError):  # an adapter may come without one
        tokenizer = AutoTokenizer.from_pretrained(base, revision=base_revision, **options)
    return model, tokenizer


def _adapter_config(name: str | Path, revision: str | None):
    """The PEFT configuration in a folder or repository; None where it holds a model.

    Raises:
        ValueError: an adapter that does not say what it was trained on, names a folder that is not there, or is a
            prompt.
    """
    if find_adapter_config_file(str(name), revision=revision) is None:
        return None

    from peft import PeftConfig

    import hf_attncal.adapters  # noqa: F401 (tells PEFT about our kind)

    config = PeftConfig.from_pretrained(str(name), revision=revision)
    if config.is_prompt_learning:
        raise ValueError(
            f"{name} is an adapter of the kind {config.peft_type.value}, which lives outside the model: load it with "
            "PEFT. Adapters inside the model (LoRA, ours, ...) can be used here."
        )
    base = config.base_model_name_or_path
    if base is None:
        raise ValueError(f"{name} is an adapter whose `base_model_name_or_path` is empty: it names no model.")
    if not Path(base).is_dir() and not _HUB_NAME.fullmatch(base):
        raise ValueError(
            f"{name} is an adapter for {base}, which is neither a folder here nor a name on the Hub. Go where that "
            "folder is, or mend `base_model_name_or_path` in adapter_config.json."
        )
    return config
