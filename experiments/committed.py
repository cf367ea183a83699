"""The committed results: where they are, and what becomes of their numbers when they are printed.

Every file is what `hf_attncal.metrics.records.record` begins (`config`, `software`, `hardware`, `data_sha256`) and the
numbers of one run; a file that begins with `what` is a note made by hand.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
NOT_RUN = "not run"


def read(name: str) -> dict | list | None:
    """The content of `results/<name>.json`, or `None`."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_all(pattern: str) -> dict[str, dict]:
    """Name -> content of every file of `results/` that a pattern like `multi30k/gated_seed*` fits, in order."""
    names = [path.relative_to(RESULTS).with_suffix("").as_posix() for path in sorted(RESULTS.glob(f"{pattern}.json"))]
    return {name: read(name) for name in names}


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose first column is a name and whose others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent_with_interval(value: float, interval: list[float] | None) -> str:
    """`8.1 (7.2 to 9.0)`, in percent."""
    if interval is None:
        return f"{100 * value:.1f}"
    return f"{100 * value:.1f} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
