"""Training job of a model that writes summaries or headlines."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

from hf_attncal.metrics.rouge import ROUGE_MEASURES, TOKENIZERS, rouge

from .job import SUMMARY_EXAMPLE
from .sections import check_section
from .seq2seq import EvaluationConfig, Seq2SeqConfig
from .text import DataConfig
from .translation import TranslationJob


@dataclass
class SummaryDataConfig(DataConfig):
    """Texts and their summaries, one per line.

    Args:
        max_length: maximum tokens of a summary in training; longer ones are left out and counted.
        max_source_length: maximum tokens of a source; longer ones are truncated and counted. Default: 400.
    """

    max_source_length: Annotated[int, 2] = 400

    units = "pairs"


@dataclass
class RougeConfig(EvaluationConfig):
    """Settings for generating and scoring summaries of dev (during training) and test (at the end)."""

    rouge_tokenize: str = "rouge"
    rouge_stemmer: bool = False

    def __post_init__(self):
        check_section({"rouge_tokenize": self.rouge_tokenize}, {"rouge_tokenize": Literal[TOKENIZERS]}, "evaluation")

    def score(self, hypotheses, references):
        score = asdict(rouge(hypotheses, references, self.rouge_tokenize, stemmer=self.rouge_stemmer))
        return {name: score[name] for name in (*ROUGE_MEASURES, "signature")}


@dataclass
class SummarizationConfig(Seq2SeqConfig):
    """Settings of one run; `model` holds `backbone` and fields of its configuration."""

    data: SummaryDataConfig = field(default_factory=SummaryDataConfig)
    evaluation: RougeConfig = field(default_factory=RougeConfig)

    job, example = "summarization", SUMMARY_EXAMPLE


class SummarizationJob(TranslationJob):
    """Training job of a summarisation model, scored by ROUGE, with the same verdict at its end."""

    settings = SummarizationConfig
