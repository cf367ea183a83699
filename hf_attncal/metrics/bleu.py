"""Compute BLEU with sacreBLEU, with its signature."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU


@dataclass(frozen=True)
class BleuScore:
    """Corpus BLEU (0 to 100, not rounded) and its sacreBLEU signature."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> BleuScore:
    """Compute corpus BLEU with one reference per line, using sacreBLEU.

    Args:
        hypotheses: translations to score.
        references: one reference per translation.
        tokenize: sacreBLEU's tokenizer: "13a" for plain text, "none" for text that is already split into tokens.

    Raises:
        ValueError: no lines, or unequal numbers of hypotheses and references.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            "`hypotheses` and `references` must have the same number of lines, at least one, got "
            f"{len(hypotheses)} and {len(references)}. Give one translation per reference."
        )
    # `force` only silences sacreBLEU's warning that the text looks tokenised.
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return BleuScore(score.score, str(metric.get_signature()))
