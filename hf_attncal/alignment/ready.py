"""Word aligners that come with the package.

`experiments/ready_aligners.py` makes their folders. Every command, `WordAligner.from_pretrained` and
`Checker.from_pretrained` accept the name in place of the folder; a model folder with the same name in the working
folder has precedence. The aligner of the opposite direction has the same tokenizer and the same counts with the sides
exchanged: its folder is temporary, created when it is needed.
"""

import atexit
import json
import os
import shutil
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hf_attncal.io.files import json_text
from hf_attncal.io.gate import protect_folder
from hf_attncal.layouts import CARD, CHECK_FILE, CONFIG, WEIGHTS

_TEXT = (
    "sentences of tatoeba.org, paired by manythings.org/anki, CC BY 2.0 FR; Europarl (Koehn 2005), no known "
    "restriction; messages of software that NOTICE names, Apache-2.0, MIT, BSD-2-Clause and BSD-3-Clause"
)
_OPPOSITE = {"source": "target", "target": "source", "forward": "backward", "backward": "forward"}


class ReadyAligner(NamedTuple):
    """Word aligner that comes with the package.

    Args:
        source, target: Language codes.
        credit: Origin and licence of the training text.
        mirrors: Name of the aligner with the same counts in the opposite direction. Default: None.
    """

    source: str
    target: str
    credit: str
    mirrors: str | None = None


READY = {"deen": ReadyAligner("de", "en", _TEXT), "ende": ReadyAligner("en", "de", _TEXT, "deen")}
READY_FOLDER = Path(__file__).with_name("ready_aligners")


def ready_or_named(name: str | Path) -> str | Path:
    """Return the folder of the ready aligner with this name; any other name unchanged."""
    if name not in READY or os.path.isfile(os.path.join(name, CONFIG)):
        return name
    return _folder(str(name))


def ready_languages(folder: str) -> tuple[str, str] | None:
    """Return source and target language of a ready aligner from its folder; None for any other folder."""
    row = READY.get(os.path.basename(folder))
    return (row.source, row.target) if row and folder == _folder(os.path.basename(folder)) else None


def _folder(name: str) -> str:
    mirrors = READY[name].mirrors
    return str(READY_FOLDER / name) if mirrors is None else _mirrored_folder(name, mirrors)


def nearest_ready(name: str) -> str:
    """Return a question that suggests the ready aligner with the nearest name; "" if none is near."""
    near = get_close_matches(name.lower(), READY, n=1, cutoff=0.7)
    return f" Did you mean {near[0]}?" if near else ""


@cache
def _mirrored_folder(name: str, mirrors: str) -> str:
    """Create the folder of an aligner from the aligner that it mirrors; it is deleted at exit."""
    from safetensors.numpy import load_file, save_file  # commands start without it

    temporary = TemporaryDirectory(prefix="hf_attncal_")
    atexit.register(temporary.cleanup)
    own, base, folder = READY_FOLDER / name, READY_FOLDER / mirrors, Path(temporary.name, name)
    shutil.copytree(base, folder)
    size = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["vocab_size"]
    save_file(mirrored(load_file(base / WEIGHTS), size), folder / WEIGHTS, {"format": "pt"})
    check, base_check = (json.loads((path / CHECK_FILE).read_text(encoding="utf-8")) for path in (own, base))
    (folder / CHECK_FILE).write_text(json_text(check | {"counts": base_check["counts"][::-1]}), encoding="utf-8")
    shutil.copyfile(own / CARD, folder / CARD)
    protect_folder(folder)
    return str(folder)


def mirrored(tables: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Exchange source and target in the tables of a statistical aligner.

    Args:
        tables: Arrays of `HMMTables` by name.
        size: Size of the vocabulary.
    """
    sides = {name: name.partition("_") for name in tables}
    exchanged = {"".join((_OPPOSITE.get(side, side), *rest)): tables[name] for name, (side, *rest) in sides.items()}
    pairs = tables["pairs"] % size * size + tables["pairs"] // size
    order = pairs.argsort()
    return exchanged | {"pairs": pairs[order], "counts": tables["counts"][order]}
