"""hf_attncal: calibrated cross-attention for Marian- and BART-style models, adapters that do the same, a word aligner.

Importing the package registers its models with the Auto classes, as soon as transformers is imported; what it exports
is imported when it is used.
"""

import importlib

from hf_attncal.families import FAMILIES, register, register_with_auto_classes

__version__ = "0.1.0"

_LAZY = {
    "AnnealingCallback": "hf_attncal.training.calibrated",
    "AttnCalTrainer": "hf_attncal.training.calibrated",
    "AttnCalTrainingArguments": "hf_attncal.training.arguments",
    "WordAligner": "hf_attncal.alignment",
}
for _family in FAMILIES.values():
    _LAZY[_family.config] = f"hf_attncal.models.{_family.modules[0]}"
    for _name in filter(None, (_family.bare, _family.model)):
        _LAZY[_name] = f"hf_attncal.models.{_family.modules[1]}"

__all__ = [*sorted(_LAZY), "__version__"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()  # where someone else's import of transformers went past ours
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_with_auto_classes()
