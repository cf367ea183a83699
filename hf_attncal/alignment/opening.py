"""From the name of a checkpoint to a `WordAligner`, and what is said where that fails."""

import os
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hf_attncal.data.languages import sample
from hf_attncal.inference.names import check_name
from hf_attncal.inference.opening import choose_device, fetched, load_errors, tell_model
from hf_attncal.inference.running import Running
from hf_attncal.inference.seals import sealed
from hf_attncal.io.errors import CommandError
from hf_attncal.layouts import CONFIG, DEFAULT_ENCODER, SETTINGS_FILE

# The aligner of any model, and one that counts, which starts without transformers.
_ALIGNER = "hf_attncal.alignment.aligner:WordAligner"
_LOAD = "hf_attncal.alignment.aligner:load_to_align"
_PLAIN = "hf_attncal.alignment.plain_counts:plain_aligner"
_ENCODER = "hf_attncal.alignment.encoder_prior:EncoderPrior"
AUTO = "auto"  # stands for the default encoder
# What lies beside a model that aligns.
_SETTINGS = "hf_attncal.alignment.sources:saved_settings"
_PROBABILITIES = "hf_attncal.alignment.probabilities:saved_probabilities"


def open_aligner(name: str, running: Running, tried: bool = True, raw_scores: bool = False, plain: bool = False):
    """Load a `WordAligner` as it was saved.

    Args:
        name: folder or Hub name.
        running: how it runs.
        tried: align one pair to try it out; else the caller does, once it has changed the aligner.
        raw_scores: leave scores as the model has them, even if it was calibrated.
        plain: the model will not be adapted or saved, so the tables of one that counts are enough.

    Raises:
        CommandError: the checkpoint cannot be loaded or is of another kind.
    """
    aligner = _plain_aligner(name, running) if plain else None
    if aligner is None:
        with load_errors(name):
            device = choose_device(running)
            options = {"dtype": running.dtype, "trust_remote_code": running.trust_remote_code}
            options["languages"] = running.languages
            if raw_scores:  # the probabilities beside it may be those of another model
                model, *others = resolve_name(_LOAD)(name, **options)
                aligner = resolve_name(_ALIGNER)(model.to(device), *others)
            else:
                aligner = resolve_name(_ALIGNER).from_pretrained(name, device=device, **options)
        if tried:
            try_aligner(name, aligner)
    tell_model(name, aligner.source.model)
    return aligner


def check_encoder(encoder: Any) -> None:
    """Raise CommandError for the name of an encoder by which there is nothing, before anything is loaded."""
    if isinstance(encoder, str | os.PathLike):
        try:
            check_name(chosen_encoder(os.fspath(encoder)))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error


def chosen_encoder(name: str | Path) -> str | Path:
    """Return the default encoder for "auto", the encoder that a folder of `attncal align select` names, or the name.

    Raises:
        ValueError: the settings cannot be read.
    """
    if name == AUTO:
        return DEFAULT_ENCODER[0]
    path = Path(name) / SETTINGS_FILE
    if not path.is_file() or (path.parent / CONFIG).exists():
        return name
    with sealed(path) as values:
        return values.get("encoder") or name


def name_of_encoder(encoder: Any) -> str:
    """Return the folder or Hub name of an encoder, for "auto" the default; raise CommandError if there is none."""
    if not isinstance(encoder, str | os.PathLike):
        raise CommandError(f"`encoder` must be a folder or a name on the Hub, got {type(encoder).__name__}.")
    check_encoder(encoder)
    return DEFAULT_ENCODER[0] if encoder == AUTO else os.fspath(encoder)


def open_encoder(encoder: Any, running: Running, adapted: bool = True) -> Any:
    """Load an `EncoderPrior` that will help an aligner.

    Args:
        encoder: folder or Hub name, "auto" for the default; or a loaded one; None for none. Each is returned as it is.
        running: how it runs; `dtype` and `revision` are the aligner's.
        adapted: as of `EncoderPrior.from_pretrained`.

    Raises:
        CommandError: it cannot be loaded or is of another kind.
    """
    if encoder is None or not isinstance(encoder, str | os.PathLike):
        return encoder
    name = name_of_encoder(encoder)
    with load_errors(os.fspath(chosen_encoder(name))):
        return resolve_name(_ENCODER).from_pretrained(
            name, device=choose_device(running), trust_remote_code=running.trust_remote_code, adapted=adapted
        )


def open_to_link(name: str, running: Running):
    """Load a `WordAligner` that only makes links, of the revision that is asked for; see `open_aligner`."""
    return open_aligner(fetched(name, running), running, plain=True)


def _plain_aligner(name: str, running: Running):
    """Load an aligner that counts without importing transformers; return None if that cannot be done."""
    special = running.dtype or running.trust_remote_code or running.languages
    if special or not os.path.isfile(os.path.join(name, CONFIG)):
        return None
    return resolve_name(_PLAIN)(name, choose_device(running))


def aligner_beside(aligner, running: Running, name: str | None, model: tuple[Any, Any], raw_scores: bool) -> Any:
    """Return the `WordAligner` that links a text with what a model makes of it.

    Args:
        aligner: folder or Hub name of one, or one that is loaded; None for one that reads the model itself.
        running: how it runs.
        name: folder or Hub name that the model was loaded from, beside which what is read of it lies; None for none.
        model: an encoder-decoder, on its device, and its tokenizer.
        raw_scores: of the model itself: as for `open_aligner`.

    Raises:
        CommandError: it cannot be loaded, or the model cannot align.
    """
    if aligner is not None:
        return aligner if hasattr(aligner, "align") else open_aligner(os.fspath(aligner), running, plain=True)
    word_aligner = resolve_name(_ALIGNER)
    if name is None:
        return word_aligner(*model)
    with load_errors(name):
        probabilities = None if raw_scores else resolve_name(_PROBABILITIES)(name)
        reader = word_aligner(*model, resolve_name(_SETTINGS)(name), probabilities)
    try_aligner(name, reader)
    return reader


def try_aligner(name: str, aligner) -> None:
    """Align one pair, so that damaged files of `name` are not blamed on the first line of the input.

    Raises:
        CommandError: that fails.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([(sample(aligner.tokenizer), "1")])
