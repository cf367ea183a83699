"""Charts of attention, links and faithfulness.

Titles and captions are in `charts.yaml`. matplotlib is imported when a figure is drawn. Layers and heads are counted
from 0.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import yaml

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.base import FEWEST_SENTENCES, Measured, means
from hf_attncal.metrics.link_errors import PredictionAndAlignment, TagErrors, aer_by_tag, prediction_and_alignment
from hf_attncal.report.attribution import CONTROLS, ScoredLinks
from hf_attncal.report.judged_faithfulness import AREAS, YARDSTICK, JudgedFaithfulness, Verdict
from hf_attncal.report.observations import BUCKET_NAMES, ENTROPY_THRESHOLDS, TOKEN_GROUPS, Observations

from .contents import FOLDER, Cell, Chart, Section, display, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LINES = 6  # lines in one figure
_MIN_SHARE_OF_STEPS = 0.01  # share of steps below which a point of a curve is not drawn
_MISSING = Measured(math.nan, None)
_TEXTS: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "charts.yaml").read_text(encoding="utf-8"))
_MeansOf = Callable[[np.ndarray], list[Measured]]  # computes means and their intervals from counts


# ---- parts of charts ----


def chart(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    draw: Callable[[], "Figure"] | None = None,
    **words: object,
) -> Chart:
    """Build a chart from its numbers and its text in `charts.yaml`; `words` fill the placeholders of the text."""
    text = _TEXTS[name]
    title, caption = (text[part].format(**_TEXTS["common"] | text | words) for part in ("title", "caption"))
    return Chart(name, title, caption, columns, rows, draw, text.get("source", ""))


def section(name: str, charts: Sequence[Chart]) -> Section:
    """Build a section with its heading in `charts.yaml`."""
    return Section(**_TEXTS[name], charts=charts)


def sentence(name: str, **words: object) -> str:
    """Return a sentence of the conclusions in `charts.yaml`; `words` fill its placeholders."""
    return _TEXTS["conclusions"][name].format(**words)


def cells(*measured: Measured) -> list[Cell]:
    """Return value and ends of the interval of each number; None for missing ones."""
    values = (
        (None if math.isnan(number.value) else number.value, *(number.interval or (None, None))) for number in measured
    )
    return [cell for value in values for cell in value]


def bounded(*names: str) -> list[str]:
    """Return the column names of `cells` for each name."""
    return [column for name in names for column in (name, f"{name}: low", f"{name}: high")]


def about_controls(methods: Iterable[str]) -> str:
    """Return a sentence on the controls among the methods, with a leading space; "" if there are none."""
    controls = [name for name in methods if name in CONTROLS]
    if not controls:
        return ""
    return f" Controls ignore the model: {listed(controls)}. Any other method has to be better."


def drawn(kind: str, *args, **options) -> Callable[[], "Figure"]:
    """Return a function that draws a figure with the function `kind` of `hf_attncal.drawing.plots`."""

    def draw() -> "Figure":
        from hf_attncal.drawing import plots

        return getattr(plots, kind)(*args, **options)

    return draw


def draw_bars(
    panels: Mapping[str, Mapping[str, Sequence[Measured]]], labels: Iterable[str | int]
) -> Callable[[], "Figure"]:
    """Return a function that draws bars; an integer label is a layer."""
    bars = {
        panel: {name: [(bar.value, bar.interval) for bar in values] for name, values in series.items()}
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
    """Return all charts of observations and gold links.

    Args:
        observed: observations over the corpus, with `alignments` if there are gold links.
        gold: annotated links per pair. Default: no charts of links.
        sources, targets: texts of the corpus, for the charts of links.
        bootstrap: number of resamples of the pairs per interval; 0 for no intervals. Default: 1000.
        seed: seed of the resamples. Default: 0.

    Raises:
        ValueError: the gold links do not fit the text.
    """
    means_of = partial(means, bootstrap=bootstrap, seed=seed)
    # Figs. 3 and 5 of Lu et al. and Fig. 7 of Mask-Align show one layer.
    layer = observed.top("reliability" if observed.calibrated else "entropy")
    charts = []
    if observed.layers["mask"]:
        charts.append(_reliability_by_layer(observed, means_of))
    if observed.calibrated:
        charts += [_reliability_by_head(observed), _reliability_by_entropy(observed, means_of)]
        if observed.tags:
            charts.append(_reliability_by_tag(observed, layer, means_of))
        if observed.is_changed:
            panels = {
                "divergence (nats)": {"": "divergence"},
                "divergence of shares (nats)": {"": "divergence_normalized"},
                "mass": {"": "mass"},
                "change of entropy (nats)": {"": "entropy_change"},
                "share that moves": {"": "moved"},
            }
            charts += [
                _by_layer("change_by_layer", observed, observed.calibrated, panels, panels, means_of),
                _divergence_by_entropy(observed, means_of),
            ]
    panels = {
        "entropy of attention (nats)": {"single heads (their mean)": "entropy", "mean of all heads": "average_entropy"}
    }
    columns = "entropy of heads (nats)", "entropy of their mean (nats)"
    charts.append(_by_layer("entropy_by_layer", observed, observed.layers["entropy"], panels, columns, means_of))
    charts.append(_attention_by_group(observed, means_of))
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
    means_of: _MeansOf,
) -> Chart:
    """Draw measures of the target steps per layer.

    Args:
        name: name of the chart.
        observed: observations of the corpus.
        layers: layers to show.
        panels: panel -> bar -> measure.
        columns: names of the measures in the table.
        means_of: function that computes means and intervals.
    """
    bars = {
        panel: {bar: [means_of(observed.counts(kind, layer))[0] for layer in layers] for bar, kind in kinds.items()}
        for panel, kinds in panels.items()
    }
    measured = [values for series in bars.values() for values in series.values()]
    rows = [(layer, *cells(*row)) for layer, *row in zip(layers, *measured, strict=True)]
    return chart(name, ("layer", *bounded(*columns)), rows, draw_bars(bars, layers))


# ---- reliability ----


def _reliability_by_layer(observed: Observations, means_of: _MeansOf) -> Chart:
    """Draw the reliability level (share of steps whose most attended token contributes most) per layer with masks."""
    measured, rows = {}, []
    for layer in observed.layers["mask"]:
        masks = observed.mean("mask", layer), observed.mean("informed", layer)
        if layer in observed.idle:
            rows.append((layer, *[None] * 5, *masks, "withheld: the masks are uninformative"))
            continue
        (measured[layer],) = means_of(observed.counts("reliability", layer))
        of_heads = [level for level in observed.by_head["reliability"][layer].tolist() if not math.isnan(level)]
        bounds = (min(of_heads), max(of_heads)) if of_heads else (None, None)  # heads are informed less often
        rows.append((layer, *cells(measured[layer]), *bounds, *masks, None))
    columns = [
        *("layer", *bounded("reliability level"), "lowest head", "highest head", "mean mask"),
        *("share of predictions with informative masks", "note"),
    ]
    draw = draw_bars({"reliability level": {"": [*measured.values()]}}, measured) if measured else None
    return chart("reliability_by_layer", columns, rows, draw)


def _reliability_by_head(observed: Observations) -> Chart:
    """Draw the reliability level per head."""
    layers = observed.calibrated
    values = observed.by_head["reliability"][list(layers)]
    rows = [
        (layer, *(None if math.isnan(value) else value for value in of_heads))
        for layer, of_heads in zip(layers, values.tolist(), strict=True)
    ]
    draw = drawn("head_map", "reliability level", np.nan_to_num(values), layers, "reliability level")
    return chart("reliability_by_head", ("layer", *(f"head {head}" for head in range(values.shape[1]))), rows, draw)


def _reliability_by_entropy(observed: Observations, means_of: _MeansOf) -> Chart:
    """Draw the reliability level of the predictions whose attention has at most a given entropy."""
    rows, series, bands = [], {}, {}
    shown = _spread(observed.calibrated)
    for layer in observed.calibrated:
        levels = means_of(observed.reliability_up_to(layer))
        shares = [share.value for share in means(observed.steps_up_to(layer), 0)]
        by_bound = list(zip(ENTROPY_THRESHOLDS, levels, shares, strict=True))
        rows += [(layer, bound, *cells(level), share) for bound, level, share in by_bound]
        whole = sum(share < 1 for share in shares)  # index of the first threshold that covers all steps
        points = [(bound, level) for bound, level, share in by_bound[: whole + 1] if share >= _MIN_SHARE_OF_STEPS]
        if layer in shown and points:
            series[f"layer {layer}"] = [(bound, level.value) for bound, level in points]
            if any(level.interval for level in levels):
                bands[f"layer {layer}"] = [level.interval or (math.nan, math.nan) for _, level in points]
    axes = "entropy of attention at most (nats)", "reliability level"
    return chart(
        "reliability_by_entropy",
        ("layer", "entropy at most (nats)", *bounded("reliability level"), "share of predictions"),
        rows,
        drawn("lines", series, *axes, bands=bands) if series else None,
        fewest=f"{100 * _MIN_SHARE_OF_STEPS:.0f}",
        left_out="" if len(shown) == len(observed.calibrated) else " Some layers are only in the table.",
    )


def _reliability_by_tag(observed: Observations, layer: int, means_of: _MeansOf) -> Chart:
    """Draw reliability level and entropy by the tag of the target word, the most reliable tag first."""
    reliable, entropy = (means_of(observed.of_tag(name, layer)) for name in ("reliability", "average_entropy"))
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


def _divergence_by_entropy(observed: Observations, means_of: _MeansOf) -> Chart:
    """Draw the Jensen-Shannon divergence of attention before and after calibration, by the entropy of attention."""
    rows, series = [], {}
    shown = _spread(observed.calibrated)
    for layer in observed.calibrated:
        counts = observed.divergence_in(layer)
        measured = means_of(counts)
        numbers = counts[..., 1].sum(axis=0)
        rows += [
            (layer, name, int(n), *cells(mean)) for name, n, mean in zip(BUCKET_NAMES, numbers, measured, strict=True)
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
    """Return at most `_MAX_LINES` layers, evenly spread from the first to the last."""
    if len(layers) <= _MAX_LINES:
        return list(layers)
    return [layers[round(place)] for place in np.linspace(0, len(layers) - 1, _MAX_LINES)]


# ---- groups of tokens ----


def _attention_by_group(observed: Observations, means_of: _MeansOf) -> Chart:
    """Draw share of attention and norm of value vectors by kind of token: words, punctuation, special tokens, NULL."""
    layers, has_norms = observed.layers["entropy"], bool(observed.group_norms.any())
    names = (*TOKEN_GROUPS, *(["NULL"] if observed.layers["null"] else []))
    rows = []
    shares: dict[str, list[Measured]] = {name: [] for name in names}
    lengths: dict[str, list[Measured]] = {name: [] for name in names}
    for layer in layers:
        attention = means_of(observed.attention_of_groups(layer))
        norms = means_of(observed.norms_of_groups(layer)) if has_norms else [_MISSING] * len(TOKEN_GROUPS)
        if observed.layers["null"]:
            attention += means_of(observed.counts("null", layer)) if layer in observed.layers["null"] else [_MISSING]
            norms = [*norms, Measured(observed.null_norms.get(layer, math.nan), None)]
        for name, share, norm in zip(names, attention, norms, strict=True):
            rows.append((layer, name, *cells(share, norm)))
            shares[name].append(share)
            lengths[name].append(norm)
    panels = {"share of attention": shares} | ({"length of the value vector": lengths} if has_norms else {})
    about_norms = "; and the norms of their value vectors, mean over tokens and heads" if has_norms else ""
    return chart(
        "attention_by_group",
        ("layer", "tokens", *bounded("share of attention", "length of value vector")),
        rows,
        draw_bars(panels, layers),
        norms=about_norms,
    )


# ---- gold links ----


def _errors_by_tag(errors: Sequence[TagErrors], layer: int) -> Chart:
    """Draw the AER of a layer's links by the tag of the target word."""
    names, pairs = list(errors[0].scores), list(errors[0].differences or {})
    labels = ["all words" if row.tag is None else row.tag for row in errors]
    series = {name: [Measured(row.scores[name].aer, row.scores[name].interval) for row in errors] for name in names}
    panels = {"AER (lower is better)": series}
    for pair in pairs:
        differences = [(row.differences or {})[pair] for row in errors]
        panels[f"AER of {pair[0]} less {pair[1]}"] = {"difference": differences}
    columns = (f"AER of {name}" for name in (*names, *(f"{a} less {b}" for a, b in pairs)))
    measured = [values for by_name in panels.values() for values in by_name.values()]
    rows = [
        (label, tag.words, tag.scores[names[0]].possible, *cells(*numbers))
        for label, tag, *numbers in zip(labels, errors, *measured, strict=True)
    ]
    difference = " If the difference is above 0, the second has fewer errors." if pairs else ""
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
    """Draw the shares of words that are predicted or not, and aligned right or wrong by the weights of a layer."""
    labels = {
        "cPcA": "predicted, aligned",
        "wPcA": "not predicted, aligned",
        "cPwA": "predicted, not aligned",
        "wPwA": "not predicted, not aligned",
    }
    series = {name: [result.shares[category] for category in labels] for name, result in by_weights.items()}
    first = next(iter(by_weights.values()))
    rows = [
        (name, category, label, *cells(result.shares[category]))
        for name, result in by_weights.items()
        for category, label in labels.items()
    ]
    return chart(
        "prediction_and_alignment",
        ("weights", "category", "meaning", *bounded("share of words")),
        rows,
        draw_bars({"share of target words": series}, list(labels.values())),
        layer=layer,
        words=first.words,
        unlinked=first.unlinked,
    )


def errors_by_method(scored: Mapping[str, ScoredLinks]) -> Chart:
    """Draw the AER of each method, the lowest first."""
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
    """Return all charts of faithfulness.

    Verdicts compare `contribution` (or else `attention`, or else the best method) with each other method.

    Args:
        judged: faithfulness of the methods; without intervals there are no verdicts.
    """
    ranking = judged.ranking()
    method = next((name for name in ("contribution", "attention") if name in ranking), ranking[0])
    measures = [measure for measure in AREAS if measure in judged.measures]
    charts = []
    if judged.bootstrap and len(ranking) > 1:  # verdicts before their numbers
        charts += [faithfulness_verdicts(judged, method, measure) for measure in measures]
    charts += [faithfulness_by_method(judged, measure) for measure in measures]
    return charts


def faithfulness_by_method(judged: JudgedFaithfulness, measure: str) -> Chart:
    """Draw a measure of faithfulness per method and operator, the best method first.

    Args:
        judged: faithfulness of the methods.
        measure: name of a measure in `AREAS`.
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
    beware = f" Ignore {listed(circular)}: circular, since method and measure remove words in the same way."
    yardstick = f" {YARDSTICK} removes words itself and shows the best possible value."
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
    """Tabulate the verdicts between a method and each other method, with their differences."""
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
        unbeaten=listed(judged.unbeaten(measure)) or "none, since no method finds words that the model uses",
        controls=about_controls(judged.controls()),
    )


def in_words(verdict: Verdict, first: str, second: str) -> str:
    """Return a verdict in words."""
    left_out = f" ({listed(list(verdict.circular))} left out: circular)" if verdict.circular else ""
    if verdict.better is None:
        return (
            f"no verdict: the operators disagree or show no difference, or neither method finds used words{left_out}"
        )
    worse = second if verdict.better == first else first
    return f"{verdict.better} is better than {worse}{left_out}"
