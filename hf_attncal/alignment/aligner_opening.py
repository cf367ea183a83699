"""Open aligners and encoders by name.

Heavy modules are imported once a name is known to be good.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from hf_attncal.data.languages import trial_source
from hf_attncal.families import aligners, source_of
from hf_attncal.inference.opening import check_name, choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, settings_by_name
from hf_attncal.layouts import AUTO_ENCODER, CONFIG, DEFAULT_ENCODER

from .ready import nearest_ready


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


# ---- aligners ----


def open_aligner(name: str, running: Running, tried: bool = True, raw_scores: bool = False, plain: bool = False):
    """Load a `WordAligner`.

    Args:
        name: Folder or Hub name.
        running: Device and other options of the run.
        tried: Align one pair to test the files. Default: True.
        raw_scores: Ignore a saved calibration. Default: False.
        plain: Load a statistical aligner as tables, which cannot be adapted or saved. Default: False.

    Raises:
        CommandError: a checkpoint that cannot be loaded or is of another kind.
    """
    aligner = _plain_aligner(name, running) if plain else None
    if aligner is None:
        with _aligner_errors(name):
            from .aligner import WordAligner, load_to_align

            device = choose_device(running)
            options: dict[str, Any] = {
                "dtype": running.dtype,
                "trust_remote_code": running.trust_remote_code,
                "languages": running.languages,
            }
            if raw_scores:  # a saved calibration may belong to another model, and is not even read
                model, *tokenizer_and_settings = load_to_align(name, **options)
                aligner = WordAligner(model.to(device), *tokenizer_and_settings)
            else:
                aligner = WordAligner.from_pretrained(name, device=device, **options)
        if tried:
            try_aligner(name, aligner)
    log_model(name, aligner.source.model)
    return aligner


@contextmanager
def _aligner_errors(name: str) -> Iterator[None]:
    """Turn loading errors into CommandErrors as `load_errors` does, and suggest the nearest ready aligner."""
    try:
        with load_errors(name):
            yield
    except CommandError as error:
        missing = isinstance(error.__cause__, OSError) and not os.path.exists(name)
        if not missing or "Did you mean" in str(error) or not (suggestion := nearest_ready(name)):
            raise
        raise CommandError(f"{error}{suggestion}") from error.__cause__


def _plain_aligner(name: str, running: Running):
    """Load a statistical aligner without importing transformers; return None if that is impossible."""
    special = running.dtype or running.trust_remote_code or running.languages
    if special or not os.path.isfile(os.path.join(name, CONFIG)):
        return None
    device = choose_device(running)
    loaders = (family.resolve("plain") for family in aligners().values())
    return next(filter(None, (load(name, device) for load in loaders if load is not None)), None)


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
        encoder: `EncoderPrior` that helps. Default: None.
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
            aligner.use_encoder(encoder)
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


def try_aligner(name: str, aligner) -> None:
    """Align one pair, so that damaged files of `name` are not reported as a bad input line.

    Raises:
        CommandError: the pair cannot be aligned.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([(trial_source(aligner.tokenizer), "1")])


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


# ---- encoders ----


def name_of_encoder(encoder: Any) -> str:
    """Return the folder or Hub name of an encoder; raise CommandError if it does not exist."""
    if not isinstance(encoder, str | os.PathLike):
        raise CommandError(f"`encoder` must be a folder or a name on the Hub, got {type(encoder).__name__}.")
    name = DEFAULT_ENCODER[0] if encoder == AUTO_ENCODER else os.fspath(encoder)
    try:
        check_name(name)
    except OSError as error:
        raise CommandError(str(error)) from error
    return name


def check_encoder(encoder: Any) -> None:
    """Raise CommandError if the named encoder does not exist; loaded encoders are not checked."""
    if isinstance(encoder, str | os.PathLike):
        name_of_encoder(encoder)
