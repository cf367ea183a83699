"""The name of a model, a tokenizer or an adapter: a folder, or a name on the Hub. What is neither is said at once.

transformers asks the Hub for whatever is no folder, file by file, and each time again and again where it gets no
answer. Only the standard library is imported here, so that a command need not wait for torch to say what is wrong.
"""

import os
import re
from pathlib import Path

MODEL_FILES = ("config.json", "adapter_config.json")
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")

_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_SECONDS = 5  # for the Hub to answer


def is_hub_name(name: str | Path) -> bool:
    """Whether the Hub may have such a name: at most one slash, and no `.`, `~` or `/` at the beginning."""
    return _HUB_NAME.fullmatch(str(name)) is not None


def check_name(name: str | Path, revision: str | None = None, files: tuple[str, ...] = MODEL_FILES) -> None:
    """Refuse a name that nothing can be loaded from.

    Args:
        name: folder or Hub name.
        revision: branch, tag or commit on the Hub.
        files: one of these must be in the folder; of a repository one that is in the Hub's cache is enough.

    Raises:
        OSError: a file in place of a folder; a folder that is not there, or has none of `files`; a name that the Hub
            does not know; a Hub that gives no answer. The message names it.
    """
    path = Path(name)
    if os.path.isdir(name):
        _check_folder(path, files)
    elif os.path.lexists(name):
        there = any((path.parent / file).is_file() for file in files)
        which = str(path.parent) if there else f"a folder with {_one_of(files)}"
        raise NotADirectoryError(f"{name} is no folder. Name {which}.")
    elif not is_hub_name(name):
        raise FileNotFoundError(f"There is no folder {name or repr(name)}.{_nearest(path)}")
    else:
        _check_hub(str(name), revision, files)


def _check_folder(folder: Path, files: tuple[str, ...]) -> None:
    if any(os.path.lexists(folder / file) for file in files):  # a link that leads nowhere is named later
        return
    empty = next(folder.iterdir(), None) is None
    below = {found.parent for file in files for found in folder.glob(f"*/{file}")}
    mended = f" Did you mean {max(below, key=os.path.getmtime)}?" if below else ""
    raise FileNotFoundError(f"{folder} is {'an empty' if empty else 'a'} folder without {_one_of(files)}.{mended}")


def _check_hub(name: str, revision: str | None, files: tuple[str, ...]) -> None:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if any(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in files):
        return
    neither = f"{name} is neither a folder here nor in the cache of the Hub"
    if is_offline_mode():
        raise ConnectionError(f"{neither}, and HF_HUB_OFFLINE forbids to ask the Hub.{_nearest(Path(name))}")
    try:
        get_hf_file_metadata(hf_hub_url(name, files[0], revision=revision), timeout=_SECONDS)
    except GatedRepoError:
        raise PermissionError(
            f"{name} is gated: ask for access on its page on the Hub, then `hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise FileNotFoundError(
            f"There is neither a folder {name} here nor a model of this name on the Hub (or it is private: `hf auth "
            f"login`).{_nearest(Path(name))}"
        ) from None
    except (EntryNotFoundError, HfHubHTTPError):  # an adapter, or what transformers knows better to tell
        return
    except Exception as error:  # of the HTTP client, whose name changes between versions of huggingface_hub
        raise ConnectionError(
            f"{neither}, and {constants.ENDPOINT} cannot be reached ({error}). Check the connection, or name a "
            f"folder.{_nearest(Path(name))}"
        ) from error


def _one_of(files: tuple[str, ...]) -> str:
    return " or ".join(files)


def _nearest(path: Path) -> str:
    """The folder that may have been meant: one beside it, or that of a `~` that no shell has read."""
    from difflib import get_close_matches

    try:
        path = path.expanduser()
        beside = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except (OSError, RuntimeError, ValueError):  # no such folder, no such user, a zero byte
        return ""
    near = get_close_matches(path.name, beside, n=1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""
