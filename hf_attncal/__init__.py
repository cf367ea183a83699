"""hf_attncal: attention that can be trusted, in the cross-attention of Marian- and BART-style models.

Importing the package registers its models with the Auto classes, and their code for saving next to the weights.
"""

import importlib

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .models.configuration_attncal import AttnCalBartConfig, AttnCalMarianConfig
from .models.configuration_mask_align import MaskAlignConfig
from .models.modeling_attncal_bart import AttnCalBartForConditionalGeneration, AttnCalBartModel
from .models.modeling_attncal_marian import AttnCalMarianModel, AttnCalMarianMTModel
from .models.modeling_mask_align import MaskAlignModel

__version__ = "0.1.0"

for _config, _model, _language_model in (
    (AttnCalMarianConfig, AttnCalMarianModel, AttnCalMarianMTModel),
    (AttnCalBartConfig, AttnCalBartModel, AttnCalBartForConditionalGeneration),
):
    AutoConfig.register(_config.model_type, _config)
    AutoModel.register(_config, _model)
    AutoModelForSeq2SeqLM.register(_config, _language_model)
    # Without these, a model loaded from a repository and saved again would name code that is not there.
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModel")
    _language_model.register_for_auto_class("AutoModelForSeq2SeqLM")

AutoConfig.register(MaskAlignConfig.model_type, MaskAlignConfig)
AutoModel.register(MaskAlignConfig, MaskAlignModel)
MaskAlignConfig.register_for_auto_class()
MaskAlignModel.register_for_auto_class("AutoModel")

_LAZY = {
    "AttnCalTrainer": "hf_attncal.trainer",
    "AttnCalTrainingArguments": "hf_attncal.trainer",
    "WordAligner": "hf_attncal.alignment",
}
__all__ = [
    "AttnCalBartConfig",
    "AttnCalBartForConditionalGeneration",
    "AttnCalBartModel",
    "AttnCalMarianConfig",
    "AttnCalMarianMTModel",
    "AttnCalMarianModel",
    "AttnCalTrainer",
    "AttnCalTrainingArguments",
    "MaskAlignConfig",
    "MaskAlignModel",
    "WordAligner",
    "__version__",
]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
