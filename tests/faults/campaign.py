"""Try every fault, and write what became of the commands and runs that it struck to a results file.

    python tests/faults/campaign.py --output results/faults.json
    python tests/faults/campaign.py --output kills.json --only kills --seed 1
    python tests/faults/campaign.py --output results/faults.json --join kills.json others.json

Every kind of fault is a file beside this one, with `run(folder, full=True)`, which gives an `Outcome` for each fault.
The exit status is 1 if one of them is not good; `bad` in the file says which.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import outcomes

KINDS = (
    "kills",
    "signals",
    "full_disk",
    "fuzz",
    "inputs",
    "texts",
    "damaged",
    "alignments",
    "learned",
    "served",
    "outputs",
    "costs",
)


def summary(found: Sequence[outcomes.Outcome]) -> dict[str, Any]:
    """The table, what is bad, and the totals, as the results file has them."""
    table = outcomes.table(found)
    return {"table": table, "bad": outcomes.bad(found), **totals(table)}


def totals(table: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many were tried in all, and how many of them ended badly."""
    counted = {"tried": "tried", **outcomes.TOTALS}
    return {name: sum(row.get(result, 0) for row in table) for name, result in counted.items()}


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one: rows of a kind are summed, the rest is that of the last run."""
    rows: dict[str, Counter] = {}
    for part in parts:
        for row in part["table"]:
            counts = {name: count for name, count in row.items() if name != "kind"}
            rows.setdefault(row["kind"], Counter()).update(counts)
    table = [{"kind": kind, **counts} for kind, counts in rows.items()]
    runs = [
        run for part in parts for run in part["config"].get("runs") or [part["config"] | {"commit": part["commit"]}]
    ]
    return parts[-1] | {
        "config": {"kinds": sorted({kind for run in runs for kind in run["kinds"]}), "runs": runs},
        "table": table,
        "bad": [outcome for part in parts for outcome in part["bad"]],
        **totals(table),
        "wall_seconds": round(sum(part["wall_seconds"] for part in parts), 1),
    }


def main(arguments: list[str] | None = None) -> int:
    """Try the faults and write the file; the exit status is 1 if there is one that is not good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="results file")
    parser.add_argument("--only", choices=KINDS, action="append", metavar="KIND", help="this kind; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--warm", action="store_true", help="fork processes that have imported the libraries")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="sum up files of other kinds or seeds")
    options = parser.parse_args(arguments)
    if options.join:
        from hf_attncal.io.files import write_json

        write_json(joined([json.loads(path.read_text(encoding="utf-8")) for path in options.join]), options.output)
        return 0
    os.environ["ATTNCAL_FAULTS_SEED"] = str(options.seed)
    from hf_attncal.io.files import write_json
    from hf_attncal.metrics import records

    kinds = options.only or KINDS
    found: list[outcomes.Outcome] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            tried = importlib.import_module(kind).run(Path(folder) / kind, full=True)
            print(f"{kind}: {len(tried)} tried, {len(outcomes.bad(tried))} bad", flush=True)
            found += tried
    results = records.record({"kinds": list(kinds), "seed": options.seed, "warm": options.warm}) | summary(found)
    write_json(results | {"wall_seconds": round(time.monotonic() - started, 1)}, options.output)
    for outcome in results["bad"]:
        print(outcome, file=sys.stderr)
    return int(bool(results["bad"]))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # for what the tests share
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if "--warm" not in sys.argv:
        os.environ["ATTNCAL_COLD"] = "1"  # see tests/warm.py
    sys.exit(main())
