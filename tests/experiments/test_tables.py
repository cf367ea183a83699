"""Headlines and tables are what `experiments/tables.py` makes of results/*.json; the results have one form."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# ---- what is committed ----


def test_every_document_and_the_headlines_are_up_to_date(tables, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert tables.main() == 0, f"{capsys.readouterr().out.strip()}: run `python experiments/tables.py`"


def test_every_table_stands_in_one_place(tables):
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = Counter()
    for path in documents:
        names = [block["name"] for block in tables.BLOCK.finditer(path.read_text(encoding="utf-8"))]
        assert not names or path.relative_to(ROOT).as_posix() in tables.DOCUMENTS
        found.update(names)
    assert found == Counter(list(tables.TABLES))


def test_a_changed_number_is_noticed(tables):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = text.replace("without: 3", "without: 4", 1)
    assert changed != text
    assert tables.fill(changed) == text


def test_every_result_begins_the_same_way():
    """With what `records.record` writes; a note made by hand begins with `what`."""
    untraced = []
    for path in (ROOT / "results").rglob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        if path.name != "headlines.json" and next(iter(result)) != "what":
            made = [name for name in ("command", "commit") if name in result]
            expected = ["config", *made, "software", "hardware", "data_sha256"]
            assert list(result)[: len(expected)] == expected, path
            assert len(made) != 1, path
            untraced += [path] if not made else []
    assert len(untraced) <= 352  # made from 20 to 23 November 2026, before the command was written down


def test_headlines_are_the_numbers_of_their_sources():
    """Recomputed from the places that each names: a median or a mean, in percent or not, less its base or not."""
    figures = json.loads((ROOT / "results" / "headlines.json").read_text(encoding="utf-8"))
    assert len({figure["name"] for figure in figures}) == len(figures) > 50
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "spread", "seeds", "signature", "source"]
        numbers = []
        for place in figure["source"]:
            file, keys = place.split("#/")
            number = json.loads((ROOT / file).read_text(encoding="utf-8"))
            for key in keys.split("/"):
                number = number[int(key)] if isinstance(number, list) else number[key]
            numbers.append(number)
        between = any(
            part in figure["name"]
            for part in ("_bleu_to_", "bleu_minus_", "nats_minus_", "/rouge1_minus_", "/aer_cost")
        )
        if between and not figure["source"][0].endswith("/minus_baseline"):
            half = len(numbers) // 2
            numbers = [ours - base for ours, base in zip(numbers[:half], numbers[half:], strict=True)]
        factor = {"%": 100, "min": 1 / 60}.get(figure["unit"], 1)  # sources are fractions and seconds,
        if figure["source"][0].endswith("/minutes"):  # or minutes by name
            factor = 1
        numbers = [number * factor for number in numbers]
        expected = sum(numbers) / len(numbers)
        assert figure["value"] == pytest.approx(expected, abs=1e-9), figure["name"]
        assert len(figure["seeds"]) in (0, len(numbers)), figure["name"]
        for kind, spread in (figure["spread"] or {}).items():
            if kind == "half_range":
                assert spread == pytest.approx((max(numbers) - min(numbers)) / 2), figure["name"]
            else:
                assert kind in ("interval_95", "extremes")
                assert spread[0] <= figure["value"] <= spread[1], figure["name"]
        generated = figure["unit"] in ("BLEU", "ROUGE")
        measures = ("_aer", "/aer", "/f1", "accuracy", "/ece", "/ece_before", "/auc", "/precision_at_90")
        measured = figure["name"].endswith(measures) or "/aer_" in figure["name"]
        difference = ("_minus_" in figure["name"] or figure["name"].endswith("_cost")) and not generated
        assert bool(figure["signature"]) == (generated or (measured and not difference)), figure["name"]


def test_the_demo_in_the_readme_prints_the_headlines():
    figures = json.loads((ROOT / "results" / "headlines.json").read_text(encoding="utf-8"))
    demo = {figure["name"].partition("/")[2]: f"{figure['value']:.1f}" for figure in figures}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"BLEU before training {demo['bleu_before']}, after {demo['bleu_after']} " in text
    for row, name in ((" attention a ", "aer_attention"), (" contribution phi ", "aer_contribution")):
        (line,) = [line for line in text.splitlines() if line.startswith(row)]
        assert line.split()[-3:-1] == [demo[name], demo[f"{name}_without_punctuation"]]


# ---- made-up results ----


def test_a_headline_is_written_with_its_spread(tables, results):
    figure = {"unit": "BLEU", "value": 35.394, "spread": None, "seeds": [1]}
    figures = [
        figure | {"name": "alone"},
        figure | {"name": "half", "spread": {"half_range": 0.389}, "seeds": [1, 2]},
        figure | {"name": "x_bleu_to_y", "value": 0.5, "spread": {"extremes": [-0.25, 1]}},
        figure | {"name": "percent", "unit": "%", "value": 6.476, "spread": {"interval_95": [5.4, 7.7]}},
    ]
    (results / "headlines.json").write_text(json.dumps(figures))
    assert [tables.headline(name) for name in ("alone", "missing")] == ["35.39", "not run"]
    assert tables.headline("half") == "35.39 ± 0.39 (2 seeds)"
    assert tables.headline("x_bleu_to_y") == "+0.50 (-0.25 to +1.00)"
    assert tables.headline("percent") == "6.5 (5.4 to 7.7)"


def test_headlines_leave_out_what_was_not_run(tables, results):
    assert tables.collect() == []
    run = {"config": {"training": {"seed": 3}}, "dev": {"bleu": 1.0, "signature": "S"}}
    (results / "multi30k").mkdir()
    (results / "multi30k" / "leaky_seed3.json").write_text(json.dumps(run | {"test": run["dev"]}))
    assert [figure["name"] for figure in tables.collect()] == [
        f"calibration/multi30k_short/leaky/{split}_bleu" for split in ("dev", "test")
    ]
    assert tables.collect()[1] == {
        "name": "calibration/multi30k_short/leaky/test_bleu",
        "value": 1.0,
        "unit": "BLEU",
        "spread": None,
        "seeds": [3],
        "signature": "S",
        "source": ["results/multi30k/leaky_seed3.json#/test/bleu"],
    }


def test_a_result_that_is_missing_reads_not_run(tables, results):
    assert tables.headlines().count("| not run | ") == 8
    assert tables.commands() == tables.one_softmax() == tables.faults() == f"{tables.NOT_RUN}\n"
    assert tables.multi30k().count(f"| {tables.NOT_RUN} |") > 0
    assert tables.benchmark("training", {}) == f"{tables.NOT_RUN}\n"
    assert tables.aligning() == tables.aligners() == f"{tables.NOT_RUN}\n"
    for table in (tables.defaults_translation, tables.defaults_sweep, tables.defaults_aligner):
        assert table() == f"{tables.NOT_RUN}\n"
    assert tables.adapter_attention() == tables.adapter_cost() == f"{tables.NOT_RUN}\n"
    assert tables.adapters("nowhere").count(f"| {tables.NOT_RUN} |") > 0


def test_adapters_against_their_bases(tables, results):
    """Each seed has a base of its own; all weights have none and take that of the same seed."""
    scores = {"fixed": {1: (31.0, 30.0), 2: (33.0, 34.0)}, "full": {1: (36.0, None)}}
    for method, runs in scores.items():
        for seed, (trained, base) in runs.items():
            bleu = {"trained": {"bleu": trained, "signature": "S"}} | ({"base": {"bleu": base}} if base else {})
            run = {
                "config": {"training": {"seed": seed}},
                "trained_parameters": 1000,
                "dev": bleu,
                "test": bleu,
                "wall_seconds": 90,
            }
            if method == "fixed":
                run["attention"] = {"reliability_level": [0.1, 0.5]}
            (results / f"{method}_seed{seed}.json").write_text(json.dumps(run))
    lines = tables.adapters(".").splitlines()
    assert lines[2].startswith("| base | - | 32.00 ± 2.00 (2 seeds) | 32.00 ± 2.00 (2 seeds) | -")
    fixed = next(line for line in lines if line.startswith("| fixed |"))
    assert fixed.endswith("| 32.00 ± 1.00 (2 seeds) | +0.00 (-1.00 to +1.00) | 0.500 | 1.5 |")
    full = next(line for line in lines if line.startswith("| all weights |"))
    assert full.endswith("| 36.00 | +6.00 (+6.00 to +6.00) | - | 1.5 |")
    assert lines[-1] == "sacreBLEU `S`"


def by_size(job: str, corpus: str, pairs: int, value: float, size: str | None = None) -> dict:
    """A result of experiments/defaults.py."""
    model = {"size": size} if size else {"d_model": 128, "encoder_layers": 2, "dropout": 0.25}
    training = {"seed": 1, "max_steps": 1200, "tokens_per_batch": 1536}
    config = {"job": job, "corpus": corpus, "pairs": pairs, "model": model, "training": training}
    score = {"aer": value, "interval": [0.05, 0.2]} if size else {"bleu": value}
    score["signature"] = "S"
    return {"config": config | {"tokenizer": {"vocab_size": 2500}}, "dev": score, "test": score, "seconds": 90}


def test_defaults_by_data_size(tables, results):
    (results / "defaults").mkdir()
    (results / "multi30k").mkdir()
    runs = [
        by_size("translation", "multi30k", 29000, 34.0),
        by_size("translation", "multi30k", 2000, 12.345),
        by_size("aligner", "wpt03-enfr", 10000, 0.061, "small"),
        by_size("aligner", "wpt03-enfr", 2000, 0.1, "hmm"),
    ]
    for number, run in enumerate(runs):
        (results / "defaults" / f"{number}.json").write_text(json.dumps(run))
    for seed, value in ((1, 35.0), (2, 36.0)):
        tuned = {"config": {"training": {"seed": seed}}, "dev": {"bleu": value, "signature": "S"}}
        path = results / "multi30k" / f"baseline_seed{seed}.json"
        path.write_text(json.dumps(tuned | {"test": tuned["dev"]}))
    lines = tables.defaults_translation().splitlines()
    assert lines[0].startswith(
        "| text | vocab_size | d_model | encoder_layers | dropout | tokens_per_batch | max_steps | dev BLEU |"
    )
    assert lines[2] == "| multi30k, 2,000 pairs | 2,500 | 128 | 2 | 0.25 | 1,536 | 1,200 | 12.35 | 12.35 | - | 2 |"
    tuned = "35.50 ± 0.50 (2 seeds) / 35.50 ± 0.50 (2 seeds)"
    assert lines[3].endswith(f"| 34.00 | 34.00 | {tuned} | 2 |")
    assert tables.defaults_aligner().splitlines()[2:4] == [
        "| wpt03-enfr, 2,000 pairs, `hmm` | 10.0 | 10.0 (5.0 to 20.0) | 1.5 |",
        "| wpt03-enfr, 10,000 pairs, `small` | 6.1 | 6.1 (5.0 to 20.0) | 1.5 |",
    ]
    (results / "defaults" / "sweep").mkdir()
    model = {"encoder_layers": 2, "decoder_layers": 3, "dropout": 0.1}
    config = {"tokenizer": {"vocab_size": 6000}, "model": model, "evaluation": {"num_beams": 1}}
    run = {"config": config, "steps": 1600, "dev": {"bleu": 2.5}, "wall_seconds": 240}
    run["sentence_pairs"] = {"train": {"kept": 9999}}
    (results / "defaults" / "sweep" / "one.json").write_text(json.dumps(run))
    assert tables.defaults_sweep().splitlines()[2:] == ["| 9,999 | 6,000 | 2 + 3 | 0.1 | 1,600 | 2.50 | 1 | 4 |"]


def spread(median: float) -> dict:
    return {"median": median, "min": median - 1, "max": median + 1, "n": 3}


def test_speed_of_the_aligner(tables, results):
    parts = {
        "forward": {"pairs_per_second": spread(50.26), "ratio_to_encoder": spread(5.0)},
        "text_to_links": {"pairs_per_second": spread(40), "ratio_to_encoder": spread(4.0)},
    }
    result = {
        "hardware": {"cpu": "a processor", "threads": 2},
        "config": {"dtype": "float32"},
        "encoder": {"config": {"num_hidden_layers": 12}, "pairs_per_second": spread(10)},
        "aligners": {"small": parts, "base": parts},
        "training": {"small": {"bf16": True, "tokens_per_second": spread(900)}},
        "memory": {"model": "small", "runs": [{"lines": n, "peak_bytes": 2**20 * n} for n in (500, 1000)]},
    }
    (results / "benchmark_aligning_cpu.json").write_text(json.dumps(result))
    lines = tables.aligning().splitlines()
    where = "a processor, 2 thread(s), float32"
    assert lines[2] == f"| encoder, 12 layers | 10.0 | 1 | - | - | - | {where} |"
    row = "50.3 | 5.00 (4.00 to 6.00) | 40.0 | 4.00 (3.00 to 5.00)"
    assert lines[3] == f"| small | {row} | 900 (bf16) | {where} |"
    assert lines[4] == f"| base | {row} | not run | {where} |"
    peaks = "500 MB for 500 lines, 1000 MB for 1,000 lines"
    assert lines[-1] == f"Peak memory of `attncal align run` (small; {where}): {peaks}."


def test_cost_of_a_corpus(tables, results):
    (results / "corpus").mkdir()
    parts = [{"memory_bytes": size, "killed": size == 6e8} for size in (5e8, 6e8)]
    result = {"config": {"parts": 20}, "lines": 1000, "parts": parts, "memory_bytes": 6e8}
    result |= {"pairs_per_core_second": 1500.4, "core_hours_per_100m": 18.51}
    (results / "corpus" / "counts.json").write_text(json.dumps(result))
    chain = {"eflomal": {"lines": 500, "core_hours_per_100m": 100.0}}
    (results / "corpus" / "eflomal_chunk.json").write_text(json.dumps(chain))
    assert tables.corpus().splitlines()[2:] == [
        "| hmm | 1,000 | 2 of 20 (1) | 1500 | 18.5 | 500 to 600 |",
        "| hmm, a smaller corpus | not run | not run | not run | not run | not run |",
        "| eflomal with priors | not run | not run | not run | not run | not run |",
        "| eflomal with priors, large chunks | 500 | - | 278 | 100.0 | - |",
    ]
    figures = {figure["name"]: figure["value"] for figure in tables.collect() if "/scale/" in figure["name"]}
    assert figures == {
        "aligner/scale/memory_bytes": 6e8,
        "aligner/scale/core_hours_per_100m": 18.51,
        "aligner/scale/pairs_per_core_second": 1500.4,
        "aligner/scale/eflomal/core_hours_per_100m": 100.0,
    }


def test_error_rates_of_aligners(tables, results):
    test = {"aer": 0.0812, "interval": [0.07, 0.095], "precision": 0.93, "recall": 0.9}
    systems = {
        "peer": {
            "dev": {"aer": 0.1},
            "test": test | {"signature": "AER|base:0|symm:union|n:3"},
            "symmetrization": "union",
            "seconds": 90,
        },
        "ours": {
            "dev": {"aer": 0.09},
            "test": test | {"interval": None, "signature": "AER|base:0|symm:harmonic|n:3"},
            "symmetrization": "harmonic",
            "seconds": 6,
            "training_seconds": 60,
        },
        "untested": {"dev": {"aer": 0.2}, "symmetrization": "harmonic", "seconds": 6},
    }
    (results / "aligners_de-en.json").write_text(json.dumps({"config": {"pair": "de-en"}, "systems": systems}))
    reported = [
        {"pair": "de-en", "name": "old", "aer": 17.8, "same_files": False},
        {"pair": "de-en", "name": "fast", "aer": 20.0, "same_files": True},
        {"pair": "xx-en", "name": "other", "aer": 1.0, "same_files": True},
    ]
    (results / "reported_aligners.json").write_text(json.dumps({"rows": reported}))
    assert tables.aligners().splitlines()[2:] == [
        "| peer, de-en | 10.0 | 8.1 (7.0 to 9.5) | 93.0 | 90.0 | union | 1.5 |",
        "| ours, de-en | 9.0 | 8.1 | 93.0 | 90.0 | harmonic | 1.1 |",
        "| untested, de-en | 20.0 | not run | - | - | harmonic | 0.1 |",
        "| old, de-en (published, whole test set) | - | 17.8 | - | - | - | - |",
        "| fast, de-en (measured elsewhere on these files) | - | 20.0 | - | - | - | - |",
        "",
        "`AER|base:0|symm:*|n:3`",
    ]


def test_ablation(tables, results):
    assert tables.ablation() == "not run\n"
    scored = {"dev": 0.5, "test": 0.25, "interval": [0.2, 0.3]}
    row = {
        "masked": True,
        "leaky": False,
        "agreement": True,
        "with_end_punctuation": scored,
        "without_end_punctuation": scored | {"test": 0.35},
        "held_out": {"prediction_accuracy": 0.125},
    }
    rows = [row, row | {"masked": False, "agreement": False}]
    (results / "aligner_ablation.json").write_text(json.dumps({"rows": rows}))
    assert tables.ablation().splitlines()[2:] == [
        "| masked + agreement | 50.0 | 25.0 (20.0 to 30.0) | 35.0 | 12.5 |",
        "| none | 50.0 | 25.0 (20.0 to 30.0) | 35.0 | 12.5 |",
    ]


def test_small_commands(tables, results):
    result = {"config": {"lines": 500, "bootstrap": 1000, "seed": 1}, "hardware": {"cpu": "a processor", "threads": 2}}
    before = {"cpu_seconds_before": spread(6)}
    result["commands"] = {name: {"cpu_seconds": spread(2)} | before for name in ("help", "version", "usage_error")}
    result["commands"]["score"] = {"cpu_seconds": spread(3)}
    (results / "benchmark_command_cpu.json").write_text(json.dumps(result))
    lines = tables.commands().splitlines()
    assert lines[2] == "| `attncal --help` | 6.00 (5.00 to 7.00) | 2.00 (1.00 to 3.00) |"
    assert lines[5] == "| `attncal score`, 500 pairs, 1,000 resamples | - | 3.00 (2.00 to 4.00) |"
    figures = {figure["name"]: figure["value"] for figure in tables.collect()}
    assert figures["speed/help/cpu_seconds"] == 2
    assert figures["speed/help/cpu_seconds_before"] == 6
    assert figures["speed/score/cpu_seconds"] == 3


def test_one_softmax(tables, results):
    measured = {"before_seconds": spread(2), "after_seconds": spread(4), "speed_ratio": spread(5)}
    result = {
        "config": {"batch": 16, "beams": 4, "seed": 1},
        "hardware": {"cpu": "a processor", "threads": 2},
        "attention": {"8,1,32": {"kernel": measured}},
        "generation": measured,
    }
    (results / "benchmark_calibrated_attention_cpu.json").write_text(json.dumps(result))
    numbers = "2000.000 | 4000.000 | 5.00 (4.00 to 6.00) | a processor, 2 thread(s) |"
    assert tables.one_softmax().splitlines()[2:] == [
        f"| kernel, 8 x 1 x 32 | {numbers}",
        f"| beam search, 16 sentences, 4 beams | {numbers}",
    ]
    (figure,) = tables.collect()
    assert figure["name"] == "speed/generation/gated-renormalized/ratio_to_step_by_step"
    assert figure["spread"] == {"extremes": [4, 6]}


def test_faults(tables, results):
    rows = [
        {"kind": "kill", "tried": 12, "survived": 12},
        {"kind": "fuzz", "tried": 7, "refused": 3, "lost": 2, "wrong_with_exit_0": 1, "hung": 1},
    ]
    totals = {"tried": 19, "lost": 2, "wrong_with_exit_0": 1, "tracebacks": 0, "hung": 1}
    (results / "faults.json").write_text(json.dumps({"table": rows, "bad": [], **totals}))
    assert tables.faults().splitlines()[0] == "| fault | tried | survived | refused | failed |"
    assert tables.faults().splitlines()[2:] == [
        "| kill | 12 | 12 | 0 | 0 |",
        "| fuzz | 7 | 0 | 3 | 2 lost, 1 wrong with exit 0, 1 hung |",
        "| all | 19 | 12 | 3 | 2 lost, 1 wrong with exit 0, 1 hung |",
    ]
    assert {figure["name"]: figure["value"] for figure in tables.collect()} == {
        f"faults/{measure}": value for measure, value in totals.items()
    }


def test_planted_links_that_methods_recover(tables, results):
    """The best method of each seed is the one that its own dev has chosen."""
    (results / "analysis").mkdir()
    for seed, best, values in ((1, "alti", (0.8, 0.9)), (2, "attention", (0.6, 0.5))):
        methods = {
            name: {"links": {"accuracy": value, "intervals": {"accuracy": [0.1, 0.95]}, "signature": "P"}}
            for name, value in zip(("attention", "alti"), values, strict=True)
        }
        run = {"config": {"seed": seed}, "methods": methods, "best_method": best}
        (results / "analysis" / f"self_test_seed{seed}.json").write_text(json.dumps(run))
    found = {figure["name"]: figure for figure in tables.collect()}
    assert found["analysis/selftest/attention/accuracy"]["value"] == pytest.approx(70)
    best = found["analysis/selftest/best_method/accuracy"]
    assert (best["value"], best["seeds"], best["signature"]) == (pytest.approx(75), [1, 2], "P")
    assert best["source"] == [
        "results/analysis/self_test_seed1.json#/methods/alti/links/accuracy",
        "results/analysis/self_test_seed2.json#/methods/attention/links/accuracy",
    ]
