"""`attncal align select`: which attention of an encoder-decoder, or which states of an encoder, align best."""

from typing import TYPE_CHECKING

from hf_attncal.data.streams import check_readable, files_among, read_sides
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running

from .kinds import FolderBeside, Model, Text, Values

if TYPE_CHECKING:
    from hf_attncal.alignment.selection import RankedReadings


def select(
    model: Model,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text | None = None,
    output: FolderBeside | None = None,
    lowercase: bool = False,
    read: Values = None,
    running: Running = Running(),
) -> "RankedReadings":
    """Find the attention of an encoder-decoder, or the states of an encoder, that align best.

    Try every layer of a Marian- or BART-style checkpoint on annotated pairs: all heads, single heads and sets of
    heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att); and the states of
    every layer of its encoder, with several thresholds. The ten best are printed with their AER, and the first is
    written to alignment.json, which `attncal align run` reads. An encoder alone (BERT, XLM-R, ...) has only its
    states. Without --gold, states are chosen on raw pairs: those on which both directions agree most, beyond what they
    agree on sentences that are no translations.

    Examples:
        attncal align select MODEL --source dev.en --target dev.de --gold dev.align
        attncal align select ENCODER --source text.en --target text.de --output FOLDER

    Args:
        model: folder or Hub name of an encoder-decoder, of an adapter for one, or of an encoder
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: target sentences, as many lines
        gold: their links in Pharaoh format, counted from 0; without it, states are chosen by agreement, on at most 500
            pairs
        output: folder for alignment.json; without it, that of the model
        lowercase: read the text in lower case
        read: what to read, and what the model wants beside its text: weights=attention, contribution (of a calibrated
            model or adapter), uam (of a model with its alignment module) or states, source_language=de,
            source_prefix='>>deu<< ', and the same of the target; without it, attention and states
        running: how the model runs

    Returns:
        All settings with their scores, the best first; printed, the ten best.

    Raises:
        CommandError: a file or the model cannot be read, or the model has nothing to choose from.
    """
    from hf_attncal.alignment.chosen_reading import changes_of

    changes = changes_of(read)
    for name in ("layer", "heads", "shift"):
        if name in changes:
            raise CommandError(f"--read {name} is what is looked for: leave it out.")
    check_readable(*files_among(source, target, gold))
    model = fetched(model, running)
    folder = folder_beside(model, output, "alignment.json")
    sides = read_sides(source, target, running.longest_line)
    from hf_attncal.alignment.selection import choose_reading, load_to_choose
    from hf_attncal.data.gold import gold_links
    from hf_attncal.data.languages import both_codes

    with user_errors():
        links = None if gold is None else gold_links(gold, list(zip(*sides, strict=True)))
        text = [[line.lower() for line in side] if lowercase else side for side in sides]
        loaded = load_to_choose(model, running)
        if running.languages is not None:
            changes = both_codes(loaded[1]) | changes
        ranked = choose_reading(*loaded, *text, links, **changes)
    ranked[0][0].save(folder, model)
    return ranked
