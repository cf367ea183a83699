"""Score texts with summaries against references by ROUGE, and each hypothesis against the first."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hf_attncal.data.texts import ScoredText

from .rouge import ROUGE, ROUGE_MEASURES, RougeScore, rouge_counts, rouge_signature
from .tables import SEED, ScoreTable


@dataclass(frozen=True)
class Above:
    """How far a measure is above that of the first hypothesis, with the 95 % interval on the same resamples."""

    difference: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class SummaryScore(RougeScore):
    """Scores of one of several hypotheses.

    Args:
        hypothesis: its name.
        above_first: for each measure, how far it is above that of the first hypothesis; None for the first itself.
    """

    hypothesis: str = ""
    above_first: Mapping[str, Above] | None = None


class SummaryScores(ScoreTable):
    """Scores of summaries, which print as a table or as JSON; rows are `SummaryScore`."""

    rows: Sequence[SummaryScore]
    units = "summaries"

    def columns_and_notes(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return one row for each hypothesis and measure."""
        cells = [(row, measure) for row in self.rows for measure in ROUGE_MEASURES]
        columns = {
            "hypothesis": [row.hypothesis for row, _ in cells],
            "measure": [measure.replace("rouge", "ROUGE-") for _, measure in cells],
            "F1": [f"{getattr(row, measure):.2f}" for row, measure in cells],
        }
        notes = []
        resampled = self.rows[0].intervals is not None
        if resampled:
            columns["95 % interval"] = [_interval(*row.intervals[measure]) for row, measure in cells]
            notes.append(f"95 % interval: percentiles over {self.bootstrap} resamples of the summaries.")
        else:
            notes += self.why_no_interval()
        if len(self.rows) > 1:
            columns["above first"] = [_above(row.above_first and row.above_first[measure]) for row, measure in cells]
            end = ", with the 95 % interval over the same resamples." if resampled else "."
            notes.append(f"above first: F1 minus that of the first hypothesis{end}")
        return columns, notes


def score_summaries(
    references: Sequence[ScoredText],
    hypotheses: Sequence[ScoredText],
    *,
    tokenize: str = "rouge",
    stemmer: bool = False,
    bootstrap: int = 1000,
    format: str = "text",
) -> SummaryScores:
    """Score hypotheses against one or more references of each summary, and each against the first.

    Args:
        references, hypotheses: a summary a line.
        tokenize, stemmer, bootstrap: see `rouge`.
        format: how the scores print: "text" or "json".

    Warns:
        UserWarning: summaries without a reference that has text.

    Raises:
        CommandError: different numbers of lines.
    """
    for text in (*references, *hypotheses):
        text.check_length()
    names, settings = [text.told for text in references], {"tokenize": tokenize, "stemmer": stemmer}
    answers = list(zip(*(text.lines for text in references), strict=True))
    empty = [number for number, texts in enumerate(answers, 1) if not any(map(str.strip, texts))]
    if empty:
        warnings.warn(
            f"{' and '.join(names)}: {len(empty)} of {len(answers)} lines have no text, the first is line {empty[0]}. "
            "Whatever the summary, it scores 0 there.",
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
    return SummaryScores(rows, {"references": [text.name for text in references]}, len(answers), bootstrap, format)


def _above(above: Above | None) -> str:
    if above is None:
        return ""
    end = f" ({_interval(*above.interval, sign='+')})" if above.interval else ""
    return f"{above.difference:+.2f}{end}"


def _interval(low: float, high: float, sign: str = "") -> str:
    return f"{low:{sign}.2f} to {high:{sign}.2f}"
