"""Charts of the self-test: which methods, and which measures of faithfulness, find what was planted."""

from collections.abc import Mapping
from typing import Any

from hf_attncal.metrics.base import Measured

from .charts import cells, draw_bars
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
    rows = [(name, *cells(links), *cells(copies)) for name, links, copies in zip(names, *scores.values(), strict=True)]
    for key, label in _REFERENCES.items():
        by_kind = [methods[names[0]][kind][key] for kind in _KINDS]
        links, copies = (None if share is None else 100 * share for share in by_kind)
        rows.append((label, links, None, None, copies, None, None))
    panels = {f"{label} found, %": {"": scores[kind]} for kind, label in _KINDS.items()}
    return Chart(
        name="planted_accuracy",
        title="How often each method names the word that is known to be the right one",
        caption=(
            "A small model was trained on generated sentences of which it is known which source word each target word "
            "comes from. Shown is, in percent of the target words, how often the source word with the highest score "
            "is one of these: for all words but punctuation, and for invented words that stand once in the source and "
            "were copied. A method that fails here is to be believed nowhere; one that does not may still fail on "
            f"other models. On other sentences of the same kind the most accurate is {best}. With 95 % bootstrap "
            "intervals over sentence pairs."
        ),
        columns=["method", *(f"{label}{part}" for label in _KINDS.values() for part in (" (%)", ": low", ": high"))],
        rows=rows,
        draw=draw_bars(panels, names),
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
    return Chart(
        name="usable_measures",
        title="Which measures of faithfulness can tell the truth from random numbers",
        caption=(
            "On the same sentences, scores that are the truth and random scores are both measured. `usable`: the "
            "truth does better, and the 95 % interval over sentence pairs (`low` to `high`) excludes 0; `difference` "
            "is by how many nats (of sufficiency the lower is the better). `tau` is Kendall's rank correlation "
            "between the order of the methods by this measure and by how often they are right: near 1, what it says "
            "of methods can be believed."
        ),
        columns=["operator", "measure", "usable", "difference (nats)", "low", "high", "tau"],
        rows=rows,
    )


def _percent(score: Mapping[str, Any]) -> Measured:
    interval = (score["intervals"] or {}).get("accuracy")
    return Measured(100 * score["accuracy"], interval and tuple(100 * bound for bound in interval))
