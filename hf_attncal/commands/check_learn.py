"""`attncal check learn`: what good pairs look like to an aligner."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError
from hf_attncal.io.streams import LONGEST_LINE, check_files, is_file

from .kinds import Files, Loaded, file_names

if TYPE_CHECKING:
    from hf_attncal.checking.check_learning import LearnedCheck


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
