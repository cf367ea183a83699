"""The job that trains a translation model from text, and the scoring that an adapter's job shares with it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from hf_attncal.analysis.corpus import attention_report
from hf_attncal.data.collators import NullCollator
from hf_attncal.data.corpora import TokenizationReport, tokenize_pairs
from hf_attncal.data.tokenizer import null_token_id
from hf_attncal.families import TRANSLATORS
from hf_attncal.inference.translation import translate
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import BleuScore, bleu
from hf_attncal.models.cross_attention import calibration_of

from .arguments import AttnCalTrainingArguments
from .calibrated import AttnCalTrainer
from .cards import SENTENCE, attention, bleu_result, split_name, write_card
from .defaults import translation_defaults
from .planning import plan, settled
from .presets import anneal, harden, sections_of
from .run import build_model, build_tokenizer, finish, hold_out, read_text, save_parts, start, train
from .settings import EvaluationConfig, Positive, Settings, TokenizerConfig, check, merge

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
class TranslationConfig(Settings):
    """All settings of one run; `model` holds `backbone` and fields of our configuration of it."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    average_last: Positive = 1

    own_keys: ClassVar[dict[str, Any]] = {"backbone": Literal[tuple(TRANSLATORS)]}

    @classmethod
    def defaults(cls, values):
        sections = {"model": {"backbone": "marian"}, "training": TRAINING_DEFAULTS.copy()}
        merge(sections, sections_of("translation", cls, values, translation_defaults))
        if values.get("model", {}).get("init_from"):
            sections["model"] = {"backbone": "marian"}  # the rest is that model's own
        anneal(sections, "model", values)
        if values.get("model", {}).get("backbone") == "discrete_transformer":
            harden(sections, values)
        return sections

    def __post_init__(self):
        super().__post_init__()
        check({"backbone": self.model["backbone"]}, self.own_keys, "model")
        self.check_model(TRANSLATORS[self.model["backbone"]].config_class, **self.own_keys)


def train_translation(
    config: TranslationConfig, resume: bool = False, allow_changes: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """Train a translation model from text and score it; writes the folder `training.output_dir`.

    With several processes (`accelerate launch`, `torchrun`) every one calls this; `resume`, `allow_changes` and
    `dry_run` as in `run.start`. Returns what `results.json` in the folder holds: what `run.train` gives, and scores;
    of a dry run what `planning.plan` gives.

    Raises:
        ValueError: see `run.start` and `planning.settled`.
    """
    with start(config, resume, allow_changes, dry_run) as run:
        if run.results is not None:
            return run.results
        splits = hold_out(read_text(config.data), config.data.held_out)
        tokenizer = build_tokenizer(config, run, splits["train"])
        tokenized, reports = tokenize_splits(splits, tokenizer, config.data.max_length)

        def build(config: TranslationConfig, args: AttnCalTrainingArguments) -> AttnCalTrainer:
            model = build_translation_model(config, tokenizer)
            return make_trainer(model, tokenizer, splits, tokenized, config, args)

        if run.dry:
            return plan(build(config, run.args), config, reports, run)
        config, trainer = settled(config, run, build)
        model, results = train(trainer, config, reports, run)
        settings, first = config.evaluation, run.args.process_index == 0
        model.generation_config.update(num_beams=settings.num_beams, length_penalty=settings.length_penalty)
        for name in [name for name in splits if name != "train"]:
            file = Path(run.args.output_dir) / f"{name}.hypotheses.txt"
            results[name] = scored(model, tokenizer, splits[name], settings, file, progress=first)
        results |= attention_on_dev(trainer, model)

        def save(folder: Path) -> None:
            save_parts(model, tokenizer)(folder)
            summary = f"A translation model ({config.model['backbone']}) with {attention(model.config)}."
            scores = [bleu_result(results[name], split_name(config, name)) for name in splits if name != "train"]
            write_card(folder, config, results, summary, scores, SENTENCE)

        return finish(trainer, results, save)


def build_translation_model(config: TranslationConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model of the section `model`, for the tokenizer's vocabulary; see `run.build_model`.

    Raises:
        ValueError: the tokenizer lacks a token for padding or for the end of sentence.
    """
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or eos is None:
        raise ValueError(
            f"`tokenizer` must have a padding and an end-of-sentence token, got ids {pad} and {eos}. Add them to it."
        )
    section = config.model
    if section.get("uam") and section.get("null_token_id") is None:
        section = section | {"null_token_id": null_token_id(tokenizer)}
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": pad,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": eos,
        "forced_eos_token_id": eos,
        # BART's decoder starts with the end of sentence, the others with padding.
        "decoder_start_token_id": eos if section["backbone"] == "bart" else pad,
    }
    model = build_model(TRANSLATORS[section["backbone"]].model_class, section, tokens)
    if section.get("uam") and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    return model


def tokenize_splits(
    splits: dict[str, Dataset], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> tuple[dict[str, Dataset], dict[str, TokenizationReport]]:
    """The token ids of the training and dev text, and which pairs were kept."""
    names = [name for name in splits if name != "test"]
    made = {name: tokenize_pairs(splits[name], tokenizer, max_length) for name in names}
    return {name: text for name, (text, _) in made.items()}, {name: report for name, (_, report) in made.items()}


def make_trainer(
    model,
    tokenizer: PreTrainedTokenizerBase,
    splits: dict[str, Dataset],
    tokenized: dict[str, Dataset],
    config: Settings,
    args: AttnCalTrainingArguments,
) -> AttnCalTrainer:
    """The Trainer on the training and dev text of `tokenize_splits`, with BLEU on dev."""
    collator = NullCollator if getattr(model.config, "uam", False) else DataCollatorForSeq2Seq
    return AttnCalTrainer(
        model=model,
        args=args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized.get("dev"),
        data_collator=collator(tokenizer, model),
        processing_class=tokenizer,
        callbacks=[BleuCallback(splits["dev"], tokenizer, config.evaluation)] if "dev" in splits else [],
    )


def evaluate(model, tokenizer, pairs: Dataset, settings: EvaluationConfig, **options) -> tuple[list[str], BleuScore]:
    """Translations of the sources of `pairs` and their BLEU; every process does its share, all get the result."""
    state = PartialState()
    share = translate(
        model,
        tokenizer,
        pairs["source"][state.process_index :: state.num_processes],
        batch_size=settings.batch_size,
        length_penalty=settings.length_penalty,
        max_new_tokens=settings.max_new_tokens,
        **{"num_beams": settings.num_beams, **options},
    )
    hypotheses = [""] * len(pairs)
    for index, part in enumerate(gather_object([share])):
        hypotheses[index :: state.num_processes] = part
    return hypotheses, bleu(hypotheses, pairs["target"], settings.bleu_tokenize)


def scored(model, tokenizer, pairs: Dataset, settings: EvaluationConfig, file: Path, **options) -> dict[str, Any]:
    """BLEU of the translations and its signature; the first process writes the translations to `file`."""
    hypotheses, score = evaluate(model, tokenizer, pairs, settings, **options)
    if PartialState().is_main_process:
        records.write_text("\n".join(hypotheses) + "\n", file)
        print(f"{file.name.removesuffix('.hypotheses.txt')}: BLEU {score.score:.2f}  {score.signature}")
    return {"bleu": score.score, "signature": score.signature}


def attention_on_dev(trainer: AttnCalTrainer, model) -> dict[str, Any]:
    """`attention`: how far a calibrated model's can be believed on the Trainer's dev text; empty without either."""
    if trainer.eval_dataset is None or calibration_of(model) is None:
        return {}
    dev = trainer.eval_dataset.select_columns(["input_ids", "labels"])
    # Not the Trainer's own, which may extend targets by steps that no translation has.
    collator = DataCollatorForSeq2Seq(trainer.processing_class, model)
    batches = DataLoader(dev, trainer.args.per_device_eval_batch_size, collate_fn=collator)
    return {"attention": attention_report(model, batches)}


class BleuCallback(TrainerCallback):
    """Adds BLEU on the first `dev_lines` dev sentences to every evaluation of the Trainer, as `eval_bleu`."""

    def __init__(self, dev: Dataset, tokenizer: PreTrainedTokenizerBase, settings: EvaluationConfig):
        lines = len(dev) if settings.dev_lines is None else min(settings.dev_lines, len(dev))
        self.dev, self.tokenizer, self.settings = dev.select(range(lines)), tokenizer, settings

    def on_evaluate(self, args, state, control, model=None, metrics=None, **kwargs):
        _, score = evaluate(model, self.tokenizer, self.dev, self.settings, num_beams=self.settings.dev_beams)
        metrics["eval_bleu"] = score.score  # `metric_for_best_model` may name it
        entry = {"eval_bleu": score.score, "eval_bleu_signature": score.signature, "step": state.global_step}
        state.log_history.append(entry)
        if state.is_world_process_zero:
            tqdm.write(str(entry))
