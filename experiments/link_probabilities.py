"""Scores of links as probabilities, before and after `attncal align calibrate`, on pairs that it did not learn from.

    python experiments/link_probabilities.py --data ROOT --pair wpt03-enfr --model hmm=FOLDER --output FILE

Each aligner is calibrated on dev and measured on test, with its own rule for links (`test`) and with the threshold
0.05 (`test_low_threshold`): the expected calibration error (ECE) before and after, their difference with an interval
over pairs, and the Brier score.

- `forms`: by what it was chosen, by ten-fold cross-validation on dev, which form the calibration has, what it learns
  from (the links by the aligner's own rule, or all above 0.05) and how near to 0 and 1 scores are told apart (`clip`).
  Negative log-likelihood, Brier score and ECE on the links by the own rule.
- `without_gold`: calibrated as if the links of another aligner were annotated, on the same text.
"""

import argparse
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
from aligners import named_models
from robustness import CORPORA
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.gold import calibrate_links, scored_links
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.probabilities import ECE, bin_counts, probability_score

BOOTSTRAP = 1000
FOLDS = 10
LOW_THRESHOLD = 0.05
CLIPS = (1e-3, 1e-4, 1e-6)
Learned = Callable[[np.ndarray], np.ndarray]  # probabilities of scores


# ---- forms ----


def _regression(features: Callable[[np.ndarray], np.ndarray], scores, right, intercept: bool = True) -> Learned:
    model = LogisticRegression(C=np.inf, fit_intercept=intercept, max_iter=1000).fit(features(scores), right)
    return lambda new: model.predict_proba(features(new))[:, 1]


def _parts(scores: np.ndarray, clip: float) -> np.ndarray:
    clipped = np.clip(scores, clip, 1 - clip)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)


def _isotonic(scores, right, clip: float) -> Learned:
    model = IsotonicRegression(out_of_bounds="clip").fit(scores, right)
    return lambda new: model.predict(new).clip(clip, 1 - clip)


FORMS: dict[str, Callable[..., Learned]] = {
    "constant": lambda scores, right, clip: lambda new: np.full(len(new), right.mean()),
    "temperature": lambda scores, right, clip: _regression(
        lambda new: _parts(new, clip).sum(axis=1, keepdims=True), scores, right, intercept=False
    ),
    "platt": lambda scores, right, clip: _regression(
        lambda new: _parts(new, clip).sum(axis=1, keepdims=True), scores, right
    ),
    "beta": lambda scores, right, clip: _regression(lambda new: _parts(new, clip), scores, right),
    "isotonic": _isotonic,
}


def compared_forms(aligner: WordAligner, gold: Gold) -> dict[str, dict[str, float]]:
    """Of each form, clip and set of links that it learns from: what it is on pairs that it did not learn from."""
    own, low = (scored_links(aligner, gold, threshold) for threshold in (None, LOW_THRESHOLD))
    found = {}
    for form, clip, (name, learned) in product(FORMS, CLIPS, {"own": own, "low": low}.items()):
        folds = []
        for fold in range(FOLDS):
            rows = [row for row in range(len(gold.pairs)) if row % FOLDS != fold]
            flat = (np.array([value for row in rows for value in side[row]]) for side in learned)
            folds.append(FORMS[form](*flat, clip))
        crossed = [
            folds[row % FOLDS](np.array(scores)) if scores else np.zeros(0) for row, scores in enumerate(own[0])
        ]
        p, y = np.concatenate(crossed), np.array([value for pair in own[1] for value in pair])
        score = probability_score(crossed, own[1])
        nll = float(-np.log(np.where(y, p, 1 - p)).mean())
        found[f"{form}, {name}, {clip:g}"] = {"nll": nll, "brier": score.brier, "ece": score.ece}
    return found


# ---- before and after ----


def before_and_after(aligner: WordAligner, gold: Gold, threshold: float | None = None) -> dict:
    """Of a calibrated aligner: scores as the model has them, and probabilities, of the same links."""
    raw = copy(aligner)
    raw.probabilities = None
    before, after = (scored_links(one, gold, threshold) for one in (raw, aligner))
    counts = [bin_counts(*one) for one in (before, after)]
    return {
        "before": asdict(probability_score(*before, bootstrap=BOOTSTRAP)),
        "after": asdict(probability_score(*after, bootstrap=BOOTSTRAP)),
        "ece_difference": ECE.paired_interval(*counts, BOOTSTRAP, 0),
    }


def calibrated(aligner: WordAligner, gold: Gold) -> WordAligner:
    """The aligner with what it learns from these pairs."""
    result = copy(aligner)
    result.probabilities = calibrate_links(aligner, gold).probabilities
    return result


def as_gold(aligner: WordAligner, pairs: Sequence[tuple[str, str]]) -> Gold:
    """The links of an aligner as if they were annotated."""
    links = [frozenset(one.links) for one in aligner.align(pairs)]
    return Gold(pairs, [GoldAlignment(found, found) for found in links])


def measure(aligner: WordAligner, other: WordAligner | None, gold: dict[str, Gold]) -> dict:
    """All of it, of one aligner."""
    learned = calibrated(aligner, gold["dev"])
    result = {
        "links": {"symmetrization": aligner.source.symmetrization, "threshold": aligner.source.threshold},
        "rules": {name: rule._asdict() for name, rule in learned.probabilities.rules.items()},
        "forms": compared_forms(aligner, gold["dev"]),
        "test": before_and_after(learned, gold["test"]),
        "test_low_threshold": before_and_after(learned, gold["test"], LOW_THRESHOLD),
    }
    if other is not None:
        without = calibrated(aligner, as_gold(other, gold["dev"].pairs))
        result["without_gold"] = before_and_after(without, gold["test"])
    return result


def main() -> None:
    """Calibrate every aligner on dev, measure it on test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with a folder for each corpus")
    parser.add_argument("--pair", required=True, choices=("wpt03-enfr", "dermit-derm"))
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER of an aligner, several times")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    files, gold = {}, {}
    for split in ("dev", "test"):
        names = [f"{split}.{end}" for end in (*CORPORA[args.pair].languages, "align")]
        files |= {name: args.data / args.pair / name for name in names}
        gold[split] = Gold.read(*(files[name] for name in names))
    models = named_models(args.model)
    aligners = {name: WordAligner.from_pretrained(folder, device="cpu") for name, folder in models.items()}
    systems = {}
    for name, aligner in aligners.items():
        aligner.probabilities = None
        kind = type(aligner.model)
        other = next((one for one in aligners.values() if not isinstance(one.model, kind)), None)
        systems[name] = measure(aligner, other, gold)
    config = {"pair": args.pair, "bootstrap": BOOTSTRAP, "folds": FOLDS, "low_threshold": LOW_THRESHOLD}
    write_json({**records.record(config, files, device="cpu"), "systems": systems}, args.output)


if __name__ == "__main__":
    main()
