"""Charts of what attention says over a corpus: from the results of `analysis.observations` to figures and tables.

matplotlib is imported when a figure is drawn. Layers and heads are counted from 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hf_attncal.analysis.observations import GROUPS, Observations
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.base import Measured
from hf_attncal.metrics.links_by_tag import TagErrors, aer_by_tag
from hf_attncal.metrics.means import means
from hf_attncal.metrics.prediction_and_alignment import PredictionAndAlignment, prediction_and_alignment

from .chart_parts import cells, draw_bars
from .contents import Cell, Chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LU = "Lu et al., TASLP 2022"
MASK_ALIGN = "Chen et al. (Mask-Align), ACL 2021"
_MOST_LINES = 6  # in one figure
_FEWEST = 0.01  # share of all steps below which a point of a curve is chance
_INTERVALS = "Thin lines, and `low` and `high` in the table, are 95 % bootstrap intervals over sentence pairs."


def observation_charts(
    found: Observations,
    *,
    gold: Sequence[GoldAlignment] | None = None,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
    layer: int | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> list[Chart]:
    """All charts that there can be of a model and of what was given.

    Args:
        found: what was observed; with `alignments` where there is gold.
        gold: annotated links of every pair; None for no charts of links.
        sources, targets: the corpus, for the charts of links.
        layer: what Figs. 3 and 5 of Lu et al. and Fig. 7 of Mask-Align look at; None for the top layer with masks, or
            the top layer of a model without.
        bootstrap: resamples of the pairs for each interval; 0 for none.
        seed: of the resamples.

    Raises:
        ValueError: a layer that there is not, or gold that does not fit.
    """
    options = {"bootstrap": bootstrap, "seed": seed}
    if layer is None:
        layer = found.top("reliability" if found.calibrated else "entropy")
    charts = [entropy_by_layer(found, **options), attention_by_group(found, **options)]
    if found.idle and not found.calibrated:
        charts = [reliability_by_layer(found, **options), *charts]
    if found.calibrated:
        changes = [change_by_layer(found, **options), divergence_by_entropy(found, **options)]
        charts = [
            reliability_by_layer(found, **options),
            reliability_by_head(found),
            reliability_by_entropy(found, **options),
            *([reliability_by_tag(found, layer, **options)] if found.tags else []),
            *(changes if found.is_changed else []),
            *charts,
        ]
    if gold is not None:
        names = ("attention", "contribution") if layer in found.calibrated else ("attention",)
        links = {name: found.links(name, layer) for name in names}
        words = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
        if found.word_tags is not None:
            charts.append(errors_by_tag(aer_by_tag(gold, links, found.word_tags, words, **options), layer))
        lengths = [len(source) for source, _ in words]
        categories = {
            name: prediction_and_alignment(gold, of, found.predicted, lengths, **options) for name, of in links.items()
        }
        charts.append(predictions_and_alignments(categories, layer))
    return charts


# ---- reliability ----


def reliability_by_layer(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """How often attention names the token that contributes most, in each layer with masks."""
    layers = found.layers["mask"]
    measured, rows = {}, []
    for layer in layers:
        masks = found.mean("mask", layer), found.mean("informed", layer)
        if layer in found.idle:
            rows.append((layer, *[None] * 5, *masks, "withheld: the masks carry no information"))
            continue
        measured[layer] = _of_layer(found, "reliability", layer, bootstrap, seed)
        of_heads = found.by_head["reliability"][layer]
        lowest, highest = float(np.nanmin(of_heads)), float(np.nanmax(of_heads))
        rows.append((layer, *_cells(measured[layer]), lowest, highest, *masks, None))
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
        columns=(
            "layer",
            *_bounded("reliability level"),
            "lowest head",
            "highest head",
            "mean mask",
            "share of predictions with masks that differ",
            "note",
        ),
        rows=rows,
        draw=_bars({"reliability level": {"": list(measured.values())}}, _layer_names(measured)) if measured else None,
        source=f"{LU}, eqs. 7 and 8",
    )


def reliability_by_head(found: Observations) -> Chart:
    """The same of each head."""
    layers = found.calibrated
    values = found.by_head["reliability"][list(layers)]
    return Chart(
        name="reliability_by_head",
        title="How often attention names the token that counts, by head",
        caption=(
            "As by layer, but the token with the most attention of one head against the one that contributes most in "
            "this head. The darker the more often. A head whose masks carry no information has no number."
        ),
        columns=("layer", *(f"head {head}" for head in range(values.shape[1]))),
        rows=[
            (layer, *(None if np.isnan(value) else float(value) for value in of_heads))
            for layer, of_heads in zip(layers, values, strict=True)
        ],
        draw=partial(_head_map, "reliability level", np.nan_to_num(values), layers),
        source=f"{LU}, eqs. 7 and 8",
    )


def reliability_by_entropy(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """The reliability level of predictions whose attention has at most so much entropy."""
    rows, series, bands = [], {}, {}
    drawn = _spread(found.calibrated)
    for layer in found.calibrated:
        reliable = means(found.reliability_up_to(layer), bootstrap, seed)
        shares = means(found.steps_up_to(layer), 0)
        for bound, one, share in zip(found.thresholds, reliable, shares, strict=True):
            rows.append((layer, bound, *_cells(one), share.value))
        whole = sum(share.value < 1 for share in shares)  # the first that nothing exceeds
        points = [
            (bound, one.value)
            for bound, one, share in zip(found.thresholds, reliable, shares[: whole + 1], strict=False)
            if share.value >= _FEWEST
        ]
        if layer in drawn and points:
            series[f"layer {layer}"] = points
            bounds = dict(zip(found.thresholds, (one.interval for one in reliable), strict=True))
            if bootstrap:
                bands[f"layer {layer}"] = [bounds[bound] or (value, value) for bound, value in points]
    left_out = "" if len(drawn) == len(found.calibrated) else " Some layers are in the table alone."
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
        columns=("layer", "entropy at most (nats)", *_bounded("reliability level"), "share of predictions"),
        rows=rows,
        draw=partial(_lines, series, "entropy of attention at most (nats)", "reliability level", bands)
        if series
        else None,
        source=f"{LU}, Fig. 4",
    )


def reliability_by_tag(found: Observations, layer: int, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """Reliability level and entropy by the tag of the target word, the most reliable first."""
    reliable = means(found.of_tag("reliability", layer), bootstrap, seed)
    entropy = means(found.of_tag("average_entropy", layer), bootstrap, seed)
    order = sorted(range(len(found.tags)), key=lambda n: (np.isnan(reliable[n].value), -reliable[n].value))
    steps = found.tag_steps.sum(axis=0)
    panels = {
        "reliability level": {"": [reliable[n] for n in order]},
        "entropy of attention (nats)": {"": [entropy[n] for n in order]},
    }
    return Chart(
        name="reliability_by_tag",
        title=f"How often attention names the token that counts, by kind of target word, layer {layer}",
        caption=(
            "Target words are sorted by the tags that were given, parts of speech for instance; the tokens of a word "
            "have its tag, special tokens have none. At the right, the entropy of the mean of all heads: how far "
            f"attention is spread. {_INTERVALS}"
        ),
        columns=("tag", "predictions", *_bounded("reliability level", "entropy (nats)")),
        rows=[(found.tags[n], int(steps[n]), *_cells(reliable[n]), *_cells(entropy[n])) for n in order],
        draw=_bars(panels, [found.tags[n] for n in order]),
        source=f"{LU}, Fig. 3",
    )


# ---- entropy and calibration ----


def entropy_by_layer(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """How far attention is spread, in each layer; of stock models, too."""
    layers = found.layers["entropy"]
    single = [_of_layer(found, "entropy", layer, bootstrap, seed) for layer in layers]
    average = [_of_layer(found, "average_entropy", layer, bootstrap, seed) for layer in layers]
    series = {"single heads (their mean)": single, "mean of all heads": average}
    return Chart(
        name="entropy_by_layer",
        title="How far attention is spread, by layer",
        caption=(
            "Entropy of attention over the source, before any calibration: 0 where one token has all of it, the "
            "logarithm of their number where all tokens have the same. Heads that look at different tokens are sharp "
            f"each, and spread in their mean. {_INTERVALS}"
        ),
        columns=("layer", *_bounded("entropy of heads (nats)", "entropy of their mean (nats)")),
        rows=[(layer, *_cells(a), *_cells(b)) for layer, a, b in zip(layers, single, average, strict=True)],
        draw=_bars({"entropy of attention (nats)": series}, _layer_names(layers)),
        source=f"{LU}, section III",
    )


def change_by_layer(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """What calibration changes, in each layer with masks."""
    layers = found.calibrated
    measures = {
        "divergence (nats)": "divergence",
        "change of entropy (nats)": "entropy_change",
        "share that moves": "moved",
    }
    measured = {
        name: [_of_layer(found, measure, layer, bootstrap, seed) for layer in layers]
        for name, measure in measures.items()
    }
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
        columns=("layer", *_bounded(*measures)),
        rows=[
            (layer, *(cell for of in measured.values() for cell in _cells(of[n]))) for n, layer in enumerate(layers)
        ],
        draw=_bars({name: {"": of} for name, of in measured.items()}, _layer_names(layers)),
        source=f"{LU}, Tables V and VI, eqs. 14 and 15",
    )


def divergence_by_entropy(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """How much calibration changes attention that is sharp, and attention that is spread."""
    names = found.bucket_names()
    measured = {layer: means(found.divergence_in(layer), bootstrap, seed) for layer in found.calibrated}
    numbers = {layer: found.divergence_in(layer)[..., 1].sum(axis=0) for layer in found.calibrated}
    rows = [
        (layer, name, int(numbers[layer][n]), *_cells(measured[layer][n]))
        for layer in found.calibrated
        for n, name in enumerate(names)
    ]
    series = {f"layer {layer}": measured[layer] for layer in _spread(found.calibrated)}
    return Chart(
        name="divergence_by_entropy",
        title="How much calibration changes sharp and spread attention",
        caption=(
            "Attention of single heads, sorted by its entropy before calibration, and the Jensen-Shannon divergence "
            "between it and what calibration makes of it. Kinds of entropy without any attention have no bar. "
            f"{_INTERVALS}"
        ),
        columns=("layer", "entropy (nats)", "rows of attention", *_bounded("divergence (nats)")),
        rows=rows,
        draw=_bars({"divergence before and after (nats)": series}, [f"entropy {name}" for name in names]),
        source=f"{LU}, Fig. 8",
    )


# ---- who gets attention ----


def attention_by_group(found: Observations, bootstrap: int = 1000, seed: int = 0) -> Chart:
    """Attention that words, punctuation, special tokens and NULL get, and the lengths of their value vectors."""
    layers = found.layers["entropy"]
    has_null, has_norms = found.layers["null"], bool(found.group_norms.any())
    received = {name: [] for name in (*GROUPS, *(["NULL"] if has_null else []))}
    norms = {name: [] for name in received}
    nothing = Measured(float("nan"), None)
    for layer in layers:
        of_groups = means(found.attention_of_groups(layer), bootstrap, seed)
        of_values = means(found.norms_of_groups(layer), bootstrap, seed) if has_norms else [nothing] * len(GROUPS)
        for name, attention, norm in zip(GROUPS, of_groups, of_values, strict=True):
            received[name].append(attention)
            norms[name].append(norm)
        if has_null:
            is_leaky = layer in has_null
            received["NULL"].append(_of_layer(found, "null", layer, bootstrap, seed) if is_leaky else nothing)
            norms["NULL"].append(Measured(found.null_norms.get(layer, float("nan")), None))
    panels = {"share of attention": received} | ({"length of the value vector": norms} if has_norms else {})
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
        columns=("layer", "tokens", *_bounded("share of attention", "length of value vector")),
        rows=[
            (layer, name, *_cells(received[name][n]), *_cells(norms[name][n]))
            for n, layer in enumerate(layers)
            for name in received
        ],
        draw=_bars(panels, _layer_names(layers)),
        source=f"{MASK_ALIGN}, section 3.6 and Table 3",
    )


# ---- gold links ----


def errors_by_tag(errors: Sequence[TagErrors], layer: int) -> Chart:
    """AER by the tag of the target word, as `aer_by_tag` has it of the links of a layer."""
    names, (overall, *by_tag) = list(errors[0].scores), errors
    kinds = [overall, *by_tag]
    labels = ["all words" if one.tag is None else one.tag for one in kinds]
    scores = {name: [Measured(one.scores[name].aer, one.scores[name].interval) for one in kinds] for name in names}
    pairs = list(overall.differences or {})
    panels = {"AER (lower is better)": scores}
    for pair in pairs:
        panels[f"AER of {pair[0]} less {pair[1]}"] = {"difference": [one.differences[pair] for one in kinds]}
    measured_names = (f"AER of {name}" for name in (*names, *(f"{a} less {b}" for a, b in pairs)))
    rows = []
    for n, one in enumerate(kinds):
        measured = [*(of[n] for of in scores.values()), *((one.differences or {}).values())]
        rows.append((labels[n], one.words, one.scores[names[0]].possible, *(c for m in measured for c in _cells(m))))
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
        columns=("tag", "words", "gold links", *_bounded(*measured_names)),
        rows=rows,
        draw=_bars(panels, labels),
        source=f"{LU}, Fig. 5",
    )


def predictions_and_alignments(by_weights: Mapping[str, PredictionAndAlignment], layer: int) -> Chart:
    """Whether words are predicted where they are aligned well, by weights of a layer."""
    labels = {
        "cPcA": "predicted, aligned",
        "wPcA": "not predicted, aligned",
        "cPwA": "predicted, not aligned",
        "wPwA": "not predicted, not aligned",
    }
    series = {name: [found.shares[category] for category in labels] for name, found in by_weights.items()}
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
        columns=("weights", "category", "meaning", *_bounded("share of words")),
        rows=[
            (name, category, label, *_cells(found.shares[category]))
            for name, found in by_weights.items()
            for category, label in labels.items()
        ],
        draw=_bars({"share of target words": series}, list(labels.values())),
        source=f"{MASK_ALIGN}, Fig. 7",
    )


# ---- figures ----


def _of_layer(found: Observations, measure: str, layer: int, bootstrap: int, seed: int) -> Measured:
    return means(found.counts(measure, layer), bootstrap, seed)[0]


def _cells(measured: Measured) -> tuple[Cell, Cell, Cell]:
    return cells(measured.value, measured.interval)


def _bounded(*names: str) -> list[str]:
    """The columns of what `_cells` gives."""
    return [column for name in names for column in (name, f"{name}: low", f"{name}: high")]


def _layer_names(layers: Iterable[int]) -> list[str]:
    return [f"layer {layer}" for layer in layers]


def _spread(layers: Sequence[int]) -> list[int]:
    """As many layers as a figure can show, from the first to the last."""
    if len(layers) <= _MOST_LINES:
        return list(layers)
    return [layers[round(place)] for place in np.linspace(0, len(layers) - 1, _MOST_LINES)]


def _bars(panels: Mapping[str, Mapping[str, Sequence[Measured]]], labels: Sequence[str]) -> Callable[[], "Figure"]:
    plain = {
        panel: {name: [(one.value, one.interval) for one in of] for name, of in series.items()}
        for panel, series in panels.items()
    }
    return draw_bars(plain, labels)


def _lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    up: str,
    bands: Mapping[str, Sequence[tuple[float, float]]],
) -> "Figure":
    from hf_attncal.analysis.plots import lines

    return lines(series, across, up, bands=bands, from_zero=True)


def _head_map(measure: str, values: np.ndarray, layers: Sequence[int]) -> "Figure":
    from hf_attncal.analysis.plots import head_map

    return head_map({measure: values}, layers, measure)
