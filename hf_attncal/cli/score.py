"""`attncal score`: alignment error rate of files with word links against a gold alignment."""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from .common import CommandError, add_longest_line
from .streams import open_file, read_windows, standard_input

STANDARD_INPUT = "-"
_LONGEST_LINE = 1_000_000  # bytes: some 200,000 links, which take about 100 MB
SEED = 0  # of the bootstrap: the same files always give the same intervals


def add_score(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `score`."""
    parser = commands.add_parser(
        "score",
        help="score word alignments against a gold alignment: AER, precision, recall, F1",
        description="Score word alignments against a gold alignment: alignment error rate (lower is better), "
        "precision against possible links, recall against sure links, their F1, and a signature that says how they "
        "were computed. Files hold one sentence pair a line; i-j is a link of source word i to target word j, in GOLD "
        "a sure one, ipj or i?j a possible one. With several hypotheses each is compared with the first by a paired "
        "bootstrap.",
        epilog="examples:\n"
        "  attncal score gold.align links.align\n"
        "  attncal align run MODEL < pairs.txt | attncal score gold.align -",
    )
    parser.add_argument("gold", metavar="GOLD", help="gold alignment: a plain, .gz or .xz file")
    parser.add_argument(
        "hypotheses",
        metavar="HYP",
        nargs="+",
        help="proposed alignment: a plain, .gz or .xz file, or - for standard input; scores (i-j:0.93) are ignored",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="per cent and one decimal, or all")
    bases = {"choices": ("0", "1", "auto"), "default": "0"}
    parser.add_argument("--gold-base", **bases, help="index of the first word in GOLD")
    parser.add_argument("--base", **bases, help="index of the first word in every HYP")
    parser.add_argument("--reverse-gold", action="store_true", help="GOLD has the target index first")
    parser.add_argument("--reverse", action="store_true", help="every HYP has the target index first")
    parser.add_argument(
        "--index-check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="refuse files that look as if they count from 1 or have source and target exchanged",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="tokenised source text, to refuse links outside of its sentences; without it, not checked",
    )
    parser.add_argument("--target", metavar="FILE", help="tokenised target text; without it, not checked")
    parser.add_argument("--ignore-possible", action="store_true", help="count only the sure links of GOLD")
    parser.add_argument(
        "--without-punctuation",
        action="store_true",
        help="leave out links of which either word is only punctuation; needs --source and --target",
    )
    parser.add_argument(
        "--bootstrap",
        type=_not_negative,
        default=1000,
        help="resamples of the sentence pairs for 95 %% intervals and comparisons; 0 for none",
    )
    add_longest_line(parser, _LONGEST_LINE)
    parser.add_argument(
        "--unit", metavar="NAME", default="word", help="what indices count; only written in the signature"
    )
    parser.add_argument(
        "--symmetrization",
        default="unstated",
        metavar="NAME",
        help="how two directions were merged; only written in the signature",
    )
    parser.set_defaults(run=_run_score)


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {value}")
    return value


_not_negative.metavar = "N"


def _run_score(options: argparse.Namespace) -> None:
    from hf_attncal.data.pharaoh import displacement_warning, parse_alignments, parse_hypotheses

    if bool(options.source) != bool(options.target):
        raise CommandError("--source and --target belong together: pass both or neither.")
    if options.without_punctuation and not options.source:
        raise CommandError("--without-punctuation needs the words: pass --source and --target.")
    if options.hypotheses.count(STANDARD_INPUT) > 1:
        raise CommandError("Standard input (-) can be read only once.")

    gold, gold_base = _read_links(
        options, options.gold, parse_alignments, options.gold_base, options.reverse_gold, "--gold-base"
    )
    sentences = _read_sentences(options, len(gold))
    _check_inside(options.gold, gold, sentences, "--gold-base")
    if sentences and (problem := displacement_warning(gold, sentences)):
        warnings.warn(f"{options.gold}: {problem}", stacklevel=2)
    systems, bases = [], []
    for name in options.hypotheses:
        links, base = _read_links(options, name, parse_hypotheses, options.base, options.reverse, "--base")
        if len(links) != len(gold):
            raise _unequal(options.gold, len(gold), name, len(links))
        _check_inside(name, links, sentences, "--base")
        systems.append(links)
        bases.append(base if base == gold_base else f"gold={gold_base},hyp={base}")
    rows = score_rows(gold, systems, bases, sentences, options)
    print(_as_json(options, rows) if options.format == "json" else _as_text(options, rows))


def score_rows(
    gold: Sequence, systems: Sequence[Sequence], bases: Sequence[str], sentences: list | None, options
) -> list[dict[str, Any]]:
    """For every hypothesis its name, the fields of its `AlignmentScore`, and `better_than_first`.

    Args:
        gold: annotated links of every sentence pair.
        systems: for every hypothesis the links of every sentence pair.
        bases: what the signature of every hypothesis says about index bases.
        sentences: source and target words of every sentence pair, where known.
        options: the options of `attncal score`.

    Raises:
        CommandError: indices of a hypothesis seem to be shifted or exchanged, or the signature cannot hold an option.
    """
    from dataclasses import asdict

    from hf_attncal.metrics.aer import alignment_error_rate, find_index_mismatch, paired_bootstrap

    counted = {
        "ignore_possible": options.ignore_possible,
        "sentences": sentences,
        "punctuation": not options.without_punctuation,
        "bootstrap": options.bootstrap,
        "seed": SEED,
    }
    stated = {"unit": options.unit, "symmetrization": options.symmetrization}
    rows = []
    for name, links, base in zip(options.hypotheses, systems, bases, strict=True):
        if options.index_check and (problem := find_index_mismatch(gold, links)):
            raise CommandError(
                f"{_called(name)} and {options.gold}: {problem} See --base, --gold-base, --reverse and "
                "--reverse-gold, or pass --no-index-check to score the files as they are."
            )
        try:
            score = alignment_error_rate(gold, links, base=base, check_indices=False, **stated, **counted)
        except ValueError as error:
            raise CommandError(str(error)) from error
        better = paired_bootstrap(gold, systems[0], links, **counted) if rows and options.bootstrap else None
        rows.append({"hypothesis": name, **asdict(score), "better_than_first": better})
    return rows


# ---- reading ----


def _read_links(
    options: argparse.Namespace, name: str, parse: Callable[..., list], base: str, reverse: bool, option: str
) -> tuple[list, str]:
    """Links of a file, counted from 0, and the index base that the signature states."""
    from hf_attncal.data.pharaoh import detect_index_base

    lines = _read_lines(options, name)
    try:
        links = parse(lines, base=int(base == "1"), reverse=reverse)
        if base == "1":
            return links, base
        detected = detect_index_base(links)
        if base == "0":
            if detected == 1 and options.index_check:
                raise CommandError(
                    f"{_called(name)} looks 1-based: none of its links has an index 0. Pass {option} 1, or "
                    "--no-index-check if it counts from 0 all the same."
                )
            return links, base
        if detected is None:
            raise CommandError(
                f"{_called(name)}: {option} auto cannot tell from what number its words are counted: no index is 0, "
                f"and few lines have links. Pass {option} 0 or {option} 1."
            )
        return parse(lines, base=detected, reverse=reverse), f"{detected}(auto)"
    except ValueError as error:
        raise CommandError(f"{_called(name)}: {error}") from error


def _read_lines(options: argparse.Namespace, name: str) -> list[str]:
    """The lines of a file or of standard input.

    Raises:
        CommandError: it cannot be read, or is empty.
    """
    lines: list[str] = []
    with nullcontext(standard_input()) if name == STANDARD_INPUT else open_file(name, "rb") as file:
        for window, error in read_windows(file, sys.maxsize, _called(name), options.longest_line):
            if error is not None:
                raise error
            lines += window
    if not any(line.strip() for line in lines):
        raise CommandError(f"{_called(name)} is empty ({len(lines)} lines without text).")
    return lines


def _read_sentences(options: argparse.Namespace, pairs: int) -> list[tuple[list[str], list[str]]] | None:
    """Source and target words of every pair, or `None` without --source and --target."""
    if not options.source:
        return None
    sides = []
    for name in (options.source, options.target):
        lines = _read_lines(options, name)
        if len(lines) != pairs:
            raise _unequal(options.gold, pairs, name, len(lines))
        sides.append([line.split() for line in lines])
    return list(zip(*sides, strict=True))


def _check_inside(name: str, links: list, sentences: list | None, option: str) -> None:
    from hf_attncal.data.pharaoh import check_inside_sentences

    if sentences is None:
        return
    try:
        check_inside_sentences(links, [(len(a), len(b)) for a, b in sentences], remedy=f"pass {option} 1")
    except ValueError as error:
        raise CommandError(f"{_called(name)}: {error}") from error


def _unequal(gold: str, pairs: int, name: str, lines: int) -> CommandError:
    return CommandError(
        f"{gold} has {pairs} lines and {_called(name)} has {lines}. Line n of every file must belong to the same "
        "sentence pair."
    )


def _called(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


# ---- writing ----


def _as_json(options: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """Everything, not rounded, in ASCII, which is JSON in every encoding; rates are fractions between 0 and 1."""
    bootstrap = {"resamples": options.bootstrap, "seed": SEED, "confidence": 0.95} if options.bootstrap else None
    return json.dumps({"gold": options.gold, "bootstrap": bootstrap, "scores": rows}, indent=2)


def _as_text(options: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """A table with one row for each hypothesis, in per cent, and what is needed to read it."""

    def rates(field: str) -> list[str]:
        return ["" if row[field] is None else f"{100 * row[field]:.1f}" for row in rows]

    columns = {"hypothesis": [row["hypothesis"] for row in rows], "AER": rates("aer")}
    notes = [
        f"{rows[0]['sentences']} sentence pairs, {rows[0]['sure']} sure links, {rows[0]['possible']} possible links "
        "(sure ones included). Rates in per cent."
    ]
    if options.bootstrap:
        columns["95 % interval"] = [f"{100 * low:.1f} to {100 * high:.1f}" for low, high in _column(rows, "interval")]
        notes.append(f"95 % interval: percentiles of AER over {options.bootstrap} resamples of the sentence pairs.")
    columns |= {"precision": rates("precision"), "recall": rates("recall"), "F1": rates("f1")}
    columns["links"] = [str(links) for links in _column(rows, "proposed")]
    if options.bootstrap and len(rows) > 1:
        columns["better than first"] = rates("better_than_first")
        notes += [
            "better than first: share of the same resamples in which AER is lower than that of the first hypothesis;",
            "1 minus it is the p-value of a one-sided paired bootstrap test.",
        ]
    if len(set(_column(rows, "signature"))) == 1:
        notes.append(rows[0]["signature"])
    else:
        notes += [f"{row['hypothesis']}: {row['signature']}" for row in rows]
    return "\n".join([*_table(columns), "", *notes])


def _column(rows: list[dict[str, Any]], field: str) -> list:
    return [row[field] for row in rows]


def _table(columns: dict[str, list[str]]) -> Iterator[str]:
    """Lines of a table: the first column to the left, numbers to the right."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()
