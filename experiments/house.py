"""Count what the code costs to read and to test: lines, files, what commands reach, functions on the way, minutes.

    python experiments/house.py --output results/house.json
    python experiments/house.py --output results/house.json --tests

A line of code is a line with a token that is no docstring and no comment. `experiments/reach.py` defines what a
command reaches, `experiments/walks.py` what a stop is, and `tests/prose.py` which turns of phrase are counted. With
`--tests`, the tests of `make test` run first, on every core, natively and as on a processor with AVX2 and no more, and
mypy; without it, those figures of an earlier file are kept.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import reach
import walks

from hf_attncal.command_table import COMMANDS
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records

sys.path.append(str(walks.ROOT / "tests"))
import prose

ROOMS = ("hf_attncal", "tests", "experiments", "benchmarks")


# What makes a processor compute as an older one does; the Makefile has the same.
PROCESSORS = {
    "native": {},
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "CT2_USE_MKL": "0",
    },
}


def run_tests(processor: str) -> dict[str, float | int]:
    """Run the tests of `make test` as on a processor of `PROCESSORS`.

    Returns:
        The minutes of wall clock, the number of processes, and how many tests passed and failed.
    """
    processes = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "--dist", "worksteal", "-m", "not slow"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | PROCESSORS[processor]
    started = time.monotonic()
    done = subprocess.run(command, cwd=walks.ROOT, env=environment, stdout=subprocess.PIPE)
    minutes = (time.monotonic() - started) / 60
    last_line = done.stdout.decode().rstrip().splitlines()[-1]
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|error)", last_line)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return {"minutes": round(minutes, 1), "processes": processes, "passed": counts["passed"], "failed": failed}


def type_errors() -> int:
    """Return the number of errors that mypy finds in the package."""
    command = [sys.executable, "-m", "mypy", "--follow-imports=normal", "hf_attncal"]
    done = subprocess.run(command, cwd=walks.ROOT, stdout=subprocess.PIPE)
    found = re.search(r"Found (\d+) error", done.stdout.decode())
    return int(found[1]) if found else 0


def main(arguments: list[str] | None = None) -> None:
    """Count, and write the results file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="results file")
    parser.add_argument(
        "--tests",
        nargs="*",
        choices=PROCESSORS,
        metavar="PROCESSOR",
        help=f"run the tests first, as on these processors ({', '.join(PROCESSORS)}; without a name: all), and mypy",
    )
    options = parser.parse_args(arguments)
    results = records.record({})
    if options.output.exists():
        earlier = json.loads(options.output.read_text(encoding="utf-8"))
        results |= {name: earlier[name] for name in ("tests", "types") if name in earlier}
    if options.tests is not None:
        for processor in options.tests or PROCESSORS:
            results.setdefault("tests", {})[processor] = {**run_tests(processor), "commit": results["commit"]}
        results["types"] = {"errors": type_errors()}
    results["lines_of_code"] = {
        room: sum(reach.lines_of_code(path.read_text(encoding="utf-8")) for path in (walks.ROOT / room).rglob("*.py"))
        for room in ROOMS
    }
    results["files"] = len(reach.files())
    results["reach"] = {name: {"lines": reach.reached_lines(reach.module_of(name))} for name in COMMANDS}
    results["prose"] = prose.counts()
    results["words"] = {
        "readme": len((walks.ROOT / "README.md").read_text(encoding="utf-8").split()),
        "docs": sum(
            len(path.read_text(encoding="utf-8").split())
            for pattern in ("*.md", "api/*.rst")
            for path in (walks.ROOT / "docs").glob(pattern)
        ),
    }
    results["walks"] = {}
    for name, walk in walks.WALKS.items():
        with TemporaryDirectory() as folder:
            stops = walk(Path(folder))
        results["walks"][name] = {"stops": len(stops), "files": len({stop.file for stop in stops})}
    write_json(results, options.output)


if __name__ == "__main__":
    main()
