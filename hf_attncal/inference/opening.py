"""Names of checkpoints, devices, and the messages where a checkpoint cannot be loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging import DEBUG
from pathlib import Path

from hf_attncal.io.errors import CommandError, one_line
from hf_attncal.io.messages import LOG

from .names import check_name, is_hub_name
from .running import Running


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

    tensors = model.state_dict().values()  # an aligner that counts has no parameters
    types = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})
    size = f"{sum(tensor.numel() for tensor in tensors):,} numbers in {' and '.join(types)}"
    LOG.info("%s: %s, %s", name, type(model).__name__, size)
    if (torch.bfloat16, "cpu") not in {(tensor.dtype, tensor.device.type) for tensor in tensors}:
        return
    from hf_attncal.inference.loading import bf16_is_fast

    if not bf16_is_fast():
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
