"""Count what the code costs to read and to test: lines, files, what commands reach, functions on the way, minutes.

    python experiments/house.py --output results/house.json
    python experiments/house.py --tests --output results/house.json

A line of code is a line with a token that is no docstring and no comment; `experiments/reach.py` says what a command
reaches, and `experiments/walks.py` what a stop is. With `--tests` the tests of `make test` run first, on every core,
and their minutes of wall clock are written too; without it those of an earlier file are kept.
"""

import argparse
import json
import os
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

ROOMS = ("hf_attncal", "tests", "experiments", "benchmarks")


def run_tests() -> dict[str, float | int | str]:
    """Run the tests of `make test`; return the minutes they took, the number of processes and the last line of pytest.

    Raises:
        SystemExit: a test fails.
    """
    processes = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "--dist", "worksteal", "-m", "not slow"]
    started = time.monotonic()
    done = subprocess.run(command, cwd=walks.ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE)
    minutes = (time.monotonic() - started) / 60
    last_line = done.stdout.decode().rstrip().splitlines()[-1].strip("= ")
    if done.returncode:
        raise SystemExit(f"The tests failed: {last_line}")
    return {"minutes": round(minutes, 1), "processes": processes, "result": last_line}


def main(arguments: list[str] | None = None) -> None:
    """Count, and write the results file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="results file")
    parser.add_argument("--tests", action="store_true", help="run the tests first, and write how long they took")
    options = parser.parse_args(arguments)
    results = records.record({})
    if options.tests:
        results["tests"] = run_tests()
    elif options.output.exists():
        results["tests"] = json.loads(options.output.read_text(encoding="utf-8")).get("tests")
    results["lines_of_code"] = {
        room: sum(reach.lines_of_code(path.read_text(encoding="utf-8")) for path in (walks.ROOT / room).rglob("*.py"))
        for room in ROOMS
    }
    results["files"] = len(reach.files())
    results["reach"] = {name: {"lines": reach.reached_lines(reach.module_of(name))} for name in COMMANDS}
    results["walks"] = {}
    for name, walk in walks.WALKS.items():
        with TemporaryDirectory() as folder:
            stops = walk(Path(folder))
        results["walks"][name] = {"stops": len(stops), "files": len({stop.file for stop in stops})}
    write_json(results, options.output)


if __name__ == "__main__":
    main()
