"""What a results file states besides its numbers, so that they can be checked: software, hardware, data."""

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("hf_attncal", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")


def software() -> dict[str, str]:
    """Versions of Python and of the packages that a result can depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def hardware() -> dict[str, Any]:
    """The processor and its threads, and the GPU where there is one."""
    described: dict[str, Any] = {
        "cpu": torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
    return described


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(config: dict[str, Any], files: dict[str, Path] | None = None, **hardware_besides: Any) -> dict[str, Any]:
    """What every results file begins with: the settings, and all that the numbers could depend on besides.

    Args:
        config: settings as plain data, without the places of this machine.
        files: data file by the name to state -> where it is; stated are their SHA-256.
        hardware_besides: more to say about the hardware (`processes`, `bf16`).
    """
    return {
        "config": config,
        "software": software(),
        "hardware": {**hardware(), **hardware_besides},
        "data_sha256": {name: sha256(path) for name, path in (files or {}).items()},
    }


def write(results: dict[str, Any], *paths: str | Path) -> None:
    """Write results as JSON to every path; folders that are missing are made."""
    for path in map(Path, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
