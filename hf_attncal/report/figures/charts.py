"""Make charts of attention, links and faithfulness: measurements become figures and tables.

What each chart shows and how to read it is in `charts.yaml`. matplotlib is imported when a figure is drawn. Layers and
heads are counted from 0.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import yaml

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.base import FEWEST_SENTENCES, Measured, means
from hf_attncal.metrics.faithfulness import Verdict
from hf_attncal.metrics.link_errors import PredictionAndAlignment, TagErrors, aer_by_tag, prediction_and_alignment
from hf_attncal.report.attribution import CONTROLS, ScoredLinks
from hf_attncal.report.judged_faithfulness import AREAS, YARDSTICK, JudgedFaithfulness
from hf_attncal.report.observations import BUCKET_NAMES, ENTROPY_THRESHOLDS, TOKEN_GROUPS, Observations

from .contents import Cell, Chart, Section
from .templates import FOLDER, display, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LINES = 6  # in one figure
_FEWEST = 0.01  # share of all steps below which a point of a curve is chance
_NOTHING = Measured(math.nan, None)
_TEXTS: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "charts.yaml").read_text(encoding="utf-8"))
_Means = Callable[[np.ndarray], list[Measured]]  # counts to means with intervals


# ---- parts of charts ----


def chart(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    draw: Callable[[], "Figure"] | None = None,
    **words: object,
) -> Chart:
    """Put a chart together from its numbers and its text in `charts.yaml`; `words` fill the gaps of the text."""
    text = _TEXTS[name]
    title, caption = (text[part].format(**_TEXTS["common"] | text | words) for part in ("title", "caption"))
    return Chart(name, title, caption, columns, rows, draw, text.get("source", ""))


def section(name: str, charts: Sequence[Chart]) -> Section:
    """Put charts below their heading in `charts.yaml`."""
    return Section(**_TEXTS[name], charts=charts)


def cells(*measured: Measured) -> list[Cell]:
    """Return value, low and high of each number; None for those that are missing."""
    values = ((None if math.isnan(one.value) else one.value, *(one.interval or (None, None))) for one in measured)
    return [cell for value in values for cell in value]


def bounded(*names: str) -> list[str]:
    """Return the columns of `cells`, for each name."""
    return [column for name in names for column in (name, f"{name}: low", f"{name}: high")]


def about_controls(methods: Iterable[str]) -> str:
    """Write a sentence on the methods that never look at the model, with a space before it; "" without any."""
    controls = [name for name in methods if name in CONTROLS]
    if not controls:
        return ""
    return f" What never looks at the model is a control: {listed(controls)}. Any other method has to be better."


def drawn(kind: str, *args, **options) -> Callable[[], "Figure"]:
    """Return a function that draws a figure with the function `kind` of `hf_attncal.drawing.plots`."""

    def draw() -> "Figure":
        from hf_attncal.drawing import plots

        return getattr(plots, kind)(*args, **options)

    return draw


def draw_bars(
    panels: Mapping[str, Mapping[str, Sequence[Measured]]], labels: Iterable[str | int]
) -> Callable[[], "Figure"]:
    """Return a function that draws bars; a label that is a number is that of a layer."""
    bars = {
        panel: {name: [(one.value, one.interval) for one in values] for name, values in series.items()}
        for panel, series in panels.items()
    }
    return drawn("bars", bars, [f"layer {label}" if isinstance(label, int) else display(label) for label in labels])


# ---- all charts of a corpus ----


def observation_charts(
    observed: Observations,
    *,
    gold: Sequence[GoldAlignment] | None = None,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
    bootstrap: int = 1000,
    seed: int = 0,
) -> list[Chart]:
    """Return all charts that the observations and the gold links allow.

    Args:
        observed: observations over the corpus; with `alignments` where there is gold.
        gold: annotated links of every pair; None for no charts of links.
        sources, targets: the corpus, for the charts of links.
        bootstrap: resamples of the pairs for each interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: the gold links do not fit the text.
    """
    measure = partial(means, bootstrap=bootstrap, seed=seed)
    # Figs. 3 and 5 of Lu et al. and Fig. 7 of Mask-Align are of one layer.
    layer = observed.top("reliability" if observed.calibrated else "entropy")
    charts = []
    if observed.layers["mask"]:
        charts.append(_reliability_by_layer(observed, measure))
    if observed.calibrated:
        charts += [_reliability_by_head(observed), _reliability_by_entropy(observed, measure)]
        if observed.tags:
            charts.append(_reliability_by_tag(observed, layer, measure))
        if observed.is_changed:
            panels = {
                "divergence (nats)": {"": "divergence"},
                "change of entropy (nats)": {"": "entropy_change"},
                "share that moves": {"": "moved"},
            }
            charts += [
                _by_layer("change_by_layer", observed, observed.calibrated, panels, panels, measure),
                _divergence_by_entropy(observed, measure),
            ]
    panels = {
        "entropy of attention (nats)": {
            "single heads (their mean)": "entropy",
            "mean of all heads": "average_entropy",
        }
    }
    columns = "entropy of heads (nats)", "entropy of their mean (nats)"
    charts.append(_by_layer("entropy_by_layer", observed, observed.layers["entropy"], panels, columns, measure))
    charts.append(_attention_by_group(observed, measure))
    if gold is not None:
        names = ("attention", "contribution") if layer in observed.calibrated else ("attention",)
        links = {name: observed.links(name, layer) for name in names}
        words = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
        if observed.word_tags is not None:
            errors = aer_by_tag(gold, links, observed.word_tags, words, bootstrap=bootstrap, seed=seed)
            charts.append(_errors_by_tag(errors, layer))
        lengths, predicted = [len(source) for source, _ in words], observed.predicted or ()
        shares = {
            name: prediction_and_alignment(gold, of_method, predicted, lengths, bootstrap=bootstrap, seed=seed)
            for name, of_method in links.items()
        }
        charts.append(_predictions_and_alignments(shares, layer))
    return charts


def _by_layer(
    name: str,
    observed: Observations,
    layers: Sequence[int],
    panels: Mapping[str, Mapping[str, str]],
    columns: Iterable[str],
    measure: _Means,
) -> Chart:
    """Show measures of steps in each layer; `panels` names them, by panel and bar, and `columns` in the table."""
    bars = {
        panel: {bar: [measure(observed.counts(kind, layer))[0] for layer in layers] for bar, kind in kinds.items()}
        for panel, kinds in panels.items()
    }
    measured = [values for series in bars.values() for values in series.values()]
    rows = [(layer, *cells(*row)) for layer, *row in zip(layers, *measured, strict=True)]
    return chart(name, ("layer", *bounded(*columns)), rows, draw_bars(bars, layers))


# ---- reliability ----


def _reliability_by_layer(observed: Observations, measure: _Means) -> Chart:
    """Show how often attention names the token that contributes most, in each layer with masks."""
    measured, rows = {}, []
    for layer in observed.layers["mask"]:
        masks = observed.mean("mask", layer), observed.mean("informed", layer)
        if layer in observed.idle:
            rows.append((layer, *[None] * 5, *masks, "withheld: the masks carry no information"))
            continue
        (measured[layer],) = measure(observed.counts("reliability", layer))
        of_heads = observed.by_head["reliability"][layer]
        bounds = float(np.nanmin(of_heads)), float(np.nanmax(of_heads))
        rows.append((layer, *cells(measured[layer]), *bounds, *masks, None))
    columns = [
        *("layer", *bounded("reliability level"), "lowest head", "highest head", "mean mask"),
        *("share of predictions with masks that differ", "note"),
    ]
    draw = draw_bars({"reliability level": {"": [*measured.values()]}}, measured) if measured else None
    return chart("reliability_by_layer", columns, rows, draw)


def _reliability_by_head(observed: Observations) -> Chart:
    """Show how often attention names the token that contributes most, in each head."""
    layers = observed.calibrated
    values = observed.by_head["reliability"][list(layers)]
    rows = [
        (layer, *(None if math.isnan(value) else value for value in of_heads))
        for layer, of_heads in zip(layers, values.tolist(), strict=True)
    ]
    draw = drawn("head_map", "reliability level", np.nan_to_num(values), layers, "reliability level")
    return chart("reliability_by_head", ("layer", *(f"head {head}" for head in range(values.shape[1]))), rows, draw)


def _reliability_by_entropy(observed: Observations, measure: _Means) -> Chart:
    """Show the reliability level of predictions whose attention has at most so much entropy."""
    rows, series, bands = [], {}, {}
    shown = _spread(observed.calibrated)
    for layer in observed.calibrated:
        levels = measure(observed.reliability_up_to(layer))
        shares = [share.value for share in means(observed.steps_up_to(layer), 0)]
        by_bound = list(zip(ENTROPY_THRESHOLDS, levels, shares, strict=True))
        rows += [(layer, bound, *cells(level), share) for bound, level, share in by_bound]
        whole = sum(share < 1 for share in shares)  # the first threshold that nothing exceeds
        points = [(bound, level) for bound, level, share in by_bound[: whole + 1] if share >= _FEWEST]
        if layer in shown and points:
            series[f"layer {layer}"] = [(bound, level.value) for bound, level in points]
            if any(level.interval for level in levels):
                bands[f"layer {layer}"] = [level.interval or (level.value, level.value) for _, level in points]
    axes = "entropy of attention at most (nats)", "reliability level"
    return chart(
        "reliability_by_entropy",
        ("layer", "entropy at most (nats)", *bounded("reliability level"), "share of predictions"),
        rows,
        drawn("lines", series, *axes, bands=bands) if series else None,
        fewest=f"{100 * _FEWEST:.0f}",
        left_out="" if len(shown) == len(observed.calibrated) else " Some layers are in the table alone.",
    )


def _reliability_by_tag(observed: Observations, layer: int, measure: _Means) -> Chart:
    """Show reliability level and entropy by the tag of the target word, the most reliable first."""
    reliable, entropy = (measure(observed.of_tag(name, layer)) for name in ("reliability", "average_entropy"))
    numbers = observed.tag_steps.sum(axis=0).tolist()
    order = sorted(range(len(numbers)), key=lambda n: (math.isnan(reliable[n].value), -reliable[n].value))
    panels = {
        "reliability level": {"": [reliable[n] for n in order]},
        "entropy of attention (nats)": {"": [entropy[n] for n in order]},
    }
    return chart(
        "reliability_by_tag",
        ("tag", "predictions", *bounded("reliability level", "entropy (nats)")),
        [(observed.tags[n], int(numbers[n]), *cells(reliable[n], entropy[n])) for n in order],
        draw_bars(panels, [observed.tags[n] for n in order]),
        layer=layer,
    )


def _divergence_by_entropy(observed: Observations, measure: _Means) -> Chart:
    """Show how much calibration changes attention that is sharp, and attention that is spread."""
    rows, series = [], {}
    shown = _spread(observed.calibrated)
    for layer in observed.calibrated:
        counts = observed.divergence_in(layer)
        measured = measure(counts)
        numbers = counts[..., 1].sum(axis=0)
        rows += [
            (layer, name, int(n), *cells(one)) for name, n, one in zip(BUCKET_NAMES, numbers, measured, strict=True)
        ]
        if layer in shown:
            series[f"layer {layer}"] = measured
    return chart(
        "divergence_by_entropy",
        ("layer", "entropy (nats)", "rows of attention", *bounded("divergence (nats)")),
        rows,
        draw_bars({"divergence before and after (nats)": series}, [f"entropy {name}" for name in BUCKET_NAMES]),
    )


def _spread(layers: Sequence[int]) -> list[int]:
    """Return as many layers as a figure can show, from the first to the last."""
    if len(layers) <= _MOST_LINES:
        return list(layers)
    return [layers[round(place)] for place in np.linspace(0, len(layers) - 1, _MOST_LINES)]


# ---- groups of tokens ----


def _attention_by_group(observed: Observations, measure: _Means) -> Chart:
    """Show who gets attention (words, punctuation, special tokens, NULL), and how long their value vectors are."""
    layers, has_norms = observed.layers["entropy"], bool(observed.group_norms.any())
    names = (*TOKEN_GROUPS, *(["NULL"] if observed.layers["null"] else []))
    rows = []
    shares: dict[str, list[Measured]] = {name: [] for name in names}
    lengths: dict[str, list[Measured]] = {name: [] for name in names}
    for layer in layers:
        attention = measure(observed.attention_of_groups(layer))
        norms = measure(observed.norms_of_groups(layer)) if has_norms else [_NOTHING] * len(TOKEN_GROUPS)
        if observed.layers["null"]:
            attention += measure(observed.counts("null", layer)) if layer in observed.layers["null"] else [_NOTHING]
            norms = [*norms, Measured(observed.null_norms.get(layer, math.nan), None)]
        for name, share, norm in zip(names, attention, norms, strict=True):
            rows.append((layer, name, *cells(share, norm)))
            shares[name].append(share)
            lengths[name].append(norm)
    panels = {"share of attention": shares} | ({"length of the value vector": lengths} if has_norms else {})
    about_norms = "; and how long their value vectors are, the mean over tokens and heads" if has_norms else ""
    return chart(
        "attention_by_group",
        ("layer", "tokens", *bounded("share of attention", "length of value vector")),
        rows,
        draw_bars(panels, layers),
        norms=about_norms,
    )


# ---- gold links ----


def _errors_by_tag(errors: Sequence[TagErrors], layer: int) -> Chart:
    """Show the AER of the links of a layer by the tag of the target word."""
    names, pairs = list(errors[0].scores), list(errors[0].differences or {})
    labels = ["all words" if one.tag is None else one.tag for one in errors]
    series = {name: [Measured(one.scores[name].aer, one.scores[name].interval) for one in errors] for name in names}
    panels = {"AER (lower is better)": series}
    for pair in pairs:
        differences = [(one.differences or {})[pair] for one in errors]
        panels[f"AER of {pair[0]} less {pair[1]}"] = {"difference": differences}
    columns = (f"AER of {name}" for name in (*names, *(f"{a} less {b}" for a, b in pairs)))
    measured = [values for by_name in panels.values() for values in by_name.values()]
    rows = [
        (label, one.words, one.scores[names[0]].possible, *cells(*row))
        for label, one, *row in zip(labels, errors, *measured, strict=True)
    ]
    difference = " A difference above 0 means that the second is nearer to the gold links." if pairs else ""
    return chart(
        "aer_by_tag",
        ("tag", "words", "gold links", *bounded(*columns)),
        rows,
        draw_bars(panels, labels),
        names=" and ".join(names),
        layer=layer,
        difference=difference,
    )


def _predictions_and_alignments(by_weights: Mapping[str, PredictionAndAlignment], layer: int) -> Chart:
    """Show whether words are predicted where they are aligned well, by weights of a layer."""
    labels = {
        "cPcA": "predicted, aligned",
        "wPcA": "not predicted, aligned",
        "cPwA": "predicted, not aligned",
        "wPwA": "not predicted, not aligned",
    }
    series = {name: [one.shares[category] for category in labels] for name, one in by_weights.items()}
    some = next(iter(by_weights.values()))
    rows = [
        (name, category, label, *cells(one.shares[category]))
        for name, one in by_weights.items()
        for category, label in labels.items()
    ]
    return chart(
        "prediction_and_alignment",
        ("weights", "category", "meaning", *bounded("share of words")),
        rows,
        draw_bars({"share of target words": series}, list(labels.values())),
        layer=layer,
        words=some.words,
        unlinked=some.unlinked,
    )


def errors_by_method(scored: Mapping[str, ScoredLinks]) -> Chart:
    """Show how near the links of each method come to gold links, the nearest first."""
    scores = {name: method.score for name, method in scored.items()}
    scores = dict(sorted(scores.items(), key=lambda item: item[1].aer))
    measured = [Measured(score.aer, score.interval) for score in scores.values()]
    rows = zip(scores.items(), measured, strict=True)
    return chart(
        "aer_by_method",
        ("method", "AER", "low", "high", "precision", "recall"),
        [(name, *cells(aer), score.precision, score.recall) for (name, score), aer in rows],
        draw_bars({"alignment error rate": {"": measured}}, scores),
        controls=about_controls(scores),
    )


_TARGETS = {"reference": "the reference translations", "output": "the model's own translations"}


def faithfulness_charts(judged: JudgedFaithfulness) -> list[Chart]:
    """Return all charts of faithfulness that was judged.

    Verdicts are on `contribution`, else on `attention`, else on the best method.

    Args:
        judged: faithfulness of the methods. There are verdicts only if it has intervals.
    """
    ranking = judged.ranking()
    method = next((name for name in ("contribution", "attention") if name in ranking), ranking[0])
    measures = [measure for measure in AREAS if measure in judged.measures]
    charts = []
    if judged.bootstrap and len(ranking) > 1:  # verdicts stand before the numbers that they are drawn from
        charts += [faithfulness_verdicts(judged, method, measure) for measure in measures]
    charts += [faithfulness_by_method(judged, measure) for measure in measures]
    return charts


def faithfulness_by_method(judged: JudgedFaithfulness, measure: str) -> Chart:
    """Show how much worse predictions get, for each method and operator, the best method first.

    Args:
        judged: faithfulness of the methods.
        measure: one of `AREAS`.
    """
    methods = judged.ranking(measure)
    scores = {name: [judged.score(name, operator, measure) for operator in judged.operators] for name in methods}
    rows, circular = [], []
    for name, row in scores.items():
        notes = ["circular" if score.circular else None for score in row]
        rows.append((name, *(cell for score, note in zip(row, notes, strict=True) for cell in (*cells(score), note))))
        circular += [
            f"{name} under {operator}" for operator, note in zip(judged.operators, notes, strict=True) if note
        ]
    columns = zip(judged.operators, *scores.values(), strict=True)
    parts = " (nats)", ": low", ": high", ": note"
    beware = f" Circular, and to be read past: {listed(circular)}; there the method was made by what is measured."
    yardstick = f" {YARDSTICK} takes words away itself: it shows what can be reached."
    return chart(
        measure,
        ["method", *(f"{operator}{part}" for operator in judged.operators for part in parts)],
        rows,
        draw_bars({f"{operator} (nats)": {"": column} for operator, *column in columns}, methods),
        targets=_TARGETS[judged.targets],
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
        ["method", "verdict", *(f"{operator}{part}" for operator in judged.operators for part in parts)],
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
