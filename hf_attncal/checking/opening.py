"""From the name of a word aligner to a `Checker`, and what is said where that fails."""

import os

from hf_attncal.alignment.opening import open_aligner, open_encoder
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors


def aligner_to_check(model, running: Running) -> tuple:
    """Return a `WordAligner`, and the folder or Hub name that it was loaded from; None for one made in memory.

    Args:
        model: that name, the aligner, or a `Checker`.
        running: how it runs.

    Raises:
        CommandError: it cannot be loaded.
    """
    if isinstance(model, str | os.PathLike):
        return open_aligner(os.fspath(model), running, plain=True), os.fspath(model)
    aligner = getattr(model, "aligner", model)
    return aligner, (aligner and getattr(aligner.model.config, "name_or_path", None)) or None


def open_checker(model, running: Running, aligner=None, encoder=None):
    """Return the `Checker` of a word aligner, an encoder or both.

    Args:
        model, running: as for `aligner_to_check`; a `Checker` is returned as it is, but for the encoder. None: the
            encoder alone.
        aligner: the loaded aligner of the name `model`; None: it is loaded.
        encoder: as for `alignment.opening.open_encoder`.

    Raises:
        CommandError: one of them cannot be loaded, or nothing was learned for it.
    """
    from .checker import Checker, saved_check

    judge = None if encoder is None else _open_judge(encoder, running)
    if hasattr(model, "aligner"):
        return model if judge is None else Checker(model.aligner, model.aligner and model.model, judge)
    if model is None and aligner is None:
        if judge is None:
            raise CommandError("There is nothing to check with: give MODEL, a word aligner, or --encoder.")
        return Checker(None, encoder=judge)
    aligner, name = aligner_to_check(model, running) if aligner is None else (aligner, model)
    if name is None:
        raise CommandError("`model` must be the name of an aligner or a Checker: this aligner was made in memory.")
    with user_errors((OSError, ValueError)):
        return Checker(aligner, saved_check(name), judge)


def _open_judge(encoder, running: Running):
    from .encoder_check import EncoderJudge

    with user_errors((ValueError,)):
        return EncoderJudge(open_encoder(encoder, running, adapted=False))
