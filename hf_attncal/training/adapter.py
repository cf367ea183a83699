"""Training jobs of an adapter or an observer on a finished translation model, or of LoRA and full fine-tuning."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, PeftType, TaskType, get_peft_model
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_attncal.adapters.checkpoints import peft_uses_old_names, save_adapter
from hf_attncal.adapters.configuration import AttentionCalibrationConfig
from hf_attncal.adapters.export import export_calibrated
from hf_attncal.adapters.layers import cross_attentions, observable_attentions
from hf_attncal.adapters.null_mass import set_null_mass
from hf_attncal.adapters.observer_learning import learn_observer, nearest_head
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.languages import set_languages, target_code
from hf_attncal.families import FAMILIES, backbones, stock_type
from hf_attncal.hub.model_cards import write_model_card, write_trained_adapter_card
from hf_attncal.inference.loading import model_config
from hf_attncal.inference.seals import revision_of
from hf_attncal.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG
from hf_attncal.models.configuration_attncal import SWITCHES

from .calibrated import injected_adapters
from .folder import fill, finish
from .job import SENTENCE, Job, about_run, attention, base_name, extent_results, recorded, score_results, split_name
from .presets import adapter_defaults, anneal, sections_of
from .sections import Kernel, check_section, hints_of, merge_settings, naming
from .seq2seq import TRAINING_DEFAULTS, BleuConfig, Seq2SeqJob, check_guide, copy_search_settings
from .settings import Settings
from .text import LINKS_OF_SPLITS, DataConfig

ADAPTER_METHODS = {"attncal": AttentionCalibrationConfig, "lora": LoraConfig, "full": None}
TASK = TaskType.SEQ_2_SEQ_LM
METHOD = {"method": Literal[tuple(ADAPTER_METHODS)]}
# The job or `model.label_smoothing` sets these for every method in the same way.
_FIELDS_NOT_IN_FILES = {
    "label_smoothing",
    "base_model_type",
    "base_d_model",
    "task_type",
    "peft_type",
    "inference_mode",
}
# PEFT would import code by these names, or load another base model than `model.checkpoint`.
_FIELDS_NOT_IN_FILES |= {"auto_mapping", "base_model_name_or_path", "megatron_config", "megatron_core"}
# Mean weight of NULL in each head before a leaky adapter of a preset is trained.
_NULL_MASS = 0.02
_OBSERVER_BATCH = 16
_OBSERVER_HELD_OUT = 10  # every tenth pair chooses the heads
_SEARCH_FIELDS_OF_CARD = ("num_beams", "length_penalty", "max_new_tokens")  # search settings shown in the model card
# Fields that choose the guided head, and the number of pairs that choose it where they are missing.
_GUIDED_HEAD_FIELDS, _PAIRS_TO_CHOOSE_HEAD = {"layers", "guided_layer", "guided_head", "guided_shift"}, 200
# A LoRA next to a calibration leaves these at their defaults: they would change the base model, or the mask network's
# loss would reach them.
_LORA_FIELDS_AT_DEFAULT = {"bias", "init_lora_weights", "modules_to_save", "trainable_token_indices", "use_dora"}


@dataclass
class BaseModelConfig:
    """The model to adapt, and the label smoothing of its training."""

    checkpoint: str | None = None
    revision: str | None = None
    attn_implementation: Kernel = None
    label_smoothing: float = 0.0


@dataclass
class AdapterConfig(Settings):
    """Settings of one run; `adapter` holds `method`, fields of its configuration, and two more for `attncal`.

    `null_mass` is the mean weight of NULL before training (`set_null_mass`; default: as `null_bias` sets it). `lora`
    holds fields of `LoraConfig` for a LoRA trained together with an attention-calibration adapter.
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: BaseModelConfig = field(default_factory=BaseModelConfig)
    adapter: dict[str, Any] = field(default_factory=dict)
    evaluation: BleuConfig = field(default_factory=BleuConfig)
    languages: str | None = None

    job = "adapter"
    links = LINKS_OF_SPLITS

    @classmethod
    def defaults(cls, values, texts):
        sections = {"adapter": {"method": "attncal"}, "training": TRAINING_DEFAULTS | {"output_dir": "runs/adapter"}}
        if values.get("preset"):
            merge_settings(sections, sections_of(cls, values, adapter_defaults, texts))
        section = values.get("adapter", {})
        if section.get("method", "attncal") != "attncal":
            sections["adapter"] = {}  # the preset has fields of `attncal`
        elif values.get("preset") and section.get("leaky"):
            sections["adapter"]["null_mass"] = _NULL_MASS
        if sections["adapter"] and section.get("guided"):
            sections["adapter"]["calibration"] = None  # learning links needs no change of attention
        if values.get("preset"):
            anneal(sections, "adapter", values)
        return sections

    def __post_init__(self):
        super().__post_init__()
        check_section({"method": self.adapter["method"]}, METHOD, "adapter")
        if not 0 <= self.model.label_smoothing < 1:
            raise ValueError(f"`model.label_smoothing` must be in [0, 1), got {self.model.label_smoothing!r}.")
        beside = {"null_mass": float | None, "lora": dict | None} if self.adapter["method"] == "attncal" else {}
        check_section(self.adapter, METHOD | _hints(ADAPTER_METHODS[self.adapter["method"]]) | beside, "adapter")
        null_mass, lora = self.adapter.get("null_mass"), self.adapter.get("lora")
        if null_mass is not None and not (0 < null_mass < 1 and self.adapter.get("leaky")):
            raise ValueError(f"`adapter.null_mass` must be between 0 and 1, with `leaky: true`, got {null_mass!r}.")
        if lora is not None:
            self._check_lora(lora)
        with naming("adapter", self.adapter):
            self.method_config()
        check_guide(self.data, self.guided, "adapter")

    def check_starts(self):
        if self.model.checkpoint is None:
            raise ValueError(
                "`model.checkpoint` must name the model to begin with, got none: `model.checkpoint=FOLDER`."
            )
        super().check_starts()
        check_base(self.model, self.adapter)

    @property
    def guided(self) -> bool:
        """True if the adapter learns word links."""
        return bool(self.adapter.get("guided"))

    def _check_lora(self, lora: dict[str, Any]) -> None:
        """Check a LoRA next to a calibration: it adapts named linear layers only, and can be switched off."""
        check_section(lora, _hints(LoraConfig), "adapter.lora")
        if not lora.get("target_modules"):
            raise ValueError(f"`adapter.lora` must be fields of LoraConfig with `target_modules`, got {lora!r}.")
        plain = {f.name: f.default for f in dataclasses.fields(LoraConfig)}
        for name in _LORA_FIELDS_AT_DEFAULT & lora.keys():
            if lora[name] != plain[name] and lora[name] not in (None, False):
                raise ValueError(
                    f"`adapter.lora.{name}` must be left out, got {lora[name]!r}: next to a calibration, only linear "
                    "layers can be adapted, and the base model must not change."
                )
        if self.adapter.get("layers") is not None and not self.adapter.get("renormalize", True):
            raise ValueError(
                "`adapter.lora` with `layers` needs `renormalize: true`, got false: both are exported as one model."
            )
        with naming("adapter.lora", lora):
            LoraConfig(task_type=TASK, **lora)

    def method_config(self) -> AttentionCalibrationConfig | LoraConfig | None:
        """Return the configuration of the method; None for full fine-tuning."""
        fields = {name: value for name, value in self.adapter.items() if name not in ("method", "null_mass", "lora")}
        if self.adapter["method"] == "attncal":
            return AttentionCalibrationConfig(**fields, label_smoothing=self.model.label_smoothing)
        return LoraConfig(task_type=TASK, **fields) if self.adapter["method"] == "lora" else None


def _hints(config_class: type | None) -> dict[str, Any]:
    """Return the types of the configuration fields that a settings file may set."""
    hints = hints_of(config_class) if config_class else {}
    if config_class is LoraConfig:
        hints["init_lora_weights"] = bool | str  # some values contain a number
    return {name: hint for name, hint in hints.items() if name not in _FIELDS_NOT_IN_FILES}


class AdapterJob(Seq2SeqJob):
    """Train an adapter or a baseline, and score it and its base model."""

    settings = AdapterConfig

    def begin(self):
        settings, args = self.config.model, self.run.args
        tokenizer = AutoTokenizer.from_pretrained(settings.checkpoint, revision=settings.revision)
        with args.main_process_first(local=False):
            write = args.process_index == 0
            self.checkpoint = base_checkpoint(self.config, tokenizer, Path(args.output_dir), write=write)
        revision = settings.revision if self.checkpoint == settings.checkpoint else None
        return tokenizer, model_config(self.checkpoint, revision=revision), None

    def new_model(self, config, tokenizer):
        return build(config, self.checkpoint, self.nearest if config.guided else None)

    def nearest(self, model: PreTrainedModel) -> dict[str, Any]:
        """Find and print the head nearest to the links of the text; return its fields, {} if they are set."""
        if _GUIDED_HEAD_FIELDS & self.config.adapter.keys():
            return {}
        text, collator = self.tokenized["train"], LinkCollator(DataCollatorForSeq2Seq(self.tokenizer))
        rows = text.select(range(0, len(text), -(-len(text) // _PAIRS_TO_CHOOSE_HEAD))).select_columns(
            ["input_ids", "labels", "links"]
        )
        batches = (collator(list(rows.select(range(n, min(n + 16, len(rows)))))) for n in range(0, len(rows), 16))
        place, share = nearest_head(model, batches)
        if self.run.args.process_index == 0:
            print(f"Guided head: {place}. It is nearest to the links: right for {share:.1%} of the linked tokens.")
        return {"guided_layer": place.layer, "guided_head": place.head, "guided_shift": place.shift}

    def build(self, config, args):
        trainer, text = super().build(config, args), self.tokenized["train"]
        if config.adapter.get("null_mass") is not None:
            few = trainer.data_collator([text[n] for n in range(min(64, len(text)))])
            set_null_mass(trainer.model, few, config.adapter["null_mass"])
        return trainer

    def score(self, model):
        # After full fine-tuning there is no base model to score.
        self.states = {"trained": nullcontext}
        if injected_adapters(model) or isinstance(model, PeftModel):
            self.states["base"] = partial(_base, model)
        results: dict[str, Any] = {name: {} for name in self.measured}
        for name in self.measured:
            for state_name, state in self.states.items():
                with state():
                    results[name][state_name] = self.generate_and_score(model, name, f".{state_name}")
        return results | self.attention_scores(model)

    def save(self, folder, model, results):
        names = injected_adapters(model)
        for name in names:
            save_adapter(model, folder / name, adapter_name=name)
            if target_code(self.tokenizer):  # the tokenizer of the base model may lack it
                self.tokenizer.save_pretrained(folder / name)
        if names and model.config.model_type in backbones():
            export_calibrated(model).save_pretrained(folder / "full")
            self.tokenizer.save_pretrained(folder / "full")
        if not names:
            Job.save(self, folder, model, results)
        for file in folder.rglob("*config.json") if self.guided is not None else ():
            if file.name in (CONFIG, ADAPTER_CONFIG):
                self.guided.save(file.parent)
        self.write_cards(folder, model, results)
        files = [folder / name / ADAPTER_WEIGHTS for name in names or [""]]
        results["adapter_bytes"] = sum(file.stat().st_size for file in files if file.exists())

    def write_cards(self, folder: Path, model: PreTrainedModel | PeftModel, results: dict[str, Any]) -> None:
        """Write the card of each adapter and of each of our models saved below a folder."""
        config, base = self.config, self.config.model.checkpoint
        state_labels = {"trained": "", "base": ", the base model"}
        about = about_run(config, results)
        about["results"] = [
            score
            for split in self.measured
            for state in self.states
            for score in score_results(results[split][state], split_name(config, split) + state_labels[state])
        ] + extent_results(results)
        for file in sorted(folder.rglob(ADAPTER_CONFIG)):
            method = model.peft_config[file.parent.name if file.parent != folder else "default"]
            kind = (
                attention(method)
                if isinstance(method, AttentionCalibrationConfig)
                else PeftType(method.peft_type).value
            )
            local, search = Path(base).is_dir(), vars(config.evaluation)
            write_trained_adapter_card(
                file.parent,
                **about,
                summary=f"An adapter for {base_name(base)}: {kind}.",
                base_model=None if local else base,
                base=f"`{base_name(base)}`" + (f" (`{revision_of(base)}`)" if local else ""),
                search={name: search[name] for name in _SEARCH_FIELDS_OF_CARD if search[name] is not None},
            )
        for file in sorted(folder.rglob(CONFIG)):
            switches = model_config(file.parent)
            if switches.model_type in FAMILIES:
                summary = f"{base_name(base)}, trained further, with {attention(switches)}."
                write_model_card(file.parent, **about, summary=summary, example=SENTENCE)


train_adapter = AdapterJob.train


class ObserverJob(AdapterJob):
    """Teach a head beside the attention of a frozen model word links, and score it on annotated pairs.

    There is no Trainer, since the head learns from states that the model is run for once.
    """

    def complete(self):
        start, text = time.monotonic(), self.tokenized["train"].select_columns(["input_ids", "labels", "links"])
        if len(text) < 2 * _OBSERVER_HELD_OUT:
            raise ValueError(
                f"an observer needs at least {2 * _OBSERVER_HELD_OUT} sentence pairs, got {len(text)}. Give more."
            )
        settings = self.config.model
        model = AutoModelForSeq2SeqLM.from_pretrained(self.checkpoint, revision=settings.revision)
        model.to(self.run.args.device)
        set_languages(model, self.tokenizer)
        rows = range(len(text))
        observed, lesson = learn_observer(
            model,
            self._batches(text.select([row for row in rows if row % _OBSERVER_HELD_OUT])),
            self._batches(text.select(rows[::_OBSERVER_HELD_OUT])),
            seed=self.run.args.seed,
        )
        print(lesson)
        self.measured, self.states = [], {}
        results = {
            **recorded(self.config),
            self.config.data.units: {name: asdict(report) for name, report in self.reports.items()},
            "observer": {"heads": lesson.places, "agreement": lesson.agreement, "before": lesson.before},
            "steps": lesson.steps,
            "wall_seconds": time.monotonic() - start,
            "cpu_seconds": lesson.seconds,
            **self.counted,
        }
        results |= self.head_on_gold(observed.get_base_model())
        return finish(self.run, results, lambda folder: self.save(folder, observed, results))

    def _batches(self, text: Dataset) -> list[dict[str, Any]]:
        """Return batches with links, each of pairs of about one length."""
        collator = LinkCollator(DataCollatorForSeq2Seq(self.tokenizer))
        rows = sorted(text, key=lambda pair: len(pair["input_ids"]))
        return [collator(rows[first : first + _OBSERVER_BATCH]) for first in range(0, len(rows), _OBSERVER_BATCH)]


def check_base(settings: BaseModelConfig, adapter: dict[str, Any]) -> None:
    """Raise ValueError for a base model that cannot be adapted, by its configuration only."""
    attentions = observable_attentions if adapter.get("observe") else cross_attentions
    saved = model_config(settings.checkpoint or "", revision=settings.revision)
    family = FAMILIES.get(saved.model_type)
    kind = f"a model of type `{saved.model_type}`" if family is None else family.label
    model = None
    if type(saved) in AutoModelForSeq2SeqLM._model_mapping:
        with torch.device("meta"):
            model = AutoModelForSeq2SeqLM.from_config(saved)
    if model is None or (adapter["method"] == "attncal" and not attentions(model)):
        raise ValueError(
            f"`model.checkpoint` must be an encoder-decoder such as Marian, BART, mBART, Pegasus, M2M100 or NLLB, got "
            f"{settings.checkpoint}, which is {kind}."
        )


def base_checkpoint(
    config: AdapterConfig, tokenizer: PreTrainedTokenizerBase, output: Path, write: bool = True
) -> str:
    """Return the checkpoint to adapt: the named one, or a stock copy of one of our models without switches.

    A folder becomes an absolute path, since the adapter names it and may be loaded from anywhere.

    Args:
        config: settings of the run: `model` names the checkpoint, `evaluation` sets how the copy generates.
        tokenizer: tokenizer of the checkpoint.
        output: output folder.
        write: write the copy; False if another process does. Default: True.

    Raises:
        ValueError: one of our models with a switch on.
    """
    checkpoint, revision = config.model.checkpoint or "", config.model.revision
    saved = model_config(checkpoint, revision=revision)
    kind = stock_type(saved.model_type)
    if kind == saved.model_type:
        return str(Path(checkpoint).resolve()) if Path(checkpoint).is_dir() else checkpoint
    on = [f"`{name}={getattr(saved, name)!r}`" for name in SWITCHES if getattr(saved, name)]
    if on:
        raise ValueError(
            f"{checkpoint} was trained with {', '.join(on)} and cannot get an adapter, which has its own "
            "cross-attention. Adapt a stock model, or train this one further: `attncal train model.init_from=FOLDER`."
        )
    if write:
        stock = backbones()[kind].stock
        assert stock is not None  # every backbone has one
        trained = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, revision=revision)
        fields = hints_of(stock.config_class).keys() - {"architectures", "model_type", "auto_map"}
        copied = stock.config_class(**{name: value for name, value in saved.to_dict().items() if name in fields})
        model = stock.model_class.from_pretrained(None, config=copied, state_dict=trained.state_dict())
        model.generation_config = trained.generation_config
        copy_search_settings(model, tokenizer, config.evaluation)

        def save(folder: Path) -> None:
            model.save_pretrained(folder / "base")
            tokenizer.save_pretrained(folder / "base")

        fill(output, save)
    return str((output / "base").resolve())


def build(
    config: AdapterConfig, checkpoint: str, nearest: Callable[[PreTrainedModel], dict[str, Any]] | None = None
) -> PreTrainedModel | PeftModel:
    """Build the model to train: a frozen base with an adapter, or a model with all weights trainable.

    `nearest` returns further fields of the adapter's configuration for the base model.

    A stock model has no label smoothing and ignores the number of tokens of a step. LoRA and full training of Marian
    and BART therefore use our class with every switch off, which is the stock model with both.
    """
    settings, method, lora = config.model, config.method_config(), config.adapter.get("lora")
    common: dict[str, Any] = {"revision": settings.revision if checkpoint == settings.checkpoint else None}
    kind = model_config(checkpoint, **common).model_type
    if settings.attn_implementation is not None:
        common["attn_implementation"] = settings.attn_implementation
    if isinstance(method, AttentionCalibrationConfig):
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, **common)
        method = dataclasses.replace(method, **nearest(model)) if nearest else method
        if lora is None:
            with peft_uses_old_names():
                return get_peft_model(model, method, revision=common["revision"])
        method.revision = common["revision"]  # PEFT's models hold one method, transformers' interface several
        model.add_adapter(method, "calibration")
        model.add_adapter(LoraConfig(task_type=TASK, **lora), "lora")
        model.set_adapter(["calibration", "lora"])
        for parameter in model.parameters():  # like `get_peft_model`
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return model
    if kind in backbones():
        model_class = backbones()[kind].model_class
        model = model_class.from_pretrained(checkpoint, label_smoothing=settings.label_smoothing, **common)
    elif settings.label_smoothing == 0:
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, **common)
    else:
        raise ValueError(
            f"`model.label_smoothing` with `adapter.method={config.adapter['method']}` needs one of "
            f"{tuple(backbones())}, got {kind!r}. Set it to 0."
        )
    with peft_uses_old_names():
        return model if method is None else get_peft_model(model, method)


@contextmanager
def _base(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Disable the adapters of a model in the block."""
    with ExitStack() as stack:
        if isinstance(model, PeftModel):
            stack.enter_context(model.disable_adapter())
        else:
            model.disable_adapters()
            stack.callback(model.enable_adapters)
        yield
