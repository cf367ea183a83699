"""Record what a results file needs besides its numbers, so that they can be checked and made again.

PyTorch is imported inside a function: scoring files does not need it.
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hf_attncal.io.files import sha256

# The folder of the package in a clone; elsewhere that of the installed packages.
_ROOT = Path(__file__).resolve().parents[2]
_CALLED: ContextVar[tuple[str, ...]] = ContextVar("called", default=())
PACKAGES = ("hf_attncal", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")
_version = cache(version)  # which reads files


def software() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result can depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


@cache
def commit() -> str | None:
    """Return the commit of the clone that this package runs from, with `-dirty` where tracked files differ from it.

    Git is asked once in a process, so a long run that asks at its start states the code that it began with.

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


@contextmanager
def recorded_as(*tokens: str) -> Iterator[None]:
    """State a command line, or the name of a function, as the command of what is recorded in the block.

    In a block inside another the outer one counts: it is what the user began with.
    """
    token = _CALLED.set(_CALLED.get() or tokens)
    try:
        yield
    finally:
        _CALLED.reset(token)


def command_line() -> tuple[str, ...]:
    """Return what `recorded_as` states; nothing outside of such a block."""
    return _CALLED.get()


def command(arguments: list[str] | None = None) -> str:
    """Return the command line as a reader would repeat it.

    Results are published, so absolute paths, which show where files lie on a machine, are cut to their last part.

    Args:
        arguments: the command's name and arguments; by default those of `recorded_as`, or of the process.
    """
    program, *rest = arguments or command_line() or sys.argv
    path = Path(program)
    if path.name == "__main__.py":
        names = ["attncal"]
    elif path.suffix == ".py":
        inside = path.resolve().is_relative_to(_ROOT)
        names = ["python", str(path.resolve().relative_to(_ROOT)) if inside else path.name]
    else:
        names = [path.name]
    for argument in rest:
        option, equals, value = argument.rpartition("=")
        names.append(f"{option}{equals}{Path(value).name}" if os.path.isabs(value) else argument)
    return shlex.join(names)


def hardware(device: Any = None) -> dict[str, Any]:
    """Describe the processor, its threads and its load, and the GPU with its CUDA version and driver.

    `load_average` covers the minute before the call: a benchmark asks before it begins, so its reader sees whether
    the machine was quiet.

    Args:
        device: device that computed the numbers (a `torch.device` or its name). It is stated, and a GPU is described
            only if it is this device. None: a GPU is described if there is one.
    """
    import torch

    processor = platform.processor()
    with suppress(OSError):  # not Linux
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    described: dict[str, Any] = {
        "cpu": processor or torch.cpu.get_capabilities().get("cpu_name") or platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
    if device is not None:
        described["device"] = str(device)
    if torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda"):
        described |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
        with suppress(OSError, subprocess.SubprocessError):
            asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout
            described["driver"] = told.split("\n")[0]
    return described


def record(
    config: dict[str, Any], files: dict[str, Path] | None = None, device: Any = None, **hardware_besides: Any
) -> dict[str, Any]:
    """Return the head of a results file: `config`, `command`, `commit`, `software`, `hardware` and `data_sha256`.

    Args:
        config: settings as plain data, without paths of this machine.
        files: data files by the name under which their SHA-256 is stated.
        device: device that computed the numbers, as for `hardware`.
        hardware_besides: further facts about the hardware (`processes`, `bf16`).
    """
    return {
        "config": config,
        "command": command(),
        "commit": commit(),
        "software": software(),
        "hardware": {**hardware(device), **hardware_besides},
        "data_sha256": {name: sha256(path) for name, path in (files or {}).items()},
    }
