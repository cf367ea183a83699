"""Word aligners that come with the package, with what their check goes by: a row each, and where they lie.

`experiments/ready_aligners.py` makes their folders. A name stands for its folder in every command, and in
`WordAligner.from_pretrained` and `Checker.from_pretrained`; a folder of yours that holds a model and has the same name
goes first. One that reads another's languages the other way round has its tokenizer, and its counts, exchanged: so its
folder is put together when it is asked for, and gone when the program ends.
"""

import atexit
import json
import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hf_attncal.io.files import json_text
from hf_attncal.io.gate import protect_folder
from hf_attncal.layouts import CARD, CHECK_FILE, CONFIG, WEIGHTS

_TATOEBA = "sentences of tatoeba.org, paired by manythings.org/anki, CC BY 2.0 FR"
_OTHER = {"source": "target", "target": "source", "forward": "backward", "backward": "forward"}


class ReadyAligner(NamedTuple):
    """An aligner of the package.

    Args:
        source, target: codes of its languages.
        credit: whose text it has counted, and under which licence.
        mirrors: the one with its counts, which reads them the other way round; None: it has its own.
    """

    source: str
    target: str
    credit: str
    mirrors: str | None = None


READY = {"deen": ReadyAligner("de", "en", _TATOEBA), "ende": ReadyAligner("en", "de", _TATOEBA, "deen")}
READY_FOLDER = Path(__file__).with_name("ready_aligners")


def ready_or_named(name: str | Path) -> str | Path:
    """Return the folder of the ready aligner of this name; any other name as it is."""
    if name not in READY or os.path.isfile(os.path.join(name, CONFIG)):
        return name
    mirrored_one = READY[str(name)].mirrors
    return str(READY_FOLDER / name) if mirrored_one is None else _put_together(str(name), mirrored_one)


@cache
def _put_together(name: str, mirrored_one: str) -> str:
    from safetensors.numpy import load_file, save_file  # commands start without it

    made = TemporaryDirectory(prefix="hf_attncal_")
    atexit.register(made.cleanup)
    own, other, folder = READY_FOLDER / name, READY_FOLDER / mirrored_one, Path(made.name, name)
    shutil.copytree(other, folder)
    size = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["vocab_size"]
    save_file(mirrored(load_file(other / WEIGHTS), size), folder / WEIGHTS, {"format": "pt"})
    check, of_other = (json.loads((one / CHECK_FILE).read_text(encoding="utf-8")) for one in (own, other))
    (folder / CHECK_FILE).write_text(json_text(check | {"counts": of_other["counts"][::-1]}), encoding="utf-8")
    shutil.copyfile(own / CARD, folder / CARD)
    protect_folder(folder)
    return str(folder)


def mirrored(tables: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return the tables of an aligner that counts for source and target exchanged.

    Args:
        tables: those of `HMMTables` by name, arrays. size: of the vocabulary.
    """
    sides = {name: name.partition("_") for name in tables}
    exchanged = {"".join((_OTHER.get(side, side), *rest)): tables[name] for name, (side, *rest) in sides.items()}
    pairs = tables["pairs"] % size * size + tables["pairs"] // size
    order = pairs.argsort()
    return exchanged | {"pairs": pairs[order], "counts": tables["counts"][order]}
