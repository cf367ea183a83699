"""Training jobs of an adapter or an observer on a finished translation model."""

import dataclasses
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, PreTrainedModel

from hf_attncal.adapters.checkpoints import peft_uses_old_names
from hf_attncal.adapters.configuration import AttentionCalibrationConfig
from hf_attncal.adapters.layers import cross_attentions, observable_attentions
from hf_attncal.adapters.observer_learning import learn_observer, nearest_head
from hf_attncal.adapters.tuner import set_null_mass
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.languages import set_languages
from hf_attncal.families import FAMILIES, stock_type
from hf_attncal.hub.model_cards import write_trained_adapter_card
from hf_attncal.inference.loading import model_config
from hf_attncal.layouts import ADAPTER_WEIGHTS
from hf_attncal.models.configuration_attncal import SWITCHES

from .folder import finish, revision_of
from .job import Job, about_run, attention, base_name, extent_results, recorded, score_results, split_name
from .presets import adapter_defaults, anneal, sections_of
from .sections import Kernel, check_section, hints_of, merge_settings, naming
from .seq2seq import TRAINING_DEFAULTS, BleuConfig, Seq2SeqJob, check_guide
from .settings import Settings
from .text import LINKS_OF_SPLITS, DataConfig

_FIELDS_NOT_IN_FILES = {
    # The job or `model.label_smoothing` sets these.
    *("label_smoothing", "base_model_type", "base_d_model", "task_type", "peft_type", "inference_mode"),
    # PEFT would import code by these names, or load another base model than `model.checkpoint`.
    *("auto_mapping", "base_model_name_or_path", "megatron_config", "megatron_core"),
}
# Mean weight of NULL in each head before a leaky adapter of a preset is trained.
_NULL_MASS = 0.02
_OBSERVER_BATCH = 16
_OBSERVER_HELD_OUT = 10  # every tenth pair chooses the heads
_SEARCH_FIELDS_OF_CARD = ("num_beams", "length_penalty", "max_new_tokens")  # search settings shown in the model card
# Fields that choose the guided head, and the number of pairs that choose it where they are missing.
_GUIDED_HEAD_FIELDS, _PAIRS_TO_CHOOSE_HEAD = {"layers", "guided_layer", "guided_head", "guided_shift"}, 200


@dataclass
class BaseModelConfig:
    """The model to adapt, and the label smoothing of its training."""

    checkpoint: str | None = None
    revision: str | None = None
    attn_implementation: Kernel = None
    label_smoothing: float = 0.0


@dataclass
class AdapterConfig(Settings):
    """Settings of one run; `adapter` holds fields of `AttentionCalibrationConfig`, and `null_mass`.

    `null_mass` is the mean weight of NULL before training (`set_null_mass`; default: as `null_bias` sets it).
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: BaseModelConfig = field(default_factory=BaseModelConfig)
    adapter: dict[str, Any] = field(default_factory=dict)
    evaluation: BleuConfig = field(default_factory=BleuConfig)
    languages: str | None = None

    job = "adapter"
    links = LINKS_OF_SPLITS

    @classmethod
    def defaults(cls, values):
        sections = {"adapter": {}, "training": TRAINING_DEFAULTS | {"output_dir": "runs/adapter"}}
        if values.get("preset"):
            merge_settings(sections, sections_of(cls, values, adapter_defaults))
        section = values.get("adapter", {})
        if values.get("preset") and section.get("leaky"):
            sections["adapter"]["null_mass"] = _NULL_MASS
        if section.get("guided"):
            sections["adapter"]["calibration"] = None  # learning links needs no change of attention
        if values.get("preset"):
            anneal(sections, "adapter", values)
        return sections

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.model.label_smoothing < 1:
            raise ValueError(f"`model.label_smoothing` must be in [0, 1), got {self.model.label_smoothing!r}.")
        hints = hints_of(AttentionCalibrationConfig)
        own = {name: hint for name, hint in hints.items() if name not in _FIELDS_NOT_IN_FILES}
        check_section(self.adapter, own | {"null_mass": float | None}, "adapter")
        null_mass = self.adapter.get("null_mass")
        if null_mass is not None and not (0 < null_mass < 1 and self.adapter.get("leaky")):
            raise ValueError(f"`adapter.null_mass` must be between 0 and 1, with `leaky: true`, got {null_mass!r}.")
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

    def method_config(self) -> AttentionCalibrationConfig:
        """Return the configuration of the adapter."""
        fields = {name: value for name, value in self.adapter.items() if name != "null_mass"}
        return AttentionCalibrationConfig(**fields, label_smoothing=self.model.label_smoothing)


class AdapterJob(Seq2SeqJob):
    """Train an adapter, and score it and its base model."""

    settings = AdapterConfig

    def begin(self):
        name, revision = self.config.model.checkpoint, self.config.model.revision
        # The adapter names its base, and may be loaded from anywhere.
        self.checkpoint = str(Path(name).resolve()) if Path(name).is_dir() else name
        tokenizer = AutoTokenizer.from_pretrained(self.checkpoint, revision=revision)
        return tokenizer, model_config(self.checkpoint, revision=revision), None

    def new_model(self, config, tokenizer):
        options = {"revision": config.model.revision, "attn_implementation": config.model.attn_implementation}
        model, method = AutoModelForSeq2SeqLM.from_pretrained(self.checkpoint, **options), config.method_config()
        method = dataclasses.replace(method, **self.nearest(model)) if config.guided else method
        with peft_uses_old_names():
            return get_peft_model(model, method, revision=config.model.revision)

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

    def build(self):
        trainer, text, null_mass = super().build(), self.tokenized["train"], self.config.adapter.get("null_mass")
        if null_mass is not None:
            few = trainer.data_collator([text[n] for n in range(min(64, len(text)))])
            set_null_mass(trainer.model, few, null_mass)
        return trainer

    def score(self, model):
        self.states = {"trained": nullcontext, "base": model.disable_adapter}
        results: dict[str, Any] = {name: {} for name in self.measured}
        for name in self.measured:
            for state_name, state in self.states.items():
                with state():
                    results[name][state_name] = self.generate_and_score(model, name, f".{state_name}")
        return results | self.attention_scores(model)

    def save(self, folder, model, results):
        Job.save(self, folder, model, results)
        if self.guided is not None:
            self.guided.save(folder)
        self.write_card(folder, model, results)
        results["adapter_bytes"] = (folder / ADAPTER_WEIGHTS).stat().st_size

    def write_card(self, folder: Path, model: PeftModel, results: dict[str, Any]) -> None:
        """Write the card of an adapter saved in a folder."""
        config, base = self.config, self.config.model.checkpoint
        state_labels = {"trained": "", "base": ", the base model"}
        about = about_run(config, results)
        about["results"] = [
            score
            for split in self.measured
            for state in self.states
            for score in score_results(results[split][state], split_name(config, split) + state_labels[state])
        ] + extent_results(results)
        local, search = Path(base).is_dir(), vars(config.evaluation)
        write_trained_adapter_card(
            folder,
            **about,
            summary=f"An adapter for {base_name(base)}: {attention(model.peft_config['default'])}.",
            base_model=None if local else base,
            base=f"`{base_name(base)}`" + (f" (`{revision_of(base)}`)" if local else ""),
            search={name: search[name] for name in _SEARCH_FIELDS_OF_CARD if search[name] is not None},
        )


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
    if model is None or not attentions(model):
        raise ValueError(
            f"`model.checkpoint` must be an encoder-decoder such as Marian, BART, mBART, Pegasus, M2M100 or NLLB, got "
            f"{settings.checkpoint}, which is {kind}."
        )
    on = [f"`{name}={getattr(saved, name)!r}`" for name in SWITCHES if getattr(saved, name, None)]
    if on and stock_type(saved.model_type) != saved.model_type:
        raise ValueError(
            f"{settings.checkpoint} was trained with {', '.join(on)} and cannot get an adapter, which has its own "
            "cross-attention. Adapt a stock model, or train this one further: `attncal train model.init_from=FOLDER`."
        )
