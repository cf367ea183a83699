"""Report on the self-test, in which analysis has to find a truth that is known."""

from collections.abc import Mapping
from pathlib import Path

from hf_attncal.metrics import records
from hf_attncal.metrics.base import Measured
from hf_attncal.report.figures.charts import section
from hf_attncal.report.figures.contents import Report
from hf_attncal.report.figures.findings import compared
from hf_attncal.report.figures.self_test_charts import self_test_charts
from hf_attncal.report.figures.templates import listed, percent
from hf_attncal.report.planted_truth import ALIGNER, MEASURED, SELF_TEST_STEPS, run_self_test


def self_test_report(
    folder: str | Path, *, seed: int = 1, steps: int = SELF_TEST_STEPS, measured: int = MEASURED, bootstrap: int = 1000
) -> Report:
    """Run the self-test, some minutes on one core, and report on it; args are those of `run_self_test`."""
    options = {"seed": seed, "steps": steps, "measured": measured, "bootstrap": bootstrap}
    found = run_self_test(folder, **options)
    links = {name: kinds["links"] for name, kinds in found["methods"].items()}
    ranked = sorted(links, key=lambda name: links[name]["accuracy"], reverse=True)
    usable = [judged["usable"] for of in found["metrics"].values() for judged in of.values()]
    best = found["best_method"]
    return Report(
        title="Self-test",
        summary=[
            _of_the_best(best, links, found["above_control"]),
            "All methods, the best first: "
            + ", ".join(f"{name} {100 * links[name]['accuracy']:.0f}" for name in ranked)
            + " (percent)."
            + (f" {ALIGNER} is an aligner's and has not looked at the model." if ALIGNER in links else ""),
            f"Of {len(usable)} measures of faithfulness {sum(usable)} can tell the truth from random scores.",
        ],
        caveats=[
            "A small model of an artificial language: what finds nothing here is to be believed nowhere, and what "
            "finds much may still fail on models that have learned other things. One seed is one model; the "
            "project's results have three.",
        ],
        sections=[section("self_test", self_test_charts(found))],
        record=records.record({"experiment": "self_test", **options}),
    )


def _of_the_best(best: str, links: Mapping[str, Mapping], above: Mapping[str, Mapping]) -> str:
    """Compare the best method with those that never look at the model."""
    accuracy = {
        name: percent(Measured(score["accuracy"], score["intervals"] and score["intervals"]["accuracy"]))
        for name, score in links.items()
    }
    sentence = (
        f"Of the methods that look at the model {best} is the best on other sentences of this kind. It names a right "
        f"word for {accuracy[best]} of the target words here"
    )
    if not above:
        return f"{sentence}."
    controls = listed([f"{name} for {accuracy[name]}" for name in above])
    strongest, difference = next(iter(above.items()))
    verdict = compared(best, strongest, Measured(**difference), "better", "worse")
    return f"{sentence}, without a look at the model {controls}. {verdict}"
