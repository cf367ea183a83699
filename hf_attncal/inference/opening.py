"""From the name of a checkpoint to a model, and what is said where that fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging import DEBUG
from pathlib import Path
from pkgutil import resolve_name

from hf_attncal.io.errors import CommandError, one_line, user_errors
from hf_attncal.io.messages import LOG

from .names import check_name, is_hub_name
from .running import Running

# What loads an encoder-decoder, and what tries it out: imported once the name of the model is known to be good.
_LOAD_CONFIG = "hf_attncal.inference.loading:load_config"
_LOAD_MODEL = "hf_attncal.inference.loading:load_seq2seq"
_TRY_OUT = "hf_attncal.inference.translation:translate_texts"
_LANGUAGES = "hf_attncal.data.languages"


def fetched(name: str | os.PathLike[str], running: Running) -> str:
    """Return the name of a model, or the folder of its revision, fetched from the Hub, if one is asked for.

    Raises:
        CommandError: the name is a folder or no name of the Hub, or the revision cannot be fetched.
    """
    name = os.fspath(name) if isinstance(name, str | os.PathLike) else name
    revision = running.revision
    if revision is None:
        return name
    if Path(name).exists() or "/" not in name or not is_hub_name(name):
        raise CommandError(f"--revision {revision} is that of a MODEL on the Hub (OWNER/NAME), got {name}.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        return snapshot_download(name, revision=revision)
    except Exception as error:
        raise CommandError(f"{name} cannot be fetched at --revision {revision}: {one_line(error)}") from error


@contextmanager
def load_errors(name: str) -> Iterator[None]:
    """Turn any error of loading the checkpoint `name` into one for the user, and silence progress bars and warnings.

    Library warnings that matter are errors of `hf_attncal.inference.loading`.

    Raises:
        CommandError: in place of whatever the libraries raise on a file that they did not expect.
    """
    import warnings

    try:
        check_name(name)  # before torch and transformers are imported
    except OSError as error:
        raise CommandError(str(error)) from error

    from transformers.utils import logging

    logging.disable_progress_bar()  # of the weights: a pipe's standard error is for errors
    verbosity = logging.get_verbosity()
    try:
        with warnings.catch_warnings():
            if not LOG.isEnabledFor(DEBUG):  # -vv
                logging.set_verbosity(logging.CRITICAL)
                warnings.simplefilter("ignore")
            yield
    except (CommandError, MemoryError):
        raise
    except Exception as error:
        from hf_attncal.inference.foreign_code import brings_code, decoded_by_code

        text, code = one_line(error), "trust_remote_code" in str(error)
        if code and (fields := decoded_by_code(name)):
            problem = (
                f"cannot be used: its generation_config.json asks for {', '.join(f'`{field}`' for field in fields)}, "
                "for which transformers would run code that is not the model's. Remove it there."
            )
        elif code and brings_code(name):
            problem = (
                "brings model code of its own (`auto_map` in its config.json). Read it, and pass --trust-remote-code "
                "to run it."
            )
        elif code:
            problem = "cannot be loaded: it needs code of the Hub that is not the model's, which attncal does not run."
        elif isinstance(error, ImportError | OSError | ValueError) and text:
            problem = f"cannot be loaded: {text}"
        else:
            kind = type(error).__name__
            problem = f"cannot be loaded: its files are damaged, or do not fit together ({kind}: {text})."
        raise CommandError(f"{name} {problem}") from error
    finally:
        logging.set_verbosity(verbosity)


def check_loadable(*names: object) -> None:
    """Say what is wrong with the names of models, before anything heavy is imported; what is no name is passed over.

    Raises:
        CommandError: nothing can be loaded from one of them.
    """
    for name in names:
        if isinstance(name, str | os.PathLike):
            with load_errors(os.fspath(name)):
                pass


def tell_model(name: str, model) -> None:
    """Log the loaded model, shown with -v, and warn of a precision that its processor emulates."""
    import torch

    from hf_attncal.inference.loading import bf16_is_fast

    tensors = model.state_dict().values()  # an aligner that counts has no parameters
    types = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})
    size = f"{sum(tensor.numel() for tensor in tensors):,} numbers in {' and '.join(types)}"
    LOG.info("%s: %s, %s", name, type(model).__name__, size)
    if (torch.bfloat16, "cpu") in {(tensor.dtype, tensor.device.type) for tensor in tensors} and not bf16_is_fast():
        LOG.warning("%s: this CPU emulates bfloat16, so --dtype float32 is faster.", name)


def choose_device(running: Running) -> str:
    """Set the number of --threads, and return the device: --device, or a GPU (that of the local rank), or the CPU.

    Raises:
        CommandError: the device cannot be used.
    """
    import torch

    if running.threads is not None:
        torch.set_num_threads(running.threads)
    device = running.device or ("cuda" if torch.cuda.is_available() else "cpu")
    LOG.info("on %s", device)
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CommandError(f"--device {device} cannot be used: {one_line(error)}") from error
    return device


def load_model(name: str | tuple, running: Running, beams: int | None = 2):
    """Load model and tokenizer of an encoder-decoder checkpoint.

    Args:
        name: folder or Hub name of an encoder-decoder, or of an adapter; or model and tokenizer, which are returned.
        running: how it runs.
        beams: with how many beams to try out whether the model generates; None: it need not.

    Raises:
        CommandError: the checkpoint is missing or of another kind, or the device cannot be used.
    """
    if isinstance(name, tuple):
        if running.languages is not None:
            with user_errors():
                resolve_name(_LANGUAGES).speak(*name, running.languages)
        return name
    trust_remote_code = running.trust_remote_code
    with load_errors(name):
        from hf_attncal.inference.files import blamed
        from hf_attncal.inference.translator_model import is_exported, load_translator

        if is_exported(name):
            model, tokenizer = load_translator(name, running, choose_device(running))
            resolve_name(_LANGUAGES).speak(None, tokenizer, running.languages)
            return model, tokenizer

        # Not None: transformers would then ask the user, and read the answer from standard input, which is our data.
        config = resolve_name(_LOAD_CONFIG)(name, trust_remote_code=trust_remote_code)
        if not config.is_encoder_decoder:
            raise CommandError(
                f"{name} holds a model of type {config.model_type!r}, which is not an encoder-decoder by its "
                "config.json. Give a sequence-to-sequence checkpoint (Marian, BART, T5, ... or one of ours)."
            )
        how = {"dtype": running.dtype, "trust_remote_code": trust_remote_code, "languages": running.languages}
        model, tokenizer = resolve_name(_LOAD_MODEL)(name, **how)
        resolve_name(_LANGUAGES).check_target(tokenizer)
    model = model.to(choose_device(running)).eval()
    # Without a try errors of its files would be blamed on the first line.
    with load_errors(name), blamed(f"config.json, generation_config.json or tokenizer_config.json in {name}"):
        if beams is not None:
            text = resolve_name(_LANGUAGES).sample(tokenizer)
            resolve_name(_TRY_OUT)(model, tokenizer, [text], num_beams=beams, max_new_tokens=2)
    tell_model(name, model)
    return model, tokenizer
