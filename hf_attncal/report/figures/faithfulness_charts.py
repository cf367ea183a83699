"""Make charts of the faithfulness of methods: `JudgedFaithfulness` becomes tables, figures and words."""

from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.faithfulness import Verdict
from hf_attncal.report.judged import AREAS, YARDSTICK, JudgedFaithfulness

from .charts import about_controls, cells, chart, draw_bars
from .contents import Chart
from .templates import listed

_TARGETS = {"reference": "the reference translations", "output": "the model's own translations"}


def faithfulness_charts(judged: JudgedFaithfulness) -> list[Chart]:
    """Return all charts of faithfulness that was judged.

    Verdicts are on `contribution`, else on `attention`, else on the best method.

    Args:
        judged: faithfulness of the methods. There are verdicts only if it has intervals.
    """
    ranking = judged.ranking()
    method = next((name for name in ("contribution", "attention") if name in ranking), ranking[0])
    measures = [measure for measure in AREAS if measure in judged.found.measures]
    charts = []
    if judged.found.bootstrap and len(ranking) > 1:  # verdicts stand before the numbers that they are drawn from
        charts += [faithfulness_verdicts(judged, method, measure) for measure in measures]
    charts += [faithfulness_by_method(judged, measure) for measure in measures]
    if judged.agreement:
        columns = ["first", "second", "Kendall's tau", "low", "high"]
        rows = [(*both, *cells(tau)) for both, tau in judged.agreement.items()]
        draw = draw_bars({"Kendall's tau": {"": list(judged.agreement.values())}}, map(" and ".join, judged.agreement))
        charts.append(chart("operator_agreement", columns, rows, draw))
    return charts


def faithfulness_by_method(judged: JudgedFaithfulness, measure: str) -> Chart:
    """Show how much worse predictions get, for each method and operator, the best method first.

    Args:
        judged: what was found. measure: one of `AREAS`.
    """
    found, methods = judged.found, judged.ranking(measure)
    scores = {name: [found.score(name, operator, measure) for operator in found.operators] for name in methods}
    rows, circular = [], []
    for name, row in scores.items():
        notes = ["circular" if score.circular else None for score in row]
        rows.append((name, *(cell for score, note in zip(row, notes, strict=True) for cell in (*cells(score), note))))
        circular += [f"{name} under {operator}" for operator, note in zip(found.operators, notes, strict=True) if note]
    columns = zip(found.operators, *scores.values(), strict=True)
    parts = " (nats)", ": low", ": high", ": note"
    beware = f" Circular, and to be read past: {listed(circular)}; there the method was made by what is measured."
    yardstick = f" {YARDSTICK} takes words away itself: it shows what can be reached."
    return chart(
        measure,
        ["method", *(f"{operator}{part}" for operator in found.operators for part in parts)],
        rows,
        draw_bars({f"{operator} (nats)": {"": column} for operator, *column in columns}, methods),
        targets=_TARGETS[found.targets],
        circular=beware if circular else "",
        yardstick=yardstick if YARDSTICK in methods else "",
        controls=about_controls(judged.controls()),
    )


def faithfulness_verdicts(judged: JudgedFaithfulness, method: str, measure: str) -> Chart:
    """Show whether a method is more faithful than each other one, in words."""
    verdicts = judged.verdicts(method, measure)
    others = [name for name in judged.ranking(measure) if name != method]
    parts = ": difference (nats)", ": low", ": high"
    return chart(
        f"{measure}_verdicts",
        ["method", "verdict", *(f"{operator}{part}" for operator in judged.found.operators for part in parts)],
        [
            (other, in_words(verdicts[other], method, other), *cells(*verdicts[other].by_operator.values()))
            for other in others
        ],
        method=method,
        fewest=FEWEST_SENTENCES,
        unbeaten=listed(judged.unbeaten(measure)) or "none, for none names words that the model uses",
        controls=about_controls(judged.controls()),
    )


def in_words(verdict: Verdict, first: str, second: str) -> str:
    """Write a verdict as words."""
    left_out = f" ({listed(list(verdict.circular))} left out: circular)" if verdict.circular else ""
    if verdict.better is None:
        return f"no verdict: ways to take words away disagree, or cannot tell, or neither names any{left_out}"
    worse = second if verdict.better == first else first
    return f"{verdict.better} is better than {worse}{left_out}"
