"""`attncal check`: what a translation left out and what it made up."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least
from hf_attncal.io.streams import (
    LONGEST_LINE,
    check_files,
    files_among,
    is_file,
    output_lines,
    text_name,
    write_lines,
)

from .kinds import STANDARD, Encoder, File, Files, Loaded, Output, Text

if TYPE_CHECKING:
    from hf_attncal.checking.check_learning import LearnedCheck
    from hf_attncal.checking.check_self_test import SelfTest
    from hf_attncal.checking.check_summary import Comparison, Summary
    from hf_attncal.checking.checker import PairVerdict
    from hf_attncal.checking.documents.check_documents import DocumentCheck

GROUPS = {
    "What good pairs look like": ("clean_source", "clean_target"),
    "Of the whole text": ("bootstrap", "compare_with", "self_test", "false_alarms"),
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
    compare_with: Text | None = None,
    self_test: bool = False,
    false_alarms: str | None = None,
    fail_above: float | None = None,
    dismiss: File | None = None,
    encoder: Encoder = None,
    clean_source: Files | None = None,
    clean_target: Files | None = None,
    running: Running = Running(),
) -> "list[PairVerdict] | Summary | Comparison | SelfTest | LearnedCheck | DocumentCheck | None":
    """Tell what a translation left out and what it made up.

    A word aligner, a pretrained encoder, or both give for each line the probability that anything is wrong, that words
    of the source were left out, that the target says what the source does not, that it repeats itself, that it is no
    translation at all, and that a number, a negation, a name or a placeholder was changed, and the words that say so.
    What good pairs look like to an aligner is learned once from clean text, best from what it was trained on, and kept
    in check.json beside it. An encoder needs no text, and says where it does not know the languages.

    Examples:
        attncal check deen --source text.de --target text.en --format marked
        attncal check MODEL --clean-source train.de --clean-target train.en
        attncal check MODEL --source text.de --target text.en --format marked --worst 50
        attncal check --source text.de --target text.en --encoder
        attncal check MODEL --source text.de --target text.en --format summary
        attncal check MODEL --source text.de --target ours.en --compare-with theirs.en
        attncal check MODEL --source clean.de --target clean.en --self-test
        attncal check MODEL book.en.md book.de.md
        attncal check MODEL po/de.po --format sarif --fail-above 0.9 --output findings.sarif

    Args:
        model: deen or ende (German and English, in the package); or folder or Hub name of a word aligner; in Python
            also a WordAligner or a Checker; without it, the encoder alone
        source: source sentences, one a line; plain, .gz, .xz or .zst; or a document: Markdown, SRT, VTT,
            or a file with both languages (PO, XLIFF, CSV, TSV); without it, nothing is
            checked
        target: their translations, as many lines, or the translated document, whose segments are paired first; not
            without the source
        output: written as FILE.partial and renamed when it is complete, compressed as its name says; without it,
            standard output
        format: tsv: number of the line, the six probabilities, what is flagged, what can be told by name; json: one
            object a line, with words and spans; marked: both sides with [-left out-] and {+made up+}; html: a page
            with the same; kept: both sides of the lines that are not flagged, parted by a tab; summary: shares of
            the whole text; sarif: findings for code scanning; notes: the
            document with findings as its comments. Of documents, tsv and json have a finding a line
        worst: write so many lines, or findings, the worst first; without it, all in their order
        bootstrap: resamples of the lines for 95 % intervals and tests; 0 for none
        compare_with: translations of the same sources by another system: a summary of both, and by how much the
            target has more or fewer faults, with a paired test; without it, one system is checked
        self_test: take the texts for clean: plant errors into them, and tell how many are found
        false_alarms: share of right lines that may be flagged, such as 1%: sets the alarm on the text, which needs no
            labels and may have faults; without it, the alarm of the clean text is used
        fail_above: exit with status 1 if a finding has a probability above this, with 2 on any error; without it, 0 is
            for findings, too
        dismiss: findings that are right all the same, as lines of tsv or json; they are not told again, wherever they
            move; without it, all are told
        encoder: a pretrained encoder that judges, too: intfloat/multilingual-e5-small or what was tuned from it, a
            folder or a name on the Hub; alone, that one; without it, none
        clean_source: clean text to learn from, one sentence a line; without it, what check.json says is used
        clean_target: its translations, as many files and lines; not without --clean-source
        running: how it runs

    Returns:
        In Python, without `output`: a `PairVerdict` for each line, with its number; with `format="summary"` a
        `Summary`, with `compare_with` a `Comparison`, with `self_test` a `SelfTest`; where only `clean_source` is
        given, a `LearnedCheck`; of a document a `DocumentCheck`. Printed, each but the verdicts is what the command
        writes.

    Raises:
        CommandError: options that do not go together, an aligner that cannot be used or for which nothing was
            learned, a line that cannot be read, or a finding above `fail_above`.
    """
    from hf_attncal.checking.documents.document_formats import is_document
    from hf_attncal.checking.documents.job import check_document_files, status_of_errors

    if is_document(source, target) or fail_above is not None or dismiss is not None or format in ("sarif", "notes"):
        lines_only = {
            "--compare-with": compare_with,
            "--self-test": self_test or None,
            "--clean-source": clean_source,
            "--false-alarms": false_alarms,
        }
        with status_of_errors(fail_above):
            return check_document_files(
                model, source, target, running, output, format, fail_above, dismiss, lines_only,
                worst=worst, bootstrap=bootstrap, encoder=encoder,
            )  # fmt: skip
    at_least("--worst", worst, 1)
    at_least("--bootstrap", bootstrap, 0)
    share = None if false_alarms is None else _share(false_alarms)
    sources, targets = _files(clean_source), _files(clean_target)
    alone = next((name for name, given in (("--self-test", self_test), ("--worst", worst is not None)) if given), None)
    alone = alone or (None if format in ("tsv", "summary") else f"--format {format}")
    for wrong, message in (
        ((source is None) != (target is None), "--source and --target go together: give both."),
        (bool(sources) != bool(targets), "--clean-source and --clean-target go together: give both."),
        (
            len(sources) != len(targets),
            f"--clean-source has {len(sources)} files and --clean-target has {len(targets)}. Give as many of each.",
        ),
        (
            source is None and compare_with is not None,
            "--compare-with needs the sources and the other translations: give --source and --target.",
        ),
        (
            source is None and not sources,
            "There is nothing to do: give --source and --target, or --clean-source and --clean-target.",
        ),
        (
            compare_with is not None and alone,
            f"--compare-with gives a summary of two systems and takes no {alone}. Leave out one.",
        ),
        (
            compare_with is not None and bootstrap == 0,
            "--compare-with tests by resamples of the lines: give --bootstrap of at least 1.",
        ),
        (
            compare_with is not None and is_file(source) and not os.path.isfile(source),
            f"--compare-with reads {source} twice, so it must be a file, not a pipe.",
        ),
        (
            format == "kept" and worst is not None,
            "--format kept writes the lines that are not flagged, and --worst the others: leave out one.",
        ),
        (
            source is None and false_alarms is not None,
            "--false-alarms sets the alarm on what is checked: give --source and --target.",
        ),
        (
            source is None and output not in (None, STANDARD),
            "--output is for what is checked: give --source and --target, or leave it out.",
        ),
        (
            model is None and encoder is None,
            "There is nothing to check with: give MODEL, a word aligner, or --encoder.",
        ),
        (
            model is None and bool(sources),
            "--clean-source is what an aligner learns from: give MODEL, or leave it out.",
        ),
        (
            sources and is_file(model) and not os.path.isdir(model) and os.path.lexists(model),
            f"{model} is a file, and check.json goes into the folder of an aligner.",
        ),
    ):
        if wrong:
            raise CommandError(message)
    texts = [text for text in (source, target, compare_with) if text is not None]
    check_files(files_among(*texts, *sources, *targets), {"--output": output and os.fspath(output)}, standard=False)
    from hf_attncal.alignment.opening import check_encoder
    from hf_attncal.checking.opening import aligner_to_check, open_checker
    from hf_attncal.inference.opening import fetched

    check_encoder(encoder)
    if model is not None:
        model = fetched(model, running)
    aligner, name = (None, None) if model is None else aligner_to_check(model, running)
    from hf_attncal.checking.checked_text import checked_text, lines_of_verdicts

    if sources:
        from hf_attncal.checking.check_learning import learn_check_beside

        learned = learn_check_beside(aligner, name, sources, targets, running.longest_line or LONGEST_LINE)
        if source is None:
            return learned
        if output is not None:
            print(learned, flush=True)
    known = hasattr(model, "aligner") and not sources
    checker = open_checker(model if known else name, running, aligner, encoder)
    with nullcontext() if output is None else output_lines(os.fspath(output)) as file:
        asked = {"worst": worst, "bootstrap": bootstrap, "false_alarms": share}
        found = checked_text(
            checker, source, target, running, format, compare_with=compare_with, self_test=self_test, **asked
        )
        verdicts = isinstance(found, Iterator)
        if file is None:
            return list(found) if verdicts else found
        names = (os.path.basename(text_name(source, "source")), os.path.basename(text_name(target, "target")))
        write_lines(file, lines_of_verdicts(found, format, names) if verdicts else str(found).splitlines())
    return None


def _share(text: str | float) -> float:
    """Return the share that a text such as 1% or 0.01 stands for."""
    try:
        return float(str(text).removesuffix("%")) / (100 if str(text).endswith("%") else 1)
    except ValueError:
        raise CommandError(f"--false-alarms must be a share such as 1% or 0.01, got {text!r}.") from None


def _files(files: Any) -> list[str]:
    return [] if files is None else [os.fspath(file) for file in ([files] if is_file(files) else files)]
