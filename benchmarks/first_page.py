"""Minutes from a wheel to a shared page of one's own model, step by step, as someone new would go.

    python benchmarks/first_page.py --output results/first_page.json
    python benchmarks/first_page.py --attncal .venv/bin/attncal --pairs 200 --output page.json training.max_steps=2

Builds the wheel, installs it in an empty environment with the versions of constraints.txt, trains a gated model on two
files of text, writes its report, and publishes the report as a Space on a Hub of tests. The text is of the generated
language of `attncal demo`. Minutes of wall clock depend on what else the machine does and on how near the package
index is; those of the CPU do not.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / place) for place in (".", "tests/hub")]

from local_hub import Hub

from hf_attncal.data.synthetic.english_german import generate_split, write_pairs
from hf_attncal.files import write_json
from hf_attncal.metrics import records

ROOT = Path(__file__).resolve().parents[1]
NAME = "someone/first-page"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--pairs", type=int, default=20_000, help="of the text to train on")
    parser.add_argument("--minutes", type=float, default=2, help="of training")
    parser.add_argument("--attncal", help="use this installation; wheel and environment are then not made")
    parser.add_argument("settings", nargs="*", help="of the training, as setting=value")
    options = parser.parse_args()
    config = {"pairs": options.pairs, "minutes": options.minutes, "installed": options.attncal is None}
    head = records.record(config)
    with tempfile.TemporaryDirectory() as place, Hub() as hub:
        steps = walk(Path(place), hub, options)
    minutes = round(sum(step["minutes"] for step in steps.values()), 2)
    write_json(head | {"steps": steps, "minutes": minutes}, options.output)
    for name, step in steps.items():
        print(f"{step['minutes']:6.2f} min, {step['cpu_minutes']:6.2f} of the CPU   {name}")
    print(f"{minutes:6.2f} min in all; wrote {options.output}")


def walk(place: Path, hub: Hub, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Take all steps in the folder `place`; return the minutes of each.

    Raises:
        SystemExit: a step fails, or what the Hub has is not the report.
    """
    text = generate_split(options.pairs, 50, 1, seed=1)
    for name, pairs in (("", text.train), ("dev.", text.valid)):
        write_pairs(pairs, place / f"{name}source.txt", place / f"{name}target.txt")
    steps: dict[str, dict[str, float]] = {}
    program = str(Path(options.attncal).absolute()) if options.attncal else install(place, steps)
    train = [program, "train", "--source", "source.txt", "--target", "target.txt", "--output", "model"]
    train += ["--calibration", "gated", "--minutes", str(options.minutes), *options.settings]
    analyze = [program, "analyze", "model", "--source", "dev.source.txt", "--target", "dev.target.txt"]
    steps["train a model"] = timed(train, place)
    steps["write its report"] = timed([*analyze, "--report", "report.html"], place)
    served = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "x", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    steps["publish the report"] = timed([program, "publish", "report.html", NAME, "--space"], place, **served)
    if hub.repositories[f"spaces/{NAME}"].files("main")["index.html"] != (place / "report.html").read_bytes():
        raise SystemExit("The page on the Hub is not the report.")
    return steps


def install(place: Path, steps: dict[str, dict[str, float]]) -> str:
    """Build the wheel and install it in an empty environment; return the path of `attncal` there."""
    pip = [sys.executable, "-m", "pip", "--quiet"]
    steps["build the wheel"] = timed([*pip, "wheel", "--no-deps", "-w", "dist", str(ROOT)], place)
    (wheel,) = (place / "dist").iterdir()
    venv.create(place / "empty", with_pip=True)
    install = [str(place / "empty" / "bin" / "python"), "-m", "pip", "--quiet", "--no-cache-dir", "install"]
    steps["install it"] = timed([*install, "-c", str(ROOT / "constraints.txt"), f"{wheel}[all]"], place)
    return str(place / "empty" / "bin" / "attncal")


def timed(command: list[str], place: Path, **environment: str) -> dict[str, float]:
    """Run a command in `place`; return its minutes of wall clock and of the CPU.

    Raises:
        SystemExit: it fails.
    """
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[1:3])} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"minutes": round((time.monotonic() - started) / 60, 3), "cpu_minutes": round(cpu / 60, 3)}


if __name__ == "__main__":
    main()
