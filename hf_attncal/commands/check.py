"""`attncal check`: omissions, additions and errors in translations, line by line or in documents."""

import os
from typing import TYPE_CHECKING, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least
from hf_attncal.io.streams import check_files, files_among, output_lines, text_name, write_lines

from .kinds import Encoder, File, Loaded, Output, Text

if TYPE_CHECKING:
    from hf_attncal.checking.check_summary import Summary
    from hf_attncal.checking.documents.check_documents import DocumentCheck
    from hf_attncal.checking.verdicts import PairVerdict

GROUPS = {
    "Of lines of text": ("false_alarms", "bootstrap"),
    "Of documents": ("fail_above", "dismiss"),
}


def check(
    model: Loaded | None = None,
    source: Text | None = None,
    target: Text | None = None,
    *,
    output: Output = None,
    format: Literal["tsv", "json", "marked", "html", "kept", "summary", "sarif", "notes"] = "tsv",
    worst: int | None = None,
    bootstrap: int = 1000,
    false_alarms: str | None = None,
    fail_above: float | None = None,
    dismiss: File | None = None,
    encoder: Encoder = None,
    running: Running = Running(),
) -> "list[PairVerdict] | Summary | DocumentCheck | None":
    """Find omissions, additions and errors in translations.

    A word aligner, a pretrained encoder, or both give for each line the probability that anything is wrong, that words
    of the source were left out, that the target says what the source does not, that it repeats itself, that it is no
    translation at all, and that a number, a negation, a name or a placeholder was changed, and the words that say so.
    An aligner first learns once from clean text what good pairs look like (`attncal check learn`). An encoder needs no
    text, and says where it does not know the languages. Two systems are compared by `attncal check compare`, and
    `attncal check test` measures how many planted errors are found.

    Examples:
        attncal check deen --source text.de --target text.en --format marked
        attncal check MODEL --source text.de --target text.en --format marked --worst 50
        attncal check --source text.de --target text.en --encoder auto
        attncal check MODEL --source text.de --target text.en --format summary
        attncal check MODEL manual.en.md manual.de.md
        attncal check MODEL po/de.po --format sarif --fail-above 0.9 --output findings.sarif

    Args:
        model: deen or ende (German and English, in the package); or folder or Hub name of a word aligner; in Python
            also a WordAligner or a Checker; without it, the encoder alone
        source: source sentences, one a line; plain, .gz, .xz or .zst; or a document: Markdown, SRT, VTT,
            or a file with both languages (PO, XLIFF, CSV, TSV); not without a text
        target: their translations, as many lines, or the translated document, whose segments are paired first; not
            without it, but for a file with both languages
        output: written as FILE.partial and renamed when it is complete, compressed as its name says; without it,
            standard output
        format: tsv: number of the line, the six probabilities, what is flagged, what can be told by name; json: one
            object a line, with words and spans; marked: both sides with [-left out-] and {+made up+}; html: a page
            with the same; kept: both sides of the lines that are not flagged, parted by a tab; summary: shares of
            the whole text; sarif: findings for code scanning; notes: the document with findings as its comments. Of
            documents, tsv and json have a finding a line
        worst: write so many lines, or findings, the worst first; without it, all in their order
        bootstrap: resamples of the lines for 95 % intervals of a summary; 0 for none
        false_alarms: share of right lines that may be flagged, such as 1%: sets the alarm on the text, which needs no
            labels and may have faults; without it, the alarm of the clean text is used
        fail_above: exit with status 1 if a finding has a probability above this, with 2 on any error; without it, 0 is
            for findings, too
        dismiss: findings that are right all the same, as lines of tsv or json; they are not told again, wherever they
            move; without it, all are told
        encoder: a pretrained encoder that judges, too: auto (intfloat/multilingual-e5-small) or what was tuned from
            it, a folder or a name on the Hub; without it, none
        running: how it runs

    Returns:
        In Python, without `output`: a `PairVerdict` for each line, with its number; with `format="summary"` a
        `Summary`; of documents a `DocumentCheck`.

    Raises:
        CommandError: an aligner that cannot be used or for which nothing was learned, a line that cannot be read, or
            a finding above `fail_above`.
    """
    from hf_attncal.checking.documents.document_formats import is_document
    from hf_attncal.checking.documents.findings import errors_exit_apart

    at_least("--worst", worst, 1)
    at_least("--bootstrap", bootstrap, 0)
    if source is None:
        raise CommandError("--source must be given: a text, or a document.")
    if not (is_document(source, target) or format in ("sarif", "notes") or (fail_above, dismiss) != (None, None)):
        return _check_lines(model, source, target, running, output, format, worst, bootstrap, false_alarms, encoder)
    if false_alarms is not None:
        raise CommandError("--false-alarms is for lines of text, and this checks documents: leave it out.")
    with errors_exit_apart(fail_above):
        at_least("--fail-above", fail_above, 0, 1)
        return _check_documents(model, source, target, running, output, format, worst, fail_above, dismiss, encoder)


def _check_lines(model, source, target, running, output, form, worst, bootstrap, false_alarms, encoder) -> Any:
    """Check lines of text; arguments are those of `check`."""
    if target is None:
        raise CommandError("--target must be given, too: the translations of --source.")
    check_files(files_among(source, target), {"--output": output}, standard=False)
    from hf_attncal.checking.checked_text import checked_lines, lines_of_verdicts, with_false_alarms, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder)
    if false_alarms is not None:
        checker = with_false_alarms(checker, source, target, running, false_alarms)
    if form == "summary":
        from hf_attncal.checking.check_summary import summarized_text

        return written(summarized_text(checker, source, target, running, bootstrap), output)
    verdicts = checked_lines(checker, source, target, running, form, worst=worst, as_learned=false_alarms is None)
    if output is None:
        return list(verdicts)
    names = (os.path.basename(text_name(source, "source")), os.path.basename(text_name(target, "target")))
    with output_lines(os.fspath(output)) as file:
        write_lines(file, lines_of_verdicts(verdicts, form, names))
    return None


def _check_documents(
    model, source, target, running, output, form, worst, fail_above, dismiss, encoder
) -> "DocumentCheck | None":
    """Check documents, write the findings, and raise FoundError for one above the bar; arguments as of `check`."""
    for option, value in (("--source", source), ("--target", target)):
        if not (value is None or isinstance(value, str | os.PathLike)):
            raise CommandError(f"{option} must be the name of a document.")
    if model is None:
        raise CommandError("Documents are paired by a word aligner: give MODEL before them; --encoder judges, too.")
    from hf_attncal.checking.documents.document_formats import LINES, format_of
    from hf_attncal.checking.documents.findings import dismissed_ids, raise_above

    row = format_of(source)
    if row is None and target is None:
        raise CommandError("--target must be given, too: the translations of --source.")
    names = [os.fspath(name) for name in (source, target, dismiss) if name is not None]
    check_files(names, {"--output": output}, standard=False)
    dismissed = frozenset() if dismiss is None else dismissed_ids(dismiss)
    from hf_attncal.checking.checker import open_checker
    from hf_attncal.checking.documents.check_documents import check_documents, check_notes

    if form == "notes":
        check_notes(row or LINES, os.fspath(source if target is None else target))
    checker = open_checker(model, running, encoder)
    found = check_documents(checker, source, target, running, worst=worst, dismissed=dismissed)
    if output is not None:
        content = found.form(form)
        with output_lines(os.fspath(output)) as file:
            file.write(content)
            file.flush()
    raise_above(found.findings, fail_above)
    return found if output is None else None
