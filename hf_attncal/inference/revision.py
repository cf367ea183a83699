"""Which model a name stands for: what tells one that has been changed from the one that was there before."""

import hashlib
import json
from pathlib import Path

from transformers.utils.hub import extract_commit_hash

from hf_attncal.files import sha256

from .loading import file_beside

# Of a folder: the files that its model, adapter, tokenizer and their code are read from.
_READ = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "*.safetensors",
    "pytorch_model*.bin",
    "adapter_model.bin",
    "*.py",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
)


def revision_of(name: str, revision: str | None = None) -> str:
    """What a model, an adapter or a tokenizer is.

    Returns:
        Of a folder the SHA-256 of the files that are read from it; of a name on the Hub `name@commit`, the name if the
        commit is unknown. Of an adapter also that of the model that it was trained on, after ` on `.
    """
    if Path(name).is_dir():
        found = _sha256(sorted({file for pattern in _READ for file in Path(name).glob(pattern) if file.is_file()}))
    else:
        commit = _commit(name, revision)
        found = f"{name}@{commit}" if commit else name
    adapter = file_beside(name, "adapter_config.json", revision)
    base = None if adapter is None else _base(adapter)
    return found if base is None else f"{found} on {revision_of(*base)}"


def _base(adapter: Path) -> tuple[str, str | None] | None:
    """The model that an adapter names, and its revision; None where it names none."""
    try:
        values = json.loads(adapter.read_text(encoding="utf-8"))
        base = values["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):  # said when it is loaded
        return None
    is_adapter = isinstance(base, str) and Path(base, "adapter_config.json").exists()
    return (base, values.get("revision")) if base and isinstance(base, str) and not is_adapter else None


def _commit(name: str, revision: str | None) -> str | None:
    """The commit on the Hub that a model's name leads to, as it is in the cache; None where it is not known."""
    files = ("config.json", "tokenizer_config.json", "adapter_config.json")
    found = (file_beside(name, file, revision) for file in files)
    return next((extract_commit_hash(str(file), None) for file in found if file is not None), None)


def _sha256(files: list[Path]) -> str:
    """Of names and contents."""
    named = "".join(f"{file.name} {sha256(file)}\n" for file in files)
    return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
