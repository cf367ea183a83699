"""Seals: what was learned for a model, and lies beside it, fits this model alone, and is as it was written.

A file that is learned beside a model (`layouts.py`: those with a command that writes them) has an entry `seal`: a
digest of each of its own fields, and the fingerprint of the model. Whoever reads it compares both.

A fingerprint is of what the model is, not of its files: the same model saved anew, in shards, or fetched from the Hub
has the same one.

- Weights: SHA-256 of the type, shape and bytes of each tensor. 100 MB take 0.08 s of CPU. Of more than 128 MB, every
  n-th megabyte of each tensor is read, and the last: training changes them all.
- The configuration: every field but those that transformers writes to say how it was saved.
- The tokenizer: what it does with text, not how it was last asked to pad. To read a large one takes a second, so the
  digest of the file comes before: it is only read where that has changed.

Of a model that is not of this package, a class may save fewer weights than it was loaded from (no head), under other
names; another version of transformers writes other fields. There the weights of numbered layers and the largest others
count, whatever they are called, of the configuration the fields that are in both, and of the tokenizer what it knows
and makes of a text.
"""

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hf_attncal.data.spm import without_names_of_text
from hf_attncal.families import FAMILIES
from hf_attncal.io.errors import UnreadableError
from hf_attncal.io.files import json_text, sha256, write_json
from hf_attncal.layouts import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    COUNTS,
    COUNTS_SEAL,
    INDEX,
    SETTINGS_FILE,
    TOKENIZER,
    WEIGHTS,
    file_of,
)

from .files import blamed, file_beside, read_object

SEAL = "seal"
_MOST, _BLOCK = 1 << 27, 1 << 20  # bytes
# Fields of configurations that say how a model was saved, where it is or which code reads it.
_SAVED = {"architectures", "auto_map", "auto_mapping", "dtype", "torch_dtype", "transformers_version", "use_cache"}
_SAVED |= {"base_model_name_or_path", "inference_mode", "peft_version", "revision"}
_WHOLE, _PADDING = "whole file", {"padding", "truncation", "version"}
# Letters of several scripts in both cases, marks, digits and white space.
_PROBE = (
    "The Straße, “l’été” ÀÉÎÕÜ 3.14%\t(x2)  привет Мир ναι 日本語。東京 مرحبا नमस्ते 안녕 ﬁ Ⅳ e\u0301 😀 "
    "<s> </s> [SEP] don't A-B_c"
)
_VOCABULARIES = ("vocab.json", "target_vocab.json", "vocab.txt", "merges.txt", "*.spm", "*.model")
_WRONG = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)


# ---- files beside a model ----


def write_sealed(values: Mapping[str, Any], path: Path, model: str | Path | None = None) -> None:
    """Write what was learned for a model.

    Args:
        values: for JSON.
        path: of the file.
        model: folder or Hub name; None: the folder of the file. Without a model there, the seal is of the file alone.
    """
    folder = path.parent if model is None else folder_of(model)
    text = _text_digest(json_text({**values, SEAL: {}}))
    seal = {"text": text, "fields": _digests(values), "model": fingerprint(folder, path.name)}
    write_json({**values, SEAL: seal}, path)


@contextmanager
def sealed(path: Path, model: Path | None = None) -> Iterator[dict[str, Any]]:
    """Give the values of a file beside its model, without the seal, which is looked at when they have been checked.

    Args:
        path: of the file.
        model: folder of the model; None: that of the file.

    Raises:
        ValueError: in place of any error that reading or checking the values raises, or they are not what was written,
            or were learned for another model. The message names the file, what is wrong and what writes the file anew.
    """
    model = path.parent if model is None else model
    anew = f"`{file_of(path.name).learned_by.format(model=model)}` writes it anew"
    try:
        with blamed(path):
            text = path.read_text(encoding="utf-8")
            values = json.loads(text, object_pairs_hook=_once)
        if not isinstance(values, dict):
            raise ValueError(f"it must hold a JSON object, got {str(values)[:30]}.")
        seal = values.pop(SEAL, None)
        yield values
        if seal is not None or is_model(model):
            _check_seal(seal, values, text, path.name, model)
    except _WRONG as error:
        told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        told = told.removeprefix(f"{path} cannot be read: ").rstrip(".")
        raise ValueError(f"{path} cannot be used: {told}. {anew}.") from error


def check_counts(model: Path) -> None:
    """Check that the aligner that counts beside a network, in its folder `hmm`, is that which it was trained with.

    Raises:
        ValueError: it is another, or the network is, or the seal is missing.
    """
    path = model / COUNTS / COUNTS_SEAL
    if not path.is_file():
        raise ValueError(f"{path} is missing: `{file_of(COUNTS_SEAL).learned_by.format(model='FOLDER')}` trains both.")
    with sealed(path, model) as values:
        for part in _differing(values, fingerprint(path.parent, then=values)):
            raise ValueError(f"the counts beside it are others: {part} is not what it was.")


def seal_counts(model: Path, counts: Path) -> None:
    """Write into the folder of a network which aligner that counts, of the folder `counts`, is that beside it."""
    path = model / COUNTS / COUNTS_SEAL
    path.parent.mkdir(exist_ok=True)
    write_sealed(fingerprint(counts), path, model)


def _check_seal(seal: Any, values: Mapping[str, Any], text: str, file: str, model: Path) -> None:
    """Raise ValueError for a seal that is missing, or belongs to other values or another model."""
    parts = {"text": str, "fields": dict, "model": dict}
    if not isinstance(seal, dict) or {name: type(part) for name, part in seal.items()} != parts:
        raise ValueError(f"`{SEAL}` is {'missing' if seal is None else 'not what was written'}")
    same = seal["text"] == _text_digest(text)  # to make digests of 80,000 words takes 0.2 seconds
    for name in [] if same else _differing(seal["fields"], _digests(values)):
        raise ValueError(f"`{name}` is not what was written")
    if not is_model(model):
        return
    if not seal["model"]:
        raise ValueError("it does not name the model that it was learned for")
    now = fingerprint(model, file, seal["model"])
    for part, then in seal["model"].items():
        new, fields = now.get(part), []
        if isinstance(then, dict) and isinstance(new, dict):
            # Another version of a library may write more, or of a model that is not ours less.
            both = part == CONFIG and not _is_ours(read_object(model / CONFIG))
            known = {**then, **new} if part == SETTINGS_FILE else then.keys() & new.keys() if both else then
            fields = [name for name in _differing(then, new) if name in known]
            new = new if fields else then
        if new == then:
            continue
        where = f"{', '.join(f'`{field}`' for field in fields[:3])} of {part}" if fields else part
        raise ValueError(f"it was learned for another model, with another {where} than {model} has")


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"`{next(name for name in names if names.count(name) > 1)}` is given twice.")
    return found


# ---- fingerprints ----


def is_model(folder: Path) -> bool:
    """Return whether a model or an adapter is in a folder."""
    return any((folder / name).is_file() for name in (CONFIG, ADAPTER_CONFIG))


def folder_of(name: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model or an adapter, in the cache of the Hub if it is a name there.

    Raises:
        OSError: there is none.
    """
    found = (file_beside(name, file, revision) for file in (ADAPTER_CONFIG, CONFIG))
    file = next((path for path in found if path is not None), None)
    return Path(name) if file is None else file.parent


def fingerprint(folder: Path, of: str = "", then: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return digests of what a model is, by part and by field; {} of a folder without a model.

    Args:
        folder: that of a model or an adapter, all of whose files are there.
        of: name of the file that is learned for it. What is read of the model (`alignment.json`) is a part, too, for
            all others that are learned from its links.
        then: an earlier fingerprint: a tokenizer whose file is the same is taken from it.

    Raises:
        ValueError: a file cannot be read; the message names it.
    """
    if not is_model(folder):
        return {}
    is_adapter = (folder / ADAPTER_CONFIG).is_file()
    config = read_object(folder / (ADAPTER_CONFIG if is_adapter else CONFIG))
    ours = is_adapter or _is_ours(config)
    kept = {name: value for name, value in config.items() if name not in _SAVED and not name.startswith("_")}
    if is_adapter:  # PEFT writes null for what it has not been told, and sets in any order
        named = {name: value for name, value in kept.items() if value is not None}
        kept = {name: sorted(v, key=str) if isinstance(v, list) else v for name, v in named.items()}
    found: dict[str, Any] = {ADAPTER_CONFIG if is_adapter else CONFIG: _digests(kept)}
    if tokenizer := _tokenizer(folder, ours, then.get(TOKENIZER)):
        found[TOKENIZER] = tokenizer
    if paths := _weight_files(folder, is_adapter):
        found["weights"] = _weights(paths, ours)
    else:
        found |= {path.name: sha256(path) for path in sorted(folder.glob("pytorch_model*.bin"))}
    if is_adapter and (base := _base(config)) is not None:
        of_base = fingerprint(base, SETTINGS_FILE)
        of_base.get(TOKENIZER, {}).pop(_WHOLE, None)
        found["base model"] = _digest(of_base)
    if of != SETTINGS_FILE:
        settings = {}
        if (path := folder / SETTINGS_FILE).is_file():
            with blamed(path):  # what is in its seal is no part of it
                settings = dict(json.loads(path.read_text(encoding="utf-8")))
        found[SETTINGS_FILE] = _digests({name: value for name, value in settings.items() if name != SEAL})
    return found


def _is_ours(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type")) in FAMILIES


def _base(config: Mapping[str, Any]) -> Path | None:
    """Return the folder of an adapter's base model; None where it is not there, as loading it says."""
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    try:
        folder = folder_of(str(name), revision if isinstance(revision, str) else None)
    except (OSError, ValueError):
        return None
    return None if (folder / ADAPTER_CONFIG).exists() else folder


def _tokenizer(folder: Path, ours: bool, then: Any) -> dict[str, str]:
    path = folder / TOKENIZER
    if path.is_file():
        same, now = then.get(_WHOLE) if isinstance(then, dict) else None, sha256(path)[:16]
        if same == now:
            return then
        content = read_object(path)
        with blamed(path):
            found = {name: value for name, value in content.items() if name not in _PADDING}
            found = found if ours else _behaviour(path, content)
        return _digests(found) | {_WHOLE: same or now}
    files = sorted(path for pattern in _VOCABULARIES for path in folder.glob(pattern) if path.is_file())
    return {path.name: _digest(read_object(path)) if path.suffix == ".json" else _pieces(path) for path in files}


def _pieces(path: Path) -> str:
    """Return the digest of a vocabulary; of one of SentencePiece as it is published, without the names of its text."""
    content = path.read_bytes()
    with suppress(UnreadableError):
        content = without_names_of_text(content)
    return hashlib.sha256(content).hexdigest()[:16]


def _behaviour(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is the same of a tokenizer that another version has written: what it knows, and makes of a text."""
    from tokenizers import Tokenizer

    tokenizer, model = Tokenizer.from_file(str(path)), content["model"]
    tokenizer.no_truncation()
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or ()]
    encoded = tokenizer.encode(_PROBE, add_special_tokens=False).ids  # a damaged template of these is a panic
    return {"vocab": model["vocab"], "merges": merges, "encoded": encoded, "around": content.get("post_processor")}


def _weight_files(folder: Path, is_adapter: bool) -> list[Path]:
    whole, index = folder / (ADAPTER_WEIGHTS if is_adapter else WEIGHTS), folder / INDEX
    if whole.is_file() or is_adapter or not index.is_file():
        return [whole] if whole.is_file() else []
    with blamed(index):
        return sorted({folder / shard for shard in read_object(index)["weight_map"].values()})


def _weights(paths: list[Path], ours: bool) -> str:
    """Return the digest of the tensors in files, whatever their order."""
    stats = [(path, path.stat()) for path in paths]
    return _digest_of_files(tuple((str(path), s.st_size, s.st_mtime_ns, s.st_ino) for path, s in stats), ours)


@lru_cache(maxsize=8)
def _digest_of_files(paths: tuple[tuple[str, int, int, int], ...], ours: bool) -> str:
    tensors: dict[str, tuple[str, str, int, int]] = {}  # file, type and shape, first byte, byte after the last
    for path, *_ in paths:
        with blamed(path), open(path, "rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(start - 8) if start < os.path.getsize(path) else "")
            for name, entry in header.items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    tensors[name] = path, f"{entry['dtype']} {entry['shape']}", start + begin, start + end
    if not ours:
        layers = {name for name in tensors if re.search(r"\.\d+\.", name)}
        sizes = {name: end - begin for name, (*_, begin, end) in tensors.items() if name not in layers}
        large = {name for name, size in sizes.items() if 2 * size >= max(sizes.values())}
        tensors = {name: tensors[name] for name in layers | large}
    step = _BLOCK * max(1, -(-sum(end - begin for *_, begin, end in tensors.values()) // _MOST))
    rows: list[str] = []
    for path, *_ in paths:
        with blamed(path), open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for name, (where, kind, begin, end) in tensors.items():
                if where == path:
                    digest = hashlib.sha256(f"{name if ours else ''} {kind}".encode())
                    for place in range(begin, end, step):
                        digest.update(content[place : min(place + _BLOCK, end)])
                    digest.update(content[max(begin, end - _BLOCK) : end] if step > _BLOCK else b"")
                    rows.append(digest.hexdigest())
    kept = sorted(rows if ours else set(rows))  # of tied weights, some versions save one, and some all
    return hashlib.sha256(" ".join(kept).encode()).hexdigest()


def _digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each value, by its name."""
    return {name: _digest(values[name]) for name in sorted(values)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _text_digest(text: str) -> str:
    """Return the digest of what stands before the seal."""
    return hashlib.sha256(text.rpartition(f'"{SEAL}"')[0].encode()).hexdigest()[:16]
