"""hf_attncal: calibrated cross-attention for Marian- and BART-style models, as models or adapters, and a word aligner.

The models are registered with the Auto classes as soon as transformers is imported. Public names are imported on use.
"""

import importlib
from typing import TYPE_CHECKING

from hf_attncal._version import __version__
from hf_attncal.command_table import COMMANDS
from hf_attncal.families import FAMILIES, register, register_with_auto_classes

if TYPE_CHECKING:  # at run time `__getattr__` below imports these
    from hf_attncal.alignment import WordAligner as WordAligner
    from hf_attncal.commands.adapt import adapt as adapt
    from hf_attncal.commands.align import align as align
    from hf_attncal.commands.align_annotated import calibrate as calibrate
    from hf_attncal.commands.align_annotated import select as select
    from hf_attncal.commands.align_linked import compare as compare
    from hf_attncal.commands.align_linked import lexicon as lexicon
    from hf_attncal.commands.align_linked import project as project
    from hf_attncal.commands.align_quick import align_quick as align_quick
    from hf_attncal.commands.align_train import train_aligner as train_aligner
    from hf_attncal.commands.analyze import analyze as analyze
    from hf_attncal.commands.check import check as check
    from hf_attncal.commands.check_learn import check_compare as check_compare
    from hf_attncal.commands.check_learn import check_learn as check_learn
    from hf_attncal.commands.check_learn import check_test as check_test
    from hf_attncal.commands.demo import demo as demo
    from hf_attncal.commands.export import export as export
    from hf_attncal.commands.import_marian import import_marian as import_marian
    from hf_attncal.commands.publish import publish as publish
    from hf_attncal.commands.score import score as score
    from hf_attncal.commands.show import show as show
    from hf_attncal.commands.summarize import summarize as summarize
    from hf_attncal.commands.times import times as times
    from hf_attncal.commands.train import train as train
    from hf_attncal.commands.translate import translate as translate
    from hf_attncal.inference.running import Running as Running
    from hf_attncal.models.configuration_attncal import AttnCalBartConfig as AttnCalBartConfig
    from hf_attncal.models.configuration_attncal import AttnCalMarianConfig as AttnCalMarianConfig
    from hf_attncal.models.configuration_attncal import SSRUConfig as SSRUConfig
    from hf_attncal.models.configuration_discrete import DiscreteTransformerConfig as DiscreteTransformerConfig
    from hf_attncal.models.configuration_hmm_align import HMMAlignConfig as HMMAlignConfig
    from hf_attncal.models.configuration_luong import LuongConfig as LuongConfig
    from hf_attncal.models.configuration_mask_align import MaskAlignConfig as MaskAlignConfig
    from hf_attncal.models.modeling_attncal_bart import (
        AttnCalBartForConditionalGeneration as AttnCalBartForConditionalGeneration,
    )
    from hf_attncal.models.modeling_attncal_bart import AttnCalBartModel as AttnCalBartModel
    from hf_attncal.models.modeling_attncal_marian import AttnCalMarianModel as AttnCalMarianModel
    from hf_attncal.models.modeling_attncal_marian import AttnCalMarianMTModel as AttnCalMarianMTModel
    from hf_attncal.models.modeling_discrete import DiscreteTransformerForCausalLM as DiscreteTransformerForCausalLM
    from hf_attncal.models.modeling_discrete import (
        DiscreteTransformerForConditionalGeneration as DiscreteTransformerForConditionalGeneration,
    )
    from hf_attncal.models.modeling_discrete import DiscreteTransformerModel as DiscreteTransformerModel
    from hf_attncal.models.modeling_hmm_align import HMMAlignModel as HMMAlignModel
    from hf_attncal.models.modeling_luong import LuongForConditionalGeneration as LuongForConditionalGeneration
    from hf_attncal.models.modeling_luong import LuongModel as LuongModel
    from hf_attncal.models.modeling_mask_align import MaskAlignModel as MaskAlignModel
    from hf_attncal.models.modeling_ssru import SSRUForConditionalGeneration as SSRUForConditionalGeneration
    from hf_attncal.models.modeling_ssru import SSRUModel as SSRUModel
    from hf_attncal.training.calibrated import AnnealingCallback as AnnealingCallback
    from hf_attncal.training.calibrated import AttnCalTrainer as AttnCalTrainer
    from hf_attncal.training.token_batches import AttnCalTrainingArguments as AttnCalTrainingArguments


_LAZY = {
    "AnnealingCallback": "hf_attncal.training.calibrated",
    "AttnCalTrainer": "hf_attncal.training.calibrated",
    "AttnCalTrainingArguments": "hf_attncal.training.token_batches",
    "Running": "hf_attncal.inference.running",
    "WordAligner": "hf_attncal.alignment",
}
_LAZY |= {function.partition(":")[2]: function.partition(":")[0] for function in COMMANDS.values()}
for _family in FAMILIES.values():
    _LAZY[_family.config] = _family.whole_modules[0]
    for _name in filter(None, (_family.bare, _family.model, _family.causal)):
        _LAZY[_name] = _family.whole_modules[1]

__all__ = [*sorted(_LAZY), "__version__"]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()  # in case the hook on the import of transformers was bypassed
    value = getattr(importlib.import_module(_LAZY[name]), name)
    if _LAZY[name].startswith("hf_attncal.commands."):
        value = importlib.import_module("hf_attncal.commands.guarded").guarded(value)
        value.__module__ = __name__  # pickle looks it up there
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_with_auto_classes()
