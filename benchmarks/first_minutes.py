"""What a stranger waits for: from `make demo` in a fresh clone to the first checked line, and from the wheel on.

    python benchmarks/first_minutes.py demo
    python benchmarks/first_minutes.py line

The clone is of the commit that is checked out, with an empty home and no settings but those of pip (`PIP_*`). Seconds
are on the clock, from `make demo` to the first verdict on the screen, downloads included; gigabytes are the folder's
on the disk by then, and `cpu_seconds_before` is what all of it took of the processor. For `line`, the wheel is
installed beside the packages of this Python, and one pair is aligned and checked, several times: seconds of the
processor, user and system.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

ROOT = Path(__file__).resolve().parents[1]
FIRST = "1. "  # how the first verdict begins
PAIR = "Er trinkt jeden Morgen eine Tasse Kaffee.", "He drinks a cup of coffee every morning."


def fresh_demo(place: Path) -> dict[str, float]:
    """Clone, run `make demo` until the first verdict, and measure."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place / "clone")], check=True)
    (place / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
    started = time.monotonic()
    with subprocess.Popen(
        ["make", "demo"],
        cwd=place / "clone",
        env=kept | {"HOME": str(place / "home")},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        for line in demo.stdout:
            if line.startswith(FIRST):
                break
        else:
            raise SystemExit("`make demo` ended before its first verdict.")
        seconds = time.monotonic() - started
        os.killpg(demo.pid, signal.SIGTERM)
        demo.stdout.read()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of git, too, which takes none
    size = subprocess.run(["du", "-sk", str(place / "clone")], check=True, capture_output=True, text=True)
    return {
        "first_check_seconds": round(seconds, 1),
        "cpu_seconds_before": round(used.ru_utime + used.ru_stime, 1),
        "install_gigabytes": int(size.stdout.split()[0]) * 1024 / 1e9,
    }


def first_lines(place: Path, repeats: int) -> dict[str, dict]:
    """Install the wheel, and align and check one pair."""
    clone, site = str(place / "clone"), str(place / "site")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), clone], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(place / "dist"), clone]
    subprocess.run(build, check=True)
    (wheel,) = (place / "dist").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", site, str(wheel)], check=True)
    files = [str(place / name) for name in ("a.de", "b.en")]
    for path, line in zip(files, PAIR, strict=True):
        Path(path).write_text(f"{line}\n", encoding="utf-8")
    asked = ["--source", files[0], "--target", files[1]]
    attncal = ["env", "-u", "OMP_NUM_THREADS", f"PYTHONPATH={site}", sys.executable, "-m", "hf_attncal"]
    commands = {"align": [*attncal, "align", "run", "deen", *asked], "check": [*attncal, "check", "deen", *asked]}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            seconds[name].append(common.cpu_seconds(command))
    both = [sum(pair) for pair in zip(*seconds.values(), strict=True)]
    found = {name: common.spread(values) for name, values in (*seconds.items(), ("cpu_seconds", both))}
    return found | {"wheel_megabytes": wheel.stat().st_size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("demo", "line"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_first_PART_cpu.json")
    args = parser.parse_args()
    head = common.record(f"first_{args.part}", args)
    with tempfile.TemporaryDirectory() as folder:
        found = fresh_demo(Path(folder)) if args.part == "demo" else first_lines(Path(folder), args.repeats)
    print(found)
    common.save(args, head | found)


if __name__ == "__main__":
    main()
