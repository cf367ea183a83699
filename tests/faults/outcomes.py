"""What a fault left behind: the one record that every kind of fault in this folder is counted by."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Result = Literal["survived", "refused", "lost", "wrong", "leaked", "run_unasked", "traceback", "hung"]
GOOD = ("survived", "refused")
# Totals of a results file, and the result that each counts.
TOTALS: dict[str, Result] = {
    "lost": "lost",
    "wrong": "wrong",
    "leaked": "leaked",
    "run_unasked": "run_unasked",
    "tracebacks": "traceback",
    "hung": "hung",
}


@dataclass(frozen=True)
class Outcome:
    """One fault that was tried.

    Attributes:
        kind: the row of the table ("kill at a system call", "fuzzed lines of score").
        case: what was done, so that it can be done again.
        result: "survived": the right answer all the same; "refused": an error that names the cause, and nothing lost;
            "lost": something that was complete before is gone, or what is right was refused; "wrong": an answer that
            is not right and an exit status that says it is, or an error that does not say what it is about; "leaked":
            what must not leave the machine would go up; "run_unasked": code of the folder ran; "traceback": Python's
            words in place of an error; "hung": no end in time.
        detail: what was seen, of a result that is not good.
    """

    kind: str
    case: str
    result: Result
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.result in GOOD


def table(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """One row a kind: how many were tried, and how often each result was seen."""
    rows: dict[str, Counter] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.kind, Counter())[outcome.result] += 1
    return [{"kind": kind, "tried": sum(counts.values()), **counts} for kind, counts in rows.items()]


def bad(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Those that should not be, as plain data."""
    return [asdict(outcome) for outcome in outcomes if not outcome.good]
