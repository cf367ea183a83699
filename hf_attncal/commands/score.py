"""`attncal score`: alignment error rate of files with word links against a gold alignment."""

import argparse
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hf_attncal.errors import CommandError, user_errors

from .scoring import (
    SEED,
    add_hypotheses,
    add_scoring,
    as_json,
    called,
    check_once,
    check_same_length,
    read_scored_lines,
    signatures,
    table,
    too_few,
)


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
    parser.add_argument("gold", metavar="GOLD", help="gold alignment: a plain, .gz, .xz or .zst file")
    add_hypotheses(parser, "proposed alignment", "; scores (i-j:0.93) are ignored")
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
    add_scoring(parser, "per cent and one decimal", "sentence pairs")
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


def _run_score(options: argparse.Namespace) -> None:
    from hf_attncal.data.pharaoh import displacement_warning, parse_alignments, parse_hypotheses

    if bool(options.source) != bool(options.target):
        raise CommandError("--source and --target belong together: pass both or neither.")
    if options.without_punctuation and not options.source:
        raise CommandError("--without-punctuation needs the words: pass --source and --target.")
    check_once(options.hypotheses)

    gold, gold_base = _read_links(
        options, options.gold, parse_alignments, options.gold_base, options.reverse_gold, "--gold-base"
    )
    sentences = _read_sentences(options, gold)
    _check_inside(options.gold, gold, sentences, "--gold-base", "--reverse-gold")
    if sentences and (problem := displacement_warning(gold, sentences)):
        warnings.warn(f"{options.gold}: {problem}", stacklevel=2)
    systems, bases = [], []
    for name in options.hypotheses:
        links, base = _read_links(options, name, parse_hypotheses, options.base, options.reverse, "--base")
        check_same_length(links, name, gold, options.gold, "sentence pair")
        _check_inside(name, links, sentences, "--base", "--reverse")
        systems.append(links)
        bases.append(base if base == gold_base else f"gold={gold_base},hyp={base}")
    rows = score_rows(gold, systems, bases, sentences, options)
    print(as_json(options, rows, gold=options.gold) if options.format == "json" else _as_text(options, rows))


def score_rows(
    gold: Sequence, systems: Sequence[Sequence], bases: Sequence[str], sentences: list | None, options
) -> list[dict[str, Any]]:
    """Return for every hypothesis its name, the fields of its `AlignmentScore`, `better_than_first` and `p_value`.

    Args:
        gold: annotated links of every sentence pair.
        systems: for every hypothesis the links of every sentence pair.
        bases: index bases that the signature of every hypothesis states.
        sentences: source and target words of every sentence pair, if known.
        options: options of `attncal score`.

    Raises:
        CommandError: indices of a hypothesis seem shifted or exchanged, or the signature cannot hold an option.
    """
    from dataclasses import asdict

    from hf_attncal.metrics.aer import alignment_error_rate, find_index_mismatch, paired_bootstrap, paired_p_value

    selection = {
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
                f"{called(name)} and {options.gold}: {problem} See --base, --gold-base, --reverse and "
                "--reverse-gold, or pass --no-index-check to score the files as they are."
            )
        with user_errors():
            score = alignment_error_rate(gold, links, base=base, check_indices=False, **stated, **selection)
        compared = {"better_than_first": paired_bootstrap, "p_value": paired_p_value}
        against = {
            field: measure(gold, systems[0], links, **selection) if rows and options.bootstrap else None
            for field, measure in compared.items()
        }
        rows.append({"hypothesis": name, **asdict(score), **against})
    return rows


# ---- reading ----


def _read_links(
    options: argparse.Namespace, name: str, parse: Callable[..., list], base: str, reverse: bool, option: str
) -> tuple[list, str]:
    """Read the links of a file, counted from 0, and return them with the index base for the signature."""
    from hf_attncal.data.pharaoh import detect_index_base

    lines = read_scored_lines(options, name)
    try:
        links = parse(lines, base=int(base == "1"), reverse=reverse)
        if base == "1":
            return links, base
        detected = detect_index_base(links)
        if base == "0":
            if detected == 1 and options.index_check:
                raise CommandError(
                    f"{called(name)} looks 1-based: none of its links has an index 0. Pass {option} 1, or "
                    "--no-index-check if it counts from 0 all the same."
                )
            return links, base
        if detected is None:
            raise CommandError(
                f"{called(name)}: {option} auto cannot tell whether its words count from 0 or 1: no index is 0, and "
                f"few lines have links. Pass {option} 0 or {option} 1."
            )
        return parse(lines, base=detected, reverse=reverse), f"{detected}(auto)"
    except CommandError:
        raise
    except ValueError as error:
        raise CommandError(f"{called(name)}: {error}") from error


def _read_sentences(options: argparse.Namespace, gold: list) -> list[tuple[list[str], list[str]]] | None:
    """Read source and target words of every pair; return None without --source and --target."""
    if not options.source:
        return None
    sides = []
    for name in (options.source, options.target):
        lines = read_scored_lines(options, name)
        check_same_length(lines, name, gold, options.gold, "sentence pair")
        sides.append([line.split() for line in lines])
    return list(zip(*sides, strict=True))


def _check_inside(name: str, links: list, sentences: list | None, base: str, reverse: str) -> None:
    """Raise CommandError for links of words that do not exist, and suggest the option `base` or `reverse`."""
    from hf_attncal.data.pharaoh import check_inside_sentences

    if sentences is None:
        return
    lengths = [(len(a), len(b)) for a, b in sentences]
    try:
        check_inside_sentences(links, lengths, remedy=f"pass {base} 1")
    except ValueError as error:
        message = f"{called(name)}: {error}"
        with suppress(ValueError):
            check_inside_sentences(links, [(b, a) for a, b in lengths])
            message += f" All are inside with source and target exchanged: see {reverse}, or exchange the texts."
        raise CommandError(message) from error


# ---- writing ----


def _as_text(options: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """Format a table with one row for each hypothesis, in per cent, and notes that explain it."""

    def rates(field: str) -> list[str]:
        return ["" if row[field] is None else f"{100 * row[field]:.1f}" for row in rows]

    columns = {"hypothesis": [row["hypothesis"] for row in rows], "AER": rates("aer")}
    notes = [
        f"{rows[0]['sentences']} sentence pairs, {rows[0]['sure']} sure links, {rows[0]['possible']} possible links "
        "(sure ones included). Rates in per cent."
    ]
    resampled = rows[0]["interval"] is not None
    if resampled:
        columns["95 % interval"] = [
            f"{100 * low:.1f} to {100 * high:.1f}" for low, high in (row["interval"] for row in rows)
        ]
        notes.append(f"95 % interval: percentiles of AER over {options.bootstrap} resamples of the sentence pairs.")
    elif options.bootstrap:
        notes.append(too_few(rows[0]["sentences"], "sentence pairs"))
    columns |= {"precision": rates("precision"), "recall": rates("recall"), "F1": rates("f1")}
    columns["links"] = [str(row["proposed"]) for row in rows]
    if resampled and len(rows) > 1:
        columns["better than first"] = rates("better_than_first")
        columns["p"] = ["" if row["p_value"] is None else f"{row['p_value']:.3f}" for row in rows]
        notes += [
            "better than first: share of the same resamples in which AER is lower than that of the first hypothesis;",
            "a tie is not better. p: of a two-sided paired bootstrap test that both have the same AER.",
        ]
    return "\n".join([*table(columns), "", *notes, *signatures(rows)])
