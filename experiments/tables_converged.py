"""The tables of models that are trained out."""

import statistics

from committed import mean_and_spread, read, read_all, table, with_p_value
from headlines import CALIBRATIONS, COMPARED, CONVERGED, GUIDED, GUIDED_OVER, ONE_PASS, READ_ONCE

BASELINE = COMPARED[0]
SIZES = {"multi30k": "29,000", "multi30k_10000": "10,000", "multi30k_5000": "5,000"}


def converged(corpus: str) -> str:
    """BLEU of each kind of attention beside the baseline of the same seed, and what its attention is like."""
    compared = (read(f"converged/{corpus}/paired") or {"paired": {}})["paired"]
    rows, note = [], ""
    for setting in COMPARED:
        runs = read_all(f"converged/{corpus}/{setting}_seed*").values()
        if not runs:
            continue
        paired = [compared.get(f"{setting}_seed{run['config']['training']['seed']}") for run in runs]
        gains = [with_p_value(one["test"]) for one in paired if one]
        note = f"sacreBLEU `{next(iter(runs))['test']['signature']}`"
        rows.append(
            [
                setting,
                *(mean_and_spread([run[split]["bleu"] for run in runs]) for split in ("dev", "test")),
                ", ".join(gains) or "-",
                *(_attention(runs, "reliability_level", layer) for layer in (0, -1)),
                _attention(runs, "entropy", -1),
                f"{statistics.median(run['wall_seconds'] for run in runs) / 60:.0f}",
            ]
        )
    header = ["attention", "dev BLEU", "test BLEU", "test, to the baseline of each seed"]
    header += ["reliability, first layer", "top layer", "entropy, top layer", "minutes"]
    return table(header, rows, note)


def _attention(runs, measure: str, layer: int) -> str:
    values = [run["attention"][measure][layer] for run in runs if "attention" in run]
    return f"{statistics.fmean(values):.2f}" if values else "-"


def by_size() -> str:
    """What each kind of attention gains over the baseline, by the amount of text; the mean over seeds."""
    rows = []
    for corpus, pairs in SIZES.items():
        baseline = _bleu(corpus, "baseline")
        if not baseline:
            continue
        cells = []
        for setting in CALIBRATIONS[1:]:
            found = _bleu(corpus, setting)
            both = [found[seed] - baseline[seed] for seed in sorted(found.keys() & baseline.keys())]
            cells.append(
                f"{statistics.fmean(both):+.2f} ({', '.join(f'{gain:+.1f}' for gain in both)})" if both else "-"
            )
        rows.append([pairs, mean_and_spread(list(baseline.values())), *cells])
    return table(["pairs", "baseline, test BLEU", *CALIBRATIONS[1:]], rows)


def _bleu(corpus: str, setting: str) -> dict[int, float]:
    runs = read_all(f"converged/{corpus}/{setting}_seed*").values()
    return {run["config"]["training"]["seed"]: run["test"]["bleu"] for run in runs}


def guided_training() -> str:
    """BLEU of models that learned links from their first step, beside the same without links."""
    rows, note = [], ""
    for corpus, pair in GUIDED.items():
        for setting, base in GUIDED_OVER.items():
            runs = {name: read_all(f"converged/{corpus}/{name}_seed*").values() for name in (base, setting)}
            if not all(runs.values()):
                continue
            note = f"sacreBLEU `{next(iter(runs[base]))['test']['signature']}`"
            plain = _bleu(corpus, base)
            for name, found in runs.items():
                gains = [bleu - plain[seed] for seed, bleu in _bleu(corpus, name).items() if seed in plain]
                rows.append(
                    [
                        pair,
                        name.replace("_", ", "),
                        *(mean_and_spread([run[split]["bleu"] for run in found]) for split in ("dev", "test")),
                        ", ".join(f"{gain:+.2f}" for gain in gains) if name == setting else "-",
                    ]
                )
    return table(["text", "attention", "dev BLEU", "test BLEU", "test, to the same seed without links"], rows, note)


def text_of_masks(file: str) -> str:
    """Return what a file of results/masks_learn/ had as its text, as `2,000 generated` or `10,000 of multi30k`."""
    name, _, pairs = file.rpartition("/")[2].rpartition("_")
    return f"{int(pairs):,} {f'of {name}' if name else 'generated'}"


def one_pass() -> str:
    """Where each kind of attention is when the text has been read once, and what it gains over the baseline."""
    models = (read(ONE_PASS) or {"models": {}})["models"]
    rows, note = [], ""
    for setting in READ_ONCE:
        found = {stem.rpartition("_seed")[2]: model for stem, model in models.items() if _setting(stem) == setting}
        if not found:
            continue
        last = [model["equal_steps"] for model in found.values()]
        note = f"sacreBLEU `{last[0]['signature']}`"
        cells = [mean_and_spread([point["nats"] for point in last], 3), mean_and_spread([p["bleu"] for p in last])]
        for measure, digits in (("nats", 3), ("bleu", 2)):
            for when in ("equal_steps", "equal_time"):
                gains = [
                    model[when][measure] - models[f"{BASELINE}_seed{seed}"]["equal_steps"][measure]
                    for seed, model in found.items()
                    if f"{BASELINE}_seed{seed}" in models and setting != BASELINE
                ]
                cells.append(", ".join(f"{gain:+.{digits}f}" for gain in gains) or "-")
        rows.append([setting, f"{read(ONE_PASS)['step_cost'][setting]['median']:.2f}", *cells])
    header = ["attention", "cost of a step", "nats", "BLEU"]
    header += [f"{measure}, {when}" for measure in ("nats", "BLEU") for when in ("equal steps", "equal time")]
    return table(header, rows, note)


def one_pass_way() -> str:
    """By how many nats each kind of attention is below the baseline of its seed after so many pairs; means."""
    models = (read(ONE_PASS) or {"models": {}})["models"]
    ways = {stem: {point["pairs"]: point["nats"] for point in model["way"]} for stem, model in models.items()}
    by_setting = {
        setting: [
            (way, ways[f"{BASELINE}_seed{seed}"])
            for stem, way in ways.items()
            if _setting(stem) == setting and f"{BASELINE}_seed{(seed := stem.rpartition('_seed')[2])}" in ways
        ]
        for setting in READ_ONCE
    }
    by_setting = {setting: both for setting, both in by_setting.items() if both}
    if not by_setting:
        return table([], [])
    points = sorted(
        set.intersection(*(way.keys() & base.keys() for both in by_setting.values() for way, base in both))
    )
    rows = []
    for pairs in points:
        base = statistics.fmean(way[pairs] for way, _ in by_setting[BASELINE])
        gains = [
            statistics.fmean(way[pairs] - base[pairs] for way, base in both)
            for setting, both in by_setting.items()
            if setting != BASELINE
        ]
        rows.append([f"{pairs:,}", f"{base:.3f}", *(f"{gain:+.3f}" for gain in gains)])
    return table(["pairs read", "baseline, nats", *(name for name in by_setting if name != BASELINE)], rows)


def _setting(stem: str) -> str:
    return stem.rpartition("_seed")[0]


def masks_learn() -> str:
    """What the mask network came to with little text, as in the paper and with `mask_cost`; medians over seeds."""
    rows = []
    for file, result in read_all("masks_learn/*").items():
        for cost in (None, 0.1):
            runs = [run for run in result["runs"] if run["mask_cost"] == cost]
            last = [run["history"][-1] for run in runs]
            gains = [-entry["mask_loss"] - entry["nmt_loss"] for entry in last]
            rows.append(
                [
                    text_of_masks(file),
                    "as in the paper" if cost is None else f"{cost}",
                    f"{sum(run['useful'] for run in runs)} of {len(runs)}",
                    f"{statistics.median(entry['mask_mean'] for entry in last):.4f}",
                    f"{statistics.median(gains):.3f}",
                    f"{statistics.median(entry['nmt_loss'] for entry in last):.2f}",
                ]
            )
    return table(["pairs", "`mask_cost`", "masks of use", "mean mask", "gain, nats", "translation loss"], rows)


CONVERGED_TABLES = {
    **{f"converged-{corpus}": (lambda corpus=corpus: converged(corpus)) for corpus in CONVERGED},
    "converged-by-size": by_size,
    "guided-training": guided_training,
    "one-pass": one_pass,
    "one-pass-way": one_pass_way,
    "masks-learn": masks_learn,
}
