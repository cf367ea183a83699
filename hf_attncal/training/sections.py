"""Settings in YAML sections: inheritance, overrides, and the check of keys and types.

A file lists only differences from the file of its `base:` key (a relative path), or from the defaults.
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

from hf_attncal.io.files import decoded, load_yaml

Positive = Annotated[int, 1]  # minimum, and optionally a maximum
NotNegative = Annotated[int, 0]
# Attention kernels allowed in settings; transformers would load others as code from the Hub.
Kernel = Literal["eager", "sdpa"] | None
_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}


# ---- files ----


def read_settings(
    path: str | Path, overrides: list[str] | None = None, children: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Return a YAML file with its bases and overrides as a nested dictionary, before the check.

    Args:
        path: path of the file.
        overrides: `section.key=value` settings. Default: none.
        children: files that inherit from this one. Default: none.

    Raises:
        ValueError: a malformed override, a file that is no YAML or has no sections, or `base:` files in a circle.
        FileNotFoundError: the file or one of its bases does not exist.
    """
    path = Path(path)
    if path.resolve() in children:
        raise ValueError(f"`base` files must not form a circle: {' -> '.join(p.name for p in (*children, path))}.")
    data = path.read_bytes()
    try:
        values = load_yaml(decoded(data.removeprefix(BOM_UTF8), path.name)) or {}
    except ValueError as error:
        raise ValueError(f"{path} is not a YAML file: {str(error).removesuffix('.')}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} must hold sections of keys, got {type(values).__name__}.")
    values = {key: value for key, value in values.items() if value is not None}  # an empty section
    base = values.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise ValueError(f"`base` must be the name of a file, got {base!r}.")
        values = merge_settings(read_settings(path.parent / base, None, (*children, path.resolve())), values)
    return apply_overrides(values, overrides or [])


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Update a nested dictionary with `section.key=value` settings, and return it.

    Raises:
        ValueError: a setting of another form, or a value that is not YAML.
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
    """Type of a key that settings may not set.

    Args:
        remedy: advice at the end of the error message.
    """

    remedy: str


def hints_of(cls: type) -> dict[str, Any]:
    """Return the types of the init fields of a dataclass, by name."""
    # transformers' configurations name `torch` and import it for type checkers only.
    types = get_type_hints(cls, localns={"torch": torch}, include_extras=True)
    return {f.name: types[f.name] for f in dataclasses.fields(cls) if f.init}


def check_section(values: Any, hints: dict[str, Any], section: str = "") -> None:
    """Check the keys and the types of the values of a section.

    Args:
        values: section as in YAML.
        hints: key -> type; `Annotated[int, 1]` is an integer >= 1, `Annotated[int, 1, 9]` an integer from 1 to 9.
        section: name of the section, for the message. Default: none.

    Raises:
        ValueError: no section, an unknown key (the message has the closest known key), or a wrong value; the value of
            a token is not shown.
    """
    if not isinstance(values, dict):
        raise ValueError(f"`{section}` must be a section of keys, got {values!r}.")
    prefix = f"{section}." if section else ""
    for key, value in values.items():
        if key not in hints:
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
    """Return a predicate of the values of a type, and the rule in words."""
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin is Annotated:
        return _bounded_rule(*inner)
    if origin in (Union, UnionType):
        # In "enumeration or text", only the texts of the enumeration are valid.
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


def _bounded_rule(kind: Any, least: float, most: float = math.inf) -> tuple[Callable[[Any], bool], str]:
    """Return the rule of a number with bounds, `Annotated[int, least, most]`."""
    fits, _ = _rule(kind)
    words = f">= {least}" if most == math.inf else f"from {least} to {most}"
    return lambda value: fits(value) and least <= value <= most, f"{_NAMES[kind]} {words}"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # True is an int in Python


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))
