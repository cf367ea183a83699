"""Identify the model behind a name, so that a changed model can be told from an earlier one."""

import hashlib
import json
from pathlib import Path

from transformers.utils.hub import extract_commit_hash

from hf_attncal.io.files import sha256
from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, TOKENIZER_CONFIG, files

from .files import file_beside


def revision_of(name: str, revision: str | None = None) -> str:
    """Return the identity of a model, an adapter or a tokenizer.

    Returns:
        For a folder, the SHA-256 of the files that are read from it. For a name on the Hub, `name@commit`, or the name
        if the commit is unknown. For an adapter, the identity of its base model follows after ` on `.
    """
    if Path(name).is_dir():
        read = {path for file in files() if file.is_read for path in Path(name).glob(file.name)}
        identity = _sha256(sorted(filter(Path.is_file, read)))
    else:
        commit = _commit(name, revision)
        identity = f"{name}@{commit}" if commit else name
    adapter = file_beside(name, ADAPTER_CONFIG, revision)
    base = None if adapter is None else _base(adapter)
    return identity if base is None else f"{identity} on {revision_of(*base)}"


def _base(adapter: Path) -> tuple[str, str | None] | None:
    """Return the base model that an adapter names and its revision, or None if it names none."""
    try:
        values = json.loads(adapter.read_text(encoding="utf-8"))
        base = values["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):  # loading it reports the error
        return None
    is_adapter = isinstance(base, str) and Path(base, ADAPTER_CONFIG).exists()
    return (base, values.get("revision")) if base and isinstance(base, str) and not is_adapter else None


def _commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a model in the Hub's cache, or None if it is not known."""
    paths = (file_beside(name, file, revision) for file in (CONFIG, TOKENIZER_CONFIG, ADAPTER_CONFIG))
    return next((extract_commit_hash(str(path), None) for path in paths if path is not None), None)


def _sha256(files: list[Path]) -> str:
    """Hash the names and contents of files."""
    named = "".join(f"{file.name} {sha256(file)}\n" for file in files)
    return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
