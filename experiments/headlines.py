"""The figures that README states, from the results of the runs; `tables.py` writes them to results/headlines.json.

An entry is `name` (area/dataset/setting/measure), `value`, `unit`, `spread` (whose key says what it is: `half_range`
over seeds, `interval_95` of a bootstrap, `extremes` over seeds or repetitions; null for a single number), `seeds`,
`signature` of the metric, and `source`: `FILE#/key/key` of every number that went into it. A result that is not there
has no entry.
"""

import statistics
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import chain, product

from committed import read, read_all
from tables_check import planted_results

CALIBRATIONS = ("baseline", "fixed", "annealed", "gated", "leaky", "gumbel")
ADAPTERS = ("probe", "fixed", "fixed_strong", "annealed", "gated", "leaky", "lora", "fixed_lora", "full")
PAIRS = {"wpt03-enfr": "wpt03", "dermit-derm": "dermit"}  # and how the files of their runs begin
# Setting -> its name in results/aligners_PAIR.json. Ours there are the network without counts and without jumps.
ALIGNERS = {"eflomal": "eflomal", "network_alone": "ours, from raw text", "guided": "ours, guided by eflomal"}
# Setting -> the training runs, after the name of the pair.
TRAINED = {"hmm": "_hmm", "raw": "_seed*", "all_pairs": "_all"}
# Setting of the states of encoders -> the checkpoint and the way of experiments/encoder_states.py.
STATES = {
    "": ("multilingual", "gold"),
    "/without_gold": ("multilingual", "agreement"),
    "/tuned": ("multilingual_tuned", "saved"),
    "/translation_model": ("baseline", "gold"),
    "/translation_model/tuned": ("baseline_tuned", "saved"),
}
DEFAULT_SIZE = "small"  # of `attncal align train`
# Setting of the chunking probe -> the model and its stream.
CHUNKING = {
    "soft": ("soft", "only"),
    "single": ("single", "only"),
    "syntactic": ("two", "syntactic"),
    "semantic": ("two", "semantic"),
}
STACK = ("single", "two", "soft", "soft_penalty")
# Folders of results/converged/: corpora, parts of them, and the control, which has five epochs.
CONVERGED = ("multi30k", "multi30k_10000", "multi30k_5000", "dermit-derm", "control")
DTYPES = ("bfloat16", "float32")  # a difference is the first minus the second
COMPARED = (*CALIBRATIONS, "gated_mask_cost", "gated_renormalized", "output_gate")  # settings that may be there
ONE_PASS = "converged/wpt03_large/way"  # written by one_pass.py
READ_ONCE = (*COMPARED, "guided")  # settings that may be in it
# Folders of results/converged/ whose models learned links from the start -> what a table calls them.
GUIDED = {
    "dermit-derm": "German-Romansh, 20,000 pairs",
    "wpt03-enfr_20000": "English-French, 20,000 pairs",
    "multi30k_5000": "Multi30k, 5,000 pairs",
    "multi30k": "Multi30k, 29,000 pairs",
    "wpt03_large": "English-French, 200,000 pairs read once",
}
GUIDED_OVER = {"guided": "baseline", "guided_gated": "gated"}  # setting -> the same without links
# Files of results/multi30k/ -> what tables call these Discrete Transformers; "soft" is Marian.
STREAMS = {
    "soft": "soft",
    "single": "single",
    "single_distilled": "single, distilled",
    "single_penalty": "single, small fields",
    "two": "two",
}
UNFED = "_unfed"  # how the name of a recurrent model without input feeding ends
# Files of results/multi30k/ -> what tables and pictures call them: Marian, and recurrent models.
RECURRENT = {"baseline": "Marian", "luong_none": "no attention"} | {
    f"luong_{window.replace('-', '_')}{suffix}": f"{window}{', not fed' if suffix else ''}"
    for window, suffix in product(("global", "local-m", "local-p"), ("", UNFED))
}
# Files of results/headlines_rouge/ -> what tables and headlines call them.
SUMMARISERS = {"base": "base", "seass": "seass", "seass_uam": "seass+uam"}
# Aligner of copied words in reference headlines -> the model, and the name of its links in results/recurrent/copies/.
COPYISTS = {"attention": ("seass", "attention"), "uam": ("seass_uam", "uam")}
# Files of results/copying/ -> what tables and headlines call them, and the one that each is compared with.
COPYING = {
    "transformer": ("transformer", None),
    "fixed": ("fixed", "transformer"),
    "annealed": ("annealed", "transformer"),
    "gated": ("gated", "transformer"),
    "copy": ("copy", "transformer"),
    "copy_fixed": ("copy+fixed", "copy"),
    "copy_annealed": ("copy+annealed", "copy"),
    "copy_gated": ("copy+gated", "copy"),
    "copy_bottom": ("copy in the bottom layer", "copy"),
    "transformer_bpe": ("transformer, subwords", None),
    "copy_bpe": ("copy, subwords", "transformer_bpe"),
}
# Of the shape "default" of the benchmark.
COPY_SPEED = {
    "training_step_over_plain": ("training_step", "time_ratio"),
    "generation_over_plain": ("generation", "speed_ratio"),
}
SEED = ("config", "training", "seed")
COMMANDS = ("help", "version", "usage_error", "score")


def entry(name: str, value: float, unit: str, source: list[str], **besides) -> dict:
    """One headline; `besides` are `spread`, `seeds` and `signature` where there are any."""
    figure = {"name": name, "value": value, "unit": unit, "spread": None, "seeds": [], "signature": None}
    return figure | besides | {"source": source}


def at(file: str, *keys: str | int) -> str:
    """Where a number stands."""
    return "/".join([f"results/{file}.json#", *map(str, keys)])


def over_seeds(name: str, unit: str, runs: dict[str, dict], *keys: str | int, against: dict | None = None) -> dict:
    """The mean over runs of the number under `keys`, with half the range.

    Args:
        runs: file -> run; one for each seed.
        against: seed -> (number, where it stands) that is subtracted, where the seed is there; the spread is then the
            extremes.
    """
    if against is not None:
        runs = {file: run for file, run in runs.items() if run["config"]["training"]["seed"] in against}
    seeds = [run["config"]["training"]["seed"] for run in runs.values()]
    values = [_follow(run, keys) for run in runs.values()]
    source = [at(file, *keys) for file in runs]
    signed = unit in ("BLEU", "ROUGE")
    signature = _follow(next(iter(runs.values())), keys[:-1]).get("signature") if signed else None
    if against is not None:
        values = [value - against[seed][0] for value, seed in zip(values, seeds, strict=True)]
        source += [against[seed][1] for seed in seeds]
    spread = {"half_range": (max(values) - min(values)) / 2}
    if against is not None:
        spread = {"extremes": [min(values), max(values)]}
    if len(values) == 1:
        spread = None
    return entry(name, statistics.fmean(values), unit, source, spread=spread, seeds=seeds, signature=signature)


def by_seed(runs: dict[str, dict], *keys: str | int) -> dict[int, tuple[float, str]]:
    """Seed -> the number under `keys`, and where it stands: what `over_seeds` subtracts."""
    return {run["config"]["training"]["seed"]: (_follow(run, keys), at(file, *keys)) for file, run in runs.items()}


def _gain(name: str, gains: dict[str, dict], seeds: list[int]) -> dict:
    """The mean of what was gained over each baseline, with the extremes; `gains` are of `PairedBleu`, by place."""
    values = [gain["minus_baseline"] for gain in gains.values()]
    source = [f"{place}/minus_baseline" for place in gains]
    spread = {"extremes": [min(values), max(values)]} if len(values) > 1 else None
    signature = next(iter(gains.values()))["signature"]
    return entry(name, statistics.fmean(values), "BLEU", source, spread=spread, seeds=seeds, signature=signature)


def repeated(name: str, unit: str, file: str, result: dict, *keys: str | int) -> dict:
    """The median of what a benchmark repeated, with its extremes."""
    measured = _follow(result, keys)
    return entry(
        name,
        measured["median"],
        unit,
        [at(file, *keys, "median")],
        spread={"extremes": [measured["min"], measured["max"]]},
        seeds=[result["config"]["seed"]],
    )


def _median(name: str, unit: str, file: str, result: dict, *keys: str) -> dict:
    """The median of what a benchmark without a seed repeated, with its extremes if it did."""
    measured = _follow(result, keys)
    spread = {"extremes": [measured["min"], measured["max"]]} if measured["n"] > 1 else None
    return entry(name, measured["median"], unit, [at(file, *keys, "median")], spread=spread)


def _follow(value, keys):
    for key in keys:
        value = value[key]
    return value


# ---- areas ----


def calibration() -> Iterator[dict]:
    """BLEU of the six kinds of attention after five epochs, and seed by seed what each gains over the baseline."""
    runs = {setting: read_all(f"multi30k/{setting}_seed*") for setting in CALIBRATIONS}
    baseline = by_seed(runs["baseline"], "test", "bleu")
    for setting in filter(runs.get, CALIBRATIONS):
        area = f"calibration/multi30k_short/{setting}"
        for split in ("dev", "test"):
            yield over_seeds(f"{area}/{split}_bleu", "BLEU", runs[setting], split, "bleu")
        if setting != "baseline" and baseline:
            name = f"{area}/test_bleu_to_baseline"
            yield over_seeds(name, "BLEU", runs[setting], "test", "bleu", against=baseline)


def converged() -> Iterator[dict]:
    """BLEU of models that are trained out, and seed by seed what each kind of attention gains over the baseline."""
    for corpus in CONVERGED:
        file = f"converged/{corpus}/paired"
        compared = (read(file) or {"paired": {}})["paired"]
        runs = {setting: read_all(f"converged/{corpus}/{setting}_seed*") for setting in COMPARED}
        for setting in filter(runs.get, COMPARED):
            area = f"calibration/{corpus}/{setting}"
            if all("attention" in run for run in runs[setting].values()):
                for layer, number in (("first", 0), ("top", -1)):
                    keys = ("attention", "reliability_level", number)
                    yield over_seeds(f"{area}/reliability_{layer}_layer", "share", runs[setting], *keys)
            for split in ("dev", "test"):
                yield over_seeds(f"{area}/{split}_bleu", "BLEU", runs[setting], split, "bleu")
                stems = [stem for stem in compared if stem.startswith(f"{setting}_seed")]
                if stems:
                    gains = {at(file, "paired", stem, split): compared[stem][split] for stem in stems}
                    seeds = [int(stem.rpartition("_seed")[2]) for stem in stems]
                    yield _gain(f"{area}/{split}_bleu_minus_baseline", gains, seeds)


def guided_training() -> Iterator[dict]:
    """What a model gains that learns links from its first step, over the same without links."""
    for corpus, (setting, base) in product(GUIDED, GUIDED_OVER.items()):
        ours, bases = (read_all(f"converged/{corpus}/{name}_seed*") for name in (setting, base))
        for split in ("dev", "test") if ours and bases else ():
            area = f"guided/{corpus}" if setting == "guided" else f"guided/{corpus}/{base}"
            against = by_seed(bases, split, "bleu")
            yield over_seeds(f"{area}/{split}_bleu", "BLEU", ours, split, "bleu")
            yield over_seeds(f"{area}/{split}_bleu_minus_{base}", "BLEU", ours, split, "bleu", against=against)


def one_pass() -> Iterator[dict]:
    """What each kind of attention gains while a text is read for the first time, seed by seed over the baseline."""
    models = (read(ONE_PASS) or {"models": {}})["models"]
    for setting in READ_ONCE[1:]:
        area = "guided/wpt03_large" if setting in GUIDED_OVER else f"calibration/wpt03_large/{setting}"
        for when, unit in product(("equal_steps", "equal_time"), ("BLEU", "nats")):
            measure = unit.lower()
            seeds = [
                seed for seed in range(1, 10) if {f"{setting}_seed{seed}", f"baseline_seed{seed}"} <= models.keys()
            ]
            ours = [(f"{setting}_seed{seed}", when) for seed in seeds]
            bases = [(f"baseline_seed{seed}", "equal_steps") for seed in seeds]
            gains = [
                models[stem][of_ours][measure] - models[base][of_base][measure]
                for (stem, of_ours), (base, of_base) in zip(ours, bases, strict=True)
            ]
            if not gains:
                continue
            name = f"{area}/test_{measure}_minus_baseline_{when}"
            source = [at(ONE_PASS, "models", stem, point, measure) for stem, point in (*ours, *bases)]
            spread = {"extremes": [min(gains), max(gains)]} if len(gains) > 1 else None
            signature = models[ours[0][0]][when].get("signature") if unit == "BLEU" else None
            yield entry(name, statistics.fmean(gains), unit, source, spread=spread, seeds=seeds, signature=signature)


def buys() -> Iterator[dict]:
    """Calibration error of the probabilities of tokens, and BLEU of difficult input, by `experiments/buys.py`."""
    for setting in ("baseline", "gated"):
        runs = read_all(f"buys/{setting}_seed*")
        if not runs:
            continue
        area, seeds = f"calibration/one_pass/{setting}", [_follow(run, SEED) for run in runs.values()]
        scored = {at(file, "probabilities", "ece"): run["probabilities"] for file, run in runs.items()}
        yield percentage(f"{area}/ece", scored, "ece", seeds=seeds)
        for condition in next(iter(runs.values()))["translations"]:
            keys = ("translations", condition)
            yield over_seeds(f"{area}/{condition}_bleu", "BLEU", runs, *keys, "score")
            gains = {at(file, *keys): _follow(run, keys) for file, run in runs.items()}
            if setting != "baseline":
                yield _gain(f"{area}/{condition}_bleu_minus_baseline", gains, seeds)


def masks_learn() -> Iterator[dict]:
    """In how many of the runs with little text the mask network learned, with `mask_cost` and as in the paper."""
    for file, result in read_all("masks_learn/*").items():
        for cost, ending in ((0.1, ""), (None, "_paper")):
            runs = {n: run for n, run in enumerate(result["runs"]) if run["mask_cost"] == cost}
            share = statistics.fmean(run["useful"] for run in runs.values())
            source = [at(file, "runs", n, "useful") for n in runs]
            seeds = [run["seed"] for run in runs.values()]
            name = f"calibration/masks_learn/{file.rpartition('/')[2]}/share{ending}"
            yield entry(name, share, "share", source, seeds=seeds)


def adapter() -> Iterator[dict]:
    """BLEU of adapters, against their own bases; a probe's reliability; size and speed at the opus-mt shape."""
    runs = {method: read_all(f"adapters/multi30k/{method}_seed*") for method in ADAPTERS}
    bases = {
        run["config"]["training"]["seed"]: (run["test"]["base"]["bleu"], at(file, "test", "base", "bleu"))
        for of_method in runs.values()
        for file, run in of_method.items()
        if "base" in run["test"]
    }
    for method in filter(runs.get, ADAPTERS):
        area = f"adapter/multi30k/{method}"
        keys = ("test", "trained", "bleu")
        yield over_seeds(f"{area}/test_bleu", "BLEU", runs[method], *keys)
        yield over_seeds(f"{area}/test_bleu_to_base", "BLEU", runs[method], *keys, against=bases)
        if method == "probe":
            for layer, number in (("first", 0), ("top", -1)):
                name = f"{area}/reliability_{layer}_layer"
                yield over_seeds(name, "share", runs[method], "attention", "reliability_level", number)
    for file, result in read_all("benchmark_adapters_cpu").items():
        for setting in result["variants"]:
            area, keys = f"adapter/opus-mt-shape/{setting}", ("variants", setting)
            size = (*keys, "megabytes", "bfloat16")
            yield entry(f"{area}/megabytes_bf16", _follow(result, size), "MB", [at(file, *size)])
            yield repeated(f"{area}/generation_ratio_to_base", "times", file, result, *keys, "speed_ratio")
            yield repeated(f"{area}/step_ratio_to_lora", "times", file, result, *keys, "step_ratio_to_lora")


def aligner() -> Iterator[dict]:
    """Alignment error rates, in percent, and where an aligner breaks."""
    for file, result in read_all("aligners_*").items():
        for (setting, system), split in product(ALIGNERS.items(), ("dev", "test")):
            scored = result["systems"].get(system, {}).get(split)
            if scored is not None:
                name = f"aligner/{result['config']['pair']}/{setting}/{split}_aer"
                yield percentage(name, {at(file, "systems", system, split, "aer"): scored})
    for (pair, prefix), (setting, suffix), split in product(PAIRS.items(), TRAINED.items(), ("dev", "test")):
        runs = read_all(f"aligner/{prefix}{suffix}")
        if runs:
            # Counting draws nothing at random.
            seeds = [] if setting == "hmm" else [run["config"]["training"]["seed"] for run in runs.values()]
            scored = {at(file, split, "aer"): run[split] for file, run in runs.items()}
            yield percentage(f"aligner/{pair}/{setting}/{split}_aer", scored, seeds=seeds)
    yield from encoder_states()
    yield from robustness()
    yield from displaced()
    yield from adapting()
    yield from scale()
    yield from uses()
    yield from guided_heads()


def uses() -> Iterator[dict]:
    """Probabilities of links, labels carried over links, a threshold on the score of a pair; in percent."""
    for file, result in read_all("probabilities/*").items():
        pair = result["config"]["pair"]
        for setting in dict.fromkeys(name.partition("_seed")[0] for name in result["systems"]):
            systems = {name: one for name, one in result["systems"].items() if name.partition("_seed")[0] == setting}
            seeds = [int(name.partition("_seed")[2]) for name in systems if "_seed" in name]
            for when, measure in (("after", "ece"), ("before", "ece_before")):
                places = {at(file, "systems", name, "test", when, "ece"): name for name in systems}
                scored = {place: systems[name]["test"][when] for place, name in places.items()}
                areas = [f"aligner/probabilities/{pair}/{setting}"]
                areas += ["aligner/probabilities"] * ((pair, setting) == ("wpt03-enfr", DEFAULT_SIZE))
                for area in areas:
                    yield percentage(f"{area}/{measure}", scored, "ece", seeds=seeds)
    shifted = read("shifted_probabilities")
    other = (
        [n for n, row in enumerate(shifted["rows"]) if row["role"] == "test" and row["shift"] > 0.1] if shifted else []
    )
    for what in ("raw", "calibrated", "shrunk") if other else ():
        places = [at("shifted_probabilities", "rows", n, what, "ece") for n in other]
        mean = statistics.fmean(100 * shifted["rows"][n][what]["ece"] for n in other)
        yield entry(f"aligner/probabilities/other_text/{what}_ece", mean, "%", places)
    carried = read("projection")
    for what, area in (("tags", ""), ("spans", "/spans"), ("markup", "/markup")) if carried else ():
        for links, suffix in (("aligner", ""), ("exact_links", "/exact_links")):
            scored = {
                at("projection", "seeds", seed, links, what, "accuracy"): one[links][what] | {"interval": None}
                for seed, one in carried["seeds"].items()
            }
            name = f"aligner/projection{area}{suffix}/accuracy"
            yield percentage(name, scored, "accuracy", seeds=carried["config"]["seeds"])
    for file, result in read_all("noisy_pairs/*").items():
        for system, runs in result["systems"].items():
            area = f"aligner/noisy_pairs/{result['config']['pair']}/{system.partition('_seed')[0]}"
            for measure in ("recall", "precision", "good_lost"):
                places = [(seed, "rules", "lost_5", measure) for seed in runs]
                shares = [100 * _follow(runs, keys) for keys in places]
                source = [at(file, "systems", system, *keys) for keys in places]
                spread = {"half_range": (max(shares) - min(shares)) / 2}
                seeds = [int(seed) for seed in runs]
                yield entry(f"{area}/{measure}", statistics.fmean(shares), "%", source, spread=spread, seeds=seeds)


def guided_heads() -> Iterator[dict]:
    """What a head that learned links aligns, and what became of BLEU; of a model, and of an adapter.

    Links are those above the threshold that dev chose, as `alignment.json` has it.
    """
    file = "aligner/guided_heads"
    result = read(file)
    if result is None:
        return
    pair = result["config"]["pair"]
    place, before = ("above_threshold", "test"), result["before"]
    scored = {at(file, "before", *place, "aer"): before["above_threshold"]["test"]}
    yield percentage(f"aligner/best_head/{pair}/test_aer", scored)
    for kind, name in (("guided", "guided_head"), ("adapter", "guided_head_adapter")):
        runs = {number: row for number, row in enumerate(result["runs"]) if row["kind"] == kind}
        seeds = [row["seed"] for row in runs.values()]
        scored = {
            at(file, "runs", number, *place, "aer"): row["above_threshold"]["test"] for number, row in runs.items()
        }
        if scored:
            yield percentage(f"aligner/{name}/{pair}/test_aer", scored, seeds=seeds)
        translated = {number: row["bleu"]["before"] for number, row in runs.items() if row["bleu"] is not None}
        if translated:
            gains = {at(file, "runs", number, "bleu", "before"): gain for number, gain in translated.items()}
            yield _gain(f"aligner/{name}/{pair}/bleu_minus_before", gains, seeds)


def encoder_states() -> Iterator[dict]:
    """Alignment error rates on test by the states of encoders: before any tuning, without gold, and tuned."""
    for file, result in read_all("encoder_states/*").items():
        area, systems = f"aligner/encoder_states/{result['config']['pair']}", result["systems"]
        for setting, (system, way) in STATES.items():
            names = [name for name in systems if name.partition("_seed")[0] == system and way in systems[name]["ways"]]
            if names:
                scored = {
                    at(file, "systems", n, "ways", way, "test", "aer"): systems[n]["ways"][way]["test"] for n in names
                }
                seeds = [int(name.partition("_seed")[2]) for name in names if "_seed" in name]
                yield percentage(f"{area}{setting}/test_aer", scored, seeds=seeds)


def percentage(name: str, scored: dict[str, dict], measure: str = "aer", **besides) -> dict:
    """The mean of a measure of runs, in percent, with half the range; of a single run with its interval.

    Args:
        scored: where the measure stands -> the score.
    """
    rates = [100 * score[measure] for score in scored.values()]
    spread = {"half_range": (max(rates) - min(rates)) / 2}
    first = next(iter(scored.values()))
    if len(rates) == 1:
        spread = first["interval"] and {"interval_95": [100 * bound for bound in first["interval"]]}
    besides |= {"spread": spread, "signature": first["signature"]}
    return entry(name, statistics.fmean(rates), "%", list(scored), **besides)


def robustness() -> Iterator[dict]:
    """Lines of six pairs, repeated words, no gold links, little text, and each pair against eflomal; test, in percent.

    eflomal learns from the text to be aligned, too; ours have the default rule, as without gold links. Systems
    `NAME_seed1`, `NAME_seed2`, ... are seeds of one.
    """
    for file, result in read_all("robustness/*").items():
        names = [name for name in result["systems"] if not name.startswith("eflomal")]
        little = "/20k" if result["config"]["train_pairs"] == 20000 else ""
        for setting in dict.fromkeys(name.partition("_seed")[0] for name in names):
            systems = [name for name in names if name.partition("_seed")[0] == setting]
            pair = result["config"]["pair"]
            area = f"aligner/{pair}{little}" + ("" if setting == DEFAULT_SIZE else f"/{setting}")
            measures = {
                "joined6/test_aer_minus_joined1": ("splits", "test", "joined_difference", "difference"),
                "joined6/repeated_recall": ("splits", "test", "repeated", "6", "repeated", "recall"),
                "no_gold/test_aer_minus_dev_chosen": ("rules", "no_gold_minus_dev_chosen", "test"),
            }
            for peer in ("eflomal", "eflomal_withheld"):
                measures[f"aer_minus_{peer}"] = ("splits", "test", "against", peer, "1", "difference")
            for measure, keys in measures.items():
                where = f"{area}/{measure}"
                if measure == "aer_minus_eflomal" and setting == DEFAULT_SIZE and not little:
                    where = f"aligner/out_of_the_box/{pair}/{measure}"
                with suppress(KeyError):  # not measured
                    yield measured(where, file, result, systems, keys)


def displaced() -> Iterator[dict]:
    """AER on DERMIT's test with all gold links, and without the pairs whose gold links are displaced."""
    file = "aligner/without_displaced"
    result = read(file)
    if result is None:
        return
    area, splits = f"aligner/{result['config']['pair']}", result["splits"]
    for part, setting in (("all", "displaced_too"), ("others", "without_displaced")):
        for system, found in splits["test"][part].items():
            name = f"{area}/{setting}/{system.partition('_seed')[0]}"
            seeds = [int(system.partition("_seed")[2])] if "_seed" in system else []
            where = at(file, "splits", "test", part, system, "aer")
            yield percentage(f"{name}/test_aer", {where: found}, seeds=seeds)
            if "against" in found:
                against = found["against"]["eflomal"]
                where = at(file, "splits", "test", part, system, "against", "eflomal", "difference")
                spread = {"interval_95": [100 * bound for bound in against["interval"]]}
                difference = 100 * against["difference"]
                yield entry(f"{name}/aer_minus_eflomal", difference, "%", [where], spread=spread, seeds=seeds)


def adapting() -> Iterator[dict]:
    """Aligners that read the text at hand, and aligners without a model, against eflomal that read the same text."""
    for file, result in read_all("adapting/adapted_*").items():
        # Without training text, a text can only be aligned by itself.
        pair, system = result["config"]["pair"], "adapted" if "adapted" in result["systems"] else "quick"
        found = result["systems"][system]
        for measure, keys in {"test_aer": ("aer",), "aer_minus_eflomal": ("against_eflomal", "difference")}.items():
            where, value = at(file, "systems", system, *keys), _follow(found, keys)
            interval = found["interval"] if measure == "test_aer" else found["against_eflomal"]["interval"]
            besides = {"spread": {"interval_95": [100 * bound for bound in interval]}}
            if measure == "test_aer":
                besides["signature"] = found["signature"]
            yield entry(f"aligner/adapted/{pair}/{measure}", 100 * value, "%", [where], **besides)
        eflomal, where = result["systems"]["eflomal"], at(file, "systems", "eflomal", "aer")
        interval = {"interval_95": [100 * bound for bound in eflomal["interval"]]}
        besides = {"spread": interval, "signature": eflomal["signature"]}
        yield entry(f"aligner/adapted/{pair}/eflomal/test_aer", 100 * eflomal["aer"], "%", [where], **besides)
    for file, result in read_all("adapting/quick_*").items():
        for size, systems in result["sizes"].items():
            name, where = f"aligner/quick/{result['config']['pair']}/{size}", at(file, "sizes", size, "quick", "aer")
            found = systems["quick"]
            yield entry(f"{name}/test_aer", 100 * found["aer"], "%", [where], signature=found["signature"])
    recalls = {
        at(file, "systems", system, "identical_recall"): found["identical_recall"]
        for file, result in read_all("adapting/adapted_*").items()
        for system, found in result["systems"].items()
        if "identical_recall" in found
    }
    if recalls:
        worst = min(recalls, key=recalls.get)
        yield entry("aligner/identical_text/recall", 100 * recalls[worst], "%", [worst])


def measured(name: str, file: str, result: dict, systems: list[str], keys: tuple[str, ...]) -> dict:
    """What robustness.py says of a system, in percent: the mean of its seeds with half the range, or its interval."""
    values = [100 * _follow(result["systems"][system], keys) for system in systems]
    spread = {"half_range": (max(values) - min(values)) / 2}
    if len(values) == 1:
        beside = _follow(result["systems"][systems[0]], keys[:-1])
        spread = {"interval_95": [100 * bound for bound in beside["interval"]]} if "interval" in beside else None
    seeds = [int(system.partition("_seed")[2]) for system in systems if "_seed" in system]
    where = [at(file, "systems", system, *keys) for system in systems]
    return entry(name, statistics.fmean(values), "%", where, spread=spread, seeds=seeds)


def scale() -> Iterator[dict]:
    """What a corpus costs by counts, from raw text to compressed links, and by eflomal's chain in large chunks."""
    result = read("corpus/counts")
    if result is not None:
        memory = [part["memory_bytes"] for part in result["parts"]]
        spread = {"extremes": [min(memory), max(memory)]}
        where = [at("corpus/counts", "memory_bytes")]
        yield entry("aligner/scale/memory_bytes", result["memory_bytes"], "bytes", where, spread=spread)
        for name, unit in (("core_hours_per_100m", "h"), ("pairs_per_core_second", "pairs/s")):
            yield entry(f"aligner/scale/{name}", result[name], unit, [at("corpus/counts", name)])
    result = read("corpus/eflomal_chunk")
    if result is not None:
        keys = ("eflomal", "core_hours_per_100m")
        name = "aligner/scale/eflomal/core_hours_per_100m"
        yield entry(name, _follow(result, keys), "h", [at("corpus/eflomal_chunk", *keys)])


def chunking() -> Iterator[dict]:
    """F1 of chunks by one linear layer over frozen encoders, and of the most frequent tag of a part of speech."""
    baseline = read("chunking/baseline")
    if baseline is not None:
        scored = {at("chunking/baseline", "test", "f1"): baseline["test"]}
        yield percentage("discrete/conll2000/baseline/f1", scored, "f1")
    for setting, (model, stream) in CHUNKING.items():
        runs = read_all(f"chunking/{model}_seed*")
        if runs:
            keys = ("streams", stream, "encoder", "test")
            scored = {at(file, *keys, "f1"): _follow(run, keys) for file, run in runs.items()}
            seeds = [run["config"]["training"]["seed"] for run in runs.values()]
            yield percentage(f"discrete/conll2000/{setting}/f1", scored, "f1", seeds=seeds)


def defaults() -> Iterator[dict]:
    """Test BLEU and AER of what the defaults make of a corpus's first pairs."""
    for file, run in read_all("defaults/*").items():
        config = run["config"]
        area = f"defaults/{config['corpus']}/{config['pairs']}"
        if config["job"] == "translation":
            yield over_seeds(f"{area}/test_bleu", "BLEU", {file: run}, "test", "bleu")
        else:
            size = config["model"]["size"]
            name = f"{area}/test_aer" if size == DEFAULT_SIZE else f"{area}/{size}/test_aer"
            yield percentage(name, {at(file, "test", "aer"): run["test"]})


def discrete() -> Iterator[dict]:
    """Discrete Transformer: fields on the stack language, BLEU beside soft attention, speed by length."""
    for setting in STACK:
        runs, area = read_all(f"stack/{setting}_seed*"), f"discrete/stack/{setting}"
        if not runs:
            continue
        for counted, measure in product(("begin", "no_begin"), ("precision", "recall")):
            part = "receptive_field" if counted == "begin" else "receptive_field_without_begin"
            # The model of the paper has no setting in its name.
            name = f"{'discrete/stack' if setting == 'single' else area}/{part}/{measure}"
            yield over_seeds(name, "share", runs, "test", "receptive_field", counted, measure)
        yield over_seeds(f"{area}/test_perplexity", "perplexity", runs, "test", "perplexity")
    runs = {setting: read_all(f"multi30k/{setting}_seed*") for setting in STREAMS}
    soft = {
        run["config"]["training"]["seed"]: (run["test"]["bleu"], at(file, "test", "bleu"))
        for file, run in runs["soft"].items()
    }
    for setting in filter(runs.get, STREAMS):
        area = f"discrete/multi30k/{setting}"
        for split in ("dev", "test"):
            yield over_seeds(f"{area}/{split}_bleu", "BLEU", runs[setting], split, "bleu")
        if setting != "soft" and soft:
            yield over_seeds(f"{area}/bleu_minus_soft", "BLEU", runs[setting], "test", "bleu", against=soft)
    one_stream = [found for setting, found in runs.items() if setting.startswith("single") and len(found) > 1]
    if one_stream and soft:
        best = max(one_stream, key=lambda found: statistics.fmean(run["dev"]["bleu"] for run in found.values()))
        name = "discrete/multi30k/one_stream/test_bleu_minus_soft"
        yield over_seeds(name, "BLEU", best, "test", "bleu", against=soft)
    for file, result in read_all("benchmark_discrete_cpu").items():
        for setting, found in result["variants"].items():
            area = f"discrete/speed/{setting}"
            for (length, parts), key in product(found["inference"].items(), ("encoder", "step")):
                where = ("variants", setting, "inference", length, key, "speed_ratio")
                if key in parts:
                    yield repeated(f"{area}/{key}_of_{length}_over_soft", "times", file, result, *where)
            where = ("variants", setting, "training_step", "time_ratio")
            yield repeated(f"{area}/training_step_over_stock", "times", file, result, *where)


def recurrent() -> Iterator[dict]:
    """Recurrent models: ROUGE and copied words of headlines, BLEU and AER of translation, speed."""
    runs = {setting: read_all(f"headlines_rouge/{setting}_seed*") for setting in SUMMARISERS}
    seass = by_seed(runs["seass"], "test", "rouge1")
    for setting in filter(runs.get, SUMMARISERS):
        area = f"recurrent/headlines/{SUMMARISERS[setting]}"
        yield over_seeds(f"{area}/rouge1", "ROUGE", runs[setting], "test", "rouge1")
        if setting == "seass_uam" and seass:
            yield over_seeds(f"{area}/rouge1_minus_seass", "ROUGE", runs[setting], "test", "rouge1", against=seass)
    for setting, (model, links) in COPYISTS.items():
        runs = read_all(f"recurrent/copies/{model}_seed*")
        if runs:
            keys = ("alignment", "reference", links)
            scored = {at(file, *keys, "accuracy"): _follow(run, keys) for file, run in runs.items()}
            name = f"recurrent/headlines/{setting}/alignment_accuracy"
            yield percentage(name, scored, "accuracy", seeds=seeds_of(runs))
    for setting in list(RECURRENT)[1:]:
        runs = read_all(f"multi30k/{setting}_seed*")
        if runs:
            name = f"recurrent/multi30k/{setting.removeprefix('luong_')}/test_bleu"
            yield over_seeds(name, "BLEU", runs, "test", "bleu")
    for (pair, setting), runs in by_setting("recurrent/aer/*", "pair").items():
        scored = {
            at(file, "attention", "attention", "test", "aer"): run["attention"]["attention"]["test"]
            for file, run in runs.items()
        }
        yield percentage(f"recurrent/{pair}/{setting}/test_aer", scored, seeds=seeds_of(runs))
        if setting == "luong_uam":
            yield from _module_on_gold_links(runs)
    for file, result in read_all("benchmark_recurrent_cpu").items():
        beams, most = result["config"]["beams"], max(result["config"]["searches"])
        timed = {"train": "training", f"beam{beams}": f"search_{most}"}
        for (name, what), peer in product(timed.items(), ("plain", "joeynmt")):
            keys = ("variants", "fed", peer, what, "speed_ratio")
            if peer in result["variants"].get("fed", {}):
                yield repeated(f"recurrent/speed/{name}_over_{peer}", "times", file, result, *keys)
        if "uam" in result["switches"]:
            for name, what in timed.items():
                keys = ("switches", "uam", what, "time_ratio")
                yield repeated(f"recurrent/speed/uam/{name}_time_ratio", "times", file, result, *keys)


def _module_on_gold_links(runs: dict[str, dict]) -> Iterator[dict]:
    """AER of the module of UAM and of the attention beside it, each above its threshold; with and without copies."""
    for links, name in (("uam", ""), ("attention", "attention_")):
        for part, which in (((), ""), (("other_words",), "without_copies_")):
            keys = ("attention", f"{links}, threshold", *part, "test")
            scored = {at(file, *keys, "aer"): _follow(run, keys) for file, run in runs.items()}
            yield percentage(f"recurrent/uam/gold_links/{name}{which}aer", scored, seeds=seeds_of(runs))


def copying() -> Iterator[dict]:
    """Headlines of Transformers that copy: ROUGE, what the copying head looks at, unknown words, speed."""
    runs = {setting: read_all(f"copying/{setting}_seed*") for setting in COPYING}
    for setting in filter(runs.get, COPYING):
        label, peer = COPYING[setting]
        area = f"copy/headlines/{label.replace(',', '').replace(' ', '_')}"
        yield over_seeds(f"{area}/rouge1", "ROUGE", runs[setting], "test", "rouge1")
        against = by_seed(runs[peer], "test", "rouge1") if peer else {}
        if against:
            name = f"{area}/rouge1_minus_{peer}"
            yield over_seeds(name, "ROUGE", runs[setting], "test", "rouge1", against=against)
        found = read_all(f"copying/heads/{setting}_seed*")
        if found:
            for name, key in (("unknown_words_found", "outside_recall"), ("copied_right", "copied_right")):
                values = {at(file, "words", key): run["words"] for file, run in found.items()}
                if all(words[key] is not None for words in values.values()):
                    shares = {where: words | {"signature": None, "interval": None} for where, words in values.items()}
                    yield percentage(f"{area}/{name}", shares, key, seeds=seeds_of(found))
    for file, result in read_all("benchmark_copying_cpu").items():
        for name, keys in COPY_SPEED.items():
            yield repeated(f"copy/speed/{name}", "times", file, result, "variants", "default", *keys)


def self_test() -> Iterator[dict]:
    """Percent of planted links that each attribution method recovers, and the nats that its words are worth."""
    runs = read_all("analysis/self_test_seed*")
    if not runs:
        return
    seeds = [run["config"]["seed"] for run in runs.values()]
    methods = list(next(iter(runs.values()))["methods"])
    planted = {
        method: {at(file, "methods", method, "links", "accuracy"): _planted(run, method) for file, run in runs.items()}
        for method in methods
    }
    planted["best_method"] = {
        at(file, "methods", run["best_method"], "links", "accuracy"): _planted(run, run["best_method"])
        for file, run in runs.items()
    }
    for method, scored in planted.items():
        yield percentage(f"analysis/selftest/{method}/accuracy", scored, "accuracy", seeds=seeds)


def _planted(run: dict, method: str) -> dict:
    score = run["methods"][method]["links"]
    return score | {"interval": score["intervals"]["accuracy"]}


def gold_attribution() -> Iterator[dict]:
    """AER of methods of attribution on gold links: in the layer and head that dev chose, and of all of them."""
    for (pair, setting), runs in by_setting("analysis/gold_*", "pair").items():
        for method, reading in product(_in_all(runs, "methods"), ("", "/mean")):
            keys = ("methods", method, "mean" if reading else "chosen", "test")
            scored = {at(file, *keys, "aer"): _follow(run, keys) for file, run in runs.items()}
            name = f"analysis/gold/{pair}/{setting}/{method}{reading}/test_aer"
            yield percentage(name, scored, seeds=seeds_of(runs))


def faithfulness() -> Iterator[dict]:
    """Nats that the words which a method names are worth, given references; of Multi30k's gated models without more
    said, and what contributions are worth more than others."""
    for (corpus, setting), runs in by_setting("analysis/faithfulness_*", "corpus").items():
        area = "analysis/faithfulness" + ("" if (corpus, setting) == ("multi30k", "gated") else f"/{corpus}/{setting}")
        for method, measure in product(_in_all(runs, "reference", "methods"), ("comprehensiveness", "sufficiency")):
            keys = ("reference", "methods", method, "replace", measure, "value")
            yield over_seeds(f"{area}/{method}/{measure}_replace", "nats", runs, *keys)
        if all(run["reference"]["method"] == "contribution" for run in runs.values()):
            for other in _in_all(runs, "reference", "verdicts", "comprehensiveness"):
                keys = ("reference", "verdicts", "comprehensiveness", other, "by_operator", "replace", "value")
                yield over_seeds(f"{area}/contribution/minus_{other}", "nats", runs, *keys)
            keys = ("reference", "against_best", "comprehensiveness", "by_operator", "replace", "value")
            yield over_seeds(f"{area}/contribution/minus_best_baseline", "nats", runs, *keys)


def _in_all(runs: dict[str, dict], *keys: str) -> list[str]:
    """The names under `keys` that every run has."""
    first, *others = (_follow(run, keys) for run in runs.values())
    return [name for name in first if all(name in other for other in others)]


def recurrent_labels(settings: Collection[str]) -> dict[str, str]:
    """What tables and pictures call each of these settings, in their order; one that they do not know by its name."""
    known = {setting: label for setting, label in RECURRENT.items() if setting in settings}
    return known | {setting: setting for setting in settings if setting not in RECURRENT}


def by_setting(pattern: str, *keys: str) -> dict[tuple[str, ...], dict[str, dict]]:
    """The results of models that experiments look at, by those keys of their configuration and the setting."""
    found: dict[tuple[str, ...], dict[str, dict]] = {}
    for file, run in read_all(pattern).items():
        found.setdefault(tuple(run["config"][key] for key in (*keys, "setting")), {})[file] = run
    return found


def seeds_of(runs: dict[str, dict]) -> list[int]:
    """Those of the trainings."""
    return [run["config"]["training"]["seed"] for run in runs.values()]


def speed() -> Iterator[dict]:
    """Ratios to the stock model, the aligner against an encoder, and CPU seconds of small commands."""
    for benchmark, area, keys in (
        ("training", "training_step", {"ratio_to_stock": "time_ratio", "memory_ratio_to_stock": "memory_ratio"}),
        ("generation", "generation", {"ratio_to_stock": "speed_ratio"}),
    ):
        for file, result in read_all(f"benchmark_{benchmark}_cpu").items():
            for setting, (measure, key) in product(result["variants"], keys.items()):
                name, where = f"speed/{area}/{setting}/{measure}", ("variants", setting, key)
                value = result["variants"][setting].get(key)
                if isinstance(value, dict):
                    yield repeated(name, "times", file, result, *where)
                elif value is not None:
                    yield entry(name, value, "times", [at(file, *where)], seeds=[result["config"]["seed"]])
    for file, result in read_all("benchmark_aligning*").items():
        for size in result["aligners"]:
            keys = ("aligners", size, "text_to_links", "ratio_to_encoder")
            yield repeated(f"speed/aligning/{size}/ratio_to_encoder", "times", file, result, *keys)
            area = "aligner/speed" + ("" if size == DEFAULT_SIZE else f"/{size}")
            keys = (*keys[:-1], "pairs_per_second")
            yield repeated(f"{area}/pairs_per_second_core", "pairs/s", file, result, *keys)
            if "eflomal" in result:
                keys = (*keys[:-1], "ratio_to_eflomal")
                name, seeds = f"{area}/pairs_per_second_core_over_eflomal", [result["config"]["seed"]]
                yield entry(name, _follow(result, keys), "times", [at(file, *keys)], seeds=seeds)
    for file, result in read_all("aligner/speed").items():
        keys = ("pairs_of_hansards", "small, now")
        measured, area = _follow(result, keys), "aligner/speed/small"
        where, spread = [at(file, *keys, "median")], {"extremes": [measured["min"], measured["max"]]}
        yield entry(f"{area}/pairs_per_cpu_second_in_memory", measured["median"], "pairs/s", where, spread=spread)
        command = (keys[0], "small, now, command, 20,000 lines", "median")
        yield entry(f"{area}/pairs_per_cpu_second", _follow(result, command), "pairs/s", [at(file, *command)])
        wheres = [[("accuracy", f"small, seed {seed}, {dtype}", "test_aer") for seed in (1, 2, 3)] for dtype in DTYPES]
        costs = [
            _follow(result, bfloat16) - _follow(result, float32) for bfloat16, float32 in zip(*wheres, strict=True)
        ]
        where, spread = [at(file, *keys) for keys in chain(*wheres)], {"extremes": [min(costs), max(costs)]}
        yield entry(f"{area}/aer_cost", sum(costs) / len(costs), "points", where, spread=spread, seeds=[1, 2, 3])
    for file, result in read_all("benchmark_counting_cpu*").items():
        # A name without a number of pairs is of 20,000.
        size = file.removeprefix("benchmark_counting_cpu").replace("_", "/")
        area, eflomal = f"aligner/speed/hmm{size}", f"aligner/speed/eflomal{size}"
        yield _median(
            f"{area}/pairs_per_cpu_second_learning", "pairs/s", file, result, "learning", "pairs_per_cpu_second"
        )
        keys = ("learning", "pairs_per_cpu_second_aligning")
        yield _median(f"{area}/pairs_per_cpu_second_aligning", "pairs/s", file, result, *keys)
        if "ratio_to_eflomal" in result["learning"]:
            keys = ("learning", "eflomal_pairs_per_cpu_second")
            yield _median(f"{eflomal}/pairs_per_cpu_second_learning", "pairs/s", file, result, *keys)
            yield _median(f"{area}/learning_over_eflomal", "times", file, result, "learning", "ratio_to_eflomal")
        if size:
            continue  # start and latency do not depend on it
        yield _median(f"{area}/start/cpu_seconds", "s", file, result, "start", "run", "cpu_seconds")
        for size in result["latency"]["cpu_milliseconds"]:
            keys = ("latency", "cpu_milliseconds", size, "median")
            name = f"aligner/speed/{size}/pair_cpu_milliseconds"
            yield entry(name, _follow(result, keys), "ms", [at(file, *keys)])
    for file, result in read_all("benchmark_attribution_cpu").items():
        for method in result["variants"]:
            keys = ("variants", method, "over_forward")
            yield repeated(f"analysis/cost/{method}/over_forward", "times", file, result, *keys)
    for file, result in read_all("benchmark_calibrated_attention_cpu").items():
        name = "speed/generation/gated-renormalized/ratio_to_step_by_step"
        yield repeated(name, "times", file, result, "generation", "speed_ratio")
    for file, result in read_all("benchmark_command_cpu").items():
        for command, when in product(COMMANDS, ("", "_before")):
            if f"cpu_seconds{when}" in result["commands"][command]:
                name = f"speed/{command}/cpu_seconds{when}"
                yield repeated(name, "s", file, result, "commands", command, f"cpu_seconds{when}")


def house() -> Iterator[dict]:
    """What the code costs to read and to test."""
    result = read("house")
    if result is None:
        return
    yield entry(
        "house/lines_of_code",
        result["lines_of_code"]["hf_attncal"],
        "lines",
        [at("house", "lines_of_code", "hf_attncal")],
    )
    for name, counted in result["walks"].items():
        yield entry(f"house/walk/{name}/stops", counted["stops"], "functions", [at("house", "walks", name, "stops")])
    if result.get("tests"):
        yield entry("tests/minutes", result["tests"]["minutes"], "min", [at("house", "tests", "minutes")])


def demo() -> Iterator[dict]:
    """What `make demo` prints."""
    result = read("demo")
    if result is None:
        return
    seeds, bleu = [result["config"]["seed"]], result["bleu"]
    for number, run in enumerate(read("benchmark_demo_cpu")["runs"]):
        if run["way"] == "as_it_is":
            name = "demo/minutes_beside_load" if run["busy_loops"] else "demo/minutes"
            where = at("benchmark_demo_cpu", "runs", number, "seconds")
            yield entry(name, run["seconds"] / 60, "min", [where], seeds=seeds)
    for when in ("before", "after"):
        where = at("demo", "bleu", when)
        yield entry(f"demo/bleu_{when}", bleu[when], "BLEU", [where], seeds=seeds, signature=bleu["signature"])
    for weights, (words, suffix) in product(
        ("attention", "contribution"), (("all", ""), ("without_punctuation", "_without_punctuation"))
    ):
        scored = result["alignment"][weights][words]
        where = at("demo", "alignment", weights, words, "aer")
        name, signature = f"demo/aer_{weights}{suffix}", scored["signature"]
        yield entry(name, 100 * scored["aer"], "%", [where], seeds=seeds, signature=signature)


def faults() -> Iterator[dict]:
    """How many faults were tried, and what must be 0."""
    result = read("faults")
    if result is None:
        return
    for measure in ("tried", "lost", "wrong_with_exit_0", "tracebacks", "hung"):
        yield entry(f"faults/{measure}", result[measure], "faults", [at("faults", measure)])


def page() -> Iterator[dict]:
    """How long a person waits for both forms of the page."""
    file = "benchmark_page_cpu"
    for measure, value in (read(file) or {"results": {}})["results"].items():
        unit = "bytes" if measure == "page_bytes" else "s"
        yield entry(f"page/{measure}", value, unit, [at(file, "results", measure)])


def publishing() -> Iterator[dict]:
    """What was published and loaded elsewhere, what faults of the Hub lost, and minutes from a wheel to a page."""
    if result := read("publishing"):
        loaded = result["families_loaded"]
        yield entry("publish/families_loaded", loaded, "kinds of models", [at("publishing", "families_loaded")])
        for measure in ("tried", "lost"):
            place = at("publishing", "faults", measure)
            yield entry(f"publish/faults_{measure}", result["faults"][measure], "faults", [place])
    if result := read("first_page"):
        yield entry("publish/minutes_to_shared_page", result["minutes"], "minutes", [at("first_page", "minutes")])


def export() -> Iterator[dict]:
    """How far exported graphs are from PyTorch, and how many times as fast."""
    file = "benchmark_export_cpu"
    result = read(file)
    for family, format in product(result["variants"], result["config"]["formats"]) if result else ():
        keys, area = ("variants", family, format), f"export/{family}/{format}"
        place = at(file, *keys, "max_difference")
        difference = _follow(result, (*keys, "max_difference"))
        yield entry(f"{area}/max_difference", difference, "difference", [place], seeds=[result["config"]["seed"]])
        yield repeated(f"{area}/times_as_fast", "times", file, result, *keys, "times_as_fast")


def distributed() -> Iterator[dict]:
    """What a training on GPUs would take: an estimate."""
    file = "estimate_wmt14"
    for variant, found in read(file)["variants"].items() if read(file) else ():
        for gpu, hours in found["hours"].items():
            place = at(file, "variants", variant, "hours", gpu)
            yield entry(f"estimate/wmt14/{variant}/{gpu}/hours", hours, "hours, estimated", [place])


def check() -> Iterator[dict]:
    """What `attncal check` finds of annotated and of planted faults, its false alarms and its speed."""
    file = "check/hallucinations-deen"
    result = read(file)
    for fault in ("any", "detached", "omission") if result else ():
        found = result["faults"][fault]["together"]
        for measure, key in (("auc", "auc"), ("precision_at_90", "precision_at_90")):
            yield _percent(f"{file}/{fault}/{measure}", found, at(file, "faults", fault, "together"), key)
    for file, result in planted_results().items():
        for kind, found in result["kinds"].items():
            name = f"check/planted/{result['config']['clean']}/{kind}/auc"
            yield _percent(name, found["lines"], at(file, "kinds", kind, "lines"), "auc")
            for words in ("left_out", "made_up"):
                for measure in ("auc", "f1") if found[words] is not None else ():
                    name = f"check/planted/{result['config']['clean']}/{kind}/{words}/{measure}"
                    yield _percent(name, found[words], at(file, "kinds", kind, words), measure)
    for file, result in read_all("check/false_alarms_*").items():
        name = f"check/false_alarms/{result['config']['clean']}/lines"
        yield entry(name, 100 * result["share"], "%", [at(file, "share")])
    file = "check/speed"
    if result := read(file):
        measured = result["lines_per_core_second"]
        yield entry(
            "check/speed/lines_per_core_second",
            measured["median"],
            "lines",
            [at(file, "lines_per_core_second", "median")],
            spread={"extremes": [measured["min"], measured["max"]]},
        )


def _percent(name: str, found: dict, place: str, key: str) -> dict:
    """A share of `metrics.detection`, in percent, with its interval."""
    low, high = found[key]["interval"]
    interval = {"interval_95": [100 * low, 100 * high]}
    signature, source = found["signature"], [f"{place}/{key}/value"]
    return entry(name, 100 * found[key]["value"], "%", source, spread=interval, signature=signature)


def collect() -> list[dict]:
    """Every headline that has a result, by name."""
    areas = (
        calibration,
        converged,
        guided_training,
        one_pass,
        masks_learn,
        buys,
        adapter,
        aligner,
        discrete,
        chunking,
        recurrent,
        copying,
        self_test,
        gold_attribution,
        faithfulness,
        publishing,
        export,
        page,
        distributed,
        check,
        defaults,
        speed,
        house,
        demo,
        faults,
    )
    return sorted((figure for area in areas for figure in area()), key=lambda figure: figure["name"])
