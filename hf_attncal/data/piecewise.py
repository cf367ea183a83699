"""Work on a stream a window at a time, with errors that name the faulty item."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
ITEMS_AT_ONCE = 1024  # items that are worked on together


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
