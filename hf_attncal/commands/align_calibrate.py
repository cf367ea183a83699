"""`attncal align calibrate`: scores of links become probabilities that the links are right."""

from dataclasses import replace
from typing import TYPE_CHECKING

from hf_attncal.alignment.aligner_opening import open_aligner
from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import user_errors
from hf_attncal.io.streams import check_readable, files_among, read_sides

from .kinds import FolderBeside, Model, Text

if TYPE_CHECKING:
    from hf_attncal.alignment.gold import Calibration


def calibrate(
    model: Model,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text,
    output: FolderBeside | None = None,
    running: Running = Running(),
) -> "Calibration":
    """Turn the scores of links into probabilities that the links are right.

    Learn from annotated pairs how likely a link is to be right, given its score (Platt scaling), and write that to
    link_probabilities.json, which `attncal align run` and `WordAligner` read: from then on, scores are probabilities.
    The links stay the same. A link counts as right if people have drawn it as a sure or as a possible one. What is
    printed, and goes into the model card with a diagram, says how far scores and probabilities are from the truth; the
    probabilities are cross-validated.

    Examples:
        attncal align calibrate MODEL --source dev.en --target dev.de --gold dev.align

    Args:
        model: folder or Hub name of a word aligner, an encoder-decoder or an adapter
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: target sentences, as many lines
        gold: their links in Pharaoh format, counted from 0; `p` or `?` marks a possible one
        output: folder for link_probabilities.json; without it, that of the model
        running: how the model runs

    Returns:
        The rules, and how good scores and probabilities are; printed, it is a table.

    Raises:
        CommandError: a file or the model cannot be read, or there is too little to learn from.
    """
    check_readable(*files_among(source, target, gold))
    model = fetched(model, running)
    folder = folder_beside(model, output, "link_probabilities.json")
    pairs = list(zip(*read_sides(source, target, running.longest_line), strict=True))
    aligner = open_aligner(model, running, raw_scores=True)
    from hf_attncal.alignment.gold import calibrate_links
    from hf_attncal.data.annotated_pairs import Gold, gold_links

    with user_errors():
        calibration = calibrate_links(aligner, Gold(pairs, gold_links(gold, pairs)), bootstrap=1000)
    return replace(calibration, path=calibration.save(folder, model))
