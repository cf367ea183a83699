"""CPU seconds of `attncal` where little is computed: help, version, a usage error, scoring, a check by counts.

    python benchmarks/command.py
    python benchmarks/command.py --before "/elsewhere/.venv/bin/attncal"    # and of another installation
    python benchmarks/command.py --repeats 1 --lines 20 --bootstrap 10      # does it run?

Seconds are user and system time of the process and of those that it started. Every repetition runs all commands, of
both installations in turn. What is scored are generated links: random ones, half of them those of the gold alignment.
What is checked is a text of the synthetic English-German language, by an aligner that counted another one.
"""

import argparse
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import numpy as np
from rich.progress import track

import hf_attncal
from hf_attncal.data.synthetic.english_german import generate_split, write_pairs

LIMITS = {"check": 2.6}  # PyTorch is most of it
LIMIT = 1.0  # of the others
LEARNED = 1000  # pairs that the aligner counts
WORDS = 20  # of every sentence
# The exit status of each command.
STATUS = {"help": 0, "version": 0, "usage_error": 2, "score": 0, "check": 0}


def cpu_seconds(command: list[str], status: int = 0) -> float:
    """User and system time of a command.

    Raises:
        RuntimeError: it ended with another status than `status`.
    """

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != status:
        raise RuntimeError(f"`{shlex.join(command)}` ended with {run.returncode}, not {status}:\n{run.stderr}")
    return used() - before


def write_links(folder: Path, lines: int, seed: int) -> tuple[Path, Path]:
    """A gold alignment and a hypothesis, Pharaoh, one link for each target word."""
    random = np.random.default_rng(seed)
    gold, other = random.integers(0, WORDS, (2, lines, WORDS))
    kept = random.random(gold.shape) < 0.5
    paths = folder / "gold.align", folder / "links"
    for path, sources in zip(paths, (gold, np.where(kept, gold, other)), strict=True):
        text = "".join(" ".join(f"{i}-{j}" for j, i in enumerate(row)) + "\n" for row in sources.tolist())
        path.write_text(text, encoding="utf-8")
    return paths


def make_aligner(folder: Path, lines: int, seed: int) -> list[str]:
    """An aligner that counts and has learned to check; the arguments of a check of so many other lines."""
    split = generate_split(LEARNED, lines, 0, seed)
    for name, pairs in (("train", split.train), ("text", split.valid)):
        write_pairs(pairs, folder / f"{name}.en", folder / f"{name}.de")
    learned = [str(folder / f"train.{side}") for side in ("en", "de")]
    hf_attncal.train_aligner(config="hmm", source=learned[0], target=learned[1], output=folder / "aligner")
    hf_attncal.check(folder / "aligner", clean_source=learned[0], clean_target=learned[1])
    return [str(folder / "aligner"), "--source", str(folder / "text.en"), "--target", str(folder / "text.de")]


def measure(args: argparse.Namespace) -> dict[str, dict]:
    """For every command the seconds of each repetition, and median and extremes, of one installation or of two."""
    installations = {"cpu_seconds": [sys.executable, "-m", "hf_attncal"]}
    if args.before:
        installations["cpu_seconds_before"] = shlex.split(args.before)
    with tempfile.TemporaryDirectory() as folder:
        links = map(str, write_links(Path(folder), args.lines, args.seed))
        commands = {
            "help": ["--help"],
            "version": ["--version"],
            "usage_error": ["align"],
            "score": ["score", *links, "--bootstrap", str(args.bootstrap)],
            "check": ["check", *make_aligner(Path(folder), args.lines, args.seed)],
        }
        seconds = {name: {installation: [] for installation in installations} for name in commands}
        for _ in track(range(args.warmup + args.repeats), description="commands"):
            for name, arguments in commands.items():
                for installation, command in installations.items():
                    seconds[name][installation].append(cpu_seconds([*command, *arguments], STATUS[name]))
    return {
        name: {
            key: value
            for installation, values in measured.items()
            for key, value in (
                (installation, common.spread(values[args.warmup :])),
                (f"{installation}_each", values[args.warmup :]),
            )
        }
        for name, measured in seconds.items()
    }


def report(commands: dict[str, dict]) -> None:
    rows = []
    for name, measured in commands.items():
        now, before = measured["cpu_seconds"], measured.get("cpu_seconds_before")
        rows.append(
            [
                name,
                "-" if before is None else f"{before['median']:.2f}",
                f"{now['median']:.2f}",
                f"{now['min']:.2f} - {now['max']:.2f}",
                common.verdict(now["median"], LIMITS.get(name, LIMIT)),
            ]
        )
    common.show("CPU seconds", ["command", "before", "now", "min - max", "limit"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--before", metavar="COMMAND", help="`attncal` of another installation, measured in turn")
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of every command")
    parser.add_argument("--warmup", type=int, default=1, help="runs before those")
    parser.add_argument("--lines", type=int, default=500, help="sentence pairs to score, or to check")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples of the score's interval")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_command_cpu.json")
    args = parser.parse_args()
    # Where the other installation is does not matter, and the results file states no places of this machine.
    head = common.record("command", argparse.Namespace(**vars(args) | {"before": bool(args.before)}))
    commands = measure(args)
    report(commands)
    common.save(args, head | {"commands": commands})


if __name__ == "__main__":
    main()
