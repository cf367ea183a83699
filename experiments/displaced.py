"""DERMIT with all gold links, and without the pairs whose gold links are displaced: aligners of results/robustness.

    python experiments/displaced.py --data ROOT

A pair counts as displaced if a number or mark that stands once on each side is linked in the gold, but not to itself
(`hf_attncal.data.pharaoh.displaced_pairs`). That is told by text and gold alone, whatever an aligner links. All links
of such a pair are left out: which of them have slipped cannot be told without aligning it. Pairs without such a number
or mark stay.

What each system links is read from `results/robustness/*_dermit-derm.json`, so nothing is aligned anew; how its
directions are merged was chosen as stated there, on all of dev or without gold links. Of each split, for "all" pairs,
the "displaced" ones and the "others": AER, and the difference from eflomal with and without the text to be aligned.
"""

import argparse
from pathlib import Path

from committed import read
from robustness import CORPORA

from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import displaced_pairs, parse_hypotheses
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate, paired_interval

PAIR = "dermit-derm"
PEERS = ("eflomal", "eflomal_withheld")
BOOTSTRAP = 1000


def parts(gold: Gold) -> tuple[dict[str, list[int]], int]:
    """Return the pairs of each part, by their numbers, and how many have a number or mark that tells."""
    words = [tuple(side.split() for side in pair) for pair in gold.pairs]
    displaced, telling = displaced_pairs(gold.links, words)
    rows = range(len(gold.pairs))
    return {"all": [*rows], "displaced": displaced, "others": [row for row in rows if row not in displaced]}, telling


def scores(gold: Gold, rows: list[int], systems: dict[str, tuple[str, list]]) -> dict[str, dict]:
    """Return what is measured of each system (symmetrisation, links) on some of the pairs."""
    some = [gold.links[row] for row in rows]
    found = {name: [links[row] for row in rows] for name, (_, links) in systems.items()}
    measured = {}
    for name, links in found.items():
        score = alignment_error_rate(
            some, links, symmetrization=systems[name][0], bootstrap=BOOTSTRAP, check_indices=False
        )
        fields = ("aer", "interval", "precision", "recall", "signature")
        measured[name] = {field: getattr(score, field) for field in fields}
    for name in (name for name in found if name not in PEERS):
        measured[name]["against"] = {
            peer: {
                "difference": measured[name]["aer"] - measured[peer]["aer"],
                "interval": paired_interval(some, found[peer], found[name], bootstrap=BOOTSTRAP),
            }
            for peer in PEERS
        }
    return measured


def measure(data: Path) -> dict:
    """Return the scores by split and part, and the files that were read."""
    runs = [read(f"robustness/{name}_{PAIR}")["systems"] for name in ("eflomal", "ours")]
    files, splits = [], {}
    for split in ("dev", "test"):
        names = CORPORA[PAIR].files(split)
        paths = [data / name for name in (*names["source"], *names["target"], *names["gold"])]
        files += paths
        gold = Gold.read(*paths)
        systems = {
            name: (system["symmetrization"], parse_hypotheses(system["splits"][split]["links"]["1"]))
            for run in runs
            for name, system in run.items()
        }
        rows, telling = parts(gold)
        splits[split] = {"pairs": {name: len(part) for name, part in rows.items()}, "with_such_a_word": telling}
        splits[split] |= {name: scores(gold, part, systems) for name, part in rows.items()}
    return {"splits": splits, "files": {path.relative_to(data).as_posix(): path for path in files}}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--output", type=Path, default=Path("results/aligner/without_displaced.json"), metavar="FILE")
    args = parser.parse_args(arguments)
    found = measure(args.data)
    config = {
        "experiment": "displaced",
        "pair": PAIR,
        "links_of": [f"robustness/{n}_{PAIR}" for n in ("eflomal", "ours")],
    }
    write_json(records.record(config, found.pop("files")) | found, args.output)


if __name__ == "__main__":
    main()
