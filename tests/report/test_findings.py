"""Findings and caveats: their numbers equal the measured ones, and there are no other claims."""

import math
from dataclasses import replace

import numpy as np
import pytest
from report_helpers import made_up_judged
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model, with_masks

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.report.attribution import ScoredLinks
from hf_attncal.report.figures.charts import errors_by_method, faithfulness_charts
from hf_attncal.report.figures.conclusions import caveats_of, findings_of
from hf_attncal.report.observations import observe

GOLD = [GoldAlignment(pair.links, pair.links) for pair in PAIRS]
RESAMPLED = {"bootstrap": 50, "seed": 0}
CORPUS = {"targets": "reference", "pairs": len(SOURCES), "probe_pairs": None}


@pytest.fixture(scope="module", params=["ours", "stock"])
def found(request):
    return observe(text_model("marian", request.param), bpe_tokenizer(), SOURCES, TARGETS)


def told(found, scored=None, judged=None) -> str:
    return " ".join(findings_of(found, scored, judged, gold=GOLD, **RESAMPLED))


def scored_of(links) -> ScoredLinks:
    return ScoredLinks(links, alignment_error_rate(GOLD, links, bootstrap=50))


def test_numbers_are_those_of_the_observations(found):
    sentences = told(found)
    top, first = (found.mean("entropy", layer) for layer in (2, 0))
    assert f"entropy of {top:.2f} nats in layer 2 and of {first:.2f} nats in layer 0 (layers counted" in sentences
    assert f"evenly over {math.exp(top):.1f} and {math.exp(first):.1f} of " in sentences
    if found.calibrated:
        assert f"contributes most at {100 * found.mean('reliability', 2):.1f} % (" in sentences
        assert f"in layer 0 at {100 * found.mean('reliability', 0):.1f} % (" in sentences
        masses = [f"{found.mean('mass', layer):.2f}" for layer in range(3)]
        assert (
            f"scales rows of attention by {masses[0]}, {masses[1]} and {masses[2]} in layers 0, 1 and 2" in sentences
        )
        assert f"and {found.mean('divergence', 2):.4f} nats as the paper measures it" in sentences
        assert f"and {found.mean('divergence_normalized', 2):.4f} between rows of sum 1 (at most 0.0303)" in sentences
        assert f"and the gate is {found.mean('gate', 0):.2f}," in sentences
        assert f"NULL gets {100 * found.mean('null', 2):.1f} % (" in sentences
    else:
        assert "was not measured: this model has no masks" in sentences
        assert "NULL" not in sentences


def test_uninformative_masks_are_not_used():
    model = text_model("marian", "ours")
    flat = {0: {0: 1, 1: 1}, 1: {0: 0.5, 1: 0.5}, 2: {0: 1, 1: 1}}
    none = observe(with_masks(model, flat), bpe_tokenizer(), SOURCES, TARGETS)
    sentences = told(none)
    assert "Reliability, contributions and changes by calibration are left out." in sentences
    assert "The masks of layers 0, 1 and 2 (counted from 0) are uninformative" in sentences
    assert "`attncal adapt`" in sentences
    for believed in ("contributes most", "changes the token", "was not measured"):
        assert believed not in sentences
    caveats = " ".join(caveats_of(none, None, **CORPUS))
    assert "A contribution is" not in caveats
    assert "probe" not in caveats

    some = observe(with_masks(model, {2: flat[2]}), bpe_tokenizer(), SOURCES, TARGETS)
    sentences = told(some)
    assert "In layer 1 (counted from 0) the source token with the most attention contributes most at" in sentences
    assert "The other layers are left out. The masks of layer 2 (counted from 0) are uninformative" in sentences


def test_even_attention_differs_from_attention_on_few_of_many_tokens(found):
    tokens = found.group_tokens.sum(axis=1)
    assert f"of {math.exp(np.average(np.log(tokens), weights=found.steps)):.1f} source tokens." in told(found)


def test_methods_close_to_the_best_are_judged_only_against_it(found):
    """Occlusion is better than both, and so neither is unbeaten."""
    judged = made_up_judged({"alti": 2.0, "rollout": 2.0, "attention": 1.0, "occlusion": 9.0, "random": 0.0})
    best, other = judged.ranking()[1:3]
    assert {best, other} == {"alti", "rollout"}
    sentences = told(found, judged=judged)
    score = judged.score(best)
    assert f", {best} comes first: without the words of {best}" in sentences
    assert f"falls by {score.value:.2f} nats ({score.interval[0]:.2f} to {score.interval[1]:.2f})" in sentences
    assert f"{best} against random: {best} is better than random." in sentences


def test_a_method_without_whose_words_the_text_is_more_likely_names_nothing(found):
    judged = made_up_judged({"alti": -0.0011, "attention": -0.5, "random": -1.0, "diagonal": -2.0}, noise=0.0001)
    sentences = told(found, judged=judged)
    assert "No method finds words that the model uses: without the words of the best one, alti, the" in sentences
    assert "the log-probability of a target word falls by -0.0011 nats" in sentences
    assert "comes first" not in sentences
    assert judged.unbeaten() == judged.unbeaten("sufficiency") == []
    assert judged.verdicts("alti")["random"].better is None
    (chart, *_) = faithfulness_charts(judged)
    assert "Not beaten by any: none, since no method finds words that the model uses." in " ".join(
        chart.caption.split()
    )
    assert not any("better" in str(cell) for row in chart.rows for cell in row)


def test_untrusted_attention_has_no_reliability(found):
    sentences = " ".join(findings_of(found, None, None, level="do not", **RESAMPLED))
    assert "contributes most at" not in sentences
    assert ("agreement of attention and contributions is left out" in sentences) == bool(found.calibrated)


def test_the_best_method_is_shown_with_all_controls_and_judged_against_the_strongest(found):
    means = {"alti": 2.0, "attention": 1.0, "random": 0.2, "diagonal": 1.5}
    judged = made_up_judged(means)
    assert judged.controls() == ["diagonal", "random"]
    sentences = told(found, judged=judged)
    for control in judged.controls():
        assert f"{control} by {judged.score(control).value:.2f} nats" in sentences
    difference = judged.difference("alti", "diagonal")
    low, high = difference.interval
    assert "alti against diagonal: alti is better than diagonal." in sentences
    assert f"The difference is {difference.value:.2f} nats ({low:.2f} to {high:.2f})." in sentences


def test_without_controls_or_intervals_there_is_no_verdict_on_the_best(found):
    assert "were not measured: add random and diagonal to" in told(found, judged=made_up_judged({"alti": 2.0}))
    judged = made_up_judged({"alti": 2.0, "random": 1.0})
    judged = replace(judged, bootstrap=0)
    sentences = told(found, judged=judged)
    assert "Without intervals there is no verdict" in sentences


@pytest.mark.parametrize(
    ("attention", "pairs", "sentence"),
    [
        (0.0, 40, "contribution is better than attention (hide left out: circular)."),
        (3.0, 40, "attention is better than contribution (hide left out: circular)."),
        (2.0, 40, "no verdict: the operators disagree or show no difference"),
        (3.0, 5, "no verdict: the operators disagree or show no difference"),
    ],
)
def test_contributions_against_attention(found, attention, pairs, sentence):
    judged = made_up_judged({"contribution": 2.0, "attention": attention}, pairs=pairs)
    assert sentence in told(found, judged=judged)


def test_the_nearest_to_gold_links(found):
    scored = {"attention": scored_of([frozenset()] * len(PAIRS)), "alti": scored_of([pair.links for pair in PAIRS])}
    assert "alti is nearest to the gold links, with an alignment error rate of 0.0 %" in told(found, scored)
    assert "attention (mean over layers and heads) has 100.0 %" in told(found, scored)


def test_few_pairs_have_no_interval_of_what_is_nearest(found):
    links = {name: [pair.links for pair in PAIRS[:1]] for name in ("alti", "random")}
    scored = {
        name: ScoredLinks(of_pairs, alignment_error_rate(GOLD[:1], of_pairs)) for name, of_pairs in links.items()
    }
    text = " ".join(findings_of(found, scored, None, gold=GOLD[:1], **RESAMPLED))
    assert "of the controls, random has 0.0 %." in text
    assert "alti is not clearly nearer than random" not in text
    scored = {name: scored_of([pair.links for pair in PAIRS]) for name in links}
    assert "alti is not clearly nearer than random" in told(found, scored)


def test_errors_by_method_has_the_nearest_first():
    scored = {"attention": scored_of([frozenset()] * len(PAIRS)), "alti": scored_of([pair.links for pair in PAIRS])}
    chart = errors_by_method(scored)
    assert [row[:2] for row in chart.rows] == [("alti", 0.0), ("attention", 1.0)]
    assert all(len(row) == len(chart.columns) for row in chart.rows)
    assert chart.rows[0][2:4] == scored["alti"].score.interval
    assert [bar.get_width() for bar in chart.draw().axes[0].patches] == [0.0, 1.0]


# ---- caveats ----
