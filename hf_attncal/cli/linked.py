"""What the commands share that read sentence pairs with their links: from a file, or by an aligner."""

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
    """A line of every file, and the links.

    Args:
        number: of the line, from 1.
        source, target: the lines.
        others: those of the other files.
        links, scores: sorted; no scores where a file has none.
    """

    number: int
    source: str
    target: str
    others: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    scores: tuple[float, ...] | None


def add_linked_options(parser: argparse.ArgumentParser, files: argparse._ArgumentGroup, source: str) -> None:
    """Add --source, --target, --links, --aligner, --output and how an aligner runs.

    Args:
        parser: of the command.
        files: the group of files.
        source: what the source file holds.
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
    """Refuse files and options that do not go together, before anything is loaded.

    Args:
        options: of the command.
        others: more files that it reads; None is none.
    """
    if (options.links is None) == (options.aligner is None):
        raise CommandError(
            "Give the links of the pairs (--links FILE), or what makes them (--aligner NAME): one of both."
        )
    inputs = [options.source, options.target, options.links, *others]
    check_files([path for path in inputs if path is not None], {"--output": options.output})


def linked_windows(
    options: argparse.Namespace,
    stack: ExitStack,
    others: Sequence[str] = (),
    plain: Callable[[str], str] | None = None,
) -> Iterator[tuple[list[LinkedPair], CommandError | None]]:
    """Sentence pairs with their links, in groups; with the last comes what is wrong with the line after it, or None.

    Args:
        options: those of `add_linked_options`.
        stack: closes the files.
        others: more files with a line for each pair.
        plain: the words of a source line, parted by spaces, where it has more than these; raises ValueError.
    """
    from hf_attncal.data.pharaoh import parse_scored

    aligner = None if options.aligner is None else open_aligner(options.aligner, options)
    names = [options.source, options.target, *others, *([] if options.links is None else [options.links])]
    files = [stack.enter_context(open_file(name, "rb")) for name in names]
    read = plain or str
    first = 1
    for rows, error in parallel_lines(files, _WINDOW, names, options.longest_line):
        texts, failure = until_failure(lambda some: [(read(row[0]), row[1]) for row in some], rows)
        if failure is not None:
            error = line_error(first + len(texts), f"of {options.source}", failure)
        if aligner is None:
            lines = [(row[-1], number) for number, (row, _) in enumerate(zip(rows, texts, strict=False), start=first)]
            found, failure = until_failure(lambda some: [parse_scored(*line) for line in some], lines)
            if failure is not None:
                error = CommandError(f"{options.links}: {failure}")
        else:
            aligned, failure = until_failure(aligner.align, texts)
            found = [(one.links, one.scores) for one in aligned]
            if failure is not None:
                error = line_error(first + len(found), "cannot be aligned", failure)
        yield (
            [
                LinkedPair(number, row[0], row[1], row[2 : 2 + len(others)], *links)
                for number, (row, links) in enumerate(zip(rows, found, strict=False), start=first)
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
    """Do something with each pair, a window at a time; what is done is written before an error is raised.

    Args:
        windows: of `linked_windows`.
        answer: raises CommandError for a pair that it refuses.
        write: gets the answers of a window.
        options: of the command.
        label: of the bar.

    Raises:
        CommandError: the first that there is.
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
    """A ValueError becomes an error for the user that names the file and the line."""
    try:
        yield
    except ValueError as error:
        raise line_error(number, f"of {name}", error) from error
