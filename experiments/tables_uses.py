"""The tables of what is built on links: probabilities, carried labels, a threshold on the score of a pair."""

import statistics
from collections.abc import Iterable

from committed import mean_and_spread, percent_with_interval, read, read_all, table

# Forms of the calibration -> what a table calls them. Unless they say so, they learn from all links above 0.05.
FORMS = {
    "constant, low, 0.001": "the share that is right, whatever the score",
    "temperature, low, 0.001": "temperature, 1 parameter",
    "platt, low, 0.001": "Platt, 2 parameters (chosen)",
    "beta, low, 0.001": "beta, 3 parameters",
    "isotonic, low, 0.001": "isotonic regression",
    "platt, own, 0.001": "Platt, from the links by the aligner's own rule",
    "platt, low, 1e-06": "Platt, scores told apart up to 0.000001 and 0.999999",
}
CARRIED = {"tags": "tags, target words", "spans": "spans, both ends", "markup": "elements of markup, both ends"}


def link_probabilities() -> str:
    """Each aligner on test, before and after calibration on dev, and calibrated without gold."""
    rows, signature = [], ""
    for result in read_all("probabilities/*").values():
        for name, system in result["systems"].items():
            test, low, without = (system.get(key) for key in ("test", "test_low_threshold", "without_gold"))
            before, after = test["before"], test["after"]
            signature = after["signature"]
            ends = (100 * end for end in test["ece_difference"])
            rows.append(
                [
                    f"{name.replace('_seed', ', seed ')}, {result['config']['pair']}",
                    f"{100 * before['mean']:.1f}",
                    f"{100 * after['right']:.1f}",
                    *(percent_with_interval(score["ece"], score["interval"]) for score in (before, after)),
                    "{:+.1f} to {:+.1f}".format(*ends),
                    f"{before['brier']:.3f}, {after['brier']:.3f}",
                    f"{100 * low['before']['ece']:.1f}, {100 * low['after']['ece']:.1f}",
                    "-" if without is None else f"{100 * without['after']['ece']:.1f}",
                ]
            )
    header = ["aligner, test", "mean score, %", "right, %", "ECE before", "ECE after", "difference (95 %)"]
    header += ["Brier before, after", "ECE of links above 0.05, before, after", "ECE after, without gold"]
    return table(header, rows, f"`{signature}`")


def probability_forms() -> str:
    """What was compared on dev: the mean over the aligners of a pair."""
    results = read_all("probabilities/*").values()
    rows = []
    for form, label in FORMS.items() if results else ():
        cells = []
        for result in results:
            found = [system["forms"][form] for system in result["systems"].values()]
            cells += [f"{_mean(one['nll'] for one in found):.4f}", f"{_mean(one['brier'] for one in found):.4f}"]
        rows.append([label, *cells])
    pairs = [result["config"]["pair"] for result in results]
    return table(["form", *(f"{measure}, {pair}" for pair in pairs for measure in ("NLL", "Brier"))], rows)


def projection() -> str:
    """Where planted labels arrive."""
    result = read("projection")
    seeds = list(result["seeds"].values()) if result else []
    rows = [
        [
            label,
            f"{sum(seed['aligner'][what]['count'] for seed in seeds):,}",
            *(
                mean_and_spread([100 * seed[links][what]["accuracy"] for seed in seeds], 1)
                for links in ("exact_links", "aligner")
            ),
        ]
        for what, label in CARRIED.items()
        if seeds
    ]
    return table(["what is carried", "planted", "right over exact links, %", "over links of `hmm`, %"], rows)


def noisy_pairs() -> str:
    """Of each aligner, what of each kind of noise is found, by two thresholds, and the area under the curve."""
    rows, kinds = [], []
    for result in read_all("noisy_pairs/*").values():
        kinds = result["config"]["kinds"]
        for name, seeds in result["systems"].items():
            runs = list(seeds.values())
            where = f"{name.partition('_seed')[0]}, {result['config']['pair']}"
            for rule, label in (("lost_5", "5 % lost"), ("f1", "best F1")):
                found = [run["rules"][rule] for run in runs]
                rows.append(
                    [
                        f"{where}, {label}",
                        f"{_mean(one['threshold'] for one in found):.2f}",
                        f"{100 * _mean(one['good_lost'] for one in found):.1f}",
                        *(f"{100 * _mean(one['kinds'][kind]['recall'] for one in found):.0f}" for kind in kinds),
                        *(f"{100 * _mean(one[measure] for one in found):.0f}" for measure in ("recall", "precision")),
                    ]
                )
            areas = (f"{_mean(run['auc_of_kind'][kind] for run in runs):.3f}" for kind in kinds)
            rows.append([f"{where}, AUC", "-", "-", *areas, f"{_mean(run['auc'] for run in runs):.3f}", "-"])
    header = ["aligner", "threshold", "good pairs lost, %", *(kind.replace("_", " ") for kind in kinds)]
    return table([*header, "all noise", "precision, %"], rows)


def shifted_probabilities() -> str:
    """ECE of scores and probabilities in text of another kind than the annotated pairs."""
    result, rows = read("shifted_probabilities"), []
    for row in result["rows"] if result else ():
        system = f"{row['aligner']}{', adapted' if row['adapted'] else ''}"
        errors = [f"{100 * row[one]['ece']:.1f}" for one in ("raw", "calibrated", "shrunk")]
        shares = [f"{100 * row[one]:.1f}" for one in ("mean", "right")]
        rows.append([system, row["calibrated_on"], row["text"], row["role"], f"{row['shift']:.2f}", *shares, *errors])
    header = ["aligner", "calibrated on", "text", "role", "shift", "mean score, %", "right, %"]
    return table([*header, "ECE of scores", "ECE, calibrated", "ECE, at most the score if unlike"], rows)


def shift_rules() -> str:
    """ECE on dev rows by what was tried."""
    result, rows = read("shifted_probabilities"), []
    for row in result["rows"] if result else ():
        if "rules" in row:
            errors = row["rules"] | {name: row[name] for name in ("raw", "calibrated", "shrunk")}
            name = f"{row['aligner']}{', adapted' if row['adapted'] else ''}, {row['text']}"
            rows.append([name, *(f"{100 * errors[rule]['ece']:.1f}" for rule in SHIFT_RULES)])
    return table(["ECE on dev", *SHIFT_RULES.values()], rows)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


SHIFT_RULES = {
    "raw": "scores",
    "calibrated": "calibrated",
    "half_raw": "mean of both",
    "raw_by_shift": "towards the score",
    "lower": "the lower, all pairs",
    "lower_by_score": "the lower, by the score of the pair",
    "shrunk": "the lower, by unknown tokens (chosen)",
}

USES_TABLES = {
    "shifted-probabilities": shifted_probabilities,
    "shift-rules": shift_rules,
    "link-probabilities": link_probabilities,
    "probability-forms": probability_forms,
    "projection": projection,
    "noisy-pairs": noisy_pairs,
}
