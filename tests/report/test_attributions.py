"""Links by methods of attribution against loops, what dev chooses, and an aligner among the methods."""

import math

import pytest
import torch
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.report.attribution import METHODS, attribute
from hf_attncal.report.attributions import (
    WayOfReading,
    attribution_links,
    choose_options,
    score_attributions,
    ways_of_reading,
)

TEXTS = list(zip(SOURCES, TARGETS, strict=True))
GOLD = Gold(TEXTS, [GoldAlignment(pair.links, pair.links) for pair in PAIRS])
DEV, TEST = Gold(GOLD.pairs[:3], GOLD.links[:3]), Gold(GOLD.pairs[3:], GOLD.links[3:])


@pytest.fixture(params=["stock", "ours"])
def model(request):
    return text_model("marian", request.param)


def links_of(model, method: str, shift: bool = False, **options) -> list[set]:
    """By loops over words."""
    found: list[set] = [set() for _ in SOURCES]
    for one in attribute(model, bpe_tokenizer(), SOURCES, TARGETS, method, **options):
        rows = one.scores.tolist()
        if shift:
            rows = [rows[min(t + 1, len(rows) - 1)] for t in range(len(rows))]
        words = word_attention(torch.tensor(rows, dtype=torch.float64), one.source, one.target).tolist()
        for j, row in enumerate(words):
            best = max(range(len(row)), key=row.__getitem__)
            if row[best] > 0:
                found[one.index].add((best, j))
    return found


def aer(links, gold: Gold) -> float:
    hits = sum(len(of & pair.sure) + len(of & pair.possible) for of, pair in zip(links, gold.links, strict=True))
    return 1 - hits / sum(len(of) + len(pair.sure) for of, pair in zip(links, gold.links, strict=True))


# ---- links ----


@pytest.mark.parametrize(
    ("method", "shift", "options"),
    [
        ("attention", False, {}),
        ("attention", True, {"layer": 1, "head": 0}),
        ("alti", False, {}),
        ("input_x_gradient", False, {}),
        ("occlusion", False, {}),
    ],
)
def test_links_are_those_of_the_loops(model, method, shift, options):
    way = WayOfReading(method, options, shift)
    found = attribution_links(model, bpe_tokenizer(), TEXTS, way, batch_size=2)
    assert found == links_of(model, method, shift, **options)
    if shift:
        assert found != links_of(model, method, **options)


def test_what_does_not_look_at_heads_is_not_shifted(model):
    with pytest.raises(ValueError, match=r"`shift`.*got 'alti'"):
        attribution_links(model, bpe_tokenizer(), TEXTS, WayOfReading("alti", shift=True))


# ---- what there is to choose ----


def test_choices_are_all_layers_heads_and_signs(model):
    heads = [{}, {"head": 0}, {"head": 1}]
    layers = [{"layer": layer} | head for layer in range(3) for head in heads]
    assert METHODS["attention"].choices(model) == [{}, *layers]
    assert METHODS["value_zeroing"].choices(model) == [{}, *({"layer": layer} for layer in range(3))]
    assert METHODS["integrated_gradients"].choices(model) == [{}, {"norm": True}]
    assert {"layer": 1, "norm": True} in METHODS["layer_gradient_x_activation"].choices(model)
    assert METHODS["alti"].choices(model) == [{}]


def test_layers_without_masks_have_no_contribution_to_choose(monkeypatch):
    model = text_model("marian", "ours")
    monkeypatch.setattr("hf_attncal.report.attribution.attention_vectors.calibrated_layers", lambda model: [1])
    assert {options.get("layer") for options in METHODS["contribution"].choices(model)} == {None, 1}


def test_calibrated_attention_is_read_before_its_calibration_and_shifted():
    stock, ours = (ways_of_reading(text_model("marian", kind)) for kind in ("stock", "ours"))
    assert {"attention_shifted", "full_norm_shifted", "alti"} <= stock.keys()
    assert not {"contribution", "attention_uncalibrated", "alti_shifted", "posterior"} & stock.keys()
    assert ours["attention_uncalibrated_shifted"] == WayOfReading("attention", {"calibrated": False}, True)
    assert "contribution_shifted" in ours


# ---- scores ----


def test_dev_chooses_the_lowest_error_of_all_layers_and_heads(model):
    way = WayOfReading("attention")
    options, best, mean = choose_options(model, bpe_tokenizer(), DEV, way)
    rates = {}
    for number, choice in enumerate(METHODS["attention"].choices(model)):
        rates[number] = aer(links_of(model, "attention", **choice)[:3], DEV)
    assert math.isclose(best.aer, min(rates.values()))
    assert METHODS["attention"].choices(model).index(options) == min(rates, key=rates.__getitem__)
    assert math.isclose(mean.aer, rates[0])


def test_scores_are_of_test_alone_with_differences_to_attention_read_alike(model):
    ways = {"alti": WayOfReading("alti"), "late": WayOfReading("attention", shift=True)}
    ways["attention"] = WayOfReading("attention")
    seen = []
    finished = {"finished": lambda name, scored: seen.append(name)}
    test = Gold([*TEST.pairs] * 2, [*TEST.links] * 2)  # six pairs: fewer have no interval
    found = score_attributions(model, bpe_tokenizer(), test, DEV, ways, bootstrap=50, **finished)
    assert list(found) == list(ways)
    assert seen == ["attention", "alti", "late"]
    for name, way in ways.items():
        for kind in ("mean", "chosen"):
            reading, attention = getattr(found[name], kind), getattr(found["attention"], kind)
            links = links_of(model, way.method, way.shift, **reading.options)[3:] * 2
            assert reading.links == links
            assert math.isclose(reading.test.aer, aer(links, test))
            low, high = reading.test.interval
            assert low < high
            assert low <= reading.test.aer <= high
            if name == "attention":
                assert reading.minus_attention is None
            else:
                difference, (low, high) = reading.minus_attention
                assert math.isclose(difference, reading.test.aer - attention.test.aer)
                assert low <= difference <= high
    assert found["alti"].mean.options == {}
    assert found["late"].chosen.dev.aer <= found["late"].mean.dev.aer


def test_without_dev_there_are_means_and_without_a_bootstrap_no_intervals(model):
    found = score_attributions(
        model, bpe_tokenizer(), TEST, ways={"attention": WayOfReading("attention")}, bootstrap=0
    )
    assert found["attention"].chosen is None
    assert found["attention"].mean.dev is None
    assert found["attention"].mean.test.interval is None


def test_nothing_to_score_is_refused(model):
    with pytest.raises(ValueError, match=r"`dev`.*pair.*got none"):
        score_attributions(model, bpe_tokenizer(), TEST, Gold([], []))
    with pytest.raises(ValueError, match=r"`ways`.*got none"):
        score_attributions(model, bpe_tokenizer(), TEST, ways={})
