"""Settings of a training run: typed sections, and the checks between them.

The references in configs/ (`reference_translation.yaml`, `_summarization`, ...) explain every key. A wrong key or
value raises an error with `section.key`, rule and value before any text is read.
"""

import copy
import dataclasses
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from transformers import PreTrainedConfig, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from hf_attncal.inference.loading import model_config
from hf_attncal.inference.opening import MODEL_FILES, TOKENIZER_FILES, bf16_is_fast, check_name
from hf_attncal.models.limits import LIMITS

from .sections import Kernel, Positive, Refused, check_section, hints_of, merge_settings, naming
from .text import DataConfig, TextConfig
from .token_batches import AttnCalTrainingArguments, TokenBatchArguments


@dataclass
class TokenizerConfig:
    """`pretrained` (a folder or Hub id), or a joint BPE of `vocab_size` trained on both sides of the training text."""

    pretrained: str | None = None
    vocab_size: Annotated[int, *LIMITS["vocab_size"]] = 8000


@dataclass
class VocabularyConfig(TokenizerConfig):
    """`kind` "bpe", or "words" separated by white space (for symbol languages, and to copy unknown words)."""

    kind: Literal["bpe", "words"] = "bpe"


@dataclass
class CardConfig:
    """Entries of the model card that the run cannot derive.

    Args:
        license: licence of the model in the Hub's spelling ("cc-by-4.0"). Default: none.
        languages: language codes, source first ("en", "de"). Default: the languages of the model.
    """

    license: str | None = None
    languages: list[str] = field(default_factory=list)


_PUBLISHED = "Publish the trained folder with `attncal publish`, which checks its content first."
_LOCAL = "Without it, Trackio writes to this machine."
# Training arguments: additional keys, types narrower than the class has, and keys that are refused.
TRAINING_HINTS = {
    **{f.name: Refused(_PUBLISHED) for f in dataclasses.fields(TrainingArguments) if "hub" in f.name.split("_")},
    **dict.fromkeys(("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"), Refused(_LOCAL)),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), Positive),
    **dict.fromkeys(("learning_rate", "warmup_steps", "max_grad_norm"), Annotated[float, 0]),
    "generation_config": Refused("Set the search in the section `evaluation`."),
    "label_smoothing_factor": Annotated[float, 0, 0.99],
    "dataloader_num_workers": Annotated[int, 0, 256],
    "dataloader_prefetch_factor": Annotated[int, 1, 1000] | None,
    "gradient_accumulation_steps": Positive,
    "tokens_per_step": Positive | None,
    "save_total_limit": Positive | None,
    "bf16": Literal["auto"] | bool,
}


@dataclass
class Settings:
    """Settings common to all jobs; each job adds its sections as fields.

    A section that is a dictionary is checked against the fields of the class that it configures.

    Args:
        preset: name of a file in `presets/` with defaults (`presets.sections_of`). Default: none.
        minutes: time budget in minutes; a longer run is shortened (`budget.TimeBudget`). Default: none.
    """

    data: TextConfig = field(default_factory=DataConfig)
    training: dict[str, Any] = field(default_factory=dict)
    card: CardConfig = field(default_factory=CardConfig)
    preset: str | None = None
    minutes: Annotated[float, 0.01, 525_600] | None = None  # at most a year

    job: ClassVar[str]
    arguments_class: ClassVar[type[TokenBatchArguments]] = AttnCalTrainingArguments
    # Split -> key of the file of links that its entry in `data` may have.
    links: ClassVar[dict[str, str]] = {}

    @classmethod
    def make(cls, values: dict[str, Any]) -> Self:
        """Return the checked settings of a nested dictionary (the content of a YAML file).

        Args:
            values: nested dictionary; a `job` in it must be this job.

        Raises:
            ValueError: another job, an unknown key, a value of the wrong type or out of range, or settings that
                contradict each other.
        """
        values = copy.deepcopy(values)
        if (job := values.pop("job", cls.job)) != cls.job:
            raise ValueError(f"`job` must be {cls.job} here, got {job!r}. Use settings of the job {cls.job}.")
        hints = hints_of(cls)
        check_section(values, hints)
        merged = merge_settings(copy.deepcopy(cls.defaults(values)), copy.deepcopy(values))
        for name, value in merged.items():
            if dataclasses.is_dataclass(hints[name]):
                check_section(value, hints_of(hints[name]), name)
                merged[name] = hints[name](**value)
        settings = cls(**merged)
        settings.explicit = values
        return settings

    @classmethod
    def defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return preset values for the keys missing from `values`, not including the defaults of the classes."""
        raise NotImplementedError

    @classmethod
    def explicit_steps(cls, values: dict[str, Any]) -> int:
        """Return the `training.max_steps` of a nested dictionary; 0 if it has none."""
        steps = values.get("training", {}).get("max_steps", 0)
        check_section({"max_steps": steps}, {"max_steps": int}, "training")
        return max(0, steps)

    def __post_init__(self):
        self.explicit: dict[str, Any] = {}  # argument of `make`: settings without the defaults
        for name in ("eval_strategy", "save_strategy", "logging_strategy"):
            if self.training.get(name) is False:  # YAML reads `no` as False
                self.training[name] = "no"
        check_section(self.training, hints_of(self.arguments_class) | TRAINING_HINTS, "training")
        try:  # here, because the Trainer would try them only after all text is read
            for reporter in get_reporting_integration_callbacks(self.training.get("report_to")):
                reporter()
        except (ValueError, RuntimeError, ImportError) as error:
            raise ValueError(f"`training.report_to` must be an installed reporter, or none: {error}") from error
        limit = self.training.get("save_total_limit")
        if limit is not None and limit < self.averaged:
            raise ValueError(
                f"`training.save_total_limit` must be at least `average_last` ({self.averaged}), got {limit}."
            )
        steps = self.training.get("max_steps", -1)
        if steps == 0:
            raise ValueError("`training.max_steps` must be at least 1, or -1 for whole epochs, got 0.")
        for name in ("warmup_steps", "agreement_warmup_steps"):
            if 0 < steps < self.training.get(name, 0):
                raise ValueError(
                    f"`training.{name}` must be at most the optimiser steps of the run ({steps}), got "
                    f"{self.training[name]:g}. Lower it, or raise `training.max_steps`."
                )
        self.data.check(self.links)

    @property
    def averaged(self) -> int:
        """Number of last checkpoints averaged into the final model."""
        return getattr(self, "average_last", 1)

    def starts(self) -> dict[tuple[str, str], str]:
        """Return the folders and Hub names of the starting model and tokenizer, by section and key."""
        names = {}
        for section, key in (("model", "init_from"), ("model", "checkpoint"), ("tokenizer", "pretrained")):
            values = getattr(self, section, {})
            names[section, key] = values.get(key) if isinstance(values, dict) else getattr(values, key, None)
        return {place: name for place, name in names.items() if name}

    def check_starts(self) -> None:
        """Check the names of the starting model and tokenizer.

        Raises:
            ValueError: nothing can be loaded from a name; see `inference.opening.check_name`.
        """
        for (section, key), name in self.starts().items():
            revision = getattr(getattr(self, section), "revision", None)
            files = TOKENIZER_FILES if section == "tokenizer" else MODEL_FILES
            try:
                check_name(name, revision, files)
            except OSError as error:
                raise ValueError(f"`{section}.{key}` cannot be loaded: {error}") from error

    def published(self) -> dict[str, Any]:
        """Return the settings as plain data for a results file, without paths of this machine."""
        plain = dataclasses.asdict(self)
        plain["data"].pop("root")
        plain["training"].pop("output_dir", None)
        names = self.data.published_names()
        for split, key, files in self.data.named_files():
            entry = plain["data"][split]
            entry[key] = names[entry[key]] if isinstance(entry[key], str) else [names[name] for name in files]
        for (section, key), name in self.starts().items():
            if key == "checkpoint" or Path(name).is_absolute():
                plain[section][key] = Path(name).name
        return plain

    def arguments(self, **changed: Any) -> TokenBatchArguments:
        """Return the Trainer's arguments, with `tokens_per_step`, `bf16: auto` and `save_total_limit` resolved.

        `changed` overrides the section `training`.

        An optimiser step has `tokens_per_batch` x processes x accumulation steps tokens, so a file gives the same
        training (except for dropout) on any number of processes that divides it.
        """
        # `use_cpu` is explicit, because the Trainer requires it for bf16 on a CPU.
        machine = {"use_cpu": not torch.accelerator.is_available(), "dataloader_pin_memory": torch.cuda.is_available()}
        values = machine | self.training | changed
        limit = values.get("save_total_limit") or self.averaged
        # With a limit of 1 the Trainer would keep the best checkpoint and delete the last one, needed to resume.
        best = values.get("load_best_model_at_end") or values.get("metric_for_best_model")
        values["save_total_limit"] = max(limit, 2) if best else limit
        if values.get("bf16") == "auto":
            values["bf16"] = bf16_is_fast()
        elif values.get("bf16") and not torch.cuda.is_available() and not bf16_is_fast():
            warnings.warn(
                "`training.bf16` is true, but this CPU emulates bfloat16. Set it to auto or false to train faster.",
                stacklevel=2,
            )
        per_step = values.pop("tokens_per_step", None)
        if per_step is not None:
            if "gradient_accumulation_steps" in values:
                raise ValueError(
                    "`training.gradient_accumulation_steps` must be left out with `training.tokens_per_step`, which "
                    f"sets it, got {values['gradient_accumulation_steps']}."
                )
            processes, per_batch = int(os.environ.get("WORLD_SIZE", "1")), values.get("tokens_per_batch")
            if per_batch is None:
                raise ValueError(
                    "`training.tokens_per_step` needs `training.tokens_per_batch` (of one batch of one process), got "
                    "none."
                )
            if per_step % (per_batch * processes):
                raise ValueError(
                    f"`training.tokens_per_step` must be a multiple of `tokens_per_batch` x processes ({per_batch} x "
                    f"{processes}), got {per_step}. Change `tokens_per_batch` or the number of processes."
                )
            values["gradient_accumulation_steps"] = per_step // (per_batch * processes)
        with naming("training", values):
            return self.arguments_class(**values)


@dataclass
class ModelSettings(Settings):
    """Settings of a job that builds a model and its tokenizer; `model` holds fields of the model's configuration."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)

    def check_model(self, config_class: Any, **own: Any) -> None:
        """Check the section `model`: its `own` keys (name -> type) and fields of a configuration class.

        The configuration is stored as `checked_model`; `job.build_model` adds the fields that depend on the tokenizer.
        """
        own |= {"init_from": str | None, "attn_implementation": Kernel}
        hints = hints_of(config_class)
        check_section(self.model, hints | own, "model")
        fields = {name: value for name, value in self.model.items() if name not in own}
        if fields.get("max_copied_tokens"):
            fields.setdefault("unk_token_id", 0)  # a placeholder until there is a tokenizer
        fields["attn_implementation"] = self.model.get("attn_implementation")
        start = self.model.get("init_from")
        if start:
            self.check_starts()
            model_config(start)  # refuses code, and sizes that are too large
        with naming("model", hints):
            checked = config_class.from_pretrained(start, **fields) if start else config_class(**fields)
            checked.validate()
        self.checked_model: PreTrainedConfig = checked
