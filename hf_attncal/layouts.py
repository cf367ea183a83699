"""Table of the files in the folder of a model: one row per kind of folder, with one row per file.

Code that saves, loads, checks or publishes a folder reads this table. A new file needs a row here:
so a wing can store a file beside a model, and the core does not import the wing.
"""

from collections.abc import Iterator
from enum import Enum
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CARD, RESULTS, RUN, LOCK = "README.md", "results.json", "run.json", "run.lock"
SETTINGS_FILE, PROBABILITIES_FILE, CHECK_FILE = "alignment.json", "link_probabilities.json", "check.json"
TIMES_FILE = "times.json"
COUNTS = "hmm"
# Default multilingual encoder, and its commit on the Hub.
DEFAULT_ENCODER = "intfloat/multilingual-e5-small", "fd1525a9fd15316a2d503bf26ab031a61d056e98"
AUTO_ENCODER = "auto"  # name of the default encoder on the command line
CTRANSLATE2, EXPORTED = "ctranslate2", "exported.json"  # folder of an export, and its record of the exported model
UNFINISHED = "unfinished"  # subfolder for incomplete files


class Fate(Enum):
    """Treatment of a file when its folder is published."""

    HUB = "goes to the Hub"
    STAYS = "stays behind"
    REFUSED = "stays behind, as it is no part of a model or may run code"


class File(NamedTuple):
    """File or folder in the folder of a model, or all that match a pattern.

    Args:
        name: name, or a pattern with `*`.
        what: description.
        fate: treatment when the folder is published. Default: it goes to the Hub.
        lack: problem of a folder without it; "" if it may be missing.
        is_object: True if it must be a JSON object.
        is_read: True if a model, an adapter or a tokenizer is loaded from it, so that a change makes another model.
        has_words: True if it contains words of a language, any of which may look like a name.
        learned_by: command that learns it for a `{model}`; it then has a seal (`inference/seals.py`). Default: "".
    """

    name: str
    what: str
    fate: Fate = Fate.HUB
    lack: str = ""
    is_object: bool = False
    is_read: bool = False
    has_words: bool = False
    learned_by: str = ""

    def fits(self, name: str) -> bool:
        """Return True if the name matches."""
        return fnmatchcase(name, self.name)


class Layout(NamedTuple):
    """Kind of folder, or group of files that folders of several kinds may have.

    Args:
        kind: name.
        files: files that may be in it.
        marks: files of which one identifies this kind; () for a group.
        needs: kinds whose required files it must also have.
        loaded_by: module that loads such a folder, if a file above must import it by name. Default: "".
    """

    kind: str
    files: tuple[File, ...]
    marks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    loaded_by: str = ""

    def loader(self) -> ModuleType:
        """Import the module that loads such a folder."""
        return import_module(self.loaded_by)

    def problems(self, folder: Path) -> list[str]:
        """Return a message for each required file that is missing."""
        missing = [file.lack for file in self.files if file.lack and not any(folder.glob(file.name))]
        return [*missing, *(problem for kind in self.needs for problem in LAYOUTS[kind].problems(folder))]


_CODE_RUNS = "weights that may run code when they are loaded"
_STAYS, _REFUSED = Fate.STAYS, Fate.REFUSED
# The first matching row counts, so specific names come before patterns.
LAYOUTS = {
    layout.kind: layout
    for layout in (
        Layout(
            "model",
            (
                File(CONFIG, "the configuration", is_object=True, is_read=True),
                File(GENERATION_CONFIG, "the settings of generate()", is_object=True, is_read=True),
                File(INDEX, "the index of the weights", is_object=True),
                File("model*.safetensors", "the weights", lack="no *.safetensors with weights", is_read=True),
                File("*.py", "the code of the model", is_read=True),
            ),
            marks=(CONFIG,),
            needs=("tokenizer",),
        ),
        Layout(
            "adapter",
            (
                File(ADAPTER_CONFIG, "the configuration", is_object=True, is_read=True),
                File(ADAPTER_WEIGHTS, "the weights", lack=f"no {ADAPTER_WEIGHTS} with the weights", is_read=True),
            ),
            marks=(ADAPTER_CONFIG,),
            loaded_by="hf_attncal.adapters.loading",
        ),
        Layout(
            "tokenizer",
            (
                File(
                    TOKENIZER_CONFIG,
                    "the settings",
                    lack="no tokenizer (`tokenizer.save_pretrained(folder)` writes it)",
                    is_object=True,
                    is_read=True,
                ),
                File(TOKENIZER, "the tokenizer", is_object=True, is_read=True, has_words=True),
                File("tokenizer*.json", "more files of the tokenizer"),
                File("special_tokens_map.json", "special tokens", is_object=True, is_read=True),
                File("added_tokens.json", "added tokens", is_object=True, is_read=True, has_words=True),
                File("vocab.json", "the vocabulary", is_read=True, has_words=True),
                File("vocab.txt", "the vocabulary", is_read=True, has_words=True),
                File("target_vocab.json", "the vocabulary of the other side", has_words=True),
                File("merges.txt", "merges of BPE", is_read=True, has_words=True),
                File("*.spm", "a model of SentencePiece", is_read=True),
                File("sentencepiece*.model", "a model of SentencePiece", is_read=True),
                File("chat_template.jinja", "the form of a conversation"),
                File("vocab*", "a vocabulary of another kind", fate=_REFUSED, is_read=True),
                File("*.model", "a model of another tokenizer", fate=_REFUSED, is_read=True),
            ),
            marks=(TOKENIZER_CONFIG, TOKENIZER),
        ),
        Layout(
            "aligner",  # a model or an adapter
            (
                File(
                    SETTINGS_FILE,
                    "the chosen attention heads",
                    learned_by="attncal align select {model} --source FILE --target FILE --gold FILE",
                ),
                File(
                    PROBABILITIES_FILE,
                    "the calibration of link scores",
                    learned_by="attncal align calibrate {model} --source FILE --target FILE --gold FILE",
                ),
                File(
                    CHECK_FILE,
                    "the learned check",
                    learned_by="attncal check learn {model} --source FILE --target FILE",
                ),
                File(
                    TIMES_FILE,
                    "the learned evidence of unspoken words",
                    learned_by="hf_attncal.speech.learning.learn_word_times",
                ),
                File(COUNTS, "a statistical aligner", _STAYS),
            ),
        ),
        Layout(
            "card",
            (
                File(CARD, "the model card"),
                *(File(f"LICENSE{suffix}", "the licence") for suffix in ("", ".txt", ".md")),
                *(File(f"NOTICE{suffix}", "a notice of the licence") for suffix in ("", ".txt", ".md")),
            ),
        ),
        Layout(
            "export",
            (
                File(CTRANSLATE2, "a model of CTranslate2", _STAYS),
                File(
                    EXPORTED,
                    "in the folder of CTranslate2, the exported model",
                    _STAYS,
                    learned_by="attncal export {model} --format ctranslate2",
                ),
            ),
        ),
        Layout(
            "run",
            (
                File(RESULTS, "the measurements"),
                File(RUN, "the inputs of the run", _STAYS),
                File("checkpoint-*", "a checkpoint", _STAYS),
                File(UNFINISHED, "incomplete files", _STAYS),
                File(LOCK, "the process that holds the folder", _STAYS),
                File("*.hypotheses.txt", "generated texts", _STAYS),
                File("training_args.bin", "arguments", _STAYS),
            ),
            marks=(RUN,),
        ),
        Layout(
            "around", tuple(File(name, "left by tools", fate=_STAYS) for name in ("__pycache__", ".cache", ".git*"))
        ),
        Layout(
            "pickle",
            (
                File("pytorch_model*.bin", _CODE_RUNS, fate=_REFUSED, is_read=True),
                File("adapter_model.bin", _CODE_RUNS, fate=_REFUSED, is_read=True),
                *(
                    File(f"*.{suffix}", _CODE_RUNS, fate=_REFUSED)
                    for suffix in ("bin", "pt", "pth", "ckpt", "h5", "msgpack", "pkl", "pickle", "npz", "npy")
                ),
            ),
        ),
    )
}


def files(*kinds: str) -> Iterator[File]:
    """Yield the files of these kinds of folders, or of all, in the order of the table."""
    for kind in kinds or LAYOUTS:
        yield from LAYOUTS[kind].files


def file_of(name: str, *kinds: str) -> File | None:
    """Return the row of a file name in these kinds of folders, or in any; None if there is none."""
    return next((file for file in files(*kinds) if file.fits(name)), None)


def fate_of(name: str) -> Fate:
    """Return the treatment of a file when its folder is published; a file without a row is refused."""
    file = file_of(name)
    return Fate.REFUSED if file is None else file.fate


def check_one_model(folder: Path, saves_adapter: bool = False) -> None:
    """Refuse a folder with both an adapter and a whole model: transformers would load one with the other.

    Args:
        folder: folder of an adapter or a model.
        saves_adapter: True if an adapter is to be saved there. Default: False.

    Raises:
        ValueError: the folder has both, or will have both.
    """
    whole = ("model*.safetensors", "pytorch_model*.bin")
    weights = [path.name for pattern in whole for path in sorted(folder.glob(pattern))]
    if weights and (folder / CONFIG).exists() and (saves_adapter or (folder / ADAPTER_CONFIG).exists()):
        holds = "would hold" if saves_adapter else "holds"
        raise ValueError(
            f"{folder} {holds} two models: an adapter ({ADAPTER_CONFIG}) and a whole model ({CONFIG}, {weights[0]}). "
            "Use one folder for each."
        )


def kind_of_folder(folder: Path) -> str | None:
    """Return the kind of a folder by the files that mark one; None for another folder."""
    for layout in LAYOUTS.values():
        if any((folder / mark).exists() for mark in layout.marks):
            return layout.kind
    return None
