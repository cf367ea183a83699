"""Make charts of the self-test, which shows the methods and measures of faithfulness that find the planted truth."""

from collections.abc import Mapping
from typing import Any

from hf_attncal.metrics.base import Measured

from .charts import cells, chart, draw_bars
from .contents import Chart

_KINDS = {"links": "links", "copies": "copied words"}
_REFERENCES = {"by_chance": "(a word drawn at random)", "one_place": "(always the same place)"}


def self_test_charts(found: Mapping[str, Any]) -> list[Chart]:
    """Return charts of what `self_test.run_self_test` or `judge` returns, or of its results file."""
    return [planted_accuracy(found["methods"], found["best_method"]), usable_measures(found["metrics"])]


def planted_accuracy(methods: Mapping[str, Mapping[str, Mapping[str, Any]]], best: str) -> Chart:
    """Show how often each method names a word that is known to be the right one, the best method first.

    Args:
        methods: method -> kind of truth -> `PlantedScore` as a dictionary. best: the most accurate on other text.
    """
    names = sorted(methods, key=lambda name: methods[name]["links"]["accuracy"], reverse=True)
    scores = {kind: [_percent(methods[name][kind]) for name in names] for kind in _KINDS}
    rows = [(name, *cells(*measured)) for name, *measured in zip(names, *scores.values(), strict=True)]
    for key, label in _REFERENCES.items():
        by_kind = [methods[names[0]][kind][key] for kind in _KINDS]
        links, copies = (None if share is None else 100 * share for share in by_kind)
        rows.append((label, links, None, None, copies, None, None))
    return chart(
        "planted_accuracy",
        ["method", *(f"{label}{part}" for label in _KINDS.values() for part in (" (%)", ": low", ": high"))],
        rows,
        draw_bars({f"{label} found, %": {"": scores[kind]} for kind, label in _KINDS.items()}, names),
        best=best,
    )


def usable_measures(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Chart:
    """Show which measures of faithfulness can tell the truth from random numbers.

    Args:
        metrics: see `self_test.judge_metrics`.
    """
    rows = [
        (
            *(operator, measure, "yes" if one["usable"] else "NO"),
            *(one["above_random"], *(one["interval"] or (None, None)), one["tau"]),
        )
        for operator, by_measure in metrics.items()
        for measure, one in by_measure.items()
    ]
    columns = ["operator", "measure", "usable", "difference (nats)", "low", "high", "tau"]
    return chart("usable_measures", columns, rows)


def _percent(score: Mapping[str, Any]) -> Measured:
    interval = (score["intervals"] or {}).get("accuracy")
    return Measured(100 * score["accuracy"], interval and tuple(100 * bound for bound in interval))
