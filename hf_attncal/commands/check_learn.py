"""`attncal check learn`, `check compare` and `check test`: what good pairs look like, two systems, planted errors."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least, user_errors
from hf_attncal.io.streams import LONGEST_LINE, check_files, files_among, is_file, text_name

from .kinds import Encoder, Files, Loaded, Output, Text, file_names

if TYPE_CHECKING:
    from hf_attncal.checking.check_learning import LearnedCheck
    from hf_attncal.checking.check_self_test import SelfTest
    from hf_attncal.checking.check_summary import Comparison


def check_learn(model: Loaded, *, source: Files, target: Files, running: Running = Running()) -> "LearnedCheck":
    """Learn from clean text what good pairs look like to a word aligner, for `attncal check`.

    Once for each aligner, best from the text that it was trained on. The result is check.json in its folder.

    Examples:
        attncal check learn MODEL --source train.de --target train.en

    Args:
        model: folder of a word aligner; in Python also a WordAligner that was loaded from one
        source: clean source sentences, one a line; several files are read one after the other
        target: their translations, as many files and lines
        running: how it runs

    Returns:
        A `LearnedCheck`: the `path` of the file, and how many `pairs` it was learned from.

    Raises:
        CommandError: an aligner that cannot be used, no folder of yours, a line that cannot be read, or too few pairs.
    """
    sources, targets = file_names(source), file_names(target)
    if len(sources) != len(targets):
        raise CommandError(f"--source has {len(sources)} files, --target has {len(targets)}: give as many of each.")
    if is_file(model) and not os.path.isdir(model) and os.path.lexists(model):
        raise CommandError(f"{model} is a file, and check.json goes into the folder of an aligner.")
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


def check_test(
    model: Loaded | None = None,
    *,
    source: Text,
    target: Text,
    output: Output = None,
    encoder: Encoder = None,
    running: Running = Running(),
) -> "SelfTest | None":
    """Measure how many errors planted into clean text `attncal check` finds.

    Errors of many kinds are planted, and the table says of each how many are found, and which kinds are missed.

    Examples:
        attncal check test MODEL --source clean.de --target clean.en

    Args:
        model: word aligner, as of `attncal check`; without it, the encoder alone
        source: clean source sentences, one a line, best other text than what was learned from
        target: their translations, as many lines
        output: the file for the table; without it, standard output
        encoder: as of `attncal check`; without it, none
        running: how it runs

    Returns:
        A `SelfTest`, if there is no `output`.

    Raises:
        CommandError: an aligner that cannot be used or for which nothing was learned, or a line that cannot be read.
    """
    check_files(files_among(source, target), {"--output": output}, standard=False)
    from hf_attncal.checking.check_self_test import plant_and_check
    from hf_attncal.checking.checked_text import read_pairs_to_check, written
    from hf_attncal.checking.checker import open_checker

    checker = open_checker(model, running, encoder)
    with user_errors():
        return written(plant_and_check(checker, list(read_pairs_to_check(source, target, running))), output)
