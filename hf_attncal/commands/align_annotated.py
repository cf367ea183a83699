"""`attncal align calibrate` and `align select`: what an aligner learns from a few annotated pairs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hf_attncal.alignment.aligner_opening import changes_of, open_aligner
from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable
from hf_attncal.io.streams import files_among, read_sides

from .kinds import FolderBeside, Model, Text, Values

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

        >>> print(hf_attncal.calibrate("aligner", "dev.en", "dev.de", gold="dev.align"))

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
    model, folder, pairs = _annotated(model, source, target, gold, output, "link_probabilities.json", running)
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
    running: Running = Running(),
) -> "RankedReadings":
    """Find the attention of an encoder-decoder that aligns best.

    Try every layer of a Marian- or BART-style checkpoint on annotated pairs: all heads, single heads and sets of
    heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att). The ten best are
    printed with their AER, and the first is written to alignment.json, which `attncal align run` reads.

    Examples:
        attncal align select MODEL --source dev.en --target dev.de --gold dev.align

        >>> print(hf_attncal.select("model", "dev.en", "dev.de", gold="dev.align"))

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter for one
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: target sentences, as many lines
        gold: their links in Pharaoh format, counted from 0
        output: folder for alignment.json; without it, that of the model
        read: what to read: weights=attention, contribution (of a calibrated model or adapter) or uam (of a model with
            its alignment module), and what the model wants in front of a source: source_prefix='>>deu<< '; without
            it, attention
        running: how the model runs

    Returns:
        All settings with their scores, the best first; printed, the ten best.

    Raises:
        CommandError: a file or the model cannot be read, or the model has no attention.
    """
    changes = changes_of(read)
    for name in ("layer", "heads", "shift"):
        if name in changes:
            raise CommandError(f"--read {name} is what is looked for: leave it out.")
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
    """Return the fetched model, the folder that `file` goes to, and the sentence pairs; `gold` can be read."""
    check_readable(*files_among(source, target, gold))
    model = fetched(model, running)
    folder = folder_beside(model, output, file)
    return model, folder, list(zip(*read_sides(source, target, running.longest_line), strict=True))
