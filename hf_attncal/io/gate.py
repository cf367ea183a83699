"""Three rules for every write: never over an input, never over a file of a model, one writer per folder.

A job records its inputs and the folders that it claims. `commands/guarded.py` checks every output of a user before
anything is loaded. `files.py` and `streams.py` check every file that is written, so no command can omit the check.
`layouts.LAYOUTS` lists the file names of a model.
"""

import errno
import json
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hf_attncal.io.errors import CommandError
from hf_attncal.layouts import CONFIG, COUNTS, LOCK, RUN, WEIGHTS, File, file_of, files, kind_of_folder

_PACKAGE_FOLDERS = [Path(__file__).resolve().parents[1]]
# Files that are also protected in a folder that is not of a model.
_WEIGHTS = [*map(file_of, (WEIGHTS, "pytorch_model.bin", "adapter_model.bin")), *files("export")]
_MODEL_FILES = [file for file in files() if file not in files("around")]
_OPENED = re.compile(r"/dev/(fd/\d+|stdout|stderr)|/proc/\w+/fd/\d+")
_ADDED_FILES = [*files("aligner", "card", "run")]  # files that are added to an existing model


# ---- jobs ----


@dataclass
class _Job:
    """Inputs (files and model folders) of a job, its claimed folders, and the claims that last until its end."""

    inputs: list[str] = field(default_factory=list)
    claims: dict[Path, bool] = field(default_factory=dict)  # folder -> whether the job may write any file of it
    lasting: ExitStack = field(default_factory=ExitStack)


_JOBS: ContextVar[tuple[_Job, ...]] = ContextVar("jobs", default=())  # running jobs, innermost last


@contextmanager
def job() -> Iterator[None]:
    """Record inputs and claims of the block; claims end with it."""
    current = _Job()
    with current.lasting:
        token = _JOBS.set((*_JOBS.get(), current))
        try:
            yield
        finally:
            _JOBS.reset(token)


def note_inputs(*names: Any) -> None:
    """Record files or model folders as inputs of the job; objects other than names are ignored."""
    if jobs := _JOBS.get():
        jobs[-1].inputs.extend(os.fspath(name) for name in names if isinstance(name, str | os.PathLike))


def protect_folder(folder: Path) -> None:
    """Refuse writes into a folder, as into the package itself."""
    _PACKAGE_FOLDERS.append(folder.resolve())


def _inputs() -> list[str]:
    return [name for job in _JOBS.get() for name in job.inputs]


def _claims() -> dict[Path, bool]:
    return {folder: own for job in _JOBS.get() for folder, own in job.claims.items()}


# ---- files ----


def check_file(path: str | os.PathLike[str], option: str | None = None) -> None:
    """Raise CommandError for a file that would overwrite an input or a file of a model, also through links.

    Args:
        path: path of the file. Pipes and devices are allowed.
        option: option of a user's file, which is first written as `path`.partial. Default: none, for a writer with a
            fixed name: it may add files to a model, and write any file of a folder that the job saves a model into.

    Raises:
        CommandError: the file is protected; the message names both files.
    """
    try:
        real = os.path.realpath(path)
    except ValueError as error:  # a zero byte
        raise CommandError(f"{option} {os.fspath(path)!r} cannot be opened: {error}.") from error
    if is_special(path):  # folders have a check of their own
        return
    named_by = f"{option} {path}" if option else path
    if _OPENED.fullmatch(os.fspath(path)):
        raise CommandError(f"{named_by} is a file that the shell has opened, which would be replaced. Give its name.")
    if option is None and (_own(Path(real)) or _row(os.path.basename(real)) in _ADDED_FILES):
        return
    for name in (real,) if option is None else (real, f"{real}.partial"):
        named = Path(name)
        folders = [named.parent] if option is None else named.parents
        if problem := _overwrites(name) or _in_model(named, folders):
            raise CommandError(f"{named_by} {problem}. Give another name.")
    if option is not None and os.path.lexists(f"{real}.partial"):
        partial = os.lstat(f"{real}.partial")
        if stat.S_ISLNK(partial.st_mode) or partial.st_nlink > 1:
            raise CommandError(
                f"{real}.partial is a link to another file, which would be overwritten. Remove the link."
            )


def check_apart(outputs: Iterable[tuple[str, str]]) -> None:
    """Raise CommandError for outputs of one command that would overwrite each other.

    Args:
        outputs: (option, path) of each output.

    Raises:
        CommandError: two outputs clash; the message names both.
    """
    written: dict[str, str] = {}
    for option, path in outputs:
        if is_special(path) and not os.path.isdir(path):
            continue
        names = {_normalised(os.path.realpath(path)), _normalised(f"{os.path.realpath(path)}.partial")}
        if clash := names & written.keys():
            raise CommandError(
                f"{option} {path} would overwrite the file of {written[clash.pop()]}. Give another name."
            )
        written |= dict.fromkeys(names, option)
    for name, option in written.items():
        folder, file = os.path.split(name)
        if folder in written and _row(file):
            message = f"{option} {name} would overwrite a file of {written[folder]} {folder}. Give another name."
            raise CommandError(message)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pipe, a device or a folder."""
    return os.path.exists(path) and not os.path.isfile(path)


def _overwrites(path: str) -> str | None:
    """Return a problem if a path is an input file, standard input or a file of an input model, also through links."""
    if not os.path.isfile(path):
        return None
    status, inputs = os.stat(path), []
    with suppress(OSError, ValueError, AttributeError):  # a notebook has no standard input
        inputs.append(("standard input", os.fstat(sys.stdin.fileno())))
    for name in _inputs():
        folders = [folder for folder in (name, os.path.join(name, COUNTS)) if os.path.isdir(folder)]
        inside = [os.path.join(folder, file) for folder in folders for file in os.listdir(folder) if _row(file)]
        for file in inside or [name]:
            with suppress(OSError, ValueError):
                inputs.append((file, os.stat(file)))
    same = [name for name, input_status in inputs if os.path.samestat(input_status, status)]
    return f"would overwrite {same[0]}, the same file" if same else None


def _in_model(path: Path, folders: Iterable[Path]) -> str | None:
    """Return a problem if a path is, or has the name of, a file of a model in one of these folders."""
    for folder in folders:
        name = path.relative_to(folder).parts[0]
        if (row := _row(name)) is None:
            continue
        kind = kind_of_folder(folder) or ("model" if _claims().get(folder) else None)
        if kind is not None:
            problem = "would overwrite" if path.exists() else "has the name of"
            return f"{problem} a file of the {kind} in {folder} ({name}: {row.what})"
        if path.parent == folder and path.is_file() and row in (*_WEIGHTS, *files("aligner")):
            return f"would overwrite {row.what} in {folder}"
    return None


def _row(name: str) -> File | None:
    """Return the row of a file name in the layouts, ignoring case."""
    return next((file for file in _MODEL_FILES if fnmatchcase(_normalised(name), _normalised(file.name))), None)


def _normalised(name: str) -> str:
    """Normalise a name, so that names are equal if they are the same on some file system."""
    return unicodedata.normalize("NFC", name).casefold()


def _own(path: Path) -> bool:
    claims = _claims()
    return any(claims.get(folder, False) for folder in (path, *path.parents))


# ---- folders ----


def check_folder(
    path: str | os.PathLike[str], option: str = "--output", *, marked: bool = False, model: Any = None
) -> None:
    """Raise CommandError for an output folder of a user that is a file or holds a model.

    Args:
        path: folder, existing or not.
        option: option that names it, for messages. Default: --output.
        marked: True to allow a folder with a run.json, whose writer `saving_into` checks. Default: False.
        model: folder of a model whose own files may be written. Default: none.

    Raises:
        CommandError: the folder is refused.
    """
    existing = os.fspath(path) or "."
    while not os.path.lexists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing) or "."
    if not os.path.isdir(existing):
        raise CommandError(f"{path} cannot be a folder: {existing} is a file. Give another {option}.")
    folder = Path(os.path.realpath(path))
    if isinstance(model, str | os.PathLike) and os.path.isdir(model) and folder == Path(os.path.realpath(model)):
        return
    if (content := _content(folder)) and not (marked and (folder / RUN).is_file()):
        advice = ", or call it MODEL." if model is not None and (folder / CONFIG).exists() else "."
        raise CommandError(f"{option} {path} holds {content}: it is not overwritten. Name another folder{advice}")
    if not _own(folder) and (problem := _in_model(folder, folder.parents)):
        raise CommandError(f"{option} {path} {problem}. Name another folder.")


def _content(folder: Path) -> str | None:
    """Return a description of the model in a folder, or None."""
    kind = kind_of_folder(folder)
    rows = [(row, path.name) for path in sorted(folder.glob("*")) if (row := _row(path.name)) is not None]
    file = next((name for row, name in rows if row in (files(kind) if kind else _WEIGHTS)), None)
    if kind is None and file is None:
        return None
    return f"{'an' if kind == 'adapter' else 'a'} {kind or 'model'} ({file})"


@contextmanager
def saving_into(
    folder: str | os.PathLike[str], by: str | None = None, option: str = "--output", own: bool = True
) -> Iterator[None]:
    """Claim a folder for the writes of this job; a missing folder is made, and removed if it stays empty.

    Args:
        folder: folder to claim.
        by: writer of a whole model. A folder with a model must have the same writer in its `run.json`, and must not be
            an input. Default: none, for files added to an existing model.
        option: option that names the folder, for messages. Default: --output.
        own: True to allow writes to any file of the folder in the block. Default: True.

    Raises:
        CommandError: another job has claimed the folder, or it must not be overwritten.
    """
    path = Path(os.path.realpath(folder))
    if any(map(path.is_relative_to, _PACKAGE_FOLDERS)):
        raise CommandError(f"{folder} belongs to the package and is read-only. Copy it, and name the copy.")
    if path in _claims():
        yield
        return
    if by is not None:
        _check_writer(path, folder, by, option)
    new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if not _JOBS.get():
            stack.enter_context(job())
        claims = _JOBS.get()[-1].claims
        try:
            stack.enter_context(locked(path / LOCK))
        except BlockingIOError as error:
            raise CommandError(
                f"{folder} is in use by another process. Wait for it, or name another folder ({option})."
            ) from error
        claims[path] = own
        try:
            if by is not None:
                _check_writer(path, folder, by, option)  # another process may have filled the folder before the lock
            yield
        finally:
            del claims[path]
            with suppress(OSError):  # a folder with files stays
                (path / LOCK).unlink()
                if new:
                    path.rmdir()


def claim_folder(folder: str | os.PathLike[str], by: str | None = None, option: str = "--output") -> None:
    """Claim a folder until the end of the job; see `saving_into`."""
    if jobs := _JOBS.get():
        jobs[-1].lasting.enter_context(saving_into(folder, by, option))


def run_record(by: str, **details: Any) -> dict[str, Any]:
    """Return the content of a folder's `run.json`, with its writer."""
    return {"written_by": by, **details}


def read_run_record(folder: Path) -> Mapping[str, Any]:
    """Return the content of a folder's `run.json`; empty if it is missing or unreadable."""
    with suppress(OSError, ValueError):
        values = json.loads((folder / RUN).read_text(encoding="utf-8"))
        if isinstance(values, Mapping):
            return values
    return {}


def _check_writer(path: Path, folder: str | os.PathLike[str], by: str, option: str) -> None:
    """Raise CommandError for a folder with inputs, or with a model of another writer."""
    for name in _inputs():
        real = os.path.realpath(name)
        if real == str(path) or (os.path.dirname(real) == str(path) and _row(os.path.basename(real))):
            raise CommandError(f"{option} {folder} holds {name}, which is read. Name another folder.")
    content, writer = _content(path), read_run_record(path).get("written_by")
    if content is not None and writer != by:
        origin = f" of {writer}" if isinstance(writer, str) else ""
        raise CommandError(f"{option} {folder} holds {content}{origin}: it is not overwritten. Name another folder.")


# ---- locks ----


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Lock a file in the block, creating it if necessary; a killed process loses the lock.

    Raises:
        BlockingIOError: another job has the lock; `filename` is `path`.
        OSError: the file cannot be opened. A file system without locks is no error.
    """
    from filelock import lock_descriptor  # slow to import, and rarely needed

    while True:
        with open(path, "ab") as file:
            acquired, same = True, False
            with suppress(OSError):  # a file system without locks
                acquired = lock_descriptor(file.fileno(), blocking=False)
            if not acquired:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
            with suppress(FileNotFoundError):
                same = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            if same:
                yield
                return
        # Another process renamed or removed the file after it was opened here: lock the file that has the name now.
