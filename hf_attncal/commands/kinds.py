"""Types of the arguments of the commands: names on the command line; in Python also lines, pairs or loaded models."""

import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from hf_attncal.inference.running import Running


class Kind(NamedTuple):
    """Kind of value that an option takes on the command line.

    Args:
        shown: placeholder in the help.
        many: True if the option takes several values.
        standard: True if the default is standard input or output.
        written: kind of output, which the gate checks first (`guarded.py`); "" for an input. A `folder` contains no
            model; a `place` is a page if its name ends with .html, else a folder; `beside` is a folder for a file
            that belongs to MODEL; a `model` may replace a folder that carries the same mark.
    """

    shown: str
    many: bool = False
    standard: bool = False
    written: Literal["", "file", "folder", "place", "beside", "model"] = ""


Path = str | pathlib.Path
File = Annotated[Path, Kind("FILE")]
Files = Annotated[Path | Sequence[Path], Kind("FILE", many=True)]
Folder = Annotated[Path, Kind("FOLDER")]
# Output folders.
NewFolder = Annotated[Path, Kind("FOLDER", written="folder")]
FolderBeside = Annotated[Path, Kind("FOLDER", written="beside")]
ModelFolder = Annotated[Path, Kind("FOLDER", written="model")]
# A file, or a list of its lines.
Text = Annotated[Path | Sequence[str], Kind("FILE")]
# Text whose default on the command line is standard input.
Input = Annotated[Path | Sequence[str] | None, Kind("FILE", standard=True)]
# A file of word links, its lines, or a loaded `WordAligner`.
Links = Annotated[Path | Sequence[Any] | Any, Kind("LINKS")]
# Output file. Default: the function returns the result, the command writes it to standard output.
Output = Annotated[Path | None, Kind("FILE", standard=True, written="file")]
Written = Annotated[Path, Kind("FILE", written="file")]
Places = Annotated[Path | Sequence[Path], Kind("FILE", many=True, written="place")]
# A folder, or a name on the Hub.
Model = Annotated[Path, Kind("MODEL")]
# A folder, a name on the Hub, or the loaded model.
Loaded = Annotated[Path | Any, Kind("MODEL")]
# A multilingual encoder: a folder, a name on the Hub, "auto" for the default one, or an `EncoderPrior`.
Encoder = Annotated[Path | Any | None, Kind("MODEL")]
# Any number of `key=value`.
Setting = Annotated[str, Kind("KEY=VALUE", many=True)]
# A mapping; on the command line `key=value`, behind its option or anywhere.
Values = Annotated[Mapping[str, Any] | Sequence[str] | None, Kind("KEY=VALUE", many=True)]
# A file or lines of `source ||| target`, or of the sources if the targets are given; or a list of pairs.
Pairs = Annotated[Path | Iterable[str] | Iterable[tuple[Any, Any]] | None, Kind("FILE", standard=True)]
# Plain strings with a placeholder for the help.
Names = Annotated[str, "NAMES"]  # joined by +
Part = Annotated[str, "I/N"]
Patterns = Annotated[Sequence[str], "PATTERN..."]
Methods = Annotated[Sequence[str], "METHOD..."]
Preset = Annotated[str, "NAME|FILE"]
Languages = Annotated[str, "SOURCE-TARGET"] | None
STANDARD = "-"  # standard input or output
# Options of `Running` that a command takes, and their defaults if they differ between commands. Others are refused.
_OPENING = dict.fromkeys(("languages", "device", "dtype", "threads", "trust_remote_code", "revision"), "")
_LINE = {"longest_line": "10000"}
Showing = Annotated[Running, _OPENING]
Analysing = Annotated[Running, _OPENING | {"batch_size": "32"}]
Learning = Annotated[Running, _OPENING | _LINE]
Preparing = Annotated[Running, {name: "" for name in _OPENING if name != "revision"} | _LINE]
Checking = Annotated[Running, _OPENING | _LINE | {"progress": ""}]
Aligning = Annotated[Running, _OPENING | _LINE | {"too_long": "", "batch_size": "256", "progress": ""}]
Translating = Annotated[Running, _OPENING | _LINE | {"batch_size": "32", "progress": ""}]
Summarising = Annotated[Running, _OPENING | {"longest_line": "100000", "batch_size": "16", "progress": ""}]
Timing = Annotated[Running, dict.fromkeys(("device", "dtype", "threads"), "")]
Counting = Annotated[Running, _LINE | {"too_long": "", "threads": "", "progress": ""}]
Linked = Annotated[Running, _LINE | {"progress": ""}]
# Formats of links, word separators, and ways to merge the links of both directions.
LinkFormat = Literal["pharaoh", "words", "json", "html"]
WordLimits = Literal["white-space", "spaces"]
Merging = Literal[
    "harmonic", "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and", "forward", "backward"
]


def file_names(files: Path | Sequence[Path] | None) -> list[str]:
    """Return the names of one file, of several or of none."""
    if files is None:
        return []
    return [os.fspath(file) for file in ([files] if isinstance(files, str | os.PathLike) else files)]


def _metadata(annotation: Any) -> tuple:
    """Return the metadata of an annotation, and of its parts if it is a union."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return tuple(entry for part in (annotation, *parts) for entry in getattr(part, "__metadata__", ()))


def kind_of(annotation: Any) -> Kind | None:
    """Return the `Kind` of a parameter's type, optional or not; None if it has none."""
    return next((entry for entry in _metadata(annotation) if isinstance(entry, Kind)), None)


def running_options(annotation: Any) -> dict[str, str] | None:
    """Return the options of `Running` that a parameter of this type takes, with their defaults; None for all."""
    return next((entry for entry in _metadata(annotation) if isinstance(entry, dict)), None)


def metavar_of(annotation: Any) -> str:
    """Return the placeholder of a plain string in the help; "" if it has none."""
    return next((entry for entry in _metadata(annotation) if isinstance(entry, str)), "")


class TypeText(str):
    """Text of a type in a signature; `help()` shows it without quotes."""

    def __repr__(self) -> str:
        return str(self)


def type_text(annotation: Any) -> TypeText:
    """Return a type as text for `help()`: without metadata and module names."""
    if hasattr(annotation, "__metadata__"):
        return type_text(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        parts = dict.fromkeys(type_text(part) for part in get_args(annotation))
        last = [part for part in parts if part == "None"]
        return TypeText(" | ".join([*(part for part in parts if part != "None"), *last]))
    if isinstance(annotation, str):
        return TypeText(annotation)
    if annotation is type(None):
        return TypeText("None")
    text = getattr(annotation, "__forward_arg__", None) or (
        annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else repr(annotation)
    )
    return TypeText(re.sub(r"\b(?:\w+\.)+(?=\w)", "", text))
