"""A threshold on the score of a pair against known noise: what of it is found, and what good pairs it costs.

    python experiments/noisy_pairs.py --data ROOT --pair wpt03-enfr --model small=FOLDER --output FILE

The pairs are `mt-valid` of the corpus, which no aligner has trained on. For each seed half of them are left as they
are, the other half get one of these faults each, as many of every kind:

- `shuffled`: the target of another pair drawn at random;
- `neighbour`: the target of the next line, as where lines slipped by one;
- `truncated`: the first half of the target;
- `half_replaced`: the first half of the target, then the second half of another one;
- `copied`: the source in the place of the target, as text in the wrong language;
- `misordered`: each two words of the target exchanged.

The score is that of examples/opusfilter_alignment.py. On one half of the pairs a threshold is chosen in two ways: by
what good pairs may be lost, one in twenty (`lost_5`), and by the highest F1 of what is to be removed (`f1`), which
depends on the noise. What is reported is of the other half. Of each kind: recall, the share of it that does not score
above; precision, were it the only kind and as frequent as good pairs; and the area under the ROC curve (AUC), which
needs no threshold.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from aligners import named_models

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.io.files import read_pairs, write_json
from hf_attncal.metrics import records

LANGUAGES = {"wpt03-enfr": ("en.gz", "fr.gz"), "dermit-derm": ("de", "rm")}
KINDS = ("shuffled", "neighbour", "truncated", "half_replaced", "copied", "misordered")
CLEAN = "clean"
SEEDS = (1, 2, 3)
_LOST = 0.05  # of the good pairs


def planted(pairs: Sequence[tuple[str, str]], seed: int) -> list[tuple[str, str, str]]:
    """Source, target and kind of noise (or `CLEAN`) of each pair; kinds are equally frequent in half of the pairs."""
    generator = random.Random(seed)
    kinds = [CLEAN if row % 2 else KINDS[row // 2 % len(KINDS)] for row in range(len(pairs))]
    generator.shuffle(kinds)
    noisy = []
    for row, (kind, (source, target)) in enumerate(zip(kinds, pairs, strict=True)):
        other = pairs[(row + generator.randrange(2, len(pairs) - 1)) % len(pairs)][1].split()
        words = target.split()
        middle = len(words) // 2
        noisy.append(
            (
                source,
                {
                    CLEAN: target,
                    "shuffled": " ".join(other),
                    "neighbour": pairs[(row + 1) % len(pairs)][1],
                    "truncated": " ".join(words[:middle]),
                    "half_replaced": " ".join(words[:middle] + other[len(other) // 2 :]),
                    "copied": source,
                    "misordered": " ".join(
                        word for two in range(0, len(words), 2) for word in words[two : two + 2][::-1]
                    ),
                }[kind],
                kind,
            )
        )
    return noisy


def best_threshold(good: np.ndarray, bad: np.ndarray) -> float:
    """What removes with the highest F1: all that scores no higher goes. Between two scores that were seen."""
    scores = np.unique(np.concatenate([good, bad]))
    found = np.searchsorted(np.sort(bad), scores, side="right")
    removed = found + np.searchsorted(np.sort(good), scores, side="right")
    best = int(np.argmax(2 * found / (removed + len(bad))))
    return float(scores[best : best + 2].mean())


def area(good: np.ndarray, bad: np.ndarray) -> float:
    """The probability that a good pair scores higher than a bad one; equal scores count half."""
    ordered = np.sort(bad)
    below, upto = (np.searchsorted(ordered, good, side=side) for side in ("left", "right"))
    return float(((below + upto) / 2).mean() / len(bad))


def judged(noisy: Sequence[tuple[str, str, str]], scores: np.ndarray, seed: int) -> dict:
    """The thresholds from one half of the pairs, and what they do to the other."""
    chosen = np.random.default_rng(seed).permutation(len(noisy)) % 2 == 0
    kinds = np.array([kind for *_, kind in noisy])
    clean = kinds == CLEAN
    thresholds = {
        "lost_5": float(np.quantile(scores[chosen & clean], _LOST)),
        "f1": best_threshold(scores[chosen & clean], scores[chosen & ~clean]),
    }
    good, bad = scores[~chosen & clean], scores[~chosen & ~clean]
    of_kind = {kind: scores[~chosen & (kinds == kind)] for kind in KINDS}
    return {
        "auc": area(good, bad),
        "auc_of_kind": {kind: area(good, values) for kind, values in of_kind.items()},
        "rules": {
            rule: {
                "threshold": threshold,
                "good_lost": float((good <= threshold).mean()),
                **found(good, bad, threshold),
                "kinds": {kind: found(good, values, threshold) for kind, values in of_kind.items()},
            }
            for rule, threshold in thresholds.items()
        },
        "pairs": {"chosen_on": int(chosen.sum()), "measured_on": int((~chosen).sum())},
    }


def found(good: np.ndarray, bad: np.ndarray, threshold: float) -> dict[str, float]:
    """What of the noise does not score above a threshold, and how much of what does not is noise, were half of it."""
    recall, lost = (float((scores <= threshold).mean()) for scores in (bad, good))
    return {"recall": recall, "precision": recall / (recall + lost) if recall + lost else 0.0}


def measure(aligner: WordAligner, pairs: Sequence[tuple[str, str]]) -> dict[str, dict]:
    """Of each seed."""
    found = {}
    for seed in SEEDS:
        noisy = planted(pairs, seed)
        aligned = aligner.align([pair[:2] for pair in noisy])
        found[str(seed)] = judged(noisy, np.array([one.score or 0.0 for one in aligned]), seed)
    return found


def main() -> None:
    """Plant noise, score the pairs, write what a threshold finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with a folder for each corpus")
    parser.add_argument("--pair", required=True, choices=LANGUAGES)
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER of an aligner, several times")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    names = [f"mt-valid.{language}" for language in LANGUAGES[args.pair]]
    files = {name: args.data / args.pair / name for name in names}
    pairs = list(zip(*read_pairs(*files.values()), strict=True))
    systems = {
        name: measure(WordAligner.from_pretrained(folder, device="cpu"), pairs)
        for name, folder in named_models(args.model).items()
    }
    config = {"pair": args.pair, "pairs": len(pairs), "seeds": list(SEEDS), "kinds": list(KINDS)}
    write_json({**records.record(config, files, device="cpu"), "systems": systems}, args.output)


if __name__ == "__main__":
    main()
