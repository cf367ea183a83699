"""Sections of settings as YAML files have them: inheritance, overrides, and the check of keys and types.

A file states only what differs from the file named by its `base:` key (relative to it), or from the defaults.
"""

import dataclasses
import difflib
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from huggingface_hub.errors import StrictDataclassError

from hf_attncal.io.encoding import decoded
from hf_attncal.io.files import load_yaml

Positive = Annotated[int, 1]  # the number is the least that is allowed; a second one is the most
NotNegative = Annotated[int, 0]
# The kernels of attention that settings may choose: transformers gets others from the Hub, as code.
Kernel = Literal["eager", "sdpa"] | None
# What people who know other tools, or older files, may call a key.
_OTHER_NAMES = {"max_tokens": "tokens_per_batch", "valid": "dev", "valid_pairs": "held_out_pairs"}
_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}


# ---- files ----


def read_settings(path: str | Path, overrides: list[str] | None = None, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the nested dictionary of a YAML file with all it inherits and overrides, not yet checked.

    Args:
        path: path of the file.
        overrides: `section.key=value` settings.
        seen: files that inherit from this one.

    Raises:
        ValueError: a malformed override, a file that is no YAML or holds no sections, or `base:` files in a circle.
        FileNotFoundError: the file or one of its bases does not exist.
    """
    path = Path(path)
    if path.resolve() in seen:
        raise ValueError(f"`base` files must not form a circle: {' -> '.join(p.name for p in (*seen, path))}.")
    data = path.read_bytes()
    try:
        values = load_yaml(decoded(data.removeprefix(BOM_UTF8), path.name)) or {}
    except ValueError as error:
        raise ValueError(f"{path} is no YAML file: {str(error).removesuffix('.')}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} must hold sections of keys, got {type(values).__name__}.")
    values = {key: value for key, value in values.items() if value is not None}  # a section left empty
    base = values.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise ValueError(f"`base` must be the name of a file, got {base!r}.")
        values = merge_settings(read_settings(path.parent / base, None, (*seen, path.resolve())), values)
    return apply_overrides(values, overrides or [])


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Put `section.key=value` settings into a nested dictionary, and return it.

    Raises:
        ValueError: a setting that is not of this form, or whose value is no YAML.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ValueError(f"an override must read `section.key=value`, got {override!r}.")
        try:
            value = load_yaml(text)
        except ValueError as error:
            raise ValueError(f"the value of an override must be YAML, got {override!r}: {error}. Quote it.") from error
        for name in reversed(key.split(".")):
            value = {name: value}
        merge_settings(values, value)
    return values


def merge_settings(into: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Update the nested dictionary `into` recursively, and return it."""
    for key, value in values.items():
        if isinstance(into.get(key), dict) and isinstance(value, dict):
            merge_settings(into[key], value)
        else:
            into[key] = value
    return into


# ---- checks ----


@dataclasses.dataclass(frozen=True)
class Refused:
    """Takes the place of a key's type where settings, which are shared as checkpoints are, may not set it.

    Args:
        remedy: what to do instead.
    """

    remedy: str


def hints_of(cls: type) -> dict[str, Any]:
    """Return the types of the fields that a dataclass can be given, by name."""
    # transformers' configurations name `torch` and import it for type checkers only.
    types = get_type_hints(cls, localns={"torch": torch}, include_extras=True)
    return {f.name: types[f.name] for f in dataclasses.fields(cls) if f.init}


def check_section(values: Any, hints: dict[str, Any], section: str = "") -> None:
    """Refuse what is no section, a key that is not known (with the closest that is), and a value of another type.

    Args:
        values: a section as YAML gives it.
        hints: known key -> type; `Annotated[int, 1]` is an integer >= 1, `Annotated[int, 1, 9]` one from 1 to 9.
        section: its name, for the message.

    Raises:
        ValueError: naming `section.key`, the rule and the value; of a token not the value.
    """
    if not isinstance(values, dict):
        raise ValueError(f"`{section}` must be a section of keys, got {values!r}.")
    prefix = f"{section}." if section else ""
    for key, value in values.items():
        if key not in hints:
            closest = _OTHER_NAMES.get(key)
            if closest not in hints:
                closest = difflib.get_close_matches(str(key), hints, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown key `{prefix}{key}`. The closest known key is `{prefix}{closest}`.")
        hint = hints[key]
        if isinstance(hint, Refused):
            if value not in (None, False):
                got = "one" if key.endswith("token") else repr(value)
                raise ValueError(f"`{prefix}{key}` must be left out, got {got}. {hint.remedy}")
            continue
        fits, rule = _rule(hint)
        if not fits(value):
            raise ValueError(f"`{prefix}{key}` must be {rule}, got {value!r}.")


@contextmanager
def naming(section: str, known: Container[str]) -> Iterator[None]:
    """Re-raise a class's errors about its fields with the key of a section (`section.field`)."""
    try:
        yield
    except (ValueError, TypeError, StrictDataclassError) as error:
        text = str(error.__cause__ if isinstance(error, StrictDataclassError) and error.__cause__ else error)
        field = re.match(r"`(\w+)`", text)
        message = f"`{section}.{text[1:]}" if field and field[1] in known else f"`{section}`: {text}"
        raise ValueError(message) from error


def _rule(hint: Any) -> tuple[Callable[[Any], bool], str]:
    """Return a test of the values of a type, and the rule in words."""
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin is Annotated:
        fits, _ = _rule(inner[0])
        least, most = inner[1], inner[2] if len(inner) > 2 else math.inf
        words = f">= {least}" if most == math.inf else f"from {least} to {most}"
        return lambda value: fits(value) and least <= value <= most, f"{_NAMES[inner[0]]} {words}"
    if origin in (Union, UnionType):
        # "An enumeration or text": the enumeration has the texts that mean something.
        enums = [choice for choice in inner if isinstance(choice, type) and issubclass(choice, Enum)]
        rules = [_rule(choice) for choice in inner if not (enums and choice is str)]
        return lambda value: any(fits(value) for fits, _ in rules), " or ".join(rule for _, rule in rules)
    if origin is Literal:
        return lambda value: value in inner, f"one of {inner}"
    if origin in (list, tuple):
        rules = [_rule(choice) for choice in inner]
        return (
            lambda values: (
                isinstance(values, list | tuple) and all(any(fits(value) for fits, _ in rules) for value in values)
            ),
            "a list",
        )
    if dataclasses.is_dataclass(hint) or kind is dict:
        return lambda value: isinstance(value, dict), "a section of keys"
    if hint in (int, float):
        return _is_integer if hint is int else _is_number, _NAMES[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        texts = tuple(member.value for member in hint)
        return lambda value: value in texts or isinstance(value, hint), f"one of {texts}"
    return lambda value: not isinstance(kind, type) or isinstance(value, kind), _NAMES.get(kind, str(hint))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # `yes` is an integer to Python


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))
