"""Check a text: verdicts for all lines, and output formats."""

import heapq
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from hf_attncal.alignment.quality import MAX_PAIRS_TO_EXCHANGE, exchange_warning
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, LineError
from hf_attncal.io.streams import (
    LONGEST_LINE,
    Text,
    counted,
    json_line,
    line_error,
    output_lines,
    rows_of_texts,
    write_lines,
)

from .check_page import PageRow, check_page
from .checker import Checker, SharedTargets
from .evidence import both
from .verdicts import NOT_KNOWN, VERDICTS, PairVerdict

Result = TypeVar("Result")

_SAMPLE = 2000  # lines
_FORMS_WITH_UNKNOWN = "tsv", "json"  # forms that can show that the language of a line is not known
_SEPARATOR = re.compile(r"[\t\r\n]")  # between columns or lines


def read_pairs_to_check(source: Text, target: Text, running: Running) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two texts, with the longest line of `running`."""
    return map(both, rows_of_texts({"source": source, "target": target}, running.longest_line or LONGEST_LINE))


def known_verdicts(
    checker: Checker, source: Text, target: Text, running: Running, form: str, sample: int = _SAMPLE
) -> Iterator[PairVerdict]:
    """Yield a numbered verdict for each line of two texts, as they are read.

    Texts are read once before, to find targets with many sources, and their first lines (`sample`) set the
    alarms of the text. Both are skipped for a pipe, whose verdicts follow its lines at once.

    Args:
        checker: Checker of their languages.
        source, target: Files or lines.
        running: Longest line and progress.
        form: Output format.
        sample: Number of lines. Default: 2000; 0 for the alarms of ordinary text.

    Raises:
        CommandError: A line cannot be read or checked; the verdicts on all lines before it are yielded first. Or the
            only judge is an encoder that does not cover the languages, and lines without a verdict would look like
            clean ones in this form.
    """
    shared = None
    if all(map(_can_be_read_twice, (source, target))):
        shared = SharedTargets(read_pairs_to_check(source, target, running))
    else:
        sample = 0
    verdicts = checker.stream(read_pairs_to_check(source, target, running), shared=shared, sample=sample)
    only_encoder = checker.encoder if checker.aligner is None and form not in _FORMS_WITH_UNKNOWN else None
    pairs: list[tuple[str, str]] = []
    suspect = number = 0
    try:
        for number, verdict in enumerate(counted(verdicts, "checked", running.progress), start=1):
            if only_encoder is not None and NOT_KNOWN in verdict.names:
                raise CommandError(
                    f"No line gets a verdict: {only_encoder.coverage_message()}. Give MODEL, an aligner for them."
                )
            suspect += verdict.wrong > checker.alarm
            if number <= MAX_PAIRS_TO_EXCHANGE:
                pairs.append((verdict.source, verdict.target))
            yield replace(verdict, line=number)
    except LineError as error:
        raise line_error(error.number, "cannot be checked", error.error) from error
    if 2 * suspect > number and checker.aligner is not None and (message := exchange_warning(checker.aligner, pairs)):
        warnings.warn(message, stacklevel=2)


def _can_be_read_twice(text: Text) -> bool:
    return os.path.isfile(text) if isinstance(text, str | os.PathLike) else hasattr(text, "__len__")


def checked_lines(
    checker: Checker, source: Text, target: Text, running: Running, form: str, *, worst: int | None = None
) -> Iterator[PairVerdict]:
    """Return the verdicts on a text for an output format.

    Args:
        checker, source, target, running: See `known_verdicts`.
        form: Output format; "kept" drops flagged lines.
        worst: Number of verdicts, the worst first. Default: None, all in their order.

    Raises:
        CommandError: See `known_verdicts`.
    """
    verdicts = known_verdicts(checker, source, target, running, form)
    if form == "kept":
        verdicts = (verdict for verdict in verdicts if not verdict.flagged)
    if worst is not None:
        return iter(heapq.nlargest(worst, verdicts, key=lambda one: (bool(one.flagged), one.wrong, -(one.line or 0))))
    return verdicts


def written(result: Result, output: str | os.PathLike[str] | None) -> Result | None:
    """Write the text of a result into a file; return the result if there is no file."""
    if output is None:
        return result
    with output_lines(os.fspath(output)) as file:
        write_lines(file, str(result).splitlines())
    return None


def lines_of_verdicts(verdicts: Iterable[PairVerdict], form: str, names: tuple[str, str]) -> Iterator[str]:
    """Yield the output lines of a form.

    Args:
        verdicts: Numbered verdicts.
        form: Output format: "tsv", "json", "marked", "html" or "kept".
        names: Names of the two texts, for the heading of a page.
    """
    if form == "html":
        return check_page(map(_page_row, verdicts), " and ".join(names), "line")
    head = ["\t".join(("line", "wrong", *VERDICTS, "flagged", "names", "source", "target"))] if form == "tsv" else []
    return chain(head, map(_LINES[form], verdicts))


def _row(verdict: PairVerdict) -> str:
    judged = NOT_KNOWN not in verdict.names
    scores = (f"{getattr(verdict, name) if judged else math.nan:.4f}" for name in ("wrong", *VERDICTS))
    faults = ",".join(verdict.flagged) or "-", ", ".join(verdict.names) or "-"
    return tab_separated(str(verdict.line), *scores, *faults, verdict.source, verdict.target)


def tab_separated(*texts: str) -> str:
    """Return a line of columns; tabs and line ends in a text become spaces."""
    return "\t".join(_SEPARATOR.sub(" ", text) for text in texts)


_LINES: dict[str, Callable[[PairVerdict], str]] = {
    "tsv": _row,
    "json": lambda verdict: json_line(verdict.to_dict()),
    "marked": lambda verdict: tab_separated(*verdict.marked()),
    "kept": lambda verdict: tab_separated(verdict.source, verdict.target),
}


def _page_row(verdict: PairVerdict) -> PageRow:
    findings = verdict.findings
    return PageRow(
        str(verdict.line),
        (verdict.source, verdict.target),
        (verdict.omission_spans, verdict.addition_spans),
        [(": ".join(filter(None, (one.kind, one.reason))), one.probability, "") for one in findings],
        [one.kind for one in findings],
    )
