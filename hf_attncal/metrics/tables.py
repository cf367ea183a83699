"""What is printed of the scores of several hypotheses: a table with its notes, or JSON."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hf_attncal.drawing.page_text import text_table

from .base import FEWEST_SENTENCES

SEED = 0  # of the bootstrap: the same files always give the same intervals


@dataclass(frozen=True)
class ScoreTable(ABC):
    """Scores of one or several hypotheses, which print as a table or as JSON.

    Args:
        rows: scores of each hypothesis: objects with fields, of which `hypothesis` is its name.
        against: what they were scored against.
        count: number of units in each.
        bootstrap: number of resamples; 0 for none.
        format: how they print: "text" or "json".
    """

    rows: Sequence[Any]
    against: Mapping[str, Any]
    count: int
    bootstrap: int
    format: str = "text"

    units: ClassVar[str]  # what the bootstrap resamples

    def __str__(self) -> str:
        return self.as_json() if self.format == "json" else self.as_text()

    def as_json(self) -> str:
        """Return all scores, not rounded, in ASCII, which every encoding can hold."""
        bootstrap = {"resamples": self.bootstrap, "seed": SEED, "confidence": 0.95} if self.bootstrap else None
        rows = [{"hypothesis": row.hypothesis} | asdict(row) for row in self.rows]
        return json.dumps({**self.against, "bootstrap": bootstrap, "scores": rows}, indent=2)

    def as_text(self) -> str:
        """Return a table with notes that explain it, and the common signature or that of each row."""
        columns, notes = self.columns_and_notes()
        signatures = [f"{row.hypothesis}: {row.signature}" for row in self.rows]
        if len({row.signature for row in self.rows}) == 1:
            signatures = [self.rows[0].signature]
        return "\n".join([*text_table(columns), "", *notes, *signatures])

    @abstractmethod
    def columns_and_notes(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return heading -> cells of the table, and the notes below it."""

    def why_no_interval(self) -> list[str]:
        """Return the note about an interval that could not be computed; none where nobody asked for one."""
        if not self.bootstrap:
            return []
        few = f"{self.count} {self.units} are too few, {FEWEST_SENTENCES} or more are needed."
        return [f"No interval and no comparison: {few}"]
