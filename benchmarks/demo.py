"""How long `attncal demo` takes, alone and beside other work, with several ways to use the cores.

    python benchmarks/demo.py                                    # the whole demo as it is: some ten minutes
    python benchmarks/demo.py --ways as_it_is spinning one_thread --steps 100
    python benchmarks/demo.py --ways as_it_is --loads 0 --steps 3    # does it run?

The other work is busy loops, one process each. `spinning` is PyTorch's own choice: a thread for each core, which
spins while it waits. Run it on a machine that has nothing else to do; the load before each run is stated.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common

CORES = str(os.cpu_count())
WAYS = {
    "as_it_is": {},
    "one_thread": {"OMP_NUM_THREADS": "1"},
    "passive": {"OMP_NUM_THREADS": CORES, "OMP_WAIT_POLICY": "passive"},
    "spinning": {"OMP_NUM_THREADS": CORES, "GOMP_SPINCOUNT": "300000"},
}
# What the demo says as soon as it knows how long it takes.
ESTIMATE = "will take about"


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` processes busy until the end of the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_demo(way: str, load: int, steps: int) -> dict:
    """Return the seconds of a demo, when it told how long it takes (None: never), and the load before it."""
    policies = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    environment = {name: value for name, value in os.environ.items() if name not in policies}
    environment |= {"PYTHONUNBUFFERED": "1", **WAYS[way]}
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, busy_loops(load):
        code = f"import hf_attncal; print(hf_attncal.demo(output={folder!r}, steps={steps}))"
        command = [sys.executable, "-c", code]
        started, told = time.monotonic(), None
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as demo:
            for line in demo.stdout:
                if told is None and ESTIMATE in line:
                    told = time.monotonic() - started
        if demo.returncode:
            raise RuntimeError(f"`attncal demo` ended with {demo.returncode}.")
    return {
        "way": way,
        "busy_loops": load,
        "seconds": round(time.monotonic() - started, 1),
        "told_after_seconds": told and round(told, 1),
        "load_average_before": round(before, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["as_it_is"])
    parser.add_argument("--loads", nargs="+", type=int, default=[0, 2], metavar="N", help="busy loops beside")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_demo_cpu.json")
    args = parser.parse_args()
    head, runs = common.record("demo", args), []
    for load in args.loads:
        for way in args.ways:
            runs.append(run_demo(way, load, args.steps))
            print(runs[-1], flush=True)
    common.save(args, head | {"runs": runs})


if __name__ == "__main__":
    main()
