"""`attncal align calibrate` and `align select`: fit an aligner to a few annotated pairs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable, read_pairs
from hf_attncal.io.streams import LONGEST_LINE, files_among, text_name, too_long

from .kinds import FolderBeside, Learning, Model, Text, Values

if TYPE_CHECKING:
    from hf_attncal.alignment.attention_heads import RankedReadings
    from hf_attncal.alignment.gold import Calibration


def calibrate(
    model: Model,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text,
    output: FolderBeside | None = None,
    running: Learning = Running(),
) -> "Calibration":
    """Turn the scores of links into probabilities that the links are right.

    Learn from annotated pairs how likely a link is to be right, given its score (Platt scaling), and write the result
    to link_probabilities.json. `attncal align run` and `WordAligner` read it: from then on, scores are probabilities.
    The links stay the same. A link is right if it is annotated as sure or possible. The calibration errors of scores
    and cross-validated probabilities are printed, and go into the model card.

    Examples:
        attncal align calibrate MODEL --source dev.en --target dev.de --gold dev.align

        >>> print(hf_attncal.calibrate("aligner", "dev.en", "dev.de", gold="dev.align"))

    Args:
        model: folder or Hub name of a word aligner, an encoder-decoder or an adapter
        source: source sentences, one per line; plain or .gz
        target: target sentences, one per line
        gold: annotated links in Pharaoh format, counted from 0; `p` or `?` marks a possible link
        output: folder for link_probabilities.json [default: the model's folder]
        running: device, batch size and limits of the model

    Returns:
        The rules and the calibration errors of scores and probabilities, which print as a table.

    Raises:
        CommandError: a file or the model cannot be read, or there is too little to learn from.
    """
    model, folder, pairs = _annotated(model, source, target, gold, output, "link_probabilities.json", running)
    from hf_attncal.alignment.aligner_opening import open_aligner

    aligner = open_aligner(model, running, raw_scores=True)
    from hf_attncal.alignment.gold import calibrate_links
    from hf_attncal.data.linked_pairs import Gold, gold_links

    with user_errors():
        calibration = calibrate_links(aligner, Gold(pairs, gold_links(gold, pairs)), bootstrap=1000)
    return replace(calibration, path=calibration.save(folder, model))


def select(
    model: Model,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text,
    output: FolderBeside | None = None,
    read: Values = None,
    running: Learning = Running(),
) -> "RankedReadings":
    """Find the layer and heads of a translation model whose attention aligns words best.

    Annotated pairs are aligned by the cross-attention of a Marian- or BART-style model, with many settings: all heads
    of each layer, and single heads, each with the attention of the decoder step that predicts the target word
    (Naive-Att), and of the next step, which has the word as input (Shift-Att); and the mean of several heads, if it is
    better by more than noise. The ten settings with the lowest alignment error rate (AER) are printed. The best one is
    written to alignment.json, which `attncal align run` and `attncal translate` then use.

    Examples:
        attncal align select MODEL --source dev.en --target dev.de --gold dev.align

        >>> print(hf_attncal.select("model", "dev.en", "dev.de", gold="dev.align"))

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter for one
        source: source sentences, one per line; plain or .gz
        target: target sentences, one per line
        gold: annotated links in Pharaoh format, between words separated by white space, counted from 0; `p` or `?`
            marks a possible link
        output: folder for alignment.json; needed if MODEL is a Hub name [default: the model's folder]
        read: weights=attention; weights=contribution, attention as weighed by the masks of a model or adapter with
            calibration; or weights=uam, the unsupervised alignment module of a model that was trained with one. Also
            source_prefix='>>deu<< ', a text to put before each source [default: weights=attention]
        running: device, batch size and limits of the model

    Returns:
        All settings with their scores, the best first. Printed, a table of the ten best.

    Raises:
        CommandError: a file or the model cannot be read, or the model has no attention.
    """
    from hf_attncal.alignment.aligner_settings import changes_of

    changes = changes_of(read)
    for name in ("layer", "heads", "shift"):
        if name in changes:
            raise CommandError(f"--read {name} is chosen by this command. Leave it out.")
    model, folder, pairs = _annotated(model, source, target, gold, output, "alignment.json", running)
    from hf_attncal.alignment.attention_heads import choose_reading, load_to_choose
    from hf_attncal.data.linked_pairs import gold_links

    with user_errors():
        links = gold_links(gold, pairs)
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        ranked = choose_reading(*load_to_choose(model, running), sources, targets, links, **changes)
    ranked[0][0].save(folder, model)
    return ranked


def _annotated(
    model: Model, source: Text, target: Text, gold: Text, output: FolderBeside | None, file: str, running: Running
) -> tuple[str, Path, list[tuple[str, str]]]:
    """Return the fetched model, the folder for `file`, and the sentence pairs; check that `gold` is readable.

    Raises:
        CommandError: an unreadable text, different numbers of lines, or a line that is too long.
    """
    check_readable(*files_among(source, target, gold))
    model = fetched(model, running)
    folder = folder_beside(model, output, file)
    longest = running.longest_line or LONGEST_LINE
    with user_errors():
        sides = read_pairs(source, target)
    for name, lines in zip((text_name(source, "source"), text_name(target, "target")), sides, strict=True):
        for number, line in enumerate(lines, start=1):  # work and memory grow with the square of the length
            if len(line.encode("utf-8", "surrogatepass")) > longest:
                raise CommandError(too_long(number, name, longest))
    return model, folder, list(zip(*sides, strict=True))
