"""Errors that a user can correct, errors of one line of a text, and Ctrl-C."""

import _thread
import errno
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
ITEMS_AT_ONCE = 1024  # items that are worked on together


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


# ---- lines ----


class LineError(ValueError):
    """Error in one line of a stream.

    Args:
        number: of the line, from 1.
        error: what went wrong.
        where: argument whose stream has the line; None for all of them.
    """

    def __init__(self, number: int, error: Exception, where: str | None = None):
        super().__init__(f"line {number}{f' of `{where}`' if where else ''}: {error}")
        self.number, self.error, self.where = number, error, where


@contextmanager
def in_line(number: int, where: str | None = None) -> Iterator[None]:
    """Raise LineError for a ValueError of the block."""
    try:
        yield
    except ValueError as error:
        raise LineError(number, error, where) from error


def piecewise(
    work: Callable[[Sequence[Item]], Sequence[Result]], items: Iterable[Item], window: int = ITEMS_AT_ONCE
) -> Iterator[Result]:
    """Yield what `work` makes of each item, in order, `window` items at once.

    Raises:
        LineError: `work` fails on an item. This error, and any of `items` itself, comes behind all results before it.
    """
    done, items = 0, iter(items)
    while True:
        some: list[Item] = []
        broken = None
        try:
            for item in islice(items, window):
                some.append(item)
        except Exception as error:
            broken = error
        results, failure = until_failure(work, some) if some else ([], None)
        yield from results
        done += len(results)
        if failure is not None:
            raise LineError(done + 1, failure) from failure
        if broken is not None:
            raise broken
        if len(some) < window:
            return


def until_failure(
    work: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]
) -> tuple[Sequence[Result], Exception | None]:
    """Return the results of the items before the first that `work` fails on, and its error or None.

    The items are tried together, and where that fails one half after the other: what needs too much memory at once is
    done in parts.
    """
    try:
        return work(items), None
    except Exception as error:
        if len(items) < 2:
            return [], error
    middle = len(items) // 2
    first, failure = until_failure(work, items[:middle])
    if failure is not None:
        return first, failure
    second, failure = until_failure(work, items[middle:])
    return [*first, *second], failure


# ---- Ctrl-C ----

_AGAIN = 0.05  # seconds until an interrupt that came at a bad moment is raised again
_LONGEST_IMPORT = 20.0  # seconds that an import may keep an interrupt from being raised
_IMPORTING = "<frozen importlib._bootstrap>"
_came: list[float] = []  # when the interrupt came that waits for an import


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt, once the outermost import that is going on is done.

    A library whose import is cut short may swallow the interrupt, raise another error, or be half there for all that
    comes after (`module 'numpy' has no attribute 'matrix'`), and C++ code ends the process (`terminate called`).

    Raises:
        KeyboardInterrupt: nothing is being imported, or it has taken 20 seconds.
    """
    if _is_importing(frame):
        _came[:] = _came or [time.monotonic()]
        if time.monotonic() < _came[0] + _LONGEST_IMPORT:
            raise_soon()
            return
    _came.clear()
    signal.default_int_handler(number, frame)


def raise_soon() -> None:
    """Let SIGINT come again in a moment."""
    timer = threading.Timer(_AGAIN, _thread.interrupt_main)
    timer.daemon = True  # a command that is done needs no interrupt
    timer.start()


def raise_unraisable_again(unraisable) -> None:
    """Raise Ctrl-C again that came in a destructor or a callback: Python would print a traceback and go on.

    A moment later, as Python would drop one that is raised in this hook, too.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        raise_soon()
    else:
        sys.__unraisablehook__(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    return frame is not None
