"""How close a network comes to the links that it learned from, on pairs that neither of them has read.

    python experiments/distilled.py --teacher FILE --links NAME=FILE [--links NAME=FILE ...] --output FILE

The teacher's file is of `attncal align run COUNTS --encoder --scores --threshold 0.05`, the others of `attncal align
run NETWORK` by the default rule. "disagreement" is the AER of a network's links with the teacher's above one half as
sure links, as a fraction with a 95 % interval over pairs.
"""

import argparse
from pathlib import Path

from hf_attncal.data.pharaoh import GoldAlignment, parse_hypotheses, parse_scored
from hf_attncal.files import read_lines, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate

ABOVE = 0.5


def teacher_links(lines: list[str]) -> list[GoldAlignment]:
    """Return the scored links above `ABOVE`, as sure ones."""
    golds = []
    for links, scores in map(parse_scored, lines):
        sure = frozenset(link for link, score in zip(links, scores or (), strict=True) if score > ABOVE)
        golds.append(GoldAlignment(sure, sure))
    return golds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--teacher", type=Path, required=True, metavar="FILE")
    parser.add_argument("--links", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    args = parser.parse_args(arguments)
    gold, found = teacher_links(read_lines(args.teacher)), {}
    for name, _, path in (entry.partition("=") for entry in args.links):
        score = alignment_error_rate(gold, parse_hypotheses(read_lines(Path(path))), bootstrap=1000)
        found[name] = {"disagreement": score.aer, "interval": score.interval, "signature": score.signature}
        print(f"{name}: {100 * score.aer:.2f}")
    write_json(records.record({"above": ABOVE}, {args.teacher.name: args.teacher}) | {"networks": found}, args.output)


if __name__ == "__main__":
    main()
