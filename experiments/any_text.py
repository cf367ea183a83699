"""The aligner on text as users have it: in capitals, without spaces, in shards; and what its scores say.

    python experiments/any_text.py --data ROOT --encoder NAME capitals rwth-deen wpt-roen
    python experiments/any_text.py --data ROOT --encoder NAME unspaced tsinghua-zhen kftt-jaen
    python experiments/any_text.py --data ROOT --encoder NAME probabilities rwth-deen wpt-roen
    python experiments/any_text.py --data ROOT --encoder NAME shards --pairs 200000 deen

`capitals`: `align_quick(..., encoder=...)` of the test in upper case, beside the same in lower case.

`unspaced`: of the test without the spaces of its source, beside the test as it is. A token of the gold links is linked
if a piece with one of its characters is. "characters" are the links without an encoder.

`probabilities`: the expected calibration error of the scores of links, in ten bins with the same number of links.

`shards`: `attncal align run ALIGNER --encoder` on short lines of `tatoeba-deen`, some of them twice, in one run and
as two parts, the second one first; and the memory of a run over a tenth of the lines.

Nothing was chosen on a test. `FOLDER/KIND_PAIR.json` is written anew.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, pairwise
from pathlib import Path

import numpy as np
import torch
from adapting import TEXTS, Text, cpu, score

from hf_attncal import align_quick
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.io.files import sha256, write_json
from hf_attncal.io.streams import rows_of_files
from hf_attncal.layouts import DEFAULT_ENCODER, WEIGHTS
from hf_attncal.metrics import records

BINS, PARTS = 10, 2
MOST_WORDS = 5  # in a line of shards


def gold_tokens(tokens: Sequence[str], pieces: Sequence[str]) -> list[set[int]]:
    """Return the tokens that share a character with each piece of the same text."""
    owners = [number for number, token in enumerate(tokens) for _ in token]
    bounds = np.cumsum([0, *map(len, pieces)]).tolist()
    if bounds[-1] != len(owners):
        raise ValueError(f"The pieces {pieces} are not the tokens {tokens}.")
    return [set(owners[start:stop]) for start, stop in pairwise(bounds)]


def capitals(text: Text, encoder: EncoderPrior) -> dict:
    """Return the scores of the text in upper and lower case, and as it is."""
    systems = {}
    for name, change in (("upper", str.upper), ("lower", str.lower), ("as_is", str)):
        encoder.forget()
        links = [
            one.links for one in align_quick([tuple(map(change, pair)) for pair in text.gold.pairs], encoder=encoder)
        ]
        systems[name] = score(text.gold, links, "harmonic")
    difference = systems["upper"]["aer"] - systems["lower"]["aer"]
    return {"systems": systems, "difference": difference, "signature": systems["upper"]["signature"]}


def unspaced(text: Text, encoder: EncoderPrior) -> dict:
    """Return the scores of the text with and without the spaces of its source."""
    gold, systems = text.gold, {}
    joined = [("".join(source.split()), target) for source, target in gold.pairs]
    for name, pairs, used in (
        ("spaced", gold.pairs, encoder),
        ("unspaced", joined, encoder),
        ("characters", joined, None),
    ):
        encoder.forget()
        links = []
        for pair, found in zip(gold.pairs, align_quick(pairs, encoder=used), strict=True):
            sides = [
                gold_tokens(side.split(), own) for side, own in zip(pair, (found.source, found.target), strict=True)
            ]
            links.append(frozenset((i, j) for p, q in found.links for i in sides[0][p] for j in sides[1][q]))
        systems[name] = score(gold, links, "harmonic")
    return {"systems": systems, "difference": systems["unspaced"]["aer"] - systems["spaced"]["aer"]}


def probabilities(text: Text, encoder: EncoderPrior) -> dict:
    """Return the calibration error of the scores of links, and the mean score and precision of each bin."""
    others = text.beside or text.train
    encoder.forget()
    found = align_quick([*text.gold.pairs, *others[:1000]], encoder=encoder)[: len(text.gold.pairs)]
    scores, right = [], []
    for alignment, links in zip(found, text.gold.links, strict=True):
        scores += alignment.scores
        right += [link in links.possible for link in alignment.links]
    order = np.argsort(scores, kind="stable")
    bins = [(np.mean(np.array(scores)[part]), np.mean(np.array(right)[part])) for part in np.array_split(order, BINS)]
    error = float(np.mean([abs(mean - share) for mean, share in bins]))
    return {"calibration_error": error, "links": len(scores), "bins": [list(map(float, values)) for values in bins]}


def short_lines(files: Iterable[Path], number: int) -> list[tuple[str, ...]]:
    """Return pairs of at most `MOST_WORDS` words a side in a random order, all of them again where they end."""
    rows = [
        row for row in rows_of_files(list(map(str, files))) if max(len(side.split()) for side in row) <= MOST_WORDS
    ]
    random.Random(0).shuffle(rows)
    return list(islice(cycle(rows), number))


def shards(args: argparse.Namespace, aligner: str) -> tuple[dict, dict[str, Path]]:
    """Compare the links of two parts with those of one run; return seconds, memory, and the files of the text."""
    files = {side: args.data / f"tatoeba-deen/train.{side}.gz" for side in ("de", "en")}
    rows = short_lines(files.values(), args.pairs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        for lines in (args.pairs, args.pairs // 10):
            for place, side in enumerate(files):
                text = "".join(f"{row[place]}\n" for row in rows[:lines])
                (folder / f"{lines}.{side}").write_text(text, encoding="utf-8")

        def run(lines: int, output: str, *options: str) -> dict:
            command = [sys.executable, "-m", "hf_attncal", "align", "run", aligner, *options]
            command += [str(folder / f"{lines}.{side}") for side in files]
            command += [f"--encoder={args.encoder}", "--threads=1", "--scores", f"--output={folder / output}"]
            process = subprocess.Popen(command)
            _, status, used = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{command} failed.")
            return {"cpu_seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}

        with ThreadPoolExecutor(1) as beside:
            whole = beside.submit(run, args.pairs, "whole")
            parts = [run(args.pairs, "{}.links", f"--shard={n + 1}/{PARTS}") for n in reversed(range(PARTS))]
            tenth = run(args.pairs // 10, "tenth")
            whole = whole.result()
        joined = b"".join(path.read_bytes() for path in sorted(folder.glob("*-of-*.links")))
        equal = joined == (folder / "whole").read_bytes()
    growth = whole["megabytes"] / tenth["megabytes"] - 1
    words = sum(len(side.split()) for row in rows[: args.pairs] for side in row) / 2 / args.pairs
    measured = {"pairs": args.pairs, "words_a_side": words, "equal": equal, "growth": growth}
    return measured | {"whole": whole, "parts": parts, "tenth": tenth}, files


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("capitals", "unspaced", "probabilities", "shards"))
    parser.add_argument("names", nargs="+", metavar="PAIR", help=f"of {', '.join(TEXTS)}; for shards, an aligner")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument("--pairs", type=int, default=20_000, help="lines of shards")
    parser.add_argument("--output", type=Path, default=Path("results/any_text"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights = Path(args.encoder) / WEIGHTS
    config = {"kind": args.kind, "encoder_sha256": sha256(weights) if weights.is_file() else ":".join(DEFAULT_ENCODER)}
    measures = {"capitals": capitals, "unspaced": unspaced, "probabilities": probabilities}
    encoder = None if args.kind == "shards" else EncoderPrior.from_pretrained(args.encoder)
    for name in args.names:
        before = cpu(of_children=encoder is None)
        if encoder is None:
            measured, files = shards(args, name)
        else:
            text = Text(args.data, name)
            measured, files = measures[args.kind](text, encoder), text.files
        measured |= {"cpu_seconds": cpu(of_children=encoder is None) - before}
        write_json(records.record(config | {"pair": name}, files) | measured, args.output / f"{args.kind}_{name}.json")
        print(name, {key: value for key, value in measured.items() if key not in ("bins", "systems")}, flush=True)


if __name__ == "__main__":
    main()
