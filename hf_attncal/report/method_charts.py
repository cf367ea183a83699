"""Charts of methods of attribution beside each other."""

from collections.abc import Mapping

from hf_attncal.alignment.attributions import ScoredMethod

from .chart_parts import about_controls, cells, draw_bars
from .contents import Chart


def errors_by_method(scored: Mapping[str, ScoredMethod]) -> Chart:
    """How near the best source word of each target word comes to gold links, by each method, the nearest first."""
    found = {name: method.mean.test for name, method in scored.items()}
    names = sorted(found, key=lambda name: found[name].aer)
    panels = {"alignment error rate": {"": [(found[name].aer, found[name].interval) for name in names]}}
    return Chart(
        name="aer_by_method",
        title="How near each method comes to gold links",
        caption=(
            "The alignment error rate of linking each target word to the source word with its highest score: 0 where "
            f"all links are those that people have drawn.{about_controls(names)} Methods that look at layers and "
            "heads are the mean over all of them; single heads can be better (`attncal align select` chooses one on "
            "annotated pairs). Thin lines, "
            "and `low` and `high` in the table, are 95 % bootstrap intervals over sentence pairs."
        ),
        columns=("method", "AER", "low", "high", "precision", "recall"),
        rows=[
            (name, *cells(score.aer, score.interval), score.precision, score.recall)
            for name in names
            for score in [found[name]]
        ],
        draw=draw_bars(panels, names),
        source="Och and Ney, 2003",
    )
