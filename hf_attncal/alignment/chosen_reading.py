"""A `WordAligner` that reads of its model what the user asks for, and what tells it from another."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from hf_attncal.data.languages import both_codes
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, settings_by_name

from .opening import open_aligner, open_encoder, try_aligner


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# What can be read of a model, as words of a command line: the fields of `Seq2SeqAttention` and `EncoderStates` without
# their threshold.
READABLE: dict[str, tuple[Callable[[str], Any], str]] = {
    "layer": (int, "a number"),
    "heads": (_numbers, "numbers from 0, such as 0,3"),
    "shift": ({"true": True, "false": False}.__getitem__, "true or false"),
    "weights": (str, ""),
    "source_language": (str, ""),
    "target_language": (str, ""),
    "source_prefix": (str, ""),
    "target_prefix": (str, ""),
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
    """Load a `WordAligner`, and make it ready to align a text.

    Args:
        model: folder or Hub name; or an aligner, which stays as it is unless it adapts.
        running: how it runs.
        read: settings to change, by name, or as words of a command line, `layer=8`.
        adapt: it will learn from the text.
        encoder: what helps, as of `open_encoder`.
        checked: options of `WordAligner.check` that it has to suit.

    Raises:
        CommandError: it cannot be loaded, or the settings or options do not suit it.
    """
    changes = changes_of(read)
    # What is read by default need not be possible, and options that do not suit shall not be blamed on the first line.
    named, other = isinstance(model, str), "weights" in changes
    aligner = open_aligner(model, running, tried=not other, plain=not other and not adapt) if named else model
    try:
        if not named and (changes or encoder is not None):
            aligner = copy(aligner)
            aligner.source = copy(aligner.source)
        if running.languages is not None and changes.get("weights") == "states":
            changes = both_codes(aligner.tokenizer) | changes
        if changes:
            aligner.choose(**changes)
        if encoder is not None:
            aligner.believe(open_encoder(encoder, running))
        aligner.check(**checked)
    except ValueError as error:
        name = model if named else "The model"
        raise CommandError(f"{name} cannot be used with these options: {error}") from error
    if named and other:
        try_aligner(model, aligner)
    return aligner


def changes_of(read: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name, from such a mapping or from words `key=value` of a command line.

    Raises:
        CommandError: there is no such setting, or its value cannot be understood.
    """
    settings = settings_by_name(read)
    for name, word in settings.items():
        if name not in READABLE:
            raise CommandError(f"--read has no {name!r}, it has {', '.join(READABLE)}: write layer=8, for example.")
        parse, kind = READABLE[name]
        try:
            settings[name] = word if isinstance(read, Mapping) else parse(word)
        except (ValueError, KeyError) as error:
            raise CommandError(f"--read {name} must be {kind}, got {word!r}.") from error
    return settings
