"""Compute BLEU and chrF with sacreBLEU, with their signatures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from .base import Metric
from .tables import SEED, ScoreTable, comparison_columns, interval_columns

if TYPE_CHECKING:
    from hf_attncal.data.texts import ScoredText


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


@dataclass(frozen=True)
class TranslationScore:
    """BLEU or chrF of one hypothesis, compared with the first as in `link_scores.LinkScore`."""

    hypothesis: str
    score: float
    signature: str
    interval: tuple[float, float] | None = None
    better_than_first: float | None = None
    p_value: float | None = None


def score_translations(
    references: Sequence["ScoredText"],
    hypotheses: Sequence["ScoredText"],
    metric: Literal["bleu", "chrf"],
    *,
    bootstrap: int = 1000,
    format: str = "text",
) -> ScoreTable:
    """Score hypotheses against one or more references per line, and compare each with the first.

    Raises:
        CommandError: different numbers of lines.
    """
    for text in (*references, *hypotheses):
        text.check_length()
    scorer: Any = BLEU(force=True) if metric == "bleu" else CHRF()
    name = type(scorer).__name__.replace("CHRF", "chrF")

    def corpus_score(sums: np.ndarray) -> float:
        return scorer._compute_score_from_stats(sums.tolist()).score

    by_sums = Metric(name, lambda sums: np.apply_along_axis(corpus_score, -1, sums))
    lines = [list(text.lines) for text in references]
    counts = [np.array(scorer._extract_corpus_statistics(list(text.lines), lines)) for text in hypotheses]
    signature = str(scorer.get_signature())
    rows: list[TranslationScore] = []
    for text, counted in zip(hypotheses, counts, strict=True):
        compared: dict[str, Any] = {}
        if rows and bootstrap:
            pair = counts[0], counted, bootstrap, SEED
            compared = {"better_than_first": by_sums.paired_bootstrap(*pair), "p_value": by_sums.paired_p_value(*pair)}
        value = by_sums.measured(counted, bootstrap, SEED)
        rows.append(TranslationScore(text.name, value.value, signature, value.interval, **compared))
    intervals, notes = interval_columns(rows, name, bootstrap, len(lines[0]), "lines")
    comparison, more = comparison_columns(rows, name, "higher")
    columns = {"hypothesis": [row.hypothesis for row in rows], name: [f"{row.score:.1f}" for row in rows]}
    against = {"references": [text.name for text in references]}
    return ScoreTable(rows, against, bootstrap, format, columns | intervals | comparison, [*notes, *more])
