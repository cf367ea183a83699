"""What the commands share that score files: hypotheses, the bootstrap, reading, tables."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from .common import CommandError, add_longest_line
from .streams import open_file, read_windows, standard_input

STANDARD_INPUT = "-"
_LONGEST_LINE = 1_000_000  # bytes: some 200,000 links, which take about 100 MB
SEED = 0  # of the bootstrap: the same files always give the same intervals


def add_hypotheses(parser: argparse.ArgumentParser, what: str, besides: str = "") -> None:
    """Add HYP, one or more.

    Args:
        parser: of the command.
        what: a line of a file is.
        besides: said of it, too.
    """
    told = f"{what}: a plain, .gz, .xz or .zst file, or - for standard input{besides}"
    parser.add_argument("hypotheses", metavar="HYP", nargs="+", help=told)


def add_scoring(parser: argparse.ArgumentParser, rounded: str, resampled: str) -> None:
    """Add --format, --bootstrap and --longest-line.

    Args:
        parser: of the command.
        rounded: how the text shows scores.
        resampled: what the bootstrap draws.
    """
    parser.add_argument("--format", choices=("text", "json"), default="text", help=f"{rounded}, or all")
    parser.add_argument(
        "--bootstrap",
        type=not_negative,
        default=1000,
        help=f"resamples of the {resampled} for 95 %% intervals and comparisons; 0 for none",
    )
    add_longest_line(parser, _LONGEST_LINE)


def not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {value}")
    return value


not_negative.metavar = "N"


# ---- reading ----


def check_once(names: Sequence[str]) -> None:
    """Refuse to read standard input twice."""
    if names.count(STANDARD_INPUT) > 1:
        raise CommandError("Standard input (-) can be read only once.")


def read_scored_lines(options: argparse.Namespace, name: str) -> list[str]:
    """The lines of a file or of standard input.

    Raises:
        CommandError: it cannot be read, or is empty.
    """
    lines: list[str] = []
    with nullcontext(standard_input()) if name == STANDARD_INPUT else open_file(name, "rb") as file:
        for window, error in read_windows(file, sys.maxsize, called(name), options.longest_line):
            if error is not None:
                raise error
            lines += window
    if not any(line.strip() for line in lines):
        raise CommandError(f"{called(name)} is empty ({len(lines)} lines without text).")
    return lines


def check_same_length(lines: Sequence, name: str, first: Sequence, first_name: str, belongs: str) -> None:
    """Refuse files with different numbers of lines.

    Args:
        lines, first: of each file.
        name, first_name: what the files are called.
        belongs: what line n of every file belongs to.

    Raises:
        CommandError: with both names and numbers.
    """
    if len(lines) != len(first):
        raise CommandError(
            f"{called(first_name)} has {len(first)} lines and {called(name)} has {len(lines)}. Line n of every file "
            f"must belong to the same {belongs}."
        )


def called(name: str) -> str:
    """A file as messages call it."""
    return "standard input" if name == STANDARD_INPUT else name


# ---- writing ----


def as_json(options: argparse.Namespace, rows: list[dict[str, Any]], **files: Any) -> str:
    """Everything, not rounded, in ASCII, which is JSON in every encoding.

    Args:
        options: of the command.
        rows: of each hypothesis.
        files: that they were scored against.
    """
    bootstrap = {"resamples": options.bootstrap, "seed": SEED, "confidence": 0.95} if options.bootstrap else None
    return json.dumps({**files, "bootstrap": bootstrap, "scores": rows}, indent=2)


def too_few(count: int, what: str) -> str:
    """Why there is no interval, for the reader of a table.

    Args:
        count: how many there are.
        what: the bootstrap draws.
    """
    from hf_attncal.metrics.base import FEWEST_SENTENCES

    return f"No interval and no comparison: {count} {what} are too few to tell, it takes {FEWEST_SENTENCES} or more."


def column(rows: list[dict[str, Any]], field: str) -> list:
    """A field of every row."""
    return [row[field] for row in rows]


def table(columns: dict[str, list[str]]) -> Iterator[str]:
    """Lines of a table: the first column to the left, numbers to the right."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()


def signatures(rows: list[dict[str, Any]]) -> list[str]:
    """The signature of all rows, or that of each where they differ."""
    if len(set(column(rows, "signature"))) == 1:
        return [rows[0]["signature"]]
    return [f"{row['hypothesis']}: {row['signature']}" for row in rows]
