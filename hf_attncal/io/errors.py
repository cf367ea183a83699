"""Errors that a user can correct, and errors of one line of a text."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
ITEMS_AT_ONCE = 1024  # items that are worked on together


class CommandError(ValueError):
    """Error that the user can correct; `attncal` prints its message without a traceback."""


class UnreadableError(ValueError):
    """Error of a damaged file or one of another format; the message is the reason, without the file's name."""


def check_range(option: str, value: float | None, low: float, high: float = (1 << 31) - 1) -> None:
    """Raise CommandError unless the value of an option is from `low` to `high` or None."""
    if value is not None and not low <= value <= high:  # NaN is out of range
        raise CommandError(f"{option} must be from {low} to {high}, got {value}.")


def check_choice(option: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise CommandError unless the value of an option is one of its choices or None."""
    if value is not None and value not in choices:
        raise CommandError(f"{option} must be {', '.join(choices[:-1])} or {choices[-1]}, got {value}.")


def settings_by_name(settings: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name, from a mapping or from `key=value` words of a command line.

    Raises:
        CommandError: a duplicate name.
    """
    if settings is None or isinstance(settings, Mapping):
        return dict(settings or {})
    values: dict[str, Any] = {}
    for word in settings:
        name, _, value = word.partition("=")
        if name in values:
            raise CommandError(f"`{name}` is given twice. Leave one out.")
        values[name] = value
    return values


@contextmanager
def user_errors(kind: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Iterator[None]:
    """Re-raise errors of one or several classes as CommandError, with the same message."""
    try:
        yield
    except kind as error:
        raise CommandError(str(error)) from error


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, joined with the next one if it ends with a colon."""
    first, *rest = [line.strip() for line in str(error).strip().splitlines()] or [""]
    while first.endswith(":") and rest:
        first += " " + rest.pop(0)
    return first[:1000]


def explain(error: BaseException) -> str:
    """Return an error message for the user on one line: the remedy, or a note that it is a bug."""
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
        return f"{message} Free space on its disk, or choose another place." if full else message
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in text:
        return f"there is not enough memory ({text or kind})."
    return f"{kind}: {text}. Unless a file of the model is damaged, this is a bug of attncal: --debug shows where."


# ---- lines ----


class LineError(ValueError):
    """Error in one line of a stream.

    Args:
        number: line number, from 1.
        error: cause.
        where: argument with the line. Default: the line of all arguments.
    """

    def __init__(self, number: int, error: Exception, where: str | None = None):
        super().__init__(f"line {number}{f' of `{where}`' if where else ''}: {error}")
        self.number, self.error, self.where = number, error, where


@contextmanager
def in_line(number: int, where: str | None = None) -> Iterator[None]:
    """Re-raise a ValueError of the block as LineError."""
    try:
        yield
    except ValueError as error:
        raise LineError(number, error, where) from error


def piecewise(
    work: Callable[[Sequence[Item]], Sequence[Result]], items: Iterable[Item], window: int = ITEMS_AT_ONCE
) -> Iterator[Result]:
    """Yield the results of `work` for a stream, in order, `window` items at once.

    Raises:
        LineError: `work` fails on an item. This error, or an error of `items`, follows all earlier results.
    """
    done, items = 0, iter(items)
    while True:
        group: list[Item] = []
        stream_error = None
        try:
            for item in islice(items, window):
                group.append(item)
        except Exception as error:
            stream_error = error
        results, failure = until_failure(work, group) if group else ([], None)
        yield from results
        done += len(results)
        if failure is not None:
            raise LineError(done + 1, failure) from failure
        if stream_error is not None:
            raise stream_error
        if len(group) < window:
            return


def until_failure(
    work: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]
) -> tuple[Sequence[Result], Exception | None]:
    """Return the results before the first item that `work` fails on, and its error or None.

    The items are tried together, and after a failure in halves. So a batch that needs too much memory is split.

    Raises:
        AttributeError, NameError: `work` has a bug, which single items might hide.
    """
    try:
        return work(items), None
    except (AttributeError, NameError):
        raise
    except Exception as error:
        if len(items) < 2:
            return [], error
    middle = len(items) // 2
    first, failure = until_failure(work, items[:middle])
    if failure is not None:
        return first, failure
    second, failure = until_failure(work, items[middle:])
    return [*first, *second], failure
