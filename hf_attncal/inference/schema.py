"""What the values of a JSON file have to be, and a check that names the first that is something else.

A schema is one of the classes here, or a dictionary of schemas by key: of these keys each must be there, and no other.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """Finite numbers in lists of lists of these lengths; a single number without any.

    Args:
        shape: lengths, from the outermost list.
        least, most: bounds, which a number may have.
        whole: they must be whole.
    """

    shape: tuple[int, ...] = ()
    least: float = -1e6
    most: float = 1e6
    whole: bool = False

    def has(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        kinds: tuple[type, ...] = (int,) if self.whole else (int, float)
        return type(value) in kinds and self.least <= value <= self.most

    def check(self, value: Any, name: str) -> None:
        """Raise ValueError for a value that is something else; `name` is what the message calls it."""
        if self.shape:
            for place, one in enumerate(_list(value, self.shape[0], name)):
                self._replace(shape=self.shape[1:]).check(one, f"{name}[{place}]")
        elif not self.has(value):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"`{name}` must be {kind} from {self.least:g} to {self.most:g}, got {_shown(value)}.")


class WordNumbers(NamedTuple):
    """Numbers by words, at least one.

    Args:
        of: what each is.
        total: what they may sum up to.
    """

    of: Numbers
    total: float = math.inf

    def check(self, value: Any, name: str) -> None:
        """As `Numbers.check`."""
        if not all(map(self.of.has, _object(value, name).values())):
            word, wrong = next(item for item in value.items() if not self.of.has(item[1]))
            self.of.check(wrong, f"{name}.{word}"[:80])
        if not value:
            raise ValueError(f"`{name}` must have words, got none.")
        if sum(value.values()) > self.total:
            raise ValueError(f"`{name}` must sum up to at most {self.total:g}, got {sum(value.values()):g}.")


class OneOf(NamedTuple):
    """One of these texts."""

    names: Collection[str]

    def check(self, value: Any, name: str) -> None:
        """As `Numbers.check`."""
        if not isinstance(value, str) or value not in self.names:
            raise ValueError(f"`{name}` must be one of {tuple(self.names)}, got {_shown(value)}.")


class ListOfWords(NamedTuple):
    """A list of texts, of any length."""

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise ValueError(f"`{name}` must be a list of words, got {_shown(value)}.")


class Maybe(NamedTuple):
    """What may be null, or missing.

    Args:
        of: what it is otherwise; None for anything, which somebody else checks.
        missing: whether it may be missing, too.
        null: whether it may be null: else it may only be missing.
    """

    of: Any
    missing: bool = False
    null: bool = True

    def check(self, value: Any, name: str) -> None:
        """As `Numbers.check`."""
        if self.of is not None and not (value is None and self.null):
            check_values(value, self.of, name)


class Each(NamedTuple):
    """A list of things, each with its own schema."""

    of: tuple[Any, ...]

    def check(self, value: Any, name: str) -> None:
        """As `Numbers.check`."""
        for place, (one, schema) in enumerate(zip(_list(value, len(self.of), name), self.of, strict=True)):
            check_values(one, schema, f"{name}[{place}]")


def check_values(value: Any, schema: Any, name: str = "") -> None:
    """Check a value.

    Args:
        value: as `json.loads` gives it.
        schema: what it must be.
        name: what messages call it; "" for all that is in the file.

    Raises:
        ValueError: it is something else; the message names the first place where it is, the rule and the value.
    """
    if not isinstance(schema, Mapping):
        schema.check(value, name)
        return
    found, inside = _object(value, name), f"{name}." if name else ""
    for key in found:
        if key not in schema:
            raise ValueError(f"`{inside}{key[:60]}` is no field. The fields are {', '.join(schema)}.")
    for key, of in schema.items():
        if key in found:
            check_values(found[key], of, f"{inside}{key}")
        elif not getattr(of, "missing", False):
            raise ValueError(f"`{inside}{key}` is missing.")


def _list(value: Any, length: int, name: str) -> list:
    if not isinstance(value, list) or len(value) != length:
        got = f"one of {len(value)}" if isinstance(value, list) else _shown(value)
        raise ValueError(f"`{name}` must be a list of {length}, got {got}.")
    return value


def _object(value: Any, name: str) -> dict:
    if not isinstance(value, dict):
        raise ValueError(f"{f'`{name}`' if name else 'it'} must be a JSON object, got {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    return repr(str(value)[:30]) if isinstance(value, str) else str(value)[:30]
