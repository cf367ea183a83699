"""What a saved model's folder holds, and what keeps it from loading elsewhere."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from hf_attncal.families import FAMILIES


@dataclass(frozen=True)
class HubFolder:
    """What a saved model's folder holds, and what keeps it from loading elsewhere (`problems`, empty if nothing)."""

    path: Path
    model_type: str
    architecture: str
    card: str  # the template of its model card
    weight_bytes: int
    code_files: tuple[str, ...]
    problems: tuple[str, ...]
    config: dict = field(repr=False)  # what config.json says

    def __str__(self) -> str:
        state = "ready for the Hub" if not self.problems else "not ready: " + "; ".join(self.problems)
        size = f"{self.weight_bytes / 1e6:.1f} MB of weights, {len(self.code_files)} code files"
        return f"{self.path}: {self.architecture}, {size}, {state}"


def inspect_folder(folder: str | Path) -> HubFolder:
    """Look at a folder written by `save_pretrained`, without loading the model and without the network.

    Raises:
        ValueError: `folder` holds no readable `config.json`, or one that is not of a model of this package.
    """
    folder = Path(folder)
    config = _read_config(folder)
    architecture = (config.get("architectures") or [None])[0]
    auto_class, card = FAMILIES[config["model_type"]].auto_and_card(architecture)
    auto_map = config.get("auto_map", {})
    code_files = tuple(sorted(path.name for path in folder.glob("*.py")))
    weights = sorted(folder.glob("*.safetensors"))

    problems = []
    if not weights:
        problems.append("no *.safetensors with the weights")
    if not (folder / "tokenizer_config.json").exists():
        problems.append("no tokenizer (`tokenizer.save_pretrained(folder)` writes it)")
    if "AutoConfig" not in auto_map or auto_class not in auto_map:
        problems.append(f"`auto_map` of config.json does not name AutoConfig and {auto_class}")
    # A class stands in the map as "module.Class", or "repository--module.Class" after a download.
    needed = {f"{entry.rpartition('--')[2].partition('.')[0]}.py" for entry in auto_map.values()}
    for name in code_files:
        source = (folder / name).read_text(encoding="utf-8")
        needed |= {f"{module}.py" for module in re.findall(r"^\s*from\s+\.(\w+)\s+import", source, re.MULTILINE)}
        if re.search(r"^\s*(?:from|import)\s+hf_attncal\b", source, re.MULTILINE):
            problems.append(f"{name} imports the package hf_attncal")
    problems += [f"{name} is imported and missing" for name in sorted(needed - set(code_files))]

    return HubFolder(
        path=folder,
        model_type=config["model_type"],
        architecture=architecture or "unknown",
        card=card,
        weight_bytes=sum(path.stat().st_size for path in weights),
        code_files=code_files,
        problems=tuple(problems),
        config=config,
    )


def _read_config(folder: Path) -> dict:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} is not the folder of a saved model: config.json cannot be read ({error})."
        ) from error
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise ValueError(
            f"{folder} does not hold a model of this package: `model_type` in config.json must be one of "
            f"{sorted(FAMILIES)}, got {model_type!r}. `save_pretrained` of such a model writes a folder that fits."
        )
    return config
