"""What the sub-commands share: errors for the user, arguments, loading."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager


class CommandError(Exception):
    """Something the user can mend: the message is printed without a traceback."""


def positive(text: str) -> int:
    """The type of an argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def add_model_options(
    parser: argparse.ArgumentParser, model: str, *, dtype: bool = False, progress: bool = False
) -> argparse._ArgumentGroup:
    """Add MODEL and what every command asks that loads one; returned is their group "running", for more of the kind.

    Args:
        parser: of the command.
        model: what MODEL may be.
        dtype: the command has --dtype, too.
        progress: the command counts lines as it goes (see `streams.progress_bar`).
    """
    parser.add_argument("model", metavar="MODEL", help=model)
    running = parser.add_argument_group("running")
    running.add_argument("--device", help="such as cpu or cuda:0; without it, a GPU if there is one")
    if dtype:
        running.add_argument(
            "--dtype",
            choices=("float32", "bfloat16", "float16"),
            help="precision of the weights; without it, as they are saved",
        )
    running.add_argument(
        "--trust-remote-code", action="store_true", help="run the model code that comes with the checkpoint"
    )
    if progress:
        running.add_argument(
            "--progress",
            action=argparse.BooleanOptionalAction,
            help="count lines on standard error; without it, if that is a terminal",
        )
    return running


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
