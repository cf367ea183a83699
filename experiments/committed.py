"""The committed results: where they are, and what becomes of their numbers when they are printed.

Every file is what `hf_attncal.metrics.records.record` begins (`config`, `software`, `hardware`, `data_sha256`) and the
numbers of one run; a file that begins with `what` is a note made by hand.
"""

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
NOT_RUN = "not run"


def read(name: str) -> Any:
    """Return the content of `results/<name>.json`, or `None`. It is kept: who changes it needs a copy."""
    path = RESULTS / f"{name}.json"
    return _read(path, path.stat().st_mtime_ns) if path.exists() else None


@cache
def _read(path: Path, changed: int) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def markdown(header: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """A Markdown table whose first column (or the first `texts` columns) is text and whose others are numbers."""
    lines = [header, ["---"] * texts + ["---:"] * (len(header) - texts), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent_with_interval(value: float, interval: list[float] | None) -> str:
    """`8.1 (7.2 to 9.0)`, in percent."""
    if interval is None:
        return f"{100 * value:.1f}"
    return f"{100 * value:.1f} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


def with_p_value(compared: dict) -> str:
    """`+0.51 (p 0.23)`, by which BLEU is above a baseline; `p < 0.01` where it would be rounded to nothing."""
    p = compared["p_value"]
    told = "no p" if p is None else "p < 0.01" if p < 0.005 else f"p {p:.2f}"
    return f"{compared['minus_baseline']:+.2f} ({told})"


def mean_and_spread(values: list[float], form: str = ".2f") -> str:
    """`35.12`, or `35.12 ± 0.20 (2 seeds)` with half the range."""
    mean = f"{statistics.fmean(values):{form}}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {(max(values) - min(values)) / 2:{form}} ({len(values)} seeds)"


def device(result: dict) -> str:
    """What a benchmark ran on."""
    hardware = result["hardware"]
    return hardware.get("gpu") or f"{hardware['cpu']}, {hardware['threads']} thread(s)"


def conditions(result: dict) -> str:
    """Where and how a benchmark ran, in a few words."""
    config = result["config"]
    precision = "bf16" if config["bf16"] else "float32"
    length = config["length"] or round(config["mean_length"])  # of real text, their mean
    source = config.get("source_length") or length
    sides = f"{length}" if source == length else f"{source} and {length}"
    return f"{device(result)}, {precision}, {config['batch']} x {sides} tokens"


def ratio(value: dict | float | None) -> str:
    """`1.40 (1.38 to 1.44)` of a median with extremes, `1.21` of a number."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{value['median']:.2f} ({value['min']:.2f} to {value['max']:.2f})"
    return f"{value:.2f}"
