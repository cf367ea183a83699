"""`attncal align project`: tags, spans or inline markup of source sentences, carried over word links to the target."""

import argparse
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping

from hf_attncal.data.streams import counted, json_line, output_lines, write_lines
from hf_attncal.errors import CommandError

from .linked import add_linked_options, check_linked, name_files, read_linked

_MOST_NAMED = 10  # lines in a warning


def add_project(actions: argparse._SubParsersAction) -> None:
    """Add the action `project`."""
    parser = actions.add_parser(
        "project",
        help="carry tags, named entities or markup of the source over to the target",
        description="Carry labels of source words over word links to the words of the target: a tag for each word, "
        "spans such as named entities, or inline markup. One line out for each line in. A target word belongs to the "
        "label that has most of its links, or of their scores where links have them; of equals to that of the first "
        "source word. A span or an element stays one piece, where most of its links are. Words are what white space "
        "parts.",
        epilog="examples:\n"
        "  attncal align project --source text.en --target text.fr --links links.txt --spans entities.en\n"
        "  attncal align project --source marked.en --target text.fr --aligner MODEL --markup --output marked.fr",
    )
    what = parser.add_argument_group("what to carry").add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--tags",
        metavar="FILE",
        help="tags of the source words, a sentence a line, parted by white space; written are those of the target "
        "words; without it, one of the others",
    )
    what.add_argument(
        "--spans",
        metavar="FILE",
        help="the same in BIO: B-TYPE begins a span, I-TYPE goes on, O is outside; without it, one of the others",
    )
    what.add_argument(
        "--markup",
        action="store_true",
        help="the source has tags (`<b>the old</b> house<br/>`), and the target is plain text; written is the target, "
        "escaped, with each of these tags",
    )
    files = parser.add_argument_group("input and output")
    add_linked_options(parser, files, "source sentences, one a line; with --markup, with markup")
    files.add_argument("--untagged", metavar="TEXT", help="--tags: the tag of a word without links; without it, `_`")
    files.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one object a line, which also says what had no place and what was left out of a span",
    )
    parser.set_defaults(run=_run_project)


def _run_project(options: argparse.Namespace) -> None:
    labels = options.spans if options.tags is None else options.tags
    if options.untagged is not None and options.tags is None:
        raise CommandError("--untagged is the tag of a word without links: give --tags, or leave it out.")
    check_linked(options, labels)

    from hf_attncal.alignment import project_labels

    pairs, tags, links = read_linked(options, labels)
    carried = {"markup": True} if options.markup else {"tags" if options.spans is None else "spans": tags}
    try:
        untagged = "_" if options.untagged is None else options.untagged
        lines = project_labels(pairs, links, untagged=untagged, **carried)
    except ValueError as error:
        raise CommandError(f"--{str(error).replace('`', '')}") from error
    lost = (
        _Lost("element", "are empty where their words would be")
        if options.markup
        else _Lost("span", "are not in the output")
    )

    def text(number: int, line) -> str:
        lost.add(number, line.lost)
        return line.text if options.format == "text" else json_line(line.details)

    with output_lines(options.output) as target, name_files(options, tags=options.tags, spans=options.spans):
        write_lines(
            target, (text(*line) for line in enumerate(counted(lines, "projected", options.progress), start=1))
        )
    lost.warn()


class _Lost:
    """Counts what has no place in the target, or not all of it, and names the first such lines in a warning."""

    def __init__(self, what: str, instead: str) -> None:
        self.kinds = {
            "unlinked": f"{what}s without a linked word, which {instead}",
            "split": f"{what}s with words in several places, which are where most of their links are",
            "inside_words": "tags inside a word (of text that is not tokenised), which are beside a word now",
        }
        self.count: Counter[str] = Counter()
        self.lines: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, number: int, lost: Mapping[str, int]) -> None:
        for kind, count in lost.items():
            self.count[kind] += count
            if count and len(self.lines[kind]) <= _MOST_NAMED:
                self.lines[kind].append(number)

    def warn(self) -> None:
        for kind, what in self.kinds.items():
            if self.count[kind]:
                lines = [*map(str, self.lines[kind][:_MOST_NAMED]), *["..."] * (len(self.lines[kind]) > _MOST_NAMED)]
                message = f"{what}: {self.count[kind]} (line {', '.join(lines)}; --format json says which)."
                warnings.warn(message, stacklevel=2)
