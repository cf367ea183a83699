"""Charts and report of the self-test, from made-up results."""

import pytest

from hf_attncal.report import self_test
from hf_attncal.report.figures.self_test_charts import self_test_charts


def score(value: float, interval: bool = True) -> dict:
    intervals = {"accuracy": (value - 0.1, value + 0.1)} if interval else None
    return {"accuracy": value, "by_chance": 0.125, "one_place": 0.25, "intervals": intervals}


def measured(usable: bool, tau: float | None) -> dict:
    return {"usable": usable, "above_random": 0.5, "interval": (-1.0, 2.0), "tau": tau}


FOUND = {
    "methods": {
        "attention": {"links": score(0.5), "copies": score(0.75)},
        "alti": {"links": score(0.8), "copies": score(0.5)},
    },
    "best_method": "alti",
    "above_control": {},
    "metrics": {"hide": {"sufficiency": measured(False, None)}, "unk": {"comprehensiveness": measured(True, 0.5)}},
}


@pytest.fixture
def charts():
    return {chart.name: chart for chart in self_test_charts(FOUND)}


def test_methods_are_in_the_order_of_their_accuracy_in_percent(charts):
    chart = charts["planted_accuracy"]
    assert [row[0] for row in chart.rows] == [
        "alti",
        "attention",
        "(a word drawn at random)",
        "(always the same place)",
    ]
    assert chart.rows[1][1:] == pytest.approx([50, 40, 60, 75, 65, 85])
    assert chart.rows[2][1:] == (12.5, None, None, 12.5, None, None)
    assert all(len(row) == len(chart.columns) for row in chart.rows)
    axes = chart.draw().axes
    assert [one.get_xlabel() for one in axes] == ["links found, %", "copied words found, %"]
    assert [bar.get_width() for bar in axes[0].patches] == pytest.approx([80, 50])
    assert "the most accurate is alti" in chart.caption


def test_measures_that_cannot_tell_stand_out(charts):
    chart = charts["usable_measures"]
    assert chart.rows == [
        ("hide", "sufficiency", "NO", 0.5, -1.0, 2.0, None),
        ("unk", "comprehensiveness", "yes", 0.5, -1.0, 2.0, 0.5),
    ]
    assert len(chart.columns) == 7
    assert chart.draw is None


def test_without_intervals_there_are_none():
    methods = {"alti": {"links": score(0.8, False), "copies": score(0.5, False)}}
    chart, _ = self_test_charts({**FOUND, "methods": methods})
    assert chart.rows[0][1:4] == (80, None, None)
    assert chart.draw().axes


def test_the_report_says_who_found_what(monkeypatch, tmp_path):
    others = {
        name: {"links": score(links), "copies": score(links)} for name, links in (("random", 0.2), ("posterior", 0.9))
    }
    methods = {**FOUND["methods"], **others}
    asked = {}
    above = {
        "posterior": {"value": -0.1, "interval": (-0.2, -0.05)},
        "random": {"value": 0.6, "interval": (0.5, 0.7)},
    }
    found = {**FOUND, "methods": methods, "above_control": above}
    monkeypatch.setattr(self_test, "run_self_test", lambda folder, **options: asked.update(options) or found)
    report = self_test.self_test_report(tmp_path, seed=7, steps=3)
    assert (asked["seed"], asked["steps"]) == (7, 3)
    assert "alti is the best on other sentences" in report.summary[0]
    assert "80.0 % (70.0 to 90.0) of the target words here, without a look at the model" in report.summary[0]
    assert "posterior for 90.0 % (80.0 to 100.0) and random for 20.0 %" in report.summary[0]
    assert report.summary[0].endswith("alti is worse than posterior, by -10.0 points (-20.0 to -5.0).")
    assert "posterior 90, alti 80, attention 50, random 20 (percent)" in report.summary[1]
    assert report.summary[1].endswith("posterior is an aligner's and has not looked at the model.")
    assert report.summary[2] == "Of 2 measures of faithfulness 1 can tell the truth from random scores."
    assert report.record["config"]["seed"] == 7
