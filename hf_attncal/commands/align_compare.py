"""`attncal align compare`: which of several word alignments of a text is better, where nobody annotated it."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from hf_attncal.data.streams import check_files
from hf_attncal.errors import CommandError, user_errors

from .common import add_longest_line, add_pair_files, positive
from .scoring import (
    LONGEST_LINE,
    SEED,
    STANDARD_INPUT,
    add_hypotheses,
    called,
    check_once,
    check_same_length,
    read_scored_lines,
    table,
)

if TYPE_CHECKING:
    from hf_attncal.alignment import ComparedLinks


def add_compare(actions: argparse._SubParsersAction) -> None:
    """Add the action `compare`."""
    parser = actions.add_parser(
        "compare",
        help="compare word alignments of a text that nobody annotated",
        description="Compare word alignments of the same text, of any aligners, without a gold alignment: how many "
        "words they link, how far they agree with the first (F1 of the links), and how well their lexicons predict "
        "pairs that were held out, in nats a word. With --page, write the pairs in which the first "
        "two differ most, as a page to look at. Where there are gold links, `attncal score` says more.",
        epilog="examples:\n"
        "  attncal align compare ours.links eflomal.links --source text.en --target text.fr\n"
        "  attncal align compare ours.links eflomal.links --source text.en --target text.fr --page differ.html",
    )
    add_hypotheses(parser, "links of each sentence pair", "; scores (i-j:0.93) are ignored; two or more")
    add_pair_files(parser, "tokenised source text, one sentence a line")
    parser.add_argument("--lowercase", action="store_true", help="words that differ in capitals alone are one")
    parser.add_argument(
        "--held-out", type=positive, default=2000, help="most pairs to predict; never more than a tenth of the text"
    )
    parser.add_argument(
        "--page", metavar="FILE", help="HTML page of the pairs in which the first two differ most; without it, none"
    )
    parser.add_argument("--pairs", type=positive, default=50, help="most pairs on the page")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="rounded, or all")
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, help="resamples of the held-out pairs for 95 %% intervals"
    )
    add_longest_line(parser, LONGEST_LINE)
    parser.set_defaults(run=_run_compare)


def _run_compare(options: argparse.Namespace) -> None:
    names = options.hypotheses
    if len(names) < 2:
        raise CommandError(f"HYP must be two files of links or more, got {names[0]} alone.")
    if len(set(names)) < len(names):
        raise CommandError(f"HYP must be different files, got {' '.join(names)}.")
    check_once(names)
    files = [name for name in (options.source, options.target, *names) if name != STANDARD_INPUT]
    check_files(files, {"--page": options.page})

    from hf_attncal.alignment import compare_links
    from hf_attncal.alignment.comparison import differing_lines
    from hf_attncal.data.pharaoh import parse_hypotheses

    sides = [[line.split() for line in read_scored_lines(options, name)] for name in (options.source, options.target)]
    check_same_length(sides[1], options.target, sides[0], options.source, "sentence pair")
    pairs = list(zip(*sides, strict=True))
    systems = {}
    for name in names:
        lines = read_scored_lines(options, name)
        check_same_length(lines, name, pairs, options.source, "sentence pair")
        try:
            systems[called(name)] = parse_hypotheses(lines)
        except ValueError as error:
            raise CommandError(f"{called(name)}: {error}") from error
    with user_errors():
        compared = compare_links(
            pairs,
            systems,
            held_out=options.held_out,
            lowercase=options.lowercase,
            bootstrap=options.bootstrap,
            seed=SEED,
        )
    if options.page:
        from hf_attncal.report.figures.links_page import write_links_page

        two = list(systems)[:2]
        links = [systems[name] for name in two]
        rows = differing_lines(*links)
        write_links_page(two, pairs, links, rows[: options.pairs], len(rows), options.page)
    print(_as_json(compared) if options.format == "json" else _as_text(compared, len(pairs)))


def _as_json(compared: Mapping[str, "ComparedLinks"]) -> str:
    return json.dumps({"compared": [{"hypothesis": name, **asdict(one)} for name, one in compared.items()]}, indent=2)


def _as_text(compared: Mapping[str, "ComparedLinks"], count: int) -> str:
    """Format a table with one row for each hypothesis, shares in per cent, and notes that explain it."""
    rows = list(compared.values())

    def shares(field: str) -> list[str]:
        values = [getattr(row, field) for row in rows]
        return ["" if value is None else f"{100 * value:.1f}" for value in values]

    def nats(field: str, form: str) -> list[str]:
        values = [getattr(row, field) for row in rows]
        intervals = [
            "" if not v or not v.interval else " ({:{f}} to {:{f}})".format(*v.interval, f=form) for v in values
        ]
        return [f"{v.value:{form}}{end}" if v else "" for v, end in zip(values, intervals, strict=True)]

    columns = {
        "hypothesis": list(compared),
        "links": [str(row.links) for row in rows],
        "source linked": shares("source_linked"),
        "target linked": shares("target_linked"),
        "agreement": shares("agreement"),
        "same lines": shares("same_lines"),
    }
    notes = [f"{count} sentence pairs. Shares in per cent; agreement and same lines: with the first hypothesis."]
    if rows[0].nats:
        columns |= {"nats": nats("nats", ".3f"), "to the first": nats("nats_to_first", "+.3f")}
        notes += [
            "nats: of a word of held-out pairs, under the lexicon of the links of all others, with the 95 % interval.",
            "Of aligners with about as many links, the one with fewer nats is better; more links alone have fewer,",
            "too. With gold links, `attncal score` tells the error rate.",
        ]
    else:
        notes.append("No nats: a tenth of the text is too little to be predicted, 100 pairs or more are needed.")
    return "\n".join([*table(columns), "", *notes])
