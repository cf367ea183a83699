"""Training job of a translation model, which ends with a verdict on its attention."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from hf_attncal.inference.source_use import MOST_READ, source_use
from hf_attncal.metrics.trust import verdict_of

from .job import SENTENCE
from .seq2seq import BleuConfig, Seq2SeqConfig, Seq2SeqJob
from .text import LINKS_OF_SPLITS


@dataclass
class TranslationConfig(Seq2SeqConfig):
    """Settings of one run; `model` holds `backbone` and fields of its configuration."""

    evaluation: BleuConfig = field(default_factory=BleuConfig)

    job, example = "translation", SENTENCE
    links = LINKS_OF_SPLITS


class TranslationJob(Seq2SeqJob):
    """Training job of a translation model, scored by BLEU."""

    settings: ClassVar[type[Seq2SeqConfig]] = TranslationConfig

    def attention_scores(self, model):
        """Return also `verdict`, on the attention to dev text."""
        results = super().attention_scores(model)
        if "dev" in self.splits:
            with suppress(ValueError):  # the model has no attention weights to read
                text = self.splits["dev"][:MOST_READ]
                effects = source_use(model, self.tokenizer, text["source"], text["target"])
                results["verdict"] = verdict_of(effects).to_dict()
        return results


train_translation = TranslationJob.train
