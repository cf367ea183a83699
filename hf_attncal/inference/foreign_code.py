"""See whether a checkpoint asks for code that is not in transformers or in this package, before anything runs it."""

from pathlib import Path

from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG

from .files import file_beside, read_object


def brings_code(name: str | Path) -> bool:
    """Return whether a model, or an adapter's base model, comes with code of its own (`auto_map`)."""
    base = _values_of(name, ADAPTER_CONFIG).get("base_model_name_or_path") or name
    files = (CONFIG, TOKENIZER_CONFIG)
    return any(_values_of(part, file).get("auto_map") for part in {str(name), str(base)} for file in files)


# Fields of a generation configuration that make transformers run code of the Hub, with their harmless values.
_DECODED_BY_CODE = {
    "constraints": (None, []),
    "force_words_ids": (None, []),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0),
    "dola_layers": (None,),
}


def decoded_by_code(name: str | Path) -> list[str]:
    """Return the fields of generation_config.json that make transformers run code of the Hub, not the model's."""
    values = _values_of(name, GENERATION_CONFIG)
    return [field for field, unset in _DECODED_BY_CODE.items() if values.get(field) not in unset]


def _values_of(name: str | Path, file: str) -> dict:
    """Read a JSON file of a model; {} if it is missing or unreadable."""
    try:
        path = file_beside(name, file)
        return {} if path is None else read_object(path)
    except (OSError, ValueError):
        return {}
