"""The tables that have a form of their own; all others are rows of tables.yaml."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations

from cells import labels_of
from committed import (
    NOT_RUN,
    ROOT,
    markdown,
    mean_and_spread,
    percent_with_interval,
    read,
    read_all,
    table,
)
from places import find
from run import read_index

COPYING = labels_of("copying-words", "setting")
LEAST_WORDS = 50  # of a part of speech

# ---- aligners ----

# Ours as rows of `results/aligners_PAIR.json` are: counts, and each seed of the network that they guide.
OURS = {
    "aligner/{pair}_hmm": "counts (`hmm`)",
    "aligner/{pair}_seed{seed}": "a network guided by counts (`small`), seed {seed}",
    "aligner/{pair}_all": "a network guided by counts of all 819,643 pairs, seed 1",
}
PAIRS = {"wpt03-enfr": "wpt03", "dermit-derm": "dermit"}  # and how the names of their files begin
EARLIER = {
    "raw text": "a network from the text alone, without jumps",
    "eflomal": "a network from links of eflomal, without jumps",
}


def _trained_aligners(pair: str) -> Iterator[tuple[str, dict]]:
    for pattern, label in OURS.items() if pair in PAIRS else ():
        for found in find(pattern, pair=PAIRS[pair]):
            run = found.value
            seconds = run["wall_seconds"] + run.get("counts", {}).get("wall_seconds", 0)
            row = {"seconds": seconds, "symmetrization": run["dev"]["symmetrization"]}
            yield f"ours, {label.format(**found.names)}", row | {split: run[split] for split in ("dev", "test")}


def aligners() -> str:
    """Alignment error rates of our checkpoints and of other aligners, one table for all pairs of languages."""
    rows, signatures = [], {}
    for result in read_all("aligners_*").values():
        pair = result["config"]["pair"]
        for name, row in (*result["systems"].items(), *_trained_aligners(pair)):
            label = name
            for words, earlier in EARLIER.items():
                label = re.sub(f"^ours, .* {words}$", f"ours, {earlier}", label)
            cells = [f"{label}, {pair}", f"{100 * row['dev']['aer']:.1f}", NOT_RUN, "-", "-"]
            if scored := row.get("test"):
                shares = [f"{100 * scored[measure]:.1f}" for measure in ("precision", "recall")]
                cells[2:] = [percent_with_interval(scored["aer"], scored["interval"]), *shares]
                signatures[re.sub(r"symm:[^|]*", "symm:*", scored["signature"])] = None
            minutes = (row["seconds"] + row.get("training_seconds", 0)) / 60
            rows.append([*cells, row["symmetrization"], f"{minutes:.1f}"])
        for row in (read("reported_aligners") or {"rows": []})["rows"]:
            if row["pair"] == pair:
                where = "measured elsewhere on these files" if row["same_files"] else "published, whole test set"
                rows.append([f"{row['name']}, {pair} ({where})", "-", f"{row['aer']:.1f}", "-", "-", "-", "-"])
    header = ["aligner", "dev AER", "test AER (95 %)", "precision", "recall", "symmetrisation", "minutes"]
    return table(header, rows, "\n\n".join(f"`{signature}`" for signature in signatures))


def without_gold() -> str:
    """The error rate of aligners beside what is known without gold links, those with the lowest error rate first."""
    rows, pairs = [], []
    for result in read_all("without_gold/*").values():
        pairs += combinations(result["systems"].values(), 2)
        for name, system in sorted(result["systems"].items(), key=lambda item: item[1]["aer"]):
            figures = [f"{100 * system['aer']:.1f}", f"{system['links']:,}", f"{system['nats']['value']:.3f}"]
            rows.append([result["config"]["pair"], name, *figures])
    near = [(a, b) for a, b in pairs if max(a["links"], b["links"]) <= 1.05 * min(a["links"], b["links"])]
    alike = [
        sum((a["aer"] - b["aer"]) * (a["nats"]["value"] - b["nats"]["value"]) > 0 for a, b in some)
        for some in (near, pairs)
    ]
    note = (
        f"Of aligners whose numbers of links differ by 5 % at most, both order {alike[0]} of {len(near)} pairs alike; "
        f"of all, {alike[1]} of {len(pairs)}."
    )
    return table(["pair", "aligner", "AER, test", "links", "nats"], rows, note)


def recurrent_aer() -> str:
    """AER of attention and of UAM, by what dev has chosen: step, layer and heads, and the best word or a threshold."""
    rows = []
    for found in find("recurrent/aer/{pair}_{setting}_seed{seed}"):
        run, model = found.value, "{setting}, {pair}".format(**found.names)
        for name, row in run["attention"].items():
            parts = [] if name.startswith("uam") else _layer(row["settings"])
            parts.append("the step after" if row["settings"]["shift"] else "its step")
            if "threshold" in row:
                parts.append("best word" if row["threshold"] is None else f"above {row['threshold']:g}")
            others = row.get("other_words")
            rows.append(
                [
                    f"{model}, {run['steps']:,} steps: {name.replace('uam', 'UAM')}",
                    f"{100 * row['dev']['aer']:.1f}",
                    percent_with_interval(row["test"]["aer"], row["test"]["interval"]),
                    f"{100 * others['test']['aer']:.1f}" if others else NOT_RUN,
                    ", ".join(parts),
                ]
            )
        if difference := run.get("uam_minus_attention"):
            both = (difference[part] for part in ("all", "other_words"))
            points = (percent_with_interval(part["aer"], part["interval"]) for part in both)
            rows.append([f"{model}: UAM minus attention, thresholds", "", *points, ""])
    return table(["model", "dev AER", "test AER (95 %)", "without copies", "chosen on dev"], rows)


def _layer(settings: dict) -> list[str]:
    heads = settings["heads"]
    numbers = [] if heads is None else [f"heads {', '.join(str(head + 1) for head in heads)}"]
    return [f"layer {settings['layer'] + 1}", *numbers]


# ---- models that copy ----


def copying_heads() -> str:
    """Words that stand once in the text: how many a head looks at; the one that copies and the best, percent."""
    rows, signature = [], ""
    for setting, label in COPYING.items():
        runs = list(read_all(f"copying/heads/{setting}_seed*").values())
        for stage in runs[0]["heads"] if runs else ():
            layers = [run["heads"][stage] for run in runs]
            signature = f"`{layers[0][0][0]['signature']}`"
            every = [[head["accuracy"] for layer in of for head in layer] for of in layers]
            copying = "-"
            if runs[0]["copy_head"]:
                layer, head = runs[0]["copy_head"]
                copying = _percent([of[layer][head]["accuracy"] for of in layers])
            name = label if len(runs[0]["heads"]) == 1 else f"{label}, {stage} calibration"
            rows.append([name, copying, _percent(list(map(max, every))), _percent(list(map(statistics.fmean, every)))])
    return table(["looks at the word, percent", "head that copies", "best head", "mean of heads"], rows, signature)


def copying_swapped() -> str:
    """ROUGE-1 of dev when a finished model copies by a head that was not trained for it."""
    rows = []
    for setting, label in COPYING.items():
        swaps = [swap.value for swap in find(f"copying/heads/{setting}_seed{{seed}}#/swapped/*")]
        if swaps:
            own = [swap for swap in swaps if swap["trained"]]
            others = [swap for swap in swaps if not swap["trained"]]
            of_layer = [swap["rouge1"] for swap in others if swap["layer"] == own[0]["layer"]]
            elsewhere = [swap["rouge1"] for swap in others if swap["layer"] != own[0]["layer"]]
            extents = (f"{min(values):.1f} to {max(values):.1f}" for values in (of_layer, elsewhere))
            rows.append([label, mean_and_spread([swap["rouge1"] for swap in own]), *extents])
    return table(["ROUGE-1 of dev, greedy", "its own head", "others of the layer", "of other layers"], rows)


def _percent(shares: list[float]) -> str:
    return mean_and_spread([100 * share for share in shares], ".1f")


# ---- a text that is read once ----


def one_pass_way() -> str:
    """By how many nats each kind of attention is below the baseline of its seed after so many pairs; means."""
    ways: dict[str, dict[str, dict[int, float]]] = {}  # setting -> seed -> pairs -> nats
    for found in find("converged/wpt03_large/way#/models/{setting}_seed{seed}/way/*"):
        way = ways.setdefault(found.names["setting"], {}).setdefault(found.names["seed"], {})
        way[found.value["pairs"]] = found.value["nats"]
    baseline = ways.get("baseline", {})
    gains = {
        setting: [(ways[setting][seed], baseline[seed]) for seed in ways[setting] if seed in baseline]
        for setting in labels_of("one-pass", "setting")
        if setting in ways and setting != "baseline"
    }
    gains = {setting: both for setting, both in gains.items() if both}
    points = [set(way) for both in gains.values() for way, _ in both] + [set(way) for way in baseline.values()]
    rows = [
        [
            f"{pairs:,}",
            f"{statistics.fmean(way[pairs] for way in baseline.values()):.3f}",
            *(f"{statistics.fmean(way[pairs] - base[pairs] for way, base in both):+.3f}" for both in gains.values()),
        ]
        for pairs in sorted(set.intersection(*points) if points else ())
    ]
    return table(["pairs read", "baseline, nats", *gains], rows)


# ---- methods of attribution, attention over a corpus ----


def faithfulness_verdicts() -> str:
    """How often contributions are more faithful than another method, less, or nobody can tell: seeds and targets."""
    judged: dict[str, dict[str, Counter]] = {}
    for found in find("analysis/faithfulness_multi30k_{setting}_seed{seed}#/{kind}/verdicts/{area}/{other}"):
        if found.around[1]["method"] == "contribution":
            verdict = {"contribution": "better", None: "no verdict"}.get(found.value["better"], "worse")
            by_area = judged.setdefault(found.names["other"], {})
            by_area.setdefault(found.names["area"], Counter())[verdict] += 1
    areas = ("comprehensiveness", "sufficiency")
    rows = [
        [other, *(", ".join(f"{name} {by_area[area][name]}" for name in sorted(by_area[area])) for area in areas)]
        for other, by_area in judged.items()
    ]
    return table(["contributions against", *areas], rows)


def _of_charts(charts: list[dict], chart: str, column: str, key: str, value) -> list[float]:
    """Return the number in a column of each run's chart, of the row whose `key` is the value."""
    numbers = []
    for tables in charts:
        columns = tables.get(chart, {"columns": ()})["columns"]
        rows = [dict(zip(columns, row, strict=True)) for row in tables.get(chart, {"rows": ()})["rows"]]
        numbers += [row[column] for row in rows if row[key] == value and row[column] is not None]
    return numbers


def _observed() -> dict[tuple[str, str], list[dict]]:
    """Return the charts of every run, by corpus and setting."""
    charts: dict[tuple[str, str], list[dict]] = {}
    for found in find("analysis/observations_{corpus}_{setting}_seed{seed}#/charts"):
        charts.setdefault((found.names["corpus"], found.names["setting"]), []).append(found.value)
    return charts


def _seeds(runs: list) -> str:
    return f" ({len(runs)} seeds)" if len(runs) > 1 else ""


def observations() -> str:
    """What attention is like in each layer, and what calibration changes: Tables V and VI of Lu et al. and more."""
    columns = {
        "reliability": ("reliability_by_layer", "reliability level", 3),
        "entropy": ("entropy_by_layer", "entropy of heads (nats)", 3),
        "divergence": ("change_by_layer", "divergence (nats)", 4),
        "change of entropy": ("change_by_layer", "change of entropy (nats)", 3),
        "share that moves": ("change_by_layer", "share that moves", 3),
    }
    rows = []
    for (corpus, setting), charts in _observed().items():
        for layer in sorted({row[0] for tables in charts for row in tables["entropy_by_layer"]["rows"]}):
            cells = []
            for chart, column, digits in columns.values():
                values = _of_charts(charts, chart, column, "layer", layer)
                cells.append(f"{statistics.fmean(values):.{digits}f}" if values else "-")
            rows.append([f"{corpus}, {setting}{_seeds(charts)}, layer {layer}", *cells])
    return table(["mean over seeds", *columns], rows)


def observed_tags() -> str:
    """Reliability in the top layer by part of speech of the target word (Fig. 3): the mean over seeds."""
    tagged = {
        setting: charts
        for (corpus, setting), charts in _observed().items()
        if corpus == "multi30k" and any("reliability_by_tag" in tables for tables in charts)
    }
    by_tag = [row for charts in tagged.values() for tables in charts for row in tables["reliability_by_tag"]["rows"]]
    rows = []
    for tag in {tag for tag, words, *_ in by_tag if words >= LEAST_WORDS}:
        values = (
            _of_charts(charts, "reliability_by_tag", "reliability level", "tag", tag) for charts in tagged.values()
        )
        rows.append([tag, *(f"{statistics.fmean(of):.3f}" if of else "-" for of in values)])
    rows.sort(key=lambda row: row[1], reverse=True)
    return table(["reliability", *(f"{setting}{_seeds(charts)}" for setting, charts in tagged.items())], rows)


# ---- faults, and the experiments themselves ----


def faults() -> str:
    """What became of every kind of fault that was tried."""
    result = read("faults")
    columns = {
        "tried": ("tried",),
        "held": ("survived", "refused"),
        "lost": ("lost",),
        "wrong": ("wrong",),
        "leaked": ("leaked",),
        "run unasked": ("run_unasked",),
        "traceback or hang": ("traceback", "hung"),
    }
    rows = []
    for row in result["table"] if result else ():
        kind = row["kind"].replace("where no reader can know it", "undetectable")
        rows.append([kind, *(sum(row.get(name, 0) for name in names) for names in columns.values())])
    if rows:
        rows.append(["all", *(sum(numbers) for numbers in zip(*(row[1:] for row in rows), strict=True))])
    return table(["fault", *columns], [[str(cell) for cell in row] for row in rows])


def index() -> str:
    """Write the table of all pages with measurements: their experiments, and the minutes of training behind them."""
    pages: dict[str, dict[str, dict]] = {}
    for name, entry in read_index().items():
        pages.setdefault(entry["page"], {})[name] = entry
    rows = []
    for page, entries in pages.items():
        place = f"{page.removeprefix('../') if page.startswith('../') else f'experiments/{page}'}.md"
        title = (ROOT / "docs" / place).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        results = [pattern for entry in entries.values() for pattern in entry["results"]]
        runs = {name: run for pattern in results for name, run in read_all(pattern).items()}
        seconds = sum(run.get("wall_seconds", 0) for run in runs.values())
        rows.append([f"[{title}]({place})", ", ".join(entries), f"{seconds / 60:,.0f}" if seconds else "-"])
    return markdown(["page", "experiments", "minutes"], rows, texts=2)


OWN: dict[str, Callable[[], str]] = {
    "aligners": aligners,
    "without-gold": without_gold,
    "recurrent-aer": recurrent_aer,
    "copying-heads": copying_heads,
    "copying-swapped": copying_swapped,
    "one-pass-way": one_pass_way,
    "faithfulness-verdicts": faithfulness_verdicts,
    "observations": observations,
    "observed-tags": observed_tags,
    "faults": faults,
    "index": index,
}
