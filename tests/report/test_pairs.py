"""Pairs to look at: their weights equal the analysis in their order, with any windows and batches."""

import numpy as np
import pytest
import torch
from report_helpers import SWITCHES, model_of
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, with_masks

from hf_attncal.inference.reading import readings_of_pairs
from hf_attncal.metrics.reliability import attention_is_reliable
from hf_attncal.report import pairs
from hf_attncal.report.attribution import METHODS, attribute
from hf_attncal.report.pairs import pair_views

METHOD = ("occlusion", "alti")


def views(model, methods=METHOD, **options):
    return list(pair_views(model, bpe_tokenizer(), SOURCES, TARGETS, methods, **options))


@pytest.mark.parametrize("kind", ["gated", "leaky", "both"])
def test_weights_are_those_of_the_analysis(family, kind):
    model = model_of(family, kind)
    found = {view.index: view for view in views(model)}
    assert list(found) == sorted(found) == list(range(len(SOURCES)))
    for read, reading in readings_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS, batch_size=1, details=True):
        (pair,), view = read, found[read[0].index]
        expected = {"attention": reading.plain}
        if any(mask is not None for mask in reading.masks):
            expected |= {"calibrated": reading.attentions, "contribution": reading.contributions}
        for name, layers in expected.items():
            values = np.stack([layer[0].float().numpy() for layer in layers])
            np.testing.assert_allclose(view.weights[name].values, values, atol=1e-6)
            assert view.weights[name].values.shape[2:] == (len(view.target_tokens), len(view.source_tokens))
        assert view.source_words == pair.source.word_ids.tolist()
        if any(null is not None for null in reading.nulls):
            assert view.notes["NULL"] == pytest.approx(float(torch.stack(reading.nulls).mean()))
            assert view.weights["attention"].null.shape == view.weights["attention"].values.shape[:3]
        if "contribution" in expected:
            assert view.weights["contribution"].null is None
            reliable = attention_is_reliable(expected["attention"][-1], reading.contributions[-1])
            assert view.notes["reliability"] == pytest.approx(float(reliable.double().mean()))


def test_methods_are_those_of_attribute(family):
    model = model_of(family, "gated")
    for name in METHOD:
        alone = {one.index: one for one in attribute(model, bpe_tokenizer(), SOURCES, TARGETS, name)}
        for view in views(model):
            np.testing.assert_allclose(view.weights[name].values[0, 0], alone[view.index].scores, atol=1e-6)
            assert view.weights[name].signed == METHODS[name].signed == (name == "occlusion")


def test_windows_and_batches_change_nothing(family, monkeypatch):
    model = model_of(family, "gated")
    whole = views(model)
    monkeypatch.setattr(pairs, "_WINDOW", 2)
    for one, other in zip(whole, views(model, batch_size=1), strict=True):
        assert one.index == other.index
        for name, weights in one.weights.items():
            np.testing.assert_allclose(weights.values, other.weights[name].values, atol=1e-5)


def test_a_probe_shows_attention_once(family):
    """Its calibration changes nothing, so calibrated attention would be the same."""
    names = {kind: {name for view in views(model_of(family, kind), ()) for name in view.weights} for kind in SWITCHES}
    assert names["probe"] == {"attention", "contribution"}
    assert names["gated"] == {"attention", "calibrated", "contribution"}
    assert names["leaky"] == {"attention"}


def test_gold_links_and_pairs_without_words(family):
    model = model_of(family, "gated")
    links = [frozenset({(0, 0)})] * 3
    texts = [SOURCES[0], " ", SOURCES[1]], [TARGETS[0], TARGETS[2], TARGETS[1]]
    found = list(pair_views(model, bpe_tokenizer(), *texts, (), links=links))
    assert [view.index for view in found] == [0, 2]
    assert found[1].source == SOURCES[1]
    assert found[1].links == [(0, 0)]


def test_masks_without_information_have_no_contributions(family):
    model = model_of(family, "gated")
    idle = with_masks(model, {0: {0: 1, 1: 1}})
    for one, usual in zip(views(idle, informed=(1, 2)), views(model), strict=True):
        assert not one.weights["contribution"].values[0].any()
        assert one.weights["contribution"].values[1].any()
        assert usual.weights["contribution"].values[0].any()
    for one in views(idle, informed=()):
        assert one.weights.keys() == {"attention", *METHOD}
        assert one.notes.keys() == {"entropy"}
