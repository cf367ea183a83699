"""Optional packages of pyproject.toml (extras), and rows of tables from other packages (entry points).

Without extras the package scores alignments, and loads and runs models and word aligners. The groups of entry points
are `attncal.families`, `attncal.attributions` and `attncal.commands` (`commands/app.py`):

    [project.entry-points."attncal.families"]
    toy = "toy_package:FAMILY"
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import TypeVar

# ---- extras ----

# Packages of each extra. For a package in several extras, the first is the one to install.
EXTRAS = {
    "adapters": ("peft",),
    "train": ("accelerate", "datasets", "peft", "pyyaml", "sacrebleu"),
    "rouge": ("rouge-score", "nltk"),
    "plot": ("matplotlib",),
    "evaluate": ("datasets", "evaluate"),
    "ctranslate2": ("ctranslate2",),
    "documents": ("markdown-it-py", "polib"),
    "speech": ("peft", "soundfile", "soxr"),
}
_MODULES = {
    "pyyaml": "yaml",
    "rouge-score": "rouge_score",
    "markdown-it-py": "markdown_it",
}  # module names that differ from the package's


# Source of this package for pip: it is on no index yet, where a stranger could take its name. Errors, cards and
# documentation agree; `tests/hub/test_packaging.py` compares them.
ORIGIN = "."
ORIGIN_HINT = "in a clone of hf_attncal, or with its wheel in place of the dot"


def install_command(extra: str | None = None) -> str:
    """Return the install command of this package, optionally with an extra; see also `ORIGIN_HINT`."""
    return f"pip install {ORIGIN}" if extra is None else f"pip install '{ORIGIN}[{extra}]'"


def need(extra: str) -> None:
    """Raise ModuleNotFoundError with the install command if a package of an extra is missing."""
    for package in EXTRAS[extra]:
        module = _MODULES.get(package, package)
        if find_spec(module) is None:
            raise ModuleNotFoundError(_advice(package, extra), name=module)


def remedy(module: str | None) -> str | None:
    """Return install advice for a missing module, or None if it belongs to no extra."""
    for extra, packages in EXTRAS.items():
        for package in packages:
            if module is not None and module.partition(".")[0] == _MODULES.get(package, package):
                return _advice(package, extra)
    return None


def _advice(package: str, extra: str) -> str:
    return f"this needs {package}, which is not installed: {install_command(extra)} {ORIGIN_HINT}"


# ---- entry points ----

Row = TypeVar("Row")


class Table(Mapping[str, Row]):
    """Table of rows by name: the package's own, then rows of entry points with further names.

    Entry points are loaded on the first lookup of another name, or when all rows are listed.

    Args:
        own: rows of this package.
        group: group of entry points; each entry is an object that is a row.
    """

    def __init__(self, own: Mapping[str, Row], group: str):
        self.own, self.group = own, group

    @cached_property
    def others(self) -> dict[str, Row]:
        """Rows of other packages; rows that cannot be imported are skipped with a warning."""
        from importlib.metadata import entry_points  # slow, and not needed for own rows

        rows = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.own:
                continue
            try:
                rows[entry.name] = entry.load()
            except Exception as error:  # another package may raise anything
                package = "" if entry.dist is None else f" of the package {entry.dist.name}"
                warnings.warn(
                    f"{self.group}: `{entry.name}`{package} is left out, as {entry.value} cannot be imported "
                    f"({type(error).__name__}: {error}). Update or remove that package.",
                    stacklevel=2,
                )
        return rows

    def __getitem__(self, name: str) -> Row:
        return self.own[name] if name in self.own else self.others[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.others

    def __len__(self) -> int:
        return len(self.own) + len(self.others)
