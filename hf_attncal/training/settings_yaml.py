"""Settings as YAML files have them, with inheritance and overrides, not yet checked.

A file states only what differs from the file named by its `base:` key (relative to it), or from the defaults.
"""

from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.io.encoding import decoded


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
    return apply_overrides(values, overrides) if overrides else values


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
