"""Alignment error rate of our checkpoints and of other word aligners, on the same files.

    python experiments/aligners.py --data DIR --pair wpt03-enfr --model small=runs/aligner_wpt03
    python experiments/aligners.py --data DIR --pair dermit-derm --eflomal PATH --fast-align PATH --atools PATH
    python experiments/aligners.py --data DIR --lowercase --train-source FILE ... --test-gold FILE --output FILE
    python experiments/aligners.py ... --systems eflomal --guide-output FILE --guide-symmetrization intersection

The other aligners are commands that are found in PATH or named: eflomal (`eflomal-align`) and fast_align. They learn
from the text that they align and are given training, dev and test text together (never a gold link). Their two
directions are merged in every way that is known, by `hf_attncal` or, with `--atools`, by fast_align's own tool; one
way is chosen by its error rate on dev, and only that one is scored on test. Our checkpoints are scored with the
symmetrisation and the threshold that they are saved with, and do not learn from what they align.

`--guide-output` writes what one of them links in the training text, a line for each pair: the guide of `attncal align
train --guide`. It has learned from the text of dev and test too, unless `--no-test` leaves the latter out.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from committed import RESULTS
from peers import ATOOLS, MERGES, PEERS, Link, Pair, PeerRun, run_eflomal, run_fast_align

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import format_links
from hf_attncal.io.files import whole_file, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate

# Files of known pairs, under --data.
FILES = {
    "wpt03-enfr": {"train": "train.100k.{}.gz", "source": "en", "target": "fr", "lowercase": True},
    "dermit-derm": {"train": "train.{}.gz", "source": "de", "target": "rm", "lowercase": True},
}
SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Data:
    """Text as words, and gold links.

    Args:
        train: pairs without links.
        gold: "dev", and "test" where it is scored.
        lowercase: what the other aligners are given is in lower case; our checkpoints know themselves.
        files: every file by what it is ("train_source").
    """

    train: list[tuple[str, str]]
    gold: dict[str, Gold]
    lowercase: bool
    files: dict[str, Path]

    def words(self) -> Iterator[Pair]:
        """All pairs as the other aligners get them: training text, then that of each split."""
        for source, target in chain(self.train, *(gold.pairs for gold in self.gold.values())):
            if self.lowercase:
                source, target = source.lower(), target.lower()
            yield source.split(), target.split()

    def rows(self, split: str) -> tuple[int, int]:
        """Where the pairs of "train" or of a split begin and end in `words`."""
        begin, lengths = 0, {"train": len(self.train)} | {name: len(gold.pairs) for name, gold in self.gold.items()}
        for name, length in lengths.items():
            if name == split:
                return begin, begin + length
            begin += length
        raise KeyError(split)


# ---- scoring ----


def read_gold(folder: Path, pair: str) -> tuple[dict[str, Gold], dict[str, Path]]:
    """Return pairs and links of dev and test, and their files by name."""
    gold, read = {}, {}
    for split in ("dev", "test"):
        names = [folder / pair / f"{split}.{FILES[pair][side]}" for side in ("source", "target")]
        links = folder / pair / f"{split}.align"
        gold[split] = Gold.read(*names, links)
        read |= {path.name: path for path in (*names, links)}
    return gold, read


def measure_peer(run: PeerRun, data: Data, bootstrap: int, seed: int) -> tuple[dict, dict[str, list[frozenset[Link]]]]:
    """The row of the symmetrisation with the lowest AER on dev (the first of equals), and its links of each split."""

    def links(method: str, split: str) -> list[frozenset[Link]]:
        return list(run.links(method, *data.rows(split)))

    dev = {method: score(data.gold["dev"], links(method, "dev"), method).aer for method in MERGES}
    chosen = min(dev, key=dev.__getitem__)
    found = {split: links(chosen, split) for split in data.gold}
    merged_by = "atools" if run.atools and chosen in ATOOLS else "hf_attncal"
    row = {"command": run.command, "symmetrization": chosen, "merged_by": merged_by}
    row |= {"dev_aer": dev, "seconds": run.seconds}
    return row | scores(data, found, chosen, bootstrap, seed), found


def measure_model(
    folder: str, data: Data, bootstrap: int, seed: int, device: str
) -> tuple[dict, dict[str, list[frozenset[Link]]]]:
    """The row of a checkpoint of ours, with the time of its training if `results.json` is there; and its links."""
    aligner = WordAligner.from_pretrained(folder, device=device)
    start = time.perf_counter()
    aligned = {split: aligner.align(gold.pairs) for split, gold in data.gold.items()}
    seconds = time.perf_counter() - start
    found = {split: [frozenset(alignment.links) for alignment in aligned[split]] for split in aligned}
    first = aligned["dev"][0]
    row = {"symmetrization": first.symmetrization, "threshold": first.threshold, "seconds": seconds}
    results = Path(folder, "results.json")
    if results.exists():
        trained = json.loads(results.read_text(encoding="utf-8"))
        row["training_seconds"] = trained["wall_seconds"]
        row["training_hardware"] = trained["hardware"]
    row["parameters"] = aligner.model.num_parameters()
    return row | scores(data, found, first.symmetrization, bootstrap, seed), found


def scores(
    data: Data, found: dict[str, list[frozenset[Link]]], symmetrization: str, bootstrap: int, seed: int
) -> dict[str, dict]:
    """Scores of each split as plain data."""
    return {
        split: dataclasses.asdict(score(data.gold[split], links, symmetrization, bootstrap, seed))
        for split, links in found.items()
    }


def score(
    gold: Gold, links: list[frozenset[Link]], symmetrization: str, bootstrap: int = 0, seed: int = 0
) -> AlignmentScore:
    """The score of links, which must lie inside their sentences."""
    sentences = [(source.split(), target.split()) for source, target in gold.pairs]
    return alignment_error_rate(
        gold.links, links, symmetrization=symmetrization, sentences=sentences, bootstrap=bootstrap, seed=seed
    )


# ---- files ----


def read_data(args: argparse.Namespace) -> Data:
    """Text and gold links of `--pair` or of the named files.

    Raises:
        ValueError: a file that is missing or does not fit the others.
    """
    names = file_names(args)
    text = load_parallel({"source": names["train_source"], "target": names["train_target"]})
    if args.train_pairs is not None:
        text = text.select(range(min(args.train_pairs, len(text))))
    gold = {
        split: Gold.read(*(names[f"{split}_{part}"] for part in ("source", "target", "gold")))
        for split in SPLITS
        if f"{split}_gold" in names
    }
    lowercase = args.lowercase or (args.pair is not None and FILES[args.pair]["lowercase"])
    files = {name: Path(path) for name, path in names.items()}
    return Data(list(zip(text["source"], text["target"], strict=True)), gold, lowercase, files)


def file_names(args: argparse.Namespace) -> dict[str, str]:
    """The path of each of "train_source", ..., "test_gold"; those of test only where it is to be scored.

    Raises:
        ValueError: a file is neither named nor known from `--pair`.
    """
    names = {}
    if args.pair is not None:
        known = FILES[args.pair]
        for side in ("source", "target"):
            names[f"train_{side}"] = known["train"].format(known[side])
            names |= {f"{split}_{side}": f"{split}.{known[side]}" for split in SPLITS}
        names |= {f"{split}_gold": f"{split}.align" for split in SPLITS}
    names |= {name: value for name in file_options() if (value := getattr(args, name)) is not None}
    wanted = [name for name in file_options() if args.test or not name.startswith("test")]
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(
            f"--{missing[0].replace('_', '-')} is missing: name all files, or a known --pair of {list(FILES)}; "
            "--no-test leaves the test files out."
        )
    return {name: str(Path(args.data or "", names[name])) for name in wanted}


def file_options() -> list[str]:
    """The names of all files."""
    return [f"train_{side}" for side in ("source", "target")] + [
        f"{split}_{kind}" for split in SPLITS for kind in ("source", "target", "gold")
    ]


def write_links(path: Path, links: Iterator[frozenset[Link]]) -> None:
    """A line `i-j i-j ...` for each pair, whole or not at all."""
    with whole_file(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(format_links(pair) + "\n" for pair in links)


# ---- the job ----


def find_peers(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Commands by name, and why the others are left out.

    Raises:
        ValueError: a command that was asked for is not there.
    """
    found, skipped = {}, {}
    for name, command in PEERS.items():
        given = getattr(args, name)
        path = shutil.which(given or command)
        if args.systems is not None and name not in args.systems:
            skipped[name] = "not asked for"
        elif path is not None:
            found[name] = path
        elif given is not None or args.systems is not None:
            raise ValueError(f"--{name.replace('_', '-')}: there is no command {given or command}.")
        else:
            skipped[name] = f"no command {command} in PATH"
    return found, skipped


def measure(args: argparse.Namespace) -> dict:
    """Run every system; returns what the JSON file holds.

    Raises:
        ValueError: files, commands or names that are not there or do not fit.
    """
    commands, skipped = find_peers(args)
    atools = shutil.which(args.atools or "atools")
    if args.atools is not None and atools is None:
        raise ValueError(f"--atools: there is no command {args.atools}.")
    models = named_models(args.model)
    if taken := models.keys() & PEERS:
        raise ValueError(f"--model: {sorted(taken)[0]} is the name of another aligner.")
    if args.guide_output is not None and args.guide_system not in commands:
        raise ValueError(f"--guide-output needs {args.guide_system}: {skipped[args.guide_system]}.")
    if not commands and not models:
        raise ValueError("Nothing to score: give --model NAME=FOLDER, --eflomal or --fast-align.")
    for name, reason in skipped.items():
        print(f"{name} is left out: {reason}", file=sys.stderr)
    data = read_data(args)
    systems = {}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            if name == "eflomal":
                run = run_eflomal(command, data.words(), Path(folder))
            else:
                run = run_fast_align(command, data.words(), Path(folder), atools)
            systems[name], found = measure_peer(run, data, args.bootstrap, args.seed)
            _keep(args, name, found)
            if args.guide_output is not None and name == args.guide_system:
                write_links(args.guide_output, run.links(args.guide_symmetrization, *data.rows("train")))
    for name, folder in models.items():
        systems[name], found = measure_model(folder, data, args.bootstrap, args.seed, args.device)
        _keep(args, name, found)
    config = {
        "experiment": "aligners",
        "pair": args.pair or args.output.stem,
        "lowercase": data.lowercase,
        "train_pairs": len(data.train),
        "bootstrap": args.bootstrap,
        "seed": args.seed,
        "text_of_other_aligners": ["train", *data.gold],
    }
    return records.record(config, data.files) | {"systems": systems, "skipped": skipped}


def named_models(values: list[str]) -> dict[str, str]:
    """Folder by name, from the values of `--model`.

    Raises:
        ValueError: one that is not `NAME=FOLDER`, or a name that is given twice.
    """
    models = {}
    for value in values:
        name, _, folder = value.partition("=")
        if not name or not folder:
            raise ValueError(f"--model must be NAME=FOLDER, got {value!r}.")
        if name in models:
            raise ValueError(f"--model: the name {name!r} is given twice.")
        models[name] = folder
    return models


def _keep(args: argparse.Namespace, name: str, found: dict[str, list[frozenset[Link]]]) -> None:
    if args.keep is not None:
        for split, links in found.items():
            write_links(args.keep / f"{name}.{split}.links", iter(links))


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    files = parser.add_argument_group("files")
    files.add_argument("--data", metavar="DIR", help="folder that the files are in")
    files.add_argument("--pair", choices=FILES, help="known files in that folder")
    for name in file_options():
        files.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=argparse.SUPPRESS)
    files.add_argument("--lowercase", action="store_true", help="lower-case the text of the other aligners")
    files.add_argument("--train-pairs", type=int, metavar="N", help="only the first training pairs")
    files.add_argument("--no-test", dest="test", action="store_false", help="do not read the test files")
    systems = parser.add_argument_group("systems")
    systems.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help="a checkpoint of ours")
    systems.add_argument("--device", default="cpu", help="of our checkpoints")
    systems.add_argument("--systems", nargs="*", choices=PEERS, help="other aligners; without it, all that are there")
    systems.add_argument("--eflomal", metavar="PATH", help="the command eflomal-align; without it, looked for in PATH")
    systems.add_argument("--fast-align", metavar="PATH", help="the command fast_align")
    systems.add_argument("--atools", metavar="PATH", help="the command atools of fast_align")
    scoring = parser.add_argument_group("scores")
    scoring.add_argument("--bootstrap", type=int, default=1000, help="resamples for the 95 %% interval")
    scoring.add_argument("--seed", type=int, default=0, help="of the resamples")
    output = parser.add_argument_group("output")
    output.add_argument("--output", type=Path, help="JSON file; without it, results/aligners_PAIR.json")
    output.add_argument("--keep", type=Path, metavar="DIR", help="write the links of each system, NAME.SPLIT.links")
    output.add_argument("--guide-output", type=Path, metavar="FILE", help="write links of the training pairs")
    output.add_argument("--guide-system", choices=PEERS, default="eflomal", help="whose")
    output.add_argument("--guide-symmetrization", choices=MERGES, default="intersection", help="merged how")
    return parser


def main(arguments: list[str] | None = None) -> dict:
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.train_pairs is not None and args.train_pairs < 1:
        parser.error(f"--train-pairs must be at least 1, got {args.train_pairs}")
    if args.output is None and args.pair is None:
        parser.error("--output FILE is needed without --pair")
    try:
        result = measure(args)
    except ValueError as error:
        parser.error(str(error))
    except RuntimeError as error:
        sys.exit(f"{error}")
    path = args.output or RESULTS / f"aligners_{result['config']['pair']}.json"
    write_json(result, path)
    print(f"written: {path}")
    return result


if __name__ == "__main__":
    main()
