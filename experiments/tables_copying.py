"""The tables of models that copy: ROUGE of headlines, what is copied and by which head, and what copying costs."""

import statistics

from committed import NOT_RUN, conditions, markdown, mean_and_spread, ratio, read_all, table
from headlines import COPYING

MEASURES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
SHARES = {
    "unknown": "unknown, left out",
    "in_source": "in the text",
    "copied": "copied",
    "copied_right": "copied, in the reference",
    "outside_recall": "unknown words, found",
    "outside_precision": "unknown words, in the reference",
}
# Part of the benchmark -> ratios by the clock and by the time of the processor.
SPEED = {
    "training_step": ("time_ratio", "cpu_time_ratio"),
    "generation": ("speed_ratio", "cpu_speed_ratio"),
}


def rouge() -> str:
    """ROUGE of test, and seed by seed what each setting gains over what it is built on."""
    runs = {setting: list(read_all(f"copying/{setting}_seed*").values()) for setting in COPYING}
    rows, signatures = [], {}
    for setting in filter(runs.get, COPYING):
        label, peer = COPYING[setting]
        found = runs[setting]
        signatures |= dict.fromkeys(f"`{run['test']['signature']}`" for run in found)
        against = {run["config"]["training"]["seed"]: run["test"]["rouge1"] for run in runs.get(peer, [])}
        seeds = [run["config"]["training"]["seed"] for run in found]
        gains = [run["test"]["rouge1"] - against[s] for run, s in zip(found, seeds, strict=True) if s in against]
        compared = f"{' / '.join(f'{gain:+.2f}' for gain in gains)} to {COPYING[peer][0]}" if gains else "-"
        rows.append(
            [
                label,
                *(mean_and_spread([run["test"][measure] for run in found]) for measure in MEASURES),
                compared,
                mean_and_spread([run["wall_seconds"] / 60 for run in found], digits=0),
            ]
        )
    return table(["", *MEASURES.values(), "ROUGE-1, each seed", "minutes"], rows, " and ".join(signatures))


def words() -> str:
    """What the models write themselves: words of the text, copied ones, and those without a number; percent."""
    rows, note = [], ""
    for setting, (label, _) in COPYING.items():
        found = [run["words"] for run in read_all(f"copying/heads/{setting}_seed*").values()]
        if found:
            note = f"{found[0]['outside_reference_words']:,} words of references that only the text has"
            for one in found:
                one["unknown"] = one["unknown_words"] / (one["unknown_words"] + one["written_words"])
            kept = mean_and_spread([words["rouge1_unknown_kept"] for words in found])
            rows.append([label, *(_percent([words[name] for words in found]) for name in SHARES), kept])
    return table(["of what is written, percent", *SHARES.values(), "ROUGE-1 with unknown words"], rows, note)


def heads() -> str:
    """Words that stand once in the text: how many a head looks at; the one that copies and the best, percent."""
    rows, signature = [], ""
    for setting, (label, _) in COPYING.items():
        found = list(read_all(f"copying/heads/{setting}_seed*").values())
        for stage in found[0]["heads"] if found else ():
            signature = f"`{found[0]['heads'][stage][0][0]['signature']}`"
            every = [[head["accuracy"] for layer in run["heads"][stage] for head in layer] for run in found]
            copying = None
            if found[0]["copy_head"]:
                layer, head = found[0]["copy_head"]
                copying = [run["heads"][stage][layer][head]["accuracy"] for run in found]
            name = label if len(found[0]["heads"]) == 1 else f"{label}, {stage} calibration"
            others = [statistics.fmean(values) for values in every]
            rows.append([name, _percent(copying), _percent(list(map(max, every))), _percent(others)])
    return table(["looks at the word, percent", "head that copies", "best head", "mean of heads"], rows, signature)


def swapped() -> str:
    """ROUGE-1 of dev when a finished model copies by a head that was not trained for it."""
    rows = []
    for setting, (label, _) in COPYING.items():
        found = [run["swapped"] for run in read_all(f"copying/heads/{setting}_seed*").values() if "swapped" in run]
        if found:
            own = [one["rouge1"] for run in found for one in run if one["trained"]]
            layer = next(one["layer"] for one in found[0] if one["trained"])
            others = [one for run in found for one in run if not one["trained"]]
            groups = ([one["rouge1"] for one in others if (one["layer"] == layer) is same] for same in (True, False))
            rows.append([label, mean_and_spread(own), *(f"{min(g):.1f} to {max(g):.1f}" for g in groups)])
    return table(["ROUGE-1 of dev, greedy", "its own head", "others of the layer", "of other layers"], rows)


def speed() -> str:
    """What copying costs at each shape: time of a training step, and speed of generation, over those without it."""
    text = ""
    for result in read_all("benchmark_copying_*").values():
        rows = [
            [shape, *(ratio(found[what][key]) for what, keys in SPEED.items() for key in keys)]
            for shape, found in result["variants"].items()
        ]
        header = [
            "over the model without copying",
            "training step, time",
            "CPU time",
            "generation, speed",
            "by CPU time",
        ]
        text += f"{markdown(header, rows)}\n{conditions(result)}\n"
    return text or f"{NOT_RUN}\n"


def _percent(shares: list[float | None] | None) -> str:
    if shares is None or None in shares:
        return "-"
    return mean_and_spread([100 * share for share in shares], 1)


COPYING_TABLES = {
    "copying-rouge": rouge,
    "copying-words": words,
    "copying-heads": heads,
    "copying-swapped": swapped,
    "copying-speed": speed,
}
