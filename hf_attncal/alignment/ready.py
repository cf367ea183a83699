"""Word aligners that come with the package, with what their check goes by: a row each, and where they lie.

`experiments/ready_aligners.py` makes their folders. A name stands for its folder in every command, and in
`WordAligner.from_pretrained` and `Checker.from_pretrained`; a folder of yours that holds a model and has the same name
goes first.
"""

import os
from pathlib import Path
from typing import NamedTuple

from hf_attncal.layouts import CONFIG

_TATOEBA = "sentences of tatoeba.org, paired by manythings.org/anki, CC BY 2.0 FR"


class ReadyAligner(NamedTuple):
    """An aligner of the package.

    Args:
        source, target: codes of its languages.
        credit: whose text it has counted, and under which licence.
    """

    source: str
    target: str
    credit: str


READY = {"deen": ReadyAligner("de", "en", _TATOEBA), "ende": ReadyAligner("en", "de", _TATOEBA)}
READY_FOLDER = Path(__file__).with_name("ready_aligners")


def ready_or_named(name: str | Path) -> str | Path:
    """Return the folder of the ready aligner of this name; any other name as it is."""
    if name in READY and not os.path.isfile(os.path.join(name, CONFIG)):
        return str(READY_FOLDER / name)
    return name
