"""The model families of this package, one row each; whatever depends on a family asks here.

Nothing heavy is imported until a class is asked for, so that the command line can read the table.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Stock:
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


@dataclass(frozen=True)
class Family:
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
    """

    model_type: str
    modules: tuple[str, str]
    config: str
    bare: str | None
    model: str
    auto: str
    card: str
    stock: Stock | None = None

    @property
    def config_class(self) -> type:
        return _class_of(f"{__package__}.models.{self.modules[0]}", self.config)

    @property
    def model_class(self) -> type:
        """The model that users load."""
        return _class_of(f"{__package__}.models.{self.modules[1]}", self.model)

    @property
    def auto_classes(self) -> dict[str, type]:
        """Auto class by name -> the model of ours that it loads."""
        module = f"{__package__}.models.{self.modules[1]}"
        bare = {} if self.bare is None else {"AutoModel": _class_of(module, self.bare)}
        return {**bare, self.auto: self.model_class}


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
            "mask_align",
            ("configuration_mask_align", "modeling_mask_align"),
            "MaskAlignConfig",
            None,
            "MaskAlignModel",
            "AutoModel",
            "aligner",
        ),
    )
}
# By the model type of the stock model: "marian" -> ours.
BACKBONES = {
    family.model_type.removeprefix("attncal_"): family for family in FAMILIES.values() if family.stock is not None
}


# ---- registration with the Auto classes ----


def register_with_auto_classes() -> None:
    """Register every family with the Auto classes: now if transformers has been imported, else as soon as it is.

    Importing transformers takes seconds. Who asks the command line for help, or scores a file, does not need it.
    """
    if "transformers" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _RegisterAfterImport())


def _register() -> None:
    import transformers

    for family in FAMILIES.values():
        transformers.AutoConfig.register(family.model_type, family.config_class)
        for name, model_class in family.auto_classes.items():
            getattr(transformers, name).register(family.config_class, model_class)


class _RegisterAfterImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself; has our classes registered when the package `transformers` was imported, by whomever.

    Right after that package, whose own classes are imported when they are used: later, in the middle of one of its
    modules, ours could not import theirs.
    """

    def find_spec(self, name: str, path=None, target=None):
        if name != "transformers":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register
        return spec
