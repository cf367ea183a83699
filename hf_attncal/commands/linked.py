"""Options and streams of the commands that read sentence pairs with their links: from a file, or by an aligner."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import tee
from operator import itemgetter
from typing import Any

from hf_attncal.alignment.opening import open_aligner
from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import check_files, line_error, rows_of_files

from .common import add_model_options, add_output_option, add_pair_files


def add_linked_options(parser: argparse.ArgumentParser, files: argparse._ArgumentGroup, source: str) -> None:
    """Add --source, --target, --links or --aligner, --output, and how an aligner runs.

    Args:
        parser: parser of the command.
        files: group for the options of files.
        source: description of the source file.
    """
    add_pair_files(files, source)
    links = files.add_mutually_exclusive_group(required=True)
    links.add_argument(
        "--links",
        metavar="FILE",
        help="links of each pair, `i-j` or `i-j:score`, counted from 0, as many lines; without it, those of --aligner",
    )
    links.add_argument(
        "--aligner", metavar="NAME", help="folder or Hub name of what makes the links; without it, those of --links"
    )
    add_output_option(files)
    add_model_options(parser, None, lines=True)


def check_linked(options: argparse.Namespace, labels: str | None = None) -> None:
    """Refuse files that cannot be read or written, before anything is loaded; `labels` is one more that is read."""
    inputs = [options.source, options.target, options.links, labels]
    check_files([path for path in inputs if path is not None], {"--output": options.output})


def read_linked(options: argparse.Namespace, labels: str | None = None) -> tuple[Iterator, Iterator, Any]:
    """Return streams of (source, target), of the lines of `labels`, and of links; or the aligner in place of these."""
    aligner = None if options.aligner is None else open_aligner(options.aligner, running_of(options), plain=True)
    names = [name for name in (options.source, options.target, labels, options.links) if name is not None]
    rows = tee(rows_of_files(names, options.longest_line), 3)
    links = map(itemgetter(-1), rows[2]) if aligner is None else aligner
    return map(itemgetter(0, 1), rows[0]), map(itemgetter(2), rows[1]), links


@contextmanager
def name_files(options: argparse.Namespace, **names: str | None) -> Iterator[None]:
    """Turn a LineError of the block into an error for the user that names the file.

    Raises:
        CommandError: in its place.
    """
    from hf_attncal.data.piecewise import LineError

    names |= {"source": options.source, "links": options.links or options.aligner}
    try:
        yield
    except LineError as error:
        problem = "cannot be aligned" if error.where is None else f"of {names[error.where]}"
        raise line_error(error.number, problem, error.error) from error
