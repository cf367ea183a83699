"""YAML settings of a training run: reading, inheritance, overrides, and what they mean.

A file states only what differs from the file named by its `base:` key (relative to it), or from the defaults below.
`configs/reference_translation.yaml` explains every key. A key that does not exist is an error; it names the closest.
"""

import argparse
import dataclasses
import difflib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from hf_attncal.data.corpora import DATASET_KEYS, FILE_KEYS, all_lines
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.metrics.records import sha256

from .arguments import AttnCalTrainingArguments
from .averaging import last_checkpoints

SPLITS = ("train", "valid", "test")
BACKBONES = ("marian", "bart")
# Keys of `training` and `model` beside the fields of the training arguments and of the model's config.
TRAINING_KEYS = ("tokens_per_step", "tokens_per_batch")
MODEL_KEYS = ("backbone", "init_from", "attn_implementation")
# The Trainer's defaults are for fine-tuning with metrics on logits; the loss is all that is read here.
TRAINING_DEFAULTS = {
    "output_dir": "runs/translation",
    "prediction_loss_only": True,
    "per_device_eval_batch_size": 64,
    "bf16": "auto",
    # The Trainer would write its own default, False, into the config, and the saved model would generate slowly.
    "use_cache": True,
    "seed": 1,
}


@dataclass
class DataConfig:
    """Parallel text. Each split is an entry as `data.corpora.load_parallel` takes it; file names are under `root`."""

    root: str | None = None
    max_length: int = 128
    train: dict[str, Any] | None = None
    valid: dict[str, Any] | None = None
    test: dict[str, Any] | None = None

    def files(self, split: str) -> list[str]:
        """The files of "train", "valid" or "test" as the config names them: sources, then targets."""
        entry = getattr(self, split) or {}
        named = [entry.get(side) or [] for side in ("source", "target")]
        return [name for names in named for name in ([names] if isinstance(names, str) else names)]

    def corpus(self, split: str) -> dict[str, Any] | None:
        """The entry of a split with `root` in front of its file names; None where there is no such text."""
        entry = getattr(self, split)
        if entry is None:
            return None
        files = {side: entry[side] for side in ("source", "target") if entry.get(side)}
        return entry | {
            side: str(self._path(names)) if isinstance(names, str) else [str(self._path(name)) for name in names]
            for side, names in files.items()
        }

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every data file, by the name the config gives it."""
        return {name: sha256(self._path(name)) for split in SPLITS for name in self.files(split)}

    def _path(self, name: str) -> Path:
        return Path(self.root or "") / name


@dataclass
class TokenizerConfig:
    """`pretrained` (a folder or Hub id), or a joint BPE of `vocab_size` trained on both sides of the training text."""

    pretrained: str | None = None
    vocab_size: int = 8000


@dataclass
class EvaluationConfig:
    """How dev (during training) and test (at the end) are translated and scored."""

    num_beams: int = 4
    length_penalty: float = 1.0
    batch_size: int = 64
    max_new_tokens: int | None = None
    bleu_tokenize: str = "13a"
    dev_lines: int | None = None
    dev_beams: int = 1


@dataclass
class TranslationConfig:
    """All settings of one run; `model` and `training` are checked against the fields of the classes they describe."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    average_last: int = 1

    def published(self) -> dict[str, Any]:
        """The settings as plain data, without the places of this machine: what a results file records."""
        plain = dataclasses.asdict(self)
        plain["data"].pop("root")
        plain["training"].pop("output_dir", None)
        return plain


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads `1e-3` (no dot) as text; every other reader, and every user, takes it for a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_config(path: str | Path, overrides: list[str] | None = None) -> TranslationConfig:
    """Read a YAML file with all it inherits, then apply `section.key=value` overrides.

    Raises:
        ValueError: an unknown key (with the closest known one), a value of the wrong kind, a malformed override, or
            `base:` files in a circle.
        FileNotFoundError: the file or one of its bases does not exist.
    """
    return make_config(read_settings(path, overrides))


def read_settings(path: str | Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """The nested dictionary of a YAML file with all it inherits and `section.key=value` overrides, not yet checked."""
    return apply_overrides(_read(Path(path), ()), overrides or [])


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """The nested dictionary with `section.key=value` settings put in, in place.

    Raises:
        ValueError: a setting that is not of this form.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ValueError(f"an override must read `section.key=value`, got {override!r}.")
        *sections, name = key.split(".")
        _merge(values, _nest(sections, {name: yaml.load(text, _Loader)}))
    return values


def make_config(values: dict[str, Any]) -> TranslationConfig:
    """The checked settings of a nested dictionary (the content of a YAML file without `base`)."""
    check_keys(values, field_names(TranslationConfig), "")
    sections = {"data": DataConfig, "tokenizer": TokenizerConfig, "evaluation": EvaluationConfig}
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name == "average_last":
            made[name] = value
            continue
        if not isinstance(value, dict):
            raise ValueError(f"`{name}` must be a section of keys, got {value!r}.")
        if name in sections:
            check_keys(value, field_names(sections[name]), name)
            made[name] = sections[name](**value)
        else:
            made[name] = value
    config = TranslationConfig(**made)
    for split in SPLITS:
        check_keys(getattr(config.data, split) or {}, sorted(FILE_KEYS | DATASET_KEYS), f"data.{split}")
    config.model = {"backbone": "marian", **config.model}
    config.training = {**TRAINING_DEFAULTS, **config.training}
    check_keys(config.model, [*MODEL_KEYS, *field_names(model_classes(config.model["backbone"])[0])], "model")
    check_keys(config.training, [*TRAINING_KEYS, *field_names(AttnCalTrainingArguments)], "training")
    if not isinstance(config.average_last, int) or config.average_last < 1:
        raise ValueError(f"`average_last` must be an integer >= 1, got {config.average_last!r}. 1 does not average.")
    return config


def model_classes(backbone: str) -> tuple[type, type]:
    """Config and model class of a backbone, "marian" or "bart"."""
    if backbone not in BACKBONES:
        raise ValueError(f"`model.backbone` must be one of {BACKBONES}, got {backbone!r}.")
    import hf_attncal

    if backbone == "marian":
        return hf_attncal.AttnCalMarianConfig, hf_attncal.AttnCalMarianMTModel
    return hf_attncal.AttnCalBartConfig, hf_attncal.AttnCalBartForConditionalGeneration


def parse_arguments(description: str | None, arguments: list[str] | None) -> argparse.Namespace:
    """The command line of the training scripts: `--config`, `--data`, `--results`, `--resume` and settings."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, help="YAML file")
    parser.add_argument("--data", help="folder of the data files (data.root)")
    parser.add_argument("--results", help="write results.json to this file too")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    return parser.parse_intermixed_args(arguments)


def build_tokenizer(
    settings: TokenizerConfig, init_from: str | None, args: TrainingArguments, text: Dataset
) -> PreTrainedTokenizerBase:
    """The tokenizer of a run: the named one, that of `init_from`, or a joint BPE of the training text.

    The BPE is trained by the first process and read from the output folder by every one; a run that goes on finds it
    there.
    """
    pretrained = settings.pretrained or init_from
    if pretrained:
        return AutoTokenizer.from_pretrained(pretrained)
    with args.main_process_first(local=False):
        if args.process_index == 0 and not last_checkpoints(args.output_dir, 1):
            trained = train_bpe_tokenizer(all_lines(text), settings.vocab_size, show_progress=not args.disable_tqdm)
            trained.save_pretrained(args.output_dir)
        return AutoTokenizer.from_pretrained(args.output_dir)


def build_model(settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model of a `model` section: freshly initialised, or loaded from `init_from` (ours, or stock Marian or BART).

    The other keys of the section are fields of the model's config; with `init_from` they change what was saved. The
    numbers that belong to the tokenizer (vocabulary size, special tokens) are filled in.

    Raises:
        ValueError: the checkpoint is of another architecture than `backbone`, or the tokenizer lacks a token for
            padding or for the end of sentence.
    """
    config_class, model_class = model_classes(settings["backbone"])
    fields = {name: value for name, value in settings.items() if name not in MODEL_KEYS}
    kernel = settings.get("attn_implementation")
    if settings.get("init_from"):
        return model_class.from_pretrained(settings["init_from"], attn_implementation=kernel, **fields)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or eos is None:
        raise ValueError(
            f"`tokenizer` must have a padding and an end-of-sentence token, got ids {pad} and {eos}. Add them to it."
        )
    # Marian's decoder starts with padding, BART's with the end of sentence.
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": pad,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": eos,
        "forced_eos_token_id": eos,
        "decoder_start_token_id": pad if settings["backbone"] == "marian" else eos,
    }
    return model_class(config_class(attn_implementation=kernel, **{**tokens, **fields}))


def training_arguments(config: TranslationConfig) -> AttnCalTrainingArguments:
    """The Trainer's arguments: `tokens_per_step`, `bf16: auto` and the number of kept checkpoints are worked out.

    The tokens of one optimiser step are `tokens_per_batch` x processes x accumulation steps, so the same file gives
    the same training on any number of processes that divides it.
    """
    values = dict(config.training)
    per_step, per_batch = (values.pop(name, None) for name in TRAINING_KEYS)
    if per_batch is not None:
        values["max_tokens"] = per_batch
    if per_step is not None:
        if "gradient_accumulation_steps" in values:
            raise ValueError(
                "`training.tokens_per_step` sets the accumulation steps, so `training.gradient_accumulation_steps` "
                f"must be left out, got {values['gradient_accumulation_steps']}."
            )
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        values["gradient_accumulation_steps"] = accumulation_steps(per_step, values.get("max_tokens"), processes)
    if values["bf16"] == "auto":
        values["bf16"] = bf16_is_fast()
    for name in ("eval_strategy", "save_strategy", "logging_strategy"):
        if values.get(name) is False:  # what YAML makes of `no`
            values[name] = "no"
    if values.get("save_total_limit") is None:
        values["save_total_limit"] = config.average_last
    elif values["save_total_limit"] < config.average_last:
        raise ValueError(
            f"`training.save_total_limit` must be at least `average_last` ({config.average_last}), got "
            f"{values['save_total_limit']}."
        )
    # Said aloud, because the Trainer takes bf16 on a CPU only from those who ask for the CPU.
    values.setdefault("use_cpu", not torch.accelerator.is_available())
    values.setdefault("dataloader_pin_memory", torch.cuda.is_available())
    return AttnCalTrainingArguments(**values)


def accumulation_steps(tokens_per_step: int, tokens_per_batch: int | None, processes: int) -> int:
    """Micro-batches per process in one optimiser step: `tokens_per_step / (tokens_per_batch * processes)`."""
    if tokens_per_batch is None:
        raise ValueError(
            "`training.tokens_per_step` needs `training.tokens_per_batch`, the tokens of one batch of one process."
        )
    if tokens_per_step % (tokens_per_batch * processes):
        raise ValueError(
            f"`training.tokens_per_step` must be a multiple of `tokens_per_batch` x processes ({tokens_per_batch} x "
            f"{processes}), got {tokens_per_step}. Change `tokens_per_batch` or the number of processes."
        )
    return tokens_per_step // (tokens_per_batch * processes)


def bf16_is_fast() -> bool:
    """Whether the hardware multiplies bfloat16 matrices: CUDA from Ampere on, a CPU with avx512_bf16 or AMX."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The content of a YAML file merged over that of its base."""
    if path.resolve() in seen:
        raise ValueError(f"`base` files must not form a circle: {' -> '.join(p.name for p in (*seen, path))}.")
    with path.open(encoding="utf-8") as file:
        values = yaml.load(file, _Loader) or {}
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} must hold sections of keys, got {type(values).__name__}.")
    values = {key: value for key, value in values.items() if value is not None}  # a section left empty
    base = values.pop("base", None)
    if base is None:
        return values
    return _merge(_read(path.parent / base, (*seen, path.resolve())), values)


def _merge(into: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Recursive update of `into`, in place."""
    for key, value in values.items():
        if isinstance(into.get(key), dict) and isinstance(value, dict):
            _merge(into[key], value)
        else:
            into[key] = value
    return into


def _nest(sections: list[str], values: dict[str, Any]) -> dict[str, Any]:
    for section in reversed(sections):
        values = {section: values}
    return values


def field_names(cls: type) -> list[str]:
    """The fields of a dataclass that can be given."""
    return [f.name for f in dataclasses.fields(cls) if f.init]


def check_keys(values: dict[str, Any], known: list[str], section: str) -> None:
    """Refuse a key that is not known, with the closest that is."""
    prefix = f"{section}." if section else ""
    for key in values:
        if key not in known:
            closest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise ValueError(f"unknown key `{prefix}{key}`. The closest known key is `{prefix}{closest[0]}`.")
