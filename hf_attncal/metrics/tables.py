"""Score tables, printed as text or JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_attncal.drawing.page import text_table

from .base import FEWEST_SENTENCES

SEED = 0  # fixed, so that the same files always give the same intervals


@dataclass(frozen=True)
class ScoreTable:
    """Scores of one or more hypotheses, printed as a table or JSON.

    Args:
        rows: scores of each hypothesis, dataclasses with `hypothesis` (the name) and `signature`.
        against: names of the references.
        bootstrap: number of resamples; 0 for none.
        format: output format, "text" or "json".
        columns: heading -> cells.
        notes: lines below the table.
    """

    rows: Sequence[Any]
    against: Mapping[str, Any]
    bootstrap: int
    format: str
    columns: Mapping[str, list[str]]
    notes: Sequence[str]

    def __str__(self) -> str:
        """Return all scores as ASCII JSON, not rounded, or as a table with notes and signatures."""
        if self.format == "json":
            bootstrap = {"resamples": self.bootstrap, "seed": SEED, "confidence": 0.95} if self.bootstrap else None
            rows = [{"hypothesis": row.hypothesis} | asdict(row) for row in self.rows]
            return json.dumps({**self.against, "bootstrap": bootstrap, "scores": rows}, indent=2)
        signatures = [f"{row.hypothesis}: {row.signature}" for row in self.rows]
        if len({row.signature for row in self.rows}) == 1:
            signatures = [self.rows[0].signature]
        return "\n".join([*text_table(self.columns), "", *self.notes, *signatures])


def interval_columns(
    rows: Sequence[Any], measure: str, bootstrap: int, count: int, units: str, scale: float = 1
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the column of intervals with the note below it, or no column and a note with the reason.

    Args:
        rows: scores with `interval`.
        measure: name of the score.
        bootstrap: number of resamples.
        count: number of units.
        units: name of the resampled units, such as "sentence pairs".
        scale: factor for the bounds. Default: 1.
    """
    if rows[0].interval is None:
        return {}, why_no_interval(bootstrap, count, units)
    bounds = [[scale * bound for bound in row.interval] for row in rows]
    note = f"95 % interval: percentiles of {measure} over {bootstrap} resamples of the {units}."
    return {"95 % interval": [f"{low:.1f} to {high:.1f}" for low, high in bounds]}, [note]


def comparison_columns(rows: Sequence[Any], measure: str, better: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns that compare rows with the first, and their notes; both empty for a single row.

    Args:
        rows: scores with `interval`, `better_than_first` and `p_value`.
        measure: name of the score.
        better: "lower" or "higher".
    """
    if rows[0].interval is None or len(rows) < 2:
        return {}, []
    shares = ["" if row.better_than_first is None else f"{100 * row.better_than_first:.1f}" for row in rows]
    p_values = ["" if row.p_value is None else f"{row.p_value:.3f}" for row in rows]
    return {"better than first": shares, "p": p_values}, [
        f"better than first: share of the same resamples in which {measure} is {better} than the first hypothesis's, "
        "without ties.",
        f"p: p-value of a two-sided paired bootstrap test that both have the same {measure}.",
    ]


def why_no_interval(bootstrap: int, count: int, units: str) -> list[str]:
    """Return the note about intervals that could not be computed; empty without resamples."""
    return (
        [f"No intervals or comparisons: needs at least {FEWEST_SENTENCES} {units}, got {count}."] if bootstrap else []
    )
