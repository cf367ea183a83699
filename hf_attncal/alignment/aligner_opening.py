"""Open aligners and encoders by name.

Heavy modules are imported once a name is known to be good.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hf_attncal.data.languages import trial_source
from hf_attncal.families import aligners
from hf_attncal.inference.opening import check_name, choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError
from hf_attncal.layouts import AUTO_ENCODER, CONFIG, DEFAULT_ENCODER

from .ready import nearest_ready

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


def try_aligner(name: str, aligner) -> None:
    """Align one pair, so that damaged files of `name` are not reported as a bad input line.

    Raises:
        CommandError: the pair cannot be aligned.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([(trial_source(aligner.tokenizer), "1")])


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
