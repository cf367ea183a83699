"""Parts of commands that read sentence pairs with links, from a file or from an aligner."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeVar

from .align_run import open_aligner
from .common import CommandError, add_output_option, add_pair_files, add_running_options
from .streams import check_files, line_error, open_file, parallel_lines, progress_bar, until_failure

Answer = TypeVar("Answer")
_WINDOW = 1024  # lines


class LinkedPair(NamedTuple):
    """A line of every file, and its links.

    Args:
        number: number of the line, from 1.
        source, target: lines of the two sides.
        others: lines of the other files.
        links, scores: sorted links and their scores; None for scores if a file has none.
    """

    number: int
    source: str
    target: str
    others: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    scores: tuple[float, ...] | None


def add_linked_options(parser: argparse.ArgumentParser, files: argparse._ArgumentGroup, source: str) -> None:
    """Add --source, --target, --links, --aligner, --output and the options for running an aligner.

    Args:
        parser: parser of the command.
        files: group for the options of files.
        source: description of the source file.
    """
    add_pair_files(files, source)
    files.add_argument(
        "--links",
        metavar="FILE",
        help="links of each pair, `i-j` or `i-j:score`, counted from 0, as many lines; without it, those of --aligner",
    )
    files.add_argument(
        "--aligner", metavar="NAME", help="folder or Hub name of what makes the links; without it, those of --links"
    )
    add_output_option(files)
    add_running_options(parser, lines=True)


def check_linked(options: argparse.Namespace, *others: str | None) -> None:
    """Raise CommandError for files and options that do not go together, before anything is loaded.

    Args:
        options: options of the command.
        others: further files that it reads; None for a file that is not given.
    """
    if (options.links is None) == (options.aligner is None):
        raise CommandError("Give either the links of the pairs (--links FILE) or an aligner (--aligner NAME).")
    inputs = [options.source, options.target, options.links, *others]
    check_files([path for path in inputs if path is not None], {"--output": options.output})


def linked_windows(
    options: argparse.Namespace,
    stack: ExitStack,
    others: Sequence[str] = (),
    plain: Callable[[str], str] | None = None,
) -> Iterator[tuple[list[LinkedPair], CommandError | None]]:
    """Yield sentence pairs with their links, in groups, each with the error of the line after it, or None.

    Args:
        options: options of `add_linked_options`.
        stack: stack that closes the files.
        others: further files with a line for each pair.
        plain: function that returns the words of a source line with markup, separated by spaces, or raises ValueError.
    """
    from hf_attncal.data.pharaoh import parse_scored

    aligner = None if options.aligner is None else open_aligner(options.aligner, options)
    names = [options.source, options.target, *others, *([] if options.links is None else [options.links])]
    files = [stack.enter_context(open_file(name, "rb")) for name in names]
    read = plain or str
    first = 1
    for rows, error in parallel_lines(files, _WINDOW, names, options.longest_line):
        texts, failure = until_failure(lambda group: [(read(row[0]), row[1]) for row in group], rows)
        if failure is not None:
            error = line_error(first + len(texts), f"of {options.source}", failure)
        if aligner is None:
            lines = [(row[-1], number) for number, (row, _) in enumerate(zip(rows, texts, strict=False), start=first)]
            linked, failure = until_failure(lambda group: [parse_scored(*line) for line in group], lines)
            if failure is not None:
                error = CommandError(f"{options.links}: {failure}")
        else:
            aligned, failure = until_failure(aligner.align, texts)
            linked = [(alignment.links, alignment.scores) for alignment in aligned]
            if failure is not None:
                error = line_error(first + len(linked), "cannot be aligned", failure)
        yield (
            [
                LinkedPair(number, row[0], row[1], row[2 : 2 + len(others)], *links)
                for number, (row, links) in enumerate(zip(rows, linked, strict=False), start=first)
            ],
            error,
        )
        if error is not None:
            return
        first += len(rows)


def answer_windows(
    windows: Iterator[tuple[list[LinkedPair], CommandError | None]],
    answer: Callable[[LinkedPair], Answer],
    write: Callable[[list[Answer]], None],
    options: argparse.Namespace,
    label: str,
) -> None:
    """Answer each pair, a window at a time; answers are written before an error is raised.

    Args:
        windows: windows of `linked_windows`.
        answer: function of a pair; it raises CommandError for a pair that it refuses.
        write: function that writes the answers of a window.
        options: options of the command.
        label: label of the progress bar.

    Raises:
        CommandError: the first error.
    """
    with progress_bar(label, options.progress) as bar:
        for pairs, error in windows:
            answers = []
            for pair in pairs:
                try:
                    answers.append(answer(pair))
                except CommandError as refused:
                    error = refused
                    break
            write(answers)
            bar.update(len(answers))
            if error is not None:
                raise error


@contextmanager
def in_line(name: str, number: int) -> Iterator[None]:
    """Turn a ValueError into an error for the user that names the file and the line."""
    try:
        yield
    except ValueError as error:
        raise line_error(number, f"of {name}", error) from error
