"""Write the tables of README.md and docs/ from results/*.json.

    python benchmarks/tables.py            # rewrite them
    python benchmarks/tables.py --check    # exit with 1 if one is out of date

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. A result that is not there reads "not run".
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
DOCUMENTS = ("README.md", "docs/experiments.md")
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
NOT_RUN = "not run"
VARIANTS = ("baseline", "fixed", "annealed", "gated", "leaky", "gumbel")


def read(name: str) -> dict | None:
    """The content of `results/<name>.json`, or `None`."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose first column is a name and whose others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def mean_and_spread(values: list[float]) -> str:
    """`35.12`, or `35.12 ± 0.20 (2 seeds)` with half the range."""
    if not values:
        return NOT_RUN
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.2f} ({len(values)} seeds)"


def last_logged(run: dict, name: str) -> str:
    """The last value of a named loss in the log of a run."""
    values = [entry[name] for entry in run["log_history"] if name in entry]
    return f"{values[-1]:.3f}" if values else "-"


def multi30k() -> str:
    """BLEU of the six settings, and what the mask network and the gate had come to."""
    rows = []
    signature = ""
    for variant in VARIANTS:
        runs = [json.loads(p.read_text()) for p in sorted(RESULTS.glob(f"multi30k/{variant}_seed*.json"))]
        if not runs:
            rows.append([variant, *[NOT_RUN] * 6])
            continue
        signature = runs[0]["test"]["signature"]
        reliability = runs[0].get("attention", {}).get("reliability_level")
        rows.append(
            [
                variant,
                mean_and_spread([run["valid"]["bleu"] for run in runs]),
                mean_and_spread([run["test"]["bleu"] for run in runs]),
                last_logged(runs[0], "mask_mean"),
                last_logged(runs[0], "gate_mean"),
                f"{reliability[-1]:.3f}" if reliability else "-",
                f"{statistics.fmean(run['wall_seconds'] for run in runs) / 60:.0f}",
            ]
        )
    header = ["attention", "dev BLEU", "test BLEU", "mean mask", "mean gate", "reliability, top layer", "minutes"]
    return markdown(header, rows) + f"\nsacreBLEU `{signature}`\n"


def sweep(pattern: str, field: str, title: str) -> str:
    """Dev BLEU and the state of the mask network of short runs that differ in one setting."""
    runs = [json.loads(path.read_text()) for path in RESULTS.glob(pattern)]
    rows = [
        [
            f"{run['config']['model'][field]:g}",
            f"{run['valid']['bleu']:.2f}",
            last_logged(run, "mask_mean"),
            last_logged(run, "mask_penalty"),
            f"{run['attention']['reliability_level'][-1]:.3f}" if "attention" in run else "-",
        ]
        for run in sorted(runs, key=lambda run: run["config"]["model"][field])
    ]
    header = [title, "dev BLEU", "mean mask", "penalty", "reliability, top layer"]
    return markdown(header, rows) if rows else f"{NOT_RUN}\n"


def hardware(result: dict) -> str:
    """Where and how a benchmark ran, in a few words."""
    environment = result["environment"]
    device = environment.get("gpu") or f"{environment['cpu']}, {environment['threads']} thread(s)"
    settings = result["settings"]
    precision = "bf16" if settings["bf16"] else "float32"
    return f"{device}, {precision}, {settings['batch']} x {settings['length']} tokens"


def ratio(value: dict | float | None) -> str:
    """`1.40 (1.38 to 1.44)` of a median with extremes, `1.21` of a number."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{value['median']:.2f} ({value['min']:.2f} to {value['max']:.2f})"
    return f"{value:.2f}"


def benchmark(name: str, columns: dict[str, str]) -> str:
    """Ratios to the stock model for every committed device; `columns` gives the key of each heading's number."""
    rows = []
    for path in sorted(RESULTS.glob(f"benchmark_{name}_*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        for variant, measured in result["variants"].items():
            rows.append([variant, *(ratio(measured.get(key)) for key in columns.values()), hardware(result)])
    return markdown(["attention", *columns, "hardware"], rows) if rows else f"{NOT_RUN}\n"


TABLES: dict[str, Callable[[], str]] = {
    "multi30k": multi30k,
    "alpha": lambda: sweep("multi30k/alpha_*.json", "mask_penalty", "alpha"),
    "lambda": lambda: sweep("multi30k/lambda_*.json", "calibration_weight", "lambda"),
    "training": lambda: benchmark("training", {"training step": "time_ratio", "peak memory": "memory_ratio"}),
    "generation": lambda: benchmark("generation", {"tokens per second, 4 beams": "speed_ratio"}),
}


def fill(text: str) -> str:
    """`text` with every table in it written anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block['name']]()}{block[3]}", text)


def main() -> int:
    """Rewrite or check the documents; the number of those out of date is the exit status of a check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            stale.append(name)
            if not check:
                path.write_text(filled, encoding="utf-8")
    print(f"{'out of date' if check else 'rewritten'}: {', '.join(stale) or 'none'}")
    return len(stale) if check else 0


if __name__ == "__main__":
    sys.exit(main())
