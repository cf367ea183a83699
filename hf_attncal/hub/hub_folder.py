"""Inspect the folder of a saved model, and list the problems that others would have in loading it."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from hf_attncal.families import FAMILIES
from hf_attncal.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, LAYOUTS, check_one_model, kind_of_folder


@dataclass(frozen=True)
class HubFolder:
    """Content of a saved model's or adapter's folder; `problems` has the reasons why it does not load elsewhere."""

    path: Path
    model_type: str
    architecture: str
    weight_bytes: int
    code_files: tuple[str, ...]
    problems: tuple[str, ...]
    config: dict = field(repr=False)  # content of config.json, for an adapter of adapter_config.json


def inspect_folder(folder: str | Path) -> HubFolder:
    """Inspect a folder written by `save_pretrained`, without loading the model and without the network.

    Raises:
        ValueError: `folder` holds both an adapter and a model, or neither an adapter nor a readable `config.json` of a
            model of this package.
    """
    folder = Path(folder)
    check_one_model(folder)
    if kind_of_folder(folder) == "adapter":
        return _inspect_adapter(folder)
    config = _read(folder, CONFIG)
    if config.get("model_type") not in FAMILIES:
        raise ValueError(
            f"{folder} does not hold a model of this package: `model_type` in config.json must be one of "
            f"{sorted(FAMILIES)}, got {config.get('model_type')!r}. Name a folder written by `save_pretrained` of "
            "such a model."
        )
    architecture = config["architectures"][0] if config.get("architectures") else None
    auto_class, _ = FAMILIES[config["model_type"]].auto_and_card(architecture)
    auto_map = config.get("auto_map") or {}
    problems = LAYOUTS["model"].problems(folder)
    if "AutoConfig" not in auto_map or auto_class not in auto_map:
        problems.append(f"`auto_map` of config.json does not name AutoConfig and {auto_class}")
    code_files, code_problems = _code(folder, auto_map)
    return HubFolder(
        path=folder,
        model_type=config["model_type"],
        architecture=architecture or "unknown",
        weight_bytes=sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        code_files=code_files,
        problems=(*problems, *code_problems),
        config=config,
    )


def _code(folder: Path, auto_map: dict) -> tuple[tuple[str, ...], list[str]]:
    """Return the code files that loading a model runs, and their problems."""
    # The map has a class as "module.Class", or "repository--module.Class" after a download.
    entries = [name for entry in auto_map.values() for name in ([entry] if isinstance(entry, str) else entry) if name]
    waiting = {f"{entry.rpartition('--')[2].partition('.')[0]}.py" for entry in entries}
    code_files: set[str] = set()
    problems = []
    while waiting:
        name = waiting.pop()
        try:
            source = (folder / name).read_text(encoding="utf-8")
        except OSError:
            problems.append(f"{name} is imported but missing")
            continue
        except UnicodeDecodeError as error:
            problems.append(f"{name} is not in UTF-8 ({error.reason} at byte {error.start})")
            continue
        code_files.add(name)
        modules = re.findall(r"^\s*from\s+\.(\w+)\s+import", source, re.MULTILINE)
        waiting |= {f"{module}.py" for module in modules} - code_files
        if re.search(r"^\s*(?:from|import)\s+hf_attncal\b", source, re.MULTILINE):
            problems.append(f"{name} imports the package hf_attncal")
    return tuple(sorted(code_files)), sorted(set(problems))


def _inspect_adapter(folder: Path) -> HubFolder:
    """Inspect an adapter of any PEFT method, which others can load if its base model is on the Hub."""
    config = _read(folder, ADAPTER_CONFIG)
    base, kind = config.get("base_model_name_or_path"), str(config.get("peft_type"))
    problems = LAYOUTS["adapter"].problems(folder)
    if not base or base_folder(base):
        problems.append(
            f"`base_model_name_or_path` of {ADAPTER_CONFIG} must be the base model's name on the Hub, got {base!r}"
        )
    return HubFolder(
        path=folder,
        model_type=kind,
        architecture=f"adapter of the type {kind}",
        weight_bytes=sum(path.stat().st_size for path in folder.glob(ADAPTER_WEIGHTS)),
        code_files=(),
        problems=tuple(problems),
        config=config,
    )


def base_folder(base: str | None) -> Path | None:
    """Return the folder that an adapter's base model is in, or None if it is a name on the Hub or missing."""
    if not base or not (Path(base).is_absolute() or Path(base).is_dir() or base.startswith(".")):
        return None
    return Path(base).resolve()


def _read(folder: Path, name: str) -> dict:
    try:
        config = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder} is not the folder of a saved model: {name} cannot be read ({error}).") from error
    if not isinstance(config, dict):
        raise ValueError(f"{folder} is not the folder of a saved model: {name} must hold a JSON object.")
    for key in ("model_type", "base_model_name_or_path"):
        if not isinstance(config.get(key), str | None):
            raise ValueError(f"{folder} is not the folder of a saved model: `{key}` in {name} must be a name.")
    return config
