"""Base class of the training jobs: settings, text, tokenizer, model, Trainer, scores, output folder.

`command_table.JOBS` names the jobs. Each has a subclass of `Job` in its own file.
"""

import copy
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset
from huggingface_hub.utils import yaml_dump
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from hf_attncal.data.corpora import all_lines, lowercased
from hf_attncal.data.languages import card_languages
from hf_attncal.data.rows import LinkRows
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, train_bpe_tokenizer, train_word_tokenizer
from hf_attncal.families import FAMILIES, Family
from hf_attncal.hub.model_cards import Result
from hf_attncal.io.files import writing
from hf_attncal.metrics import records
from hf_attncal.metrics.reliability import LEAST_SPREAD, WITHOUT_MASKS

from .checkpoints import TimeBudget, average_checkpoints, in_one_piece, last_checkpoints, resume_advice
from .folder import Run, claimed, fill, finish, run_in
from .sections import hints_of
from .settings import ModelSettings, Settings
from .text import SPLITS, annotated, as_list, guide_links, held_out_rows, hold_out
from .token_batches import TokenBatchTrainer

# Nats per target token. Dropout makes even two unperturbed passes differ by some thousandths.
_MIN_MASK_GAIN = 0.01
# Input of the example in a card; sentences of the training text may not be ours to publish.
SENTENCE = "A sentence to translate."
SUMMARY_EXAMPLE = "A text that is longer than its summary."
PAIR = "A source sentence . ||| Its translation ."
BEGINNING = ""  # prompt of a language model
# Scores of generated text: key in a results file -> label.
CARD_MEASURES = {"bleu": "BLEU"}
CARD_MEASURES |= {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


class Job:
    """One run of a training job, from text to scores; subclasses define the model and its scores.

    Attributes:
        config, run: settings and run.
        golds: annotated pairs of dev and test, by split.
        held_out: rows of train that become dev; splits: text by split, after that.
        measured: names of the splits that are scored: all but train.
        tokenizer: tokenizer of the model.
        tokenized: tokenised text by split, from `prepare`.
        reports: reports of tokenisation, by split: pairs kept, too long and so on.
        counted: log of the statistical aligner whose links guide the training, for the results.
        trainer: Trainer, set when training starts.
    """

    settings: ClassVar[type[Settings]]
    lowercased_gold: ClassVar[bool] = True  # False if the model itself lower-cases its input
    config: Any
    tokenizer: PreTrainedTokenizerBase
    reports: dict[str, Any]
    tokenized: dict[str, Dataset]
    trainer: Any  # a TokenBatchTrainer

    def __init__(self, config: Settings, run: Run):
        self.config, self.run, data = config, run, config.data
        self.golds = annotated(data, data.lowercase and self.lowercased_gold)
        text = {name: data.load(name) for name in self.splits_to_load() if getattr(data, name)}
        if data.lowercase:
            text = {name: lowercased(lines) for name, lines in text.items()}
        self.held_out = held_out_rows(text, data.held_out)
        self.splits = hold_out(text, self.held_out)
        self.measured = [name for name in self.splits if name != "train"]
        self.tokenized, self.reports = {}, {}
        self.counted: dict[str, Any] = {}
        self.prepare(guide_links(data, text["train"], self.held_out))

    @classmethod
    def train(
        cls,
        config: Settings,
        resume: bool = False,
        dry_run: bool = False,
        command: Sequence[str] = (),
        started: float | None = None,
    ) -> dict[str, Any]:
        """Train, measure, and fill the folder `training.output_dir`.

        With several processes (`accelerate launch`, `torchrun`), each of them calls this.

        Args:
            config: settings, from `Settings.make`.
            resume: go on from the last checkpoint of the output folder, if there is one. Default: False.
            dry_run: print sizes and settings only. Default: False.
            command: command line of the user, for the message of an interruption. Default: empty.
            started: start of the time budget, by `time.monotonic`. Default: now.

        Returns:
            Content of `results.json`: the head from `run_trainer`, and scores; for a dry run, sizes and settings.

        Raises:
            ValueError: invalid settings, text, links or model, or an output folder that holds another run.
            OSError: an error of the system, such as a full disk.
            KeyboardInterrupt: the user interrupted the run; the message has the command that resumes it.
        """
        folder, started = config.training["output_dir"], time.monotonic() if started is None else started
        check_start(config, resume, dry_run)
        records.commit()  # the commit at the start: code may change during the run
        if dry_run:
            run_in(Path(folder), resume=False)
            return describe(config)
        try:
            with writing(folder), claimed(config, config.arguments(), resume, started) as run:
                if run.results is not None:
                    return run.results
                set_seed(run.args.seed)
                return cls(config, run).complete()
        except KeyboardInterrupt as error:
            if not command:
                raise
            advice = resume_advice(folder, command)
            raise KeyboardInterrupt(f"{str(error) or 'interrupted'}. {advice}") from None

    # ---- methods that each job defines ----

    def prepare(self, links: LinkRows | None) -> None:
        """Make `tokenizer`, `tokenized` and `reports`; `links` come from `data.train.guide`."""
        raise NotImplementedError

    def build(self) -> TokenBatchTrainer:
        """Return a new model in a new Trainer (see `trainer_of`)."""
        raise NotImplementedError

    def score(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return the scores of the trained model by their keys in the results."""
        raise NotImplementedError

    # ---- methods that a job may override ----

    def splits_to_load(self) -> Sequence[str]:
        """Return the names of the splits whose text is loaded: train, dev and test, unless a job needs fewer."""
        return SPLITS

    def save(self, folder: Path, model: PreTrainedModel, results: dict[str, Any]) -> None:
        """Write the model and its tokenizer into a folder; jobs add the model card (see `about_run`)."""
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def trainer_of(self, kind: type[TokenBatchTrainer], model: PreTrainedModel, collator: Any, **others: Any) -> Any:
        """Return a Trainer of a class for a model and the tokenised text."""
        text = {"train_dataset": self.tokenized["train"], "eval_dataset": self.tokenized.get("dev")}
        others |= {"data_collator": collator, "processing_class": self.tokenizer}
        return kind(model=model, args=self.run.args, **text, **others)

    def complete(self) -> dict[str, Any]:
        """Train, measure and save; return the results."""
        self.trainer = self.build()
        if self.config.minutes is not None:
            before = time.monotonic() - self.run.started
            # The seconds of a resumed training count from its first start.
            budget = TimeBudget(60 * self.config.minutes, lambda: before + self.trainer.wall_seconds)
            self.trainer.budget = budget
            self.trainer.add_callback(budget)
        model, results = run_trainer(self.trainer, self.config, self.reports, self.run)
        results |= self.counted | self.score(model)
        # Drop the Trainer's totals, which cover only the time since a resume; `wall_seconds` covers all.
        results["log_history"] = [entry for entry in self.trainer.state.log_history if "train_runtime" not in entry]
        return finish(self.run, results, lambda folder: self.save(folder, model, results))


def check_start(config: Settings, resume: bool, dry_run: bool) -> None:
    """Raise ValueError for a run without text, with a starting model that is missing, or with conflicting options."""
    config.check_starts()
    if config.data.train is None:
        raise ValueError("`data.train` must name the text to train on, got none.")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.minutes is not None and processes > 1:
        raise ValueError(f"`minutes` needs a single process, got {processes}. Give `training.max_steps` instead.")
    if dry_run and resume:
        raise ValueError("--dry-run describes a new run and excludes --resume. Leave one of them out.")


def describe(config: Settings) -> dict[str, Any]:
    """Print and return the number of lines of each text and all settings, including those fitted to the text."""
    described = {name: len(config.data.load(name)) for name in SPLITS if getattr(config.data, name)}
    config.arguments()  # raises for invalid ones
    for name, lines in described.items():
        print(f"{name}: {lines:,} lines")
    settings = config.published()
    print(yaml_dump(settings, sort_keys=False).rstrip())
    return {"lines": described, "settings": settings}


def bars_are_shown(args: TrainingArguments) -> bool:
    """Return True for the first process on a terminal, unless `disable_tqdm` is set.

    `sys.stdout` decides about the terminal, because `-q` redirects it.
    """
    return args.process_index == 0 and not args.disable_tqdm and sys.stdout.isatty()


class ProgressLines(TrainerCallback):
    """Print a line for each tenth of the steps and for each evaluation, where no bar is shown."""

    _shown = (
        *("loss", "mask_mean", "gate_mean", "mass_mean", "guided_loss", "eval_loss", "eval_bleu", "eval_rouge1"),
        *("eval_aer", "eval_perplexity"),
    )

    def on_train_begin(self, args, state, control, **kwargs):
        self.first, self.due, self.began = state.global_step, 0.0, time.monotonic()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs and state.global_step >= self.due:
            self.due = state.global_step + state.max_steps / 10
            self._print(state, logs)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self._print(state, metrics or {})

    def _print(self, state, values: dict[str, float]) -> None:
        done, left = state.global_step - self.first, state.max_steps - state.global_step
        minutes = (time.monotonic() - self.began) / max(1, done) * left / 60
        parts = [f"{name.replace('eval_', 'dev ')} {values[name]:.4g}" for name in self._shown if name in values]
        if state.is_world_process_zero:
            step = f"  step {state.global_step} of {state.max_steps}"
            print(step, *parts, f"about {minutes:.1f} minutes left", sep="  ", flush=True)


def build_tokenizer(
    config: ModelSettings, run: Run, text: Dataset, special_tokens: list[str] = SPECIAL_TOKENS
) -> PreTrainedTokenizerBase:
    """Load `tokenizer.pretrained` or the tokenizer of `model.init_from`, or else train one on the text.

    The first process trains it, and every process reads it from the output folder, also on resume.

    Args:
        config: settings with the sections `tokenizer` and `model`.
        run: run that holds its folder.
        text: training text.
        special_tokens: special tokens of a trained tokenizer. Default: `SPECIAL_TOKENS`.
    """
    settings = config.tokenizer
    pretrained = settings.pretrained or config.model.get("init_from")
    if pretrained:
        return AutoTokenizer.from_pretrained(pretrained)
    args = run.args
    with args.main_process_first(local=False):
        if args.process_index == 0 and run.checkpoint is None:
            words = getattr(settings, "kind", "bpe") == "words"
            trained = (train_word_tokenizer if words else train_bpe_tokenizer)(
                all_lines(text), settings.vocab_size, show_progress=bars_are_shown(args), special_tokens=special_tokens
            )
            fill(run.folder, trained.save_pretrained)
        return AutoTokenizer.from_pretrained(run.folder)


def build_model(
    family: Family, config: ModelSettings, tokens: dict[str, Any], always: dict | None = None, causal: bool = False
) -> PreTrainedModel:
    """Return the model of the section `model`: freshly initialised, or loaded from its `init_from`.

    Args:
        family: family of the model.
        config: settings of the run, with `checked_model`.
        tokens: configuration fields of a new model that depend on the tokenizer; the section overrides them.
        always: configuration fields that override the section. Default: none.
        causal: build the decoder-only language model of the family. Default: False.

    Raises:
        ValueError: an invalid configuration.
    """
    model_config, start = copy.deepcopy(config.checked_model), config.model.get("init_from")
    hints = hints_of(type(model_config))
    if "decoder_vocab_size" in hints and "vocab_size" in tokens:
        tokens = tokens | {"decoder_vocab_size": tokens["vocab_size"]}
    for name, value in (({} if start else tokens) | config.model | (always or {})).items():
        if name in hints:
            setattr(model_config, name, value)
    model_config.validate()
    model_class = family.causal_class if causal else family.model_class
    if not start:
        return model_class(model_config)
    kernel = config.model.get("attn_implementation")
    return model_class.from_pretrained(start, config=model_config, attn_implementation=kernel)


def run_trainer(
    trainer: TokenBatchTrainer, config: Settings, reports: dict[str, Any], run: Run
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Train; return the final model (the mean of the last `averaged` checkpoints) and the head of its results.

    The head holds settings, software, hardware, data, sentence pairs (or sequences), numbers of parameters, steps,
    seconds and tokens.

    Args:
        trainer: Trainer of the run.
        config: settings of the run.
        reports: reports of tokenisation, by split.
        run: run that holds its folder.
    """
    args = run.args
    if args.process_index == 0:
        for name, report in reports.items():
            print(f"{name}: {report}")
    if not bars_are_shown(args):
        for printing in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printing)
        trainer.add_callback(ProgressLines())  # the last one, because others add to the metrics of an evaluation
    trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    trainer.accelerator.wait_for_everyone()  # the first process writes checkpoints, all read them
    warn_of_idle_masks(trainer.state.log_history)
    seconds = trainer.wall_seconds
    speeds = [entry[trainer.tokens_name] for entry in trainer.state.log_history if trainer.tokens_name in entry]

    model = in_one_piece(trainer.model)
    # Score every model in the precision of its weights: Accelerate leaves autocast around `forward`, which `generate`
    # calls for a whole model but not for PEFT's. (Its `unwrap_model` would also remove transformers' decorators.)
    vars(model).pop("forward", None)
    parameters = list(model.parameters())
    averaged = last_checkpoints(run.folder, config.averaged) if config.averaged > 1 else []
    weights = model.state_dict()
    for name, tensor in average_checkpoints(averaged).items() if averaged else ():
        weights[name].copy_(tensor)  # in place, to reach tied weights as well
    results = {
        **recorded(config, processes=args.world_size, bf16=args.bf16),
        config.data.units: {name: asdict(report) for name, report in reports.items()},
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
        **({trainer.tokens_name: sum(speeds) / len(speeds)} if speeds else {}),  # no log may have been due
        "averaged_checkpoints": [path.name for path in averaged],
    }
    return model.eval(), results


def recorded(config: Settings, **other_hardware: Any) -> dict[str, Any]:
    """Return the head of a run's results, without paths of this machine; see `metrics.records.record`."""
    names, hashes = config.data.published_names(), config.data.hashes()
    begun = records.record(config.published(), **other_hardware)
    return begun | {"data_sha256": {names[name]: value for name, value in hashes.items()}}


def warn_of_idle_masks(history: list[dict[str, float]]) -> None:
    """Warn if the mask network learned nothing, so that contributions are meaningless.

    The mask network learns where blurring the attention hurts. While attention is not useful yet, blurring does not
    hurt, and masks saturate at 1 with no gradient. There are two signs: the perturbation is smaller than the least
    useful spread of masks (`LEAST_SPREAD`); or the mask objective (Lu et al., eq. 4) is hardly better than without
    blurring, where it is minus the translation loss.

    Args:
        history: log of a Trainer.
    """
    last = next((entry for entry in reversed(history) if "mask_penalty" in entry), None)
    if last is None:
        return
    gain = -last["mask_loss"] - last["nmt_loss"]
    if last["mask_penalty"] < LEAST_SPREAD or gain < _MIN_MASK_GAIN:
        warnings.warn(
            f"The mask network learned nothing (mean mask {last['mask_mean']:.4f}, gain {gain:.3f} nats per target "
            f"token; below {_MIN_MASK_GAIN} is noise). `attncal analyze` leaves contributions out. {WITHOUT_MASKS}.",
            stacklevel=2,
        )


# ---- model cards ----


def base_name(base: str) -> str:
    """Return the name of a base model for a card, without parent folders."""
    return Path(base).resolve().name if Path(base).is_dir() else base


def split_name(config: Settings, split: str) -> str:
    """Return the name of a split for a card."""
    return f"{split} (held-out training text)" if getattr(config.data, split) is None else split


def score_results(score: dict[str, Any], text_name: str) -> list[Result]:
    """Return the scores of generated text as results for a card."""
    measures = {label: score[name] for name, label in CARD_MEASURES.items() if name in score}
    return [Result(f"{label} on {text_name}", value, score["signature"]) for label, value in measures.items()]


def extent_results(results: dict[str, Any]) -> list[Result]:
    """Return the extent of a calibration, if any, as results for a card: means over the calibrated layers."""
    measures = {
        "mass": ("Mass of calibrated attention", 2),
        "divergence": ("Divergence by calibration (as in Lu et al.), nats", 4),
        "divergence_normalized": ("Divergence by calibration, rows divided by their sums, nats", 4),
        "attended_mask": ("Mean mask, weighted by attention", 2),
        "gate": ("Mean gate", 2),
    }
    attention_means = results.get("attention", {})
    signature = "mean over calibrated layers, heads and steps of dev"
    return [
        Result(label, sum(attention_means[name]) / len(attention_means[name]), signature, digits)
        for name, (label, digits) in measures.items()
        if name in attention_means
    ]


def attention(config: Any) -> str:
    """Describe the attention of a configuration of a model or adapter in words."""
    family = FAMILIES.get(getattr(config, "model_type", ""))
    return (switches_in_words if family is None else family.resolve("attention"))(config)


def switches_in_words(config: Any) -> str:
    """Describe the switches that are on in a configuration in words."""
    calibration = getattr(config, "calibration", None)
    words = {
        "calibration": f"{calibration} calibration",
        "leaky": "a NULL column",
        "gumbel": "Gumbel choice",
        "output_gate": "an output gate",
        "copy": "copying",
        "guided": "a head that learned word links",
    }
    on = (text for switch, text in words.items() if getattr(config, switch, None))
    return " and ".join(on) or "no calibration"


def window_in_words(config: Any) -> str:
    """Describe the attention of a recurrent model in words."""
    return "no attention" if config.attention_window is None else switches_in_words(config)


def streams_in_words(config: Any) -> str:
    """Describe the attention of a Discrete Transformer in words."""
    streams = "one stream" if config.streams == 1 else "a syntactic and a semantic stream"
    return f"{'hard' if config.hard_attention else 'soft'} attention in {streams}"


def about_run(config: Settings, results: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments common to all model cards: name, training data, languages, licence."""
    data, train = config.data, config.data.entry("train")
    files = [name for side in data.sides for name in as_list(train.get(side, []))]
    names = [train["dataset"]] if "dataset" in train else files
    listed = ", ".join(f"`{Path(name).name if 'dataset' not in train else name}`" for name in names)
    return {
        "model_name": Path(config.training["output_dir"]).resolve().name,
        "training_data": f"{listed}: {results[data.units]['train']['kept']:,} {data.units.replace('_', ' ')}",
        "languages": config.card.languages or card_languages(getattr(config, "languages", None)),
        "license": config.card.license,
    }
