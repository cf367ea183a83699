"""What commands print of scores: a table with its notes, or JSON."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .base import FEWEST_SENTENCES

SEED = 0  # of the bootstrap: the same files always give the same intervals


@dataclass(frozen=True)
class ScoreTable(ABC):
    """Scores of one or several hypotheses, which print as a table or as JSON.

    Args:
        rows: scores of each hypothesis: objects with fields, of which `hypothesis` is its name.
        against: what they were scored against.
        bootstrap: number of resamples; 0 for none.
        format: how they print: "text" or "json".
    """

    rows: Sequence[Any]
    against: Mapping[str, Any]
    bootstrap: int
    format: str = "text"

    def __str__(self) -> str:
        return self.as_json() if self.format == "json" else self.as_text()

    def as_json(self) -> str:
        """Return all scores, not rounded, in ASCII, which every encoding can hold."""
        bootstrap = {"resamples": self.bootstrap, "seed": SEED, "confidence": 0.95} if self.bootstrap else None
        rows = [{"hypothesis": row.hypothesis} | asdict(row) for row in self.rows]
        return json.dumps({**self.against, "bootstrap": bootstrap, "scores": rows}, indent=2)

    @abstractmethod
    def as_text(self) -> str:
        """Return a table with notes that explain it, and the signatures."""

    def column(self, field: str, form: str) -> list[str]:
        """Return one cell a row: the field in a format, or nothing where it is None."""
        return ["" if (value := getattr(row, field)) is None else f"{value:{form}}" for row in self.rows]

    def signatures(self) -> list[str]:
        """Return the common signature of all rows, or that of each row if they differ."""
        if len({row.signature for row in self.rows}) == 1:
            return [self.rows[0].signature]
        return [f"{row.hypothesis}: {row.signature}" for row in self.rows]


def too_few_units(count: int, what: str) -> str:
    """Explain to the reader of a table why there is no interval.

    Args:
        count: number of units.
        what: name of the units that the bootstrap resamples.
    """
    return f"No interval and no comparison: {count} {what} are too few, {FEWEST_SENTENCES} or more are needed."
