"""Check a text: a verdict for each line and the forms it is written in, or what all verdicts come to."""

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from hf_attncal.data.piecewise import LineError
from hf_attncal.data.streams import (
    LONGEST_LINE,
    Text,
    counted,
    is_file,
    json_line,
    line_error,
    rows_of_texts,
    text_name,
)
from hf_attncal.errors import user_errors
from hf_attncal.inference.running import Running

from .checker import VERDICTS, Checker, PairVerdict, SharedTargets

if TYPE_CHECKING:
    from .check_self_test import SelfTest
    from .check_summary import Comparison, Summary

_SEED = 1  # of the errors that a self-test plants


def read_pairs_to_check(source: Text, target: Text, running: Running) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two texts, with the limit of a line that `running` says."""
    return rows_of_texts({"source": source, "target": target}, running.longest_line or LONGEST_LINE)


def check_texts(checker: Checker, source: Text, target: Text, running: Running) -> Iterator[PairVerdict]:
    """Yield a verdict with its number for each line of two texts, as they are read.

    Texts are read once before, to see whether one target stands with many sources; a pipe is not.

    Args:
        checker: of their languages.
        source, target: files or lines.
        running: its longest line and its progress.

    Raises:
        CommandError: a line cannot be read or checked; it comes behind the verdicts on all lines before it.
    """
    shared = None
    if all(map(_can_be_read_twice, (source, target))):
        shared = SharedTargets(read_pairs_to_check(source, target, running))
    verdicts = checker.stream(read_pairs_to_check(source, target, running), shared=shared)
    try:
        for number, verdict in enumerate(counted(verdicts, "checked", running.progress), start=1):
            yield replace(verdict, line=number)
    except LineError as error:
        raise line_error(error.number, "cannot be checked", error.error) from error


def _can_be_read_twice(text: Text) -> bool:
    return os.path.isfile(text) if is_file(text) else hasattr(text, "__len__")


def checked_text(
    checker: Checker,
    source: Text,
    target: Text,
    running: Running,
    form: str,
    *,
    worst: int | None = None,
    bootstrap: int = 1000,
    compare_with: Text | None = None,
    self_test: bool = False,
) -> "Iterator[PairVerdict] | Summary | Comparison | SelfTest":
    """Check a text in the way that is asked for.

    Args:
        checker, source, target, running: as for `check_texts`.
        form: "summary" for a summary, "kept" for the verdicts on lines that are not flagged, else all verdicts.
        worst: so many verdicts, those first in which a fault is most probable; None for all.
        bootstrap: resamples for intervals and tests.
        compare_with: other translations, for a comparison.
        self_test: for a self-test on planted errors.

    Raises:
        CommandError: see `check_texts`, `summarize_verdicts`, `compare_verdicts` and `plant_and_check`.
    """
    with user_errors():
        if self_test:
            from .check_self_test import plant_and_check

            return plant_and_check(checker, list(read_pairs_to_check(source, target, running)), seed=_SEED)
        verdicts = check_texts(checker, source, target, running)
        if compare_with is not None:
            from .check_summary import compare_verdicts

            others = check_texts(checker, source, compare_with, running)
            names = text_name(target, "target"), text_name(compare_with, "compare_with")
            return compare_verdicts(checker, verdicts, others, bootstrap, names)
        if form == "summary":
            from .check_summary import summarize_verdicts

            return summarize_verdicts(checker, verdicts, bootstrap)
    if worst is not None:
        return iter(heapq.nlargest(worst, verdicts, key=lambda verdict: (verdict.wrong, -verdict.line)))
    return (verdict for verdict in verdicts if form != "kept" or not verdict.flagged)


def lines_of_verdicts(verdicts: Iterable[PairVerdict], form: str, names: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a form: "tsv", "json", "marked", "html" or "kept".

    Args:
        verdicts: with their numbers.
        form: which.
        names: of the two texts, for the head of a page.
    """
    if form == "html":
        from .check_page import PAGE_FOOT, check_page_head, page_line

        return chain([check_page_head(*names)], map(page_line, verdicts), [PAGE_FOOT])
    head = ["\t".join(("line", "wrong", *VERDICTS, "flagged", "names"))] if form == "tsv" else []
    return chain(head, map(_LINES[form], verdicts))


def _row(verdict: PairVerdict) -> str:
    scores = (f"{getattr(verdict, name):.4f}" for name in ("wrong", *VERDICTS))
    return "\t".join((str(verdict.line), *scores, ",".join(verdict.flagged) or "-", ", ".join(verdict.names) or "-"))


def _columns(*texts: str) -> str:
    return "\t".join(text.replace("\t", " ") for text in texts)  # tabs part the columns


_LINES: dict[str, Callable[[PairVerdict], str]] = {
    "tsv": _row,
    "json": lambda verdict: json_line(verdict.to_dict()),
    "marked": lambda verdict: _columns(*verdict.marked()),
    "kept": lambda verdict: _columns(verdict.source, verdict.target),
}
