"""`attncal check compare`: the faults of two translations of the same text."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least, user_errors
from hf_attncal.io.streams import check_files, files_among, text_name

from .kinds import Encoder, Loaded, Output, Text

if TYPE_CHECKING:
    from hf_attncal.checking.check_summary import Comparison


def check_compare(
    model: Loaded | None = None,
    *,
    source: Text,
    target: Text,
    other: Text,
    output: Output = None,
    bootstrap: int = 1000,
    encoder: Encoder = None,
    running: Running = Running(),
) -> "Comparison | None":
    """Compare the faults of two translations of the same text.

    The summary of `attncal check` for both, and by how much the first has more or fewer faults than the second, with a
    paired test by resamples of the lines.

    Examples:
        attncal check compare MODEL --source text.de --target ours.en --other theirs.en

    Args:
        model: word aligner, as of `attncal check`; without it, the encoder alone
        source: source sentences, one a line
        target: their translations by one system, as many lines
        other: their translations by another, as many lines
        output: the file for the table; without it, standard output
        bootstrap: resamples of the lines for 95 % intervals and tests
        encoder: as of `attncal check`; without it, none
        running: how it runs

    Returns:
        A `Comparison`, if there is no `output`.

    Raises:
        CommandError: an aligner that cannot be used or for which nothing was learned, or a line that cannot be read.
    """
    at_least("--bootstrap", bootstrap, 1)
    check_files(files_among(source, target, other), {"--output": output}, standard=False)
    if isinstance(source, str | os.PathLike) and not os.path.isfile(source):
        raise CommandError(f"{source} is read twice, so it must be a file, not a pipe.")
    from hf_attncal.checking.check_summary import compare_counts, count_faults
    from hf_attncal.checking.checked_text import known_verdicts, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder)
    names = text_name(target, "target"), text_name(other, "other")
    with user_errors():
        first, second = (
            count_faults(known_verdicts(checker, source, text, running, "summary")) for text in (target, other)
        )
        return written(compare_counts(checker, first, second, bootstrap, names=names), output)
