"""`attncal check test`: how many planted errors the check finds."""

from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import user_errors
from hf_attncal.io.streams import check_files, files_among

from .kinds import Encoder, Loaded, Output, Text

if TYPE_CHECKING:
    from hf_attncal.checking.check_self_test import SelfTest


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
