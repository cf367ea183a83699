"""`attncal check`: what a translation left out and what it made up."""

import argparse
import heapq
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from hf_attncal.alignment.opening import open_aligner
from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import (
    check_files,
    check_readable,
    counted,
    json_line,
    line_error,
    output_lines,
    rows_of_files,
    write_lines,
)
from hf_attncal.drawing.table import text_table as table
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.inference.opening import load_errors

from .common import add_model_options, add_output_option, add_pair_files, not_negative, positive

_SEED = 1


def add_check(commands: argparse._SubParsersAction) -> None:
    """Add the command `check`."""
    parser = commands.add_parser(
        "check",
        help="tell what a translation left out and what it made up",
        description="For each line, by a word aligner: the probability that words of the source were left out, that "
        "the target says what the source does not, that it repeats itself, that it is no translation at all, "
        "that a number, a negation or a name was changed, and the "
        "words that say so. What good pairs look like is learned once from clean text, best what the aligner was "
        "trained on (--clean-source, --clean-target), and kept in check.json beside it.",
        epilog="examples:\n"
        "  attncal check MODEL --clean-source train.de --clean-target train.en\n"
        "  attncal check MODEL --source text.de --target text.en --format marked --worst 50\n"
        "  attncal check MODEL --source text.de --target text.en --format summary\n"
        "  attncal check MODEL --source text.de --target ours.en --compare-with theirs.en\n"
        "  attncal check MODEL --source clean.de --target clean.en --self-test",
    )
    files = parser.add_argument_group("input and output")
    add_pair_files(files, without="nothing is checked")
    add_output_option(files)
    files.add_argument(
        "--format",
        choices=("tsv", "json", "marked", "html", "kept", "summary"),
        default="tsv",
        help="tsv: number of the line, the five probabilities, what is flagged, what is told by name; json: one "
        "object a line, with words and spans; marked: both sides with [-left out-] and {+made up+}; html: a page "
        "with the same; kept: both sides of the lines that are not flagged, parted by a tab; summary: of the whole "
        "file",
    )
    files.add_argument("--worst", type=positive, metavar="N", help="so many lines, the worst first; without it, all")
    files.add_argument(
        "--together",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the files twice, to see whether one target stands with many different sources",
    )
    files.add_argument(
        "--bootstrap", type=not_negative, default=1000, help="summary: resamples of the lines for 95 %% intervals"
    )
    files.add_argument(
        "--compare-with",
        metavar="FILE",
        help="translations of the same sources by another system: a summary of both, and by how much --target has "
        "more or fewer faults, with a paired test; without it, --target alone is checked",
    )
    files.add_argument(
        "--self-test",
        action="store_true",
        help="--source and --target are clean: plant errors into them, and tell how many are found",
    )
    learning = parser.add_argument_group("what good pairs look like")
    learning.add_argument(
        "--clean-source", metavar="FILE", nargs="+", help="clean text, one sentence a line; without it, check.json"
    )
    learning.add_argument(
        "--clean-target", metavar="FILE", nargs="+", help="its translations, as many lines; without it, check.json"
    )
    add_model_options(parser, "folder or Hub name of a word aligner", lines=True)
    parser.set_defaults(run=_run_check)


def _run_check(options: argparse.Namespace) -> None:
    clean = _check_options(options)
    aligner = open_aligner(options.model, running_of(options))
    if clean:
        _learn(aligner, clean, options)
    if options.source is None:
        return

    checker = open_checker(options.model, options, aligner)
    if options.self_test:
        _self_test(checker, options)
    elif options.compare_with is not None:
        _compare(checker, options)
    else:
        _check(checker, options)


def open_checker(name: str, options: argparse.Namespace, aligner=None):
    """Return the `Checker` of a word aligner, which is loaded unless it is given.

    Raises:
        CommandError: it cannot be loaded, or nothing was learned for it.
    """
    from hf_attncal.checking.checker import Checker, saved_check

    aligner = aligner or open_aligner(name, running_of(options))
    with load_errors(name):
        return Checker(aligner, saved_check(name))


def _check_options(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Refuse what does not go together, before anything is loaded; returns the pairs of files of clean text."""
    for first, second in (("source", "target"), ("clean_source", "clean_target")):
        if (getattr(options, first) is None) != (getattr(options, second) is None):
            names = [f"--{name.replace('_', '-')}" for name in (first, second)]
            raise CommandError(f"{names[0]} and {names[1]} go together: give both.")
    sources, targets = options.clean_source or [], options.clean_target or []
    if len(sources) != len(targets):
        raise CommandError(
            f"--clean-source has {len(sources)} files and --clean-target has {len(targets)}. Give as many of each."
        )
    if options.source is None and not sources:
        raise CommandError("There is nothing to do: give --source and --target, or --clean-source and --clean-target.")
    if options.compare_with is not None:
        _check_comparison(options)
    if options.format == "kept" and options.worst is not None:
        raise CommandError(
            "--format kept writes the lines that are not flagged, and --worst the others: leave out one."
        )
    given = (options.source, options.target, options.compare_with, *sources, *targets)
    inputs = [path for path in given if path is not None]
    check_readable(*sources, *targets)
    if options.source is None and options.output is not None:
        raise CommandError("--output is for what is checked: give --source and --target, or leave it out.")
    check_files(inputs, {"--output": options.output})
    if sources and not os.path.isdir(options.model) and os.path.lexists(options.model):
        raise CommandError(f"{options.model} is a file, and check.json goes into the folder of an aligner.")
    return list(zip(sources, targets, strict=True))


def _check_comparison(options: argparse.Namespace) -> None:
    """Refuse options that a comparison of two systems does not have."""
    if options.source is None:
        raise CommandError("--compare-with needs the sources and the other translations: give --source and --target.")
    for option, is_given in (
        ("--self-test", options.self_test),
        ("--worst", options.worst is not None),
        (f"--format {options.format}", options.format not in ("tsv", "summary")),
    ):
        if is_given:
            raise CommandError(f"--compare-with gives a summary of two systems and takes no {option}. Leave out one.")
    if options.bootstrap == 0:
        raise CommandError("--compare-with tests by resamples of the lines: give --bootstrap of at least 1.")
    if not os.path.isfile(options.source):
        raise CommandError(f"--compare-with reads {options.source} twice, so it must be a file, not a pipe.")


def _learn(aligner, clean: list[tuple[str, str]], options: argparse.Namespace) -> None:
    from hf_attncal.checking.check_learning import learn_check

    if not os.path.isdir(options.model):
        raise CommandError(f"{options.model} is no folder, into which check.json could be written. Download it first.")

    with user_errors():
        model = learn_check(aligner, (pair for names in clean for pair in rows_of_files(names, options.longest_line)))
    path = model.save(options.model)
    print(f"wrote {path}, learned from {model.learned['pairs']} pairs", flush=True)


def _verdicts(checker, options: argparse.Namespace, target: str | None = None) -> Iterator[tuple[int, object]]:
    """Yield the number of each line, from 1, and its verdict; `target` is read instead of --target."""
    from hf_attncal.checking.checker import SharedTargets
    from hf_attncal.data.piecewise import LineError

    names = options.source, target or options.target
    twice = options.together and all(map(os.path.isfile, names))  # a pipe is read once
    shared = SharedTargets(rows_of_files(names, options.longest_line)) if twice else None
    verdicts = checker.stream(rows_of_files(names, options.longest_line), shared=shared)
    try:
        yield from enumerate(counted(verdicts, "checked", options.progress), start=1)
    except LineError as error:
        raise line_error(error.number, "cannot be checked", error.error) from error


def _check(checker, options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        target = stack.enter_context(output_lines(options.output))
        verdicts = _verdicts(checker, options)
        if options.format == "summary":
            write_lines(target, _summary(checker, verdicts, options))
            return
        if options.worst is not None:
            verdicts = iter(heapq.nlargest(options.worst, verdicts, key=lambda line: (line[1].worst, -line[0])))
        if options.format == "tsv":
            from hf_attncal.checking.checker import VERDICTS

            write_lines(target, ["\t".join(("line", *VERDICTS, "flagged", "names"))])
        if options.format == "html":
            stack.enter_context(_page(target, options))
        if options.format == "kept":
            verdicts = (line for line in verdicts if not line[1].flagged)
        write_lines(target, (_line(*line, options.format) for line in verdicts))


def _line(number: int, verdict, form: str) -> str:
    if form == "json":
        return json_line({"line": number, **verdict.to_dict()})
    if form in ("marked", "kept"):
        texts = verdict.marked() if form == "marked" else (verdict.source, verdict.target)
        return "\t".join(text.replace("\t", " ") for text in texts)  # tabs part the columns
    if form == "html":
        from hf_attncal.checking.check_page import page_line

        return page_line(number, verdict)
    from hf_attncal.checking.checker import VERDICTS

    scores = (f"{getattr(verdict, name):.4f}" for name in VERDICTS)
    return "\t".join((str(number), *scores, ",".join(verdict.flagged) or "-", ", ".join(verdict.names) or "-"))


@contextmanager
def _page(target: BinaryIO, options: argparse.Namespace) -> Iterator[None]:
    from hf_attncal.checking.check_page import PAGE_FOOT, check_page_head

    write_lines(target, [check_page_head(options.source, options.target)])
    yield
    write_lines(target, [PAGE_FOOT])


def _summary(checker, verdicts, options: argparse.Namespace) -> Iterator[str]:
    from hf_attncal.checking.check_summary import summarize_verdicts

    summary = summarize_verdicts(checker, (verdict for _, verdict in verdicts), options.bootstrap)
    shares = [_percent(share) for share in summary.shares.values()]
    yield from table({"": list(summary.shares), "per cent": shares})
    yield ""
    yield _lines_and_alarms(checker, summary.lines)
    yield summary.signature


def _compare(checker, options: argparse.Namespace) -> None:
    """Write a summary of both systems, their differences, and the p of each."""
    from hf_attncal.checking.check_summary import compare_counts, count_faults, summarize_counts

    with output_lines(options.output) as output:
        names = options.target, options.compare_with
        counts = [count_faults(verdict for _, verdict in _verdicts(checker, options, target)) for target in names]
        with user_errors():
            comparison = compare_counts(checker, *counts, options.bootstrap)
        summaries = [summarize_counts(checker, count, options.bootstrap) for count in counts]
        columns = {"per cent": list(summaries[0].shares)}
        for heading, summary in zip(("target", "compared with"), summaries, strict=True):
            columns[heading] = [_percent(share) for share in summary.shares.values()]
        columns["difference"] = [_percent(share, "+") for share in comparison.differences.values()]
        columns["p"] = ["-" if p is None else f"{p:.3f}" for p in comparison.p_values.values()]
        tail = [
            "",
            "target: {}; compared with: {}".format(*names),
            _lines_and_alarms(checker, len(counts[0])),
            comparison.signature,
        ]
        write_lines(output, [*table(columns), *tail])


def _percent(share, sign: str = "") -> str:
    ends = share.interval and f" ({' to '.join(f'{100 * end:{sign}.2f}' for end in share.interval)})"
    return f"{100 * share.value:{sign}.2f}{ends or ''}"


def _lines_and_alarms(checker, lines: int) -> str:
    alarms = ", ".join(f"{name} {alarm:.2f}" for name, alarm in checker.model.alarms.items())
    return f"{lines} lines; a line is flagged if a probability is above its alarm ({alarms})."


def _self_test(checker, options: argparse.Namespace) -> None:
    from hf_attncal.checking.check_self_test import self_test

    with user_errors():
        result = self_test(
            checker, list(rows_of_files((options.source, options.target), options.longest_line)), seed=_SEED
        )

    def percent(found, measure: str = "auc") -> str:
        return "-" if found is None else f"{100 * getattr(found, measure).value:.1f}"

    columns = {
        "planted": [found.kind for found in result.found],
        "lines": [str(found.lines.faults) for found in result.found],
        "judged by": [found.verdict for found in result.found],
        "AUC": [percent(found.lines) for found in result.found],
        "words left out": [percent(found.left_out) for found in result.found],
        "F1": [percent(found.left_out, "f1") for found in result.found],
        "words made up": [percent(found.made_up) for found in result.found],
        "F1 ": [percent(found.made_up, "f1") for found in result.found],
        "flagged": [f"{100 * found.flagged:.1f}" for found in result.found],
    }
    with output_lines(options.output) as target:
        write_lines(target, table(columns))
        told = (
            f"Of {result.clean} clean lines {100 * result.false_alarms:.2f} % are flagged. All figures are in percent."
        )
        write_lines(target, ["", told])
