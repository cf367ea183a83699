"""Places of results, headlines and cells of tables, from made-up results."""

import json

import pytest


def write(results, name: str, content: dict) -> None:
    path = results / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def places(experiment):
    return experiment("places")


@pytest.fixture
def figures(experiment, results):
    """Makes the headlines of one row, by name."""
    module = experiment("headlines")
    return lambda **row: {figure["name"]: figure for figure in module.figures(row)}


@pytest.fixture
def cells(experiment, results):
    return experiment("cells")


def score(value: float, **besides) -> dict:
    return {"bleu": value, "signature": "S"} | besides


def of_seeds(results, setting: str, values: dict[int, float]) -> None:
    for seed, value in values.items():
        write(results, f"runs/{setting}_seed{seed}", {"test": score(value)})


# ---- places ----


def test_names_replace_parts_of_files_and_keys(places, results):
    of_seeds(results, "gated", {1: 1.5, 2: 2.5})
    write(results, "runs/deeper/gated_seed1", {"test": score(9)})
    found = list(places.find("runs/{setting}_seed{seed}#/{split}/bleu"))
    assert [(one.names, one.value) for one in found] == [
        ({"setting": "gated", "seed": "1", "split": "test"}, 1.5),
        ({"setting": "gated", "seed": "2", "split": "test"}, 2.5),
    ]
    assert found[0].place == "results/runs/gated_seed1.json#/test/bleu"
    assert found[0].beside("signature") == "S"
    assert [one.value for one in places.find("runs/{setting}_seed{seed}#/test/bleu", seed="2")] == [2.5]
    assert list(places.find("runs/nothing#/test")) == list(places.find("runs/gated_seed1#/dev/bleu")) == []


# ---- headlines ----


def test_a_mean_over_seeds_and_a_single_seed(figures, results):
    of_seeds(results, "gated", {1: 20.0, 2: 23.0})
    of_seeds(results, "leaky", {3: 21.0})
    found = figures(name="area/{setting}/test_bleu", unit="BLEU", **{"from": "runs/{setting}_seed{seed}#/test/bleu"})
    assert found["area/gated/test_bleu"] == {
        "name": "area/gated/test_bleu",
        "value": 21.5,
        "unit": "BLEU",
        "spread": {"half_range": 1.5},
        "seeds": [1, 2],
        "signature": "S",
        "source": [f"results/runs/gated_seed{seed}.json#/test/bleu" for seed in (1, 2)],
    }
    leaky = found["area/leaky/test_bleu"]
    assert (leaky["value"], leaky["spread"], leaky["seeds"]) == (21.0, None, [3])


def test_a_difference_is_of_the_same_seeds_and_names_both_sides(figures, results):
    of_seeds(results, "baseline", {1: 20.0, 2: 21.0})
    of_seeds(results, "gated", {1: 20.5, 2: 20.0, 3: 90.0})
    row = {"from": "runs/gated_seed{seed}#/test/bleu", "minus": "runs/baseline_seed{seed}#/test/bleu"}
    gain = figures(name="gain", unit="BLEU", **row)["gain"]
    assert (gain["value"], gain["spread"], gain["seeds"]) == (-0.25, {"extremes": [-1.0, 0.5]}, [1, 2])
    assert [place.split("/")[2] for place in gain["source"]] == [
        "gated_seed1.json#",
        "gated_seed2.json#",
        "baseline_seed1.json#",
        "baseline_seed2.json#",
    ]


# ---- cells ----


def lines_of(cells, **settings) -> list[str]:
    return cells.table(settings).splitlines()


def test_rows_follow_from_names_and_missing_places_are_reported(cells, results):
    of_seeds(results, "gated", {1: 20.0, 2: 23.0})
    of_seeds(results, "baseline", {2: 21.0})
    rows = [{"from": "runs/{setting}_seed{seed}", "where": {"setting": {"gated": "the gate", "baseline": "none"}}}]
    difference = "{/test/bleu - runs/baseline_seed{seed}#/test/bleu|each +.2f}"
    columns = [["setting", "{setting}"], ["BLEU", "{/test/bleu|seeds}"], ["gain", difference], ["dev", "{/dev/bleu}"]]
    assert lines_of(cells, rows=rows, columns=columns, notes=["`{/test/signature}`", "{/nothing}"]) == [
        "| setting | BLEU | gain | dev |",
        "| --- | ---: | ---: | ---: |",
        "| the gate | 21.50 ± 1.50 (2 seeds) | +2.00 | - |",
        "| none | 21.00 | +0.00 | - |",
        "",
        "`S`",
    ]
    rows[0]["where"] = {"setting": ["leaky", "gated"]}
    assert lines_of(cells, rows=rows, columns=columns[:2])[2:] == ["| gated | 21.50 ± 1.50 (2 seeds) |"]
    kept = lines_of(cells, rows=rows, columns=columns[:2], keep=True)[2:]
    assert kept == ["| leaky | not run |", "| gated | 21.50 ± 1.50 (2 seeds) |"]
    rows[0]["where"] = {"setting": ["leaky"]}
    assert cells.table({"rows": rows, "columns": columns}) == "not run\n"
