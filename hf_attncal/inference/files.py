"""Check the files of a checkpoint or an adapter before a library reads them, so that errors name the file.

Files in the Hub's cache are not checked: the Hub's client has written them and checked their sizes.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open

from hf_attncal.io.errors import CommandError
from hf_attncal.io.gate import check_folder, claim_folder, note_inputs
from hf_attncal.layouts import CARD, files
from hf_attncal.models.limits import LAYERS, LIMITS, check_sizes, least_parameters

_OBJECTS = {file.name for file in files() if file.is_object}
_SUFFIXES = (".json", ".safetensors", ".bin", ".model", ".spm", ".txt", ".jinja")  # files that loading reads
# A configuration may have up to this factor of the weights' parameters, because layers may share weights, plus a small
# model and a few layers: loading the weights refuses smaller excesses within a second.
_SPARE, _SMALL, _FEW_LAYERS = 3, 10**7, 64
_NUMBERS = ("F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2")


def folder_beside(model: str | Path, output: str | Path | None, file: str) -> Path:
    """Claim and return the folder for a file that belongs to a model: `output`, or the model's own folder.

    Raises:
        CommandError: the gate refuses `output`; or there is no `output`, and the model is not a folder.
    """
    if output is not None:
        check_folder(output, model=model)
    elif not Path(model).is_dir():
        raise CommandError(f"{model} is not a folder: name one for {file} with --output.")
    claim_folder(output or model)
    return Path(output or model)


def check_model_files(name: str | Path) -> None:
    """Raise ValueError if a file in the folder `name` is unreadable or its content does not match its extension.

    Raises:
        ValueError: a folder, a pipe or a device in place of a file; invalid JSON, JSON that is not an object or has
            NaN; safetensors with a damaged header.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    note_inputs(folder)
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(_SUFFIXES) or path.name == CARD:
            continue
        if not path.is_file():  # reading a pipe would wait
            raise ValueError(f"{path} must be a file, got a folder, a pipe or a broken link.")
        if path.name in _OBJECTS:
            read_object(path)
        elif path.suffix == ".safetensors":
            with blamed(path):
                tensor_types(path)


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file.

    Raises:
        ValueError: the file does not hold a JSON object; the message names the file.
    """
    with blamed(path):
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, got {str(values)[:30]!r}. Save it again.")
    return values


def file_beside(name: str | Path, file: str, revision: str | None = None) -> Path | None:
    """Return a file of a model's or adapter's folder or repository, downloaded if needed; None if missing."""
    if os.path.isdir(name):
        path = Path(name) / file
        return path if path.is_file() else None
    from transformers.utils import cached_file  # its import takes seconds, and a folder does not need it

    cached = cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if cached is None else Path(cached)


def tensor_types(path: Path) -> dict[str, tuple[str, list[int]]]:
    """Read type ("F32", "I64", ...) and shape of every tensor from the header of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        return {name: (entry.get_dtype(), entry.get_shape()) for name, entry in slices.items()}


def check_types(name: str | Path, expected: set[str] | None = None) -> None:
    """Raise ValueError for weights in a folder that are not floating-point numbers; a library would convert them.

    Args:
        name: name of the model or adapter; only folders are checked.
        expected: names of the tensors to check. Default: None, all except single numbers, which may be counters.

    Raises:
        ValueError: a tensor has another type; the message names file and tensor.
    """
    for path in sorted(Path(name).glob("*.safetensors")):
        for tensor, (kind, shape) in tensor_types(path).items():
            if kind not in _NUMBERS and (bool(shape) if expected is None else tensor in expected):
                raise ValueError(f"{path}: `{tensor}` must hold floating-point numbers, got {kind}. Save it again.")


def check_size_of_weights(folder: Path, values: dict[str, Any]) -> None:
    """Raise an error for a configuration that is far larger than the weights beside it, before a model is built.

    A configuration that is slightly too large is refused when the weights are loaded.

    Args:
        folder: folder of a model; if it has no weights, nothing is checked.
        values: content of its config.json.

    Raises:
        ValueError: the message has the sizes of both.
    """
    tensors = [tensor for path in folder.glob("*.safetensors") for tensor in tensor_types(path).items()]
    numbers = sum(math.prod(shape) for _, (_, shape) in tensors)
    numbers = numbers or sum(path.stat().st_size // 2 for path in folder.glob("*.bin"))  # two bytes each
    layers = len({match[0] for name, _ in tensors if (match := re.match(r".*?\.\d+\.", name))})
    for part in (values, *(value for value in values.values() if isinstance(value, dict))):
        check_sizes(part)
        sizes = {name: value for name, value in part.items() if isinstance(value, int) and value > 0}
        configured, needed = max((sizes.get(name, 0) for name in LAYERS), default=0), least_parameters(sizes)
        if numbers and (needed > _SPARE * numbers + _SMALL or (tensors and configured > layers + _FEW_LAYERS)):
            named = ", ".join(f"`{name}` {sizes[name]}" for name in LIMITS if name in sizes)
            raise ValueError(
                f"its sizes ({named}) need {configured} layers and at least {needed:.1e} parameters, but the weights "
                f"beside it have {layers} layers and {numbers:.1e}. Restore the config.json that they were saved with."
            )


@contextmanager
def blamed(what: object) -> Iterator[None]:
    """Turn any error that a library raises on a damaged file into a ValueError that names the file.

    Raises:
        ValueError: the library's error as a message; MemoryError and ImportError are not changed.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        text = str(error)
        if "trust_remote_code" in text or str(what) in text:
            raise
        if type(error).__name__ == "UnpicklingError":  # PyTorch's message advises to run the code in it
            text = "it is a pickle that is damaged, or holds more than weights"
        elif not isinstance(error, OSError | ValueError):
            text = f"{type(error).__name__}: {text}"
        raise ValueError(f"{what} cannot be read: {text}") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")
