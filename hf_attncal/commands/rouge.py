"""`attncal rouge`: ROUGE of files with summaries."""

import argparse
import warnings
from typing import Any

from .scoring import (
    SEED,
    add_hypotheses,
    add_scoring,
    as_json,
    check_once,
    check_same_length,
    read_scored_lines,
    signatures,
    table,
    too_few,
)


def add_rouge(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `rouge`."""
    parser = commands.add_parser(
        "rouge",
        help="score summaries against references: ROUGE-1, -2, -L, -Lsum",
        description="Score summaries, or headlines, against references: F1 of ROUGE-1, ROUGE-2, ROUGE-L (a summary is "
        "one sentence) and ROUGE-Lsum (sentence by sentence, each up to its `.`, `!` or `?`), the mean over the "
        "summaries, with a signature that says how they were computed. Files hold one summary a line. With several "
        "hypotheses each is compared with the first on the same resamples (paired bootstrap).",
        epilog="examples:\n"
        "  attncal rouge summaries.txt found.txt\n"
        "  attncal rouge tokens.txt found.txt other.txt --tokenize none\n"
        "  attncal rouge first.txt found.txt --reference second.txt --reference third.txt",
    )
    parser.add_argument("reference", metavar="REFERENCE", help="reference: a plain, .gz, .xz or .zst file")
    add_hypotheses(parser, "proposed summary")
    parser.add_argument(
        "--reference",
        dest="others",
        metavar="FILE",
        action="append",
        help="another reference of each summary, may be given again: each measure takes the best; without it, one",
    )
    parser.add_argument(
        "--tokenize",
        choices=("rouge", "words", "none"),
        default="rouge",
        help="rouge: English, lower case, and runs of a-z and 0-9; words: any language, lower case, without "
        "punctuation; none: text that is tokenised already, at white space",
    )
    parser.add_argument("--stemmer", action="store_true", help="compare the stems of English words (Porter)")
    add_scoring(parser, "two decimals", "summaries")
    parser.set_defaults(run=_run_rouge)


def _run_rouge(options: argparse.Namespace) -> None:
    from hf_attncal.extras import need

    need("rouge")
    names = [options.reference, *(options.others or [])]
    check_once([*names, *options.hypotheses])
    files = {name: read_scored_lines(options, name) for name in dict.fromkeys([*names, *options.hypotheses])}
    for name, lines in files.items():
        check_same_length(lines, name, files[names[0]], names[0], "summary")
    references = list(zip(*(files[name] for name in names), strict=True))
    empty = [number for number, texts in enumerate(references, 1) if not any(map(str.strip, texts))]
    if empty:
        warnings.warn(
            f"{' and '.join(names)}: {len(empty)} of {len(references)} lines have no text, the first is line "
            f"{empty[0]}. Whatever the summary, it scores 0 there.",
            stacklevel=2,
        )
    rows = _rows(options, files, references)
    print(
        as_json(options, rows, references=names)
        if options.format == "json"
        else _as_text(options, rows, len(references))
    )


def _rows(
    options: argparse.Namespace, files: dict[str, list[str]], references: list[tuple[str, ...]]
) -> list[dict[str, Any]]:
    """Return for every hypothesis its name, the fields of its `RougeScore`, and how far it is above the first."""
    from dataclasses import asdict

    from hf_attncal.metrics.rouge import MEASURES, ROUGE, RougeScore, rouge_counts, rouge_signature

    settings = {"tokenize": options.tokenize, "stemmer": options.stemmer}
    signature = rouge_signature(references, **settings)
    counted = [rouge_counts(files[name], references, **settings) for name in options.hypotheses]
    rows: list[dict[str, Any]] = []
    for name, counts in zip(options.hypotheses, counted, strict=True):
        row = {"hypothesis": name, **asdict(RougeScore.of(counts, signature, options.bootstrap, SEED))}
        above = {}
        for measure in MEASURES if rows else ():
            pair = counted[0][measure], counts[measure]
            interval = ROUGE.paired_interval(*pair, options.bootstrap, SEED) if options.bootstrap else None
            above[measure] = {"difference": row[measure] - rows[0][measure], "interval": interval}
        rows.append({**row, "above_first": above or None})
    return rows


def _as_text(options: argparse.Namespace, rows: list[dict[str, Any]], count: int) -> str:
    """Format a table with one row for each hypothesis and measure, and notes that explain it."""
    from hf_attncal.metrics.rouge import MEASURES

    cells = [(row, measure) for row in rows for measure in MEASURES]
    columns = {
        "hypothesis": [row["hypothesis"] for row, _ in cells],
        "measure": [measure.replace("rouge", "ROUGE-") for _, measure in cells],
        "F1": [f"{row[measure]:.2f}" for row, measure in cells],
    }
    notes = []
    resampled = rows[0]["intervals"] is not None
    if resampled:
        columns["95 % interval"] = [_interval(*row["intervals"][measure]) for row, measure in cells]
        notes.append(f"95 % interval: percentiles over {options.bootstrap} resamples of the summaries.")
    elif options.bootstrap:
        notes.append(too_few(count, "summaries"))
    if len(rows) > 1:
        columns["above first"] = [_above(row["above_first"] and row["above_first"][measure]) for row, measure in cells]
        notes.append(
            "above first: F1 minus that of the first hypothesis"
            + (", with the 95 % interval over the same resamples." if resampled else ".")
        )
    return "\n".join([*table(columns), "", *notes, *signatures(rows)])


def _above(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return ""
    interval = comparison["interval"]
    return f"{comparison['difference']:+.2f}" + (f" ({_interval(*interval, sign='+')})" if interval else "")


def _interval(low: float, high: float, sign: str = "") -> str:
    return f"{low:{sign}.2f} to {high:{sign}.2f}"
