"""Job that teaches an encoder to align: its states are tuned on links, by counts or of their own."""

import copy
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

from hf_attncal.alignment.aligner import WordAligner, source_of
from hf_attncal.alignment.encoder import (
    EncoderReader,
    EncoderSource,
    EncoderStates,
    changed,
    link_probabilities,
    similarities,
)
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.alignment.selection import select_states, select_states_by_agreement
from hf_attncal.alignment.sources import saved_settings
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.data.corpora import tokenize_for_alignment
from hf_attncal.hub.model_cards import Result, write_tuned_encoder_card
from hf_attncal.inference.files import file_beside
from hf_attncal.inference.loading import load_config, load_seq2seq, load_whole
from hf_attncal.inference.modes import evaluating
from hf_attncal.layouts import ADAPTER_CONFIG
from hf_attncal.training.arguments import TokenBatchArguments
from hf_attncal.training.cards import PAIR, about_run, base_name
from hf_attncal.training.checkpoints import WholeCheckpointsMixin
from hf_attncal.training.guide import with_links
from hf_attncal.training.job import Job
from hf_attncal.training.presets import read_preset
from hf_attncal.training.settings import LINKS_OF_SPLITS, Settings
from hf_attncal.training.settings_types import check_section, hints_of, naming
from hf_attncal.training.token_batches import TokenBatchTrainerMixin

from .counting import CountsConfig, counted_links, counting_seconds

_SELECTED = 500  # pairs that the threshold is chosen on where there are no annotated ones
ENCODER_DEFAULTS = {
    "output_dir": "runs/encoder",
    "bf16": "auto",
    "seed": 1,
    "lr_scheduler_type": "linear",
    "logging_steps": 50,
    "eval_strategy": "no",
    "report_to": "none",
    "remove_unused_columns": False,  # the model is given one side at a time
}


@dataclass
class EncoderTrainingArguments(TokenBatchArguments, TrainingArguments):
    """`TrainingArguments` with `tokens_per_batch`."""


@dataclass
class EncoderModelConfig:
    """The checkpoint to tune: an encoder, or an encoder-decoder, of which only the encoder is tuned."""

    checkpoint: str | None = None
    revision: str | None = None


@dataclass
class TuningConfig:
    """Settings of the objective that the states learn.

    Args:
        links: "counts": those of the aligner that counts; "self": those that the states themselves have at the moment
            (self-training). Those of a file (`data.train.guide`) go before.
        consistency: weight of the agreement of the two directions.
    """

    links: Literal["counts", "self"] = "counts"
    consistency: float = 0.0

    def __post_init__(self):
        if self.consistency < 0:
            raise ValueError(f"`tuning.consistency` must be >= 0, got {self.consistency}.")


@dataclass
class TunedEncoderConfig(Settings):
    """All settings of one run; `states` holds fields of `EncoderStates`."""

    model: EncoderModelConfig = field(default_factory=EncoderModelConfig)
    states: dict[str, Any] = field(default_factory=dict)
    tuning: TuningConfig = field(default_factory=TuningConfig)
    counts: CountsConfig = field(default_factory=CountsConfig)

    job = "encoder"
    arguments_class = EncoderTrainingArguments
    links = LINKS_OF_SPLITS

    @classmethod
    def defaults(cls, values, texts):
        chosen = copy.deepcopy(read_preset("encoder", values.get("preset") or "small"))
        chosen["training"] |= ENCODER_DEFAULTS
        if {"max_steps", "num_train_epochs"} & values.get("training", {}).keys():  # the length of the run is given
            chosen["training"].pop("max_steps")
        if steps := cls.steps_given(values):
            chosen["training"]["warmup_steps"] = min(chosen["training"]["warmup_steps"], steps // 8)
        return chosen | {"data": {"held_out_pairs": _SELECTED}}

    def __post_init__(self):
        super().__post_init__()
        hints = {name: hint for name, hint in hints_of(EncoderStates).items() if name != "weights"}
        check_section(self.states, hints, "states")
        with naming("states", hints):
            EncoderStates(**{"layer": 0} | self.states)
        for name in ("dev", "test"):
            entry = getattr(self.data, name)
            if entry and not entry.get("gold"):
                raise ValueError(f"`data.{name}` must name `gold`, the links to measure AER with, got {entry}.")


# ---- what is learned ----


def guided_likelihood(scores: Tensor, links: Tensor) -> Tensor:
    """Return the mean of `-log sum_s A_ts P_ts` over linked tokens t: how unlikely their partners are.

    P is the softmax of the scores over s. Computed from these, it has a gradient however unlikely a partner is.

    Args:
        scores: `similarities` of shape (batch, T, S), or of the other direction.
        links: True where t is linked to s, (batch, T, S); no links at padding.

    Returns:
        A scalar, 0 without links.
    """
    linked = links.any(dim=2)
    partners = scores.masked_fill(~links, torch.finfo(scores.dtype).min).logsumexp(dim=2)
    unlikely = torch.where(linked, scores.logsumexp(dim=2) - partners, 0.0)
    return unlikely.sum() / linked.sum().clamp(min=1)


def consistency(forward: Tensor, backward: Tensor, source_real: Tensor, target_real: Tensor) -> Tensor:
    """Return how far two directions disagree: the mean over pairs of `1 - trace(F B) / min(S, T)`.

    Dou and Neubig (2021), sec. 2.2, with 1 added.

    Args:
        forward: (batch, T, S). backward: (batch, S, T).
        source_real: (batch, S). target_real: (batch, T).
    """
    shorter = torch.minimum(source_real.sum(dim=1), target_real.sum(dim=1))
    return (1 - (forward * backward.mT).sum(dim=(1, 2)) / shorter).mean()


class EncoderTrainer(WholeCheckpointsMixin, TokenBatchTrainerMixin, Trainer):
    """`Trainer` for the states of an encoder.

    Args:
        reader: how the encoder of the model is given text.
        settings: settings of which states align, and the threshold of links of their own.
        tuning: what they learn.
    """

    tokens_name = "tokens_per_second"  # of both sides

    def __init__(self, *args, reader: EncoderReader, settings: EncoderStates, tuning: TuningConfig, **kwargs):
        super().__init__(*args, **kwargs)
        self.reader, self.settings, self.tuning = reader, settings, tuning

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.start_totals()
        masks = [inputs[f"{side}attention_mask"].bool() for side in ("", "target_")]
        states = []
        with self.accelerator.autocast():
            for side, name in enumerate(("input_ids", "target_input_ids")):
                ids = [row[real].numpy() for row, real in zip(inputs[name].cpu(), masks[side].cpu(), strict=True)]
                states.append(self.reader.states(ids, side)[self.settings.layer])
        scores = similarities(*states, *masks)
        forward, backward = link_probabilities(scores)
        if "links" in inputs:
            links = inputs["links"].bool()
        else:
            links = torch.minimum(forward, backward.mT).detach() > self.settings.threshold
        loss = (guided_likelihood(scores, links) + guided_likelihood(scores.mT, links.mT)) / 2
        named = {"link_loss": loss, "links": links.sum() / masks[1].sum()}
        if self.tuning.consistency:
            named["consistency_loss"] = consistency(forward, backward, *masks)
            loss = loss + self.tuning.consistency * named["consistency_loss"]
        self.add_batch(masks[0].sum() + masks[1].sum(), named)
        return (loss, {}) if return_outputs else loss


# ---- the run ----


class EncoderJob(Job):
    """Tune the states of an encoder on parallel text.

    The folder holds a checkpoint of the same kind, and alignment.json with the tuned layer and the threshold that is
    best after the training: on annotated dev pairs, or by agreement on held-out ones.
    """

    settings = TunedEncoderConfig
    reads = ("train", "dev")

    def prepare(self, links):
        config, text, processes = self.config, self.splits["train"], self.run.args.world_size
        if processes > 1:
            raise ValueError(f"An encoder is tuned by one process, got {processes}. Start it without others.")
        self.model, self.tokenizer = _load(config.model)
        raw = self.splits.get("dev", text)  # for the threshold, where there is no gold
        self.raw = [pair for pair in zip(raw["source"], raw["target"], strict=True) if all(pair)]
        self.before = self.chosen_states()
        if links is not None and not self.tokenizer.is_fast:
            raise ValueError(f"`data.train.guide` needs a fast tokenizer, got {type(self.tokenizer).__name__}.")
        reader = EncoderReader(self.model, self.tokenizer, self.before)
        options = {"text_target": reader.two_segmentations, "shortest": 1}
        self.tokens, self.reports["train"] = tokenize_for_alignment(
            text, self.tokenizer, config.data.max_length, links, **options
        )
        if links is None and config.tuning.links == "counts":
            fields = {"vocab_size": len(self.tokenizer)}
            if self.run.dry:
                self.counting_seconds = self.whole * counting_seconds(self.tokens, config.counts, **fields)
            else:
                links, _, self.counted["counts"] = counted_links(self.tokens, config.counts, self.run, **fields)
                self.tokens = with_links(self.tokens, links)

    def build(self, config, args):
        tuned = copy.deepcopy(self.model)  # a measurement trains it, too
        reader = EncoderReader(tuned, self.tokenizer, self.before)
        trained = {id(parameter) for parameter in reader.encoder.parameters() if parameter.requires_grad}
        for parameter in tuned.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        return EncoderTrainer(
            model=tuned,
            args=args,
            train_dataset=self.tokens,
            data_collator=AlignmentCollator(reader.padding),
            processing_class=self.tokenizer,
            reader=reader,
            settings=self.before,
            tuning=config.tuning,
        )

    def seconds_of_scores(self, trainer, evaluation):
        """Choose a threshold once more than is needed, and score a model once; two are scored in the end."""
        began = time.monotonic()
        settings = self.with_best_threshold(trainer.model, self.before)
        chosen = time.monotonic() - began
        self.scores(trainer.model, settings)
        return 2 * (time.monotonic() - began) - chosen

    def score(self, model):
        self.after = self.with_best_threshold(model, self.before)
        return {"before": self.scores(self.model, self.before), "after": self.scores(model, self.after)}

    def chosen_states(self) -> EncoderStates:
        """Return the states to tune: those of the settings, of alignment.json, or the default; with a threshold."""
        chosen, start = self.config.states, self.config.model
        saved = saved_settings(start.checkpoint, start.revision)
        known = saved if isinstance(saved, EncoderStates) else EncoderStates.default_of(self.model)
        settings = changed(known, chosen)
        with naming("states", settings.to_dict()):
            EncoderSource(self.model, self.tokenizer, settings).check_settings()
        return settings if "threshold" in chosen else self.with_best_threshold(self.model, settings)

    def with_best_threshold(self, model: PreTrainedModel, settings: EncoderStates) -> EncoderStates:
        """Return the settings with the best threshold, by annotated links or by agreement on raw text."""
        gold = self.golds.get("dev")
        with evaluating(model):
            if gold is not None:
                ranked = select_states(model, self.tokenizer, *zip(*gold.pairs, strict=True), gold.links, settings)
            else:
                sides = map(list, zip(*self.raw, strict=True))
                ranked = select_states_by_agreement(model, self.tokenizer, *sides, settings)
            layers = EncoderReader(model, self.tokenizer, settings).layers
        return next(states for states, _ in ranked if states.layer == settings.layer % layers)

    def scores(self, model: PreTrainedModel, settings: EncoderStates) -> dict[str, Any]:
        """Return the settings and the AER with them on each annotated text."""
        with evaluating(model):
            aligner = WordAligner(model, self.tokenizer, settings)
            scores = {name: asdict(score_aligner(aligner, gold, bootstrap=1000)) for name, gold in self.golds.items()}
        return {"states": settings.to_dict()} | scores

    def save(self, folder, model, results):
        super().save(folder, model, results)
        self.after.save(folder)
        base = self.config.model.checkpoint
        write_tuned_encoder_card(
            folder,
            **about_run(self.config, results),
            summary=f"The encoder of {base_name(base)}, whose states are tuned to align words.",
            results=[
                Result(f"AER on {name}", 100 * score["aer"], score["signature"])
                for name, score in results["after"].items()
                if name in self.golds
            ],
            example=PAIR,
            base_model=None if Path(base).is_dir() else base,
        )


def _load(settings: EncoderModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the checkpoint in float32, and its tokenizer.

    Raises:
        ValueError: it is an adapter, or has no encoder.
    """
    name, revision = settings.checkpoint, settings.revision
    options = {"dtype": "float32", "revision": revision, "trust_remote_code": False}
    if file_beside(name, ADAPTER_CONFIG, revision) is not None:
        raise ValueError(f"`model.checkpoint` must be a whole model, and {name} is an adapter. Tune the model itself.")
    config = load_config(name, revision=revision)
    if not config.is_encoder_decoder and source_of(config, name) is not EncoderSource:
        raise ValueError(f"`model.checkpoint` must have an encoder, got {name} of type {config.model_type!r}.")
    if config.is_encoder_decoder:
        model, tokenizer = load_seq2seq(name, **options)
    else:
        model, tokenizer = load_whole(AutoModel, name, **options)
    return model.eval(), tokenizer
