"""The tables of recurrent models: headlines and what aligns their copied words, translation, gold links, speed."""

import statistics

from committed import (
    NOT_RUN,
    conditions,
    mean_and_spread,
    percent_with_interval,
    ratio,
    read,
    read_all,
    table,
)
from headlines import RECURRENT, SUMMARISERS, by_setting, recurrent_labels

ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
# Headlines in results/recurrent/copies/, and names of links there -> what a table calls them.
TEXTS = ("reference", "generated")
LINKS = {"attention": "attention", "attention_after": "attention one step later", "uam": "UAM"}

PEERS = {"plain": "plain LSTM", "joeynmt": "JoeyNMT"}  # of benchmarks/recurrent.py


def rouge() -> str:
    """ROUGE of headlines of the base model, with the selective gate, and with the module of UAM; test."""
    runs = {setting: list(read_all(f"headlines_rouge/{setting}_seed*").values()) for setting in SUMMARISERS}
    seass = {run["config"]["training"]["seed"]: run["test"]["rouge1"] for run in runs["seass"]}
    rows, signature = [], ""
    for setting in filter(runs.get, SUMMARISERS):
        found = runs[setting]
        seeds = [run["config"]["training"]["seed"] for run in found]
        gains = [run["test"]["rouge1"] - seass[seed] for run, seed in zip(found, seeds, strict=True) if seed in seass]
        signature = f"`{found[0]['test']['signature']}`"
        rows.append(
            [
                SUMMARISERS[setting],
                *(mean_and_spread([run["test"][measure] for run in found]) for measure in ROUGE),
                " / ".join(f"{gain:+.2f}" for gain in gains) if gains and setting != "seass" else "-",
                mean_and_spread([run["wall_seconds"] / 60 for run in found], digits=0),
            ]
        )
    return table(["", *ROUGE.values(), "ROUGE-1, to seass (each seed)", "minutes"], rows, signature)


def copies() -> str:
    """Copied words of headlines that are aligned with the word that they copy, in percent."""
    rows, signature, baselines = [], "", {}
    for (setting,), runs in by_setting("recurrent/copies/*").items():
        for name, label in LINKS.items():
            texts = {
                text: [run["alignment"][text][name] for run in runs.values() if name in run["alignment"][text]]
                for text in TEXTS
            }
            first = next(iter(texts["reference"]), None)
            if first is None:
                continue
            baselines, signature = first, f"`{first['signature']}`"
            shares = [mean_and_spread([100 * score["accuracy"] for score in found], 1) for found in texts.values()]
            shares.insert(1, percent_with_interval(first["accuracy"], first["interval"]))
            rows.append([f"{SUMMARISERS.get(setting, setting)}, {label}", *shares])
    if baselines:
        for name, label in (
            ("by_chance", "a word drawn at random"),
            ("one_place", "the best one place, by hindsight"),
        ):
            rows.append([label, f"{100 * baselines[name]:.1f}", "-", "-"])
        signature = f"{baselines['copies']:,} copies among {baselines['target_words']:,} words; {signature}"
    header = ["aligned with what they copy, percent", "reference", "first seed (95 %)", "generated"]
    return table(header, rows, signature)


def translation() -> str:
    """BLEU and perplexity of every window, with and without input feeding, beside Marian after as many steps."""
    measured = (read("recurrent/multi30k") or {"variants": {}})["variants"]
    rows, signature = [], ""
    for setting, label in RECURRENT.items():
        runs = list(read_all(f"multi30k/{setting}_seed*").values())
        if not runs:
            continue
        signature = f"sacreBLEU `{runs[0]['test']['signature']}`"
        nats = [run["dev"]["perplexity"] for run in measured.get(setting, [])]
        rows.append(
            [
                label,
                *(mean_and_spread([run[split]["bleu"] for run in runs]) for split in ("dev", "test")),
                mean_and_spread(nats),
                f"{runs[0]['parameters'] / 1e6:.1f}",
                f"{runs[0]['steps']:,}",
                mean_and_spread([run["wall_seconds"] / 60 for run in runs], digits=0),
            ]
        )
    # Marian alone says nothing here.
    header = ["attention", "dev BLEU", "test BLEU", "dev perplexity", "million parameters", "steps", "minutes"]
    return table(header, rows if len(rows) > 1 else [], signature)


def lengths() -> str:
    """BLEU by the words of the source; test, means over seeds."""
    measured = (read("recurrent/multi30k") or {"variants": {}})["variants"]
    rows, header = [], []
    for setting, label in recurrent_labels(measured).items():
        groups = list(zip(*(run["by_length"] for run in measured[setting]), strict=True))
        header = [f"{runs[0]['from']} to {runs[0]['to']}" for runs in groups]
        means = [f"{statistics.fmean(run['bleu'] for run in runs):.1f}" for runs in groups]
        rows.append([label, *means])
    return table(["words of the source", *header], rows)


def gold_links() -> str:
    """AER of attention and of UAM, by what dev has chosen: step, layer and heads, and the best word or a threshold."""
    rows = []
    for (pair, setting), runs in by_setting("recurrent/aer/*", "pair").items():
        for run in runs.values():
            for name, row in run["attention"].items():
                chosen = row["settings"]
                heads = "" if chosen["heads"] is None else f", heads {', '.join(str(h + 1) for h in chosen['heads'])}"
                layer = "" if name.startswith("uam") else f"layer {chosen['layer'] + 1}{heads}, "
                place = f"{layer}{'the step after' if chosen['shift'] else 'its step'}"
                if "threshold" in row:
                    rule = "best word" if row["threshold"] is None else f"above {row['threshold']:g}"
                    place = f"{place}, {rule}"
                test = percent_with_interval(row["test"]["aer"], row["test"]["interval"])
                label = f"{setting}, {pair}, {run['steps']:,} steps: {name.replace('uam', 'UAM')}"
                others = row.get("other_words")
                without = f"{100 * others['test']['aer']:.1f}" if others else NOT_RUN
                rows.append([label, f"{100 * row['dev']['aer']:.1f}", test, without, place])
            if "uam_minus_attention" in run:
                both = (run["uam_minus_attention"][part] for part in ("all", "other_words"))
                points = (percent_with_interval(part["aer"], part["interval"]) for part in both)
                rows.append([f"{setting}, {pair}: UAM minus attention, thresholds", "", *points, ""])
    return table(["model", "dev AER", "test AER (95 %)", "without copies", "chosen on dev"], rows)


def speed() -> str:
    """How many times as fast ours are as a plain LSTM and as JoeyNMT's models, and what each switch costs."""
    text = ""
    for result in read_all("benchmark_recurrent_*").values():
        config = result["config"]
        timed = ["training", *(f"search_{number}" for number in config["searches"])]
        columns = ["training step", *(f"search, {number} at once" for number in config["searches"])]
        rows = [
            [f"{variant}, {PEERS[peer]}", *(ratio(found[peer][what]["speed_ratio"]) for what in timed)]
            for variant, found in result["variants"].items()
            for peer in PEERS
            if peer in found
        ]
        costs = [
            [switch, *(ratio(cost[what]["time_ratio"]) for what in timed)]
            for switch, cost in result["switches"].items()
        ]
        text += f"{table(['times as fast', *columns], rows)}\n{table(['time over that of `fed`', *columns], costs)}\n"
        text += f"{conditions(result)}; beam {config['beams']}, {config['new_tokens']} steps\n"
    return text or f"{NOT_RUN}\n"


RECURRENT_TABLES = {
    "headlines-rouge": rouge,
    "copies": copies,
    "recurrent-translation": translation,
    "recurrent-lengths": lengths,
    "recurrent-aer": gold_links,
    "recurrent-speed": speed,
}
