"""Check that the name of a model, a tokenizer or an adapter is a folder or a name on the Hub, and fail early if not.

transformers asks the Hub for any name that is not a folder, file by file, and retries each time it gets no answer.
This module imports nothing heavy, so that a command can report a wrong name before torch is imported.
"""

import os
import re
from pathlib import Path

from hf_attncal.layouts import LAYOUTS, check_one_model

MODEL_FILES = (*LAYOUTS["model"].marks, *LAYOUTS["adapter"].marks)
TOKENIZER_FILES = LAYOUTS["tokenizer"].marks

_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_SECONDS = 5  # to wait for an answer of the Hub
_TWO_MODELS = (*LAYOUTS["adapter"].marks, "model.safetensors")  # a repository that has all of this


def is_hub_name(name: str | Path) -> bool:
    """Return whether the Hub may have such a name: at most one slash, and no `.`, `~` or `/` at the beginning."""
    return _HUB_NAME.fullmatch(str(name)) is not None


def check_name(name: str | Path, revision: str | None = None, files: tuple[str, ...] = MODEL_FILES) -> None:
    """Raise OSError for a name that nothing can be loaded from.

    Args:
        name: folder or Hub name.
        revision: branch, tag or commit on the Hub.
        files: the folder must have one of these files, or the Hub's cache one of the repository.

    Raises:
        OSError: the name is a file, a missing folder, a folder without any of `files` or with two models, or not on
            the Hub; or the Hub does not answer. The message says which.
    """
    path = Path(name)
    if os.path.isdir(name):
        if not any(os.path.lexists(path / file) for file in files):  # a broken link gets its own error later
            kind = "a" if any(path.iterdir()) else "an empty"
            below = {found.parent for file in files for found in path.glob(f"*/{file}")}
            advice = f" Did you mean {max(below, key=os.path.getmtime)}?" if below else ""
            raise FileNotFoundError(f"{path} is {kind} folder without {_one_of(files)}.{advice}")
        _check_one(path)
    elif os.path.lexists(name):
        there = any((path.parent / file).is_file() for file in files)
        which = str(path.parent) if there else f"a folder with {_one_of(files)}"
        raise NotADirectoryError(f"{name} is not a folder. Name {which}.")
    elif not is_hub_name(name):
        raise FileNotFoundError(f"There is no folder {name or repr(name)}.{_nearest(path)}")
    else:
        _check_hub(str(name), revision, files)


def _check_hub(name: str, revision: str | None, files: tuple[str, ...]) -> None:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    cached = [try_to_load_from_cache(name, file, revision=revision) for file in files]
    if (found := next((file for file in cached if isinstance(file, str)), None)) is not None:
        _check_one(Path(found).parent)
        return
    neither = f"{name} is neither a folder here nor in the cache of the Hub"
    if is_offline_mode():
        raise ConnectionError(f"{neither}, and HF_HUB_OFFLINE forbids asking the Hub.{_nearest(Path(name))}")
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
    except (EntryNotFoundError, HfHubHTTPError):  # an adapter, or a problem that transformers explains better
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
    """Suggest a folder with a similar name, also after a `~` that no shell has expanded."""
    from difflib import get_close_matches

    try:
        path = path.expanduser()
        beside = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except (OSError, RuntimeError, ValueError):  # no such folder, no such user, a zero byte
        return ""
    near = get_close_matches(path.name, beside, n=1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""
