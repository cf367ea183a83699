"""The job of `attncal check` on documents: options, outputs, and the exit status for continuous integration."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least
from hf_attncal.io.streams import check_files, output_lines

from .document_formats import format_of
from .findings import DocumentFinding, dismissed_ids

_ERROR_STATUS = 2  # of an error where 1 means findings


class FoundError(CommandError):
    """There are findings above the bar.

    Args:
        message: how many, and the first.
        findings: these.
    """

    def __init__(self, message: str, findings: tuple[DocumentFinding, ...]):
        super().__init__(message)
        self.findings = findings
        self.exit_status = 1


@contextmanager
def status_of_errors(fail_above: float | None) -> Iterator[None]:
    """Give errors another exit status than findings, where findings have one."""
    try:
        yield
    except Exception as error:
        if fail_above is not None and not hasattr(error, "exit_status"):
            error.exit_status = _ERROR_STATUS
        raise


def check_document_files(
    model: Any,
    source: Any,
    target: Any,
    running: Running,
    output: Any,
    form: str,
    fail_above: float | None,
    dismiss: Any,
    others: Mapping[str, Any],
    *,
    worst: int | None,
    bootstrap: int,
    encoder: Any,
):
    """Check documents as `attncal check` does, write what it found, and fail where a finding is above the bar.

    Args:
        model, source, target, running, output, form, fail_above, dismiss, worst, bootstrap, encoder: options of the
            command.
        others: options that do not go with documents; None where not given.

    Returns:
        A `DocumentCheck`, where there is no output.

    Raises:
        CommandError: wrong options, or see `check_documents`. FoundError: a finding is above the bar.
    """
    at_least("--fail-above", fail_above, 0, 1)
    at_least("--worst", worst, 1)
    at_least("--bootstrap", bootstrap, 0)
    for option, value in others.items():
        if value is not None:
            raise CommandError(f"{option} is for lines of text, and this checks documents: leave it out.")
    for option, value in (("--source", source), ("--target", target)):
        if (value is None and option == "--source") or not (value is None or isinstance(value, str | os.PathLike)):
            raise CommandError(f"{option} must be the name of a document.")
    if model is None:
        raise CommandError(
            "Documents are paired by a word aligner: give MODEL before them; --encoder then judges, too."
        )
    row = format_of(source)
    if row is None and target is None:
        raise CommandError("--source and --target go together: give both.")
    names = [os.fspath(name) for name in (source, target, dismiss) if name is not None]
    check_files(names, {"--output": output and os.fspath(output)}, standard=False)
    dismissed = frozenset() if dismiss is None else dismissed_ids(dismiss)
    from ..opening import open_checker
    from .check_documents import check_documents, check_notes
    from .document_formats import LINES

    if form == "notes":
        check_notes(row or LINES, os.fspath(source if target is None else target))
    from hf_attncal.inference.opening import fetched

    checker = open_checker(model and fetched(model, running), running, encoder=encoder)
    found = check_documents(checker, source, target, running, worst=worst, bootstrap=bootstrap, dismissed=dismissed)
    if output is not None:
        written = found.form(form)
        with output_lines(os.fspath(output)) as file:
            file.write(written)
            file.flush()
    above = () if fail_above is None else tuple(one for one in found.findings if one.probability > fail_above)
    if above:
        first = above[0]
        raise FoundError(
            f"{len(above)} finding{'s' * (len(above) > 1)} above {fail_above}, the first at "
            f"{first.target or first.source}: {first.reason}", above,
        )  # fmt: skip
    return found if output is None else None
