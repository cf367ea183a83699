"""What the sub-commands share: errors for the user, argument types, and input read in windows of lines."""

import argparse
from collections.abc import Iterator
from typing import BinaryIO


class CommandError(Exception):
    """Something the user can mend: the message is printed without a traceback."""


def positive(text: str) -> int:
    """The type of an argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def read_windows(source: BinaryIO, window: int) -> Iterator[tuple[list[str], CommandError | None]]:
    """Groups of at most `window` lines without line ends.

    With the last group comes what is wrong with the line after it, or `None`.
    """
    lines: list[str] = []
    for number, raw in enumerate(source, start=1):
        try:
            lines.append(raw.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            yield lines, CommandError(f"line {number} of the input is not UTF-8 (byte {error.start + 1}).")
            return
        if len(lines) == window:
            yield lines, None
            lines = []
    if lines:
        yield lines, None
