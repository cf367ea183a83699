"""Optional packages of pyproject.toml (extras), and rows that other packages add to our tables (entry points).

Without any extra the package scores alignments, and loads and runs models and word aligners. Rows of others are named
by `attncal.families` and `attncal.attributions`, commands by `attncal.commands` (`commands/app.py`):

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
    "zst": ("zstandard",),
    "ctranslate2": ("ctranslate2",),
    "documents": ("markdown-it-py", "polib"),
}
_MODULES = {
    "pyyaml": "yaml",
    "rouge-score": "rouge_score",
    "markdown-it-py": "markdown_it",
}  # module names that differ from the package's


# Source that pip installs this package from: it is on no index yet, and a stranger could take its name there.
# Errors, cards and documentation say the same; `tests/hub/test_packaging.py` compares them.
ORIGIN = "."
ORIGIN_TOLD = "in a clone of hf_attncal, or with its wheel in place of the dot"


def install_command(extra: str | None = None) -> str:
    """Return the command that installs this package, with an extra if given; `ORIGIN_TOLD` says where it works."""
    return f"pip install {ORIGIN}" if extra is None else f"pip install '{ORIGIN}[{extra}]'"


def need(extra: str) -> None:
    """Raise ModuleNotFoundError, with the command that installs it, if a package of an extra is missing."""
    for package in EXTRAS[extra]:
        module = _MODULES.get(package, package)
        if find_spec(module) is None:
            raise ModuleNotFoundError(_advice(package, extra), name=module)


def remedy(module: str | None) -> str | None:
    """Return how to install a missing module, or None if it belongs to no extra."""
    for extra, packages in EXTRAS.items():
        for package in packages:
            if module is not None and module.partition(".")[0] == _MODULES.get(package, package):
                return _advice(package, extra)
    return None


def _advice(package: str, extra: str) -> str:
    return f"this needs {package}, which is not installed: {install_command(extra)} {ORIGIN_TOLD}"


# ---- entry points ----

Row = TypeVar("Row")


class Table(Mapping[str, Row]):
    """Rows of ours by their names, then those of entry points, under names that we do not have.

    Entry points are read when a name is asked for that is not ours, or when all rows are listed.

    Args:
        own: our rows.
        group: the group of entry points; each names the object that is its row.
    """

    def __init__(self, own: Mapping[str, Row], group: str):
        self.own, self.group = own, group

    @cached_property
    def others(self) -> dict[str, Row]:
        """Rows of other packages. One that cannot be imported is left out, with a warning."""
        from importlib.metadata import entry_points  # not needed for what is ours

        rows = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.own:
                continue
            try:
                rows[entry.name] = entry.load()
            except Exception as error:  # whatever someone else's package raises
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
