"""Load an encoder-decoder by the name of its checkpoint, and try it out."""

from typing import Any

from hf_attncal.io.errors import CommandError, user_errors

from .opening import choose_device, load_errors, log_model
from .running import Running


def load_model(name: str | tuple[Any, Any], running: Running, beams: int | None = 2) -> tuple[Any, Any]:
    """Load model and tokenizer of an encoder-decoder checkpoint.

    Args:
        name: folder or Hub name of an encoder-decoder or an adapter; or a loaded model and its tokenizer.
        running: device, precision and limits.
        beams: number of beams of a trial generation; None for no trial.

    Raises:
        CommandError: the checkpoint is missing or of another kind, or the device cannot be used.
    """
    if isinstance(name, tuple):
        if running.languages is not None:
            from hf_attncal.data.languages import set_languages

            with user_errors():
                set_languages(name[0], name[1], running.languages)
        return name
    trust_remote_code = running.trust_remote_code
    with load_errors(name):
        from hf_attncal.data.languages import check_target, set_languages, trial_source

        from .files import blamed
        from .loading import load_config, load_seq2seq
        from .translation import translate_texts
        from .translator_model import is_exported, load_translator

        if is_exported(name):
            translator, tokenizer = load_translator(name, running, choose_device(running))
            set_languages(None, tokenizer, running.languages)
            return translator, tokenizer

        # With None for `trust_remote_code`, transformers would ask the user and read from standard input, our data.
        config = load_config(name, trust_remote_code=trust_remote_code)
        if not config.is_encoder_decoder:
            raise CommandError(
                f"{name} holds a model of type {config.model_type!r}, which is not an encoder-decoder by its "
                "config.json. Give a sequence-to-sequence checkpoint (Marian, BART, T5, ... or one of ours)."
            )
        model, tokenizer = load_seq2seq(
            name, dtype=running.dtype, trust_remote_code=trust_remote_code, languages=running.languages
        )
        check_target(tokenizer)
    device: Any = choose_device(running)
    model.to(device).eval()
    # Without a trial, errors in its files would be reported as errors of the first line.
    with load_errors(name), blamed(f"config.json, generation_config.json or tokenizer_config.json in {name}"):
        if beams is not None:
            text = trial_source(tokenizer)
            translate_texts(model, tokenizer, [text], num_beams=beams, max_new_tokens=2)
    log_model(name, model)
    return model, tokenizer
