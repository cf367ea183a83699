"""Settings of a training run: typed sections, and what is said of a wrong one.

The references in configs/ (`reference_translation.yaml`, `_summarization`, ...) explain every key.
What is wrong with a key or a value is said before any text is read, in one form: `section.key`, the rule, the value.
"""

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from datasets import Dataset
from transformers import PreTrainedConfig, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from hf_attncal.data.corpora import PARALLEL, PLAIN, load_parallel, load_plain
from hf_attncal.inference.loading import model_config
from hf_attncal.inference.opening import MODEL_FILES, TOKENIZER_FILES, bf16_is_fast, check_name
from hf_attncal.io.files import sha256
from hf_attncal.models.limits import LIMITS

from .arguments import AttnCalTrainingArguments
from .settings_types import Kernel, NotNegative, Positive, Refused, check_section, hints_of, naming
from .settings_yaml import merge_settings
from .text import Texts

SPLITS = ("train", "dev", "test")

LINKS = ("guide", "gold")
# The files of links that an entry of `data` may name besides text, where links are learned.
LINKS_OF_SPLITS = {"train": "guide", "dev": "gold", "test": "gold"}


@dataclass
class TextConfig:
    """Text; file names are under `root`. A kind of text has a class, with the sides that an entry names.

    Args:
        root: folder of the files.
        max_length: most tokens of a side in training; what is longer is left out and counted.
        lowercase: lower-case the text, annotated pairs too. An aligner then lower-cases what it aligns.
        train, dev, test: files or lists of files, by side, or a Hub dataset (see `data.corpora`).
    """

    root: str | None = None
    max_length: Annotated[int, 2] = 128
    lowercase: bool = False
    train: dict[str, Any] | None = None
    dev: dict[str, Any] | None = None
    test: dict[str, Any] | None = None

    sides: ClassVar[tuple[str, ...]]
    units: ClassVar[str]  # what results call the rows that were kept
    held_out: ClassVar[property]  # where there is no dev text, so many rows of train are taken for it, evenly spread

    @cached_property
    def texts(self) -> Texts:
        """Reader of the files; `Settings.make` sets the one that has read some of them already."""
        return Texts()

    def load(self, split: str) -> Dataset:
        """Load the text of a split, with a column a side.

        Raises:
            ValueError: it cannot be read.
        """
        raise NotImplementedError

    def corpus(self, split: str) -> dict[str, Any]:
        """Return the text of a split in the form that `data.corpora` takes."""
        entry, files = getattr(self, split), self.files()
        sides = {side: [str(files[name]) for name in as_list(entry[side])] for side in self.sides if side in entry}
        return {key: value for key, value in entry.items() if key not in LINKS} | sides

    def named_files(self) -> Iterator[tuple[str, str, list[str]]]:
        """Yield split, key (a side, or links) and names of all files of the settings."""
        for split in SPLITS:
            for key in (*self.sides, *LINKS):
                if names := (getattr(self, split) or {}).get(key):
                    yield split, key, as_list(names)

    def files(self) -> dict[str, Path]:
        """Return the path of every file by the name that the settings give it.

        Raises:
            ValueError: one is a pipe.
        """
        files = {name: Path(self.root or "", name) for _, _, names in self.named_files() for name in names}
        for path in files.values():
            if path.is_fifo():
                raise ValueError(
                    f"{path} must be a file, got a pipe: a run that goes on reads its text again. Write it to a file "
                    "first."
                )
        return files

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by the name that the settings give it, or "" if it does not exist."""
        files, hashes = self.files(), {}
        for _, key, names in self.named_files():
            for name in names:
                path = files[name]
                if not path.is_file():
                    hashes[name] = ""
                else:
                    hashes[name] = sha256(path) if key in LINKS else self.texts.read(path).sha256
        return hashes

    def size(self) -> int:
        """Return the number of lines of the training text, of each side.

        Raises:
            ValueError: no text is named, or it cannot be read.
        """
        if self.train is None:
            raise ValueError("`data.train` must name the text to train on, got none.")
        entry = self.corpus("train")
        if "dataset" in entry:
            return len(self.load("train"))
        return sum(self.texts.read(Path(file)).size for file in entry[self.sides[0]])

    def line(self, split: str, row: int) -> str:
        """Return where a row of a split's text comes from: its line and file, or the row of a Hub dataset."""
        entry = self.corpus(split)
        for file in map(Path, entry.get(self.sides[0], ())):
            size = self.texts.read(file).size
            if row < size:
                return f"line {row + 1} of {file}"
            row -= size
        return f"row {row + 1} of {entry['dataset']}"

    def published_names(self) -> dict[str, str]:
        """Return the name of each file in results: as in the settings, without the common folder of absolute paths."""
        names = self.files()
        whole = {name: Path(name) for name in names if Path(name).is_absolute()}
        shared = os.path.commonpath([path.parent for path in whole.values()]) if whole else ""
        return {name: str(whole[name].relative_to(shared)) if name in whole else name for name in names}

    def check(self, links: Mapping[str, str]) -> None:
        """Check the entries of the splits; `links` are what they may name besides text, by split.

        Raises:
            ValueError: an entry that names neither the files of each side nor a dataset, or one file as both sides.
        """
        files = {side: str | list[str] for side in self.sides}
        dataset = {"dataset": str, "config": str | None, "split": str} | {f"{side}_field": str for side in self.sides}
        for split in SPLITS:
            entry = getattr(self, split)
            if entry is None:
                continue
            text = dataset if "dataset" in entry else files
            check_section(entry, text | ({links[split]: str | None} if split in links else {}), f"data.{split}")
            required = [key for key in text if key != "config"]
            if not all(entry.get(key) for key in required):
                named = " and ".join(f"`{key}`" for key in required)
                raise ValueError(f"`data.{split}` must name {named}, got {entry}.")
            names = [name for side in self.sides for name in set(as_list(entry.get(side, [])))]
            if len(set(names)) < len(names):
                both = min(name for name in names if names.count(name) > 1)
                raise ValueError(
                    f"`data.{split}` must name a text in each language, got {both} as source and as target."
                )


@dataclass
class DataConfig(TextConfig):
    """Parallel text.

    Args:
        train, dev, test: as in `TextConfig`. In the job of an aligner and of a guided model `guide` and `gold` name
            files of links of the pairs in Pharaoh format: links to learn from, and annotated ones to measure with.
        train_pairs: the first so many pairs of train are all that there is; None for all of it.
        held_out_pairs: where there is no dev text, so many pairs of train are taken for it, evenly spread, at most a
            tenth.
    """

    train_pairs: Positive | None = None
    held_out_pairs: NotNegative = 0

    sides = PARALLEL
    units = "sentence_pairs"
    held_out = property(attrgetter("held_out_pairs"))
    max_source_length: ClassVar[int | None] = None  # sources are not truncated

    def size(self) -> int:
        size = super().size()
        return min(size, self.train_pairs or size)

    def load(self, split: str) -> Dataset:
        text = load_parallel(self.corpus(split), self.texts.take)
        if split != "train" or self.train_pairs is None:
            return text
        if len(text) < self.train_pairs:
            pairs = f"the {len(text)} pairs of train"
            raise ValueError(f"`data.train_pairs` must be at most {pairs}, got {self.train_pairs}.")
        return text.select(range(self.train_pairs))


@dataclass
class PlainConfig(TextConfig):
    """Plain text, a sequence a line.

    Args:
        max_length: most tokens of a sequence, special tokens included.
        end_of_sequence: a sequence ends in `</s>`, which the model learns to predict; False for sequences of a fixed
            length, whose end says nothing.
        held_out_lines: as `DataConfig.held_out_pairs`.
    """

    end_of_sequence: bool = True
    held_out_lines: NotNegative = 0

    sides = PLAIN
    units = "sequences"
    held_out = property(attrgetter("held_out_lines"))

    def load(self, split: str) -> Dataset:
        return load_plain(self.corpus(split), self.texts.take)


def as_list(names: str | list[str]) -> list[str]:
    """Return one name or several, as YAML has them, as a list."""
    return [names] if isinstance(names, str) else names


@dataclass
class TokenizerConfig:
    """`pretrained` (a folder or Hub id), or a joint BPE of `vocab_size` trained on both sides of the training text."""

    pretrained: str | None = None
    vocab_size: Annotated[int, *LIMITS["vocab_size"]] = 8000


@dataclass
class VocabularyConfig(TokenizerConfig):
    """`kind` "bpe", or "words", which white space parts: for languages of symbols, and to copy unknown words."""

    kind: Literal["bpe", "words"] = "bpe"


@dataclass
class CardConfig:
    """Facts for the model card that the run does not know.

    Args:
        license: licence of the model, as the Hub spells it ("cc-by-4.0"); None: the card names none.
        languages: codes, source first ("en", "de").
    """

    license: str | None = None
    languages: list[str] = field(default_factory=list)


_PUBLISHED = "Publish the trained folder with `attncal publish`, which looks at what is in it first."
_LOCAL = "Trackio writes to this machine without it."
# Of the training arguments: what is a key besides their fields, what is narrower than they say, and what is refused.
TRAINING_HINTS = {
    **{f.name: Refused(_PUBLISHED) for f in dataclasses.fields(TrainingArguments) if "hub" in f.name.split("_")},
    **dict.fromkeys(("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"), Refused(_LOCAL)),
    "generation_config": Refused("Say in the section `evaluation` how text is generated."),
    "label_smoothing_factor": Annotated[float, 0, 0.99],
    "dataloader_num_workers": Annotated[int, 0, 256],
    "dataloader_prefetch_factor": Annotated[int, 1, 1000] | None,
    "tokens_per_step": Positive | None,
    "bf16": Literal["auto"] | bool,
    "save_total_limit": Positive | None,
    "per_device_train_batch_size": Positive,
    "per_device_eval_batch_size": Positive,
    "gradient_accumulation_steps": Positive,
    "learning_rate": Annotated[float, 0],
    "warmup_steps": Annotated[float, 0],
    "max_grad_norm": Annotated[float, 0],
}


@dataclass
class Settings:
    """The settings of a run: what every job has. A job adds its sections as fields.

    A section that is a dictionary is checked against the fields of the class that it describes.

    Args:
        preset: a file of `presets/`, whose settings hold where no other is given (`presets.sections_of`).
        minutes: time budget; a run that would take longer gets fewer optimiser steps (`budget.TimeBudget`).
    """

    data: DataConfig = field(default_factory=DataConfig)
    training: dict[str, Any] = field(default_factory=dict)
    card: CardConfig = field(default_factory=CardConfig)
    preset: str | None = None
    minutes: Annotated[float, 0.01, 525_600] | None = None  # at most a year

    languages: ClassVar[str | None] = None  # of the text, SOURCE-TARGET, for the jobs that translate
    job: ClassVar[str]
    # What `make` was given.
    given: ClassVar[dict[str, Any]] = {}
    # The checked configuration of the section `model`, where a model is made, without what belongs to the tokenizer.
    checked_model: ClassVar[PreTrainedConfig | None] = None
    average_last: ClassVar[int] = 1
    arguments_class: ClassVar[type[TrainingArguments]] = AttnCalTrainingArguments
    # What an entry of `data` names besides text.
    links: ClassVar[dict[str, str]] = {}

    @classmethod
    def make(cls, values: dict[str, Any], texts: Texts | None = None) -> Self:
        """Return the checked settings of a nested dictionary (the content of a YAML file).

        Args:
            values: the dictionary; its `job`, if it has one, must be this one.
            texts: files that are read already.

        Raises:
            ValueError: another job, an unknown key (with the closest known one), a value of the wrong type or outside
                its range, or settings that contradict each other.
        """
        values = copy.deepcopy(values)
        if (job := values.pop("job", cls.job)) != cls.job:
            raise ValueError(f"`job` must be {cls.job} here, got {job!r}: these settings are for something else.")
        hints, texts = hints_of(cls), texts or Texts()
        check_section(values, hints)
        merged = merge_settings(copy.deepcopy(cls.defaults(values, texts)), copy.deepcopy(values))
        for name, value in merged.items():
            if dataclasses.is_dataclass(hints[name]):
                check_section(value, hints_of(hints[name]), name)
                merged[name] = hints[name](**value)
        made = cls(**merged)
        made.given, made.data.texts = values, texts
        return made

    @classmethod
    def defaults(cls, values: dict[str, Any], texts: Texts) -> dict[str, Any]:
        """Return what holds where `values` does not say otherwise, besides the defaults of the classes."""
        raise NotImplementedError

    @classmethod
    def steps_given(cls, values: dict[str, Any]) -> int:
        """Return the `training.max_steps` of a nested dictionary, or 0 if something else decides their number."""
        steps = values.get("training", {}).get("max_steps", 0)
        check_section({"max_steps": steps}, {"max_steps": int}, "training")
        return max(0, steps)

    def __post_init__(self):
        for name in ("eval_strategy", "save_strategy", "logging_strategy"):
            if self.training.get(name) is False:  # what YAML makes of `no`
                self.training[name] = "no"
        check_section(self.training, hints_of(self.arguments_class) | TRAINING_HINTS, "training")
        try:  # here, as the Trainer would try them after all text is read
            for reporter in get_reporting_integration_callbacks(self.training.get("report_to")):
                reporter()
        except (ValueError, RuntimeError, ImportError) as error:
            raise ValueError(f"`training.report_to` must name what is installed, or none: {error}") from error
        kept = self.training.get("save_total_limit")
        if kept is not None and kept < self.average_last:
            raise ValueError(
                f"`training.save_total_limit` must be at least `average_last` ({self.average_last}), got {kept}."
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

    def check_model(self, config_class: type, **own: Any) -> None:
        """Check the section `model`, which says `own` keys (with their types) and fields of a configuration class.

        The configuration is made here, once; `job.build_model` adds what belongs to the tokenizer.
        """
        own |= {"init_from": str | None, "attn_implementation": Kernel}
        hints = hints_of(config_class)
        check_section(self.model, hints | own, "model")
        fields = {name: value for name, value in self.model.items() if name not in own}
        if fields.get("max_copied_tokens"):
            fields.setdefault("unk_token_id", 0)  # the tokenizer's, which is not known yet
        fields["attn_implementation"] = self.model.get("attn_implementation")
        start = self.model.get("init_from")
        if start:
            self.check_starts()
            model_config(start)  # refuses what the class would build, or run
        with naming("model", hints):
            made = config_class.from_pretrained(start, **fields) if start else config_class(**fields)
            made.validate()
        self.checked_model = made

    def starts(self) -> dict[tuple[str, str], str]:
        """Return the folders and Hub names of the model and tokenizer to begin with, by section and key."""
        named = {}
        for section, key in (("model", "init_from"), ("model", "checkpoint"), ("tokenizer", "pretrained")):
            values = getattr(self, section, {})
            named[section, key] = values.get(key) if isinstance(values, dict) else getattr(values, key, None)
        return {place: name for place, name in named.items() if name}

    def check_starts(self) -> None:
        """Refuse names of models that nothing can be loaded from.

        Raises:
            ValueError: a name is refused; see `inference.opening.check_name`.
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

    def arguments(self, **changed: Any) -> TrainingArguments:
        """Return the Trainer's arguments, with `tokens_per_step`, `bf16: auto` and the kept checkpoints worked out.

        `changed` takes the place of what the section `training` says.

        The tokens of one optimiser step are `tokens_per_batch` x processes x accumulation steps, so the same file
        gives the same training on any number of processes that divides it, dropout apart.
        """
        # Said aloud, because the Trainer takes bf16 on a CPU only from those who ask for the CPU.
        machine = {"use_cpu": not torch.accelerator.is_available(), "dataloader_pin_memory": torch.cuda.is_available()}
        values = machine | self.training | changed
        kept = values.get("save_total_limit") or self.average_last
        # With one only, the Trainer would in the end delete the last step that a run goes on from.
        best = values.get("load_best_model_at_end") or values.get("metric_for_best_model")
        values["save_total_limit"] = max(kept, 2) if best else kept
        if values.get("bf16") == "auto":
            values["bf16"] = bf16_is_fast()
        elif values.get("bf16") and not torch.cuda.is_available() and not bf16_is_fast():
            warnings.warn("This CPU emulates bfloat16: `training.bf16: auto` or false trains faster.", stacklevel=2)
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
                    "`training.tokens_per_step` needs `training.tokens_per_batch`, the tokens of one batch of one "
                    "process."
                )
            if per_step % (per_batch * processes):
                raise ValueError(
                    f"`training.tokens_per_step` must be a multiple of `tokens_per_batch` x processes ({per_batch} x "
                    f"{processes}), got {per_step}. Change `tokens_per_batch` or the number of processes."
                )
            values["gradient_accumulation_steps"] = per_step // (per_batch * processes)
        with naming("training", values):
            return self.arguments_class(**values)
