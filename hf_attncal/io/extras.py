"""Optional packages of pyproject.toml (extras).

Without extras the package scores alignments, and loads and runs models and word aligners.
"""

from importlib.util import find_spec

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
