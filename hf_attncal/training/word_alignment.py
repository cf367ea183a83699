"""Training a word aligner from raw text: settings, trainer, validation, and the whole job in one function."""

import dataclasses
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainingArguments, set_seed

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.batching import TokenBatchSampler
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.data.corpora import load_parallel, lowercased, token_counts, tokenize_for_alignment
from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base, parse_alignments
from hf_attncal.data.text import read_lines
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_mask_align import MaskAlignModel

from .arguments import TokenBatchArguments
from .averaging import average_checkpoints, last_checkpoints
from .settings import TokenizerConfig, bf16_is_fast, build_tokenizer, check_keys, field_names
from .token_batches import TokenBatchTrainerMixin

NAMED_VALUES = (
    "prediction_loss",
    "agreement_loss",
    "entropy_loss",
    "guided_loss",
    "prediction_accuracy",
    "null_weight",
)
# What is tried on dev gold where no symmetrisation is asked for.
TUNED = ("harmonic", "intersection", "grow-diag", "grow-diag-final-and")
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
_EVALUATION_TOKENS = 1500
# Above this mean weight of NULL a model aligns so little that its training has failed.
_MOSTLY_NULL = 0.8
# What each size is made for. "small": two cores in an hour; "base": the published model, for a GPU.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        "tokenizer": {"vocab_size": 16000},
        "model": {
            "d_model": 256,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 512,
            "prediction": "mixture",
            "emission": "embeddings",
            "diagonal_bias": 4.0,
            "sampled_softmax": True,
            "agreement_weight": 20.0,
            "entropy_weight": 0.0,
            "attn_implementation": "eager",
        },
        "training": {
            "max_tokens": 1500,
            "learning_rate": 2e-3,
            "warmup_steps": 200,
            "agreement_warmup_steps": 1000,
            "num_train_epochs": 2,
        },
    },
    "base": {
        "tokenizer": {"vocab_size": 36000},
        "model": {
            "prediction": "mixture",
            "emission": "embeddings",
            "diagonal_bias": 4.0,
            "agreement_weight": 20.0,
            "entropy_weight": 0.0,
        },
        "training": {
            "max_tokens": 18000,
            "learning_rate": 5e-4,
            "warmup_steps": 4000,
            "agreement_warmup_steps": 4000,
            "max_steps": 50000,
        },
    },
}
TRAINING_DEFAULTS = {
    "output_dir": "runs/aligner",
    "bf16": "auto",
    "seed": 1,
    "lr_scheduler_type": "cosine",
    "adam_beta2": 0.98,
    "max_grad_norm": 1.0,
    "logging_steps": 100,
    "eval_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_total_limit": 2,
    "report_to": "none",
}
MODEL_KEYS = ("size", "init_from", "attn_implementation")
TEXT_KEYS = ("source", "target")


@dataclass
class AlignerTrainingArguments(TokenBatchArguments, TrainingArguments):
    """`TrainingArguments` with `max_tokens`, and a warm-up of the agreement."""

    agreement_warmup_steps: int = field(
        default=0,
        metadata={
            "help": "Optimiser steps over which the weight of the agreement loss rises from 0: early on neither "
            "direction knows what to agree on."
        },
    )


@dataclass
class AlignerDataConfig:
    """Parallel text; file names are under `root`.

    Args:
        root: folder of the files.
        max_length: most tokens of a side in training; longer pairs are left out and counted.
        lowercase: lower-case the text, and what is aligned later.
        train: `{source, target}`, files or lists of files, or a Hub dataset (see `data.corpora.load_parallel`), and
            optionally `guide`: a file of links in Pharaoh format, one line for each pair of all the files.
        valid: `{source, target}` for the prediction accuracy; without it the last `valid_pairs` pairs of `train` are
            held out for it.
        valid_pairs: how many; 0 for none.
        dev: `{source, target, gold}`: links to measure AER during training and to choose the threshold.
        test: the same, for the AER of the end.
    """

    root: str | None = None
    max_length: int = 128
    lowercase: bool = False
    train: dict[str, Any] | None = None
    valid: dict[str, Any] | None = None
    valid_pairs: int = 500
    dev: dict[str, Any] | None = None
    test: dict[str, Any] | None = None

    def path(self, name: str) -> Path:
        """A file of the config."""
        return Path(self.root or "") / name

    def corpus(self, split: str) -> dict[str, Any]:
        """The text of a split as `load_parallel` takes it."""
        entry = {key: value for key, value in (getattr(self, split) or {}).items() if key not in ("guide", "gold")}
        for side in TEXT_KEYS:
            names = entry.get(side)
            if names:
                entry[side] = str(self.path(names)) if isinstance(names, str) else [str(self.path(n)) for n in names]
        return entry

    def files(self) -> list[str]:
        """Every file that the config names."""
        found: list[str] = []
        for split in ("train", "valid", "dev", "test"):
            for key in (*TEXT_KEYS, "guide", "gold"):
                names = (getattr(self, split) or {}).get(key) or []
                found += [names] if isinstance(names, str) else names
        return found


@dataclass
class AlignerConfig:
    """All settings of one run; `model` and `training` are checked against the classes they describe."""

    data: AlignerDataConfig = field(default_factory=AlignerDataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    average_last: int = 1

    def published(self) -> dict[str, Any]:
        """The settings as plain data, without the places of this machine."""
        plain = dataclasses.asdict(self)
        plain["data"].pop("root")
        plain["training"].pop("output_dir", None)
        return plain


def make_aligner_config(values: dict[str, Any]) -> AlignerConfig:
    """The checked settings of a nested dictionary; `model.size` ("small" or "base") sets what is not given.

    Raises:
        ValueError: an unknown key (with the closest known one) or a value of the wrong kind.
    """
    check_keys(values, field_names(AlignerConfig), "")
    for name in ("data", "tokenizer", "model", "training"):
        if not isinstance(values.get(name, {}), dict):
            raise ValueError(f"`{name}` must be a section of keys, got {values[name]!r}.")
    size = values.get("model", {}).get("size", "small")
    if size not in SIZES:
        raise ValueError(f"`model.size` must be one of {tuple(SIZES)}, got {size!r}.")
    sections = {name: {**SIZES[size].get(name, {}), **values.get(name, {})} for name in ("tokenizer", "model")}
    if sections["model"].get("init_from"):  # its own fields hold, but for those that are given
        sections["model"] = values["model"]
    defaults = {**TRAINING_DEFAULTS, **SIZES[size]["training"]}
    given = values.get("training", {})
    if "max_steps" in given:
        defaults.pop("num_train_epochs", None)
    elif "num_train_epochs" in given:
        defaults.pop("max_steps", None)
    data = values.get("data", {})
    check_keys(data, field_names(AlignerDataConfig), "data")
    check_keys(sections["tokenizer"], field_names(TokenizerConfig), "tokenizer")
    check_keys(sections["model"], [*MODEL_KEYS, *field_names(MaskAlignConfig)], "model")
    try:  # before text is read and a tokenizer trained
        MaskAlignConfig(**{name: value for name, value in sections["model"].items() if name not in MODEL_KEYS})
    except StrictDataclassError as error:
        raise ValueError(f"`model`: {error.__cause__ or error}") from error
    training = {**defaults, **given}
    check_keys(training, field_names(AlignerTrainingArguments), "training")
    config = AlignerConfig(
        data=AlignerDataConfig(**data),
        tokenizer=TokenizerConfig(**sections["tokenizer"]),
        model={"size": size, **sections["model"]},
        training=training,
        average_last=values.get("average_last", 1),
    )
    if not isinstance(config.average_last, int) or config.average_last < 1:
        raise ValueError(f"`average_last` must be an integer >= 1, got {config.average_last!r}. 1 does not average.")
    for split in ("dev", "test"):
        entry = getattr(config.data, split)
        if entry is not None and not all(entry.get(key) for key in (*TEXT_KEYS, "gold")):
            raise ValueError(f"`data.{split}` must name `source`, `target` and `gold`, got {entry}.")
    return config


def aligner_training_arguments(config: AlignerConfig) -> AlignerTrainingArguments:
    """The Trainer's arguments, with `bf16: auto` and the number of kept checkpoints worked out."""
    values = dict(config.training)
    if values["bf16"] == "auto":
        values["bf16"] = bf16_is_fast()
    for name in ("eval_strategy", "save_strategy", "logging_strategy"):
        if values.get(name) is False:  # what YAML makes of `no`
            values[name] = "no"
    values["save_total_limit"] = max(values["save_total_limit"] or config.average_last, config.average_last)
    values.setdefault("use_cpu", not torch.accelerator.is_available())
    values.setdefault("dataloader_pin_memory", torch.cuda.is_available())
    return AlignerTrainingArguments(**values)


class AlignerTrainer(TokenBatchTrainerMixin, Trainer):
    """`Trainer` for `MaskAlignModel`: batches by tokens, losses logged by name, validation by prediction accuracy.

    An evaluation gives `eval_loss`, `eval_prediction_accuracy` and the named losses, means over the tokens of the
    validation text with the whole vocabulary, and `eval_aer` with `gold`.

    Args:
        gold: (sentence pairs, annotated links) to measure AER on at every evaluation, with the best threshold.
    """

    tokens_name = "tokens_per_second"  # of both sides: each is predicted once

    def __init__(self, *args, gold: "Gold | None" = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.gold = gold

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.start_totals()
        warmup = self.args.agreement_warmup_steps
        scale = min(1.0, self.state.global_step / warmup) if warmup else 1.0
        outputs = model(**inputs, agreement_scale=scale)
        steps = 1 / getattr(self, "current_gradient_accumulation_steps", self.args.gradient_accumulation_steps)
        for name in NAMED_VALUES:
            if outputs.get(name) is not None:
                self.add_total(name, outputs[name] * steps)
        self.add_total("steps", torch.tensor(steps, device=outputs["loss"].device))
        self.add_total("tokens", inputs["attention_mask"].sum() + inputs["target_attention_mask"].sum())
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Means over the validation text, the same in every process, which all read the whole of it."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        metrics: dict[str, float] = {}
        if dataset is not None:
            with self.compute_loss_context_manager():
                metrics |= prediction_metrics(self.model, dataset, self.data_collator)
        if self.gold is not None:
            _, threshold, score = tune_links(self.model, self.processing_class, self.gold)
            metrics |= {"aer": score.aer, "threshold": threshold}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


@torch.no_grad()
def prediction_metrics(model: MaskAlignModel, dataset: Dataset, collator) -> dict[str, float]:
    """Losses and prediction accuracy over a text, with the whole vocabulary: means over tokens."""
    training = model.training
    model.eval()
    totals: dict[str, float] = {}
    tokens = 0
    # With the whole vocabulary a batch is some tokens x vocabulary large, so it stays small.
    sampler = TokenBatchSampler(dataset["length"], max(_EVALUATION_TOKENS, *dataset["length"]), shuffle=False)
    for batch in DataLoader(dataset, batch_sampler=sampler, collate_fn=collator):
        batch = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
        count = int(batch["attention_mask"].sum() + batch["target_attention_mask"].sum())
        outputs = model(**batch)
        for name in ("loss", *NAMED_VALUES):
            if outputs.get(name) is not None:
                totals[name] = totals.get(name, 0.0) + float(outputs[name]) * count
        tokens += count
    model.train(training)
    return {name: total / tokens for name, total in totals.items()}


@dataclass(frozen=True)
class Gold:
    """Sentence pairs with annotated links."""

    pairs: Sequence[tuple[str, str]]
    links: Sequence[GoldAlignment]

    @classmethod
    def load(cls, corpus: dict[str, Any], gold: str | Path) -> "Gold":
        """Read text and links; the number of lines and every index are checked."""
        text = load_parallel(corpus)
        links = parse_alignments(read_lines(gold))
        if len(links) != len(text):
            raise ValueError(f"{gold} has {len(links)} lines of links for {len(text)} sentence pairs.")
        pairs = list(zip(text["source"], text["target"], strict=True))
        check_index_base(links, [(len(source.split()), len(target.split())) for source, target in pairs])
        return cls(pairs, links)


def score_aligner(
    aligner: WordAligner,
    gold: Gold,
    threshold: float | None = None,
    symmetrization: str | None = None,
    bootstrap: int = 0,
) -> AlignmentScore:
    """AER of an aligner on annotated pairs, with a 95 % interval from `bootstrap` resamples of them."""
    aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    return _score(gold, [set(a.links) for a in aligned], aligned[0].symmetrization, bootstrap)


def _score(gold: Gold, links: list[set[Link]], symmetrization: str, bootstrap: int = 0) -> AlignmentScore:
    # No check of indices: they come from our own words, and an early model may link anything.
    return alignment_error_rate(
        gold.links, links, symmetrization=symmetrization, bootstrap=bootstrap, check_indices=False
    )


def tune_links(
    model: MaskAlignModel,
    tokenizer: PreTrainedTokenizerBase,
    gold: Gold,
    symmetrizations: Iterable[str] | None = None,
    thresholds: Iterable[float] = THRESHOLDS,
) -> tuple[str, float, AlignmentScore]:
    """The symmetrisation and threshold with the lowest AER, the earlier of equals, and that score.

    Args:
        model, tokenizer: the aligner; `model` keeps its mode.
        gold: annotated pairs. Use other pairs than those that are reported on.
        symmetrizations: names to try; None for the model's own alone.
        thresholds: thresholds to try.
    """
    training = model.training
    aligner = WordAligner(model, tokenizer)
    scores = []
    for name in symmetrizations or (model.config.symmetrization,):
        # What grows from links depends on the threshold; of the others a higher one only takes links away.
        whole = None if name.startswith("grow") else aligner.align(gold.pairs, threshold=0.0, symmetrize=name)
        for tau in thresholds:
            aligned = whole or aligner.align(gold.pairs, threshold=tau, symmetrize=name)
            links = [
                {link for link, score in zip(a.links, a.scores, strict=True) if whole is None or score > tau}
                for a in aligned
            ]
            scores.append((name, tau, _score(gold, links, name)))
    model.train(training)
    return min(scores, key=lambda entry: entry[2].aer)


def train_aligner(
    config: AlignerConfig, resume: bool = False, callbacks: list[TrainerCallback] | None = None
) -> dict[str, Any]:
    """Train a word aligner from text: tokenizer, model, threshold; writes the folder `training.output_dir`.

    With several processes (`accelerate launch`, `torchrun`) every one calls this.

    Args:
        config: from `make_aligner_config`.
        resume: go on from the last checkpoint of the output folder.
        callbacks: of the Trainer.

    Returns:
        What `results.json` in the folder holds: settings, data, software, hardware, speeds, losses, and scores.

    Raises:
        ValueError: no training text, text and links that do not fit, or a folder with checkpoints of another run.
    """
    args = aligner_training_arguments(config)
    output, main = Path(args.output_dir), args.process_index == 0
    if last_checkpoints(output, 1) and not resume:
        raise ValueError(f"{output} holds checkpoints of another run. Resume it, or choose another output folder.")
    if config.data.train is None:
        raise ValueError("`data.train` must name the text to train on, got none.")
    set_seed(args.seed)
    golds = {
        name: Gold.load(config.data.corpus(name), config.data.path(getattr(config.data, name)["gold"]))
        for name in ("dev", "test")
        if getattr(config.data, name)
    }
    train, valid, reports, tokenizer = _read_text(config, args)
    started = time.monotonic()
    model = _build_model(config, tokenizer, train)
    trainer = AlignerTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=valid,
        data_collator=AlignmentCollator(tokenizer.pad_token_id),
        processing_class=tokenizer,
        callbacks=callbacks,
        gold=golds.get("dev"),
    )
    trainer.train(resume_from_checkpoint=True if resume else None)
    trainer.accelerator.wait_for_everyone()  # the first process writes the checkpoints, all read them
    seconds = time.monotonic() - started

    paths = last_checkpoints(output, config.average_last) if config.average_last > 1 else []
    if paths:
        model.load_state_dict(average_checkpoints(paths))
    model.eval()
    results = {
        "config": config.published(),
        "software": records.software(),
        "hardware": {**records.hardware(), "processes": args.world_size, "bf16": args.bf16},
        "data_sha256": {name: records.sha256(config.data.path(name)) for name in config.data.files()},
        "sentence_pairs": reports,
        "parameters": model.num_parameters(),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
        "averaged_checkpoints": [path.name for path in paths],
    }
    if "dev" in golds:
        asked = config.model.get("symmetrization")
        name, threshold, _ = tune_links(model, tokenizer, golds["dev"], TUNED if asked is None else [asked])
        model.config.symmetrization, model.config.alignment_threshold = name, threshold
        score = score_aligner(WordAligner(model, tokenizer), golds["dev"], bootstrap=1000)
        results["dev"] = {"symmetrization": name, "threshold": threshold, **dataclasses.asdict(score)}
    if valid is not None:
        with trainer.compute_loss_context_manager():
            results["valid"] = prediction_metrics(model, valid, trainer.data_collator)
        if results["valid"]["null_weight"] > _MOSTLY_NULL:
            warnings.warn(
                f"NULL takes {results['valid']['null_weight']:.0%} of all weight, so next to nothing is aligned: the "
                "two directions agreed on NULL before they had learned anything else. Raise "
                "`training.agreement_warmup_steps` (and the steps of training), or lower `model.agreement_weight`.",
                stacklevel=2,
            )
    if "test" in golds:
        score = score_aligner(WordAligner(model, tokenizer), golds["test"], bootstrap=1000)
        results["test"] = dataclasses.asdict(score)
    history = trainer.state.log_history
    speeds = [entry["tokens_per_second"] for entry in history if "tokens_per_second" in entry]
    results |= {"tokens_per_second": sum(speeds) / max(1, len(speeds)), "log_history": history}
    if main:
        model.save_pretrained(output)
        tokenizer.save_pretrained(output)
        records.write(results, output / "results.json")
    return results


def _read_text(
    config: AlignerConfig, args: AlignerTrainingArguments
) -> tuple[Dataset, Dataset | None, dict[str, Any], PreTrainedTokenizerBase]:
    """Tokenised training and validation text, the reports about them, and the tokenizer."""
    data = config.data
    text = load_parallel(data.corpus("train"))
    links = None
    if data.train.get("guide"):
        links = [pair.possible for pair in parse_alignments(read_lines(data.path(data.train["guide"])))]
        if len(links) != len(text):
            raise ValueError(f"`data.train.guide` has {len(links)} lines of links for {len(text)} sentence pairs.")
    valid = load_parallel(data.corpus("valid")) if data.valid else None
    if data.lowercase:
        text, valid = lowercased(text), valid and lowercased(valid)
    if valid is None and data.valid_pairs:
        held_out = min(data.valid_pairs, len(text) // 10)
        if held_out:
            valid = text.select(range(len(text) - held_out, len(text)))
            text = text.select(range(len(text) - held_out))
            links = links and links[: len(text)]
    tokenizer = build_tokenizer(config.tokenizer, config.model.get("init_from"), args, text)
    if tokenizer.pad_token_id is None or not tokenizer.is_fast:
        raise ValueError(
            f"`tokenizer.pretrained` must be a fast tokenizer with a padding token, got {type(tokenizer).__name__} "
            f"with {tokenizer.pad_token!r}."
        )
    reports = {}
    train, reports["train"] = tokenize_for_alignment(text, tokenizer, data.max_length, links)
    if valid is not None:
        valid, reports["valid"] = tokenize_for_alignment(valid, tokenizer, data.max_length)
    if args.process_index == 0:
        for name, report in reports.items():
            print(f"{name}: {report}")
    return train, valid, {name: dataclasses.asdict(report) for name, report in reports.items()}, tokenizer


def _build_model(config: AlignerConfig, tokenizer: PreTrainedTokenizerBase, train: Dataset) -> MaskAlignModel:
    fields = {name: value for name, value in config.model.items() if name not in MODEL_KEYS}
    kernel = config.model.get("attn_implementation")
    fields["lowercase"] = config.data.lowercase
    if config.model.get("init_from"):
        return MaskAlignModel.from_pretrained(config.model["init_from"], attn_implementation=kernel, **fields)
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    fields = {"vocab_size": len(tokenizer), **special, **fields}
    model = MaskAlignModel(MaskAlignConfig(attn_implementation=kernel, **fields))
    model.set_token_counts(*token_counts(train, len(tokenizer)))
    return model
