"""Three rules for every write: not over an input, not over a file of a model, one writer a folder.

A job notes what it reads, and the folders that it claims. `commands/guarded.py` checks every output that a user names
before anything is loaded; `files.py` and `streams.py` check every file that is written, so that no command can forget
to. Which names belong to a model, `layouts.LAYOUTS` says.
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

_PACKAGES = [Path(__file__).resolve().parents[1]]  # this one's folder, and what is put together of it
# Weights are kept in a folder that is no model's, too; and what was learned, from what a user names.
_WEIGHTS = [*map(file_of, (WEIGHTS, "pytorch_model.bin", "adapter_model.bin")), *files("export")]
_OF_MODELS = [file for file in files() if file not in files("around")]
_BESIDE = [*files("aligner", "card", "run")]  # what is written beside a model that is there


# ---- jobs ----


@dataclass
class _Job:
    """What a job reads, files and folders of models; the folders that it has claimed; what it holds to its end."""

    read: list[str] = field(default_factory=list)
    claims: dict[Path, bool] = field(default_factory=dict)  # and whether any file of the folder is the job's own
    held: ExitStack = field(default_factory=ExitStack)


_JOBS: ContextVar[tuple[_Job, ...]] = ContextVar("jobs", default=())  # that run now, the innermost last


@contextmanager
def job() -> Iterator[None]:
    """Take note of what is read and claimed in the block; what it holds is free again at the end."""
    of_block = _Job()
    with of_block.held:
        token = _JOBS.set((*_JOBS.get(), of_block))
        try:
            yield
        finally:
            _JOBS.reset(token)


def reads(*names: Any) -> None:
    """Take note of files, or folders of models, that the job reads; what is no name is ignored."""
    if jobs := _JOBS.get():
        jobs[-1].read.extend(os.fspath(name) for name in names if isinstance(name, str | os.PathLike))


def keep(folder: Path) -> None:
    """Let nothing be saved into a folder, as if it were one of the package."""
    _PACKAGES.append(folder.resolve())


def _read() -> list[str]:
    return [name for job in _JOBS.get() for name in job.read]


def _claims() -> dict[Path, bool]:
    return {folder: own for job in _JOBS.get() for folder, own in job.claims.items()}


# ---- files ----


def check_file(path: str | os.PathLike[str], option: str | None = None) -> None:
    """Refuse to write a file over an input, or over a file of a model, by whatever name.

    Args:
        path: of the file. A pipe or a device is written to.
        option: what the user names it with; it is written as `path`.partial first. None for a writer that knows its
            name: it may write what lies beside a model, and any file of a folder that the job saves a model into.

    Raises:
        CommandError: it is refused; the message names both.
    """
    try:
        real = os.path.realpath(path)
    except ValueError as error:  # a zero byte
        raise CommandError(f"{option} {os.fspath(path)!r} cannot be opened: {error}.") from error
    if os.path.exists(real) and not os.path.isfile(real):  # a folder is refused elsewhere
        return
    if option is None and (_own(Path(real)) or _row(os.path.basename(real)) in _BESIDE):
        return
    for name in (real,) if option is None else (real, f"{real}.partial"):
        named = Path(name)
        folders = [named.parent] if option is None else named.parents
        if problem := _overwrites(name) or _in_model(named, folders):
            raise CommandError(f"{path if option is None else f'{option} {path}'} {problem}. Give another name.")
    if option is not None and os.path.lexists(f"{real}.partial"):
        partial = os.lstat(f"{real}.partial")
        if stat.S_ISLNK(partial.st_mode) or partial.st_nlink > 1:
            raise CommandError(f"{real}.partial is a link to another file, which would be overwritten. Remove it.")


def check_apart(outputs: Iterable[tuple[str, str]]) -> None:
    """Refuse outputs of one command of which one would overwrite another; given as (option, path).

    Raises:
        CommandError: it is refused; the message names both.
    """
    written: dict[str, str] = {}
    for option, path in outputs:
        if is_special(path) and not os.path.isdir(path):
            continue
        names = {_same(os.path.realpath(path)), _same(f"{os.path.realpath(path)}.partial")}
        if clash := names & written.keys():
            raise CommandError(f"{option} {path} would overwrite that of {written[clash.pop()]}. Give another name.")
        written |= dict.fromkeys(names, option)
    for name, option in written.items():
        folder, file = os.path.split(name)
        if folder in written and _row(file):
            other = written[folder]
            raise CommandError(f"{option} {name} would overwrite a file of {other} {folder}. Give another name.")


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pipe or a device, or is open already (/dev/fd/N)."""
    return os.path.exists(path) and (not os.path.isfile(path) or open_descriptor(path) is not None)


def open_descriptor(path: str | os.PathLike[str]) -> int | None:
    """Return the descriptor that a name such as /dev/stdout, /dev/fd/3 or a link to it stands for, or None.

    A shell has opened the file, perhaps to append (`>>`), so it must be written through its descriptor and not
    replaced.
    """
    path = os.path.abspath(path)
    for _ in range(40):  # as many links as the system follows
        if match := re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", path):
            return int(match[1])
        if not os.path.islink(path):
            return None
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return None


def _overwrites(path: str) -> str | None:
    """Say which file that is read a path is, by whatever name: an input, standard input or a file of a model."""
    if not os.path.isfile(path):
        return None
    there, known = os.stat(path), []
    with suppress(OSError, ValueError, AttributeError):  # a notebook has none
        known.append(("standard input", os.fstat(sys.stdin.fileno())))
    for name in _read():
        folders = [folder for folder in (name, os.path.join(name, COUNTS)) if os.path.isdir(folder)]
        inside = [os.path.join(folder, file) for folder in folders for file in os.listdir(folder) if _row(file)]
        for file in inside or [name]:
            with suppress(OSError, ValueError):
                known.append((file, os.stat(file)))
    same = [name for name, read in known if os.path.samestat(read, there)]
    return f"would overwrite {same[0]}, the same file" if same else None


def _in_model(path: Path, folders: Iterable[Path]) -> str | None:
    """Say what part of a model in one of these folders a file or folder is, or would be taken for."""
    for folder in folders:
        name = path.relative_to(folder).parts[0]
        if (row := _row(name)) is None:
            continue
        kind = kind_of_folder(folder) or ("model" if _claims().get(folder) else None)
        if kind is not None:
            does = "would overwrite" if path.exists() else "has the name of"
            return f"{does} a file of the {kind} in {folder} ({name}: {row.what})"
        if path.parent == folder and path.is_file() and row in (*_WEIGHTS, *files("aligner")):
            return f"would overwrite {row.what} in {folder}"
    return None


def _row(name: str) -> File | None:
    """Return the row of a name, as a file system that ignores case has it."""
    return next((file for file in _OF_MODELS if fnmatchcase(_same(name), _same(file.name))), None)


def _same(name: str) -> str:
    """Return the same for names that are one name on some file systems."""
    return unicodedata.normalize("NFC", name).casefold()


def _own(path: Path) -> bool:
    claims = _claims()
    return any(claims.get(folder, False) for folder in (path, *path.parents))


# ---- folders ----


def check_folder(
    path: str | os.PathLike[str], option: str = "--output", *, marked: bool = False, model: Any = None
) -> None:
    """Refuse a folder to save into that a user names, if it cannot be one or holds a model.

    Args:
        path: the folder; it need not be there.
        option: what names it, for messages.
        marked: what saves it may have done so before, which `saving_into` sees by its mark.
        model: folder whose own files may be written.

    Raises:
        CommandError: it is refused.
    """
    existing = os.fspath(path) or "."
    while not os.path.lexists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing) or "."
    if not os.path.isdir(existing):
        raise CommandError(f"{path} cannot be a folder: {existing} is a file. Give another {option}.")
    folder = Path(os.path.realpath(path))
    if isinstance(model, str | os.PathLike) and os.path.isdir(model) and folder == Path(os.path.realpath(model)):
        return
    if (what := _held(folder)) and not (marked and (folder / RUN).is_file()):
        advice = ", or call it MODEL." if model is not None and (folder / CONFIG).exists() else "."
        raise CommandError(f"{option} {path} holds {what}: it is not overwritten. Name another folder{advice}")
    if not _own(folder) and (problem := _in_model(folder, folder.parents)):
        raise CommandError(f"{option} {path} {problem}. Name another folder.")


def _held(folder: Path) -> str | None:
    """Say what model a folder holds."""
    kind = kind_of_folder(folder)
    rows = [(row, path.name) for path in sorted(folder.glob("*")) if (row := _row(path.name)) is not None]
    kept = next((name for row, name in rows if row in (files(kind) if kind else _WEIGHTS)), None)
    if kind is None and kept is None:
        return None
    return f"{'an' if kind == 'adapter' else 'a'} {kind or 'model'} ({kept})"


@contextmanager
def saving_into(
    folder: str | os.PathLike[str], by: str | None = None, option: str = "--output", own: bool = True
) -> Iterator[None]:
    """Claim a folder for this job, to save into; made if it is missing, and then removed if it stays empty.

    Args:
        folder: the folder.
        by: what saves a whole model: a folder with a model must have it in its `run.json`, and must not be read now.
            None for files beside a model that is there.
        option: what names it, for messages.
        own: within the block, the job may write any file of the folder.

    Raises:
        CommandError: another job saves into it, or it is not to be saved over.
    """
    path = Path(os.path.realpath(folder))
    if any(map(path.is_relative_to, _PACKAGES)):
        raise CommandError(f"{folder} belongs to the package, and stays as it is: copy it, and name the copy.")
    if path in _claims():
        yield
        return
    if by is not None:
        _check_mark(path, folder, by, option)
    new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if not _JOBS.get():
            stack.enter_context(job())
        claims = _JOBS.get()[-1].claims
        try:
            stack.enter_context(alone(path / LOCK))
        except BlockingIOError as error:
            raise CommandError(
                f"{folder} is in use by another process. Wait for it, or name another folder ({option})."
            ) from error
        claims[path] = own
        try:
            if by is not None:
                _check_mark(path, folder, by, option)  # another process may have filled it before the lock
            yield
        finally:
            del claims[path]
            with suppress(OSError):  # a folder in use is kept
                (path / LOCK).unlink()
                if new:
                    path.rmdir()


def hold(folder: str | os.PathLike[str], by: str | None = None, option: str = "--output") -> None:
    """Have a folder until the job ends, before there is anything to save; arguments and errors of `saving_into`."""
    if jobs := _JOBS.get():
        jobs[-1].held.enter_context(saving_into(folder, by, option))


def mark(by: str, **others: Any) -> dict[str, Any]:
    """Return what `run.json` of a folder says of what has saved it."""
    return {"written_by": by, **others}


def mark_in(folder: Path) -> Mapping[str, Any]:
    """Return what `run.json` of a folder says; empty where there is none, or none that can be read."""
    with suppress(OSError, ValueError):
        values = json.loads((folder / RUN).read_text(encoding="utf-8"))
        if isinstance(values, Mapping):
            return values
    return {}


def _check_mark(path: Path, folder: str | os.PathLike[str], by: str, option: str) -> None:
    """Refuse a folder that is read from, or holds a model that something else has saved."""
    for name in _read():
        real = os.path.realpath(name)
        if real == str(path) or (os.path.dirname(real) == str(path) and _row(os.path.basename(real))):
            raise CommandError(f"{option} {folder} holds {name}, which is read. Name another folder.")
    what, was = _held(path), mark_in(path).get("written_by")
    if what is not None and was != by:
        told = f" of {was}" if isinstance(was, str) else ""
        raise CommandError(f"{option} {folder} holds {what}{told}: it is not overwritten. Name another folder.")


# ---- alone ----


@contextmanager
def alone(path: str | Path) -> Iterator[None]:
    """Lock a file for this job, creating it if need be; the lock ends with the process, even if it is killed.

    Raises:
        BlockingIOError: another job has the lock; `filename` is `path`.
        OSError: the file cannot be opened. A file system without locks is no error.
    """
    from filelock import lock_descriptor  # few need it, and it takes a while to load

    while True:
        with open(path, "ab") as file:
            locked, same = True, False
            with suppress(OSError):  # a file system without locks
                locked = lock_descriptor(file.fileno(), blocking=False)
            if not locked:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
            with suppress(FileNotFoundError):
                same = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            if same:
                yield
                return
        # Another process has renamed or removed the file after we opened it: lock the one that has the name now.
