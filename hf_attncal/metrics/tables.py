"""Tables of scores, which print as text or as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_attncal.drawing.page import text_table

from .base import FEWEST_SENTENCES

SEED = 0  # of the bootstrap: the same files always give the same intervals


@dataclass(frozen=True)
class ScoreTable:
    """Scores of one or several hypotheses, which print as a table or as JSON.

    Args:
        rows: scores of each hypothesis: dataclasses with `hypothesis`, its name, and `signature`.
        against: names of the references.
        bootstrap: number of resamples; 0 for none.
        format: how they print: "text" or "json".
        columns: heading -> cells of the table.
        notes: lines below the table.
    """

    rows: Sequence[Any]
    against: Mapping[str, Any]
    bootstrap: int
    format: str
    columns: Mapping[str, list[str]]
    notes: Sequence[str]

    def __str__(self) -> str:
        """Return all scores as JSON in ASCII, not rounded, or a table with notes and the signatures."""
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
    """Return the column of the intervals of rows, and the note that explains it; without intervals, why.

    Args:
        rows: scores with `interval`.
        measure: name of the score.
        bootstrap: number of resamples.
        count: number of units.
        units: what is resampled, such as "sentence pairs".
        scale: factor of the bounds.
    """
    if rows[0].interval is None:
        return {}, why_no_interval(bootstrap, count, units)
    bounds = [[scale * bound for bound in row.interval] for row in rows]
    note = f"95 % interval: percentiles of {measure} over {bootstrap} resamples of the {units}."
    return {"95 % interval": [f"{low:.1f} to {high:.1f}" for low, high in bounds]}, [note]


def comparison_columns(rows: Sequence[Any], measure: str, better: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns that compare rows with the first, and the notes that explain them; none for a single row.

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
        f"better than first: share of the same resamples in which {measure} is {better} than that of the first "
        "hypothesis;",
        f"a tie is not better. p: of a two-sided paired bootstrap test that both have the same {measure}.",
    ]


def why_no_interval(bootstrap: int, count: int, units: str) -> list[str]:
    """Return the note about an interval that could not be computed; none where nobody asked for one."""
    few = f"{count} {units} are too few, {FEWEST_SENTENCES} or more are needed."
    return [f"No interval and no comparison: {few}"] if bootstrap else []
