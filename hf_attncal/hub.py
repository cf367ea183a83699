"""A folder that can go to the Hub: is it complete, what does its model card say, does it load without this package?"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

# The card's template is package data and not a file beside the package: an installed package has nothing beside it.
_TEMPLATES = files("hf_attncal") / "model_cards"


@dataclass(frozen=True)
class _Kind:
    """What depends on what a model is for."""

    template: str
    auto_class: str
    switches: tuple[str, ...]  # the configuration fields that say which attention it has and how it is used
    pipeline: str | None
    tags: tuple[str, ...]


_TRANSLATION = _Kind(
    "translation.md.jinja",
    "AutoModelForSeq2SeqLM",
    ("calibration", "leaky", "gumbel"),
    "translation",
    ("attention-calibration", "custom_code"),
)
_ALIGNER = _Kind(
    "aligner.md.jinja",
    "AutoModel",
    ("prediction", "alignment_threshold", "symmetrization", "lowercase"),
    None,  # the Hub knows no such task
    ("word-alignment", "custom_code"),
)


def _kind(config: dict) -> _Kind:
    return _ALIGNER if config.get("model_type") == "mask_align" else _TRANSLATION


# Runs where `import hf_attncal` fails, as on the machine of someone who has only transformers.
_TRANSLATE_WITHOUT_PACKAGE = """
import json, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_attncal":
            raise ImportError("hf_attncal must not be needed here")

sys.meta_path.insert(0, NotInstalled())
try:
    import hf_attncal
except ImportError:
    pass
else:
    sys.exit("hf_attncal could be imported: this process shows nothing")

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

request = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(request["folder"], trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained(request["folder"], trust_remote_code=True).eval()
batch = tokenizer(request["sentences"], return_tensors="pt", padding=True)
tokens = model.generate(**batch, num_beams=request["num_beams"], max_new_tokens=request["max_new_tokens"])
json.dump(tokenizer.batch_decode(tokens, skip_special_tokens=True), sys.stdout)
"""


@dataclass(frozen=True)
class HubFolder:
    """What a saved model's folder holds, and what keeps it from loading elsewhere (`problems`, empty if nothing)."""

    path: Path
    model_type: str
    architecture: str
    weight_bytes: int
    code_files: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        state = "ready for the Hub" if not self.problems else "not ready: " + "; ".join(self.problems)
        size = f"{self.weight_bytes / 1e6:.1f} MB of weights, {len(self.code_files)} code files"
        return f"{self.path}: {self.architecture}, {size}, {state}"


@dataclass(frozen=True)
class Result:
    """One measured number of a model card, with the signature that says how it was computed."""

    measure: str
    value: float
    signature: str


def inspect_folder(folder: str | Path) -> HubFolder:
    """Look at a folder written by `save_pretrained`, without loading the model and without the network.

    Raises:
        ValueError: `folder` holds no readable `config.json`.
    """
    folder = Path(folder)
    config = _read_config(folder)
    auto_map = config.get("auto_map", {})
    code_files = tuple(sorted(path.name for path in folder.glob("*.py")))
    weights = sorted(folder.glob("*.safetensors"))

    problems = []
    if not weights:
        problems.append("no *.safetensors with the weights")
    if not (folder / "tokenizer_config.json").exists():
        problems.append("no tokenizer (`tokenizer.save_pretrained(folder)` writes it)")
    auto_class = _kind(config).auto_class
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
        model_type=config.get("model_type", "unknown"),
        architecture=(config.get("architectures") or ["unknown"])[0],
        weight_bytes=sum(path.stat().st_size for path in weights),
        code_files=code_files,
        problems=tuple(problems),
    )


def _read_config(folder: Path) -> dict:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{folder} is not the folder of a saved model: config.json cannot be read ({error})."
        ) from error


def write_model_card(
    folder: str | Path,
    *,
    model_name: str,
    summary: str,
    training_data: str,
    example: str,
    languages: Sequence[str] = (),
    results: Sequence[Result] = (),
) -> Path:
    """Write `README.md` into a saved model's folder: what it is, how it loads, what was measured.

    Args:
        folder: written by `save_pretrained`.
        model_name: the heading, and the name that the example loads.
        summary: one or two sentences on what the model is.
        training_data: what it was trained on.
        example: a source sentence for the example; of an aligner a pair `source ||| target`.
        languages: language codes, source first.
        results: measured numbers. None leaves "Not measured" in the card.

    Returns:
        The path of the card.
    """
    folder = Path(folder)
    config = _read_config(folder)
    kind = _kind(config)
    data = ModelCardData(
        language=list(languages) or None,
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag=kind.pipeline,
        tags=list(kind.tags),
    )
    with as_file(_TEMPLATES / kind.template) as template:
        card = ModelCard.from_template(
            data,
            template_path=str(template),
            model_name=model_name,
            summary=summary,
            training_data=training_data,
            example=example,
            results=results,
            folder=inspect_folder(folder),
            switches={name: config[name] for name in kind.switches if config.get(name)},
        )
    path = folder / "README.md"
    card.save(path)
    return path


def translate_in_fresh_process(
    folder: str | Path, sentences: Sequence[str], *, num_beams: int = 4, max_new_tokens: int = 128
) -> list[str]:
    """Translate with a saved folder in a new Python process in which `import hf_attncal` fails.

    What others have is what is tested: transformers, the folder, `trust_remote_code=True`. The code that transformers
    copies from the folder goes to a temporary cache.

    Raises:
        RuntimeError: the folder does not load or does not generate there; the message ends with that process's error.
    """
    request = {
        "folder": str(Path(folder).resolve()),
        "sentences": list(sentences),
        "num_beams": num_beams,
        "max_new_tokens": max_new_tokens,
    }
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.run(
            [sys.executable, "-I", "-c", _TRANSLATE_WITHOUT_PACKAGE],
            input=json.dumps(request),
            env={**os.environ, "HF_MODULES_CACHE": cache, "HF_HUB_OFFLINE": "1"},
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode != 0:
        raise RuntimeError(f"{folder} does not work without the package: {process.stderr.strip()[-2000:]}")
    return json.loads(process.stdout)
