"""Check a text: a verdict for each line and the forms it is written in, or what all verdicts come to."""

import heapq
import math
import os
import random
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from hf_attncal.data.piecewise import LineError
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    LONGEST_LINE,
    Text,
    counted,
    is_file,
    json_line,
    line_error,
    rows_of_texts,
    text_name,
)

from .alarms import FEWEST, meaning
from .checker import NOT_KNOWN, VERDICTS, Checker, PairVerdict, SharedTargets

if TYPE_CHECKING:
    from .check_self_test import SelfTest
    from .check_summary import Comparison, Summary

_SAMPLE = 2000  # pairs that an alarm is set on
_USUAL = 0.004, 0.025  # share of right lines that an alarm of 1 in 100 may flag unsaid
_SEED = 1  # of the errors that a self-test plants
_NAMING = "tsv", "json"  # forms that say of a line that its language is not known


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
    false_alarms: float | None = None,
) -> "Iterator[PairVerdict] | Summary | Comparison | SelfTest":
    """Check a text in the way that is asked for.

    Args:
        checker, source, target, running: as for `check_texts`.
        form: "summary" for a summary, "kept" for the verdicts on lines that are not flagged, else all verdicts.
        worst: so many verdicts, those first in which a fault is most probable; None for all.
        bootstrap: resamples for intervals and tests.
        compare_with: other translations, for a comparison.
        self_test: for a self-test on planted errors.
        false_alarms: share of right lines that the alarm may flag, which is set on the text; None: as it was learned.

    Raises:
        CommandError: see `check_texts`, `summarize_verdicts`, `compare_verdicts` and `plant_and_check`; or an encoder
            alone does not know the languages, and the form would not say so.
    """
    with user_errors():
        if false_alarms is not None:
            checker = _with_alarm(checker, source, target, running, false_alarms)
        if self_test:
            from .check_self_test import plant_and_check

            return plant_and_check(checker, list(read_pairs_to_check(source, target, running)), seed=_SEED)
        verdicts = _of_known(checker, check_texts(checker, source, target, running), form)
        if compare_with is not None:
            from .check_summary import compare_verdicts

            others = _of_known(checker, check_texts(checker, source, compare_with, running), "summary")
            names = text_name(target, "target"), text_name(compare_with, "compare_with")
            return compare_verdicts(checker, verdicts, others, bootstrap, names)
        if form == "summary":
            from .check_summary import summarize_verdicts

            wrong = array("d")
            summary = summarize_verdicts(checker, _kept_wrong(verdicts, wrong), bootstrap)
            return summary if checker.encoder else replace(summary, on_text=meaning(checker.model, wrong))
    if false_alarms is None and checker.encoder is None:
        verdicts = _with_meaning(checker, verdicts)
    if worst is not None:
        return iter(heapq.nlargest(worst, verdicts, key=lambda verdict: (verdict.wrong, -verdict.line)))
    return (verdict for verdict in verdicts if form != "kept" or not verdict.flagged)


def _of_known(checker: Checker, verdicts: Iterator[PairVerdict], form: str) -> Iterator[PairVerdict]:
    """Yield verdicts; refuse lines that an encoder alone does not know where they would pass for clean ones."""
    for verdict in verdicts:
        if checker.aligner is None and NOT_KNOWN in verdict.names and form not in _NAMING:
            raise CommandError(
                f"No line gets a verdict: {checker.encoder.told()}. Give MODEL, an aligner of these languages."
            )
        yield verdict


def _with_alarm(checker: Checker, source: Text, target: Text, running: Running, share: float) -> Checker:
    for text in (source, target):
        if not _can_be_read_twice(text):
            raise CommandError(
                f"--false-alarms reads {text_name(text, 'the text')} twice: it must be a file, no pipe."
            )
    rng, sample = random.Random(_SEED), []
    for number, pair in enumerate(read_pairs_to_check(source, target, running)):
        if number < _SAMPLE:
            sample.append(pair)
        elif (place := rng.randrange(number + 1)) < _SAMPLE:
            sample[place] = pair
    checker, alarm = checker.with_false_alarms(sample, share)
    LOG.info("%s", alarm)
    return checker


def _kept_wrong(verdicts: Iterable[PairVerdict], wrong: array) -> Iterator[PairVerdict]:
    for verdict in verdicts:
        wrong.append(verdict.wrong)
        yield verdict


def _with_meaning(checker: Checker, verdicts: Iterable[PairVerdict]) -> Iterator[PairVerdict]:
    """Yield verdicts, and say at the end what the alarm means on this text where that is not what it says."""
    wrong = array("d")
    yield from _kept_wrong(verdicts, wrong)
    told = meaning(checker.model, wrong)
    if (
        told.lines >= FEWEST
        and checker.model.clean is not None
        and not (told.right is not None and _USUAL[0] <= told.right <= _USUAL[1])
    ):
        warnings.warn(
            f"{told} Of the clean text that it learned from it flags 1 %: this is another domain. --false-alarms 1% "
            "sets it on this text.",
            stacklevel=2,
        )
    else:
        LOG.info("%s", told)


def lines_of_verdicts(verdicts: Iterable[PairVerdict], form: str, names: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a form: "tsv", "json", "marked", "html" or "kept".

    Args:
        verdicts: with their numbers.
        form: which.
        names: of the two texts, for the head of a page.
    """
    if form == "html":
        from .check_page import check_page

        return check_page(verdicts, *names)
    head = ["\t".join(("line", "wrong", *VERDICTS, "flagged", "names"))] if form == "tsv" else []
    return chain(head, map(_LINES[form], verdicts))


def _row(verdict: PairVerdict) -> str:
    judged = NOT_KNOWN not in verdict.names
    scores = (f"{getattr(verdict, name) if judged else math.nan:.4f}" for name in ("wrong", *VERDICTS))
    return "\t".join((str(verdict.line), *scores, ",".join(verdict.flagged) or "-", ", ".join(verdict.names) or "-"))


def _columns(*texts: str) -> str:
    return "\t".join(text.replace("\t", " ") for text in texts)  # tabs part the columns


_LINES: dict[str, Callable[[PairVerdict], str]] = {
    "tsv": _row,
    "json": lambda verdict: json_line(verdict.to_dict()),
    "marked": lambda verdict: _columns(*verdict.marked()),
    "kept": lambda verdict: _columns(verdict.source, verdict.target),
}
