"""`attncal align lexicon`: which words are linked, how often, and with what probability."""

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hf_attncal.data.streams import counted, json_line, output_lines, write_lines
from hf_attncal.messages import LOG

from .common import between, positive
from .linked import add_linked_options, check_linked, name_files, read_linked

if TYPE_CHECKING:
    from hf_attncal.alignment.link_counts import Entry

# What a spreadsheet computes, or runs, where a cell begins with it. No signs alone, and no number.
_FORMULA = re.compile(r"[=+\-@](?=.*\w)(?![\d.,]*$)")
# Of a table.
_HEADING = ("source", "target", "count", "p(target|source)", "p(source|target)")


def add_lexicon(actions: argparse._SubParsersAction) -> None:
    """Add the action `lexicon`."""
    parser = actions.add_parser(
        "lexicon",
        help="write which words are linked, how often, with what probability",
        description="Count the linked words of sentence pairs: a line for each two words, with the number of their "
        "links, p(target|source), the share of the links of the source word that lead to the target word, and "
        "p(source|target). Sorted by source word, the most frequent first. Memory grows with the number of different "
        "pairs of words, not with the text.",
        epilog="examples:\n"
        "  attncal align lexicon --source text.en --target text.fr --links links.txt --output lexicon.tsv\n"
        "  attncal align lexicon --source text.en --target text.fr --aligner MODEL --least-count 5 --top 3",
    )
    files = parser.add_argument_group("input and output")
    add_linked_options(parser, files, "source sentences, one a line")
    files.add_argument(
        "--format",
        choices=("tsv", "json"),
        default="tsv",
        help="tsv: columns parted by tabs, below a line with their names, words as they are (a spreadsheet takes one "
        "such as `=1+1` for a formula: import columns as text); json: one object a line",
    )
    entries = parser.add_argument_group("what is written")
    entries.add_argument("--lowercase", action="store_true", help="lower-case the words, and count them together")
    entries.add_argument("--least-count", type=positive, default=1, help="leave out words that have fewer links")
    entries.add_argument(
        "--least-probability",
        type=between(0, 1),
        default=0.0,
        help="leave out words of which either probability is lower",
    )
    entries.add_argument("--top", type=positive, help="most lines of a source word; without it, all")
    parser.set_defaults(run=_run_lexicon)


def _run_lexicon(options: argparse.Namespace) -> None:
    check_linked(options)

    from hf_attncal.alignment import lexicon

    pairs, _, links = read_linked(options)
    with name_files(options):
        entries = lexicon(
            counted(pairs, "counted", options.progress),
            links,
            lowercase=options.lowercase,
            least_count=options.least_count,
            least_probability=options.least_probability,
            top=options.top,
        )
    formulas = 0

    def lines() -> Iterator[str]:
        nonlocal formulas
        if options.format == "tsv":
            yield "\t".join(_HEADING)
        for entry in entries:
            formulas += any(map(_FORMULA.match, entry[:2]))
            yield _line(entry, options.format)

    with output_lines(options.output) as target:
        write_lines(target, lines())
    if formulas and options.format == "tsv":
        LOG.warning(
            "%d lines have a word that a spreadsheet may take for a formula (it begins with =, +, - or @). Words stay "
            "as they are: import the columns as text, or write --format json.",
            formulas,
        )


def _line(entry: "Entry", form: str) -> str:
    if form == "json":
        return json_line(entry._asdict())
    return "\t".join([*entry[:2], str(entry.count), *(f"{probability:.6f}" for probability in entry[3:])])
