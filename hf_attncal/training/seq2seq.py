"""Training jobs of encoder-decoders: settings, run and scores of generated text; the translation job."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from sacrebleu.metrics import BLEU
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
)
from transformers.tokenization_utils_base import LARGE_INTEGER

from hf_attncal.adapters.layers import active_settings
from hf_attncal.data.collators import CopyCollator, CopyNullCollator, LinkCollator, NullCollator
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.languages import check_target, codes_of, set_languages
from hf_attncal.data.tokenizer import CopyTokenizer, null_token_id
from hf_attncal.families import default_of, translators
from hf_attncal.hub.model_cards import write_model_card
from hf_attncal.inference.generation import Search, generate_lines, longer_than, position_limit, source_limit
from hf_attncal.inference.loading import model_config
from hf_attncal.inference.reading import decoder_size
from hf_attncal.inference.word_attention import attention_report
from hf_attncal.io.files import write_text
from hf_attncal.models.calibration import calibration_of
from hf_attncal.models.configuration_attncal import guided_place

from .calibrated import AttnCalTrainer
from .job import (
    CARD_MEASURES,
    Job,
    about_run,
    attention,
    bars_are_shown,
    build_model,
    build_tokenizer,
    extent_results,
    score_results,
    split_name,
)
from .presets import anneal, check_preset, sections_of, wait_for_attention
from .sections import Positive, check_section, merge_settings
from .settings import ModelSettings, VocabularyConfig
from .text import LINKS, DataConfig, linker

# (has a unified attention model, has slots for copied words) -> collator
_COLLATORS = {
    (False, False): DataCollatorForSeq2Seq,
    (True, False): NullCollator,
    (False, True): CopyCollator,
    (True, True): CopyNullCollator,
}
# The Trainer's defaults are for fine-tuning with metrics on logits; these jobs need only the loss.
TRAINING_DEFAULTS = {
    "prediction_loss_only": True,
    "per_device_eval_batch_size": 64,
    "bf16": "auto",
    # The Trainer's default, False, would be saved in the config and make generation slow.
    "use_cache": True,
    "seed": 1,
}


@dataclass
class EvaluationConfig:
    """Settings for generating text from dev (during training) and test (at the end); each job adds a score."""

    num_beams: Positive = 4
    length_penalty: float = 1.0
    batch_size: Positive = 64
    max_new_tokens: Positive | None = None
    dev_lines: Positive | None = None

    @property
    def search(self) -> Search:
        """Search at the end of a training; also the default of the saved model."""
        return Search(self.num_beams, self.length_penalty, self.max_new_tokens)

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
        """Return the scores by their keys in `job.CARD_MEASURES`, and a `signature`."""
        raise NotImplementedError


@dataclass
class BleuConfig(EvaluationConfig):
    """Settings for translating and scoring dev (during training) and test (at the end)."""

    bleu_tokenize: str = "13a"

    def __post_init__(self):
        check_section(
            {"bleu_tokenize": self.bleu_tokenize}, {"bleu_tokenize": Literal[*BLEU.TOKENIZERS]}, "evaluation"
        )

    def score(self, hypotheses, references):
        metric = BLEU(tokenize=self.bleu_tokenize, force=True)  # `force` accepts text that looks tokenised
        score = metric.corpus_score(list(hypotheses), [list(references)])
        return {"bleu": score.score, "signature": str(metric.get_signature())}


@dataclass
class Seq2SeqConfig(ModelSettings):
    """Settings of one run; `model` holds `backbone` and fields of its configuration."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: VocabularyConfig = field(default_factory=VocabularyConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    average_last: Positive = 1
    languages: str | None = None

    job: ClassVar[str]  # "translation": name of presets and folders, and of the task on the Hub
    example: ClassVar[str]  # input of the example in the model card
    guided = False  # True if the model learns word links

    @classmethod
    def defaults(cls, values):
        own = {"backbone": default_of(cls.job).name}
        section = values.get("model", {})
        backbone, families = (own | section)["backbone"], translators()
        check_section({"backbone": backbone}, {"backbone": Literal[tuple(families)]}, "model")
        family = families[backbone]
        sections = {"model": own.copy(), "training": TRAINING_DEFAULTS | {"output_dir": f"runs/{cls.job}"}}
        if values.get("preset"):
            check_preset(cls.job, values["preset"], family, families)
            merge_settings(sections, sections_of(cls, values, family.resolve("sizes")))
            if section.get("init_from"):
                sections["model"] = own  # the other fields come from that model
            anneal(sections, "model", values)
            wait_for_attention(sections, values)
        if family.after_preset is not None:
            family.resolve("after_preset")(sections, values)
        return sections

    def __post_init__(self):
        super().__post_init__()
        self.check_model(translators()[self.model["backbone"]].config_class, backbone=str)
        config = self.checked_model
        self.guided = getattr(config, "guided", False)
        check_guide(self.data, self.guided, "model")
        longest = self.data.max_source_length
        if longest is not None and longest > config.max_position_embeddings:
            raise ValueError(
                "`data.max_source_length` must be at most the number of positions of the model "
                f"({config.max_position_embeddings}), got {longest}."
            )


def check_guide(data: DataConfig, guided: bool, section: str) -> None:
    """Refuse files of links for a model that does not learn links; `section` has the field `guided`.

    Raises:
        ValueError: a file of links, and `guided` is false.
    """
    for split, key, _ in data.named_files():
        if key in LINKS and not guided:
            raise ValueError(f"`data.{split}.{key}` needs `{section}.guided` true, got false: no head learns links.")


def build_seq2seq_model(config: Seq2SeqConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build the model of the section `model` for the vocabulary of the tokenizer.

    Raises:
        ValueError: the tokenizer has no padding or end-of-sentence token.
    """
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or eos is None:
        raise ValueError(
            f"`tokenizer` must have a padding and an end-of-sentence token, got ids {pad} and {eos}. Add them to it."
        )
    section, always = config.model, {}
    if section.get("uam") and section.get("null_token_id") is None:
        always["null_token_id"] = null_token_id(tokenizer)
    if section.get("max_copied_tokens") and section.get("unk_token_id") is None:
        always["unk_token_id"] = tokenizer.unk_token_id
    family = translators()[section["backbone"]]
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": pad,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": eos,
        "forced_eos_token_id": eos,
        "decoder_start_token_id": {"pad": pad, "eos": eos}[family.decoder_start],
    }
    model: Any = build_model(family, config, tokens, always)
    if section.get("uam") and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    start = section.get("init_from")
    if section.get("uam") and start and not getattr(model_config(start), "uam", False):
        model.uam.start_from(model.get_output_embeddings())
    return model


def copy_search_settings(model, tokenizer: PreTrainedTokenizerBase, settings: EvaluationConfig) -> None:
    """Copy the search settings of the evaluation (beams, length penalty, maximum length) to the generation config.

    The generation config is saved with the model, so `generate` searches as it did for the published scores.

    Args:
        model: encoder-decoder.
        tokenizer: tokenizer of the model; its maximum length also limits the search.
        settings: section `evaluation` of the settings.
    """
    limit = position_limit(model, tokenizer)
    search = settings.search.saved(limit)
    if settings.max_new_tokens is None and limit >= LARGE_INTEGER:  # no limit of model or tokenizer
        del search["max_length"], search["max_new_tokens"]
    model.generation_config.update(**search)


class Seq2SeqJob(Job):
    """Training job of an encoder-decoder; `new_model` builds it from settings and tokenizer."""

    new_model = staticmethod(build_seq2seq_model)

    def prepare(self, links):
        data = self.config.data
        self.tokenizer, model_settings, copies = self.begin()
        if self.config.languages is not None and codes_of(self.tokenizer):  # otherwise only the card uses them
            set_languages(None, self.tokenizer, self.config.languages)
        check_target(self.tokenizer)
        if data.max_source_length is None:
            self.check_sources(model_settings)
        for name in [name for name in self.splits if name != "test"]:
            options = data.max_length, data.max_source_length, copies, links if name == "train" else None
            self.tokenized[name], self.reports[name] = tokenize_pairs(self.splits[name], self.tokenizer, *options)
        if self.config.guided and links is None:
            counted = linker("with_counted_links")(self.tokenized["train"], self.tokenizer, self.run)
            self.tokenized["train"], self.counted = counted

    def begin(self) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, CopyTokenizer | None]:
        """Return the tokenizer, the configuration of the model, and the tokenizer of copied words, if any."""
        tokenizer = build_tokenizer(self.config, self.run, self.splits["train"])
        longest = self.config.data.max_source_length
        if longest is not None:
            tokenizer.model_max_length = longest  # saved with it, so that users of the model truncate in the same way
        model_settings, section = self.config.checked_model, self.config.model
        if section.get("uam"):
            null_token_id(tokenizer)  # may add the token, which must come before the slots for copied words
        if not getattr(model_settings, "max_copied_tokens", 0):
            return tokenizer, model_settings, None
        size = max(len(tokenizer), model_settings.vocab_size if section.get("init_from") else 0)
        slots = SimpleNamespace(vocab_size=size, max_copied_tokens=model_settings.max_copied_tokens)
        return tokenizer, model_settings, CopyTokenizer(tokenizer, slots)

    def check_sources(self, model_settings: PreTrainedConfig) -> None:
        """Check, before training, that the sources of dev and test are not too long for the model.

        Pairs with a longer source are left out of held-out training text, as in training.

        Args:
            model_settings: configuration of the model.

        Warns:
            UserWarning: pairs were left out of held-out text; the message has their lines.

        Raises:
            ValueError: a source of dev or test is too long; the message has its line and file.
        """
        data, limit = self.config.data, source_limit(SimpleNamespace(config=model_settings), self.tokenizer)
        for name in self.measured:
            pairs = self.splits[name]
            long = longer_than(limit, self.tokenizer, pairs["source"])
            if not long:
                continue
            if getattr(data, name) is not None:
                row, tokens = next(iter(long.items()))
                raise ValueError(
                    f"{data.line(name, row)} (`data.{name}`) has {tokens} tokens, the model takes at most {limit}. "
                    "Split the line, or leave the pair out of both files."
                )
            rows = sorted(self.held_out)
            lines = ", ".join(data.line("train", rows[row]) for row in list(long)[:5])
            warnings.warn(
                f"{len(long)} of {len(pairs)} pairs were left out of the held-out text: their sources have more than "
                f"{limit} tokens, the limit of the model ({lines}{', ...' if len(long) > 5 else ''}).",
                stacklevel=2,
            )
            self.splits = self.splits | {name: pairs.select([n for n in range(len(pairs)) if n not in long])}

    def build(self):
        config, model = self.config, self.new_model(self.config, self.tokenizer)
        set_languages(model, self.tokenizer)
        copy_search_settings(model, self.tokenizer, config.evaluation)
        copies = bool(getattr(model.config, "max_copied_tokens", 0))
        collator = _COLLATORS[bool(getattr(model.config, "uam", False)), copies](self.tokenizer, model)
        collator = LinkCollator(collator) if "links" in self.tokenized["train"].column_names else collator
        trainer = self.trainer_of(AttnCalTrainer, model, collator)
        if "dev" in self.splits:
            dev, most = self.splits["dev"], config.evaluation.dev_lines
            scored = dev if most is None else dev.select(range(min(most, len(dev))))
            trainer.add_callback(ScoreCallback(trainer, scored, config))
        return trainer

    def score(self, model):
        results = {name: self.generate_and_score(model, name) for name in self.measured}
        return results | self.attention_scores(model)

    def generate_and_score(self, model: PreTrainedModel, split: str, kind: str = "") -> dict[str, Any]:
        """Generate from the sources of a split, write the text to a file with `kind` in its name, return its score.

        The score has the number of truncated sources, if the job truncates any.
        """
        pairs, tokenizer = self.splits[split], self.tokenizer
        progress = bars_are_shown(self.run.args)
        hypotheses, score = evaluate(model, tokenizer, pairs, self.config, progress=progress)
        message = "".join(f" {label} {score[name]:.2f} " for name, label in CARD_MEASURES.items() if name in score)
        message += f" {score['signature']}"
        if self.config.data.max_source_length is not None:
            limit = source_limit(model, tokenizer)
            score["truncated"] = len(longer_than(limit, tokenizer, pairs["source"]))
            message += f"; {score['truncated']} of {len(pairs)} sources cut to {limit} tokens"
        if score["unknown"]:
            message += f"; {score['unknown']} unknown words left out of the text"
        if self.run.args.process_index == 0:
            write_text("\n".join(hypotheses) + "\n", self.run.folder / f"{split}{kind}.hypotheses.txt")
            print(f"{split}{kind}:{message}")
        return score

    def attention_scores(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return `attention` (reliability of a calibrated model), for dev text, and `head_on_gold`."""
        results, dev, self.guided = {}, self.tokenized.get("dev"), None
        if dev is not None and calibration_of(model) is not None:
            slots = bool(getattr(model.config, "max_copied_tokens", 0))
            dev = dev.select_columns(["input_ids", "labels", *["extended_input_ids"] * slots])
            # The Trainer's own collator may pad targets with extra steps.
            collator = (CopyCollator if slots else DataCollatorForSeq2Seq)(self.tokenizer, model)
            batches = DataLoader(dev, self.run.args.per_device_eval_batch_size, collate_fn=collator)
            results["attention"] = attention_report(model, batches)
        return results | self.head_on_gold(model)

    def head_on_gold(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return `alignment`, the AER of the guided head or observer, and store its settings in `self.guided`."""
        settings: Any = active_settings(model) or model.config
        if not getattr(settings, "guided", False):
            return {}
        layer, head = guided_place(settings, *decoder_size(model.config))
        place = {} if settings.observe else {"layer": layer, "heads": (head,), "shift": settings.guided_shift}
        self.guided, scores = linker("guided_head_on_gold")(self.golds, model, self.tokenizer, **place)
        return {"alignment": scores}

    def save(self, folder, model, results):
        super().save(folder, model, results)
        if self.guided is not None:
            self.guided.save(folder)
        config = self.config
        write_model_card(
            folder,
            **about_run(config, results),
            summary=f"A {config.job} model ({config.model['backbone']}) with {attention(model.config)}.",
            results=[
                *(row for name in self.measured for row in score_results(results[name], split_name(config, name))),
                *extent_results(results),
            ],
            example=config.example,
            task=config.job,
        )


def evaluate(
    model, tokenizer, pairs: Dataset, config: Any, num_beams: int | None = None, progress: bool = False
) -> tuple[list[str], dict[str, float | str]]:
    """Generate from the sources of `pairs` and score the text; processes share the work, and all get the result.

    The `unknown` of the score is the number of generated unknown tokens, which are left out of the text.

    Args:
        model: encoder-decoder, in evaluation or training mode.
        tokenizer: tokenizer of the model.
        pairs: pairs in the columns "source" and "target".
        config: settings of the run with the sections `evaluation` and `data`.
        num_beams: number of beams. Default: `evaluation.num_beams`.
        progress: show a progress bar over sources. Default: False.
    """
    state, settings = PartialState(), config.evaluation
    search = settings.search if num_beams is None else replace(settings.search, num_beams=num_beams)
    share = generate_lines(
        model,
        tokenizer,
        pairs["source"][state.process_index :: state.num_processes],
        search,
        batch_size=settings.batch_size,
        too_long="error" if config.data.max_source_length is None else "truncate",
        progress="generating" if progress else None,
    )
    lines = [("", 0)] * len(pairs)
    for index, part in enumerate(gather_object([[(line.text, line.unknown) for line in share]])):
        lines[index :: state.num_processes] = part
    hypotheses = [text for text, _ in lines]
    score = settings.score(hypotheses, pairs["target"])
    return hypotheses, score | {"unknown": sum(unknown for _, unknown in lines)}


@dataclass
class ScoreCallback(TrainerCallback):
    """Adds a score such as `eval_bleu` to every evaluation of the Trainer, its history and its `report_to`.

    Args:
        trainer: Trainer of the run.
        dev: pairs to score.
        config: settings of the run.
    """

    trainer: AttnCalTrainer
    dev: Dataset
    config: Any

    def on_evaluate(self, args, state, control, model=None, metrics=None, **kwargs):
        _, score = evaluate(model, self.trainer.processing_class, self.dev, self.config, num_beams=1)
        numbers = {f"eval_{name}": score[name] for name in CARD_MEASURES if name in score}
        metrics |= numbers  # `metric_for_best_model`
        entry = {**{f"eval_{name}": value for name, value in score.items()}, "step": state.global_step}
        state.log_history.append(entry)
        self.trainer.callback_handler.on_log(args, state, control, numbers)
