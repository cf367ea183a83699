"""Job that trains a translation model from text."""

from dataclasses import dataclass, field
from typing import Literal

from sacrebleu.metrics import BLEU

from hf_attncal.metrics.bleu import bleu

from .cards import SENTENCE
from .seq2seq import EvaluationConfig, Seq2SeqConfig, Seq2SeqJob
from .settings import LINKS_OF_SPLITS


@dataclass
class BleuConfig(EvaluationConfig):
    """Settings of how dev (during training) and test (at the end) are translated and scored."""

    bleu_tokenize: Literal[tuple(BLEU.TOKENIZERS)] = "13a"

    def score(self, hypotheses, references):
        score = bleu(hypotheses, references, self.bleu_tokenize)
        return {"bleu": score.score, "signature": score.signature}


@dataclass
class TranslationConfig(Seq2SeqConfig):
    """All settings of one run; `model` holds `backbone` and fields of our configuration of it."""

    evaluation: BleuConfig = field(default_factory=BleuConfig)

    job, example = "translation", SENTENCE
    links = LINKS_OF_SPLITS


class TranslationJob(Seq2SeqJob):
    """Train a translation model from text and score it by BLEU."""

    settings = TranslationConfig


train_translation = TranslationJob.train
