"""Check translations for omissions, additions and other errors, by a word aligner or an encoder."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time `__getattr__` below imports these
    from hf_attncal.checking.check_learning import learn_check as learn_check
    from hf_attncal.checking.checker import Checker as Checker
    from hf_attncal.checking.verdicts import PairVerdict as PairVerdict

_LAZY = {
    "Checker": "hf_attncal.checking.checker",
    "PairVerdict": "hf_attncal.checking.verdicts",
    "learn_check": "hf_attncal.checking.check_learning",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
