"""What a results file states besides its numbers, so that they can be checked and made again.

PyTorch is imported when it is asked: scoring files does not need it.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# The folder of the package in a clone; elsewhere that of the installed packages.
_ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hf_attncal", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")
# No space, no more of a quota, no larger file; and the words of safetensors and tokenizers for it, then of torch.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_IN_WORDS = re.compile(
    rf"os error ({'|'.join(map(str, _FULL))})\b|PytorchStreamWriter failed|inline_container|iostream error"
)


def software() -> dict[str, str]:
    """Versions of Python and of the packages that a result can depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


@cache
def commit() -> str | None:
    """Return the commit of the clone that this package runs from, with `-dirty` where tracked files differ from it.

    It is asked once in a process, so a long run that asks at its start states the code that it began with.

    Returns:
        40 hexadecimal digits, or None where the package was installed without a clone or git does not answer.
    """
    if not (_ROOT / ".git").exists():
        return None
    describe = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def command(arguments: list[str] | None = None) -> str:
    """Return the command line of this process as a reader would repeat it; of absolute paths only the last part.

    Results are published, and where files lie on the machine of whoever made them is nobody's business.

    Args:
        arguments: of the command, its name first; by default those of the process.
    """
    program, *rest = sys.argv if arguments is None else arguments
    path = Path(program)
    if path.name == "__main__.py":
        names = ["attncal"]
    elif path.suffix == ".py":
        inside = path.resolve().is_relative_to(_ROOT)
        names = ["python", str(path.resolve().relative_to(_ROOT)) if inside else path.name]
    else:
        names = [path.name]
    return shlex.join([*names, *map(_without_place, rest)])


def _without_place(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{Path(value).name}" if os.path.isabs(value) else argument


def hardware(device: Any = None) -> dict[str, Any]:
    """The processor, its threads and its load, and the GPU with its CUDA version.

    `load_average` is that of the minute before the call: a benchmark asks before it begins, and so tells its reader
    whether the machine was quiet.

    Args:
        device: what the numbers were computed on (a `torch.device` or its name): it is stated, and a GPU only if it
            is that one. None: the GPU is stated where there is one.
    """
    import torch

    described: dict[str, Any] = {
        "cpu": _processor() or torch.cpu.get_capabilities().get("cpu_name") or platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
    if device is not None:
        described["device"] = str(device)
    if torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda"):
        described |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return described


def _processor() -> str:
    """The name of the processor; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(
    config: dict[str, Any], files: dict[str, Path] | None = None, device: Any = None, **hardware_besides: Any
) -> dict[str, Any]:
    """Return what every results file begins with: the settings, and all that the numbers could depend on besides.

    That is `config`, `command`, `commit`, `software`, `hardware` and `data_sha256`.

    Args:
        config: settings as plain data, without the places of this machine.
        files: data file by the name to state -> where it is; stated are their SHA-256.
        device: as in `hardware`.
        hardware_besides: more to say about the hardware (`processes`, `bf16`).
    """
    return {
        "config": config,
        "command": command(),
        "commit": commit(),
        "software": software(),
        "hardware": {**hardware(device), **hardware_besides},
        "data_sha256": {name: sha256(path) for name, path in (files or {}).items()},
    }


def write(results: dict[str, Any], *paths: str | Path) -> None:
    """Write results as JSON to every path, each as `write_text` does.

    Raises:
        TypeError: something in `results` is no JSON; no file has been touched.
        OSError: see `writing`.
    """
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    for path in paths:
        write_text(text, path)


def write_text(text: str, path: str | Path) -> None:
    """Write a file of UTF-8, as `write_bytes` does."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write a file, as `whole_file` does."""
    with whole_file(path) as partial:
        partial.write_bytes(data)


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A place to write a file to, which is whole or as it was; folders that are missing are made.

    It is written under another name beside its own, brought to the disk and renamed. What is there and no file, such
    as a pipe, is written to and stays what it is; so is what the process has open already (/dev/stdout), behind what
    is in it.

    Yields:
        That name, or that of the pipe.

    Raises:
        OSError: see `writing`.
    """
    descriptor = open_descriptor(path)
    if descriptor is not None:
        with TemporaryDirectory() as folder, writing(path):
            yield (made := Path(folder) / "made")
            sys.stdout.flush()
            with open(os.dup(descriptor), "wb") as file:
                file.write(made.read_bytes())
        return
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with writing(path):
            yield Path(path)
        return
    path = Path(path).resolve()  # a symbolic link stays one
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            to_disk(partial)
            partial.replace(path)
            to_disk(path.parent)
        except OSError as error:
            if error.filename == str(partial):  # a name that nobody has asked for
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        finally:
            partial.unlink(missing_ok=True)


def open_descriptor(path: str | Path) -> int | None:
    """The number of the open file that a name such as /dev/stdout, /dev/fd/3 or a link to it stands for, else None.

    A shell has opened it, perhaps to append (`>>`): it must be written through that number, and not replaced.
    """
    path = os.path.abspath(path)
    for _ in range(40):  # as many links as the system follows
        if found := re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", path):
            return int(found[1])
        if not os.path.islink(path):
            return None
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return None


def to_disk(*paths: Path) -> None:
    """Wait until the disk has these files, or the names in these folders: no loss of power takes them away.

    Raises:
        OSError: a file cannot be written. Folders are left to those file systems that take them.
    """
    for path in paths:
        with suppress(OSError) if path.is_dir() else nullcontext():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Around what writes a file, or into a folder: the error of a full disk names it.

    Raises:
        OSError: the disk is full; `filename` is `path` where the system names no file, as it does not at a write, and
            where safetensors, tokenizers or torch have an error of their own for it.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    except Exception as error:
        if _FULL_IN_WORDS.search(str(error)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise
