"""Does `attncal align compare` tell a good aligner from a bad one? Its nats beside the error rate by gold links.

    python experiments/without_gold.py --data ROOT --eflomal PATH wpt03-enfr dermit-derm

The test of the pair and the first 10,000 pairs of its training text are aligned together: by eflomal, with each way to
merge its directions, by `align_quick`, and by eflomal with a share of links moved to a random source word. Gold links
of the test give the error rate; the nats see no gold link.

Written is results/without_gold/<pair>.json.
"""

import argparse
import random
import tempfile
from dataclasses import asdict
from pathlib import Path

from adapting import TEXTS, Text
from committed import RESULTS
from peers import MERGES, run_eflomal

from hf_attncal import align_quick
from hf_attncal.alignment import alignment_error_rate, compare_links
from hf_attncal.files import write_json
from hf_attncal.metrics import records

OTHERS = 10_000  # pairs beside the test
MOVED = (0.1, 0.3)  # shares of links


def moved(pairs: list, links: list, share: float) -> list:
    """Links of which a share leads to a source word drawn at random."""
    generator = random.Random(1)
    return [
        frozenset((generator.randrange(len(source)) if generator.random() < share else i, j) for i, j in found)
        for (source, _), found in zip(pairs, links, strict=True)
    ]


def systems_of(text: list, command: str) -> dict[str, list]:
    """Name -> links of each pair of words."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_eflomal(command, text, Path(folder))
        systems = {f"eflomal, {merge}": list(run.links(merge, 0, len(text))) for merge in MERGES}
    quick = align_quick([(" ".join(source), " ".join(target)) for source, target in text])
    systems["quick"] = [frozenset(one.links) for one in quick]
    last = systems["eflomal, grow-diag-final-and"]
    return systems | {f"eflomal, {100 * share:.0f} % moved": moved(text, last, share) for share in MOVED}


def measure(args: argparse.Namespace, name: str) -> None:
    text = Text(args.data, name, OTHERS)
    words = [tuple(side.lower().split() for side in pair) for pair in [*text.gold.pairs, *text.train, *text.beside]]
    words = [pair for n, pair in enumerate(words) if n < len(text.gold.pairs) or all(pair)][
        : len(text.gold.pairs) + OTHERS
    ]
    links = systems_of(words, args.eflomal)
    compared = compare_links(words, links)
    systems = {}
    for system, found in links.items():
        score = alignment_error_rate(text.gold.links, found[: len(text.gold.pairs)], check_indices=False)
        systems[system] = {"aer": score.aer, **asdict(compared[system])}
    config = {"experiment": "without_gold", "pair": name, "others": len(words) - len(text.gold.pairs)}
    result = records.record(config, text.files) | {"systems": systems}
    write_json(result, RESULTS / "without_gold" / f"{name}.json")
    print(name, {system: round(100 * found["aer"], 1) for system, found in systems.items()})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--eflomal", default="eflomal-align", metavar="PATH", help="the command")
    parser.add_argument("pairs", nargs="+", choices=list(TEXTS), metavar="PAIR")
    args = parser.parse_args(arguments)
    for name in args.pairs:
        measure(args, name)


if __name__ == "__main__":
    main()
