"""The table and the headlines of translation with hard attention, from made-up results."""

import pytest
from made_up import of_seed, write

AREA = "discrete/multi30k/"


@pytest.fixture
def measured(results):
    """Writes a run: setting, seed, BLEU on dev and on test."""

    def write_run(setting: str, seed: int, dev: float, test: float) -> None:
        scores = {"dev": {"bleu": dev}, "test": {"bleu": test, "signature": "B"}}
        write(results, f"multi30k/{setting}_seed{seed}", of_seed(seed) | scores)

    return write_run


def figures(tables) -> dict[str, dict]:
    return {
        figure["name"].removeprefix(AREA): figure for figure in tables.collect() if figure["name"].startswith(AREA)
    }


def test_each_seed_is_compared_with_soft_attention_of_that_seed(tables, measured):
    for setting, seed, dev, test in (("soft", 1, 38, 38), ("soft", 2, 39, 40), ("single_distilled", 2, 37, 39.5)):
        measured(setting, seed, dev, test)
    assert tables.TABLES["discrete-translation"]().splitlines()[2:] == [
        "| soft | 38.50 ± 0.50 (2 seeds) | 39.00 ± 1.00 (2 seeds) | - | 3 ± 1 (2 seeds) |",
        "| single | not run | not run | not run | not run |",
        "| single, distilled | 37.00 | 39.50 | -0.50 | 4 |",
        "| single, small fields | not run | not run | not run | not run |",
        "| two | not run | not run | not run | not run |",
        "",
        "sacreBLEU `B`",
    ]
    assert figures(tables)["single_distilled/bleu_minus_soft"]["value"] == -0.5


def test_the_best_way_of_one_stream_is_the_best_on_dev_that_has_seeds(tables, measured):
    for seed in (1, 2):
        measured("soft", seed, 38, 38)
        measured("single", seed, 36, 37.5)  # better on test, which must not count
        measured("single_distilled", seed, 37, 36 + seed / 2)
        measured("two", seed, 39, 39)
    measured("single_penalty", 1, 40, 40)  # one seed
    best = figures(tables)["one_stream/test_bleu_minus_soft"]
    assert (best["value"], best["spread"], best["seeds"]) == (-1.25, {"extremes": [-1.5, -1.0]}, [1, 2])


def test_one_seed_of_one_stream_is_no_best_way(tables, measured):
    measured("soft", 1, 38, 38)
    measured("single", 1, 36, 37.5)
    found = figures(tables)
    assert "one_stream/test_bleu_minus_soft" not in found
    assert found["single/bleu_minus_soft"]["value"] == -0.5
