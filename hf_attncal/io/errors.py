"""Errors that a user can correct, and what is said of any error on one line."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class CommandError(ValueError):
    """An error that the user can correct; `attncal` prints its message without a traceback."""


class UnreadableError(ValueError):
    """A file is not what its name says; the message says why, without the name."""


def at_least(option: str, value: float | None, low: float, high: float = (1 << 31) - 1) -> None:
    """Raise CommandError unless the value of an option is from `low` to `high`; None stands for one not given."""
    if value is not None and not low <= value <= high:  # which NaN is not
        raise CommandError(f"{option} must be from {low} to {high}, got {value}.")


def one_of(option: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise CommandError unless the value of an option is one of its choices; None stands for one not given."""
    if value is not None and value not in choices:
        raise CommandError(f"{option} must be {', '.join(choices[:-1])} or {choices[-1]}, got {value}.")


def settings_by_name(given: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name, from such a mapping or from the words `key=value` of a command line.

    Raises:
        CommandError: a name comes twice.
    """
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    found: dict[str, Any] = {}
    for word in given:
        name, _, value = word.partition("=")
        if name in found:
            raise CommandError(f"`{name}` is given twice. Leave one out.")
        found[name] = value
    return found


@contextmanager
def user_errors(kind: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Iterator[None]:
    """Turn errors of a kind, or of several, into errors for the user, with the same message.

    Raises:
        CommandError: in their place.
    """
    try:
        yield
    except kind as error:
        raise CommandError(str(error)) from error


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line: its first line, and the next ones after a colon."""
    first, *others = [line.strip() for line in str(error).strip().splitlines()] or [""]
    while first.endswith(":") and others:
        first += " " + others.pop(0)
    return first[:1000]


def explain(error: BaseException) -> str:
    """Explain an error to the user on one line: how to correct it, or that it is a bug."""
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        from hf_attncal.io.extras import remedy

        if advice := remedy(error.name):
            return f"{advice}."
    kind, text = type(error).__name__, one_line(error)
    if isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}." if error.filename and error.strerror else f"{text or kind}."
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{message} Make room on its disk, or name another place." if full else message
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in text:
        return f"there is not enough memory ({text or kind})."
    return f"{kind}: {text}. Unless a file of the model is damaged, this is a bug of attncal: --debug shows where."
