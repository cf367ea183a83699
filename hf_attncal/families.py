"""Tables of the model families and of the variants of cross-attention: one row each, read by all code that needs them.

To add a family, add its configuration and model files to `models/` and a row to `FAMILIES`. Functions of other rooms
are named as "module:name" and imported on use, so the command line can read the table without heavy imports.
"""

import functools
import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple

_MODELS = "hf_attncal.models"


class Stock(NamedTuple):
    """The classes of transformers that a family builds on."""

    config: str
    model: str

    @property
    def config_class(self) -> type[Any]:
        return resolve_name(f"transformers:{self.config}")

    @property
    def model_class(self) -> type[Any]:
        """The model with a language modelling head."""
        return resolve_name(f"transformers:{self.model}")


class Card(NamedTuple):
    """Model card of a family.

    Args:
        template: name of a file in `model_cards/`, without its suffixes.
        fields: configuration fields to list in the card.
        tag: tag on the Hub.
        task: task in the Hub's terms; None for an aligner.
        pairs: True if the example is a pair `source ||| target`. Default: False.
    """

    template: str
    fields: tuple[str, ...]
    tag: str
    task: str | None
    pairs: bool = False


class Family(NamedTuple):
    """Family of models.

    Args:
        model_type: value of `model_type` in `config.json`.
        label: name of such a model in messages.
        modules: configuration module and model module, in `hf_attncal.models`.
        config: name of the configuration class.
        model: name of the model class that users load.
        auto: name of the Auto class that loads it. Default: AutoModelForSeq2SeqLM.
        card: model card.
        bare: name of the class without a head; None if `model` is the only class.
        stock: the transformers model with every switch off; None if there is none.
        causal: name of the decoder-only language model, for `AutoModelForCausalLM`, if any.
        causal_card: model card of the decoder-only language model.
        default_of: jobs that train this family by default.
        presets: presets that can train it; a preset of an aligner belongs to one family.
        sizes: function that fits the settings of a preset to the amount of text.
        after_preset: function that changes the settings of a preset once the others are known, if any.
        decoder_start: first token of the decoder. Default: pad.
        switches: fields of `VARIANTS` that the configuration has.
        forms: further names for `--model`, each with its settings of the section `model`.
        attention: function that describes the attention of a configuration in words.
        source: class that extracts word alignments; None if they are extracted from attention.
        plain: function that loads a saved aligner without transformers; it returns None if that is impossible.
        counted: True for a statistical aligner, which has no gradients. Default: False.
        summary: method of an aligner, for its card.
    """

    model_type: str
    label: str
    modules: tuple[str, str]
    config: str
    model: str
    card: Card
    auto: str = "AutoModelForSeq2SeqLM"
    bare: str | None = None
    stock: Stock | None = None
    causal: str | None = None
    causal_card: Card | None = None
    default_of: tuple[str, ...] = ()
    presets: tuple[str, ...] = ("small", "base")
    sizes: str = "hf_attncal.training.presets:translation_defaults"
    after_preset: str | None = None
    decoder_start: Literal["pad", "eos"] = "pad"
    switches: tuple[str, ...] = ("calibration", "leaky", "gumbel", "output_gate", "copy", "guided")
    forms: Mapping[str, dict[str, Any]] = MappingProxyType({})
    attention: str = "hf_attncal.training.job:switches_in_words"
    source: str | None = None
    plain: str | None = None
    counted: bool = False
    summary: str = ""

    @property
    def name(self) -> str:
        """Name in settings and on the command line: the model type of the stock model, if any."""
        return self.model_type.removeprefix("attncal_")

    @property
    def whole_modules(self) -> tuple[str, ...]:
        """Full names of the configuration module and the model module."""
        return tuple(f"{_MODELS}.{name}" for name in self.modules)

    @property
    def config_class(self) -> type[Any]:
        return resolve_name(f"{self.whole_modules[0]}:{self.config}")

    @property
    def model_class(self) -> type[Any]:
        """Model class that users load."""
        return resolve_name(f"{self.whole_modules[1]}:{self.model}")

    @property
    def causal_class(self) -> type[Any]:
        """Class of the decoder-only language model."""
        return resolve_name(f"{self.whole_modules[1]}:{self.causal}")

    @property
    def auto_classes(self) -> dict[str, type]:
        """Model class for each Auto class that loads one, by the name of the Auto class."""
        names = {"AutoModel": self.bare, "AutoModelForCausalLM": self.causal, self.auto: self.model}
        module = self.whole_modules[1]
        return {auto: resolve_name(f"{module}:{name}") for auto, name in names.items() if name is not None}

    def auto_and_card(self, architecture: str | None) -> tuple[str, Card]:
        """Return the name of the Auto class and the card of a saved model, given the name of its class."""
        if self.causal_card is not None and self.causal is not None and architecture == self.causal:
            return "AutoModelForCausalLM", self.causal_card
        return self.auto, self.card

    def resolve(self, field: str) -> Any:
        """Import the function or class that a field ("sizes", "attention", "source", ...) names; None if unset."""
        name = getattr(self, field)
        return None if name is None else resolve_name(name)


_SWITCHES = ("calibration", "leaky", "gumbel", "output_gate", "uam")
_CALIBRATED = Card("translation", _SWITCHES, "attention-calibration", "translation")
_RECURRENT = ("cell", "score", "attention_window", "input_feeding", "selective_gate", *_SWITCHES)
_DISCRETE = ("hard_attention", "streams", "leaky", "receptive_field_penalty")
_LINKS = ("alignment_threshold", "symmetrization", "lowercase", "tokenize", "fold_words")

FAMILIES = {
    family.model_type: family
    for family in (
        Family(
            model_type="attncal_marian",
            label="Marian",
            modules=("configuration_attncal", "modeling_attncal_marian"),
            config="AttnCalMarianConfig",
            bare="AttnCalMarianModel",
            model="AttnCalMarianMTModel",
            card=_CALIBRATED,
            stock=Stock("MarianConfig", "MarianMTModel"),
            default_of=("translation",),
        ),
        Family(
            model_type="attncal_bart",
            label="BART",
            modules=("configuration_attncal", "modeling_attncal_bart"),
            config="AttnCalBartConfig",
            bare="AttnCalBartModel",
            model="AttnCalBartForConditionalGeneration",
            card=_CALIBRATED,
            stock=Stock("BartConfig", "BartForConditionalGeneration"),
            decoder_start="eos",
        ),
        Family(
            model_type="discrete_transformer",
            label="a Discrete Transformer",
            modules=("configuration_discrete", "modeling_discrete"),
            config="DiscreteTransformerConfig",
            bare="DiscreteTransformerModel",
            model="DiscreteTransformerForConditionalGeneration",
            card=Card("discrete_translation", _DISCRETE, "discrete-transformer", "translation"),
            causal="DiscreteTransformerForCausalLM",
            causal_card=Card("language", _DISCRETE, "discrete-transformer", "text-generation"),
            default_of=("language",),
            after_preset="hf_attncal.training.presets:harden",
            switches=("leaky",),  # its attention already selects one token
            forms={"discrete-1": {"streams": 1}, "discrete-2": {"streams": 2}},
            attention="hf_attncal.training.job:streams_in_words",
        ),
        Family(
            model_type="mask_align",
            label="Mask-Align",
            modules=("configuration_mask_align", "modeling_mask_align"),
            config="MaskAlignConfig",
            model="MaskAlignModel",
            auto="AutoModel",
            card=Card("aligner", ("prediction", *_LINKS), "word-alignment", None, pairs=True),
            presets=("small",),
            source="hf_attncal.alignment.mask_align:MaskAlignSource",
            summary="a masked translation model in each direction",
        ),
        Family(
            model_type="hmm_align",
            label="an aligner that counts",
            modules=("configuration_hmm_align", "modeling_hmm_align"),
            config="HMMAlignConfig",
            model="HMMAlignModel",
            auto="AutoModel",
            card=Card("counting_aligner", ("entries", *_LINKS), "word-alignment", None, pairs=True),
            presets=("hmm",),
            source="hf_attncal.alignment.mask_align:MaskAlignSource",
            plain="hf_attncal.alignment.statistical:plain_aligner",
            counted=True,
            summary="counts alone",
        ),
        Family(
            model_type="luong",
            label="a recurrent model",
            modules=("configuration_luong", "modeling_luong"),
            config="LuongConfig",
            bare="LuongModel",
            model="LuongForConditionalGeneration",
            card=Card("recurrent", _RECURRENT, "luong-attention", "translation"),
            default_of=("summarization",),
            presets=("small",),
            switches=("calibration", "leaky", "gumbel", "output_gate", "copy"),
            sizes="hf_attncal.training.presets:recurrent_defaults",
            attention="hf_attncal.training.job:window_in_words",
        ),
        Family(
            model_type="ssru",
            label="Marian with a recurrent decoder",
            modules=("configuration_attncal", "modeling_ssru"),
            config="SSRUConfig",
            bare="SSRUModel",
            model="SSRUForConditionalGeneration",
            card=_CALIBRATED,
        ),
    )
}
# Class that extracts word alignments from an encoder-decoder without a `source` in its row.
ENCODER_DECODER_SOURCE = "hf_attncal.alignment.seq2seq:Seq2SeqSource"
# Model types of transformers that average the loss over a micro-batch and ignore `num_items_in_batch`
# (transformers issue 47688).
IGNORE_NUM_ITEMS = ("marian", "bart", "mbart", "pegasus", "m2m_100")


# ---- queries of the table ----


def backbones() -> dict[str, Family]:
    """Return the families that build on a model of transformers, by its model type."""
    return {family.name: family for family in FAMILIES.values() if family.stock is not None}


def translators() -> dict[str, Family]:
    """Return the encoder-decoder families by their names in settings."""
    return {family.name: family for family in FAMILIES.values() if family.auto == "AutoModelForSeq2SeqLM"}


def aligners() -> dict[str, Family]:
    """Return the aligner families, by their presets."""
    return {name: family for family in FAMILIES.values() if family.source is not None for name in family.presets}


def default_of(job: str) -> Family:
    """Return the family that a job ("translation", "summarization", "language") trains by default."""
    return next(family for family in FAMILIES.values() if job in family.default_of)


def source_of(config) -> Any:
    """Return the class that extracts word alignments from a model of this configuration; None if there is none."""
    family = FAMILIES.get(config.model_type)
    if family is not None and family.source is not None:
        return family.resolve("source")
    return resolve_name(ENCODER_DECODER_SOURCE) if config.is_encoder_decoder else None


def stock_type(model_type: str) -> str:
    """Return the model type of the stock model that a family builds on; any other model type unchanged."""
    family = FAMILIES.get(model_type)
    return model_type if family is None or family.stock is None else family.name


# ---- registration with the Auto classes ----

# Files of `models/` that need only torch; a statistical aligner starts with them.
TORCH_ALONE = ("functional", "functional_jumps", "functional_mask_align", "hmm_tables", "limits", "loading")


def register_with_auto_classes() -> None:
    """Register every family with the Auto classes, now or as soon as transformers is imported.

    Importing transformers takes seconds; a command that shows its help or scores a file does not need it.
    """
    if sys.modules.get("transformers") is not None:
        register()
    else:
        sys.meta_path.insert(0, _FinderOfTransformers())


@functools.cache  # only a success is cached
def register() -> None:
    """Register our families with the Auto classes, now."""
    import transformers

    for family in FAMILIES.values():
        transformers.AutoConfig.register(family.model_type, family.config_class)
        for name, model_class in family.auto_classes.items():
            getattr(transformers, name).register(family.config_class, model_class)


class _FinderOfTransformers:
    """Finder that delegates to the next finders, and registers our classes once transformers is imported.

    It stays in place until then, because many packages only check that transformers exists. Files of `models/` that
    need transformers import it first: registration imports all of these files, which fails in the middle of one.
    """

    def find_spec(self, name: str, path=None, target=None):
        room, _, file = name.rpartition(".")
        if room == _MODELS and file not in TORCH_ALONE:
            importlib.import_module("transformers")
            return _LoaderOfLoaded.spec_for(sys.modules[name]) if name in sys.modules else None
        if name != "transformers" or self not in sys.meta_path:
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(name, path, target) for finder in after if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):  # else `hf_attncal.__getattr__` registers
            execute = loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                """Our classes cannot be imported earlier: transformers is then only partly imported."""
                execute(module)
                register()
                if self in sys.meta_path:
                    sys.meta_path.remove(self)

            loader.exec_module = execute_and_register
        return spec


class _LoaderOfLoaded:
    """Loader of a module that was imported during its own lookup; Python would execute its file again."""

    def __init__(self, module: ModuleType):
        self.module, self.spec = module, module.__spec__

    @classmethod
    def spec_for(cls, module: ModuleType) -> ModuleSpec:
        loader: Any = cls(module)
        spec = module.__spec__ = ModuleSpec(module.__name__, loader)  # Python checks this attribute
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class Variant(NamedTuple):
    """Variant of cross-attention.

    It has a formula in `models/functional.py`, a value in `models/configuration_attncal.py`, a slow reference that the
    fast one is compared with, and a line in docs/papers.md. tests/test_variants.py names and checks them.

    Args:
        name: name on the command line and in the table of a card.
        field: configuration field that switches it on.
        value: value of that field.
        adapter: True if an adapter can add it to a finished model. Default: False.
    """

    name: str
    field: str
    value: str | bool
    adapter: bool = False


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("fixed", "calibration", "fixed", adapter=True),
        Variant("annealed", "calibration", "annealed", adapter=True),
        Variant("gated", "calibration", "gated", adapter=True),
        Variant("leaky", "leaky", True, adapter=True),
        Variant("gumbel", "gumbel", True),
        Variant("output_gate", "output_gate", True, adapter=True),
        Variant("copy", "copy", True),
        Variant("guided", "guided", True, adapter=True),
    )
}
