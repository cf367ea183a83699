"""Write results/headlines.json and the tables of README.md and docs/ from results/*.json.

    python experiments/tables.py            # rewrite them
    python experiments/tables.py --check    # exit with 1 if one is out of date

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, each in one document only: the full ones in
docs/, made from the results of the runs; that of README, made from results/headlines.json. A result that is
not there reads "not run".
"""

import argparse
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import committed
from committed import (
    NOT_RUN,
    ROOT,
    conditions,
    device,
    markdown,
    mean_and_spread,
    percent_with_interval,
    ratio,
    read,
    read_all,
)
from headlines import ADAPTERS, CALIBRATIONS, PAIRS, TRAINED, collect
from run import read_index
from tables_adapting import ADAPTING_TABLES
from tables_analysis import ANALYSIS_TABLES
from tables_buys import BUYS_TABLES
from tables_check import CHECK_TABLES
from tables_converged import CONVERGED_TABLES
from tables_copying import COPYING_TABLES
from tables_discrete import DISCRETE
from tables_distributed import DISTRIBUTED_TABLES
from tables_encoders import ENCODER_TABLES
from tables_guided import GUIDED_TABLES, place
from tables_publishing import PUBLISHING_TABLES
from tables_recurrent import RECURRENT_TABLES
from tables_uses import USES_TABLES

from hf_attncal.files import write_json

DOCUMENTS = (
    *(
        "README.md",
        "docs/distributed.md",
        "docs/experiments.md",
        "docs/publishing.md",
        "docs/reliability.md",
    ),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "experiments").glob("*.md")),
)
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
LABELS = {"fixed_strong": "fixed, lambda 2", "fixed_lora": "fixed + LoRA", "lora": "LoRA", "full": "all weights"}


# ---- full tables, from the results of the runs ----


def last_logged(run: dict, name: str) -> str:
    """The last value of a named loss in the log of a run."""
    values = [entry[name] for entry in run["log_history"] if name in entry]
    return f"{values[-1]:.3f}" if values else "-"


def multi30k() -> str:
    """BLEU of the six settings, and what the mask network and the gate had come to."""
    rows = []
    signature, area = "", "calibration/multi30k_short"
    for variant in CALIBRATIONS:
        runs = list(read_all(f"multi30k/{variant}_seed*").values())
        if not runs:
            rows.append([variant, *[NOT_RUN] * 7])
            continue
        signature = runs[0]["test"]["signature"]
        reliability = runs[0].get("attention", {}).get("reliability_level")
        rows.append(
            [
                variant,
                mean_and_spread([run["dev"]["bleu"] for run in runs]),
                mean_and_spread([run["test"]["bleu"] for run in runs]),
                "-" if variant == "baseline" else headline(f"{area}/{variant}/test_bleu_to_baseline"),
                last_logged(runs[0], "mask_mean"),
                last_logged(runs[0], "gate_mean"),
                f"{reliability[-1]:.3f}" if reliability else "-",
                f"{statistics.median(run['wall_seconds'] for run in runs) / 60:.0f}",
            ]
        )
    header = ["attention", "dev BLEU", "test BLEU", "test, to the baseline (each seed)", "mean mask", "mean gate"]
    return markdown([*header, "reliability, top layer", "minutes"], rows) + f"\nsacreBLEU `{signature}`\n"


def sweep(pattern: str, field: str, title: str) -> str:
    """Dev BLEU and the state of the mask network of short runs that differ in one setting."""
    runs = read_all(pattern).values()
    rows = [
        [
            f"{run['config']['model'][field]:g}",
            f"{run['dev']['bleu']:.2f}",
            last_logged(run, "mask_mean"),
            last_logged(run, "mask_penalty"),
            f"{run['attention']['reliability_level'][-1]:.3f}" if "attention" in run else "-",
        ]
        for run in sorted(runs, key=lambda run: run["config"]["model"][field])
    ]
    header = [title, "dev BLEU", "mean mask", "penalty", "reliability, top layer"]
    return markdown(header, rows) if rows else f"{NOT_RUN}\n"


def benchmark(name: str, columns: dict[str, str], variants: str = "attention") -> str:
    """Ratios for every committed device; `columns`: key of each heading's number; `variants`: the first heading."""
    rows = []
    for result in read_all(f"benchmark_{name}_*").values():
        for variant, measured in result["variants"].items():
            rows.append([variant, *(ratio(measured.get(key)) for key in columns.values()), conditions(result)])
    return markdown([variants, *columns, "hardware"], rows) if rows else f"{NOT_RUN}\n"


def corpus() -> str:
    """What 100 million pairs would cost, by counts from raw text to compressed links, and by eflomal's chain."""
    rows = []
    for name, system in (("counts", "hmm"), ("counts_whole", "hmm, a smaller corpus")):
        if (result := read(f"corpus/{name}")) is None:
            rows.append([system, *[NOT_RUN] * 5])
            continue
        memory = [part["memory_bytes"] / 1e6 for part in result["parts"]]
        killed = sum(part["killed"] for part in result["parts"])
        parts = f"{len(memory)} of {result['config']['parts']} ({killed})"
        speed, hours = result["pairs_per_core_second"], result["core_hours_per_100m"]
        memory = f"{min(memory):.0f} to {max(memory):.0f}"
        rows.append([system, f"{result['lines']:,}", parts, f"{speed:.0f}", f"{hours:.1f}", memory])
    for name, system in (("eflomal", "eflomal with priors"), ("eflomal_chunk", "eflomal with priors, large chunks")):
        if (result := read(f"corpus/{name}")) is None:
            rows.append([system, *[NOT_RUN] * 5])
            continue
        hours = result["eflomal"]["core_hours_per_100m"]
        lines = f"{result['eflomal']['lines']:,}"
        rows.append([system, lines, "-", f"{1e8 / 3600 / hours:.0f}", f"{hours:.1f}", "-"])
    header = ["", "pairs", "parts (killed)", "pairs/s and core", "core hours for 100 million", "memory of a part, MB"]
    return markdown(header, rows)


def aligning() -> str:
    """Speed of the word aligner against the encoder, of training, and the memory of `attncal align run`."""
    rows, notes = [], []
    for result in read_all("benchmark_aligning*").values():
        encoder = result["encoder"]
        where = f"{device(result)}, {result['config']['dtype']}"
        name = f"encoder, {encoder['config']['num_hidden_layers']} layers"
        rows.append([name, f"{encoder['pairs_per_second']['median']:.1f}", "1", "-", "-", "-", where])
        for size, measured in result["aligners"].items():
            training = result.get("training", {}).get(size)
            row = [size]
            for part in (measured["forward"], measured["text_to_links"]):
                row += [f"{part['pairs_per_second']['median']:.1f}", ratio(part["ratio_to_encoder"])]
            speed = NOT_RUN
            if training is not None:
                precision = "bf16" if training["bf16"] else "float32"
                speed = f"{training['tokens_per_second']['median']:.0f} ({precision})"
            rows.append([*row, speed, where])
        memory = result.get("memory")
        if memory is not None:
            peaks = ", ".join(
                f"{run['peak_bytes'] / 2**20:.0f} MB for {run['lines']:,} lines" for run in memory["runs"]
            )
            notes.append(f"Peak memory of `attncal align run` ({memory['model']}; {where}): {peaks}.")
    if not rows:
        return f"{NOT_RUN}\n"
    header = ["", "forward, pairs/s", "times encoder", "text to links, pairs/s", "times encoder", "training tokens/s"]
    return markdown([*header, "hardware"], rows) + "".join(f"\n{note}\n" for note in notes)


def _trained_aligners(pair: str) -> Iterator[tuple[str, dict]]:
    """Our aligners as rows of `results/aligners_PAIR.json` are: counts, and each seed of the network they guide."""
    for setting, suffix in TRAINED.items() if pair in PAIRS else ():
        for run in read_all(f"aligner/{PAIRS[pair]}{suffix}").values():
            seconds = run["wall_seconds"] + run.get("counts", {}).get("wall_seconds", 0)
            seed = run["config"]["training"]["seed"]
            name = {
                "hmm": "counts (`hmm`)",
                "all_pairs": f"a network guided by counts of all 819,643 pairs, seed {seed}",
            }.get(setting, f"a network guided by counts (`small`), seed {seed}")
            row = {"seconds": seconds, "dev": run["dev"], "test": run["test"]}
            yield f"ours, {name}", row | {"symmetrization": run["dev"]["symmetrization"]}


def aligners() -> str:
    """Alignment error rates of our checkpoints and of other aligners, one table for all pairs of languages."""
    rows, signatures = [], {}
    earlier = {"raw text": "the text alone, without jumps", "eflomal": "links of eflomal, without jumps"}
    for result in read_all("aligners_*").values():
        pair = result["config"]["pair"]
        for name, row in (*result["systems"].items(), *_trained_aligners(pair)):
            scored = row.get("test")
            minutes = (row["seconds"] + row.get("training_seconds", 0)) / 60
            for words, label in earlier.items() if name.startswith("ours") else ():
                name = re.sub(f"^ours, .* {words}$", f"ours, a network from {label}", name)
            rows.append(
                [
                    f"{name}, {pair}",
                    f"{100 * row['dev']['aer']:.1f}",
                    NOT_RUN if scored is None else percent_with_interval(scored["aer"], scored["interval"]),
                    "-" if scored is None else f"{100 * scored['precision']:.1f}",
                    "-" if scored is None else f"{100 * scored['recall']:.1f}",
                    row["symmetrization"],
                    f"{minutes:.1f}",
                ]
            )
            if scored is not None:
                signatures[re.sub(r"symm:[^|]*", "symm:*", scored["signature"])] = None
        for row in (read("reported_aligners") or {"rows": []})["rows"]:
            if row["pair"] == pair:
                where = "measured elsewhere on these files" if row["same_files"] else "published, whole test set"
                name = f"{row['name']}, {pair} ({where})"
                rows.append([name, "-", f"{row['aer']:.1f}", "-", "-", "-", "-"])
    if not rows:
        return f"{NOT_RUN}\n"
    header = ["aligner", "dev AER", "test AER (95 %)", "precision", "recall", "symmetrisation", "minutes"]
    return markdown(header, rows) + "".join(f"\n`{signature}`\n" for signature in signatures)


def robustness() -> str:
    """Every aligner of `results/robustness/` on test: long lines, repeated and unseen words, beside eflomal."""
    rows = []
    for result in read_all("robustness/*").values():
        config = result["config"]
        where = f"{config['pair']}, {config['train_pairs']:,} pairs" if config["train_pairs"] else config["pair"]
        for name, system in result["systems"].items():
            test = system["splits"]["test"]
            longest = max(test["joined"], key=int)
            repeated = test["repeated"].get(longest, {}).get("repeated", {}).get("recall")
            unseen = test.get("unseen", {}).get("unseen", {}).get("recall")
            against = test.get("against", {}).get("eflomal", {}).get("1")
            single = test["joined"]["1"]
            rows.append(
                [
                    f"{name}, {where}",
                    percent_with_interval(single["aer"], single["interval"]),
                    *(f"{100 * test['joined'][k]['aer']:.1f}" if k in test["joined"] else "-" for k in "2346"),
                    *("-" if recall is None else f"{100 * recall:.1f}" for recall in (repeated, unseen)),
                    "-" if against is None else _signed(against["difference"], against["interval"]),
                ]
            )
    if not rows:
        return f"{NOT_RUN}\n"
    joined = [f"{k} pairs a line" for k in "12346"]
    return markdown(["test AER", *joined, "repeated words, recall", "unseen words, recall", "to eflomal"], rows)


def _signed(value: float, interval: list[float]) -> str:
    """`-1.2 (-2.0 to -0.4)`, in percent."""
    return f"{100 * value:+.1f} ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"


# Of what follows from the size of a text, what tells most.
DEFAULT_KEYS = (
    ("tokenizer", "vocab_size"),
    ("model", "d_model"),
    ("model", "encoder_layers"),
    ("model", "dropout"),
    ("training", "tokens_per_batch"),
    ("training", "max_steps"),
)
# Text -> the runs whose settings were tuned for it.
TUNED_RUNS = {("multi30k", 29000): "multi30k/baseline_seed*", ("wpt03-enfr", 100000): "adapters/wpt03/base"}


def _by_size(job: str) -> list[dict]:
    """The runs of experiments/defaults.py, by corpus and size of the text."""
    runs = [run for run in read_all("defaults/*").values() if run["config"]["job"] == job]
    return sorted(runs, key=lambda run: (run["config"]["corpus"], run["config"]["pairs"]))


def defaults_translation() -> str:
    """What the defaults are and reach by the amount of text, beside settings tuned for that text."""
    rows, signatures = [], {}
    for run in _by_size("translation"):
        config = run["config"]
        pattern = TUNED_RUNS.get((config["corpus"], config["pairs"]))
        tuned = list(read_all(pattern).values()) if pattern else []
        beside = [mean_and_spread([one[split]["bleu"] for one in tuned]) for split in ("dev", "test") if tuned]
        signatures[run["test"]["signature"]] = None
        rows.append(
            [
                f"{config['corpus']}, {config['pairs']:,} pairs",
                *(f"{config[section][key]:,}" for section, key in DEFAULT_KEYS),
                *(f"{run[split]['bleu']:.2f}" for split in ("dev", "test")),
                " / ".join(beside) or "-",
                f"{run['seconds'] / 60:.0f}",
            ]
        )
    if not rows:
        return f"{NOT_RUN}\n"
    header = [key for _, key in DEFAULT_KEYS]
    header = ["text", *header, "dev BLEU", "test BLEU", "tuned for this text, dev / test", "minutes"]
    return markdown(header, rows) + "".join(f"\nsacreBLEU `{signature}`\n" for signature in signatures)


def defaults_sweep() -> str:
    """What the defaults for little text were chosen by: short runs on dev."""
    rows = []
    for run in read_all("defaults/sweep/*").values():
        model, evaluation = run["config"]["model"], run["config"]["evaluation"]
        rows.append(
            [
                f"{run['sentence_pairs']['train']['kept']:,}",
                f"{run['config']['tokenizer']['vocab_size']:,}",
                f"{model['encoder_layers']} + {model['decoder_layers']}",
                f"{model['dropout']}",
                f"{run['steps']:,}",
                f"{run['dev']['bleu']:.2f}",
                str(evaluation["num_beams"]),
                f"{run['wall_seconds'] / 60:.0f}",
            ]
        )
    header = ["pairs", "vocabulary", "layers", "dropout", "steps", "dev BLEU", "beams", "minutes"]
    return markdown(header, rows) if rows else f"{NOT_RUN}\n"


def defaults_aligner() -> str:
    """Error rates of aligners with the defaults and the default rule, by the amount of text."""
    rows, signatures = [], {}
    for run in _by_size("aligner"):
        config, test = run["config"], run["test"]
        signatures[test["signature"]] = None
        rows.append(
            [
                f"{config['corpus']}, {config['pairs']:,} pairs, `{config['model']['size']}`",
                f"{100 * run['dev']['aer']:.1f}",
                percent_with_interval(test["aer"], test["interval"]),
                f"{run['seconds'] / 60:.1f}",
            ]
        )
    if not rows:
        return f"{NOT_RUN}\n"
    header = ["text, size", "dev AER", "test AER (95 %)", "minutes"]
    return markdown(header, rows) + "".join(f"\n`{signature}`\n" for signature in signatures)


def ablation() -> str:
    """Mask-Align's parts switched off: AER on dev and test, and without what words put on end punctuation."""
    result = read("aligner_ablation")
    if result is None:
        return f"{NOT_RUN}\n"
    rows = []
    for row in result["rows"]:
        parts = [name for name in ("masked", "leaky", "agreement") if row[name]]
        plain, without = row["with_end_punctuation"], row["without_end_punctuation"]
        rows.append(
            [
                " + ".join(parts) or "none",
                f"{100 * plain['dev']:.1f}",
                percent_with_interval(plain["test"], plain["interval"]),
                f"{100 * without['test']:.1f}",
                f"{100 * row['held_out']['prediction_accuracy']:.1f}",
            ]
        )
    header = ["parts", "dev AER", "test AER (95 %)", "without end punctuation", "prediction accuracy"]
    return markdown(header, rows)


def adapters(folder: str, methods: tuple[str, ...] = ADAPTERS) -> str:
    """BLEU of adapters on one base model for each seed, of what they are compared with, and of the base itself."""
    rows, signature = [], ""
    bases: dict[int, dict] = {}
    for method in methods:
        runs = list(read_all(f"{folder}/{method}_seed*").values())
        if not runs:
            rows.append([LABELS.get(method, method), *[NOT_RUN] * 6])
            continue
        signature = runs[0]["test"]["trained"]["signature"]
        seeds = {run["config"]["training"]["seed"]: run for run in runs}
        bases |= {seed: run for seed, run in seeds.items() if "base" in run["test"]}
        gains = [run["test"]["trained"]["bleu"] - bases[seed]["test"]["base"]["bleu"] for seed, run in seeds.items()]
        reliability = [run["attention"]["reliability_level"][-1] for run in runs if "attention" in run]
        rows.append(
            [
                LABELS.get(method, method),
                f"{runs[0]['trained_parameters']:,}",
                *(mean_and_spread([run[split]["trained"]["bleu"] for run in runs]) for split in ("dev", "test")),
                f"{statistics.fmean(gains):+.2f} ({min(gains):+.2f} to {max(gains):+.2f})",
                f"{statistics.fmean(reliability):.3f}" if reliability else "-",
                f"{statistics.fmean(run['wall_seconds'] for run in runs) / 60:.1f}",
            ]
        )
    scores = {split: [run[split]["base"]["bleu"] for run in bases.values()] for split in ("dev", "test")}
    rows.insert(0, ["base", "-", *map(mean_and_spread, scores.values()), "-", "-", "-"])
    header = [
        "trained",
        "parameters",
        "dev BLEU",
        "test BLEU",
        "test, to its base",
        "reliability, top layer",
        "minutes",
    ]
    return markdown(header, rows) + f"\nsacreBLEU `{signature}`\n"


def adapter_attention() -> str:
    """AER of attention and of contributions, before and after an adapter."""
    result = read("adapters/wpt03/attention")
    if result is None:
        return f"{NOT_RUN}\n"
    rows = []
    for name, measured in result["models"].items():
        for weights, row in measured.items():
            test = percent_with_interval(row["test"]["aer"], row["test"]["interval"])
            label = f"{LABELS.get(name, name)}, {weights}"
            rows.append([label, f"{100 * row['dev']['aer']:.1f}", test, place(row["settings"])])
    return markdown(["model", "dev AER", "test AER (95 %)", "chosen on dev"], rows)


def adapter_cost() -> str:
    """Size, speed of generation and time of a training step of adapters at the opus-mt shape."""
    rows = []
    for result in read_all("benchmark_adapters_*").values():
        for variant, measured in result["variants"].items():
            sizes = measured["megabytes"]
            rows.append(
                [
                    variant,
                    f"{sizes['float32']:.2f}",
                    f"{sizes['bfloat16']:.2f}",
                    ratio(measured["speed_ratio"]),
                    ratio(measured["step_ratio_to_lora"]),
                    ratio(measured["step_ratio_to_full"]),
                    conditions(result),
                ]
            )
    header = ["adapter", "MB, float32", "MB, bf16", "generation, times base", "step, times LoRA", "step, times full"]
    return markdown([*header, "hardware"], rows) if rows else f"{NOT_RUN}\n"


def one_softmax() -> str:
    """Renormalised calibration in one softmax against the same step by step: attention alone, then beam search."""
    rows = []
    for result in read_all("benchmark_calibrated_attention_*").values():
        measured = {
            f"{form}, {' x '.join(size.split(','))}": numbers
            for size, forms in result["attention"].items()
            for form, numbers in forms.items()
        }
        config = result["config"]
        measured[f"beam search, {config['batch']} sentences, {config['beams']} beams"] = result["generation"]
        for name, numbers in measured.items():
            times = (f"{1000 * numbers[key]['median']:.3f}" for key in ("before_seconds", "after_seconds"))
            rows.append([name, *times, ratio(numbers["speed_ratio"]), device(result)])
    header = ["form, batch x target x source", "before, ms", "after, ms", "times as fast", "hardware"]
    return markdown(header, rows) if rows else f"{NOT_RUN}\n"


def counting() -> str:
    """CPU seconds of the aligner that counts."""
    result = read("benchmark_counting_cpu")
    if result is None:
        return f"{NOT_RUN}\n"
    config, start, latency = result["config"], result["start"], result["latency"]["cpu_milliseconds"]

    def figure(measured: dict | None, digits: int) -> str:
        if measured is None:
            return "-"
        extremes = f" ({measured['min']:.{digits}f} to {measured['max']:.{digits}f})" if measured["n"] > 1 else ""
        return f"{measured['median']:.{digits}f}{extremes}"

    labels = {"help": "`attncal --help`", "run_help": "`attncal align run --help`"}
    labels["run"] = f"`attncal align run` on {config['lines']} pairs"
    rows = [[f"{label}, CPU seconds", figure(start[name]["cpu_seconds"], 2)] for name, label in labels.items()]
    for learned in (result, *read_all("benchmark_counting_cpu_*").values()):
        pairs = f"{learned['config']['pairs']:,} pairs"
        rows += [
            [f"{label}, pairs a CPU second", figure(learned["learning"].get(key), 0)]
            for label, key in (
                (f"learning from {pairs} and aligning them", "pairs_per_cpu_second"),
                ("the same by eflomal", "eflomal_pairs_per_cpu_second"),
                (f"aligning {pairs}", "pairs_per_cpu_second_aligning"),
            )
        ]
    rows += [
        [f"one pair, `{size}` in memory, CPU milliseconds", f"{times['median']:.1f} (95 % below {times['p95']:.1f})"]
        for size, times in latency.items()
    ]
    return markdown(["", device(result)], rows)


def commands() -> str:
    """CPU seconds of `attncal` for what needs no model."""
    result = read("benchmark_command_cpu")
    if result is None:
        return f"{NOT_RUN}\n"
    names = {"help": "`attncal --help`", "version": "`attncal --version`", "usage_error": "a usage error"}
    names["score"] = f"`attncal score`, {result['config']['lines']} pairs, {result['config']['bootstrap']:,} resamples"
    rows = [
        [label, *(ratio(result["commands"][name].get(key)) for key in ("cpu_seconds_before", "cpu_seconds"))]
        for name, label in names.items()
    ]
    return markdown(["", "before, CPU seconds", f"CPU seconds ({device(result)})"], rows)


def page() -> str:
    """How long a person waits for the live page and for the page of a report."""
    result = read("benchmark_page_cpu")
    if result is None:
        return f"{NOT_RUN}\n"
    lines, found = result["config"]["lines"], result["results"]
    seconds = {
        "first_answer": "live page: the first answer",
        "all_answers": f"live page: all {lines} answers",
        "write_the_page": f"page to keep, {lines} sentences: written, with ALTI+ and occlusion",
        "usable_page": "opened from a file: usable",
    }
    rows = [[label, f"{found[f'seconds_to_{name}']:.2f} s"] for name, label in seconds.items()]
    rows.append(["20 sentences on, by key", f"{found['seconds_for_20_sentences_by_key']:.2f} s"])
    rows.append(["size of the page to keep", f"{found['page_bytes'] / 1e6:.1f} MB"])
    machine = result["hardware"]
    return markdown(["", f"{machine['cpu']}, {machine['cpu_cores']} cores, load {machine['load_average']:.0f}"], rows)


def faults() -> str:
    """What became of every kind of fault that was tried."""
    result = read("faults")
    if result is None:
        return f"{NOT_RUN}\n"
    failures = ("lost", "wrong_with_exit_0", "traceback", "hung")
    total = Counter()
    for row in result["table"]:
        total.update({name: row.get(name, 0) for name in ("tried", "survived", "refused", *failures)})
    rows = []
    for row in [*result["table"], {"kind": "all", **total}]:
        numbers = [str(row.get(name, 0)) for name in ("tried", "survived", "refused")]
        failed = ", ".join(f"{row[name]} {name.replace('_', ' ')}" for name in failures if row.get(name))
        kind = row["kind"].replace("where no reader can know it", "undetectable")
        rows.append([kind, *numbers, failed or "0"])
    return markdown(["fault", "tried", "survived", "refused", "failed"], rows)


# ---- the table of README, from results/headlines.json ----

DECIMALS = {"BLEU": 2, "ROUGE": 2, "%": 1, "share": 3, "times": 2, "h": 1}


def headline(name: str) -> str:
    """`35.39 ± 0.39 (2 seeds)`, `6.5 (5.4 to 7.7)`, or the number alone; with its sign where it is a difference."""
    figures = {figure["name"]: figure for figure in read("headlines") or []}
    if name not in figures:
        return NOT_RUN
    figure = figures[name]
    number = f"{'+' if '_bleu_to_' in name or '_minus_' in name else ''}.{DECIMALS[figure['unit']]}f"
    spread = figure["spread"] or {}
    if "half_range" in spread:
        return f"{figure['value']:{number}} ± {spread['half_range']:{number}} ({len(figure['seeds'])} seeds)"
    between = next(iter(spread.values()), None)
    if between is None:
        return f"{figure['value']:{number}}"
    return f"{figure['value']:{number}} ({between[0]:{number}} to {between[1]:{number}})"


def headlines() -> str:
    """The table of README: eight of our figures, each beside the one it is to be compared with."""
    rows = [
        ("AER of the word aligner, English-French", "aligner/wpt03-enfr/{}/test_aer", "raw", "eflomal", "eflomal"),
        (
            "AER without a model (`align quick`), English-Czech",
            "aligner/adapted/czenali-encs{}/test_aer",
            "",
            "eflomal",
            "/eflomal",
        ),
        (
            "core hours to align 100 million pairs (`hmm`)",
            "aligner/{}/core_hours_per_100m",
            "scale",
            "eflomal, a million at once",
            "scale/eflomal",
        ),
        ("BLEU, gated calibration", "calibration/multi30k/{}/test_bleu", "gated", "without", "baseline"),
        (
            "BLEU, German-Romansh, 20,000 pairs, links from the start (`--guided`)",
            "{}/test_bleu",
            "guided/dermit-derm",
            "without",
            "calibration/dermit-derm/baseline",
        ),
        ("ROUGE-1 of headlines, with copying", "copy/headlines/{}/rouge1", "copy", "without", "transformer"),
        (
            "share of steps whose attention is reliable, top layer",
            "adapter/multi30k/probe/reliability_{}_layer",
            "top",
            "first layer",
            "first",
        ),
    ]
    cells = [
        [label, headline(name.format(ours)), f"{what}: {headline(name.format(other))}"]
        for label, name, ours, what, other in rows
    ]
    step = headline("speed/training_step/gated/ratio_to_stock")
    return markdown(
        ["", "ours", "compared with"], [*cells, ["time of a training step, gated", step, "stock model: 1"]]
    )


TABLES: dict[str, Callable[[], str]] = {
    "headlines": headlines,
    "multi30k": multi30k,
    "alpha": lambda: sweep("multi30k/alpha_*", "mask_penalty", "alpha"),
    "lambda": lambda: sweep("multi30k/lambda_*", "calibration_weight", "lambda"),
    "training": lambda: benchmark("training", {"training step": "time_ratio", "peak memory": "memory_ratio"}),
    "generation": lambda: benchmark("generation", {"tokens per second, 4 beams": "speed_ratio"}),
    "attribution-cost": lambda: benchmark("attribution", {"over a forward pass": "over_forward"}, "method"),
    "aligning": aligning,
    "corpus": corpus,
    "aligners": aligners,
    "robustness": robustness,
    **ADAPTING_TABLES,
    "ablation": ablation,
    "defaults-translation": defaults_translation,
    "defaults-sweep": defaults_sweep,
    "defaults-aligner": defaults_aligner,
    **DISCRETE,
    **RECURRENT_TABLES,
    **COPYING_TABLES,
    **CONVERGED_TABLES,
    **ENCODER_TABLES,
    **ANALYSIS_TABLES,
    **USES_TABLES,
    **CHECK_TABLES,
    **DISTRIBUTED_TABLES,
    **PUBLISHING_TABLES,
    **GUIDED_TABLES,
    **BUYS_TABLES,
    "adapters": lambda: adapters("adapters/multi30k"),
    "adapters-wpt03": lambda: adapters("adapters/wpt03", ("probe", "fixed", "gated", "leaky", "lora")),
    "adapter-attention": adapter_attention,
    "adapter-cost": adapter_cost,
    "one-softmax": one_softmax,
    "commands": commands,
    "counting": counting,
    "page": page,
    "faults": faults,
}


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


TABLES["index"] = index


def fill(text: str) -> str:
    """`text` with every table in it written anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block['name']]()}{block[3]}", text)


def main() -> int:
    """Rewrite or check headlines and documents; the number of those out of date is the exit status of a check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = []
    figures = collect()
    if figures != read("headlines"):
        stale.append("results/headlines.json")
        if not check:
            write_json(figures, committed.RESULTS / "headlines.json")
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            stale.append(name)
            if not check:
                path.write_text(filled, encoding="utf-8")
    print(f"{'out of date' if check else 'rewritten'}: {', '.join(stale) or 'none'}")
    return len(stale) if check else 0


if __name__ == "__main__":
    sys.exit(main())
