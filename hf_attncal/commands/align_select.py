"""`attncal align select`: which attention of an encoder-decoder, states of an encoder, or encoder aligns best."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.gate import check_folder, hold
from hf_attncal.io.streams import check_readable, files_among, read_sides

from .kinds import FolderBeside, Models, Text, Values

if TYPE_CHECKING:
    from hf_attncal.alignment.encoder_choice import ComparedEncoders
    from hf_attncal.alignment.selection import RankedReadings


def select(
    model: Models,
    /,
    source: Text,
    target: Text,
    *,
    gold: Text | None = None,
    output: FolderBeside | None = None,
    lowercase: bool = False,
    read: Values = None,
    running: Running = Running(),
) -> "RankedReadings | ComparedEncoders":
    """Find the attention of an encoder-decoder, the states of an encoder, or the encoder that align best.

    Try every layer of a Marian- or BART-style checkpoint on annotated pairs: all heads, single heads and sets of
    heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att); and the states of
    every layer of its encoder, with several thresholds. The ten best are printed with their AER, and the first is
    written to alignment.json, which `attncal align run` reads. An encoder alone (BERT, XLM-R, ...) has only its
    states. Without --gold, states are chosen on raw pairs: those on which both directions agree most, beyond what they
    agree on sentences that are no translations. Several encoders are compared by the same, as --encoder reads them.

    Examples:
        attncal align select MODEL --source dev.en --target dev.de --gold dev.align
        attncal align select ENCODER --source text.en --target text.de --output FOLDER
        attncal align select ENCODER ENCODER --source text.en --target text.de

    Args:
        model: folder or Hub name of an encoder-decoder, of an adapter for one, or of an encoder; or of several
            encoders
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: target sentences, as many lines
        gold: their links in Pharaoh format, counted from 0; without it, states are chosen by agreement, on at most 500
            pairs
        output: folder for alignment.json; without it, that of the model. Of several encoders it says which is taken:
            --encoder FOLDER takes it; without it, nothing is written
        lowercase: read the text in lower case
        read: what to read, and what the model wants beside its text: weights=attention, contribution (of a calibrated
            model or adapter), uam (of a model with its alignment module) or states, source_language=de,
            source_prefix='>>deu<< ', and the same of the target; without it, attention and states
        running: how the model runs

    Returns:
        All settings with their scores, the best first; printed, the ten best. Or all encoders, the best first.

    Raises:
        CommandError: a file or the model cannot be read, or the model has nothing to choose from.
    """
    from hf_attncal.alignment.chosen_reading import changes_of

    changes = changes_of(read)
    for name in ("layer", "heads", "shift"):
        if name in changes:
            raise CommandError(f"--read {name} is what is looked for: leave it out.")
    check_readable(*files_among(source, target, gold))
    if not isinstance(model, str | os.PathLike):
        names = [os.fspath(name) for name in model]
        return _select_encoder(names, source, target, gold, output, lowercase, read, running)
    model = fetched(model, running)
    folder = folder_beside(model, output, "alignment.json")
    sides = read_sides(source, target, running.longest_line)
    from hf_attncal.alignment.selection import choose_reading, load_to_choose
    from hf_attncal.data.annotated_pairs import gold_links
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


def _select_encoder(names, source, target, gold, output, lowercase, read, running) -> "ComparedEncoders":
    """Compare several encoders, and write which is taken; arguments as of `select`."""
    from hf_attncal.inference.names import check_name

    for option, value in (("--gold", gold), ("--read", read), ("--revision", running.revision)):
        if value:
            raise CommandError(f"{option} is for one model, got {len(names)}: leave it out, or name one.")
    if len(set(names)) < max(2, len(names)):
        raise CommandError(f"ENCODER must be two different ones or more, got {' '.join(names) or 'none'}.")
    try:
        for name in names:
            check_name(name)
    except OSError as error:
        raise CommandError(str(error)) from error
    if output is not None:
        check_folder(output)
        hold(output)
    sides = read_sides(source, target, running.longest_line)
    from dataclasses import replace

    from hf_attncal.alignment.encoder_choice import compare_encoders

    with user_errors():
        text = [[line.lower() for line in side] if lowercase else side for side in sides]
        found = compare_encoders(names, *text, running)
    if output is not None:
        folder = os.path.abspath(found[0].name) if os.path.isdir(found[0].name) else found[0].name
        replace(found[0].settings, encoder=folder).save(output, folder)
    return found
