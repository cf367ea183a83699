"""Seals of files that were learned for a model: such a file fits only this model, and must not be edited.

A file that is learned for a model (a file with `learned_by` in `layouts.py`) has an entry `seal`: the digest of its
values, and the fingerprint of the model. The reader compares both.

A fingerprint depends on the model's numbers and not on its files: the same model has the same fingerprint after it was
saved again, in shards, by another version of transformers, or downloaded from the Hub. Its parts are

- the weights in numbered layers, and the largest others: type, shape and bytes of each tensor, whatever its name.
  (Some classes save a model without its head, or tied weights once.) 100 MB take 0.08 s of CPU. Of more than 128 MB,
  only every n-th megabyte and the last of each tensor are read, because training changes all of them,
- the vocabulary of the tokenizer,
- the settings for reading the model's attention (`alignment.json`),
- for an adapter, the base model.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_attncal.io.files import sha256, write_json
from hf_attncal.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, SETTINGS_FILE, TOKENIZER, file_of

from .files import blamed, file_beside, read_object

SEAL = "seal"
_MOST, _BLOCK = 1 << 27, 1 << 20  # bytes
_VOCABULARIES = ("*vocab.json", "vocab.txt"), ("*.spm", "*.model")  # in place of tokenizer.json
_WRONG = (ValueError, OSError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)


# ---- files beside a model ----


def write_sealed(values: Mapping[str, Any], path: Path, model: str | Path | None = None) -> None:
    """Write a file learned for a model.

    Args:
        values: values, serialisable as JSON.
        path: file to write.
        model: folder or Hub name of the model. Default: None, the folder of the file; if it has no model, the seal has
            only the digest of the values.
    """
    model_parts = fingerprint(path.parent if model is None else folder_of(model), path.name)
    write_json({**values, SEAL: {"values": _digest(values), "model": model_parts}}, path)


@contextmanager
def sealed(path: Path, model: Path | None = None) -> Iterator[dict[str, Any]]:
    """Open a sealed file: the block gets its values without the seal.

    Args:
        path: file to read.
        model: folder of the model. Default: None, the folder of the file.

    Raises:
        ValueError: the values were edited, or were learned for another model, or the block raises an error in using
            them. The message names the file, the problem and the remedy.
    """
    model = path.parent if model is None else model
    try:
        values = read_object(path)
        seal = values.pop(SEAL, None)
        if not isinstance(seal, dict) or seal.keys() != {"values", "model"}:
            raise ValueError(f"`{SEAL}` is missing")
        if seal["values"] != _digest(values):
            raise ValueError("it has been changed since it was written")
        for part in _differing(seal["model"], fingerprint(model, path.name)) if is_model(model) else ():
            raise ValueError(f"it was learned for another model, not for {model} (different {part})")
        yield values
    except _WRONG as error:
        problem = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        problem = problem.removeprefix(f"{path} cannot be read: ").rstrip(".")
        file = file_of(path.name)
        command = file.learned_by.format(model=model) if file else ""
        raise ValueError(f"{path} cannot be used: {problem}. `{command}` writes it again.") from error


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


# ---- fingerprints ----


def is_model(folder: Path) -> bool:
    """Return True if a folder has a model or an adapter."""
    return any((folder / name).is_file() for name in (CONFIG, ADAPTER_CONFIG))


def folder_of(name: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model or an adapter, which for a Hub name is in the Hub's cache.

    Raises:
        OSError: there is no such folder.
    """
    paths = (file_beside(name, file, revision) for file in (ADAPTER_CONFIG, CONFIG))
    path = next((path for path in paths if path is not None), None)
    return Path(name) if path is None else path.parent


def fingerprint(folder: Path, file: str = "") -> dict[str, str]:
    """Return digests of the weights and vocabulary of a model, by part; {} for a folder without a model.

    Args:
        folder: folder of a complete model or adapter.
        file: name of the file that is learned for it; the fingerprint for `alignment.json` does not include this file.

    Raises:
        ValueError: a file cannot be read; the message names it.
    """
    if not is_model(folder):
        return {}
    parts = {"weights": _weights(folder)}
    if vocabulary := _vocabulary(folder):
        parts["tokenizer"] = vocabulary
    if (base := base_of(folder / ADAPTER_CONFIG)) is not None:
        parts["base model"] = _digest(fingerprint(folder_of(*base), SETTINGS_FILE))
    if file != SETTINGS_FILE and (folder / SETTINGS_FILE).is_file():
        settings = read_object(folder / SETTINGS_FILE)
        parts[SETTINGS_FILE] = _digest({name: value for name, value in settings.items() if name != SEAL})
    return parts


def _vocabulary(folder: Path) -> str | None:
    path = folder / TOKENIZER
    if path.is_file():
        with blamed(path):  # only the vocabulary, because padding and the like depend on the last use
            return _digest(read_object(path)["model"]["vocab"])
    for patterns in _VOCABULARIES:
        if paths := sorted(path for pattern in patterns for path in folder.glob(pattern)):
            return _digest([sha256(path) if path.suffix != ".json" else read_object(path) for path in paths])
    return None


def _weights(folder: Path) -> str:
    """Return the digest of the weights in a folder, whatever the order and names of their tensors."""
    adapter, pickles = folder / ADAPTER_WEIGHTS, sorted(folder.glob("pytorch_model*.bin"))
    paths = [adapter] if adapter.is_file() else sorted(folder.glob("model*.safetensors"))
    if not paths:
        return _digest([sha256(path) for path in pickles])
    tensors = [(name, path, *place) for path in paths for name, place in _places(path).items()]
    rest = [tensor for tensor in tensors if not re.search(r"\.\d+\.", tensor[0])]
    largest = max((end - begin for *_, begin, end in rest), default=0)
    tensors = [tensor for tensor in tensors if tensor not in rest or 2 * (tensor[-1] - tensor[-2]) >= largest]
    step = _BLOCK * max(1, -(-sum(end - begin for *_, begin, end in tensors) // _MOST))
    digests = set()  # a set, because some versions save tied weights once, and some several times
    for _, path, kind, begin, end in tensors:
        digest = hashlib.sha256(kind.encode())
        with open(path, "rb") as file:
            for start in [*range(begin, end, step), max(begin, end - _BLOCK)]:
                file.seek(start)
                digest.update(file.read(min(_BLOCK, end - start)))
        digests.add(digest.hexdigest())
    return _digest(sorted(digests))


def _places(path: Path) -> dict[str, tuple[str, int, int]]:
    """Return the type and shape, the first byte, and the byte after the last of each tensor in a file, by name."""
    with blamed(path), open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start - 8) if start < os.path.getsize(path) else "")
        header.pop("__metadata__", None)
        return {
            name: (f"{entry['dtype']} {entry['shape']}", *(start + place for place in entry["data_offsets"]))
            for name, entry in header.items()
        }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def base_of(adapter: Path | None) -> tuple[str, str | None] | None:
    """Return the base model in an adapter's configuration and its revision, or None if it is missing."""
    try:
        values = {} if adapter is None or not adapter.is_file() else read_object(adapter)
        base, revision = values.get("base_model_name_or_path"), values.get("revision")
        if base and isinstance(base, str) and not (folder_of(base, revision) / ADAPTER_CONFIG).exists():
            return base, revision
    except (OSError, ValueError):
        pass
    return None
