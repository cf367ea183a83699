"""`attncal align select`: which attention of an encoder-decoder aligns best."""

from typing import TYPE_CHECKING

from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.streams import check_readable, files_among, read_sides

from .kinds import FolderBeside, Model, Text, Values

if TYPE_CHECKING:
    from hf_attncal.alignment.attention_heads import RankedReadings


def select(
    model: Model,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text,
    output: FolderBeside | None = None,
    lowercase: bool = False,
    read: Values = None,
    running: Running = Running(),
) -> "RankedReadings":
    """Find the attention of an encoder-decoder that aligns best.

    Try every layer of a Marian- or BART-style checkpoint on annotated pairs: all heads, single heads and sets of
    heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att). The ten best are
    printed with their AER, and the first is written to alignment.json, which `attncal align run` reads.

    Examples:
        attncal align select MODEL --source dev.en --target dev.de --gold dev.align

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter for one
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: target sentences, as many lines
        gold: their links in Pharaoh format, counted from 0
        output: folder for alignment.json; without it, that of the model
        lowercase: read the text in lower case
        read: what to read: weights=attention, contribution (of a calibrated model or adapter) or uam (of a model with
            its alignment module), and what the model wants in front of a source: source_prefix='>>deu<< '; without
            it, attention
        running: how the model runs

    Returns:
        All settings with their scores, the best first; printed, the ten best.

    Raises:
        CommandError: a file or the model cannot be read, or the model has no attention.
    """
    from hf_attncal.alignment.aligner_opening import changes_of

    changes = changes_of(read)
    for name in ("layer", "heads", "shift"):
        if name in changes:
            raise CommandError(f"--read {name} is what is looked for: leave it out.")
    check_readable(*files_among(source, target, gold))
    model = fetched(model, running)
    folder = folder_beside(model, output, "alignment.json")
    sides = read_sides(source, target, running.longest_line)
    from hf_attncal.alignment.attention_heads import choose_reading, load_to_choose
    from hf_attncal.data.annotated_pairs import gold_links

    with user_errors():
        links = gold_links(gold, list(zip(*sides, strict=True)))
        text = [[line.lower() for line in side] if lowercase else side for side in sides]
        ranked = choose_reading(*load_to_choose(model, running), *text, links, **changes)
    ranked[0][0].save(folder, model)
    return ranked
