"""Parts of commands that score files: hypotheses, the bootstrap, reading, tables."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from hf_attncal.data.streams import open_file, read_windows, standard_input
from hf_attncal.drawing.table import text_table as table  # noqa: F401 - of commands that score
from hf_attncal.errors import CommandError

from .common import add_longest_line, not_negative

STANDARD_INPUT = "-"
LONGEST_LINE = 1_000_000  # bytes: some 200,000 links, which take about 100 MB
SEED = 0  # of the bootstrap: the same files always give the same intervals


def add_hypotheses(parser: argparse.ArgumentParser, what: str, besides: str = "") -> None:
    """Add HYP, one or more.

    Args:
        parser: parser of the command.
        what: description of a line of such a file.
        besides: further words of the help text.
    """
    text = f"{what}: a plain, .gz, .xz or .zst file, or - for standard input{besides}"
    parser.add_argument("hypotheses", metavar="HYP", nargs="+", help=text)


def add_scoring(parser: argparse.ArgumentParser, rounded: str, resampled: str) -> None:
    """Add --format, --bootstrap and --longest-line.

    Args:
        parser: parser of the command.
        rounded: how text output rounds scores.
        resampled: name of the units that the bootstrap resamples.
    """
    parser.add_argument("--format", choices=("text", "json"), default="text", help=f"{rounded}, or all")
    parser.add_argument(
        "--bootstrap",
        type=not_negative,
        default=1000,
        help=f"resamples of the {resampled} for 95 %% intervals and comparisons; 0 for none",
    )
    add_longest_line(parser, LONGEST_LINE)


# ---- reading ----


def check_once(names: Sequence[str]) -> None:
    """Raise CommandError if standard input is named twice."""
    if names.count(STANDARD_INPUT) > 1:
        raise CommandError("Standard input (-) can be read only once.")


def read_scored_lines(options: argparse.Namespace, name: str) -> list[str]:
    """Read the lines of a file or of standard input.

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
    """Raise CommandError, with both names and numbers, for files with different numbers of lines.

    Args:
        lines, first: lines of the two files.
        name, first_name: names of the two files.
        belongs: name of the unit, such as "sentence pair", that line n of every file belongs to.
    """
    if len(lines) != len(first):
        raise CommandError(
            f"{called(first_name)} has {len(first)} lines and {called(name)} has {len(lines)}. Line n of every file "
            f"must belong to the same {belongs}."
        )


def called(name: str) -> str:
    """Return the name of a file in messages."""
    return "standard input" if name == STANDARD_INPUT else name


# ---- writing ----


def as_json(options: argparse.Namespace, rows: list[dict[str, Any]], **files: Any) -> str:
    """Format all scores as JSON, not rounded, in ASCII, which every encoding can hold.

    Args:
        options: options of the command.
        rows: scores of each hypothesis.
        files: names of the files that they were scored against.
    """
    bootstrap = {"resamples": options.bootstrap, "seed": SEED, "confidence": 0.95} if options.bootstrap else None
    return json.dumps({**files, "bootstrap": bootstrap, "scores": rows}, indent=2)


def too_few(count: int, what: str) -> str:
    """Explain to the reader of a table why there is no interval.

    Args:
        count: number of units.
        what: name of the units that the bootstrap resamples.
    """
    from hf_attncal.metrics.base import FEWEST_SENTENCES

    return f"No interval and no comparison: {count} {what} are too few, {FEWEST_SENTENCES} or more are needed."


def signatures(rows: list[dict[str, Any]]) -> list[str]:
    """Return the common signature of all rows, or that of each row if they differ."""
    if len({row["signature"] for row in rows}) == 1:
        return [rows[0]["signature"]]
    return [f"{row['hypothesis']}: {row['signature']}" for row in rows]
