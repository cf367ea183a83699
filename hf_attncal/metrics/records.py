"""Metadata of results files: settings, command, commit, software, hardware and data hashes.

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

# The root of the clone, or the folder of installed packages.
_ROOT = Path(__file__).resolve().parents[2]
_COMMAND_LINE: ContextVar[tuple[str, ...]] = ContextVar("command_line", default=())
PACKAGES = ("hf_attncal", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")
_version = cache(version)  # cached because it reads files


def software() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result can depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


@cache
def commit() -> str | None:
    """Return the commit of the clone that this package runs from, with `-dirty` if tracked files differ from it.

    Git runs once per process, so a long run that calls this at its start records the code that it began with.

    Returns:
        40 hexadecimal digits, or None if the package is not in a clone or git fails.
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
    """Record this command line, or name of a function, as the `command` of results made in the block.

    In nested blocks the outermost counts, because it is the command that the user ran.
    """
    token = _COMMAND_LINE.set(_COMMAND_LINE.get() or tokens)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(token)


def command_line() -> tuple[str, ...]:
    """Return the command line of `recorded_as`; empty outside its block."""
    return _COMMAND_LINE.get()


def command(arguments: list[str] | None = None) -> str:
    """Return the command line as a reader would repeat it.

    Absolute paths are cut to their last part, because results are published.

    Args:
        arguments: name and arguments of the command. Default: the ones in `recorded_as`, or else `sys.argv`.
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

    `load_average` covers the minute before the call. A benchmark calls this before it begins, to show whether the
    machine was idle.

    Args:
        device: device that computed the numbers (a `torch.device` or its name). For a CPU, no GPU is described.
            Default: None, the GPU is described if there is one.
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
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout
            described["driver"] = output.split("\n")[0]
    return described


def record(
    config: dict[str, Any], files: dict[str, Path] | None = None, device: Any = None, **other_hardware: Any
) -> dict[str, Any]:
    """Return the metadata of a results file: `config`, `command`, `commit`, `software`, `hardware` and `data_sha256`.

    Args:
        config: settings as plain data, without paths of this machine.
        files: data files by the name under which their SHA-256 is recorded.
        device: device that computed the numbers; see `hardware`.
        other_hardware: further facts about the hardware (`processes`, `bf16`).
    """
    return {
        "config": config,
        "command": command(),
        "commit": commit(),
        "software": software(),
        "hardware": {**hardware(device), **other_hardware},
        "data_sha256": {name: sha256(path) for name, path in (files or {}).items()},
    }
