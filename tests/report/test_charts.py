"""Charts of attention: their numbers equal the measured ones, and each can be drawn."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model, with_masks
from warm import warm

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.metrics.base import means
from hf_attncal.report.figures.charts import observation_charts
from hf_attncal.report.observations import observe

GOLD = [GoldAlignment(pair.links, pair.links) for pair in PAIRS]
OPTIONS = {"sources": SOURCES, "targets": TARGETS, "bootstrap": 20}
FOR_ALL = ["entropy_by_layer", "attention_by_group"]
CALIBRATED = [
    "reliability_by_layer",
    "reliability_by_head",
    "reliability_by_entropy",
    "reliability_by_tag",
    "change_by_layer",
    "divergence_by_entropy",
]
OF_LINKS = ["aer_by_tag", "prediction_and_alignment"]


TAGS = [["capital" if word[0].isupper() else "small" for word in target.split()] for target in TARGETS]


def found_of(kind: str, **options):
    return observe(text_model("marian", kind), bpe_tokenizer(), SOURCES, TARGETS, **options)


@pytest.fixture(scope="module")
def found():
    return found_of("ours", tags=TAGS, alignments=True)


@pytest.fixture(scope="module")
def charts(found):
    return {chart.name: chart for chart in observation_charts(found, gold=GOLD, **OPTIONS)}


def test_there_are_the_charts_that_there_can_be(charts):
    assert list(charts) == [*CALIBRATED, *FOR_ALL, *OF_LINKS]
    plain = found_of("stock", tags=TAGS, alignments=True)
    assert [chart.name for chart in observation_charts(plain, gold=GOLD, **OPTIONS)] == [*FOR_ALL, *OF_LINKS]
    untagged = [chart.name for chart in observation_charts(found_of("ours"), bootstrap=0)]
    assert untagged == [name for name in (*CALIBRATED, *FOR_ALL) if name != "reliability_by_tag"]


@pytest.mark.parametrize("name", [*CALIBRATED, *FOR_ALL, *OF_LINKS])
def test_a_chart_is_whole(charts, name):
    chart = charts[name]
    assert all((chart.title, chart.source))
    assert chart.caption.endswith(".")
    assert len(set(chart.columns)) == len(chart.columns)
    assert chart.rows
    for row in chart.rows:
        assert len(row) == len(chart.columns)
        assert {type(cell) for cell in row} <= {int, float, str, type(None)}
        assert not any(isinstance(cell, float) and not math.isfinite(cell) for cell in row)
    figure = chart.draw()
    assert figure._repr_png_().startswith(b"\x89PNG")


def by_entropy(found, **options):
    charts = observation_charts(found, **options)
    return next(chart for chart in charts if chart.name == "reliability_by_entropy")


def cells(chart, **where) -> list:
    """The rows whose cells are these."""
    columns = [chart.columns.index(name) for name in where]
    return [row for row in chart.rows if [row[column] for column in columns] == list(where.values())]


def test_rows_have_the_means_and_their_intervals(found, charts):
    for name, measure, column in (
        ("reliability_by_layer", "reliability", "reliability level"),
        ("change_by_layer", "entropy_change", "change of entropy (nats)"),
        ("change_by_layer", "divergence", "divergence (nats)"),
        ("change_by_layer", "divergence_normalized", "divergence of shares (nats)"),
        ("change_by_layer", "mass", "mass"),
        ("change_by_layer", "moved", "share that moves"),
        ("entropy_by_layer", "entropy", "entropy of heads (nats)"),
        ("entropy_by_layer", "average_entropy", "entropy of their mean (nats)"),
    ):
        chart = charts[name]
        place = list(chart.columns).index(column)
        for layer, row in enumerate(chart.rows):
            (expected,) = means(found.counts(measure, layer), bootstrap=20)
            assert row[place : place + 3] == (expected.value, *expected.interval)
    chart = charts["attention_by_group"]
    assert cells(chart, layer=1, tokens="NULL")[0][2] == found.mean("null", 1)
    assert cells(chart, layer=1, tokens="NULL")[0][5] == found.null_norms[1]
    received = [row[2] for row in cells(chart, layer=2)]
    assert len(received) == 4
    assert sum(received) == pytest.approx(1)


def test_layers_with_uninformative_masks_have_a_note_and_no_numbers():
    flat = {0: {0: 1, 1: 1}, 2: {0: 1}}
    found = observe(with_masks(text_model("marian", "ours"), flat), bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS)
    charts = {chart.name: chart for chart in observation_charts(found, bootstrap=20)}
    assert list(charts) == [*CALIBRATED, *FOR_ALL]
    idle, *others = charts["reliability_by_layer"].rows
    assert idle[:6] == (0, None, None, None, None, None)
    assert idle[-1] == "withheld: the masks are uninformative"
    assert [row[-1] for row in others] == [None, None]
    assert all(isinstance(row[1], float) for row in others)
    assert [row[:2] for row in charts["reliability_by_head"].rows][1] == (2, None)
    for name in CALIBRATED[1:]:
        assert not any(row[0] == 0 for row in charts[name].rows)
    for chart in charts.values():
        assert not any(isinstance(cell, float) and math.isnan(cell) for row in chart.rows for cell in row)
        assert chart.draw().axes

    idle = with_masks(text_model("marian", "ours"), {layer: flat[0] for layer in range(3)})
    none = observe(idle, bpe_tokenizer(), SOURCES, TARGETS)
    first, *others = observation_charts(none, bootstrap=20)
    assert [chart.name for chart in others] == FOR_ALL
    assert first.name == "reliability_by_layer"
    assert first.draw is None
    assert {row[1] for row in first.rows} == {None}


def test_a_layer_whose_heads_are_all_uninformed_has_no_range_of_heads(found):
    none = np.full_like(found.by_head["reliability"], math.nan)
    charts = observation_charts(replace(found, by_head={**found.by_head, "reliability": none}), bootstrap=20)
    for row in charts[0].rows:
        assert isinstance(row[1], float)
        assert row[4:6] == (None, None)


def test_kinds_of_words_are_sorted_by_how_reliable_attention_is(found, charts):
    rows = charts["reliability_by_tag"].rows
    levels = [row[2] for row in rows]
    assert levels == sorted(levels, reverse=True)
    assert {row[0]: row[1] for row in rows} == dict(zip(found.tags, found.tag_steps.sum(axis=0), strict=True))


def test_errors_are_those_of_the_top_layer(found, charts):
    scores = [alignment_error_rate(GOLD, found.links(name, 2)).aer for name in ("attention", "contribution")]
    first = charts["aer_by_tag"].rows[0]
    assert first[0] == "all words"
    assert (first[3], first[6]) == tuple(scores)
    assert first[9] == pytest.approx(scores[0] - scores[1])


def test_a_curve_has_its_intervals_and_its_axes_begin_at_0(found):
    chart = by_entropy(found, bootstrap=20)
    (axes,) = chart.draw().axes
    assert (axes.get_xlim()[0], axes.get_ylim()[0]) == (0, 0)
    assert len(axes.collections) == 3
    intervals = {(row[1], bound) for row in chart.rows for bound in row[3:5]}
    for band in axes.collections:
        corners = {tuple(corner) for path in band.get_paths() for corner in path.vertices.tolist()}
        assert corners <= intervals


def test_some_of_many_layers_are_drawn(found):
    """As many as can be told apart, the first and the last among them; the table has all."""
    many = {name: np.repeat(of[:, :1], 9, axis=1) for name, of in found.by_layer.items()}
    heads = {name: np.repeat(of[:1], 9, axis=0) for name, of in found.by_head.items()}
    names = ("by_threshold", "by_bucket", "by_tag", "by_group", "group_norms")
    arrays = {name: np.repeat(getattr(found, name)[:, :1], 9, axis=1) for name in names}
    deep = replace(found, by_layer=many, by_head=heads, layers=dict.fromkeys(found.layers, tuple(range(9))), **arrays)
    chart = by_entropy(deep, bootstrap=0)
    assert {row[0] for row in chart.rows} == set(range(9))
    names = [line.get_label() for line in chart.draw().axes[0].lines]
    assert len(names) == 6
    assert (names[0], names[-1]) == ("layer 0", "layer 8")
    assert "Some layers are only in the table." in chart.caption


def test_gold_must_fit(found):
    outside = GoldAlignment(frozenset({(99, 0)}), frozenset({(99, 0)}))
    with pytest.raises(ValueError, match="lies outside"):
        observation_charts(found, gold=[outside, *GOLD[1:]], **OPTIONS)
    with pytest.raises(ValueError, match=r"`observe`.*`alignments=True`"):
        observation_charts(found_of("ours"), gold=GOLD, **OPTIONS)


def test_charts_are_made_without_matplotlib():
    code = "import sys, hf_attncal.report.figures.charts; print('matplotlib' in sys.modules)"
    assert subprocess.run(warm([sys.executable, "-c", code]), capture_output=True, text=True).stdout.strip() == "False"
