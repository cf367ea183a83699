"""Charts of what attention says over a corpus and against gold links: from measurements to figures and tables.

matplotlib is imported when a figure is drawn. Layers and heads are counted from 0.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hf_attncal.alignment.attributions import ScoredMethod
from hf_attncal.analysis.attribution import CONTROLS
from hf_attncal.analysis.observations import GROUPS, Observations
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.base import Measured
from hf_attncal.metrics.links_by_tag import TagErrors, aer_by_tag
from hf_attncal.metrics.means import means
from hf_attncal.metrics.prediction_and_alignment import PredictionAndAlignment, prediction_and_alignment

from .contents import Cell, Chart
from .templates import display

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LU = "Lu et al., TASLP 2022"
MASK_ALIGN = "Chen et al. (Mask-Align), ACL 2021"
_MOST_LINES = 6  # in one figure
_FEWEST = 0.01  # share of all steps below which a point of a curve is chance
_INTERVALS = "Thin lines, and `low` and `high` in the table, are 95 % bootstrap intervals over sentence pairs."
_NOTHING = Measured(math.nan, None)
_Means = Callable[[np.ndarray], list[Measured]]  # counts to means with intervals


# ---- what charts are put together from ----


class HasInterval(Protocol):
    """A number with its interval: `Measured`, or a score of a metric."""

    value: float
    interval: tuple[float, float] | None


def cells(measured: HasInterval) -> tuple[Cell, Cell, Cell]:
    """Return value, low and high; None for those that are not there."""
    return None if math.isnan(measured.value) else measured.value, *(measured.interval or (None, None))


def bounded(*names: str) -> list[str]:
    """Return the columns of `cells`, for each name."""
    return [column for name in names for column in (name, f"{name}: low", f"{name}: high")]


def listed(names: Sequence[str]) -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def about_controls(methods: Iterable[str]) -> str:
    """Write a sentence on the methods that never look at the model, with a space before it; "" without any."""
    controls = [name for name in methods if name in CONTROLS]
    if not controls:
        return ""
    return f" What never looks at the model is a control: {listed(controls)}. Any other method has to be better."


def drawn(kind: str, *args, **options) -> Callable[[], "Figure"]:
    """Return what draws a figure by the function of `analysis.plots` that is called `kind`."""

    def draw() -> "Figure":
        from hf_attncal.analysis import plots

        return getattr(plots, kind)(*args, **options)

    return draw


def draw_bars(
    panels: Mapping[str, Mapping[str, Sequence[HasInterval]]], labels: Iterable[str]
) -> Callable[[], "Figure"]:
    """Return what draws bars, as `analysis.plots.bars` does."""
    bars = {
        panel: {name: [(one.value, one.interval) for one in values] for name, values in series.items()}
        for panel, series in panels.items()
    }
    return drawn("bars", bars, list(map(display, labels)))


# ---- all charts of a corpus ----


def observation_charts(
    observed: Observations,
    *,
    gold: Sequence[GoldAlignment] | None = None,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
    layer: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> list[Chart]:
    """Return all charts that there can be of a model and of what was given.

    Args:
        observed: what was observed; with `alignments` where there is gold.
        gold: annotated links of every pair; None for no charts of links.
        sources, targets: the corpus, for the charts of links.
        layer: what Figs. 3 and 5 of Lu et al. and Fig. 7 of Mask-Align look at; None for the top layer with masks, or
            the top layer of a model without.
        bootstrap: resamples of the pairs for each interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: there is no such layer, or the gold links do not fit the text.
    """
    resampled = {"bootstrap": bootstrap, "seed": seed}
    measure = partial(means, **resampled)
    if layer is None:
        layer = observed.top("reliability" if observed.calibrated else "entropy")
    charts = []
    if observed.layers["mask"]:
        charts.append(_reliability_by_layer(observed, measure))
    if observed.calibrated:
        charts += [_reliability_by_head(observed), _reliability_by_entropy(observed, measure)]
        if observed.tags:
            charts.append(_reliability_by_tag(observed, layer, measure))
        if observed.is_changed:
            charts += [_change_by_layer(observed, measure), _divergence_by_entropy(observed, measure)]
    charts += [_entropy_by_layer(observed, measure), _attention_by_group(observed, measure)]
    if gold is not None:
        names = ("attention", "contribution") if layer in observed.calibrated else ("attention",)
        links = {name: observed.links(name, layer) for name in names}
        words = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
        if observed.word_tags is not None:
            charts.append(_errors_by_tag(aer_by_tag(gold, links, observed.word_tags, words, **resampled), layer))
        lengths = [len(source) for source, _ in words]
        shares = {
            name: prediction_and_alignment(gold, of_method, observed.predicted, lengths, **resampled)
            for name, of_method in links.items()
        }
        charts.append(_predictions_and_alignments(shares, layer))
    return charts


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
        rows.append(
            (layer, *cells(measured[layer]), float(np.nanmin(of_heads)), float(np.nanmax(of_heads)), *masks, None)
        )
    return Chart(
        name="reliability_by_layer",
        title="How often attention names the token that counts, by layer",
        caption=(
            "The share of predictions for which the source token with the most attention is also the one that "
            "contributes most, by the masks that were learned to find out what the model can least do without. Both "
            "are taken of the mean of all heads; single heads are judged by their own weights. The mask is 1 where a "
            f"token can be blurred without harm and 0 where it cannot. Masks tell source tokens apart where they "
            "differ by a hundredth or so; a layer or head where they do so for fewer than half of the predictions has "
            f"no reliability level. {_INTERVALS}"
        ),
        columns=[
            *("layer", *bounded("reliability level"), "lowest head", "highest head", "mean mask"),
            *("share of predictions with masks that differ", "note"),
        ],
        rows=rows,
        draw=_layer_bars({"reliability level": {"": [*measured.values()]}}, measured) if measured else None,
        source=f"{LU}, eqs. 7 and 8",
    )


def _reliability_by_head(observed: Observations) -> Chart:
    """Show how often attention names the token that contributes most, in each head."""
    layers = observed.calibrated
    values = observed.by_head["reliability"][list(layers)]
    return Chart(
        name="reliability_by_head",
        title="How often attention names the token that counts, by head",
        caption=(
            "As by layer, but the token with the most attention of one head against the one that contributes most in "
            "this head. The darker the more often. A head whose masks carry no information has no number."
        ),
        columns=("layer", *(f"head {head}" for head in range(values.shape[1]))),
        rows=[
            (layer, *(None if math.isnan(value) else value for value in of_heads))
            for layer, of_heads in zip(layers, values.tolist(), strict=True)
        ],
        draw=drawn("head_map", {"reliability level": np.nan_to_num(values)}, layers, "reliability level"),
        source=f"{LU}, eqs. 7 and 8",
    )


def _reliability_by_entropy(observed: Observations, measure: _Means) -> Chart:
    """Show the reliability level of predictions whose attention has at most so much entropy."""
    rows, series, bands = [], {}, {}
    shown = _spread(observed.calibrated)
    for layer in observed.calibrated:
        levels = measure(observed.reliability_up_to(layer))
        shares = [share.value for share in means(observed.steps_up_to(layer), 0)]
        points = list(zip(observed.thresholds, levels, shares, strict=True))
        rows += [(layer, bound, *cells(level), share) for bound, level, share in points]
        whole = sum(share < 1 for share in shares)  # the first threshold that nothing exceeds
        points = [(bound, level) for bound, level, share in points[: whole + 1] if share >= _FEWEST]
        if layer in shown and points:
            series[f"layer {layer}"] = [(bound, level.value) for bound, level in points]
            if any(level.interval for level in levels):
                bands[f"layer {layer}"] = [level.interval or (level.value, level.value) for _, level in points]
    axes = "entropy of attention at most (nats)", "reliability level"
    left_out = "" if len(shown) == len(observed.calibrated) else " Some layers are in the table alone."
    return Chart(
        name="reliability_by_entropy",
        title="How often sharp attention names the token that counts",
        caption=(
            "Of the predictions whose attention (the mean of all heads) has at most so much entropy, the share for "
            "which it names the token that counts. Where a line falls to the right, spread attention is to be "
            f"believed less than sharp attention. Points with fewer than {100 * _FEWEST:.0f} % of all predictions are "
            f"not drawn; at the right end of a line are all of them.{left_out} Shaded, and from `low` to `high` in "
            "the table: 95 % bootstrap intervals over sentence pairs."
        ),
        columns=("layer", "entropy at most (nats)", *bounded("reliability level"), "share of predictions"),
        rows=rows,
        draw=drawn("lines", series, *axes, bands=bands, from_zero=True) if series else None,
        source=f"{LU}, Fig. 4",
    )


def _reliability_by_tag(observed: Observations, layer: int, measure: _Means) -> Chart:
    """Show reliability level and entropy by the tag of the target word, the most reliable first."""
    reliable = measure(observed.of_tag("reliability", layer))
    entropy = measure(observed.of_tag("average_entropy", layer))
    tags = zip(observed.tags, observed.tag_steps.sum(axis=0).tolist(), reliable, entropy, strict=True)
    rows = sorted(tags, key=lambda row: (math.isnan(row[2].value), -row[2].value))
    tags, _, reliable, entropy = zip(*rows, strict=True)
    panels = {"reliability level": {"": reliable}, "entropy of attention (nats)": {"": entropy}}
    return Chart(
        name="reliability_by_tag",
        title=f"How often attention names the token that counts, by kind of target word, layer {layer}",
        caption=(
            "Target words are sorted by the tags that were given, parts of speech for instance; the tokens of a word "
            "have its tag, special tokens have none. At the right, the entropy of the mean of all heads: how far "
            f"attention is spread. {_INTERVALS}"
        ),
        columns=("tag", "predictions", *bounded("reliability level", "entropy (nats)")),
        rows=[(tag, int(steps), *cells(level), *cells(spread)) for tag, steps, level, spread in rows],
        draw=draw_bars(panels, tags),
        source=f"{LU}, Fig. 3",
    )


# ---- entropy and calibration ----


def _entropy_by_layer(observed: Observations, measure: _Means) -> Chart:
    """Show how far attention is spread in each layer, also of stock models."""
    layers = observed.layers["entropy"]
    single, average = (_of_layers(observed, name, layers, measure) for name in ("entropy", "average_entropy"))
    series = {"single heads (their mean)": single, "mean of all heads": average}
    return Chart(
        name="entropy_by_layer",
        title="How far attention is spread, by layer",
        caption=(
            "Entropy of attention over the source, before any calibration: 0 where one token has all of it, the "
            "logarithm of their number where all tokens have the same. Heads that look at different tokens are sharp "
            f"each, and spread in their mean. {_INTERVALS}"
        ),
        columns=("layer", *bounded("entropy of heads (nats)", "entropy of their mean (nats)")),
        rows=[(layer, *cells(a), *cells(b)) for layer, a, b in zip(layers, single, average, strict=True)],
        draw=_layer_bars({"entropy of attention (nats)": series}, layers),
        source=f"{LU}, section III",
    )


def _change_by_layer(observed: Observations, measure: _Means) -> Chart:
    """Show what calibration changes, in each layer with masks."""
    layers = observed.calibrated
    names = {
        "divergence (nats)": "divergence",
        "change of entropy (nats)": "entropy_change",
        "share that moves": "moved",
    }
    columns = {name: _of_layers(observed, names[name], layers, measure) for name in names}
    return Chart(
        name="change_by_layer",
        title="What calibration changes, by layer",
        caption=(
            "Divergence is the Jensen-Shannon divergence between attention before and after calibration, 0 where "
            "nothing changes and at most 0.69. A change of entropy below 0 means that attention is sharper "
            "afterwards, above 0 that it is more spread. At the right, the share of predictions for which calibration "
            "gives the most weight to another token. Weights after calibration are divided by their sum before they "
            f"are compared. {_INTERVALS}"
        ),
        columns=("layer", *bounded(*names)),
        rows=[
            (layer, *chain.from_iterable(map(cells, row)))
            for layer, *row in zip(layers, *columns.values(), strict=True)
        ],
        draw=_layer_bars({name: {"": column} for name, column in columns.items()}, layers),
        source=f"{LU}, Tables V and VI, eqs. 14 and 15",
    )


def _divergence_by_entropy(observed: Observations, measure: _Means) -> Chart:
    """Show how much calibration changes attention that is sharp, and attention that is spread."""
    names, rows, series = observed.bucket_names(), [], {}
    for layer in observed.calibrated:
        counts = observed.divergence_in(layer)
        series[f"layer {layer}"] = measured = measure(counts)
        numbers = counts[..., 1].sum(axis=0)
        rows += [
            (layer, name, int(number), *cells(one)) for name, number, one in zip(names, numbers, measured, strict=True)
        ]
    series = {f"layer {layer}": series[f"layer {layer}"] for layer in _spread(observed.calibrated)}
    return Chart(
        name="divergence_by_entropy",
        title="How much calibration changes sharp and spread attention",
        caption=(
            "Attention of single heads, sorted by its entropy before calibration, and the Jensen-Shannon divergence "
            "between it and what calibration makes of it. Kinds of entropy without any attention have no bar. "
            f"{_INTERVALS}"
        ),
        columns=("layer", "entropy (nats)", "rows of attention", *bounded("divergence (nats)")),
        rows=rows,
        draw=draw_bars({"divergence before and after (nats)": series}, [f"entropy {name}" for name in names]),
        source=f"{LU}, Fig. 8",
    )


# ---- who gets attention ----


def _attention_by_group(observed: Observations, measure: _Means) -> Chart:
    """Show who gets attention (words, punctuation, special tokens, NULL), and how long their value vectors are."""
    layers, has_norms = observed.layers["entropy"], bool(observed.group_norms.any())
    names = (*GROUPS, *(["NULL"] if observed.layers["null"] else []))
    rows = []  # layer, name, attention, norm
    for layer in layers:
        attention = measure(observed.attention_of_groups(layer))
        norms = measure(observed.norms_of_groups(layer)) if has_norms else [_NOTHING] * len(GROUPS)
        if observed.layers["null"]:
            attention += measure(observed.counts("null", layer)) if layer in observed.layers["null"] else [_NOTHING]
            norms = [*norms, Measured(observed.null_norms.get(layer, math.nan), None)]
        rows += [(layer, *row) for row in zip(names, attention, norms, strict=True)]
    panels = {"share of attention": {name: [row[2] for row in rows if row[1] == name] for name in names}}
    if has_norms:
        panels["length of the value vector"] = {name: [row[3] for row in rows if row[1] == name] for name in names}
    return Chart(
        name="attention_by_group",
        title="Who gets attention, and how much that adds",
        caption=(
            "The share of attention before calibration that words, punctuation marks, special tokens (the end of the "
            "sentence) and, in leaky attention, NULL get, the mean over predictions and heads"
            + ("; and how long their value vectors are, the mean over tokens and heads" if has_norms else "")
            + ". Much attention to a token with a short value vector adds little: such a token collects what has no "
            f"other place to go. {_INTERVALS}"
        ),
        columns=("layer", "tokens", *bounded("share of attention", "length of value vector")),
        rows=[(layer, name, *cells(attention), *cells(norm)) for layer, name, attention, norm in rows],
        draw=_layer_bars(panels, layers),
        source=f"{MASK_ALIGN}, section 3.6 and Table 3",
    )


# ---- gold links ----


def _errors_by_tag(errors: Sequence[TagErrors], layer: int) -> Chart:
    """Show the AER of the links of a layer by the tag of the target word."""
    names, pairs = list(errors[0].scores), list(errors[0].differences or {})
    labels = ["all words" if one.tag is None else one.tag for one in errors]
    series = {name: [Measured(one.scores[name].aer, one.scores[name].interval) for one in errors] for name in names}
    panels = {"AER (lower is better)": series}
    for pair in pairs:
        panels[f"AER of {pair[0]} less {pair[1]}"] = {"difference": [one.differences[pair] for one in errors]}
    measured_names = (f"AER of {name}" for name in (*names, *(f"{a} less {b}" for a, b in pairs)))
    columns = [column for by_name in panels.values() for column in by_name.values()]
    rows = [
        (label, one.words, one.scores[names[0]].possible, *chain.from_iterable(map(cells, row)))
        for label, one, *row in zip(labels, errors, *columns, strict=True)
    ]
    return Chart(
        name="aer_by_tag",
        title=f"How near {' and '.join(names)} come to gold links, by kind of target word, layer {layer}",
        caption=(
            "Each target word is linked to the source word with the highest weight, and the links of each kind of "
            "word are compared with the gold links of the same words: the alignment error rate, 0 where all are right."
            + (" A difference above 0 means that the second is nearer to the gold links." if pairs else "")
            + " That attention is no alignment is no fault of a model: it may well need other words to choose this "
            f"one. {_INTERVALS}"
        ),
        columns=("tag", "words", "gold links", *bounded(*measured_names)),
        rows=rows,
        draw=draw_bars(panels, labels),
        source=f"{LU}, Fig. 5",
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
    return Chart(
        name="prediction_and_alignment",
        title=f"Whether words are predicted where they are aligned well, layer {layer}",
        caption=(
            f"Target words with a gold link ({some.words}; {some.unlinked} have none and are left out), by whether "
            "the model, given the reference up to there, would choose any token of the word, and whether the source "
            "word with the highest weight is a linked one. A word that is predicted and not aligned is known from "
            f"elsewhere, such as the target before it. {_INTERVALS}"
        ),
        columns=("weights", "category", "meaning", *bounded("share of words")),
        rows=[
            (name, category, label, *cells(one.shares[category]))
            for name, one in by_weights.items()
            for category, label in labels.items()
        ],
        draw=draw_bars({"share of target words": series}, list(labels.values())),
        source=f"{MASK_ALIGN}, Fig. 7",
    )


def errors_by_method(scored: Mapping[str, ScoredMethod]) -> Chart:
    """Show how near the links of each method come to gold links, the nearest first."""
    scores = sorted(((name, method.mean.test) for name, method in scored.items()), key=lambda item: item[1].aer)
    names, measured = [name for name, _ in scores], [Measured(score.aer, score.interval) for _, score in scores]
    return Chart(
        name="aer_by_method",
        title="How near each method comes to gold links",
        caption=(
            "The alignment error rate of linking each target word to the source word with its highest score: 0 where "
            f"all links are those that people have drawn.{about_controls(names)} Methods that look at layers and "
            "heads are the mean over all of them; single heads can be better (`attncal align select` chooses one on "
            f"annotated pairs). {_INTERVALS}"
        ),
        columns=("method", "AER", "low", "high", "precision", "recall"),
        rows=[
            (name, *cells(aer), score.precision, score.recall)
            for (name, score), aer in zip(scores, measured, strict=True)
        ],
        draw=draw_bars({"alignment error rate": {"": measured}}, names),
        source="Och and Ney, 2003",
    )


# ---- layers ----


def _of_layers(observed: Observations, name: str, layers: Sequence[int], measure: _Means) -> list[Measured]:
    return [measure(observed.counts(name, layer))[0] for layer in layers]


def _layer_bars(panels: Mapping[str, Mapping[str, Sequence[HasInterval]]], layers: Iterable[int]):
    return draw_bars(panels, [f"layer {layer}" for layer in layers])


def _spread(layers: Sequence[int]) -> list[int]:
    """Return as many layers as a figure can show, from the first to the last."""
    if len(layers) <= _MOST_LINES:
        return list(layers)
    return [layers[round(place)] for place in np.linspace(0, len(layers) - 1, _MOST_LINES)]
