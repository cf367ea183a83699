"""Read Marian's binary files: weights in float32 or as 8-bit integers, and the configuration that is stored with them.

A file is a version, the number of tensors, a head of four numbers for each (length of its name, type, number of
dimensions, bytes), all names, all shapes, padding, and the data.
"""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.io.errors import UnreadableError

_VERSION = 1
# Types of Marian: size in bytes, and flags for signed 0x100, float 0x400, intgemm 0x4000.
_FLOAT32, _INTGEMM8 = 0x404, 0x4101
_SETTINGS = "special:"  # begins the name of the configuration
_ALPHA = "_QuantMultA"  # ends the name of what quantises activations, which floats do not need
_MOST = 1_000_000  # tensors, or numbers in a shape


class MarianFile(NamedTuple):
    """What a file holds.

    Args:
        weights: float32, by Marian's names, a matrix as (inputs, outputs); without what quantises activations.
        settings: the configuration by its names, as `dim-emb`.
    """

    weights: dict[str, np.ndarray]
    settings: dict[str, Any]


def read_marian(path: str | Path) -> MarianFile:
    """Read a file of Marian.

    Raises:
        UnreadableError: it is no such file, is cut off or damaged, has weights of another type or no configuration.
    """
    data = Path(path).read_bytes()
    try:
        return _read(data)
    except struct.error as error:
        raise UnreadableError("is damaged: it ends before what its head announces. Download it anew") from error


def _read(data: bytes) -> MarianFile:
    version, count = struct.unpack_from("<2Q", data)
    if version != _VERSION or not 0 < count <= _MOST:
        raise UnreadableError(
            f"is no binary file of Marian: it must begin with version {_VERSION}, got {version}. Marian's .npz is "
            "made one by marian-conv"
        )
    place = 16
    heads = [struct.unpack_from("<4Q", data, place + 32 * n) for n in range(count)]
    place += 32 * count
    names, shapes = [], []
    for length, *_ in heads:
        names.append(bytes(data[place : place + length]).rstrip(b"\0").decode("utf-8", "replace"))
        place += length
    for name, (_, _, dimensions, _) in zip(names, heads, strict=True):
        if dimensions > 8:
            raise UnreadableError(f"is damaged: `{name:.80}` has {dimensions} dimensions. Download it anew")
        shapes.append(struct.unpack_from(f"<{dimensions}i", data, place))
        place += 4 * dimensions
    (padding,) = struct.unpack_from("<Q", data, place)
    place += 8 + padding
    weights, settings = {}, None
    for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
        if place + size > len(data):
            raise UnreadableError(f"is damaged: it ends within `{name:.80}`. Download it anew")
        if name.startswith(_SETTINGS):
            settings = _settings(data[place : place + size])
        elif not name.endswith(_ALPHA):
            weights[name] = _tensor(name, shape, kind, data[place : place + size])
        place += size
    if settings is None:
        raise UnreadableError("has no configuration (special:model.yml), which says what model it is")
    return MarianFile(weights, settings)


def _settings(text: bytes) -> dict[str, Any]:
    try:
        settings = load_yaml(text.rstrip(b"\0").decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableError("is damaged: its configuration is no YAML. Download it anew") from error
    if not isinstance(settings, dict):
        raise UnreadableError("is damaged: its configuration has no settings. Download it anew")
    return settings


def _tensor(name: str, shape: tuple[int, ...], kind: int, data: bytes) -> np.ndarray:
    number = int(np.prod(shape, dtype=np.float64))
    needed = {_FLOAT32: 4 * number, _INTGEMM8: number + 4}
    if kind not in needed:
        raise UnreadableError(
            f"has weights of type {kind:#x} (`{name:.80}`), got neither float32 nor intgemm8. Take the file before it "
            "was packed for one kind of processor"
        )
    if min(shape, default=0) < 1 or len(data) < needed[kind]:
        raise UnreadableError(f"is damaged: `{name:.80}` has {len(data)} bytes for shape {shape}. Download it anew")
    if kind == _FLOAT32:
        values = np.frombuffer(data, "<f4", number).reshape(shape).astype(np.float32)
    else:  # int8, then the factor; matrices are stored as (outputs, inputs), the embedding as it is
        (factor,) = struct.unpack_from("<f", data, number)
        with np.errstate(all="ignore"):
            values = np.frombuffer(data, np.int8, number).astype(np.float32) / np.float32(factor)
        values = values.reshape(shape) if name.endswith("Wemb") else values.reshape(shape[::-1]).T
    if not np.isfinite(values).all():
        raise UnreadableError(f"is damaged: `{name:.80}` has values that are not finite. Download it anew")
    return np.ascontiguousarray(values)
