"""`attncal check`: omissions, additions and errors in translations, line by line or in documents."""

import os
from typing import TYPE_CHECKING, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors
from hf_attncal.io.streams import check_files, files_among, output_lines, text_name, write_lines

from .kinds import Checking, Encoder, File, Loaded, Output, Text

if TYPE_CHECKING:
    from hf_attncal.checking.check_summary import Summary
    from hf_attncal.checking.documents.check_documents import DocumentCheck
    from hf_attncal.checking.verdicts import PairVerdict

GROUPS = {"Lines of text": ("bootstrap",), "Documents": ("columns", "fail_above", "dismiss")}


def check(
    model: Loaded | None = None,
    source: Text | None = None,
    target: Text | None = None,
    *,
    output: Output = None,
    format: Literal["tsv", "json", "marked", "html", "kept", "summary", "sarif", "notes"] | None = None,
    worst: int | None = None,
    bootstrap: int = 1000,
    alarm: float | None = None,
    columns: str | None = None,
    fail_above: float | None = None,
    dismiss: File | None = None,
    encoder: Encoder = None,
    running: Checking = Running(),
) -> "list[PairVerdict] | Summary | DocumentCheck | None":
    """Find omissions, additions and errors in translations.

    Each line gets a probability of any error, `wrong`, and one for each kind of error: `omission`; `addition`;
    `repeats` (the target repeats itself); `unrelated` (it translates something else); and `changed` (a number,
    negation, name or placeholder differs). `wrong` is often the lowest, because it allows for how rare errors are. The
    words with an error are marked.

    A line is flagged if it breaks a rule (a number differs, a placeholder is missing), or if the probability of any
    error is above a threshold, the alarm. About 1 in 100 correct lines is above it.

    The lines are judged by a word aligner (MODEL), a multilingual encoder (--encoder), or both. An aligner is prepared
    once with `attncal check learn`; deen and ende are ready. An encoder needs no preparation; a warning appears if it
    does not cover the languages.

    `attncal check compare` compares two systems. `attncal check test` measures how many planted errors are found.

    Examples:
        attncal check deen text.de text.en --format marked
        attncal check MODEL text.de text.en --format marked --worst 50
        attncal check MODEL text.de text.en --format summary
        attncal check --source text.de --target text.en --encoder auto
        attncal check MODEL manual.en.md manual.de.md
        attncal check --source po/fr.po --encoder auto
        attncal check MODEL po/de.po --format html --output review.html
        attncal check MODEL po/de.po --format sarif --fail-above 0.8 --output findings.sarif

        >>> verdicts = hf_attncal.check("deen", ["Er kam nicht."], ["He came."])

    Args:
        model: deen (German-English) or ende (English-German), which are in the package; or the folder or Hub name of a
            word aligner. In Python also a WordAligner or a Checker. [default: only the encoder checks]
        source: source sentences, one per line; plain or .gz; or a document: JSON, Markdown, SRT, VTT, or a
            file with both languages (PO, XLIFF, CSV, TSV). If there is no MODEL, it must be given as --source
        target: translations, one per line; or the translated document, whose segments are first paired with the
            source's [default: the other language of a file with both]
        output: output file, compressed if its name ends with .gz; FILE.partial until complete
        format: tsv: line number, the probabilities, the kinds of errors that are flagged, the names of errors, and
            both sides; json: one object per line, with words and spans; marked: both sides with [-omissions-] and
            {+additions+}; html: a page with the same marks; kept: both sides of the lines that are not flagged,
            separated by a tab; summary: shares of the whole text; sarif: findings for code scanning; notes: a copy of
            the document with findings as comments (PO, XLIFF, VTT). For documents, tsv and json have one finding per
            line, and marked has three lines per finding [default: tsv for lines, marked for documents]
        worst: number of lines (of documents: findings) to write, those with the most probable errors first [default:
            all, in the order of the text]
        bootstrap: number of bootstrap resamples of the lines for 95 % intervals of a summary; 0 for none
        alarm: probability of any error above which a line is flagged, even if it breaks no rule [default: the alarm
            learned from clean text, or a higher one if this text is of another kind; -v prints it]
        columns: columns of the source and the translation in CSV or TSV, by name or number from 1, such as en,de
            [default: columns named by languages, or source and target]
        fail_above: exit with status 1 if any finding is more probable than this (lines of text are then checked like
            a document); if the command fails, the status is 2 [default: findings do not change the status]
        dismiss: file of findings to ignore (ids, or lines of an earlier run), matched by content [default: none]
        encoder: multilingual encoder, a folder or Hub name, or auto for intfloat/multilingual-e5-small [default: none]
        running: device, precision and limits of the run

    Returns:
        Without `output`, a `PairVerdict` for each line, with its number; with `format="summary"` a `Summary`; of
        documents a `DocumentCheck`.

    Raises:
        CommandError: an aligner that cannot be used or has not learned a check, a line that cannot be read, or a
            finding above `fail_above`.
    """
    from hf_attncal.checking.documents.document_formats import is_document
    from hf_attncal.checking.documents.findings import errors_exit_apart

    check_range("--worst", worst, 1)
    check_range("--bootstrap", bootstrap, 0)
    check_range("--alarm", alarm, 0, 1)
    if source is None:
        raise CommandError("--source must be given: a text or a document.")
    if not (is_document(source, target) or format in ("sarif", "notes") or {fail_above, dismiss, columns} != {None}):
        return _check_lines(model, source, target, running, output, format or "tsv", worst, bootstrap, alarm, encoder)
    form = format or "marked"
    with errors_exit_apart(fail_above):
        check_range("--fail-above", fail_above, 0, 1)
        return _check_documents(
            model, source, target, running, output, form, worst, columns, fail_above, dismiss, alarm, encoder
        )


def _check_lines(model, source, target, running, output, form, worst, bootstrap, alarm, encoder) -> Any:
    """Check lines of text; the arguments as in `check`."""
    if target is None:
        raise CommandError("--target must be given: the translations of --source.")
    check_files(files_among(source, target), {"--output": output}, standard=False)
    from hf_attncal.checking.checked_text import checked_lines, known_verdicts, lines_of_verdicts, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder, alarm)
    if form == "summary":
        from hf_attncal.checking.check_summary import count_faults, summarize_counts

        with user_errors():
            counts = count_faults(known_verdicts(checker, source, target, running, form))
            return written(summarize_counts(checker, counts, bootstrap), output)
    verdicts = checked_lines(checker, source, target, running, form, worst=worst)
    if output is None:
        return list(verdicts)
    names = (os.path.basename(text_name(source, "source")), os.path.basename(text_name(target, "target")))
    with output_lines(os.fspath(output)) as file:
        write_lines(file, lines_of_verdicts(verdicts, form, names))
    return None


def _check_documents(
    model, source, target, running, output, form, worst, columns, fail_above, dismiss, alarm, encoder
) -> "DocumentCheck | None":
    """Check documents and write the findings; the arguments as in `check`.

    Raises:
        FindingsError: a finding is more probable than `fail_above`.
    """
    for option, value in (("--source", source), ("--target", target)):
        if not (value is None or isinstance(value, str | os.PathLike)):
            raise CommandError(f"{option} must be the name of a document.")
    from hf_attncal.checking.documents.document_formats import LINES, format_of
    from hf_attncal.checking.documents.findings import dismissed_ids, raise_above

    if form == "kept" and worst is not None:
        raise CommandError(
            "--worst chooses findings, and --format kept writes the segments without one: give one of them."
        )
    row = format_of(source)
    if row is None and target is None:
        raise CommandError("--target must be given: the translations of --source.")
    names = [os.fspath(name) for name in (source, target, dismiss) if name is not None]
    check_files(names, {"--output": output}, standard=False)
    dismissed = frozenset() if dismiss is None else dismissed_ids(dismiss)
    from hf_attncal.checking.checker import open_checker
    from hf_attncal.checking.documents.check_documents import check_documents, check_notes

    if form == "notes":
        check_notes(row or LINES, os.fspath(source if target is None else target))
    checker = open_checker(model, running, encoder, alarm)
    result = check_documents(checker, source, target, running, worst=worst, dismissed=dismissed, columns=columns)
    if output is not None:
        content = result.form(form)
        with output_lines(os.fspath(output)) as file:
            file.write(content)
            file.flush()
    raise_above(result.findings, fail_above)
    return result if output is None else None
