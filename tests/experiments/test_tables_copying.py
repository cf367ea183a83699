"""Tables and headlines of models that copy, from made-up results."""

import pytest
from made_up import of_seed, write


@pytest.fixture
def copying(tables):
    """The tables of this part."""
    return {name: tables.TABLES[name] for name in tables.COPYING_TABLES}


def figures(tables) -> dict[str, dict]:
    return {figure["name"]: figure for figure in tables.collect() if figure["name"].startswith("copy/")}


def test_without_results_there_are_no_rows(tables, results, copying):
    assert {name: table() for name, table in copying.items()} == dict.fromkeys(copying, "not run\n")
    assert len(copying) == 5
    assert figures(tables) == {}


def test_rouge(tables, results, copying):
    """Each is compared with what it is built on, seed by seed."""
    scores = {("transformer", 1): 20.0, ("copy", 1): 26.0, ("copy", 2): 28.0, ("copy_fixed", 2): 27.5}
    for (setting, seed), value in scores.items():
        test = {"rouge1": value, "rouge2": value - 10, "rougeL": value - 1, "signature": "R", "truncated": 0}
        write(results, f"copying/{setting}_seed{seed}", of_seed(seed) | {"test": test})
    assert copying["copying-rouge"]().splitlines()[2:] == [
        "| transformer | 20.00 | 10.00 | 19.00 | - | 2 |",
        "| copy | 27.00 ± 1.00 (2 seeds) | 17.00 ± 1.00 (2 seeds) | 26.00 ± 1.00 (2 seeds) | +6.00 to transformer |"
        " 3 ± 1 (2 seeds) |",
        "| copy+fixed | 27.50 | 17.50 | 26.50 | -0.50 to copy | 4 |",
        "",
        "`R`",
    ]
    assert {name: figure["value"] for name, figure in figures(tables).items()} == {
        "copy/headlines/transformer/rouge1": 20,
        "copy/headlines/copy/rouge1": 27,
        "copy/headlines/copy/rouge1_minus_transformer": 6,
        "copy/headlines/copy+fixed/rouge1": 27.5,
        "copy/headlines/copy+fixed/rouge1_minus_copy": -0.5,
    }


def test_heads_words_and_swaps(tables, results, copying):
    def head(accuracy: float) -> dict:
        return {"accuracy": accuracy, "signature": "C"}

    layers = [[head(0.1), head(0.2)], [head(0.6), head(0.3)]]
    swaps = [{"layer": n // 2, "head": n % 2, "trained": n == 2, "rouge1": 10.0 * n} for n in range(4)]
    words = {"in_source": 0.8, "copied": 0.5, "copied_right": 0.4, "outside_recall": 0.3, "outside_precision": 0.2}
    words |= {"outside_reference_words": 1200, "written_words": 90, "unknown_words": 10, "rouge1_unknown_kept": 30.0}
    found = {"copy_head": [1, 0], "heads": {"before": layers, "after": layers}, "words": words, "swapped": swaps}
    write(results, "copying/heads/copy_gated_seed1", of_seed(1, "copy_gated") | found)
    plain = {"copy_head": None, "heads": {"after": layers}, "words": words | {"copied": None, "copied_right": None}}
    write(results, "copying/heads/transformer_seed1", of_seed(1, "transformer") | plain)
    for setting in ("transformer", "copy_gated"):
        test = {"rouge1": 20.0, "rouge2": 1.0, "rougeL": 2.0, "signature": "R"}
        write(results, f"copying/{setting}_seed1", of_seed(1) | {"test": test})
    assert copying["copying-heads"]().splitlines()[2:] == [
        "| transformer | - | 60.0 | 30.0 |",
        "| copy+gated, before calibration | 60.0 | 60.0 | 30.0 |",
        "| copy+gated, after calibration | 60.0 | 60.0 | 30.0 |",
        "",
        "`C`",
    ]
    assert copying["copying-words"]().splitlines()[2:] == [
        "| transformer | 10.0 | 80.0 | - | - | 30.0 | 20.0 | 30.00 |",
        "| copy+gated | 10.0 | 80.0 | 50.0 | 40.0 | 30.0 | 20.0 | 30.00 |",
        "",
        "1,200 words of references that only the text has",
    ]
    assert copying["copying-swapped"]().splitlines()[2:] == ["| copy+gated | 20.00 | 30.0 to 30.0 | 0.0 to 10.0 |"]
    found = figures(tables)
    assert found["copy/headlines/copy+gated/unknown_words_found"]["value"] == pytest.approx(30)
    assert found["copy/headlines/copy+gated/copied_right"]["value"] == pytest.approx(40)
    assert "copy/headlines/transformer/copied_right" not in found


def test_speed(tables, results, copying):
    def spread(median: float) -> dict:
        return {"median": median, "min": median - 0.1, "max": median + 0.1}

    shape = {
        "training_step": {"time_ratio": spread(1.05), "cpu_time_ratio": spread(1.06)},
        "generation": {"speed_ratio": spread(0.95), "cpu_speed_ratio": spread(0.94)},
    }
    result = {
        "config": {"batch": 16, "length": 30, "bf16": False, "seed": 1},
        "hardware": {"cpu": "Chip", "threads": 1},
        "variants": {"default": shape},
    }
    write(results, "benchmark_copying_cpu", result)
    assert "| default | 1.05 (0.95 to 1.15) | 1.06 (" in copying["copying-speed"]()
    found = {name: figure["value"] for name, figure in figures(tables).items()}
    assert found == {"copy/speed/training_step_over_plain": 1.05, "copy/speed/generation_over_plain": 0.95}
