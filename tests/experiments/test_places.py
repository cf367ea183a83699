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


def test_parts_that_may_be_missing_and_places_in_lists(places, results):
    systems = {"hmm": [1, 2], "small_seed1": [3, None, 5]}
    write(results, "one", {"best": "hmm", "systems": systems})
    found = [(one.names, one.keys[-1]) for one in places.find("one#/systems/{system}[_seed{seed}]/-1")]
    assert found == [({"system": "hmm"}, "-1"), ({"system": "small", "seed": "1"}, "-1")]
    assert [one.value for one in places.find("one#/systems/*/{n}")] == [1, 2, 3, 5]  # null is no value
    ends = {"n": {"0": "first", "-1": "last"}}
    assert [one.value for one in places.find("one#/systems/small_seed1/{n}", ends)] == [3, 5]
    assert [one.value for one in places.find("one#/systems/@best/0")] == [1]
    # A known name is no longer optional: `small` alone is not `small_seed1`.
    assert [one.names for one in places.find("one#/systems/small[_seed{seed}]/0", seed="2")] == []


def test_values_that_a_name_may_have(places, results):
    write(results, "one", {"rows": [{"kind": kind, "shift": shift} for kind, shift in (("a", 0.05), ("b", 0.5))]})

    def rows(**where):
        reads = {"kind": "rows/{n}/kind", "shift": "rows/{n}/shift"}
        return [one.names["n"] for one in places.find("one#/rows/{n}/shift", where, reads)]

    assert rows() == rows(kind=["a", "b"]) == ["0", "1"]
    assert rows(kind=["b"]) == rows(shift="> 0.1") == rows(kind={"a": None, "*": "{}"}) == ["1"]
    assert list(places.find("one#/rows/{n}/shift", reads={"seed": "config/seed"})) == []
    labels = {"kind": {"a": "first", "*": "other, {}"}}
    assert places.labelled("<{kind}{seed}>", {"kind": "a"}, labels) == "<first>"
    assert places.labelled("<{kind}>", {"kind": "c"}, labels) == "<other, c>"


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


@pytest.mark.parametrize(
    ("beside", "unit", "value", "spread"),
    [
        ({"x": 0.25, "interval": [0.2, 0.3], "signature": "A"}, "%", 25, {"interval_95": [20, 30]}),
        ({"x": {"value": 0.25, "interval": [0.2, 0.3]}, "signature": "A"}, "%", 25, {"interval_95": [20, 30]}),
        ({"x": {"median": 2, "min": 1, "max": 4, "n": 3}}, "times", 2, {"extremes": [1, 4]}),
        ({"x": {"median": 2, "min": 2, "max": 2, "n": 1}}, "times", 2, None),
        ({"x": 120}, "min", 120, None),
    ],
)
def test_the_spread_next_to_a_single_number(figures, results, beside, unit, value, spread):
    write(results, "one", beside)
    (figure,) = figures(name="x", unit=unit, **{"from": "one#/x"}).values()
    assert (figure["value"], figure["spread"]) == (value, spread)
    assert figure["signature"] == ("A" if unit == "%" else None)


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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "2.5"),
        ("% .1f", "250.0"),
        ("seeds .1f", "2.5 ± 1.5 (2 seeds)"),
        ("range +.1f", "+2.5 (+1.0 to +4.0)"),
        ("extent .0f", "1 to 4"),
        ("each .0f", "1, 4"),
        ("first", "1"),
        ("per_second .0f", "17361"),
    ],
)
def test_format_words_apply_to_numbers(cells, experiment, results, words, text):
    write(results, "one", {"values": [1, 4]})
    assert cells.write(list(experiment("places").find("one#/values/*")), words) == text


@pytest.mark.parametrize(
    ("value", "words", "text"),
    [
        ({"x": 0.25, "interval": [0.2, 0.3]}, "interval", "25.0 (20.0 to 30.0)"),
        ({"x": 0.25}, "interval", "25.0"),
        ({"x": {"value": 0.25, "interval": [0.2, 0.3]}}, "interval", "25.0 (20.0 to 30.0)"),
        ({"x": 0.25, "interval": [-0.1, 0.3]}, "signed", "+25.0 (-10.0 to +30.0)"),
        ({"x": 0.25, "interval": [0.2, 0.3]}, "% ends .1f", "25.0 (20.0 to 30.0)"),
        ({"x": {"median": 2, "min": 1, "max": 4, "n": 3}}, "ratio", "2.00 (1.00 to 4.00)"),
        ({"x": {"median": 2, "min": 1, "max": 4, "n": 1}}, "repeated .1f", "2.0"),
        ({"x": {"minus_baseline": 0.5, "p_value": 0.04}}, "p_value", "+0.50 (p 0.04)"),
        ({"x": "text"}, "", "text"),
    ],
)
def test_format_words_apply_to_other_values(cells, experiment, results, value, words, text):
    write(results, "one", value)
    assert cells.write(list(experiment("places").find("one#/x")), words) == text


@pytest.mark.parametrize("settings", [{"rows": "a", "form": 1}, {"rows": [{"form": "a"}]}])
def test_an_unknown_field_of_a_table_is_refused(cells, settings):
    with pytest.raises(ValueError, match="`form`"):
        cells.table(settings | {"columns": []})
