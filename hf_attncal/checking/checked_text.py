"""Check a text: a verdict for each line, the forms in which verdicts are written, and the alarm of a text."""

import heapq
import math
import os
import random
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

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
    output_lines,
    rows_of_texts,
    text_name,
    write_lines,
)

from .alarms import FEWEST, meaning
from .checker import Checker, SharedTargets
from .verdicts import NOT_KNOWN, VERDICTS, PairVerdict

if TYPE_CHECKING:
    from .check_summary import Summary

Result = TypeVar("Result")

_SAMPLE = 2000  # pairs that an alarm is set on
_USUAL = 0.004, 0.025  # share of right lines that an alarm of 1 in 100 may flag unsaid
_SEED = 1
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


def known_verdicts(checker: Checker, source: Text, target: Text, running: Running, form: str) -> Iterator[PairVerdict]:
    """Yield the verdicts of `check_texts`; in a form that would not say so, an unknown language is an error.

    Raises:
        CommandError: as of `check_texts`; or an encoder alone does not know the languages, and lines without a verdict
            would pass for clean ones.
    """
    for verdict in check_texts(checker, source, target, running):
        if checker.aligner is None and NOT_KNOWN in verdict.names and form not in _NAMING:
            raise CommandError(
                f"No line gets a verdict: {checker.encoder.told()}. Give MODEL, an aligner of these languages."
            )
        yield verdict


def checked_lines(
    checker: Checker,
    source: Text,
    target: Text,
    running: Running,
    form: str,
    *,
    worst: int | None = None,
    as_learned: bool = True,
) -> Iterator[PairVerdict]:
    """Return the verdicts on a text that a form has.

    Args:
        checker, source, target, running: as for `check_texts`.
        form: "kept" has the lines that are not flagged, any other all.
        worst: number of verdicts, those first in which a fault is most probable. Default: all, in their order.
        as_learned: the alarm is that of the clean text; then a warning says what it means on another one.

    Raises:
        CommandError: as of `known_verdicts`.
    """
    verdicts = known_verdicts(checker, source, target, running, form)
    if as_learned and checker.encoder is None:
        verdicts = _with_meaning(checker, verdicts)
    if form == "kept":
        verdicts = (verdict for verdict in verdicts if not verdict.flagged)
    if worst is not None:
        return iter(heapq.nlargest(worst, verdicts, key=lambda verdict: (verdict.wrong, -verdict.line)))
    return verdicts


def summarized_text(checker: Checker, source: Text, target: Text, running: Running, bootstrap: int) -> "Summary":
    """Return the summary of a text, with `bootstrap` resamples; errors are those of `known_verdicts`."""
    from .check_summary import summarize_verdicts

    wrong = array("d")
    with user_errors():
        verdicts = known_verdicts(checker, source, target, running, "summary")
        summary = summarize_verdicts(checker, _kept_wrong(verdicts, wrong), bootstrap)
    return summary if checker.encoder else replace(summary, on_text=meaning(checker.model, wrong))


def with_false_alarms(
    checker: Checker, source: Text, target: Text, running: Running, share: str | float | None
) -> Checker:
    """Return a checker whose alarm is set on a text.

    Args:
        checker, source, target, running: as for `check_texts`.
        share: share of right lines that may be flagged, such as 1%; None for the checker as it is.

    Raises:
        CommandError: no share, a text that can be read only once, or see `Checker.with_false_alarms`.
    """
    if share is None:
        return checker
    share = _share(share)
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
    with user_errors():
        checker, alarm = checker.with_false_alarms(sample, share)
    LOG.info("%s", alarm)
    return checker


def _share(text: str | float) -> float:
    """Return the share that a text such as 1% or 0.01 stands for."""
    try:
        return float(str(text).removesuffix("%")) / (100 if str(text).endswith("%") else 1)
    except ValueError:
        raise CommandError(f"--false-alarms must be a share such as 1% or 0.01, got {text!r}.") from None


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


def written(result: Result, output: str | os.PathLike[str] | None) -> Result | None:
    """Write a result into a file, as it prints; return it where there is none."""
    if output is None:
        return result
    with output_lines(os.fspath(output)) as file:
        write_lines(file, str(result).splitlines())
    return None


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
