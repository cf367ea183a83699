"""Tables and headlines of methods of attribution, from made-up results."""

import pytest
from made_up import write

OPERATORS = ("replace", "hide", "unk", "delete")


@pytest.fixture
def analysis(tables):
    """The tables of this part."""
    return {name: tables.TABLES[name] for name in tables.ANALYSIS_TABLES}


def figures(tables, area: str) -> dict[str, float]:
    return {
        figure["name"].removeprefix(area): figure["value"]
        for figure in tables.collect()
        if figure["name"].startswith(area)
    }


def of_model(setting: str, seed: int, **config) -> dict:
    return {"config": {"setting": setting, "training": {"seed": seed}, **config}}


def rate(value: float) -> dict:
    return {"test": {"aer": value, "interval": [value - 0.01, value + 0.01], "signature": "A"}}


def test_without_results_there_are_no_rows(tables, results, analysis):
    assert {name: table() for name, table in analysis.items()} == dict.fromkeys(analysis, "not run\n")
    assert figures(tables, "analysis/") == {}


def test_gold_links(tables, results, analysis):
    """The best of the first setting first; a method that a setting has not is left blank."""
    for setting, seed, attention in (("baseline", 1, 0.3), ("gated", 1, 0.25), ("gated", 2, 0.35)):
        methods = {
            "attention": {"mean": rate(0.4), "chosen": rate(attention)},
            "alti": {"mean": rate(0.2), "chosen": rate(0.2)},
        }
        if setting == "gated":
            methods["contribution"] = {"mean": rate(0.5), "chosen": rate(0.1)}
        write(
            results,
            f"analysis/gold_wpt03-enfr_{setting}_seed{seed}",
            of_model(setting, seed, pair="wpt03-enfr") | {"methods": methods},
        )
    assert analysis["gold-wpt03"]().splitlines() == [
        "| method | baseline | gated (2 seeds) |",
        "| --- | ---: | ---: |",
        "| alti | 20.0 (20.0) | 20.0 (20.0) |",
        "| attention | 30.0 (40.0) | 30.0 (40.0) |",
        "| contribution | - | 10.0 (50.0) |",
        "",
        "test AER, percent: layer, head and sign chosen on dev (the mean of all layers and heads); `A`",
    ]
    assert analysis["gold-dermit"]() == "not run\n"
    assert figures(tables, "analysis/gold/wpt03-enfr/gated/") == pytest.approx(
        {
            "attention/test_aer": 30,
            "attention/mean/test_aer": 40,
            "alti/test_aer": 20,
            "alti/mean/test_aer": 20,
            "contribution/test_aer": 10,
            "contribution/mean/test_aer": 50,
        }
    )


def judged(values: dict[str, float], better: dict[str, str | None]) -> dict:
    def of(value: float) -> dict:
        return {"comprehensiveness": {"value": value}, "sufficiency": {"value": value / 4}}

    difference = {"replace": {"value": 0.5}}
    verdicts = {other: {"better": one, "by_operator": difference} for other, one in better.items()}
    pairs = [f"{a}+{b}" for n, a in enumerate(OPERATORS) for b in OPERATORS[n + 1 :]]
    return {
        "method": "contribution",
        "methods": {name: {operator: of(value) for operator in OPERATORS} for name, value in values.items()},
        "verdicts": {"comprehensiveness": verdicts, "sufficiency": verdicts},
        "against_best": {"comprehensiveness": {"method": "alti", "by_operator": {"replace": {"value": -0.25}}}},
        "operator_agreement": {both: {"value": 0.5} for both in pairs},
    }


def test_faithfulness(tables, results, analysis):
    for seed, value in ((1, 2.0), (2, 3.0)):
        reference = judged({"contribution": value, "alti": 4.0}, {"alti": "alti" if seed == 1 else None})
        output = judged({"contribution": 1.0, "alti": 2.0}, {"alti": "contribution"})
        run = of_model("gated", seed, corpus="multi30k") | {"reference": reference, "output": output}
        write(results, f"analysis/faithfulness_multi30k_gated_seed{seed}", run)
    assert analysis["faithfulness-reference"]().splitlines() == [
        "| nats | gated (2 seeds), comprehensiveness | gated (2 seeds), sufficiency |",
        "| --- | ---: | ---: |",
        "| alti | 4.00 | 1.00 |",
        "| contribution | 2.50 | 0.62 |",
        "",
        "operator `replace`; comprehensiveness: high is good, sufficiency: low is",
    ]
    assert analysis["faithfulness-output"]().splitlines()[2:4] == [
        "| alti | 2.00 | 0.50 |",
        "| contribution | 1.00 | 0.25 |",
    ]
    verdict = "better 2, no verdict 1, worse 1"
    assert analysis["faithfulness-verdicts"]().splitlines()[2:] == [f"| alti | {verdict} | {verdict} |"]
    assert analysis["faithfulness-operators"]().splitlines()[2].startswith("| replace, hide | 0.50 ± 0.00 (2 seeds) |")
    assert figures(tables, "analysis/faithfulness/") == pytest.approx(
        {
            "contribution/comprehensiveness_replace": 2.5,
            "contribution/sufficiency_replace": 0.625,
            "alti/comprehensiveness_replace": 4,
            "alti/sufficiency_replace": 1,
            "contribution/minus_alti": 0.5,
            "contribution/minus_best_baseline": -0.25,
        }
    )


def test_other_settings_and_models_without_contributions_are_named(tables, results):
    told = judged({"attention": 1.0}, {}) | {"method": "attention"}
    run = of_model("baseline", 1, corpus="multi30k") | {"reference": told, "output": told}
    write(results, "analysis/faithfulness_multi30k_baseline_seed1", run)
    assert figures(tables, "analysis/faithfulness/") == {
        "multi30k/baseline/attention/comprehensiveness_replace": 1,
        "multi30k/baseline/attention/sufficiency_replace": 0.25,
    }


def test_planted_links(tables, results, analysis):
    def score(value: float) -> dict:
        scored = dict.fromkeys(("accuracy", "precision", "auc", "pooled_auc"), value)
        return scored | {"by_chance": 0.125, "one_place": 0.25, "intervals": {"accuracy": [0, 1]}, "signature": "P"}

    def measured(tau: float, usable: bool) -> dict:
        return {"tau": tau, "usable": usable}

    for seed, value in ((1, 0.5), (2, 0.7)):
        methods = {"attention": {"links": score(value), "copies": score(0.5)}}
        methods["alti"] = {"links": score(0.8), "copies": score(0.9)}
        metrics = {operator: {"comprehensiveness": measured(value, seed == 1)} for operator in OPERATORS}
        run = {"config": {"seed": seed}, "methods": methods, "best_method": "alti", "metrics": metrics}
        write(results, f"analysis/self_test_seed{seed}", run)
        stack = of_model("single", seed) | {"methods": {"fields": score(value)}}
        write(results, f"analysis/self_test_stack_single_seed{seed}", stack)
    assert analysis["self-test"]().splitlines()[2:] == [
        "| alti | 80.0 ± 0.0 (2 seeds) | 90.0 ± 0.0 (2 seeds) |",
        "| attention | 60.0 ± 10.0 (2 seeds) | 50.0 ± 0.0 (2 seeds) |",
        "| (a word drawn at random) | 12.5 | 12.5 |",
        "| (always the same place) | 25.0 | 25.0 |",
    ]
    assert analysis["self-test-measures"]().splitlines()[2:] == [
        "| comprehensiveness | 4 of 8 | 0.60 | 0.60 | 0.60 | 0.60 |"
    ]
    assert analysis["self-test-stack"]().splitlines()[2:] == [
        "| single, fields | 60.0 ± 10.0 (2 seeds) | 60.0 ± 10.0 (2 seeds) | 60.0 ± 10.0 (2 seeds) |"
    ]
