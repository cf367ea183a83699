"""Job that trains a model to write summaries, or headlines, of texts."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

from hf_attncal.metrics.rouge import ROUGE_MEASURES, TOKENIZERS, rouge

from .job import SUMMARY_EXAMPLE
from .sections import check_section
from .seq2seq import EvaluationConfig, Seq2SeqConfig, Seq2SeqJob
from .text import DataConfig


@dataclass
class SummaryDataConfig(DataConfig):
    """Texts, and a summary of each, a line each.

    Args:
        max_length: most tokens of a summary in training; pairs with a longer one are left out and counted.
        max_source_length: tokens that are read of a source; a longer one is truncated, and counted.
    """

    max_source_length: Annotated[int, 2] = 400

    units = "pairs"


@dataclass
class RougeConfig(EvaluationConfig):
    """Settings of how dev (during training) and test (at the end) are summarised and scored."""

    rouge_tokenize: str = "rouge"
    rouge_stemmer: bool = False

    def __post_init__(self):
        check_section({"rouge_tokenize": self.rouge_tokenize}, {"rouge_tokenize": Literal[TOKENIZERS]}, "evaluation")

    def score(self, hypotheses, references):
        score = asdict(rouge(hypotheses, references, self.rouge_tokenize, stemmer=self.rouge_stemmer))
        return {name: score[name] for name in (*ROUGE_MEASURES, "signature")}


@dataclass
class SummarizationConfig(Seq2SeqConfig):
    """All settings of one run; `model` holds `backbone` and fields of our configuration of it."""

    data: SummaryDataConfig = field(default_factory=SummaryDataConfig)
    evaluation: RougeConfig = field(default_factory=RougeConfig)

    job, example = "summarization", SUMMARY_EXAMPLE


class SummarizationJob(Seq2SeqJob):
    """Train a model that summarises and score it by ROUGE."""

    settings = SummarizationConfig
