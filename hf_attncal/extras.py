"""What is not installed with the package alone: the extras of pyproject.toml, and what is said where one is missing.

Without any of them the package scores alignments, and loads models and word aligners to use them.
"""

from importlib.util import find_spec

# The packages of each; of one that is in several, the first is what a user is told to install.
EXTRAS = {
    "adapters": ("peft",),
    "train": ("accelerate", "datasets", "peft", "pyyaml", "rich", "sacrebleu"),
    "rouge": ("rouge-score", "nltk"),
    "plot": ("matplotlib",),
    "evaluate": ("datasets", "evaluate"),
    "completion": ("shtab",),
    "zst": ("zstandard",),
}
_MODULES = {"pyyaml": "yaml", "rouge-score": "rouge_score"}  # where it is not the name of the package


# What pip installs this package from, and where: it is on no index yet, where a stranger may take its name one day.
# Errors, cards and documentation say the same; `tests/hub/test_packaging.py` compares them.
ORIGIN = "."
ORIGIN_TOLD = "in a clone of hf_attncal, or with its wheel in place of the dot"


def install_command(extra: str | None = None) -> str:
    """The command that installs this package, with an extra; `ORIGIN_TOLD` says where it works."""
    return f"pip install {ORIGIN}" if extra is None else f"pip install '{ORIGIN}[{extra}]'"


def need(extra: str) -> None:
    """Refuse to go on without an extra.

    Raises:
        ModuleNotFoundError: one of its packages is not installed; the message says how to install them.
    """
    for package in EXTRAS[extra]:
        module = _MODULES.get(package, package)
        if find_spec(module) is None:
            raise ModuleNotFoundError(_told(package, extra), name=module)


def remedy(module: str | None) -> str | None:
    """What to do where a module is not installed; None for one that belongs to no extra."""
    for extra, packages in EXTRAS.items():
        for package in packages:
            if module is not None and module.partition(".")[0] == _MODULES.get(package, package):
                return _told(package, extra)
    return None


def _told(package: str, extra: str) -> str:
    return f"{package} is not installed, which this needs: {install_command(extra)} {ORIGIN_TOLD}"
