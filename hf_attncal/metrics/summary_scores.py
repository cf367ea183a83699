"""Score several hypotheses of summaries with ROUGE, each against one or more references."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hf_attncal.data.texts import ScoredText

from .rouge import ROUGE, ROUGE_MEASURES, RougeScore, rouge_counts, rouge_signature
from .tables import SEED, ScoreTable, why_no_interval


@dataclass(frozen=True)
class Above:
    """Difference to the first hypothesis in one measure, with the 95 % interval on the same resamples."""

    difference: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class SummaryScore(RougeScore):
    """Scores of one hypothesis.

    Args:
        hypothesis: name of the hypothesis.
        above_first: measure -> difference to the first hypothesis; None for the first hypothesis.
    """

    hypothesis: str = ""
    above_first: Mapping[str, Above] | None = None


def score_summaries(
    references: Sequence[ScoredText],
    hypotheses: Sequence[ScoredText],
    *,
    tokenize: str = "rouge",
    stemmer: bool = False,
    bootstrap: int = 1000,
    format: str = "text",
) -> ScoreTable:
    """Score hypotheses against one or more references per summary, and compare each with the first.

    Args:
        references, hypotheses: texts with one summary per line.
        tokenize, stemmer, bootstrap: see `rouge`.
        format: output format, "text" or "json".

    Warns:
        UserWarning: summaries whose references are all empty.

    Raises:
        CommandError: different numbers of lines.
    """
    for text in (*references, *hypotheses):
        text.check_length()
    names = [text.label for text in references]
    settings: dict[str, Any] = {"tokenize": tokenize, "stemmer": stemmer}
    answers = list(zip(*(text.lines for text in references), strict=True))
    empty = [number for number, texts in enumerate(answers, 1) if not any(map(str.strip, texts))]
    if empty:
        warnings.warn(
            f"{' and '.join(names)}: {len(empty)} of {len(answers)} lines are empty, the first is line {empty[0]}. "
            "Every summary scores 0 there.",
            stacklevel=2,
        )
    signature = rouge_signature(answers, **settings)
    counted = [rouge_counts(text.lines, answers, **settings) for text in hypotheses]
    rows: list[SummaryScore] = []
    for text, counts in zip(hypotheses, counted, strict=True):
        row = replace(SummaryScore.of(counts, signature, bootstrap, SEED), hypothesis=text.name)
        above = {}
        for measure in ROUGE_MEASURES if rows else ():
            pair = counted[0][measure], counts[measure]
            interval = ROUGE.paired_interval(*pair, bootstrap, SEED) if bootstrap else None
            above[measure] = Above(getattr(row, measure) - getattr(rows[0], measure), interval)
        rows.append(replace(row, above_first=above or None))
    cells = [(row, measure) for row in rows for measure in ROUGE_MEASURES]
    columns = {
        "hypothesis": [row.hypothesis for row, _ in cells],
        "measure": [measure.replace("rouge", "ROUGE-") for _, measure in cells],
        "F1": [f"{getattr(row, measure):.2f}" for row, measure in cells],
    }
    resampled = rows[0].intervals is not None
    if resampled:
        columns["95 % interval"] = [_interval(*row.intervals[measure]) for row, measure in cells if row.intervals]
        notes = [f"95 % interval: percentiles over {bootstrap} resamples of the summaries."]
    else:
        notes = why_no_interval(bootstrap, len(answers), "summaries")
    if len(rows) > 1:
        columns["above first"] = [_above(row.above_first, measure) for row, measure in cells]
        end = ", with the 95 % interval over the same resamples." if resampled else "."
        notes.append(f"above first: F1 minus that of the first hypothesis{end}")
    return ScoreTable(rows, {"references": [text.name for text in references]}, bootstrap, format, columns, notes)


def _above(above_first: Mapping[str, Above] | None, measure: str) -> str:
    if above_first is None:
        return ""
    above = above_first[measure]
    end = f" ({_interval(*above.interval, sign='+')})" if above.interval else ""
    return f"{above.difference:+.2f}{end}"


def _interval(low: float, high: float, sign: str = "") -> str:
    return f"{low:{sign}.2f} to {high:{sign}.2f}"
