"""Charts of how faithful methods are: from `JudgedFaithfulness` to tables, figures and plain words."""

from collections.abc import Sequence
from itertools import chain

from hf_attncal.analysis.judged import AREAS, YARDSTICK, JudgedFaithfulness
from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.faithfulness import Verdict, metric_of

from .charts import about_controls, cells, draw_bars, listed
from .contents import Chart

DEYOUNG = "DeYoung et al. (ERASER), ACL 2020"
_TARGETS = {"reference": "the reference translations", "output": "the model's own translations"}
_TITLES = {
    "comprehensiveness": "How much worse words are predicted without the source words that a method names first",
    "sufficiency": "How much worse words are predicted from the source words alone that a method names first",
}
_TAKEN = {
    "comprehensiveness": "the words that a method names first",
    "sufficiency": "all words but those that a method names first",
}
_OPERATORS = (
    "Words are taken away in several ways: another word of the language stands in their place (`replace`: what the "
    "model then reads is the most like text), their attention is hidden (`hide`), they are unknown words (`unk`), or "
    "they are not there (`delete`)."
)
_CIRCULAR = "circular"


def faithfulness_charts(judged: JudgedFaithfulness, method: str | None = None) -> list[Chart]:
    """Return all charts of faithfulness that was judged.

    Args:
        judged: with a bootstrap: without intervals there are no verdicts.
        method: whose verdicts are told. None: `contribution`, or else `attention`, where it is there; the best one
            of neither is.
    """
    ranking = judged.ranking()
    if method is None:
        method = next((name for name in ("contribution", "attention") if name in ranking), ranking[0])
    measures = [measure for measure in AREAS if measure in judged.found.measures]
    charts = []
    if judged.found.bootstrap and len(ranking) > 1:  # verdicts stand before the numbers that they are drawn from
        charts += [faithfulness_verdicts(judged, method, measure) for measure in measures]
    charts += [faithfulness_by_method(judged, measure) for measure in measures]
    if judged.agreement:
        charts.append(operator_agreement_chart(judged))
    return charts


def faithfulness_by_method(judged: JudgedFaithfulness, measure: str) -> Chart:
    """Show how much worse predictions get, for each method and operator, the best method first.

    Args:
        judged: what was found. measure: one of `AREAS`.
    """
    found = judged.found
    methods = judged.ranking(measure)
    scores = {name: [found.score(name, operator, measure) for operator in found.operators] for name in methods}
    rows = [
        (name, *chain.from_iterable((*cells(one), _CIRCULAR if one.circular else None) for one in row))
        for name, row in scores.items()
    ]
    columns = zip(found.operators, *scores.values(), strict=True)
    panels = {f"{operator} (nats)": {"": column} for operator, *column in columns}
    circular = [
        f"{name} under {operator}"
        for name in methods
        for operator, one in zip(found.operators, scores[name], strict=True)
        if one.circular
    ]
    beware = (
        f" Circular, and to be read past: {listed(circular)}; there the method was made by what is measured."
        if circular
        else ""
    )
    yardstick = f" {YARDSTICK} takes words away itself: it shows what can be reached." if YARDSTICK in methods else ""
    return Chart(
        name=measure,
        title=_TITLES[measure],
        caption=(
            f"By how many nats the log-probability of a word of {_TARGETS[found.targets]} falls when "
            f"{_TAKEN[measure]} are taken from the source. It is the mean over all target words, and over the first "
            f"word, the best fifth and the best half of each ranking. {_good(measure)} {_OPERATORS} Compare methods "
            "within one of these. `low` and `high` are 95 % bootstrap intervals over sentence pairs."
            f"{beware}{yardstick}{about_controls(judged.controls())}"
        ),
        columns=_columns(["method"], found.operators, "{} (nats)", "{}: low", "{}: high", "{}: note"),
        rows=rows,
        draw=draw_bars(panels, methods),
        source=DEYOUNG,
    )


def faithfulness_verdicts(judged: JudgedFaithfulness, method: str, measure: str) -> Chart:
    """Show whether a method is more faithful than each other one, in words."""
    verdicts = judged.verdicts(method, measure)
    others = [name for name in judged.ranking(measure) if name != method]
    rows = [
        (other, in_words(verdict, method, other), *chain.from_iterable(map(cells, verdict.by_operator.values())))
        for other, verdict in ((name, verdicts[name]) for name in others)
    ]
    return Chart(
        name=f"{measure}_verdicts",
        title=f"Is {method} more faithful than others? ({measure})",
        caption=(
            f"By how many nats {measure} of {method} is above that of each other method, on the same resamples of the "
            "pairs. There is a verdict only where all ways to take words away that are not circular say the same and "
            f"their 95 % intervals exclude 0, on {FEWEST_SENTENCES} pairs or more; otherwise nobody can tell. "
            f"{_good(measure)} Not beaten by any: {listed(judged.unbeaten(measure))}."
            f"{about_controls(judged.controls())}"
        ),
        columns=_columns(
            ["method", "verdict"], judged.found.operators, "{}: difference (nats)", "{}: low", "{}: high"
        ),
        rows=rows,
    )


def in_words(verdict: Verdict, first: str, second: str) -> str:
    """Write a verdict as words."""
    left_out = f" ({listed(list(verdict.circular))} left out: circular)" if verdict.circular else ""
    if verdict.better is None:
        undecided = "ways to take words away disagree, or cannot tell"
        return f"no verdict: {undecided}{left_out}"
    worse = second if verdict.better == first else first
    return f"{verdict.better} is better than {worse}{left_out}"


def operator_agreement_chart(judged: JudgedFaithfulness) -> Chart:
    """Show whether it matters how a word is taken away."""
    panels = {"Kendall's tau": {"": list(judged.agreement.values())}}
    return Chart(
        name="operator_agreement",
        title="Whether the ways to take a word away agree on which words matter",
        caption=(
            "Each source word is taken away alone, in each way; for each target word two ways rank the source words. "
            "Kendall's tau-b between the two rankings, the mean over target words: 1 where they are the same, 0 where "
            "they have nothing to do with each other. Where it is low, what is found with one way alone is about this "
            "way, and not about the model. With 95 % bootstrap intervals over sentence pairs."
        ),
        columns=["first", "second", "Kendall's tau", "low", "high"],
        rows=[(*both, *cells(tau)) for both, tau in judged.agreement.items()],
        draw=draw_bars(panels, map(" and ".join, judged.agreement)),
        source="Kendall 1945",
    )


def _columns(first: list[str], operators: Sequence[str], *columns: str) -> list[str]:
    return first + [column.format(operator) for operator in operators for column in columns]


def _good(measure: str) -> str:
    return f"The {'lower' if metric_of(measure).lower_is_better else 'higher'} the better."
