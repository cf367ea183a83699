"""Aligners opened with other settings than the saved ones, or beside the encoder-decoder whose output they align."""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from hf_attncal.families import source_of
from hf_attncal.inference.opening import load_errors
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, settings_by_name

from .aligner_opening import open_aligner, try_aligner


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# Parser and description of each key of --read: the fields of `Seq2SeqAttention` without the threshold.
READABLE: dict[str, tuple[Callable[[str], Any], str]] = {
    "layer": (int, "a number"),
    "heads": (_numbers, "numbers from 0, such as 0,3"),
    **dict.fromkeys(("shift", "mutual"), ({"true": True, "false": False}.__getitem__, "true or false")),
    "weights": (str, ""),
    "source_prefix": (str, ""),
}


def open_to_align(
    model,
    running: Running,
    *,
    read: Mapping[str, Any] | Sequence[str] | None = None,
    adapt: bool = False,
    encoder: Any | None = None,
    **checked: Any,
):
    """Load a `WordAligner`, change its settings, and check its options.

    Args:
        model: Folder or Hub name, or a loaded aligner, which is copied before it is changed.
        running: Device and other options of the run.
        read: Settings to change by name, or words `layer=8` of a command line. Default: None.
        adapt: Load an aligner that can adapt to the text. Default: False.
        encoder: Encoder that helps, see `EncoderPrior.open`. Default: None.
        checked: Options to check with `WordAligner.check`.

    Raises:
        CommandError: an aligner that cannot be loaded, or settings or options that do not fit it.
    """
    changes = changes_of(read)
    # The default reading may be impossible. So a model with other weights is tried after its settings are changed.
    named, other_weights = isinstance(model, str), "weights" in changes
    aligner = model
    if named:
        aligner = open_aligner(model, running, tried=not other_weights, plain=not other_weights and not adapt)
    try:
        if not named and (changes or encoder is not None):
            aligner = copy(aligner)
            aligner.source = copy(aligner.source)
        if changes:
            aligner.choose(**changes)
        if encoder is not None:
            from .encoder_prior import EncoderPrior

            aligner.use_encoder(EncoderPrior.open(encoder, running))
        aligner.check(**checked)
    except ValueError as error:
        name = model if named else "The model"
        raise CommandError(f"{name} cannot be used with these options: {error}") from error
    if named and other_weights:
        try_aligner(model, aligner)
    return aligner


def aligner_beside(aligner, running: Running, name: str | None, model: tuple[Any, Any], raw_scores: bool) -> Any:
    """Return the `WordAligner` of a text and its output from an encoder-decoder.

    Args:
        aligner: Folder or Hub name, or a loaded aligner; None to read the attention of the encoder-decoder.
        running: Device and other options of the run.
        name: Folder or Hub name of the encoder-decoder, where its attention settings are saved. Default: None.
        model: Encoder-decoder on its device, and its tokenizer.
        raw_scores: Ignore a saved calibration of the encoder-decoder.

    Raises:
        CommandError: an aligner that cannot be loaded, or a model that cannot align.
    """
    if aligner is not None:
        return aligner if hasattr(aligner, "align") else open_aligner(os.fspath(aligner), running, plain=True)
    from .aligner import WordAligner
    from .probabilities import saved_probabilities

    if name is None:
        return WordAligner(*model)
    with load_errors(name):
        probabilities = None if raw_scores else saved_probabilities(name)
        source = source_of(model[0].config)
        reader = WordAligner(*model, source and source.saved_settings(name), probabilities)
    try_aligner(name, reader)
    return reader


def changes_of(read: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name from a mapping, or from words `key=value` of a command line.

    Raises:
        CommandError: an unknown setting or a wrong value.
    """
    settings = settings_by_name(read)
    for name, word in settings.items():
        if name not in READABLE:
            raise CommandError(f"--read must be one of {', '.join(READABLE)}, got {name!r}. Example: --read layer=8.")
        parse, description = READABLE[name]
        try:
            settings[name] = word if isinstance(read, Mapping) else parse(word)
        except (ValueError, KeyError) as error:
            raise CommandError(f"--read {name} must be {description}, got {word!r}.") from error
    return settings
