"""Job that trains an adapter on a finished translation model, or what it is compared with: LoRA, all weights."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
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
from hf_attncal.adapters.layers import cross_attentions
from hf_attncal.adapters.null_mass import set_null_mass
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.languages import target_code
from hf_attncal.families import FAMILIES, backbones, stock_type
from hf_attncal.hub.model_cards import write_model_card, write_trained_adapter_card
from hf_attncal.inference.loading import model_config
from hf_attncal.inference.seals import revision_of
from hf_attncal.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG
from hf_attncal.models.configuration_attncal import SWITCHES

from .calibrated import injected_adapters
from .folder import fill
from .job import SENTENCE, Job, about_run, attention, base_name, score_results, split_name
from .presets import adapter_defaults, anneal, sections_of
from .sections import Kernel, check_section, hints_of, merge_settings, naming
from .seq2seq import TRAINING_DEFAULTS, BleuConfig, Seq2SeqJob, check_guide, search_as_scored
from .settings import Settings
from .text import LINKS_OF_SPLITS, DataConfig, linker

ADAPTER_METHODS = {"attncal": AttentionCalibrationConfig, "lora": LoraConfig, "full": None}
TASK = TaskType.SEQ_2_SEQ_LM
METHOD = {"method": Literal[tuple(ADAPTER_METHODS)]}
# Set by the job, or with `model.label_smoothing`, for every method in the same way.
_NOT_IN_FILES = {"label_smoothing", "base_model_type", "base_d_model", "task_type", "peft_type", "inference_mode"}
# Names of code that PEFT would import, and of another base model than `model.checkpoint`.
_NOT_IN_FILES |= {"auto_mapping", "base_model_name_or_path", "megatron_config", "megatron_core"}
# Mean weight of NULL in each head before a leaky adapter of a preset is trained.
_NULL_MASS = 0.02
_SEARCHED = ("num_beams", "length_penalty", "max_new_tokens")  # settings of the search that a card states
# Settings that say which head learns links, and of how many pairs the head is chosen where they do not.
_PLACE, _READ = {"layers", "guided_layer", "guided_head", "guided_shift"}, 200
# Of a LoRA beside a calibration: what would change the base model, or be reached by the mask network's loss.
_ONLY_PLAIN = {"bias", "init_lora_weights", "modules_to_save", "trainable_token_indices", "use_dora"}


@dataclass
class BaseModelConfig:
    """The model to adapt, and the label smoothing that it is trained with."""

    checkpoint: str | None = None
    revision: str | None = None
    attn_implementation: Kernel = None
    label_smoothing: float = 0.0


@dataclass
class AdapterConfig(Settings):
    """All settings of one run; `adapter` holds `method`, fields of its configuration, and for `attncal` two more.

    `null_mass` is what `set_null_mass` gives NULL before training; without it that is left to `null_bias`. `lora`
    holds fields of `LoraConfig` for a LoRA that is trained together with an attention-calibration adapter.
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
        given = values.get("adapter", {})
        if given.get("method", "attncal") != "attncal":
            sections["adapter"] = {}  # a preset's are fields of this method
        elif values.get("preset") and given.get("leaky"):
            sections["adapter"]["null_mass"] = _NULL_MASS
        if sections["adapter"] and given.get("guided"):
            sections["adapter"]["calibration"] = None  # what learns links need change nothing else
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
        check_base(self.model, self.adapter["method"])

    @property
    def guided(self) -> bool:
        """True if the adapter learns links."""
        return bool(self.adapter.get("guided"))

    def _check_lora(self, lora: dict[str, Any]) -> None:
        """Check a LoRA beside a calibration: it adapts named linear layers, and can be switched off."""
        check_section(lora, _hints(LoraConfig), "adapter.lora")
        if not lora.get("target_modules"):
            raise ValueError(f"`adapter.lora` must be fields of LoraConfig with `target_modules`, got {lora!r}.")
        plain = {f.name: f.default for f in dataclasses.fields(LoraConfig)}
        for name in _ONLY_PLAIN & lora.keys():
            if lora[name] != plain[name] and lora[name] not in (None, False):
                raise ValueError(
                    f"`adapter.lora.{name}` must be left out, got {lora[name]!r}: beside a calibration the base model "
                    "has to stay what it is, and nothing but linear layers can be adapted."
                )
        if self.adapter.get("layers") is not None and not self.adapter.get("renormalize", True):
            raise ValueError(
                "`adapter.lora` with `layers` needs `renormalize: true`, got false: the two are exported as one model."
            )
        with naming("adapter.lora", lora):
            LoraConfig(task_type=TASK, **lora)

    def method_config(self) -> AttentionCalibrationConfig | LoraConfig | None:
        """Return the configuration of the method, or None if all weights are trained."""
        fields = {name: value for name, value in self.adapter.items() if name not in ("method", "null_mass", "lora")}
        if self.adapter["method"] == "attncal":
            return AttentionCalibrationConfig(**fields, label_smoothing=self.model.label_smoothing)
        return LoraConfig(task_type=TASK, **fields) if self.adapter["method"] == "lora" else None


def _hints(config_class: type | None) -> dict[str, Any]:
    """Return the fields of a method's configuration that a file may set, with their types."""
    hints = hints_of(config_class) if config_class else {}
    if config_class is LoraConfig:
        hints["init_lora_weights"] = bool | str  # some of its names have a number in them
    return {name: hint for name, hint in hints.items() if name not in _NOT_IN_FILES}


class AdapterJob(Seq2SeqJob):
    """Train an adapter, or what it is compared with, and score it beside the model that it adapts."""

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
        """Return the place of the head that is nearest to the links of the text, and say it; {} if it is set."""
        if _PLACE & self.config.adapter.keys():
            return {}
        text, collator = self.tokenized["train"], LinkCollator(DataCollatorForSeq2Seq(self.tokenizer))
        rows = text.select(range(0, len(text), -(-len(text) // _READ))).select_columns(
            ["input_ids", "labels", "links"]
        )
        batches = (collator(list(rows.select(range(n, min(n + 16, len(rows)))))) for n in range(0, len(rows), 16))
        head, share = linker("nearest_head")(model, batches)
        if self.run.args.process_index == 0:
            step = "reads" if head.shift else "predicts"
            print(
                f"Layer {head.layer}, head {head.heads[0]} (from 0) learns the links, at the step that {step} a "
                f"token: it is nearest to them, right for {share:.1%} of the linked tokens."
            )
        return {"guided_layer": head.layer, "guided_head": head.heads[0], "guided_shift": head.shift}

    def build(self, config, args):
        trainer, text = super().build(config, args), self.tokenized["train"]
        if config.adapter.get("null_mass") is not None:
            few = trainer.data_collator([text[n] for n in range(min(64, len(text)))])
            set_null_mass(trainer.model, few, config.adapter["null_mass"])
        return trainer

    def score(self, model):
        # Trained in all of its weights, a model has no base any more.
        self.states = {"trained": nullcontext}
        if injected_adapters(model) or isinstance(model, PeftModel):
            self.states["base"] = partial(_base, model)
        results: dict[str, Any] = {name: {} for name in self.measured}
        for name in self.measured:
            for state_name, state in self.states.items():
                with state():
                    results[name][state_name] = self.written(model, name, f".{state_name}")
        return results | self.attention_scores(model)

    def save(self, folder, model, results):
        names = injected_adapters(model)
        for name in names:
            save_adapter(model, folder / name, adapter_name=name)
            if target_code(self.tokenizer):  # which the base model's may not have
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
        """Write the card of each adapter, and of each model of this package, that was saved below a folder."""
        config, base = self.config, self.config.model.checkpoint
        called = {"trained": "", "base": ", the base model"}
        about = about_run(config, results)
        about["results"] = [
            score
            for split in self.measured
            for state in self.states
            for score in score_results(results[split][state], split_name(config, split) + called[state])
        ]
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
                search={name: search[name] for name in _SEARCHED if search[name] is not None},
            )
        for file in sorted(folder.rglob(CONFIG)):
            switches = model_config(file.parent)
            if switches.model_type in FAMILIES:
                summary = f"{base_name(base)}, trained further, with {attention(switches)}."
                write_model_card(file.parent, **about, summary=summary, example=SENTENCE)


train_adapter = AdapterJob.train


def check_base(settings: BaseModelConfig, method: str) -> None:
    """Raise ValueError for a base model that cannot be adapted, from its configuration alone."""
    saved = model_config(settings.checkpoint or "", revision=settings.revision)
    family = FAMILIES.get(saved.model_type)
    kind = f"a model of type `{saved.model_type}`" if family is None else family.label
    model = None
    if type(saved) in AutoModelForSeq2SeqLM._model_mapping:
        with torch.device("meta"):
            model = AutoModelForSeq2SeqLM.from_config(saved)
    if model is None or (method == "attncal" and not cross_attentions(model)):
        raise ValueError(
            f"`model.checkpoint` must be an encoder-decoder such as Marian, BART, mBART, Pegasus, M2M100 or NLLB, got "
            f"{settings.checkpoint}, which is {kind}."
        )


def base_checkpoint(
    config: AdapterConfig, tokenizer: PreTrainedTokenizerBase, output: Path, write: bool = True
) -> str:
    """Return the checkpoint to adapt: the named one, or a stock copy of a model of ours without switches.

    A folder is given by its whole path: the adapter names it, and is to be loaded from anywhere.

    Args:
        config: settings of the run: its `model` names the checkpoint; its `evaluation` says how the copy generates.
        tokenizer: tokenizer of the checkpoint.
        output: the output folder.
        write: make the copy; without it, another process has.

    Raises:
        ValueError: a model of ours with a switch.
    """
    checkpoint, revision = config.model.checkpoint or "", config.model.revision
    saved = model_config(checkpoint, revision=revision)
    kind = stock_type(saved.model_type)
    if kind == saved.model_type:
        return str(Path(checkpoint).resolve()) if Path(checkpoint).is_dir() else checkpoint
    on = [f"`{name}={getattr(saved, name)!r}`" for name in SWITCHES if getattr(saved, name)]
    if on:
        raise ValueError(
            f"{checkpoint} cannot get an adapter: it was trained with {', '.join(on)}, and an adapter brings "
            "a cross-attention of its own. Adapt a stock model, or one that was trained without (`attncal train` with "
            "no calibration nor another variant). To train this one further: `attncal train model.init_from=FOLDER`."
        )
    if write:
        stock = backbones()[kind].stock
        assert stock is not None  # as every backbone has one
        ours = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, revision=revision)
        known = hints_of(stock.config_class).keys() - {"architectures", "model_type", "auto_map"}
        copied = stock.config_class(**{name: value for name, value in saved.to_dict().items() if name in known})
        model = stock.model_class.from_pretrained(None, config=copied, state_dict=ours.state_dict())
        model.generation_config = ours.generation_config
        search_as_scored(model, tokenizer, config.evaluation)

        def save(folder: Path) -> None:
            model.save_pretrained(folder / "base")
            tokenizer.save_pretrained(folder / "base")

        fill(output, save)
    return str((output / "base").resolve())


def build(
    config: AdapterConfig, checkpoint: str, nearest: Callable[[PreTrainedModel], dict[str, Any]] | None = None
) -> PreTrainedModel | PeftModel:
    """Build the model to train: a frozen base with an adapter, or a model of which all is trained.

    `nearest` gives further fields of the adapter's configuration.

    A stock model has no label smoothing of its own and ignores how many tokens a step has; so LoRA and full training
    of Marian and BART use our class with every switch off, which is the stock model with both.
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
        method.revision = common["revision"]  # PEFT's models hold one method; transformers' interface holds several
        model.add_adapter(method, "calibration")
        model.add_adapter(LoraConfig(task_type=TASK, **lora), "lora")
        model.set_adapter(["calibration", "lora"])
        for parameter in model.parameters():  # as `get_peft_model` does
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
    """Switch the adapters of a model off for the block."""
    with ExitStack() as stack:
        if isinstance(model, PeftModel):
            stack.enter_context(model.disable_adapter())
        else:
            model.disable_adapters()
            stack.callback(model.enable_adapters)
        yield
