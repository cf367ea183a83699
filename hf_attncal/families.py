"""The model families of this package, one row each; whatever depends on a family asks here.

Nothing heavy is imported until a class is asked for, so that the command line can read the table.
"""

import functools
import importlib
import sys
from types import ModuleType
from typing import NamedTuple


class Stock(NamedTuple):
    """The classes of transformers that a family builds on."""

    config: str
    model: str

    @property
    def config_class(self) -> type:
        return _class_of("transformers", self.config)

    @property
    def model_class(self) -> type:
        """The model with a language modelling head."""
        return _class_of("transformers", self.model)


class Family(NamedTuple):
    """One family of models.

    Args:
        model_type: as in `config.json`.
        modules: of the configuration and of the models, in `hf_attncal.models`.
        config: name of the configuration class.
        bare: name of the model without a head; None if there is none beside `model`.
        model: name of the model that users load.
        auto: name of the Auto class that loads it.
        card: template of its model card, in `model_cards/`.
        stock: what it is with every switch off; None if transformers has nothing like it.
        causal: name of its decoder-only language model, for `AutoModelForCausalLM`, whose card is "language"; None if
            there is none.
    """

    model_type: str
    modules: tuple[str, str]
    config: str
    bare: str | None
    model: str
    auto: str
    card: str
    stock: Stock | None = None
    causal: str | None = None

    @property
    def config_class(self) -> type:
        return _class_of(f"{__package__}.models.{self.modules[0]}", self.config)

    @property
    def model_class(self) -> type:
        """The model that users load."""
        return _class_of(f"{__package__}.models.{self.modules[1]}", self.model)

    @property
    def causal_class(self) -> type:
        """The decoder-only language model."""
        return _class_of(f"{__package__}.models.{self.modules[1]}", self.causal)

    def auto_and_card(self, architecture: str | None) -> tuple[str, str]:
        """The Auto class and the card of a saved model; `architecture` is the name of its class."""
        is_causal = self.causal is not None and architecture == self.causal
        return ("AutoModelForCausalLM", "language") if is_causal else (self.auto, self.card)

    @property
    def auto_classes(self) -> dict[str, type]:
        """Auto class by name -> the model of ours that it loads."""
        module = f"{__package__}.models.{self.modules[1]}"
        named = {"AutoModel": self.bare, "AutoModelForCausalLM": self.causal, self.auto: self.model}
        return {auto: _class_of(module, name) for auto, name in named.items() if name is not None}


def _class_of(module: str, name: str) -> type:
    return getattr(importlib.import_module(module), name)


FAMILIES = {
    family.model_type: family
    for family in (
        Family(
            "attncal_marian",
            ("configuration_attncal", "modeling_attncal_marian"),
            "AttnCalMarianConfig",
            "AttnCalMarianModel",
            "AttnCalMarianMTModel",
            "AutoModelForSeq2SeqLM",
            "translation",
            Stock("MarianConfig", "MarianMTModel"),
        ),
        Family(
            "attncal_bart",
            ("configuration_attncal", "modeling_attncal_bart"),
            "AttnCalBartConfig",
            "AttnCalBartModel",
            "AttnCalBartForConditionalGeneration",
            "AutoModelForSeq2SeqLM",
            "translation",
            Stock("BartConfig", "BartForConditionalGeneration"),
        ),
        Family(
            "discrete_transformer",
            ("configuration_discrete", "modeling_discrete"),
            "DiscreteTransformerConfig",
            "DiscreteTransformerModel",
            "DiscreteTransformerForConditionalGeneration",
            "AutoModelForSeq2SeqLM",
            "discrete_translation",
            causal="DiscreteTransformerForCausalLM",
        ),
        Family(
            "mask_align",
            ("configuration_mask_align", "modeling_mask_align"),
            "MaskAlignConfig",
            None,
            "MaskAlignModel",
            "AutoModel",
            "aligner",
        ),
        Family(
            "hmm_align",
            ("configuration_hmm_align", "modeling_hmm_align"),
            "HMMAlignConfig",
            None,
            "HMMAlignModel",
            "AutoModel",
            "counting_aligner",
        ),
        Family(
            "luong",
            ("configuration_luong", "modeling_luong"),
            "LuongConfig",
            "LuongModel",
            "LuongForConditionalGeneration",
            "AutoModelForSeq2SeqLM",
            "recurrent",
        ),
    )
}
# By the model type of the stock model: "marian" -> ours.
BACKBONES = {
    family.model_type.removeprefix("attncal_"): family for family in FAMILIES.values() if family.stock is not None
}
# What can be trained to translate, by the same name.
TRANSLATORS = {
    family.model_type.removeprefix("attncal_"): family
    for family in FAMILIES.values()
    if family.auto == "AutoModelForSeq2SeqLM"
}


# ---- registration with the Auto classes ----


def register_with_auto_classes() -> None:
    """Register every family with the Auto classes: now if transformers has been imported, else as soon as it is.

    Importing transformers takes seconds. Who asks the command line for help, or scores a file, does not need it.
    """
    if sys.modules.get("transformers") is not None:
        register()
    else:
        sys.meta_path.insert(0, _FinderOfTransformers())


@functools.cache  # after the first success
def register() -> None:
    """Register every family with the Auto classes, now."""
    import transformers

    for family in FAMILIES.values():
        transformers.AutoConfig.register(family.model_type, family.config_class)
        for name, model_class in family.auto_classes.items():
            getattr(transformers, name).register(family.config_class, model_class)


class _FinderOfTransformers:
    """Finds `transformers` where the finders after it do, and has our classes registered when it has been imported.

    It stays until then: many packages only ask whether there is such a package.
    """

    def find_spec(self, name: str, path=None, target=None):
        if name != "transformers" or self not in sys.meta_path:
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in after if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):  # else `hf_attncal.__getattr__` registers
            spec.loader = _LoaderOfTransformers(self, spec.loader)
        return spec


class _LoaderOfTransformers:
    """Is `loader`, but registers our classes after the package.

    Not sooner: transformers imports its modules when they are used, and in the middle of one of them ours could not
    import its classes.
    """

    def __init__(self, finder: _FinderOfTransformers, loader):
        self.finder, self.loader = finder, loader

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        register()
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
