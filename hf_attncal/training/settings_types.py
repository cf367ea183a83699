"""The check of keys and types of settings, and what is said of a wrong one."""

import dataclasses
import difflib
import math
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from huggingface_hub.errors import StrictDataclassError

# What people who know other tools, or older files, may call a key.
OTHER_NAMES = {"max_tokens": "tokens_per_batch", "valid": "dev", "valid_pairs": "held_out_pairs"}
TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
Positive = Annotated[int, 1]  # the number is the least that is allowed; a second one is the most
NotNegative = Annotated[int, 0]
# The kernels of attention that settings may choose: transformers gets others from the Hub, as code.
Kernel = Literal["eager", "sdpa"] | None


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
            closest = OTHER_NAMES.get(key)
            if closest not in hints:
                closest = difflib.get_close_matches(str(key), hints, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown key `{prefix}{key}`. The closest known key is `{prefix}{closest}`.")
        if isinstance(hints[key], Refused):
            if value not in (None, False):
                got = "one" if key.endswith("token") else repr(value)
                raise ValueError(f"`{prefix}{key}` must be left out, got {got}. {hints[key].remedy}")
        elif rule := _problem(value, hints[key]):
            raise ValueError(f"`{prefix}{key}` must be {rule}, got {value!r}.")


@contextmanager
def naming(section: str, known: Container[str]) -> Iterator[None]:
    """Turn what a class says of its fields into errors about the keys of a section (`section.field`)."""
    try:
        yield
    except (ValueError, TypeError, StrictDataclassError) as error:
        text = str(error.__cause__ if isinstance(error, StrictDataclassError) and error.__cause__ else error)
        field = re.match(r"`(\w+)`", text)
        message = f"`{section}.{text[1:]}" if field and field[1] in known else f"`{section}`: {text}"
        raise ValueError(message) from error


def _problem(value: Any, hint: Any) -> str:
    """Return the rule for values of a type that a value breaks, or ""."""
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin is Annotated:
        kind, least, *most = inner
        fits = not _problem(value, kind) and least <= value <= (most[0] if most else math.inf)
        rule = f"{TYPE_NAMES[kind]} " + (f"from {least} to {most[0]}" if most else f">= {least}")
    elif origin in (Union, UnionType):
        # "An enumeration or text": the enumeration has the texts that mean something.
        of_texts = any(isinstance(choice, type) and issubclass(choice, Enum) for choice in inner)
        rules = [_problem(value, choice) for choice in inner if not (of_texts and choice is str)]
        fits, rule = not all(rules), " or ".join(rules)
    elif origin is Literal:
        fits, rule = value in inner, f"one of {inner}"
    elif origin in (list, tuple):
        fits = isinstance(value, list | tuple) and not any(all(_problem(v, choice) for choice in inner) for v in value)
        rule = "a list"
    elif dataclasses.is_dataclass(hint) or kind is dict:
        fits, rule = isinstance(value, dict), "a section of keys"
    elif hint in (int, float):  # `yes` is an integer to Python
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits, rule = whole or (hint is float and isinstance(value, float) and math.isfinite(value)), TYPE_NAMES[hint]
    elif isinstance(hint, type) and issubclass(hint, Enum):
        texts = tuple(member.value for member in hint)
        fits, rule = value in texts or isinstance(value, hint), f"one of {texts}"
    else:
        fits, rule = not isinstance(kind, type) or isinstance(value, kind), TYPE_NAMES.get(kind, str(hint))
    return "" if fits else rule
