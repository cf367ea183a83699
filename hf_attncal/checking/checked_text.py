"""Check a text: verdicts for all lines, output formats, and the alarm of a text.

The page of `--format html` is one file without scripts: filters and reasons are CSS.
"""

import heapq
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import chain, groupby
from tempfile import SpooledTemporaryFile
from typing import TypeVar

from markupsafe import Markup

from hf_attncal.alignment.quality import MAX_PAIRS_TO_EXCHANGE, exchange_warning
from hf_attncal.drawing.page import PAGE_FOOT, page_beginning
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

from .checker import Checker, SharedTargets
from .evidence import both
from .verdicts import NOT_KNOWN, VERDICTS, FlaggedSpan, PairVerdict, marked_text

Result = TypeVar("Result")

_SAMPLE = 2000  # lines
_FORMS_WITH_UNKNOWN = "tsv", "json"  # forms that can show that the language of a line is not known
_FAULT_NAMES = {
    "omission": "omission",
    "addition": "addition",
    "repeats": "repeats itself",
    "unrelated": "unrelated",
    "changed": "changed",
}
_QUOTED = 48  # characters
_HELD = 1 << 24  # bytes of a page that stay in memory
_FOLD = 200  # clean lines per fold


def read_pairs_to_check(source: Text, target: Text, running: Running) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two texts, with the longest line of `running`."""
    return map(both, rows_of_texts({"source": source, "target": target}, running.longest_line or LONGEST_LINE))


def check_texts(
    checker: Checker, source: Text, target: Text, running: Running, sample: int = _SAMPLE
) -> Iterator[PairVerdict]:
    """Yield a numbered verdict for each line of two texts, as they are read.

    Texts are read once before, to find targets with many sources, and their first lines (`sample`) set the
    alarms of the text. Both are skipped for a pipe, whose verdicts follow its lines at once.

    Args:
        checker: Checker of their languages.
        source, target: Files or lines.
        running: Longest line and progress.
        sample: Number of lines. Default: 2000; 0 for the alarms of ordinary text.

    Raises:
        CommandError: A line cannot be read or checked; the verdicts on all lines before it are yielded first.
    """
    shared = None
    if all(map(_can_be_read_twice, (source, target))):
        shared = SharedTargets(read_pairs_to_check(source, target, running))
    else:
        sample = 0
    verdicts = checker.stream(read_pairs_to_check(source, target, running), shared=shared, sample=sample)
    pairs: list[tuple[str, str]] = []
    suspect = number = 0
    try:
        for number, verdict in enumerate(counted(verdicts, "checked", running.progress), start=1):
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


def known_verdicts(
    checker: Checker, source: Text, target: Text, running: Running, form: str, sample: int = _SAMPLE
) -> Iterator[PairVerdict]:
    """Yield the verdicts of `check_texts`; an unknown language is an error if the form cannot show it.

    Raises:
        CommandError: See `check_texts`; or the only judge is an encoder that does not cover the languages, and lines
            without a verdict would look like clean ones.
    """
    only_encoder = checker.encoder if checker.aligner is None and form not in _FORMS_WITH_UNKNOWN else None
    for verdict in check_texts(checker, source, target, running, sample):
        if only_encoder is not None and NOT_KNOWN in verdict.names:
            raise CommandError(
                f"No line gets a verdict: {only_encoder.coverage_message()}. Give MODEL, an aligner for them."
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
) -> Iterator[PairVerdict]:
    """Return the verdicts on a text for an output format.

    Args:
        checker, source, target, running: See `check_texts`.
        form: Output format; "kept" drops flagged lines.
        worst: Number of verdicts, the worst first. Default: None, all in their order.

    Raises:
        CommandError: See `known_verdicts`.
    """
    verdicts = known_verdicts(checker, source, target, running, form)
    if form == "kept":
        verdicts = (verdict for verdict in verdicts if not verdict.flagged)
    if worst is not None:
        return iter(
            heapq.nlargest(
                worst, verdicts, key=lambda verdict: (bool(verdict.flagged), verdict.wrong, -(verdict.line or 0))
            )
        )
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
        return check_page(verdicts, *names)
    head = ["\t".join(("line", "wrong", *VERDICTS, "flagged", "names"))] if form == "tsv" else []
    return chain(head, map(_LINES[form], verdicts))


def _row(verdict: PairVerdict) -> str:
    judged = NOT_KNOWN not in verdict.names
    scores = (f"{getattr(verdict, name) if judged else math.nan:.4f}" for name in ("wrong", *VERDICTS))
    return "\t".join((str(verdict.line), *scores, ",".join(verdict.flagged) or "-", ", ".join(verdict.names) or "-"))


def _columns(*texts: str) -> str:
    return "\t".join(text.replace("\t", " ") for text in texts)  # tabs separate columns


_LINES: dict[str, Callable[[PairVerdict], str]] = {
    "tsv": _row,
    "json": lambda verdict: json_line(verdict.to_dict()),
    "marked": lambda verdict: _columns(*verdict.marked()),
    "kept": lambda verdict: _columns(verdict.source, verdict.target),
}


# ---- page for a reviewer: flagged lines with marks and reasons; the others are folded ----


def check_page(verdicts: Iterable[PairVerdict], source: str, target: str) -> Iterator[str]:
    """Yield the lines of a page; `source` and `target` are the names of the texts.

    The counts are at the top, so all lines are made before the first is yielded.
    """
    counts: Counter[str] = Counter()
    with SpooledTemporaryFile(_HELD, "w+", encoding="utf-8", newline="\n") as body:
        for flagged, lines in groupby(verdicts, key=lambda verdict: bool(verdict.flagged)):
            for written in map(_article, lines) if flagged else _folds(lines):
                body.write(f"{written[0]}\n")
                counts.update(written[1])
        lead = Markup(
            "<del>Omission</del> in the source, <ins>addition</ins> in the target: point at a mark, or go to it with "
            "the Tab key, to see why. Percentages are probabilities. Lines without a finding are folded."
        )
        yield page_beginning(f"{source} and {target}, checked", lead, "checked")
        yield _filters(counts)
        body.seek(0)
        for line in body:
            yield line.rstrip("\n")
    yield PAGE_FOOT


def _filters(counts: Counter) -> str:
    """Return the filter buttons of the page, with the number of lines of each kind."""
    kinds = [
        ("all", "all findings", counts["flagged"]),
        *((name, _FAULT_NAMES[name], counts[name]) for name in VERDICTS),
    ]
    buttons = "".join(
        f'<input type="radio" name="kind" id="kind-{name}"{" checked" if name == "all" else ""}>'
        f'<label for="kind-{name}">{heading} <b>{count:,}</b></label>'
        for name, heading, count in kinds
        if count or name == "all"
    )
    lines = counts["flagged"] + counts["clean"]
    heading = f"{counts['flagged']:,} of {lines:,} lines have a finding."
    return f'<fieldset class="kinds"><legend>{heading}</legend>{buttons}</fieldset>'


def _article(verdict: PairVerdict) -> tuple[str, list[str]]:
    head = f"{escape(verdict_in_words(verdict))} <small>{100 * verdict.wrong:.0f} %</small>"
    source = _marked(verdict.source, verdict.omission_spans, "del")
    target = _marked(verdict.target, verdict.addition_spans, "ins")
    text = (
        f'<article class="{" ".join(verdict.flagged)}" id="line-{verdict.line}"><h2><small>{verdict.line}</small> '
        f"{head}</h2><p>{source}</p><p>{target}</p></article>"
    )
    return _one_line(text), ["flagged", *verdict.flagged]


def _folds(lines: Iterable[PairVerdict]) -> Iterator[tuple[str, list[str]]]:
    """Yield adjacent clean lines as folds of at most `_FOLD` lines."""
    for _, numbered in groupby(enumerate(lines), key=lambda pair: pair[0] // _FOLD):
        fold = [verdict for _, verdict in numbered]
        first, last = fold[0].line, fold[-1].line
        heading = f"line {first}" if first == last else f"{len(fold)} lines, {first} to {last}"
        rows = "\n".join(
            _one_line(
                f"<article><small>{verdict.line}</small><p>{escape(verdict.source)}</p><p>{escape(verdict.target)}</p>"
                "</article>"
            )
            for verdict in fold
        )
        yield f"<details><summary>{heading}: no finding</summary>\n{rows}\n</details>", ["clean"] * len(fold)


def _marked(text: str, spans: Sequence[FlaggedSpan], tag: str) -> str:
    why = [escape(f"{span.reason}, {100 * span.probability:.0f} %") for span in spans]
    return marked_text(text, spans, [f'<{tag} tabindex="0" data-why="{one}">' for one in why], f"</{tag}>", escape)


def verdict_in_words(verdict: PairVerdict) -> str:
    """Return the faults of a flagged line in words."""
    unrelated = "unrelated" in verdict.flagged
    faults = ["unrelated to the source"] * unrelated + [*verdict.names]
    if not unrelated:
        for name, spans, text in (
            ("omission", verdict.omission_spans, verdict.source),
            ("addition", verdict.addition_spans, verdict.target),
        ):
            if spans:
                quoted = text[slice(*spans[0].characters)]
                if len(quoted) > _QUOTED:
                    quoted = f"{quoted[:_QUOTED].rpartition(' ')[0] or quoted[:_QUOTED]} …"
                more = f" and {len(spans) - 1} more" if len(spans) > 1 else ""
                faults.append(f"{_FAULT_NAMES[name]}: “{quoted}”{more}")
        if "repeats" in verdict.flagged:
            faults.append("the target repeats itself")
    return "; ".join(faults) or ", ".join(_FAULT_NAMES[name] for name in verdict.flagged)


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
