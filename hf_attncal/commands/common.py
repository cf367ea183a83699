"""Parts that the commands share: errors for the user, arguments, loading."""

import argparse
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

# Options of `add_text_options`, as attributes.
TEXT_OPTIONS = ("source_language", "target_language", "source_prefix", "target_prefix")
LONGEST_LINE = 10_000  # bytes: two such sides take at most 3 GB and 10 seconds to align


class CommandError(Exception):
    """An error that the user can correct; its message is printed without a traceback."""


def in_range(kind: type[int] | type[float], low: float, high: float = (1 << 31) - 1) -> Callable[[str], Any]:
    """Return the type of an argument that is a number of a kind, not NaN, from `low` to `high`."""

    def number(text: str) -> Any:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be from {low} to {high}, got {text[:30]}")
        return value

    number.metavar = "N" if kind is int else "X"  # in usage lines, see `parser.HelpFormatter`
    return number


at_least, between = partial(in_range, int), partial(in_range, float)
positive, not_negative = at_least(1), at_least(0)


def add_model_options(
    parser: argparse.ArgumentParser,
    model: str | None,
    *,
    optional: bool = False,
    lines: bool = False,
    longest_line: int = LONGEST_LINE,
) -> argparse._ArgumentGroup:
    """Add the options of every command that loads a model; return their group, "running", for more options.

    Args:
        parser: parser of the command.
        model: help text of MODEL; None for a command without it.
        optional: MODEL may be left out.
        lines: the command reads line by line, so add a limit for a line and a count of lines (`streams.progress_bar`).
        longest_line: default of that limit, in bytes.
    """
    from hf_attncal.threads import MOST_THREADS

    if model is not None:
        parser.add_argument("model", metavar="MODEL", nargs="?" if optional else None, help=model)
    running = parser.add_argument_group("running")
    running.add_argument("--device", metavar="NAME", help="such as cpu or cuda:0; without it, a GPU if there is one")
    running.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="precision of the weights; without it, as they are saved",
    )
    running.add_argument(
        "--threads",
        type=at_least(1, MOST_THREADS),
        help="threads of PyTorch on the CPU; without it, as PyTorch chooses",
    )
    running.add_argument(
        "--trust-remote-code", action="store_true", help="run the model code that comes with the checkpoint"
    )
    running.add_argument(
        "--revision", metavar="COMMIT", help="commit, tag or branch of MODEL on the Hub; without it, the newest"
    )
    if lines:
        add_longest_line(running, longest_line)
        running.add_argument(
            "--progress",
            action=argparse.BooleanOptionalAction,
            help="count lines on standard error; without it, if that is a terminal",
        )
    return running


def add_file_options(parser: argparse.ArgumentParser, lines: str) -> argparse._ArgumentGroup:
    """Add --input and --output, for `streams.input_lines` and `streams.output_lines`, and return their group.

    Args:
        parser: parser of the command.
        lines: description of the lines of the input.
    """
    files = parser.add_argument_group("input and output")
    files.add_argument("--input", metavar="FILE", help=f"{lines}; plain, .gz, .xz or .zst; without it, standard input")
    add_output_option(files)
    return files


def add_output_option(files: argparse._ArgumentGroup) -> None:
    """Add --output, for `streams.output_lines`."""
    files.add_argument(
        "--output",
        metavar="FILE",
        help="written as FILE.partial and renamed when it is complete, compressed as its name says; without it, "
        "standard output",
    )


def add_text_options(reading: argparse._ArgumentGroup) -> None:
    """Add what a model wants beside its text: languages and prefixes."""
    for side in ("source", "target"):
        reading.add_argument(
            f"--{side}-language",
            metavar="NAME",
            help=f"states: of the {side} text, for tokenizers that put a code beside it (M2M100, NLLB, mBART); "
            "without it, none",
        )
    reading.add_argument(
        "--source-prefix", metavar="TEXT", help="what the model wants in front of every source; without it, nothing"
    )
    reading.add_argument(
        "--target-prefix", metavar="TEXT", help="states: the same in front of every target; without it, nothing"
    )


def add_longest_line(parser: argparse._ActionsContainer, default: int = LONGEST_LINE) -> None:
    """Add --longest-line, in bytes, which keeps an endless line from taking all memory (`read_windows`)."""
    parser.add_argument(
        "--longest-line",
        type=positive,
        default=default,
        metavar="BYTES",
        help="a line of more bytes is an error, unless it is truncated",
    )


# ---- files ----


def check_readable(*paths: str | None) -> None:
    """Check that inputs can be read, before anything is loaded; None stands for no input.

    Raises:
        CommandError: an input is missing, a folder, or has no read permission.
        ModuleNotFoundError: a .zst file without the extra `zst`.
    """
    from hf_attncal.compressed import suffix_of

    for path in paths:
        if path is None or (os.access(path, os.R_OK) and not os.path.isdir(path)):
            suffix_of(path or "")
            continue
        problem = "is a folder, not a file" if os.path.isdir(path) else "may not be read: change its permissions"
        raise CommandError(
            f"{path} {problem}." if os.path.lexists(path) else f"There is no file {path or repr(path)}."
        )


def check_folder(path: str, option: str = "--output") -> None:
    """Check that an output folder can be made, before anything is loaded.

    Raises:
        CommandError: the path, or a parent of it, is a file.
    """
    existing = path or "."
    while not os.path.lexists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing) or "."
    if not os.path.isdir(existing):
        raise CommandError(f"{path} cannot be a folder: {existing} is a file. Give another {option}.")


def add_pair_files(
    files: argparse._ActionsContainer, source: str = "source sentences, one a line", without: str | None = None
) -> None:
    """Add --source and --target of a command that reads sentence pairs.

    Args:
        files: the group of options.
        source: what the first file holds.
        without: what is read without them; None: they are required.
    """
    end = "" if without is None else f"; without it, {without}"
    kinds = {"source": f"{source}; plain, .gz, .xz or .zst{end}", "target": f"target sentences, as many lines{end}"}
    for side, text in kinds.items():
        files.add_argument(f"--{side}", required=without is None, metavar="FILE", help=text)


def check_longest_lines(options: argparse.Namespace, sources: Iterable[str], targets: Iterable[str]) -> None:
    """Check that no line is over --longest-line before a model reads it: work and memory grow with its square.

    Args:
        options: options of the command, with --source, --target and --longest-line.
        sources, targets: the lines of the two files.

    Raises:
        CommandError: a line is too long; the message has its number and file.
    """
    for name, lines in ((options.source, sources), (options.target, targets)):
        for number, line in enumerate(lines, start=1):
            if len(line.encode()) > options.longest_line:
                raise CommandError(too_long(number, name, options.longest_line))


def too_long(number: int, name: str, longest: int) -> str:
    """Return the message about a line of the file `name` that is over --longest-line."""
    return f"line {number} of {name} has more than {longest} bytes. Split it, or raise --longest-line."


def add_folder_beside(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --output of a command that writes the file `name` beside MODEL."""
    parser.add_argument("--output", metavar="FOLDER", help=f"where {name} goes; without it, MODEL if that is a folder")


def folder_beside(options: argparse.Namespace, name: str) -> Path:
    """Return the folder for the file `name`: --output, or MODEL.

    Raises:
        CommandError: --output cannot be a folder, or MODEL is not a folder and there is no --output.
    """
    if options.output is not None:
        check_folder(options.output)
    elif not Path(options.model).is_dir():
        raise CommandError(f"{options.model} is not a folder: name one for {name} with --output.")
    return Path(options.output or options.model)


# ---- errors ----


@contextmanager
def user_errors(kind: type[Exception] = ValueError) -> Iterator[None]:
    """Turn errors of a kind into errors for the user, with the same message.

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
        from hf_attncal.extras import remedy

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


# ---- loading ----
