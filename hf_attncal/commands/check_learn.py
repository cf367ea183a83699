"""`attncal check learn`, `check compare` and `check test`: learning, comparison of systems, planted errors."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors
from hf_attncal.io.streams import LONGEST_LINE, check_files, files_among, is_file, text_name

from .kinds import Checking, Encoder, Files, Learning, Loaded, Output, Preparing, Text, file_names

if TYPE_CHECKING:
    from hf_attncal.checking.check_learning import LearnedCheck
    from hf_attncal.checking.check_self_test import SelfTest
    from hf_attncal.checking.check_summary import Comparison


def check_learn(model: Loaded, *, source: Files, target: Files, running: Preparing = Running()) -> "LearnedCheck":
    """Prepare a word aligner for `attncal check`, from clean text.

    Correct translations are aligned as they are and with planted errors, to learn the difference. Run this once per
    aligner, preferably on its training text. It needs at least 50 pairs; some thousand are enough, and only a sample
    of a longer text is aligned. The result is check.json in the folder of the aligner, in place of an earlier one. The
    aligners in the package, deen and ende, are prepared already.

    Examples:
        attncal check learn MODEL --source train.de --target train.en

        >>> hf_attncal.check_learn("aligner", source="train.de", target="train.en").pairs

    Args:
        model: folder of a word aligner (from `attncal align train`), for check.json. In Python also a WordAligner that
            was loaded from one.
        source: source sentences, one per line; several files are read one after the other
        target: their correct translations, with as many files and lines as --source
        running: device, precision and limits of the run

    Returns:
        A `LearnedCheck`: the `path` of the file, and the number of `pairs` that it was learned from.

    Raises:
        CommandError: an aligner that cannot be used, a folder that is not yours, a line that cannot be read, or too
            few pairs.
    """
    sources, targets = file_names(source), file_names(target)
    if len(sources) != len(targets):
        raise CommandError(f"--source has {len(sources)} files, --target has {len(targets)}: they must match.")
    if is_file(model) and not os.path.isdir(model) and os.path.lexists(model):
        raise CommandError(f"{model} is a file. Give the folder of an aligner, where check.json goes.")
    check_files([*sources, *targets], {}, standard=False)
    from hf_attncal.checking.check_learning import learn_check_beside
    from hf_attncal.checking.checker import aligner_to_check

    aligner, name = aligner_to_check(model, running)
    return learn_check_beside(aligner, name, sources, targets, running.longest_line or LONGEST_LINE)


def check_compare(
    model: Loaded | None = None,
    *,
    source: Text,
    target: Text,
    other: Text,
    output: Output = None,
    bootstrap: int = 1000,
    encoder: Encoder = None,
    running: Checking = Running(),
) -> "Comparison | None":
    """Compare the errors of two translations of the same text.

    The table has the shares of lines and words with errors in both, as in the summary of `attncal check`. It has also
    the differences, --target minus --other, and their p-values by a paired bootstrap test. A negative difference means
    that --target has fewer errors. MODEL, --encoder or both must be given.

    Examples:
        attncal check compare MODEL --source text.de --target ours.en --other theirs.en

        >>> hf_attncal.check_compare("deen", source="text.de", target="ours.en", other="theirs.en").p_values

    Args:
        model: word aligner, as in `attncal check` [default: none]
        source: source sentences, one per line
        target: their translations by one system, one per line
        other: their translations by another system, one per line
        output: output file for the table
        bootstrap: number of bootstrap resamples of the lines for 95 % intervals and tests, at least 1
        encoder: multilingual encoder, as in `attncal check` [default: none]
        running: device, precision and limits of the run

    Returns:
        A `Comparison`, without `output`.

    Raises:
        CommandError: an aligner that cannot be used or has not learned a check, or a line that cannot be read.
    """
    check_range("--bootstrap", bootstrap, 1)
    check_files(files_among(source, target, other), {"--output": output}, standard=False)
    if isinstance(source, str | os.PathLike) and not os.path.isfile(source):
        raise CommandError(f"{source} is read twice. Give a file, not a pipe.")
    from hf_attncal.checking.check_summary import compare_counts, count_faults
    from hf_attncal.checking.checked_text import known_verdicts, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder)
    names = text_name(target, "target"), text_name(other, "other")
    with user_errors():
        first, second = (  # with the same alarms
            count_faults(known_verdicts(checker, source, text, running, "summary", sample=0))
            for text in (target, other)
        )
        return written(compare_counts(checker, first, second, bootstrap, names=names), output)


def check_test(
    model: Loaded | None = None,
    *,
    source: Text,
    target: Text,
    output: Output = None,
    encoder: Encoder = None,
    running: Learning = Running(),
) -> "SelfTest | None":
    """Measure how many planted errors `attncal check` finds.

    Errors are planted into correct translations, one at a time: omissions, insertions, changed numbers, dropped
    negations, and more. For each kind of error, the table has the number of long and of short lines with it, and the
    share of them that is flagged. Its last row is for the clean lines. Below the table are the kinds of errors that
    are mostly missed. MODEL, --encoder or both must be given.

    Examples:
        attncal check test MODEL --source clean.de --target clean.en

        >>> print(hf_attncal.check_test("deen", source="clean.de", target="clean.en"))

    Args:
        model: word aligner, as in `attncal check` [default: none]
        source: source sentences, one per line, preferably not from the text of `attncal check learn`
        target: their correct translations, one per line
        output: output file for the table
        encoder: multilingual encoder, as in `attncal check` [default: none]
        running: device, precision and limits of the run

    Returns:
        A `SelfTest`, without `output`.

    Raises:
        CommandError: an aligner that cannot be used or has not learned a check, or a line that cannot be read.
    """
    check_files(files_among(source, target), {"--output": output}, standard=False)
    from hf_attncal.checking.check_self_test import plant_and_check
    from hf_attncal.checking.checked_text import read_pairs_to_check, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder)
    with user_errors():
        return written(plant_and_check(checker, list(read_pairs_to_check(source, target, running))), output)
