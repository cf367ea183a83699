"""What it is worth to an aligner without a model that words which look alike are probably translations, on small sets.

    python experiments/similar_words.py --data ROOT

Each set is aligned by `quick_links` alone, or with the first pairs of a training text beside it, as it is and without
the prior of `hf_attncal.alignment.similar_words`. Its numbers were chosen on the sets under "dev"; those under "test"
were not looked at before (others are in results/adapting). AER as fractions, with the default rule.
"""

import argparse
from itertools import islice
from pathlib import Path

from hf_attncal.alignment import quick
from hf_attncal.data.gold import Gold
from hf_attncal.files import read_lines, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate

HANSARDS, DERMIT = "wpt03-enfr/train.100k.{}.gz", "dermit-derm/train.{}.gz"
# Of each split: gold set, languages, text beside it and how many of its first pairs.
SETS = {
    "dev": [
        ("bicici-deen/dev", "de", "en", None, 0),
        ("golden-enfr/test", "en", "fr", None, 0),
        ("wpt-roen/dev", "ro", "en", None, 0),
        *((f"xlwa/en-{name}/dev", "en", name, None, 0) for name in ("es", "it", "hu", "et", "nl", "ru", "da", "pt")),
        *(("wpt03-enfr/dev", "en", "fr", HANSARDS, size) for size in (200, 1000, 5000)),
        *(("dermit-derm/dev", "de", "rm", DERMIT, size) for size in (200, 1000, 5000)),
    ],
    "test": [
        ("golden-enes/test", "en", "es", None, 0),
        ("golden-enpt/test", "en", "pt", None, 0),
        *((f"xlwa/en-{name}/test", "en", name, None, 0) for name in ("bg", "sl")),
    ],
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--output", type=Path, default=Path("results/aligner/similar_words.json"), metavar="FILE")
    args = parser.parse_args(arguments)
    files: dict[str, Path] = {}
    result: dict[str, dict] = {split: {} for split in SETS}
    head = records.record({"experiment": "similar_words"})
    for split, sets in SETS.items():
        for name, source, target, text, size in sets:
            paths = [args.data / f"{name}.{end}" for end in (source, target, "align")]
            gold = Gold.read(*paths)
            beside: list[tuple[str, str]] = []
            if text is not None:
                sides = [args.data / text.format(language) for language in (source, target)]
                beside = list(zip(*(islice(read_lines(side), size) for side in sides), strict=True))
                paths += sides
            files |= {path.relative_to(args.data).as_posix(): path for path in paths}
            most, found = quick.MOST_PAIRS_READ, {}
            for how in ("without", "with"):
                quick.MOST_PAIRS_READ = most if how == "with" else 0
                links = [one.links for one in quick.quick_links(gold.pairs, beside=beside)]
                found[how] = alignment_error_rate(gold.links, links, check_indices=False).aer
            result[split][f"{name}, {len(gold.pairs) + size} pairs"] = found
            print(split, name, size, *(f"{100 * aer:.2f}" for aer in found.values()), flush=True)
            head["data_sha256"] = records.record({}, files)["data_sha256"]
            write_json(head | result, args.output)


if __name__ == "__main__":
    main()
