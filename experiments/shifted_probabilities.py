"""Probabilities of links in text of another kind than the annotated pairs that they were learned from.

    python experiments/shifted_probabilities.py --data ROOT --output results/shifted_probabilities.json

Each aligner counts the training text of `ALIGNERS` (`--config hmm`), is calibrated on a few annotated pairs, and
aligns annotated text of the same kind and of others, as it is or after it has read the text (`adapted`). Reported is
the expected calibration error (ECE) of the scores ("raw"), of the probabilities as they were learned ("calibrated"),
and as `LinkProbabilities` applies them ("shrunk": a pair with more unknown tokens than most annotated ones, or a lower
score, has no probability above its scores). Some rows turn it round: calibrated on the other text.

The rule was chosen on the rows `dev`. `rules` has what else was tried there: the mean of probability and score
(`half_raw`), the score by the shift (`raw_by_shift`), the lower of both for all pairs (`lower`), and for pairs with
more unknown tokens than 95 % of the annotated ones (`lower_if_far`), or the shift by unknown tokens or by the score of
the pair alone (`lower_by_unknown`, `lower_by_score`).
"""

import argparse
import tempfile
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hf_attncal import WordAligner
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.alignment.gold import calibrate_links, scored_links
from hf_attncal.alignment.probabilities import LIKE, UNLIKE
from hf_attncal.data.gold import Gold
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.probabilities import probability_score

# Of each aligner: languages, training text, how many pairs of it, and the annotated pairs that it is calibrated on.
ALIGNERS = {
    "enfr": ("en", "fr", ("wpt03-enfr/train.100k",), 20_000, "wpt03-enfr/dev"),
    "derm": ("de", "rm", ("dermit-derm/train",), 20_000, "dermit-derm/dev"),
    "deen": ("de", "en", ("multi30k/train", "wmtmix-deen/train"), None, "bicici-deen/dev"),
    "enes": ("en", "es", ("xlwa/en-es/silver-train",), None, "xlwa/en-es/dev"),
    "enpt": ("en", "pt", ("xlwa/en-pt/silver-train",), None, "xlwa/en-pt/dev"),
    "enit": ("en", "it", ("xlwa/en-it/silver-train",), None, "xlwa/en-it/dev"),
    "enhu": ("en", "hu", ("xlwa/en-hu/silver-train",), None, "xlwa/en-hu/dev"),
    "enfr_turned": ("en", "fr", ("wpt03-enfr/train.100k",), 20_000, "golden-enfr/test"),
    "enes_turned": ("en", "es", ("xlwa/en-es/silver-train",), None, "golden-enes/test"),
}
# The same aligner, calibrated on another text.
ALIGNER_OF = {"enfr_turned": "enfr", "enes_turned": "enes"}
# Of each aligner: text that it aligns, its languages, what it was for, and whether the aligner reads it before.
TEXTS = [
    ("enfr", "golden-enfr/test", "en", "fr", "dev", False),
    ("enfr", "golden-enfr/test", "en", "fr", "dev", True),
    ("enfr", "xlwa/en-es/dev", "en", "es", "dev", False),
    ("enfr", "bicici-deen/dev", "de", "en", "dev", False),
    ("enfr", "bicici-deen/dev", "de", "en", "dev", True),
    ("enes", "golden-enes/test", "en", "es", "dev", False),
    ("enes", "golden-enes/test", "en", "es", "dev", True),
    ("enes", "xlwa/en-pt/dev", "en", "pt", "dev", False),
    ("enfr_turned", "wpt03-enfr/dev", "en", "fr", "dev", False),
    ("enes_turned", "xlwa/en-es/dev", "en", "es", "dev", False),
    ("enfr", "wpt03-enfr/test", "en", "fr", "test", False),
    ("enfr", "ges-ensv/test", "en", "sv", "test", False),
    ("enfr", "ges-ensv/test", "en", "sv", "test", True),
    ("enfr", "czenali-encs/test", "en", "cs", "test", False),
    ("enfr", "czenali-encs/test", "en", "cs", "test", True),
    ("derm", "dermit-derm/test", "de", "rm", "test", False),
    ("deen", "rwth-deen/test", "de", "en", "test", False),
    ("deen", "rwth-deen/test", "de", "en", "test", True),
    ("enpt", "xlwa/en-pt/test", "en", "pt", "test", False),
    ("enpt", "golden-enpt/test", "en", "pt", "test", False),
    ("enpt", "golden-enpt/test", "en", "pt", "test", True),
    ("enpt", "xlwa/en-es/test", "en", "es", "test", False),
    ("enit", "xlwa/en-it/test", "en", "it", "test", False),
    ("enit", "xlwa/en-es/test", "en", "es", "test", False),
    ("enhu", "xlwa/en-hu/test", "en", "hu", "test", False),
]
Said = list[np.ndarray]
Mix = Callable[[np.ndarray, np.ndarray], np.ndarray]


def trained(root: Path, name: str, kept: Path | None) -> tuple[WordAligner, dict[str, Path]]:
    """Return an aligner that has counted its text, and the files of the text; `kept` is as --aligners."""
    source, target, texts, pairs, _ = ALIGNERS[name]
    sides = {
        side: [next(root.glob(f"{text}.{language}*")) for text in texts]
        for side, language in (("source", source), ("target", target))
    }
    data = {"train": {side: list(map(str, files)) for side, files in sides.items()}, "train_pairs": pairs}
    with tempfile.TemporaryDirectory() as temporary:
        folder = str(kept / ALIGNER_OF.get(name, name)) if kept else temporary
        if not Path(folder, "config.json").exists():
            AlignerJob.train(AlignerConfig.make({"preset": "hmm", "data": data, "training": {"output_dir": folder}}))
        aligner = WordAligner.from_pretrained(folder, device="cpu")
    return aligner, {f"{name}_{side}{n}": file for side, files in sides.items() for n, file in enumerate(files)}


def error(said: Said, right: list) -> dict[str, float]:
    """Return ECE and Brier score, as fractions."""
    scored = probability_score(said, right)
    return {"ece": scored.ece, "brier": scored.brier}


def mixed(aligner: WordAligner, raw: Said, shifts: list[float], mix: Mix) -> Said:
    """Return probabilities that go towards `mix(probability, score)` by the shift of each pair."""
    rule = aligner.probabilities.rules[aligner.source.symmetrization]
    plain = [np.array(rule.of(scores)) for scores in raw]
    return [p + d * (mix(p, s) - p) for p, s, d in zip(plain, raw, shifts, strict=True)]


def measure(aligner: WordAligner, most_unknown: float, gold: Gold, adapt: bool, rules: bool) -> dict:
    """Return the errors of a calibrated aligner on a text.

    Args:
        most_unknown: share of unknown tokens that 95 % of the annotated pairs do not exceed.
        adapt: read the text first.
        rules: measure what else was tried, too.
    """
    aligner = copy(aligner)
    shares = aligner.unknown_shares(gold.pairs)
    result = {"pairs": len(gold.pairs), "unknown": float(np.mean(shares))}
    if adapt:
        aligner.source = copy(aligner.source)
        aligner.source.model = deepcopy(aligner.model)
        result["weight"] = aligner.adapt(gold.pairs).weight
    plain = copy(aligner)
    plain.probabilities = None
    (scores, right), (shrunk, _) = scored_links(plain, gold), scored_links(aligner, gold)
    raw, everywhere = [np.array(one) for one in scores], [1.0] * len(scores)
    flat = np.concatenate(raw)
    result |= {"links": len(flat), "mean": float(flat.mean())}
    result |= {"right": float(np.mean([value for pair in right for value in pair]))}
    shifts = [one.shift for one in aligner.align(gold.pairs)]
    result |= {"shift": float(np.mean(shifts)), "raw": error(raw, right), "shrunk": error(shrunk, right)}
    result["calibrated"] = error(mixed(aligner, raw, [0.0] * len(raw), np.minimum), right)
    if rules:
        learned, pair_scores = aligner.probabilities, [one.score for one in plain.align(gold.pairs)]
        by_unknown = [adapt or replace(learned, score=None).shift(share, None) for share in shares]
        by_score = [adapt or learned.shift(None, score) for score in pair_scores]
        far = [float(adapt) or min(1.0, max(0.0, (share - most_unknown) / 0.1)) for share in shares]
        tried = {
            "half_raw": (everywhere, lambda p, s: (p + s) / 2),
            "raw_by_shift": (shifts, lambda p, s: s),
            "lower": (everywhere, np.minimum),
            "lower_if_far": (far, np.minimum),
            "lower_by_unknown": (by_unknown, np.minimum),
            "lower_by_score": (by_score, np.minimum),
        }
        result["rules"] = {name: error(mixed(aligner, raw, *how), right) for name, how in tried.items()}
    return result


def main(arguments: list[str] | None = None) -> None:
    """Calibrate every aligner, and measure it on every text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--aligners", type=Path, metavar="FOLDER", help="where trained aligners are kept")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    files, rows = {}, []

    def read(name: str, source: str, target: str) -> Gold:
        paths = {end: args.data / f"{name}.{end}" for end in (source, target, "align")}
        files.update({f"{name}.{end}": path for end, path in paths.items()})
        return Gold.read(*paths.values())

    for name, (source, target, _, _, dev) in ALIGNERS.items():
        aligner, text = trained(args.data, name, args.aligners)
        files |= text
        gold = read(dev, source, target)
        learned = calibrate_links(aligner, gold)
        most_unknown = float(np.quantile(aligner.unknown_shares(gold.pairs), 0.95))
        aligner.probabilities = learned.probabilities
        before = {"raw": learned.before.ece, "calibrated": learned.after.ece}
        before |= {"unknown": learned.probabilities.unknown, "score": learned.probabilities.score}
        for system, test, *languages, role, adapt in TEXTS:
            if system == name:
                found = measure(aligner, most_unknown, read(test, *languages), adapt, role == "dev")
                rows.append({"aligner": name, "calibrated_on": dev, "on_dev": before, "text": test, "role": role})
                rows[-1] |= {"adapted": adapt, **found}
                errors = " ".join(f"{100 * found[one]['ece']:.1f}" for one in ("raw", "calibrated", "shrunk"))
                print(f"{name} -> {test}, adapted {adapt}: {errors}", flush=True)
    write_json(records.record({"like": LIKE, "unlike": UNLIKE}, files) | {"rows": rows}, args.output)


if __name__ == "__main__":
    main()
