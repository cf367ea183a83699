"""Training job of a Discrete Transformer language model, from text with one sequence per line."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_attncal.data.collators import LanguageCollator
from hf_attncal.data.corpora import tokenize_plain
from hf_attncal.data.tokenizer import EOS, LANGUAGE_TOKENS
from hf_attncal.families import default_of
from hf_attncal.hub.model_cards import Result, write_model_card
from hf_attncal.inference.reading import evaluating
from hf_attncal.metrics.base import Metric
from hf_attncal.metrics.probabilities import PERPLEXITY, perplexity

from .calibrated import AttnCalTrainer
from .folder import Run
from .job import BEGINNING, Job, about_run, attention, build_model, build_tokenizer, split_name
from .presets import harden, language_defaults, sections_of
from .sections import Positive, merge_settings
from .seq2seq import TRAINING_DEFAULTS
from .settings import ModelSettings, VocabularyConfig
from .text import PlainConfig

FAMILY = default_of("language")
# Its sums, (..., 2): predictions, and tokens in their receptive fields.
FIELD_SIZE = Metric("ReceptiveFieldSize", lambda sums: sums[..., 1] / sums[..., 0], lower_is_better=True)


@dataclass
class LanguageConfig(ModelSettings):
    """Settings of one run; `model` holds fields of `DiscreteTransformerConfig`."""

    data: PlainConfig = field(default_factory=PlainConfig)
    tokenizer: VocabularyConfig = field(default_factory=VocabularyConfig)
    average_last: Positive = 1

    job = "language"

    @classmethod
    def defaults(cls, values):
        sections = {"training": TRAINING_DEFAULTS | {"output_dir": "runs/language"}, "model": {}}
        if values.get("preset"):
            merge_settings(sections, sections_of(cls, values, language_defaults))
            if values.get("model", {}).get("init_from"):
                sections["model"] = {}  # sizes come from that model
            harden(sections, values)
        return sections

    def __post_init__(self):
        super().__post_init__()
        self.check_model(FAMILY.config_class)


@torch.no_grad()
def sequence_sums(model, batches: Iterable[Mapping[str, Tensor]]) -> np.ndarray:
    """Return sums over the predictions of each sequence, in the model's current mode.

    Args:
        model: `DiscreteTransformerForCausalLM`.
        batches: batches with `input_ids`, `attention_mask` and `labels`, (batch, length), right-padded.

    Returns:
        (sequences, 3), float64: negative log-probabilities in nats (without label smoothing), number of predictions,
        and number of tokens in their receptive fields (exact for hard attention in evaluation mode, else expected).
    """
    rows = [np.zeros((0, 3))]
    for batch in batches:
        inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
        targets = inputs.pop("labels")[:, 1:]
        outputs = model(**inputs, output_receptive_fields=True)
        predicted = targets != -100
        losses = torch.nn.functional.cross_entropy(
            outputs.logits[:, :-1].float().transpose(1, 2), targets, ignore_index=-100, reduction="none"
        )
        sizes = outputs.target_receptive_fields[:, :-1].sum(dim=-1) * predicted
        sums = [part.double().sum(dim=1) for part in (losses, predicted, sizes)]
        rows.append(torch.stack(sums, dim=1).cpu().numpy())
    return np.concatenate(rows)


class LanguageTrainer(AttnCalTrainer):
    """`AttnCalTrainer` with an exact evaluation: means over predictions, for any batches and number of processes.

    An evaluation returns `eval_loss` (cross-entropy in nats per token, without label smoothing), `eval_perplexity`
    and `eval_receptive_field_size` (tokens in the field of a prediction).
    """

    def evaluate(
        self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval", **gen_kwargs: Any
    ) -> dict[str, float]:
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        with self.compute_loss_context_manager():
            sums = self.read(dataset)
        total = sums.sum(axis=0)
        metrics = {
            "loss": total[0] / total[1],
            "perplexity": PERPLEXITY.score(total[:2]),
            "receptive_field_size": FIELD_SIZE.score(total[1:]),
        }
        return self.report_evaluation(metrics, metric_key_prefix)

    def read(self, dataset: Dataset) -> np.ndarray:
        """Return the `sequence_sums` of a tokenised text; the processes share the work, and all get the result."""
        share = dataset.select_columns(["input_ids"])
        share = share.select(range(self.args.process_index, len(dataset), self.args.world_size))
        batches = DataLoader(share, self.args.per_device_eval_batch_size, collate_fn=self.data_collator)
        with evaluating(self.model):
            return np.concatenate(gather_object([sequence_sums(self.model, batches)]))


class LanguageJob(Job):
    """Training job of a language model, scored by perplexity and receptive fields."""

    settings = LanguageConfig

    def prepare(self, links):
        data = self.config.data
        self.tokenizer = build_language_tokenizer(self.config, self.run, self.splits["train"])
        for name, text in self.splits.items():
            self.tokenized[name], self.reports[name] = tokenize_plain(
                text, self.tokenizer, data.max_length, data.end_of_sequence
            )

    def build(self):
        model = build_language_model(self.config, self.tokenizer)
        return self.trainer_of(LanguageTrainer, model, LanguageCollator(self.tokenizer.pad_token_id))

    def score(self, model):
        results = {}
        for name in self.measured:
            results[name] = self.scores(name)
            if self.run.args.process_index == 0:
                print("{}: perplexity {perplexity:.3f}  {signature}".format(name, **results[name]))
                print(
                    "{}: receptive field {receptive_field_size:.2f}  {field_signature}".format(name, **results[name])
                )
        return results

    def scores(self, split: str) -> dict[str, float | int | str]:
        """Return cross-entropy, perplexity and mean receptive field of a split, with signatures."""
        config, sums = self.config, self.trainer.read(self.tokenized[split])
        pretrained = config.tokenizer.pretrained or config.model.get("init_from")
        score = perplexity(
            sums[:, :2],
            unit="pretrained" if pretrained else config.tokenizer.kind,
            end=config.data.end_of_sequence,
            unknown=self.reports[split].unknown,
        )
        fields = "chosen" if self.trainer.model.config.hard_attention else "expected"
        return asdict(score) | {
            "receptive_field_size": float(FIELD_SIZE.score(sums[:, 1:].sum(axis=0))),
            "field_signature": FIELD_SIZE.signature(fields=fields, n=str(len(sums))),
        }

    def save(self, folder, model, results):
        super().save(folder, model, results)
        scores: list[Result] = []
        for name in self.measured:
            text, score = split_name(self.config, name), results[name]
            size = score["receptive_field_size"]
            scores += [
                Result(f"perplexity on {text}", score["perplexity"], score["signature"], digits=3),
                Result(f"tokens in a receptive field on {text}", size, score["field_signature"]),
            ]
        summary = f"A language model with {attention(model.config)}."
        about = about_run(self.config, results)
        write_model_card(folder, **about, summary=summary, results=scores, example=BEGINNING)


def build_language_tokenizer(config: LanguageConfig, run: Run, text: Dataset) -> PreTrainedTokenizerBase:
    """Build a tokenizer that puts `<s>` before a text and nothing after it.

    Raises:
        ValueError: a pretrained tokenizer has no padding token, or adds other tokens to a text.
    """
    special = [token for token in LANGUAGE_TOKENS if token != EOS or config.data.end_of_sequence]
    tokenizer = build_tokenizer(config, run, text, special)
    begin, empty = tokenizer.bos_token_id, list(tokenizer("")["input_ids"])
    if begin is None or empty != [begin] or tokenizer.pad_token_id is None:
        raise ValueError(
            "`tokenizer` must have a padding token and add only its bos token, before the text, so that a model can "
            f"continue the text; got {empty} for an empty text, bos {begin}, padding {tokenizer.pad_token_id}. Change "
            "its post-processor, or leave `tokenizer.pretrained` out to train one."
        )
    return tokenizer


def build_language_model(config: LanguageConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build the model of the section `model` for the vocabulary of the tokenizer.

    Raises:
        ValueError: the model has fewer positions than `data.max_length`.
    """
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
        # Text without an end symbol is generated up to the length limit.
        "eos_token_id": tokenizer.eos_token_id if config.data.end_of_sequence else None,
        "forced_eos_token_id": None,
    }
    model = build_model(FAMILY, config, tokens, causal=True)
    if config.data.max_length > model.config.max_position_embeddings:
        raise ValueError(
            "`data.max_length` must be at most `model.max_position_embeddings` "
            f"({model.config.max_position_embeddings}), got {config.data.max_length}."
        )
    return model
