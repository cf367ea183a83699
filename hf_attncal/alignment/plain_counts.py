"""An aligner that counts, read from its folder without transformers, whose import takes longer than a small text.

This is no second way to load a checkpoint: it takes a folder that looks exactly as it was saved, and leaves any other
one to `WordAligner.from_pretrained`, which knows what is wrong with it.
"""

from collections.abc import Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from hf_attncal.data.tokenizer import UNK
from hf_attncal.families import FAMILIES
from hf_attncal.inference.files import check_model_files, read_object
from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, SETTINGS_FILE, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from hf_attncal.models.hmm_tables import CountFields, HMMTables
from hf_attncal.models.limits import check_counting, check_token_ids
from hf_attncal.models.loading import check_finite

from .aligner import WordAligner
from .probabilities import saved_probabilities

# What `HMMAlignModel.save_pretrained` writes beside the fields that say how to align.
_BESIDE = {"architectures", "auto_map", "bos_token_id", "dtype", "eos_token_id", "model_type", "transformers_version"}
_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
# What would change how the model or the tokenizer is loaded.
_OTHERS = (SETTINGS_FILE, ADAPTER_CONFIG, "added_tokens.json", "special_tokens_map.json")


class PlainTokenizer:
    """A fast tokenizer as `WordTokenizer` uses one, for a file without truncation and padding.

    Args:
        backend_tokenizer: special tokens in a text are text to it.
    """

    is_fast = split_special_tokens = True

    def __init__(self, backend_tokenizer: Tokenizer):
        self.backend_tokenizer = backend_tokenizer
        backend_tokenizer.encode_special_tokens = True
        self.unk_token_id = backend_tokenizer.token_to_id(UNK)

    def __call__(
        self, text: Sequence[str], add_special_tokens: bool, return_offsets_mapping: bool = False, **_
    ) -> dict[str, list]:
        encoded = self.backend_tokenizer.encode_batch(list(text), add_special_tokens=add_special_tokens)
        found = {"input_ids": [one.ids for one in encoded]}
        return found | {"offset_mapping": [one.offsets for one in encoded]} if return_offsets_mapping else found


def plain_aligner(folder: str | Path, device: str | torch.device = "cpu") -> WordAligner | None:
    """Load an aligner that counts, or return None for a folder that `WordAligner.from_pretrained` has to load.

    The model of the aligner are tables, which align and cannot be saved.

    Args:
        folder: folder of a saved aligner that counts; anything else is answered with None.
        device: where it aligns.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return None
    try:
        aligner = _load(folder, device)
        if aligner is not None:
            aligner.align([("1", "1")])
        return aligner
    except Exception:  # whatever it is, the ordinary way meets it again and explains it
        return None


def _load(folder: Path, device: str | torch.device) -> WordAligner | None:
    check_model_files(folder)
    values, tokens = (read_object(folder / name) for name in (CONFIG, TOKENIZER_CONFIG))
    config = _fields(values)
    if config is None or any((folder / name).exists() for name in _OTHERS):
        return None
    if tokens.get("tokenizer_class") not in _TOKENIZERS or tokens.get("split_special_tokens") is not True:
        return None
    if "auto_map" in tokens or not isinstance(tokens.get("model_max_length", 1), int | float):
        return None
    backend = Tokenizer.from_file(str(folder / TOKENIZER))
    numbers = backend.get_vocab().values()
    if len(set(numbers)) < len(numbers) or max(numbers) >= config.vocab_size:
        return None
    if backend.truncation is not None or backend.padding is not None:
        return None
    tables = HMMTables(config)
    read, expected = load_file(folder / WEIGHTS), tables.state_dict()
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} for found in (read, expected)]
    if shapes[0] != shapes[1]:
        return None
    tables.load_state_dict(read, assign=True)
    check_finite(tables)
    return WordAligner(tables.to(device), PlainTokenizer(backend), None, saved_probabilities(folder))


def _fields(values: dict[str, Any]) -> CountFields | None:
    """Return the fields in a configuration; None for a configuration of another kind or with other keys."""
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None or not family.counted or values.get("dtype") != "float32":
        return None
    types = {field.name: field.type for field in fields_of(CountFields)}
    if values.get("pad_token_id") is None or not types.keys() <= values.keys() <= types.keys() | _BESIDE:
        return None
    fields = CountFields(**{name: values[name] for name in types})
    if any(isinstance(getattr(fields, name), bool) != (kind is bool) for name, kind in types.items()):
        return None
    if not all(isinstance(getattr(fields, name), kind) for name, kind in types.items()):
        return None
    check_counting(fields)
    for name in ("bos_token_id", "eos_token_id"):
        if values.get(name) is not None and (
            type(values[name]) is not int or not 0 <= values[name] < fields.vocab_size
        ):
            return None
    check_token_ids(fields, fields.vocab_size)
    return fields
