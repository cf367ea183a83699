"""A corpus of any size through `attncal align run --tokenize --shard`: speed, memory, and parts that are killed.

    python benchmarks/corpus.py --model aligner --source train.en.gz --target train.fr.gz --lines 10000000 \\
        --parts 20 --kill 4 9 15 --output results/aligner/corpus.json
    python benchmarks/corpus.py ... --lines 100000 --whole           # and all of it in one run, to compare bytes
    python benchmarks/corpus.py ... --whole 1000000 --folder DIR     # of parts in DIR that are done: only compare

The text is repeated until there are so many lines, with marks of punctuation put back on their words, since published
corpora are tokenised, and compressed (.gz). Parts run in `--processes` at a time, each on one thread, and write .gz.
Those to kill get a SIGKILL after `--kill-after` seconds, and run again.

Seconds are CPU seconds of the processes that finished a part, all of them: start, tokenising, aligning, mapping
back, compressing. Memory is the resident set at its peak.

To compare, one run aligns all lines, or the first so many. Where the text is repeated, each repetition has to have the
same links, too, and with them a part far behind is as right as those that were compared.

eflomal (`--eflomal`) goes through its usual chain: text is cut into words (by ours), priors are made of what it learns
from the first `--eflomal-lines`, the next as many are aligned with them in both directions, and merged (by ours). It
samples less often where there is more text; `--eflomal-chunk` says as often as in a chunk of so many lines.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from queue import Empty, Queue

from hf_attncal.io.encoding import compressing, open_to_read
from hf_attncal.io.files import whole_file

_BEFORE = re.compile(r" ([,.;:!?%)\]»]|['’](?:s|t|re|ve|ll|d|m)\b)")
_BEHIND = re.compile(r"([(\[«]) ")


def raw(line: bytes) -> bytes:
    """A tokenised line with its marks of punctuation on words."""
    text = line.decode()
    return _BEHIND.sub(r"\1", _BEFORE.sub(r"\1", text)).encode()


def lines_of(paths: Sequence[str]) -> Iterator[bytes]:
    """Every line of some files, with its end."""
    for path in paths:
        with open_to_read(path) as file:
            yield from file


def write_corpus(paths: Sequence[str], lines: int, path: Path) -> None:
    """So many lines, the text again and again; nothing is done where the file is there."""
    if path.exists():
        return
    texts = chain.from_iterable(lines_of(paths) for _ in cycle([0]))
    with whole_file(path) as partial, compressing(open(partial, "wb")) as file:
        file.writelines(map(raw, islice(texts, lines)))


def run(command: Sequence[str], kill_after: float | None = None) -> dict[str, float] | None:
    """CPU and wall seconds, and most memory in bytes, of a command; None where it was killed."""
    environment = os.environ | {name: "1" for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")}
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    if kill_after is not None:
        threading.Timer(kill_after, process.kill).start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
    if kill_after is not None and process.returncode == -9:
        return None
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} has failed with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": time.monotonic() - began,
        "memory_bytes": usage.ru_maxrss * unit,
    }


def work(args: argparse.Namespace, base: Sequence[str], folder: Path, until: float) -> list[dict]:
    """Every part, in no order, by several workers, until the time is over; what each took, with its manifest."""
    waiting: Queue[int] = Queue()
    for number in [*args.kill, *(n for n in range(args.parts, 0, -1) if n not in args.kill)]:
        waiting.put(number)
    done = []

    def worker() -> None:
        while time.monotonic() < until:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            command = [*base, "--shard", f"{number}/{args.parts}", "--output", str(folder / "links.{}.gz")]
            killed = number in args.kill
            if killed and run(command, args.kill_after) is not None:
                raise SystemExit(f"part {number} ended before it was killed: lower --kill-after")
            left = sorted(path.name for path in folder.glob(f"links.{number:05}-of-*")) if killed else []
            found = run(command)
            manifest = json.loads((folder / f"links.{number:05}-of-{args.parts:05}.gz.json").read_text())
            done.append(manifest | found | {"killed": killed, "left_by_kill": left})
            print(f"part {number}: {manifest['lines'] / found['cpu_seconds']:.0f} pairs a CPU second", flush=True)

    workers = [threading.Thread(target=worker) for _ in range(args.processes)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    return sorted(done, key=lambda part: part["part"])


def digest(lines: Iterable[bytes]) -> str:
    """The SHA-256 of some lines."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line)
    return found.hexdigest()


def finished(args: argparse.Namespace, folder: Path) -> list[str]:
    """The files of the parts that are done, in order."""
    return [str(path) for path in sorted(folder.glob(f"links.*-of-{args.parts:05}.gz"))]


def compare(args: argparse.Namespace, text: Mapping[str, Path], folder: Path) -> dict[str, dict]:
    """Whether one run over the first lines writes what the parts say, and the parts the same of each repetition."""
    parts = finished(args, folder)
    if len(parts) != args.parts:
        raise SystemExit(f"--whole needs all parts: {len(parts)} of {args.parts} are in {folder}.")
    if args.whole != args.lines:
        text = {side: folder / f"first.{side}.gz" for side in text}
        for side, path in text.items():
            write_corpus(getattr(args, side), args.whole, path)
    one = folder / "links.gz"
    whole = {"lines": args.whole} | run([*aligning(args, text), "--output", str(one)])
    whole |= {"sha256": digest(lines_of([str(one)])), "sha256_of_parts": digest(islice(lines_of(parts), args.whole))}
    whole["same_bytes"] = whole["sha256"] == whole["sha256_of_parts"]
    found, length = {"whole": whole}, sum(1 for _ in lines_of(args.source))
    if (number := args.lines // length) > 1:
        links = lines_of(parts)
        digests = {digest(islice(links, length)) for _ in range(number)}
        found["repetitions"] = {"lines": length, "number": number, "same_bytes": len(digests) == 1}
    return found


def eflomal_chain(args: argparse.Namespace, text: Sequence[Path], folder: Path) -> dict[str, float]:
    """CPU seconds of each step, and what 100 million pairs would take without the learning of priors, in hours."""
    from hf_attncal.alignment.links import symmetrize_links
    from hf_attncal.data.pharaoh import parse_hypotheses
    from hf_attncal.data.segmentation import segment

    lines, seconds = args.eflomal_lines, {}
    names = {
        part: [folder / f"{part}.{side}" for side in ("source", "target", "forward", "backward")] for part in "ab"
    }
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(args.eflomal), os.environ["PATH"]])
    began = time.process_time()
    read = zip(*(islice(lines_of([str(path)]), 2 * lines) for path in text), strict=True)
    words = [[" ".join(segment(line.decode()).words).lower() for line in pair] for pair in read]
    seconds["segment"] = (time.process_time() - began) / 2
    for part, pairs in zip("ab", (words[:lines], words[lines:]), strict=True):
        for side in (0, 1):
            names[part][side].write_text("".join(f"{pair[side]}\n" for pair in pairs if all(pair)))
    often = ["--overwrite"]
    often += ["--length", str((lines / args.eflomal_chunk) ** 0.5)] if args.eflomal_chunk else []

    def files(part: str) -> list[str]:
        return [str(word) for both in zip(("-s", "-t", "-f", "-r"), names[part], strict=True) for word in both]

    priors = ["-p", str(folder / "priors")]
    seconds["learn"] = run([args.eflomal, *files("a"), *often])["cpu_seconds"]
    seconds["priors"] = run([f"{os.path.dirname(args.eflomal)}/eflomal-makepriors", *files("a"), *priors])[
        "cpu_seconds"
    ]
    seconds["align"] = run([args.eflomal, *files("b"), *priors, *often])["cpu_seconds"]
    began = time.process_time()
    directions = (parse_hypotheses(path.read_text().splitlines()) for path in names["b"][2:])
    merged = [symmetrize_links(*both, "grow-diag-final-and") for both in zip(*directions, strict=True)]
    seconds["symmetrize"] = time.process_time() - began
    each = sum(seconds[step] for step in ("segment", "align", "symmetrize")) / len(merged)
    return {"lines": lines, "cpu_seconds": seconds, "core_hours_per_100m": 1e8 * each / 3600}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", nargs="+", required=True)
    parser.add_argument("--target", nargs="+", required=True)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--kill", type=int, nargs="*", default=[], metavar="PART")
    parser.add_argument("--kill-after", type=float, default=60)
    parser.add_argument(
        "--whole", type=int, nargs="?", const=0, metavar="LINES", help="one run over the first, or all, to compare"
    )
    parser.add_argument("--eflomal", metavar="PATH", help="the command eflomal-align: its chain in place of ours")
    parser.add_argument("--eflomal-lines", type=int, default=100_000)
    parser.add_argument("--eflomal-chunk", type=int, metavar="LINES")
    parser.add_argument("--minutes", type=float, default=1e6, help="no part begins after so many")
    parser.add_argument("--folder", help="for text and links; without it, a temporary one")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    args.whole = args.lines if args.whole == 0 else args.whole
    if args.whole and not 0 < args.whole <= args.lines:
        parser.error(f"--whole must be from 1 to the {args.lines} --lines, got {args.whole}.")
    return args


def aligning(args: argparse.Namespace, text: Mapping[str, Path]) -> list[str]:
    """The command that aligns a text, without where links go."""
    command = [sys.executable, "-m", "hf_attncal", "align", "run", args.model, "--tokenize", "--threads", "1"]
    command += ["--batch-size", str(max(1, args.batch_tokens // 64))]
    return [*command, "--source", str(text["source"]), "--target", str(text["target"])]


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    until = time.monotonic() + 60 * args.minutes
    folder = Path(args.folder or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    text = {side: folder / f"text.{side}.gz" for side in ("source", "target")}
    for side, path in text.items():
        write_corpus(getattr(args, side), args.lines, path)
    if args.eflomal:
        save(args, {"eflomal": eflomal_chain(args, list(text.values()), folder)})
        return
    if args.whole and len(finished(args, folder)) == args.parts:
        save(args, compare(args, text, folder))
        return
    parts = work(args, aligning(args, text), folder, until)
    lines, seconds = (sum(part[name] for part in parts) for name in ("lines", "cpu_seconds"))
    result = {
        "lines": lines,
        "links": sum(part["links"] for part in parts),
        "pairs_per_core_second": lines / seconds,
        "core_hours_per_100m": 1e8 * seconds / lines / 3600,
        "memory_bytes": max(part["memory_bytes"] for part in parts),
        "text_bytes": {side: path.stat().st_size for side, path in text.items()},
        "links_bytes": sum(part["bytes"] for part in parts),
        "parts": parts,
    }
    if args.whole:
        result |= compare(args, text, folder)
    save(args, result)
    print(f"{result['pairs_per_core_second']:.0f} pairs a core second: {args.output}")
    if not args.folder:
        shutil.rmtree(folder)


def save(args: argparse.Namespace, result: dict) -> None:
    """Write the results file: the heavy imports come last, since children begin with the peak of this process."""
    own_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    from hf_attncal.io.files import write_json
    from hf_attncal.metrics import records

    config = {name: value for name, value in vars(args).items() if name not in ("folder", "output", "eflomal")}
    config |= {side: [Path(path).name for path in getattr(args, side)] for side in ("source", "target")}
    config["model"] = Path(args.model).name
    files = {Path(path).name: path for path in (*args.source, *args.target)}
    head = records.record({"benchmark": "corpus", **config}, files, threads=1, memory_of_launcher=1024 * own_memory)
    write_json(head | result, args.output)


if __name__ == "__main__":
    main()
