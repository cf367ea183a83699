"""Types of what the functions of this folder are given: on the command line a name, from Python also what it holds."""

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple


class Kind(NamedTuple):
    """How a value is given on the command line.

    Args:
        shown: its name in the help.
        many: several may follow each other.
        standard: without it, standard input or output.
        written: what is written there, which the gate looks at first (`guarded.py`); "" for what is read. A `folder`
            holds no model; a `place` is a page if its name ends in .html, else a folder; `beside` is a folder for a
            file that lies beside MODEL; a `model` is saved again where its own mark is.
    """

    shown: str
    many: bool = False
    standard: bool = False
    written: Literal["", "file", "folder", "place", "beside", "model"] = ""


Path = str | pathlib.Path
File = Annotated[Path, Kind("FILE")]
Files = Annotated[Path | Sequence[Path], Kind("FILE", many=True)]
Folder = Annotated[Path, Kind("FOLDER")]
# Folders that are written.
NewFolder = Annotated[Path, Kind("FOLDER", written="folder")]
FolderBeside = Annotated[Path, Kind("FOLDER", written="beside")]
ModelFolder = Annotated[Path, Kind("FOLDER", written="model")]
# A file, or its lines.
Text = Annotated[Path | Sequence[str], Kind("FILE")]
# The same; on the command line standard input if it is not given.
Input = Annotated[Path | Sequence[str] | None, Kind("FILE", standard=True)]
# Links: a file of them, their lines, or a loaded `WordAligner`.
Links = Annotated[Path | Sequence[Any] | Any, Kind("LINKS")]
# A file that is written; without it the result is returned, on the command line it goes to standard output.
Output = Annotated[Path | None, Kind("FILE", standard=True, written="file")]
Written = Annotated[Path, Kind("FILE", written="file")]
Places = Annotated[Path | Sequence[Path], Kind("FILE", many=True, written="place")]
# A folder, or a name on the Hub.
Model = Annotated[Path, Kind("MODEL")]
# The same, or what was loaded from it.
Loaded = Annotated[Path | Any, Kind("MODEL")]
# An encoder that helps: a folder, a name on the Hub, "auto" for the default one, or an `EncoderPrior`.
Encoder = Annotated[Path | Any | None, Kind("MODEL")]
# `key=value`, as many as there are.
Setting = Annotated[str, Kind("KEY=VALUE", many=True)]
# Values by name; on the command line `key=value`, several behind one option or anywhere.
Values = Annotated[Mapping[str, Any] | Sequence[str] | None, Kind("KEY=VALUE", many=True)]
# A file or lines of `source ||| target`; beside the targets, a file or lines of the sources; or a list of pairs.
Pairs = Annotated[Path | Iterable[str] | Iterable[tuple[Any, Any]] | None, Kind("FILE", standard=True)]
STANDARD = "-"
# How links are written, what parts words, how the two directions of links are merged.
LinkFormat = Literal["pharaoh", "words", "opustrainer", "json", "html"]
WordLimits = Literal["white-space", "spaces"]
Merging = Literal[
    "harmonic",
    "intersection",
    "union",
    "grow-diag",
    "grow-diag-final",
    "grow-diag-final-and",
    "forward",
    "backward",
]


def file_names(files: Path | Sequence[Path] | None) -> list[str]:
    """Return the names of one file, of several or of none."""
    if files is None:
        return []
    return [os.fspath(file) for file in ([files] if isinstance(files, str | os.PathLike) else files)]
