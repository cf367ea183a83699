"""`attncal align project`: tags, spans or inline markup of source sentences, carried over word links to the target."""

import argparse
import warnings
from collections import Counter, defaultdict
from contextlib import ExitStack

from .common import CommandError
from .linked import LinkedPair, add_linked_options, answer_windows, check_linked, in_line, linked_windows
from .streams import json_line, output_lines, write_lines

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
    what = parser.add_argument_group("what to carry, one of these")
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
    files.add_argument("--untagged", metavar="TEXT", default="_", help="--tags: of a word without links")
    files.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one object a line, which also says what had no place and what was left out of a span",
    )
    parser.set_defaults(run=_run_project)


def _run_project(options: argparse.Namespace) -> None:
    named = [options.tags, options.spans, options.markup or None]
    if sum(value is not None for value in named) != 1:
        raise CommandError("Say what to carry: --tags FILE, --spans FILE or --markup, one of them.")
    if options.untagged.split() != [options.untagged]:
        raise CommandError(f"--untagged must be a tag: one word without white space, got {options.untagged!r}.")
    labels = options.spans if options.tags is None else options.tags
    check_linked(options, labels)
    if options.markup:
        project, lost = _project_markup, _Lost("element", "are empty where their words would be")
    else:
        project = _project_spans if options.tags is None else _project_tags
        lost = _Lost("span", "are not in the output")

    def answer(pair: LinkedPair) -> str:
        text, values, unplaced = project(pair, options)
        lost.add(pair.number, **unplaced)
        return text if options.format == "text" else json_line(values)

    with ExitStack() as stack:
        target = stack.enter_context(output_lines(options.output))
        others, plain = ([], _without_markup) if options.markup else ([labels], None)
        windows = linked_windows(options, stack, others, plain)
        answer_windows(windows, answer, lambda lines: write_lines(target, lines), options, "projected")
    lost.warn()


class _Lost:
    """How much has no place, or not all of it, and the first lines with such."""

    def __init__(self, what: str, instead: str) -> None:
        self.told = {
            "unlinked": f"{what}s without a linked word, which {instead}",
            "split": f"{what}s with words in several places, which are where most of their links are",
            "inside_words": "tags inside a word (of text that is not tokenised), which are beside a word now",
        }
        self.count: Counter[str] = Counter()
        self.lines: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, number: int, **lost: int) -> None:
        for kind, count in lost.items():
            self.count[kind] += count
            if count and len(self.lines[kind]) <= _MOST_NAMED:
                self.lines[kind].append(number)

    def warn(self) -> None:
        for kind, told in self.told.items():
            if self.count[kind]:
                lines = [*map(str, self.lines[kind][:_MOST_NAMED]), *["..."] * (len(self.lines[kind]) > _MOST_NAMED)]
                message = f"{told}: {self.count[kind]} (line {', '.join(lines)}; --format json says which)."
                warnings.warn(message, stacklevel=2)


# The line, the fields of an object, and how much is lost, as of `_Lost.add`.
Projected = tuple[str, dict, dict[str, int]]


def _project_tags(pair: LinkedPair, options: argparse.Namespace) -> Projected:
    from hf_attncal.alignment.projection import project_tags

    tags, target = _labels(pair, options.tags), pair.target.split()
    with _linked(pair, options):
        found = project_tags(tags, pair.links, len(target), pair.scores)
    text = " ".join(options.untagged if tag is None else tag for tag in found)
    return text, {"target": tuple(target), "tags": tuple(found)}, {}


def _project_spans(pair: LinkedPair, options: argparse.Namespace) -> Projected:
    from hf_attncal.alignment.projection import Span, bio_tags, project_spans, spans_of
    from hf_attncal.data.chunk_tags import is_chunk_tag

    tags, target = _labels(pair, options.spans), pair.target.split()
    wrong = next((tag for tag in tags if not is_chunk_tag(tag)), None)
    if wrong is not None:
        raise CommandError(
            f"line {pair.number} of {options.spans}: a tag is `O`, `B-TYPE` or `I-TYPE`, got {wrong!r}. Are these the "
            "tags of words, for --tags?"
        )
    spans = spans_of(tags)
    with _linked(pair, options):
        places = project_spans(spans, pair.links, len(tags), len(target), pair.scores)
    found = [Span(*place[:2], span.label) for span, place in zip(spans, places, strict=True) if place is not None]
    values = {
        "target": tuple(target),
        "spans": tuple(
            {
                "label": span.label,
                "source": span[:2],
                "target": place and place[:2],
                "dropped": place and place.dropped,
            }
            for span, place in zip(spans, places, strict=True)
        ),
    }
    split = sum(place is not None and place.dropped > 0 for place in places)
    return " ".join(bio_tags(found, len(target))), values, {"unlinked": places.count(None), "split": split}


def _without_markup(line: str) -> str:
    from hf_attncal.alignment.markup import parse_markup

    return " ".join(parse_markup(line).words)


def _project_markup(pair: LinkedPair, options: argparse.Namespace) -> Projected:
    from dataclasses import asdict

    from hf_attncal.alignment.markup import project_markup

    with _linked(pair, options):
        found = project_markup(pair.source, pair.target, pair.links, pair.scores)
    lost = {name: len(getattr(found, name)) for name in ("unlinked", "split", "inside_words")}
    return found.text, asdict(found), lost


def _labels(pair: LinkedPair, name: str) -> list[str]:
    """The tags of the source words.

    Raises:
        CommandError: another number of them.
    """
    tags, words = pair.others[0].split(), pair.source.split()
    if len(tags) != len(words):
        raise CommandError(
            f"line {pair.number} of {name} has {len(tags)} tags for {len(words)} source words. Give one a word, as "
            "white space parts them."
        )
    return tags


def _linked(pair: LinkedPair, options: argparse.Namespace):
    return in_line(options.links or options.aligner, pair.number)
