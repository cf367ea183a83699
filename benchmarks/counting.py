"""CPU seconds of the word aligner that counts: start-up, one pair, learning and aligning a text; against eflomal.

    python benchmarks/counting.py --source train.en --target train.fr --pairs 20000 --eflomal eflomal-align
    python benchmarks/counting.py --source train.en --target train.fr --pairs 200 --repeats 1    # does it run?
    python benchmarks/counting.py ... --before "/elsewhere/.venv/bin/attncal"    # the start-up of another version, too

Seconds are user and system time of a process and of those that it started, from the command line to its end: what a
clock shows depends on what else the machine does. The text is lower-cased, which eflomal needs.

`learning`: `attncal align train --config hmm`, then `attncal align run` on the same pairs with the aligner that it
made; eflomal makes both directions of the links, without merging them. `start`: `attncal align run` on the first
lines, by the aligner of `learning`. `latency`: one pair after another by an aligner that stays in memory, milliseconds
of CPU of each call; the network is of the size `small`, randomly initialised.
"""

import argparse
import os
import shlex
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import quantiles

import common
import torch
from command import cpu_seconds
from network import network

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import SIZES
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.files import read_lines, sha256

ATTNCAL = [sys.executable, "-m", "hf_attncal.commands"]


def measure_learning(args: argparse.Namespace, text: list[str], folder: Path) -> dict:
    """Learn from the text and align it, by counts and by eflomal in turn; leaves an aligner in `folder`."""
    runs = {"train": [], "run": [], "eflomal": []}
    files = ["--source", text[0], "--target", text[1]]
    for number in range(args.learning_repeats):
        aligner = str(folder / f"aligner{number}")
        train = ["align", "train", "--config", "hmm", *files, "--output", aligner]
        runs["train"].append(cpu_seconds([*ATTNCAL, *train]))
        run = ["align", "run", aligner, *files, "--output", str(folder / "links")]
        runs["run"].append(cpu_seconds([*ATTNCAL, *run]))
        if args.eflomal is not None:
            links = ["-f", str(folder / "forward"), "-r", str(folder / "backward"), "--overwrite"]
            command = [*shlex.split(args.eflomal), "-s", text[0], "-t", text[1], *links]
            runs["eflomal"].append(cpu_seconds(command))
    both = [sum(seconds) for seconds in zip(runs["train"], runs["run"], strict=True)]
    measured = {
        "train_cpu_seconds": common.spread(runs["train"]),
        "run_cpu_seconds": common.spread(runs["run"]),
        "pairs_per_cpu_second_aligning": common.spread([args.pairs / seconds for seconds in runs["run"]]),
        "pairs_per_cpu_second": common.spread([args.pairs / seconds for seconds in both]),
    }
    if runs["eflomal"]:
        measured["eflomal_pairs_per_cpu_second"] = common.spread([args.pairs / s for s in runs["eflomal"]])
        ratios = [theirs / ours for theirs, ours in zip(runs["eflomal"], both, strict=True)]
        measured["ratio_to_eflomal"] = common.spread(ratios)
    return measured


def measure_start(args: argparse.Namespace, text: list[str], folder: Path) -> dict:
    """Seconds of CPU of commands of this version and of another one, in turn."""
    short = [str(folder / f"short{side}") for side in (0, 1)]
    for path, name in zip(short, text, strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in islice(read_lines(name), args.lines)), encoding="utf-8")
    files = ["--source", short[0], "--target", short[1], "--output", str(folder / "links")]
    commands = {
        "help": ["--help"],
        "run_help": ["align", "run", "--help"],
        "run": ["align", "run", str(folder / "aligner0"), *files],
    }
    installations = {"cpu_seconds": ATTNCAL}
    if args.before:
        installations["cpu_seconds_before"] = shlex.split(args.before)
    seconds = {name: {when: [] for when in installations} for name in commands}
    for _ in range(args.repeats):
        for name, arguments in commands.items():
            for when, command in installations.items():
                seconds[name][when].append(cpu_seconds([*command, *arguments]))
    return {
        name: {when: common.spread(values) for when, values in measured.items()} for name, measured in seconds.items()
    }


def measure_latency(args: argparse.Namespace, text: list[str], folder: Path) -> dict:
    """Milliseconds of CPU of `WordAligner.align` on one pair, for counts and for a network."""
    torch.set_num_threads(args.threads)
    sides = [list(islice(read_lines(name), args.latency_pairs)) for name in text]
    pairs = [pair for pair in zip(*sides, strict=True) if all(side.split() for side in pair)]
    tokenizer = train_bpe_tokenizer([line for side in sides for line in side], 500)
    aligners = {
        "hmm": WordAligner.from_pretrained(folder / "aligner0", device="cpu"),
        "small": network(tokenizer, SIZES["small"]["tokenizer"]["vocab_size"]),
    }
    measured = {}
    for name, aligner in aligners.items():
        times = []
        for pair in [*pairs[:10], *pairs]:
            start = time.process_time()
            aligner.align([pair])
            times.append(1000 * (time.process_time() - start))
        percentiles = quantiles(times[10:], n=100)
        measured[name] = {"median": percentiles[49], "p95": percentiles[94], "n": len(times) - 10}
    words = sum(len(side.split()) for pair in pairs for side in pair)
    return {"words_a_side": words / 2 / len(pairs), "cpu_milliseconds": measured}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--source", required=True, help="source sentences, one a line")
    parser.add_argument("--target", required=True, help="target sentences")
    parser.add_argument("--pairs", type=int, default=20_000, help="first pairs of them to learn from")
    parser.add_argument("--eflomal", metavar="COMMAND", help="eflomal-align; without it, ours alone")
    parser.add_argument("--before", metavar="COMMAND", help="`attncal` of another version, whose start-up is measured")
    parser.add_argument("--learning-repeats", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="of the start-up")
    parser.add_argument("--lines", type=int, default=20, help="pairs that are aligned to measure the start-up")
    parser.add_argument("--latency-pairs", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_counting_cpu.json")
    args = parser.parse_args()
    args.device = "cpu"
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    # Where files and other programs are does not matter, and the results file states no places of this machine.
    corpus = {name: Path(name).name for name in (args.source, args.target)}
    stated = {"source": corpus[args.source], "target": corpus[args.target]}
    stated |= {"before": bool(args.before), "eflomal": bool(args.eflomal)}
    result = common.record("counting", argparse.Namespace(**vars(args) | stated))
    result["data_sha256"] = {file: sha256(Path(name)) for name, file in corpus.items()}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        text = [str(folder / f"text{side}") for side in (0, 1)]
        for path, name in zip(text, (args.source, args.target), strict=True):
            lines = islice(read_lines(name), args.pairs)
            Path(path).write_text("".join(f"{line.lower()}\n" for line in lines), encoding="utf-8")
        for part, measure in (
            ("learning", measure_learning),
            ("start", measure_start),
            ("latency", measure_latency),
        ):
            result[part] = measure(args, text, folder)
            print(part, result[part], flush=True)
            common.save(args, result)


if __name__ == "__main__":
    main()
