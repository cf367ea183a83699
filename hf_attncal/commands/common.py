"""Parts that the commands share: errors for the user, arguments, loading."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from hf_attncal.data.streams import LONGEST_LINE, too_long
from hf_attncal.errors import CommandError
from hf_attncal.inference.running import Running

# Options of `add_text_options`, as attributes.
TEXT_OPTIONS = ("source_language", "target_language", "source_prefix", "target_prefix")


def running_of(options: argparse.Namespace) -> Running:
    """Return the options of `add_model_options` as one object."""
    names = (field.name for field in fields(Running))
    return Running(**{name: getattr(options, name) for name in names if getattr(options, name, None) is not None})


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


def add_folder_beside(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --output of a command that writes the file `name` beside MODEL."""
    parser.add_argument("--output", metavar="FOLDER", help=f"where {name} goes; without it, MODEL if that is a folder")
