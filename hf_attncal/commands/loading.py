"""From the name of a checkpoint to a model or an aligner, and what is said where that fails."""

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from logging import DEBUG
from pathlib import Path

from .common import CommandError, one_line
from .messages import LOG


def fetch_revision(options: argparse.Namespace) -> None:
    """Put the folder of --revision, fetched from the Hub, in place of the name of the model.

    Raises:
        CommandError: MODEL is a folder or no name of the Hub, or the revision cannot be fetched.
    """
    name, revision = getattr(options, "model", None), getattr(options, "revision", None)
    if revision is None:
        return
    if name is None or Path(name).exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise CommandError(f"--revision {revision} is that of a MODEL on the Hub (OWNER/NAME), got {name}.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        options.model = snapshot_download(name, revision=revision)
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

    from hf_attncal.inference.names import check_name

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
        from hf_attncal.inference.loading import brings_code, decoded_by_code

        text, code = one_line(error), "trust_remote_code" in str(error)
        if code and (fields := decoded_by_code(name)):
            problem = (
                f"cannot be used: its generation_config.json asks for {', '.join(f'`{field}`' for field in fields)}, "
                "for which transformers would run code that is not the model's. Remove it there."
            )
        elif code and brings_code(name):
            problem = "brings model code of its own (`auto_map`). Read it, and pass --trust-remote-code to run it."
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


def tell_model(name: str, model) -> None:
    """Log the loaded model, shown with -v."""
    tensors = model.state_dict().values()  # an aligner that counts has no parameters
    types = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})
    size = f"{sum(tensor.numel() for tensor in tensors):,} numbers in {' and '.join(types)}"
    LOG.info("%s: %s, %s", name, type(model).__name__, size)


def choose_device(options: argparse.Namespace) -> str:
    """Set the number of --threads, and return the device: --device, or a GPU (that of the local rank), or the CPU.

    Raises:
        CommandError: the device cannot be used.
    """
    import torch

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    LOG.info("on %s", device)
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CommandError(f"--device {device} cannot be used: {one_line(error)}") from error
    return device


def load_model(options: argparse.Namespace, generates: bool = True):
    """Load model and tokenizer of an encoder-decoder checkpoint, by the options of `add_model_options`.

    Args:
        options: options of the command.
        generates: try out whether the model generates.

    Raises:
        CommandError: the checkpoint is missing or of another kind, or the device cannot be used.
    """
    name, trust_remote_code = options.model, options.trust_remote_code
    with load_errors(name):
        from hf_attncal.inference.files import blamed
        from hf_attncal.inference.loading import load_config, load_seq2seq
        from hf_attncal.inference.translation import translate

        # Not None: transformers would then ask the user, and read the answer from standard input, which is our data.
        config = load_config(name, trust_remote_code=trust_remote_code)
        if not config.is_encoder_decoder:
            raise CommandError(
                f"{name} holds a model of type {config.model_type!r}, which is not an encoder-decoder by its "
                "config.json. Give a sequence-to-sequence checkpoint (Marian, BART, T5, ... or one of ours)."
            )
        model, tokenizer = load_seq2seq(name, dtype=options.dtype, trust_remote_code=trust_remote_code)
    model = model.to(choose_device(options)).eval()
    # Without a try errors of its files would be blamed on the first line.
    with load_errors(name), blamed(f"config.json, generation_config.json or tokenizer_config.json in {name}"):
        if generates:
            translate(model, tokenizer, ["1"], num_beams=getattr(options, "beams", None) or 2, max_new_tokens=2)
    tell_model(name, model)
    return model, tokenizer


def open_aligner(
    name: str, options: argparse.Namespace, tried: bool = True, raw_scores: bool = False, plain: bool = False
):
    """Load a `WordAligner` as it was saved; of the options, those of `add_model_options` count.

    Args:
        tried: align one pair to try it out; else the caller does, once it has changed the aligner.
        raw_scores: leave scores as the model has them, even if it was calibrated.
        plain: the model will not be adapted or saved, so the tables of one that counts are enough.

    Raises:
        CommandError: the checkpoint cannot be loaded or is of another kind.
    """
    aligner = _plain_aligner(name, options) if plain else None
    if aligner is None:
        with load_errors(name):
            from hf_attncal.alignment import WordAligner

            device = choose_device(options)
            aligner = WordAligner.from_pretrained(
                name, device=device, dtype=options.dtype, trust_remote_code=options.trust_remote_code
            )
        if tried:
            try_aligner(name, aligner)
    if raw_scores:
        aligner.probabilities = None
    tell_model(name, aligner.source.model)
    return aligner


def _plain_aligner(name: str, options: argparse.Namespace):
    """Load an aligner that counts without importing transformers; return None if that cannot be done."""
    if options.dtype is not None or options.trust_remote_code or not os.path.isfile(os.path.join(name, "config.json")):
        return None
    from hf_attncal.alignment.plain_counts import plain_aligner

    return plain_aligner(name, choose_device(options))


def try_aligner(name: str, aligner) -> None:
    """Align one pair, so that damaged files of `name` are not blamed on the first line of the input.

    Raises:
        CommandError: that fails.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([("1", "1")])
