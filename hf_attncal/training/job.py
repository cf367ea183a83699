"""Skeleton of a job: settings, text, tokenizer, model, trainer, training, scores, and the folder that it leaves.

`command_table.JOBS` names the jobs. What is particular to one is a subclass of `Job`, in a file of its own.
"""

import copy
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import Dataset
from huggingface_hub.utils import yaml_dump
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments, set_seed

from hf_attncal.data.corpora import all_lines, lowercased
from hf_attncal.data.languages import card_languages
from hf_attncal.data.rows import LinkRows
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, train_bpe_tokenizer, train_word_tokenizer
from hf_attncal.families import FAMILIES, Family
from hf_attncal.hub.model_cards import Result
from hf_attncal.io.files import writing
from hf_attncal.metrics import records
from hf_attncal.metrics.reliability import LEAST_SPREAD, WITHOUT_MASKS

from .checkpoints import average_checkpoints, how_to_go_on, in_one_piece, last_checkpoints, saved_on_interrupt
from .folder import Run, claimed, fill, finish, run_in
from .progress import TimeBudget, bars_are_shown, shown_progress
from .sections import hints_of
from .settings import ModelSettings, Settings
from .text import SPLITS, annotated, as_list, given_links, held_out_rows, hold_out
from .token_batches import TokenBatchTrainer

# Nats of a target token. Between a pass and a pass without any perturbation lie some thousandths, which dropout draws.
_LEAST_GAIN = 0.01
# Input of the example in a card: whose sentences a text holds is not ours to publish.
SENTENCE = "A sentence to translate."
SUMMARY_EXAMPLE = "A text that is longer than its summary."
PAIR = "A source sentence . ||| Its translation ."
BEGINNING = ""  # of a text: any has it
# The scores of generated text, by their keys in a results file.
CARD_MEASURES = {"bleu": "BLEU"}
CARD_MEASURES |= {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


class Job:
    """A run of a job, from its text to its scores; a subclass says what is particular to it.

    Attributes:
        config, run: settings and run.
        golds: annotated pairs of dev and test, by split.
        held_out: rows of train that become dev; splits: the text after that, by split.
        measured: the splits that are measured: all but train.
        tokenizer: tokenizer of the model.
        reports: what was kept of each text.
        counted: log of the statistical aligner whose links guide the training, for the results.
        trainer: once it trains.
    """

    settings: ClassVar[type[Settings]]
    lowercased_gold: ClassVar[bool] = True  # False where the model lower-cases what it is given
    config: Any
    tokenizer: PreTrainedTokenizerBase
    trainer: TokenBatchTrainer

    def __init__(self, config: Settings, run: Run):
        self.config, self.run, data = config, run, config.data
        self.golds = annotated(data, data.lowercase and self.lowercased_gold)
        text = {name: data.load(name) for name in self.reads() if getattr(data, name)}
        if data.lowercase:
            text = {name: lowercased(lines) for name, lines in text.items()}
        self.held_out = held_out_rows(text, data.held_out)
        self.splits = hold_out(text, self.held_out)
        self.measured = [name for name in self.splits if name != "train"]
        self.reports: dict[str, Any] = {}
        self.counted: dict[str, Any] = {}
        self.prepare(given_links(data, text["train"], self.held_out))

    @classmethod
    def train(
        cls,
        config: Settings,
        resume: bool = False,
        allow_changes: bool = False,
        dry_run: bool = False,
        command: Sequence[str] = (),
        started: float | None = None,
    ) -> dict[str, Any]:
        """Train, measure, and fill the folder `training.output_dir`.

        With several processes (`accelerate launch`, `torchrun`) every one calls this.

        Args:
            config: settings, from `Settings.make`.
            resume: go on from the last checkpoint of the output folder, if there is one.
            allow_changes: allow settings or data other than those that the run began with.
            dry_run: say what would be trained, no more.
            command: what the user typed, for the message of an interruption.
            started: when the time of `minutes` began, by `time.monotonic`; None for now.

        Returns:
            The content of `results.json`: what `run_trainer` gives, and scores; of a dry run what `describe` gives.

        Raises:
            ValueError: settings, text, links or a model that do not fit, or an output folder that holds another run.
            OSError: among others a full disk, with the output folder's name where the system names no file.
            KeyboardInterrupt: the user interrupted the run; the message says how to go on.
        """
        folder, started = config.training["output_dir"], time.monotonic() if started is None else started
        check_start(config, resume, allow_changes, dry_run)
        records.commit()  # of the code that the run begins with
        if dry_run:
            run_in(Path(folder), resume=False)
            return describe(config)
        try:
            with writing(folder), claimed(config, config.arguments(), resume, allow_changes, started) as run:
                if run.results is not None:
                    return run.results
                set_seed(run.args.seed)
                return cls(config, run).complete()
        except KeyboardInterrupt as error:
            if not command:
                raise
            advice = how_to_go_on(folder, command)
            raise KeyboardInterrupt(f"{str(error) or 'interrupted'}. {advice}") from None

    # ---- what a job says of itself ----

    def prepare(self, links: LinkRows | None) -> None:
        """Make the tokenizer, the token ids of the text, and `reports`; `links` are those of `data.train.guide`."""
        raise NotImplementedError

    def build(self, config: Any, args: TrainingArguments) -> TokenBatchTrainer:
        """Return a new model in a new Trainer."""
        raise NotImplementedError

    def score(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return the scores of the trained model, by their keys in the results."""
        raise NotImplementedError

    # ---- what a job may do in another way ----

    def reads(self) -> Sequence[str]:
        """Return the splits whose text is read."""
        return SPLITS

    def save(self, folder: Path, model: PreTrainedModel, results: dict[str, Any]) -> None:
        """Write the model and its tokenizer into a folder.

        A job adds the card, for which `about_run` gives the common arguments.
        """
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def complete(self) -> dict[str, Any]:
        """Train, measure and save; return the results."""
        self.trainer = self.build(self.config, self.run.args)
        if self.config.minutes is not None:
            before = time.monotonic() - self.run.started
            # The seconds of a training that goes on count from its first start.
            budget = TimeBudget(60 * self.config.minutes, lambda: before + self.trainer.wall_seconds)
            self.trainer.budget = budget
            self.trainer.add_callback(budget)
        model, results = run_trainer(self.trainer, self.config, self.reports, self.run)
        results |= self.counted | self.score(model)
        # Without the Trainer's totals, which are of the steps since it was started: `wall_seconds` is of all.
        results["log_history"] = [entry for entry in self.trainer.state.log_history if "train_runtime" not in entry]
        return finish(self.run, results, lambda folder: self.save(folder, model, results))


def check_start(config: Settings, resume: bool, allow_changes: bool, dry_run: bool) -> None:
    """Raise ValueError for a run without text or model to begin with, or for options that do not go together."""
    config.check_starts()
    if config.data.train is None:
        raise ValueError("`data.train` must name the text to train on, got none.")
    if allow_changes and not resume:
        raise ValueError("--allow-changes goes with --resume: a run that starts has nothing to differ from.")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.minutes is not None and processes > 1:
        raise ValueError(
            f"`minutes` is for one process, got {config.minutes} in {processes}: each has a clock of its own. Give "
            "`training.max_steps`."
        )
    if dry_run and resume:
        raise ValueError("--dry-run goes without --resume: it says what a run would be that begins.")


def describe(config: Settings) -> dict[str, Any]:
    """Print and return the size of each text of a run, and its settings, of which the text decides some."""
    described = {name: len(config.data.load(name)) for name in SPLITS if getattr(config.data, name)}
    config.arguments()  # are checked
    for name, lines in described.items():
        print(f"{name}: {lines:,} lines")
    settings = config.published()
    print(yaml_dump(settings, sort_keys=False).rstrip())
    return {"lines": described, "settings": settings}


def build_tokenizer(
    config: ModelSettings, run: Run, text: Dataset, special_tokens: list[str] = SPECIAL_TOKENS
) -> PreTrainedTokenizerBase:
    """Load the named tokenizer or that of `model.init_from`, or else train one on the text.

    It is learned by the first process and read from the output folder by every one; a run that goes on finds it
    there.

    Args:
        config: settings with the sections `tokenizer` and `model`.
        run: the run, from `start`.
        text: training text.
        special_tokens: special tokens of what is learned: a joint BPE, or words, maybe fewer than were asked for.

    Raises:
        ValueError: the text has fewer pieces than were asked for (not: than a preset has as its limit).
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
            asked = config.given.get("tokenizer", {}).get("vocab_size", 0)
            if len(trained) < asked and not words:
                raise ValueError(
                    f"`tokenizer.vocab_size` must be at most {len(trained)} for this text, in which no more pieces "
                    f"occur twice, got {settings.vocab_size}. Lower it, or give more text."
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
        tokens: fields of a fresh model's configuration that belong to the tokenizer; the section goes before them.
        always: fields of any model's configuration, which go before the section.
        causal: build the decoder-only language model of the family.

    Raises:
        ValueError: a configuration that no model can have.
    """
    made, start = copy.deepcopy(config.checked_model), config.model.get("init_from")
    hints = hints_of(type(made))
    if "decoder_vocab_size" in hints and "vocab_size" in tokens:
        tokens = tokens | {"decoder_vocab_size": tokens["vocab_size"]}
    for name, value in (({} if start else tokens) | config.model | (always or {})).items():
        if name in hints:
            setattr(made, name, value)
    made.validate()
    model_class = family.causal_class if causal else family.model_class
    if not start:
        return model_class(made)
    return model_class.from_pretrained(start, config=made, attn_implementation=config.model.get("attn_implementation"))


def run_trainer(
    trainer: TokenBatchTrainer, config: Settings, reports: dict[str, Any], run: Run
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Train; return the final model (the mean of the last `averaged` checkpoints) and the head of its results.

    The head has settings, software, hardware, data, sentence pairs (or sequences), numbers of parameters, steps,
    seconds and tokens.

    Args:
        trainer: its Trainer.
        config: settings of the run.
        reports: what was kept of each text.
        run: the run, from `start`.
    """
    args = run.args
    if args.process_index == 0:
        for name, report in reports.items():
            print(f"{name}: {report}")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    with shown_progress(trainer), saved_on_interrupt(trainer):
        trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    trainer.accelerator.wait_for_everyone()  # the first process writes the checkpoints, all read them
    warn_of_idle_masks(trainer.state.log_history)
    seconds = trainer.wall_seconds
    speeds = [entry[trainer.tokens_name] for entry in trainer.state.log_history if trainer.tokens_name in entry]

    model = in_one_piece(trainer.model)
    # Accelerate leaves autocast around the forward of what it was given: of a whole model that is the one that
    # `generate` calls, of PEFT's it is not. Every model is scored in the precision of its weights.
    # (Its `unwrap_model` would take transformers' own decorators off, too.)
    vars(model).pop("forward", None)
    parameters = list(model.parameters())
    averaged = last_checkpoints(run.folder, config.averaged) if config.averaged > 1 else []
    weights = model.state_dict()
    for name, tensor in average_checkpoints(averaged).items() if averaged else ():
        weights[name].copy_(tensor)  # in place, which reaches tied weights too
    results = {
        **recorded(config, processes=args.world_size, bf16=args.bf16),
        config.data.units: {name: asdict(report) for name, report in reports.items()},
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
        **({trainer.tokens_name: sum(speeds) / len(speeds)} if speeds else {}),  # of logs, which may never be due
        "averaged_checkpoints": [path.name for path in averaged],
        **({"changed_on_resume": run.changes} if run.changes else {}),
    }
    return model.eval(), results


def recorded(config: Settings, **other_hardware: Any) -> dict[str, Any]:
    """Return the head of a run's results, without paths of this machine; see `metrics.records.record`."""
    names, hashes = config.data.published_names(), config.data.hashes()
    begun = records.record(config.published(), **other_hardware)
    return begun | {"data_sha256": {names[name]: value for name, value in hashes.items()}}


def warn_of_idle_masks(history: list[dict[str, float]]) -> None:
    """Say that a mask network has found nothing that the model cannot do without, so that contributions mean nothing.

    It learns where blurring the attention hurts. As long as attention has not found anything, blurring does not hurt,
    and the masks go to 1, where they have no gradient left to come back by. Two things show it: the perturbation is
    smaller than masks have to differ by (`LEAST_SPREAD`, of which its size is a bound); or it gains the mask network
    less than blurring nothing would, whose objective (Lu et al., eq. 4) is minus the loss of the translation.

    Args:
        history: what a Trainer logged.
    """
    last = next((entry for entry in reversed(history) if "mask_penalty" in entry), None)
    if last is None:
        return
    gain = -last["mask_loss"] - last["nmt_loss"]
    if last["mask_penalty"] < LEAST_SPREAD or gain < _LEAST_GAIN:
        warnings.warn(
            f"The mask network has learned nothing: with a mean mask of {last['mask_mean']:.4f}, blurring the "
            f"attention where it says makes its objective better by {gain:.3f} nats a target token, and less than "
            f"{_LEAST_GAIN} is noise. So contributions say nothing, and `attncal analyze` leaves them out. "
            f"{WITHOUT_MASKS}.",
            stacklevel=2,
        )


# ---- model cards ----


def base_name(base: str) -> str:
    """Return the name of a base model for a card, without the folders that it lies in."""
    return Path(base).resolve().name if Path(base).is_dir() else base


def split_name(config: Settings, split: str) -> str:
    """Return the name of a split for a card."""
    return f"{split} (held-out training text)" if getattr(config.data, split) is None else split


def score_results(score: dict[str, Any], what: str) -> list[Result]:
    """Return the scores of generated text as results for a card."""
    measures = {label: score[name] for name, label in CARD_MEASURES.items() if name in score}
    return [Result(f"{label} on {what}", value, score["signature"]) for label, value in measures.items()]


def attention(config: Any) -> str:
    """Say in words which attention the configuration of a model, or of an adapter, describes."""
    family = FAMILIES.get(getattr(config, "model_type", ""))
    return (switches_in_words if family is None else family.resolve("attention"))(config)


def switches_in_words(config: Any) -> str:
    """Say in words which switches are on in a configuration, of those that it has."""
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
    """Say in words which attention a recurrent model has, if it has any."""
    return "no attention" if config.attention_window is None else switches_in_words(config)


def streams_in_words(config: Any) -> str:
    """Say in words which attention a Discrete Transformer has."""
    streams = "one stream" if config.streams == 1 else "a syntactic and a semantic stream"
    return f"{'hard' if config.hard_attention else 'soft'} attention in {streams}"


def about_run(config: Settings, results: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that say the same in every card: name, training data, languages, licence."""
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
