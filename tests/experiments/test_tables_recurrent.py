"""Tables and headlines of recurrent models, from made-up results."""

import pytest
from made_up import of_seed, write

BLEU = "B"


@pytest.fixture
def recurrent(tables):
    """The tables of this part."""
    return {name: tables.TABLES[name] for name in tables.RECURRENT_TABLES}


def figures(tables) -> dict[str, dict]:
    return {figure["name"]: figure for figure in tables.collect() if figure["name"].startswith("recurrent/")}


def test_without_results_there_are_no_rows(tables, results, recurrent):
    assert {name: table() for name, table in recurrent.items()} == dict.fromkeys(recurrent, "not run\n")
    assert len(recurrent) == 6
    assert figures(tables) == {}


def test_rouge_of_headlines(tables, results, recurrent):
    for setting, seed, value in (("base", 1, 20.0), ("seass", 1, 21.0), ("seass", 2, 22.0), ("seass_uam", 2, 24.5)):
        test = {"rouge1": value, "rouge2": value - 10, "rougeL": value - 1, "signature": "R", "truncated": 0}
        write(results, f"headlines_rouge/{setting}_seed{seed}", of_seed(seed) | {"test": test})
    assert recurrent["headlines-rouge"]().splitlines()[2:] == [
        "| base | 20.00 | 10.00 | 19.00 | -1.00 | 2 |",
        "| seass | 21.50 ± 0.50 (2 seeds) | 11.50 ± 0.50 (2 seeds) | 20.50 ± 0.50 (2 seeds) | - | 3 ± 1 (2 seeds) |",
        "| seass+uam | 24.50 | 14.50 | 23.50 | +2.50 | 4 |",
        "",
        "`R`",
    ]
    found = figures(tables)
    assert {name: figure["value"] for name, figure in found.items()} == {
        "recurrent/headlines/base/rouge1": 20,
        "recurrent/headlines/seass/rouge1": 21.5,
        "recurrent/headlines/seass+uam/rouge1": 24.5,
        "recurrent/headlines/seass+uam/rouge1_minus_seass": 2.5,
    }
    difference = found["recurrent/headlines/seass+uam/rouge1_minus_seass"]
    assert difference["source"] == [
        "results/headlines_rouge/seass_uam_seed2.json#/test/rouge1",
        "results/headlines_rouge/seass_seed2.json#/test/rouge1",
    ]
    assert (difference["unit"], difference["signature"], difference["seeds"]) == ("ROUGE", "R", [2])


def test_copied_words(tables, results, recurrent):
    score = {"by_chance": 0.035, "one_place": 0.14, "copies": 3676, "target_words": 6587, "signature": "C"}

    def accuracy(value: float) -> dict:
        return score | {"accuracy": value, "interval": [value - 0.01, value + 0.01]}

    for seed, value in ((1, 0.1), (2, 0.12)):
        measured = {"attention": accuracy(value), "attention_after": accuracy(2 * value)}
        alignment = {"reference": measured, "generated": {name: accuracy(0.5) for name in measured}}
        write(results, f"recurrent/copies/seass_seed{seed}", of_seed(seed, "seass") | {"alignment": alignment})
    measured = {"attention": accuracy(0.2), "uam": accuracy(0.6), "uam_minus_attention": {"accuracy": 0.4}}
    alignment = {"reference": measured, "generated": measured | {"uam": accuracy(0.9)}}
    write(results, "recurrent/copies/seass_uam_seed1", of_seed(1, "seass_uam") | {"alignment": alignment})
    assert recurrent["copies"]().splitlines()[2:] == [
        "| seass, attention | 11.0 ± 1.0 (2 seeds) | 10.0 (9.0 to 11.0) | 50.0 ± 0.0 (2 seeds) |",
        "| seass, attention one step later | 22.0 ± 2.0 (2 seeds) | 20.0 (19.0 to 21.0) | 50.0 ± 0.0 (2 seeds) |",
        "| seass+uam, attention | 20.0 | 20.0 (19.0 to 21.0) | 20.0 |",
        "| seass+uam, UAM | 60.0 | 60.0 (59.0 to 61.0) | 90.0 |",
        "| a word drawn at random | 3.5 | - | - |",
        "| the best one place, by hindsight | 14.0 | - | - |",
        "",
        "3,676 copies among 6,587 words; `C`",
    ]
    found = figures(tables)
    assert {name: round(figure["value"], 9) for name, figure in found.items()} == {
        "recurrent/headlines/attention/alignment_accuracy": 11,
        "recurrent/headlines/uam/alignment_accuracy": 60,
    }
    uam = found["recurrent/headlines/uam/alignment_accuracy"]
    assert uam["source"] == ["results/recurrent/copies/seass_uam_seed1.json#/alignment/reference/uam/accuracy"]
    assert (uam["unit"], uam["signature"], uam["seeds"]) == ("%", "C", [1])
    assert uam["spread"] == {"interval_95": pytest.approx([59, 61])}


def translated(results, setting: str, seed: int, value: float) -> None:
    scores = {split: {"bleu": value, "signature": BLEU} for split in ("dev", "test")}
    write(results, f"multi30k/{setting}_seed{seed}", of_seed(seed) | scores | {"parameters": 2_540_000, "steps": 1500})


def test_translation_and_its_lengths(tables, results, recurrent):
    translated(results, "baseline", 1, 34.0)
    assert recurrent["recurrent-translation"]() == "not run\n"
    translated(results, "luong_local_p", 1, 35.0)
    translated(results, "luong_local_p", 2, 36.0)
    translated(results, "luong_none", 1, 20.0)
    groups = [{"from": 1, "to": 9, "bleu": 40.0}, {"from": 10, "to": 30, "bleu": 30.0}]
    run = {"by_length": groups, "dev": {"perplexity": 9.5}}
    other = {"by_length": [group | {"bleu": group["bleu"] + 1} for group in groups], "dev": {"perplexity": 10.5}}
    variants = {"another": [run], "luong_local_p_unfed": [run], "luong_local_p": [run, other]}
    write(results, "recurrent/multi30k", {"variants": variants})
    assert recurrent["recurrent-translation"]().splitlines()[2:] == [
        "| Marian | 34.00 | 34.00 | not run | 2.5 | 1,500 | 2 |",
        "| no attention | 20.00 | 20.00 | not run | 2.5 | 1,500 | 2 |",
        "| local-p | 35.50 ± 0.50 (2 seeds) | 35.50 ± 0.50 (2 seeds) | 10.00 ± 0.50 (2 seeds) | 2.5 | 1,500 | "
        "3 ± 1 (2 seeds) |",
        "",
        "sacreBLEU `B`",
    ]
    assert recurrent["recurrent-lengths"]().splitlines() == [
        "| words of the source | 1 to 9 | 10 to 30 |",
        "| --- | ---: | ---: |",
        "| local-p | 40.5 | 30.5 |",
        "| local-p, not fed | 40.0 | 30.0 |",
        "| another | 40.0 | 30.0 |",
    ]
    assert {name: figure["value"] for name, figure in figures(tables).items()} == {
        "recurrent/multi30k/none/test_bleu": 20,
        "recurrent/multi30k/local_p/test_bleu": 35.5,
    }


def test_gold_links(tables, results, recurrent):
    settings = {"layer": 0, "heads": None, "shift": True}
    row = {
        "settings": settings,
        "dev": {"aer": 0.3},
        "test": {"aer": 0.31, "interval": [0.3, 0.32], "signature": "A"},
    }
    rule = row | {"threshold": 0.15, "settings": settings | {"heads": [2], "shift": False}}
    others = {split: {"aer": 0.4, "interval": None, "signature": "A"} for split in ("dev", "test")}
    module = row | {"threshold": 0.1, "settings": settings | {"shift": False}, "other_words": others}
    attention = {"attention": row, "attention, threshold": rule, "uam, threshold": module}
    run = of_seed(1, "luong", pair="wpt03-enfr") | {"steps": 4000, "attention": attention}
    write(results, "recurrent/aer/wpt03-enfr_luong_seed1", run)
    assert recurrent["recurrent-aer"]().splitlines()[2:] == [
        "| luong, wpt03-enfr, 4,000 steps: attention | 30.0 | 31.0 (30.0 to 32.0) | not run | "
        "layer 1, the step after |",
        "| luong, wpt03-enfr, 4,000 steps: attention, threshold | 30.0 | 31.0 (30.0 to 32.0) | not run | "
        "layer 1, heads 3, its step, above 0.15 |",
        "| luong, wpt03-enfr, 4,000 steps: UAM, threshold | 30.0 | 31.0 (30.0 to 32.0) | 40.0 | its step, above 0.1 |",
    ]
    (figure,) = figures(tables).values()
    assert (figure["name"], figure["value"]) == ("recurrent/wpt03-enfr/luong/test_aer", 31)

    attention["attention, threshold"] = rule | {"other_words": others}
    run = of_seed(1, "luong_uam", pair="wpt03-enfr") | {"steps": 600, "attention": attention}
    parts = {"all": {"aer": 0.01, "interval": [-0.02, 0.03]}, "other_words": {"aer": 0.02, "interval": None}}
    write(results, "recurrent/aer/wpt03-enfr_luong_uam_seed1", run | {"uam_minus_attention": parts})
    difference = "| luong_uam, wpt03-enfr: UAM minus attention, thresholds |  | 1.0 (-2.0 to 3.0) | 2.0 |  |"
    assert recurrent["recurrent-aer"]().splitlines()[-1] == difference
    found = {name: figure["value"] for name, figure in figures(tables).items() if "gold_links" in name}
    assert {name.rpartition("/")[2]: pytest.approx(value) for name, value in found.items()} == {
        "aer": 31,
        "without_copies_aer": 40,
        "attention_aer": 31,
        "attention_without_copies_aer": 40,
    }


def test_speed(tables, results, recurrent):
    def times(median: float, measure: str = "speed_ratio") -> dict:
        return {measure: {"median": median, "min": median / 2, "max": 2 * median}}

    measured = {"training": times(1.5), "search_1": times(2.0), "search_64": times(3.0)}
    uam = {what: times(1.0, "time_ratio") for what in measured}
    variants = {"fed": {"parameters": 5, "plain": measured, "joeynmt": measured | {"about": {}}}}
    sizes = {"batch": 96, "length": 16, "bf16": False, "beams": 20, "new_tokens": 16, "searches": [1, 64], "seed": 1}
    result = {"config": sizes, "hardware": {"cpu": "a processor", "threads": 1}}
    result |= {"variants": variants | {"no-attention": {"plain": measured}}, "switches": {"uam": uam}}
    write(results, "benchmark_recurrent_cpu", result)
    ratios = "1.50 (0.75 to 3.00) | 2.00 (1.00 to 4.00) | 3.00 (1.50 to 6.00) |"
    assert recurrent["recurrent-speed"]().splitlines() == [
        "| times as fast | training step | search, 1 at once | search, 64 at once |",
        "| --- | ---: | ---: | ---: |",
        f"| fed, plain LSTM | {ratios}",
        f"| fed, JoeyNMT | {ratios}",
        f"| no-attention, plain LSTM | {ratios}",
        "",
        "| time over that of `fed` | training step | search, 1 at once | search, 64 at once |",
        "| --- | ---: | ---: | ---: |",
        f"| uam |{' 1.00 (0.50 to 2.00) |' * 3}",
        "",
        "a processor, 1 thread(s), float32, 96 x 16 tokens; beam 20, 16 steps",
    ]
    assert {name: figure["value"] for name, figure in figures(tables).items()} == {
        "recurrent/speed/train_over_plain": 1.5,
        "recurrent/speed/train_over_joeynmt": 1.5,
        "recurrent/speed/beam20_over_plain": 3,
        "recurrent/speed/beam20_over_joeynmt": 3,
        "recurrent/speed/uam/train_time_ratio": 1,
        "recurrent/speed/uam/beam20_time_ratio": 1,
    }
