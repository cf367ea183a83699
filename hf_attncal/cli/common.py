"""What the sub-commands share: errors for the user, argument types, loading, and lines read and written in windows."""

import argparse
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from typing import BinaryIO

# POSIX: a pipe takes up to this many bytes in one piece, or none of them.
_PIPE_BUFFER = 4096


class CommandError(Exception):
    """Something the user can mend: the message is printed without a traceback."""


def positive(text: str) -> int:
    """The type of an argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


# ---- loading ----


@contextmanager
def load_errors(name: str) -> Iterator[None]:
    """What goes wrong while the checkpoint `name` is loaded becomes an error for the user; no progress bars.

    Raises:
        CommandError: in place of the errors of transformers.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # of the weights: a pipe's standard error is for errors
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise CommandError(
                f"{name} brings model code of its own. Read it, and pass --trust-remote-code to run it."
            ) from error
        raise CommandError(f"{name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error


def choose_device(device: str | None) -> str:
    """The device that was asked for, or a GPU if there is one: that of the local rank, where processes share a job.

    Raises:
        CommandError: the device cannot be used.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CommandError(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from error
    return device


# ---- lines ----


def read_windows(
    source: BinaryIO, window: int, name: str = "the input"
) -> Iterator[tuple[list[str], CommandError | None]]:
    """Groups of at most `window` lines without line ends.

    With the last group comes what is wrong with the line after it, or `None`. `name` is what messages call `source`.
    """
    lines: list[str] = []
    number = 0
    try:
        for raw in source:
            number += 1
            lines.append(raw.decode("utf-8").rstrip("\r\n"))
            if len(lines) == window:
                yield lines, None
                lines = []
    except UnicodeDecodeError as error:
        yield lines, CommandError(f"line {number} of {name} is not UTF-8 (byte {error.start + 1}).")
        return
    except (EOFError, OSError, LZMAError, zlib.error) as error:
        yield lines, CommandError(f"{name} cannot be read after line {number}: {error}. It is damaged or incomplete.")
        return
    if lines:
        yield lines, None


def write_lines(target: BinaryIO, lines: Iterable[str]) -> None:
    """Write lines, each with its line end, and flush.

    They go out in pieces of whole lines that a pipe takes at once: a reader never sees half a line of a run that is
    killed, unless the line alone is longer than such a piece.
    """
    piece = b""
    for line in lines:
        data = line.encode() + b"\n"
        if piece and len(piece) + len(data) > _PIPE_BUFFER:
            target.write(piece)
            target.flush()
            piece = b""
        piece += data
    target.write(piece)
    target.flush()
