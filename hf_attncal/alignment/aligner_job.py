"""Training job of a word aligner: settings, Trainer, validation, symmetrisation and threshold."""

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.gold import TUNED, calibrate_links, score_aligner, tune_links
from hf_attncal.alignment.quality import LEAST_SCORE, mean_score
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.data.corpora import corpus_token_counts, folded, segmented, tokenize_for_alignment
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.rows import Rows
from hf_attncal.data.segmentation import fold_line
from hf_attncal.data.word_tokens import WordTokenizer
from hf_attncal.data.words import WordTokens
from hf_attncal.families import Family, aligners
from hf_attncal.hub.model_cards import Result, write_model_card
from hf_attncal.inference.reading import evaluating
from hf_attncal.io.files import write_json
from hf_attncal.layouts import COUNTS, RESULTS
from hf_attncal.models.functional_jumps import learned_jumps
from hf_attncal.models.modeling_mask_align import MaskAlignModel
from hf_attncal.training.folder import fill, finish, in_first_process
from hf_attncal.training.job import PAIR, Job, about_run, build_model, build_tokenizer, recorded
from hf_attncal.training.presets import count_lines, preset_names, read_preset
from hf_attncal.training.sections import NotNegative, Positive, check_section, hints_of
from hf_attncal.training.settings import ModelSettings
from hf_attncal.training.text import LINKS_OF_SPLITS, DataConfig, with_links
from hf_attncal.training.token_batches import TokenBatchArguments, TokenBatchSampler, TokenBatchTrainer

from .counting import CountsConfig, counted_links, learn_counts
from .encoder_prior import EncoderPrior
from .likelihood_ratio import EncoderFactors
from .sources import Words

NAMED_VALUES = (
    "prediction_loss",
    "agreement_loss",
    "entropy_loss",
    "guided_loss",
    "prediction_accuracy",
    "null_weight",
)
_EVALUATION_TOKENS = 1500
_TOKENIZER_BATCH = 1000  # pairs that are tokenised for an encoder at once
_JUMP_ROUNDS = 3  # more rounds of EM raise the likelihood, but do not lower AER
_SHARE_AFTER_COUNTS = 0.05  # share of a statistical aligner's `minutes` for scoring and saving
_QUALITY_PAIRS = 300
_ADVICE = (
    " Else train longer (`training.num_train_epochs`); if it links nothing, both directions agreed on NULL too early: "
    "raise `training.agreement_warmup_steps`."
)
# "hmm" and "small"; their files describe them.
SIZES = {name: {"model": {}, "training": {}} | read_preset("aligner", name) for name in preset_names("aligner")}
_NETWORK, _COUNTS = "small", "hmm"
# Guide weight of links from counts with an encoder. With 1 or 16 the network agrees less with them.
ENCODER_LINK_WEIGHT = 4.0
# A network that starts from an encoder's vectors needs fewer steps; with 3,000 it overfits 20,000 pairs (docs/log.md).
ENCODER_LEAST_STEPS = 700
# With fewer pairs, the network is hardly better than the counts and takes hours (docs/log.md).
MIN_PAIRS_FOR_NETWORK = 50_000
# The smallest text with a measured error rate (docs/which_aligner.md).
MIN_PAIRS_TO_LEARN = 100
NETWORK_ONLY_SETTINGS = {"minutes", "average_last", "jump_pairs"}
# Default warm-ups of a run with a given number of optimiser steps, as shares of these.
_WARMUPS = {"warmup_steps": 1 / 8, "agreement_warmup_steps": 1 / 4}
ALIGNER_DEFAULTS = {
    "output_dir": "runs/aligner",
    "bf16": "auto",
    "seed": 1,
    "lr_scheduler_type": "cosine",
    "adam_beta2": 0.98,
    "logging_steps": 100,
    "eval_strategy": "steps",
    "eval_steps": 500,
    "report_to": "none",
}


@dataclass
class AlignerTrainingArguments(TokenBatchArguments):
    """`TrainingArguments` with `tokens_per_batch`, and a warm-up of the agreement."""

    agreement_warmup_steps: int = field(
        default=0,
        metadata={
            "help": "Optimiser steps over which the weight of the agreement loss rises from 0, because untrained "
            "directions agree on NULL."
        },
    )
    least_steps: int = field(
        default=0,
        metadata={"help": "Minimum number of optimiser steps; a short text gets more epochs than `num_train_epochs`."},
    )


@dataclass
class AlignerDataConfig(DataConfig):
    """Text of an aligner.

    Args:
        raw_text: Split raw text into words (`data.segmentation`), in training and in alignment. The links of `gold`
            are between words separated by white space. Default: False.
        fold: Normalise case, quotes, dashes, widths and digits (`data.segmentation.fold`), in training and in
            alignment. Default: None, True if the tokenizer is trained on the text.
    """

    raw_text: bool = False
    fold: bool | None = None

    def load(self, split: str) -> Dataset:
        text = super().load(split)
        text = segmented(text) if self.raw_text else text
        return folded(text) if self.fold else text


@dataclass
class AlignerConfig(ModelSettings):
    """Settings of a training run; `model` has `size` (of `SIZES`) and fields of the model's configuration."""

    data: AlignerDataConfig = field(default_factory=AlignerDataConfig)
    counts: CountsConfig = field(default_factory=CountsConfig)
    average_last: Positive = 1
    jump_pairs: NotNegative = 2000

    job = "aligner"
    arguments_class = AlignerTrainingArguments
    links = LINKS_OF_SPLITS

    @classmethod
    def defaults(cls, values):
        """Return the settings of `preset` or `model.size`, or of the preset that suits the size of the text."""
        model, training = values.get("model", {}), values.get("training", {})
        check_section({"size": model.get("size", _NETWORK)}, {"size": Literal[tuple(SIZES)]}, "model")
        size = values.get("preset") or model.get("size") or cls._fitting(values)
        check_section({"preset": size}, {"preset": Literal[tuple(SIZES)]})
        if model.get("size", size) != size:
            raise ValueError(f"`model.size` must be `preset` ({size}) or left out, got {model['size']!r}.")
        chosen = copy.deepcopy(SIZES[size])
        chosen["model"] = {"size": size} | ({} if model.get("init_from") else chosen["model"])
        if model.get("prediction", "mixture") != "mixture":
            chosen["model"].pop("max_jump", None)
        if (values.get("counts") or {}).get("encoder") and size != _COUNTS:
            chosen["model"]["guide_weight"] = ENCODER_LINK_WEIGHT
            chosen["training"]["least_steps"] = ENCODER_LEAST_STEPS
        chosen["training"] |= ALIGNER_DEFAULTS
        if {"max_steps", "num_train_epochs"} & training.keys():  # the length of the run is given
            for name in ("max_steps", "num_train_epochs", "least_steps"):
                chosen["training"].pop(name, None)
        steps = cls.explicit_steps(values)
        for name, share in _WARMUPS.items() if steps else ():
            chosen["training"][name] = min(chosen["training"].get(name, 0), int(share * steps))
        return chosen | {"data": {"held_out_pairs": 0 if size == _COUNTS else 500}}  # counts use all pairs

    @classmethod
    def _fitting(cls, values) -> str:
        """Return the size for the text: counts for a small text, unless a setting needs a network."""
        data, training = values.get("data", {}), values.get("training", {}).keys()
        model = values.get("model", {}).keys() - hints_of(aligners()[_COUNTS].config_class).keys()
        network_training = training & (SIZES[_NETWORK]["training"].keys() | {"max_steps"})
        train = data.get("train")
        if not isinstance(train, dict) or "guide" in train:
            return _NETWORK
        if model or network_training or values.keys() & NETWORK_ONLY_SETTINGS:
            return _NETWORK
        return _COUNTS if count_lines(data, cls) < MIN_PAIRS_FOR_NETWORK else _NETWORK

    def __post_init__(self):
        super().__post_init__()
        if self.data.fold is None:
            self.data.fold = not (self.tokenizer.pretrained or self.model.get("init_from"))
        self.check_model(self.family.config_class, size=str)
        starts = {
            "model.init_from": self.model.get("init_from"),
            "data.train.guide": (self.data.train or {}).get("guide"),
        }
        starts |= {f"training.{name}": self.training.get(name) for name in ("max_steps", "num_train_epochs")}
        for key, value in starts.items() if self.family.counted else ():
            if value:
                raise ValueError(
                    f"`{key}` is for a network, got {value!r} with `model.size: hmm`. Leave it out, or choose another "
                    "size."
                )
        if self.data.raw_text and (self.data.train or {}).get("guide"):
            raise ValueError(
                "`data.train.guide` has links of tokenised text, and cannot go with `data.raw_text`. Give "
                "tokenised text without `raw_text`, or leave `guide` out."
            )
        if self.data.test and not self.data.test.get("gold"):
            raise ValueError(f"`data.test` must have `gold`, the annotated links, got {self.data.test}.")

    @property
    def family(self) -> Family:
        """Family of the trained model."""
        return aligners()[self.model["size"]]


class AlignerTrainer(TokenBatchTrainer):
    """`Trainer` of `MaskAlignModel`: batches by tokens, losses logged by name, validation by prediction accuracy.

    An evaluation returns `eval_loss`, `eval_prediction_accuracy` and the named losses, means over the tokens of the
    held-out text with the whole vocabulary, and `eval_aer` with `gold`.

    Args:
        gold: Annotated pairs to measure AER on at every evaluation, with the best threshold. Default: None.
    """

    model: MaskAlignModel
    processing_class: PreTrainedTokenizerBase
    args: AlignerTrainingArguments
    tokens_name = "tokens_per_second"  # both sides, as each token is predicted once

    def __init__(self, *args, gold: "Gold | None" = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.gold = gold

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.start_totals()
        warmup = self.args.agreement_warmup_steps
        scale = min(1.0, self.position / warmup) if warmup else 1.0
        outputs = model(**inputs, agreement_scale=scale)
        tokens = inputs["attention_mask"].sum() + inputs["target_attention_mask"].sum()
        self.add_batch(tokens, {name: outputs.get(name) for name in NAMED_VALUES})
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Evaluate on the held-out text; every process reads all of it."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        metrics: dict[str, float] = {}
        if dataset is not None:
            with self.compute_loss_context_manager():
                metrics |= prediction_metrics(self.model, dataset, self.data_collator)
        if self.gold is not None:
            _, threshold, score = tune_links(self.model, self.processing_class, self.gold)
            metrics |= {"aer": score.aer, "threshold": threshold}
        return self.report_evaluation(metrics, metric_key_prefix)


@torch.no_grad()
def prediction_metrics(model: MaskAlignModel, dataset: Dataset, collator) -> dict[str, float]:
    """Return mean losses per token and the prediction accuracy of a text, with the whole vocabulary."""
    totals: dict[str, float] = {}
    tokens = 0
    for batch in _batches(model, dataset, collator):
        count = int(batch["attention_mask"].sum() + batch["target_attention_mask"].sum())
        with evaluating(model):
            outputs = model(**batch)
        for name in ("loss", *NAMED_VALUES):
            if outputs.get(name) is not None:
                totals[name] = totals.get(name, 0.0) + float(outputs[name]) * count
        tokens += count
    return {name: total / tokens for name, total in totals.items()}


def _batches(model: MaskAlignModel, dataset: Dataset, collator) -> Iterator[dict[str, Any]]:
    """Yield the batches of a text in a fixed order, on the device of the model."""
    # Batches are small, because the whole vocabulary takes tokens x vocabulary of memory.
    sampler = TokenBatchSampler(dataset["length"], max(_EVALUATION_TOKENS, *dataset["length"]), shuffle=False)
    for batch in DataLoader(dataset, batch_sampler=sampler, collate_fn=collator):
        yield {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}


def learn_jumps(model: MaskAlignModel, dataset: Dataset, collator, rounds: int = _JUMP_ROUNDS) -> list[float]:
    """Learn the jumps of both directions (`max_jump`) by expectation maximisation.

    Returns:
        Log-likelihood per token before each round, up to a constant.
    """
    predictions = model.forward_direction.prediction, model.backward_direction.prediction
    likelihoods = []
    for _ in range(rounds):
        tables: list[torch.Tensor] = [prediction.get_buffer("jumps") for prediction in predictions]
        expected = [[torch.zeros_like(table), torch.zeros_like(table)] for table in tables]
        likelihood = tokens = 0.0
        with evaluating(model):
            for batch in _batches(model, dataset, collator):
                sides = {
                    name: value for name, value in batch.items() if name.endswith(("input_ids", "attention_mask"))
                }
                for sums, direction in zip(expected, model.expected_jumps(**sides), strict=True):
                    if direction.jumps is not None and direction.chances is not None:
                        sums[0] += direction.jumps
                        sums[1] += direction.chances
                    likelihood += float(direction.log_likelihood.sum())
                tokens += int(batch["attention_mask"].sum() + batch["target_attention_mask"].sum())
        for table, (counts, chances) in zip(tables, expected, strict=True):
            table.copy_(learned_jumps(counts, chances))
        likelihoods.append(likelihood / tokens)
    return likelihoods


class AlignerJob(Job):
    """Training job of a word aligner: tokenizer, model, threshold."""

    settings = AlignerConfig
    config: AlignerConfig
    lowercased_gold = False  # the aligner lower-cases its input itself

    def splits_to_load(self):
        """Return the splits to read; dev with gold links is not held-out text."""
        return ("train",) if "dev" in self.golds else ("train", "dev")

    def prepare(self, links):
        config, text = self.config, self.splits["train"]
        self.vectors: list[torch.Tensor] = []  # where the embeddings of each language start
        if len(text) < MIN_PAIRS_TO_LEARN:
            warnings.warn(
                f"{len(text)} sentence pairs are too little to learn from: an aligner is of use from "
                f"{MIN_PAIRS_TO_LEARN} on. Give more text, or align without training (`attncal align quick --encoder "
                "auto`).",
                stacklevel=3,
            )
        if config.family.counted and not (config.preset or config.explicit.get("model", {}).get("size")):
            print(
                f"{len(text):,} pairs: training a statistical aligner (hmm). Below {MIN_PAIRS_FOR_NETWORK:,} "
                f"pairs a network is hardly better and takes hours; `--config {_NETWORK}` trains one."
            )
        self.tokenizer = tokenizer = build_tokenizer(config, self.run, text)
        if tokenizer.pad_token_id is None or not tokenizer.is_fast:
            raise ValueError(
                "`tokenizer.pretrained` must be a fast tokenizer with a padding token, got "
                f"{type(tokenizer).__name__} with {tokenizer.pad_token!r}."
            )
        for name, split, guide in (("train", "train", links), ("held_out", "dev", None)):
            if split in self.splits:
                self.tokenized[split], self.reports[name] = tokenize_for_alignment(
                    self.splits[split], tokenizer, config.data.max_length, guide
                )
        sampled = text.select(range(0, len(text), -(-len(text) // _QUALITY_PAIRS)))
        self.sample = [(source or "", target or "") for source, target in zip(*sampled[:].values(), strict=True)]
        if config.counts.guide and links is None and not config.family.counted:
            self.tokenized["train"] = self._guided()

    def build(self):
        config, args = self.config, self.run.args
        model = build_model(config.family, config, self._text_fields(), _word_fields(config))
        text = self.tokenized["train"]
        if not config.model.get("init_from"):
            model.set_token_counts(*corpus_token_counts(text, len(self.tokenizer)))
            tables = model.source_embeddings, model.get_target_embeddings()
            for table, vectors in zip(tables, self.vectors, strict=False):
                seen = vectors.any(dim=1)
                table.weight.data[seen] = vectors[seen]
        collator = AlignmentCollator(self.tokenizer.pad_token_id)
        trainer = self.trainer_of(AlignerTrainer, model, collator, gold=self.golds.get("dev"))
        steps = len(trainer.get_train_dataloader()) // args.gradient_accumulation_steps
        args.num_train_epochs = max(args.num_train_epochs, math.ceil(args.least_steps / max(1, steps)))
        return trainer

    def score(self, model):
        results: dict[str, Any] = {}
        if not self.config.family.counted:
            collator = self.trainer.data_collator
            if model.config.max_jump is not None and self.config.jump_pairs:
                text = self.tokenized["train"]
                sampled = text.select(range(0, len(text), -(-len(text) // self.config.jump_pairs)))
                results["jump_log_likelihood"] = learn_jumps(model, sampled, collator)
            if "dev" in self.tokenized:
                with self.trainer.compute_loss_context_manager():
                    results["held_out"] = prediction_metrics(model, self.tokenized["dev"], collator)
        return results | self.alignment_scores(model)

    def alignment_scores(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return the estimated quality on a sample of the text, and the AER on dev and test.

        On dev, the symmetrisation and threshold are tuned, and `self.calibration` is learned if dev is large enough.
        """
        config, tokenizer, dev = self.config, self.tokenizer, self.golds.get("dev")
        quality = mean_score(WordAligner(model, tokenizer), self.sample)
        if quality is not None and quality < LEAST_SCORE:
            warnings.warn(
                f"The aligner is probably bad: the mean score of a training pair is {quality:.2f} (good aligners: 0.6 "
                "or more). Check that the lines are translations of each other, and that there are enough."
                + ("" if config.family.counted else _ADVICE),
                stacklevel=3,
            )
        scores: dict[str, Any] = {"quality": {"mean_score": quality}}
        self.calibration = None
        if dev is not None:
            fixed = config.model.get("symmetrization")
            name, threshold, _ = tune_links(model, tokenizer, dev, TUNED if fixed is None else [fixed])
            model.config.symmetrization, model.config.alignment_threshold = name, threshold
            aligner = WordAligner(model, tokenizer)
            score = score_aligner(aligner, dev, bootstrap=1000)
            scores["dev"] = {"symmetrization": name, "threshold": threshold, **asdict(score)}
            try:
                self.calibration = calibrate_links(aligner, dev, bootstrap=1000)
                errors = {when: asdict(getattr(self.calibration, when)) for when in ("before", "after")}
                scores["dev"]["probabilities"] = errors
            except ValueError as error:
                warnings.warn(f"Scores of links are not calibrated: {error}", stacklevel=3)
        if "test" in self.golds:
            scores["test"] = asdict(score_aligner(WordAligner(model, tokenizer), self.golds["test"], bootstrap=1000))
        return scores

    def save(self, folder, model, results):
        super().save(folder, model, results)
        scored = [(name, results[name]) for name in ("dev", "test") if name in results]
        scores = [Result(f"AER on {name}", 100 * score["aer"], score["signature"]) for name, score in scored]
        summary, about = f"A word aligner: {self.config.family.summary}.", about_run(self.config, results)
        write_model_card(folder, **about, summary=summary, results=scores, example=PAIR)
        if self.calibration is not None:
            self.calibration.save(folder)

    # ---- statistical aligner ----

    def complete(self):
        if not self.config.family.counted:
            return super().complete()
        return in_first_process(self.run.args.process_index == 0, self._count)

    def _count(self) -> dict[str, Any]:
        """Train, score and save the statistical aligner; return the results."""
        config, folder = self.config, self.run.args.output_dir
        for name, report in self.reports.items():
            print(f"{name}: {report}")
        names = hints_of(config.family.config_class).keys() & config.model.keys()
        fields = {name: config.model[name] for name in names} | self._text_fields()
        ends = None if self.run.ends is None else self.run.ends - _SHARE_AFTER_COUNTS * 60 * (config.minutes or 0)
        model, _, counted = learn_counts(
            self.tokenized["train"], config.counts, folder, ends, self._encoder_factors(), **fields
        )
        results = {
            **recorded(config, processes=self.run.args.world_size),
            "sentence_pairs": {name: asdict(report) for name, report in self.reports.items()},
            "entries": model.config.entries,
            "steps": len(counted["log_history"]),
            **counted,
            **self.score(model),
        }
        return finish(self.run, results, lambda staged: self.save(staged, model, results))

    def _guided(self) -> Dataset:
        """Return the text with links of a statistical aligner, which is saved in the folder `hmm`.

        The first process counts and sends the links to the others.
        """
        text, folder = self.tokenized["train"], Path(self.run.args.output_dir or "")
        model_width = self.config.checked_model.d_model

        def count() -> tuple[Rows, dict[str, Any], list[torch.Tensor]]:
            factors = self._encoder_factors()
            links, model, counted = counted_links(text, self.config.counts, self.run, factors, **self._text_fields())

            def save(staged: Path) -> None:
                model.save_pretrained(staged / COUNTS)
                self.tokenizer.save_pretrained(staged / COUNTS)
                write_json(counted, staged / COUNTS / RESULTS)

            fill(folder, save)
            vectors = None if factors is None else factors.vectors
            return links, {"counts": counted}, [] if vectors is None else vectors.projected(model_width)

        links, self.counted, self.vectors = in_first_process(self.run.args.process_index == 0, count)
        return with_links(text, links)

    def _encoder_factors(self) -> EncoderFactors | None:
        """Return the emission factors of the settings' encoder, which reads the counted pairs without folding.

        Raises:
            OSError, ValueError: see `EncoderPrior.from_pretrained`.
        """
        config, tokenize = self.config, WordTokenizer(self.tokenizer)
        if config.counts.encoder is None:
            return None
        normalize = fold_line if config.data.fold else str
        columns = [Rows.of(self.tokenized["train"], name) for name in ("input_ids", "target_input_ids")]
        counted = list(zip(*columns, strict=True))
        pairs: list[Words] = []
        sides: list[WordTokens] = []
        for part in replace(config.data, fold=False).load("train").iter(_TOKENIZER_BATCH):
            lines = [(s or "", t or "") for s, t in zip(part["source"], part["target"], strict=True)]
            tokens = tokenize([normalize(line) for pair in lines for line in pair])
            for (source, target), *of_pair in zip(lines, tokens[::2], tokens[1::2], strict=True):
                # Pairs that are too long or held out are not counted.
                ids = [side.ids for side in of_pair]
                if len(pairs) < len(counted) and all(map(np.array_equal, ids, counted[len(pairs)])):
                    pairs.append((tuple(source.split()), tuple(target.split())))
                    sides += of_pair
        if len(pairs) < len(counted):
            raise ValueError(
                "`counts.encoder` needs a tokenizer whose tokens of a line do not depend on the batch. Choose another "
                "tokenizer."
            )
        encoder = EncoderPrior.from_pretrained(config.counts.encoder)
        return encoder.factors(pairs, sides, None if config.family.counted else len(self.tokenizer))

    def _text_fields(self) -> dict[str, Any]:
        """Return the configuration fields that depend on the text and its tokenizer."""
        special = {name: getattr(self.tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        return {"vocab_size": len(self.tokenizer), **_word_fields(self.config), **special}


def _word_fields(config: AlignerConfig) -> dict[str, bool]:
    """Return the configuration fields of the normalisation of words."""
    return {"lowercase": config.data.lowercase, "tokenize": config.data.raw_text, "fold_words": bool(config.data.fold)}
