"""Names of checkpoints, devices, and the messages about a checkpoint that cannot be loaded.

transformers requests any name that is not a folder from the Hub, file by file, with retries if there is no answer.
This module imports nothing heavy, so that a command can report a wrong name before torch is imported.
"""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from logging import DEBUG
from pathlib import Path

from hf_attncal.io.errors import CommandError, one_line
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, LAYOUTS, TOKENIZER_CONFIG, check_one_model

from .running import Running

MODEL_FILES = (*LAYOUTS["model"].marks, *LAYOUTS["adapter"].marks)
TOKENIZER_FILES = LAYOUTS["tokenizer"].marks

_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_SECONDS = 5  # timeout of a request to the Hub
_TWO_MODELS = (*LAYOUTS["adapter"].marks, "model.safetensors")  # files of a repository with an adapter and a model


def is_hub_name(name: str | Path) -> bool:
    """Return True if a name is valid on the Hub: at most one slash, and no `.`, `~` or `/` at the beginning."""
    return _HUB_NAME.fullmatch(str(name)) is not None


def check_name(name: str | Path, revision: str | None = None, files: tuple[str, ...] = MODEL_FILES) -> None:
    """Raise OSError for a name that nothing can be loaded from.

    Args:
        name: folder or Hub name.
        revision: branch, tag or commit on the Hub.
        files: files of which the folder, or the repository in the Hub's cache, must have one.

    Raises:
        OSError: the name is a file, a missing folder, a folder without any of `files` or with two models, or not on
            the Hub; or the Hub does not answer. Each case has its own message.
    """
    path = Path(name)
    if os.path.isdir(name):
        if not any(os.path.lexists(path / file) for file in files):  # a broken link gets its own error later
            kind = "a" if any(path.iterdir()) else "an empty"
            subfolders = {match.parent for file in files for match in path.glob(f"*/{file}")}
            advice = f" Did you mean {max(subfolders, key=os.path.getmtime)}?" if subfolders else ""
            raise FileNotFoundError(f"{path} is {kind} folder without {_one_of(files)}.{advice}")
        _check_one(path)
    elif os.path.lexists(name):
        in_model_folder = any((path.parent / file).is_file() for file in files)
        remedy = str(path.parent) if in_model_folder else f"a folder with {_one_of(files)}"
        raise NotADirectoryError(f"{name} is a file, and must be a folder. Give {remedy}.")
    elif not is_hub_name(name):
        raise FileNotFoundError(f"There is no folder {name or repr(name)}.{_nearest(path)}")
    else:
        _check_hub(str(name), revision, files)


def _check_hub(name: str, revision: str | None, files: tuple[str, ...]) -> None:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    cached = [try_to_load_from_cache(name, file, revision=revision) for file in files]
    if (cached_file := next((file for file in cached if isinstance(file, str)), None)) is not None:
        _check_one(Path(cached_file).parent)
        return
    neither = f"{name} is neither a folder here nor in the cache of the Hub"
    if is_offline_mode():
        raise ConnectionError(f"{neither}, and HF_HUB_OFFLINE forbids a download.{_nearest(Path(name))}")
    try:
        for file in (files[0], *(_TWO_MODELS if files == MODEL_FILES else ())):
            get_hf_file_metadata(hf_hub_url(name, file, revision=revision), timeout=_SECONDS)
    except GatedRepoError:
        raise PermissionError(
            f"{name} is gated: ask for access on its page on the Hub, then `hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise FileNotFoundError(
            f"There is neither a folder {name} here nor a model of this name on the Hub (or it is private: `hf auth "
            f"login`).{_nearest(Path(name))}"
        ) from None
    except (EntryNotFoundError, HfHubHTTPError):  # an adapter, or a problem with a better message from transformers
        return
    except Exception as error:  # from the HTTP client, which differs between versions of huggingface_hub
        raise ConnectionError(
            f"{neither}, and {constants.ENDPOINT} cannot be reached ({error}). Check the connection, or name a "
            f"folder.{_nearest(Path(name))}"
        ) from error
    if files == MODEL_FILES:
        raise OSError(f"{name} holds two models: {' and '.join(_TWO_MODELS)}. Name the repository of one of them.")


def _check_one(folder: Path) -> None:
    try:
        check_one_model(folder)
    except ValueError as error:
        raise OSError(str(error)) from error


def _one_of(files: tuple[str, ...]) -> str:
    return " or ".join(files)


def _nearest(path: Path) -> str:
    """Return a suggestion of a folder with a similar name, also after a `~` that no shell has expanded."""
    try:
        path = path.expanduser()
        folders = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except (OSError, RuntimeError, ValueError):  # no such folder, no such user, a zero byte
        return ""
    near = get_close_matches(path.name, folders, n=1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""


# ---- opening ----


def fetched(name: str | os.PathLike[str], running: Running) -> str:
    """Return the name of a model, or with --revision the folder of that revision, downloaded from the Hub.

    Raises:
        CommandError: there is a revision, and the name is a folder, not a Hub name, or cannot be downloaded.
    """
    name = os.fspath(name) if isinstance(name, str | os.PathLike) else name
    revision = running.revision
    if revision is None:
        return name
    if Path(name).exists() or "/" not in name or not is_hub_name(name):
        raise CommandError(f"--revision {revision} needs a MODEL on the Hub (OWNER/NAME), got {name}.")
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
        CommandError: any error of the libraries on an unexpected file.
    """
    try:
        check_name(name)  # before torch and transformers are imported
    except OSError as error:
        raise CommandError(str(error)) from error

    from transformers.utils import logging

    logging.disable_progress_bar()  # shown for weights; the standard error of a pipe is for errors
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
        text, code = one_line(error), "trust_remote_code" in str(error)
        if code and has_own_code(name):
            problem = (
                "comes with its own model code (`auto_map` in its config.json). Read it, and pass --trust-remote-code "
                "to run it."
            )
        elif code:
            problem = "cannot be loaded: it needs code from another repository on the Hub, which attncal does not run."
        elif isinstance(error, ImportError | OSError | ValueError) and text:
            problem = f"cannot be loaded: {text}"
        else:
            kind = type(error).__name__
            problem = f"cannot be loaded: its files are damaged or do not fit together ({kind}: {text})."
        raise CommandError(f"{name} {problem}") from error
    finally:
        logging.set_verbosity(verbosity)


def check_loadable(*names: object) -> None:
    """Check the names of models before anything heavy is imported; loaded models are skipped.

    Raises:
        CommandError: nothing can be loaded from one of the names.
    """
    for name in names:
        if isinstance(name, str | os.PathLike):
            with load_errors(os.fspath(name)):
                pass


def log_model(name: str, model) -> None:
    """Log the loaded model, shown with -v, and warn of a precision that its processor emulates."""
    import torch

    tensors = model.state_dict().values()  # a statistical aligner has no parameters
    types = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})
    size = f"{sum(tensor.numel() for tensor in tensors):,} numbers in {' and '.join(types)}"
    LOG.info("%s: %s, %s", name, type(model).__name__, size)
    if (torch.bfloat16, "cpu") not in {(tensor.dtype, tensor.device.type) for tensor in tensors}:
        return
    if not bf16_is_fast():
        LOG.warning("%s: this CPU emulates bfloat16, so --dtype float32 is faster.", name)


def bf16_is_fast() -> bool:
    """Return True if the hardware multiplies bfloat16 matrices: CUDA from Ampere on, CPU with avx512_bf16 or AMX.

    With `ATEN_CPU_CAPABILITY=avx2` a newer processor counts as an older one.
    """
    import torch

    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def choose_device(running: Running) -> str:
    """Set the number of --threads, and return the device: --device, else the local rank's GPU, else the CPU.

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


# ---- code in a checkpoint ----


def has_own_code(name: str | Path) -> bool:
    """Return True if a model, or an adapter's base model, comes with its own code (`auto_map`)."""
    base = _values_of(name, ADAPTER_CONFIG).get("base_model_name_or_path") or name
    files = (CONFIG, TOKENIZER_CONFIG)
    return any(_values_of(part, file).get("auto_map") for part in {str(name), str(base)} for file in files)


def _values_of(name: str | Path, file: str) -> dict:
    """Read a JSON file of a model; {} if it is missing or unreadable."""
    from .files import file_beside, read_object

    try:
        path = file_beside(name, file)
        return {} if path is None else read_object(path)
    except (OSError, ValueError):
        return {}
