"""Findings and caveats: their numbers are those that were found, and nothing is said that was not."""

import math

import pytest
from report_helpers import made_up_judged
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.alignment.attributions import ScoredMethod, ScoredReading
from hf_attncal.analysis.observations import observe
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.report.findings import caveats_of, findings_of
from hf_attncal.report.method_charts import errors_by_method

GOLD = [GoldAlignment(pair.links, pair.links) for pair in PAIRS]
RESAMPLED = {"bootstrap": 50, "seed": 0}
CORPUS = {"targets": "reference", "pairs": len(SOURCES), "probe_pairs": None}


@pytest.fixture(scope="module", params=["ours", "stock"])
def found(request):
    return observe(text_model("marian", request.param), bpe_tokenizer(), SOURCES, TARGETS)


def told(found, scored=None, judged=None) -> str:
    return " ".join(findings_of(found, scored, judged, **RESAMPLED))


def scored_of(links) -> ScoredMethod:
    return ScoredMethod(ScoredReading({}, None, alignment_error_rate(GOLD, links, bootstrap=50), links), None)


def test_numbers_are_those_of_the_observations(found):
    sentences = told(found)
    top, first = (found.mean("entropy", layer) for layer in (2, 0))
    assert f"an entropy of {top:.2f} nats in layer 2 and of {first:.2f} nats in layer 0" in sentences
    assert f"evenly over {math.exp(top):.1f} and {math.exp(first):.1f} source tokens" in sentences
    if found.calibrated:
        assert f"contributes most at {100 * found.mean('reliability', 2):.1f} % (" in sentences
        assert f"in layer 0 at {100 * found.mean('reliability', 0):.1f} % (" in sentences
        assert f"NULL gets {100 * found.mean('null', 2):.1f} % (" in sentences
    else:
        assert "was not asked: this model has no masks" in sentences
        assert "NULL" not in sentences


def test_what_cannot_be_told_from_the_best_is_judged_against_it_alone(found):
    """Occlusion is better than both, and so neither is unbeaten."""
    judged = made_up_judged({"alti": 2.0, "rollout": 2.0, "attention": 1.0, "occlusion": 9.0, "random": 0.0})
    best, other = judged.ranking()[1:3]
    assert {best, other} == {"alti", "rollout"}
    sentences = told(found, judged=judged)
    score = judged.found.score(best)
    assert f"{best} names the words that matter most" in sentences
    assert f"falls by {score.value:.2f} nats ({score.interval[0]:.2f} to {score.interval[1]:.2f})" in sentences
    assert f"By this nobody can tell {best} from {other}." in sentences


@pytest.mark.parametrize(("chance", "pairs"), [(5.0, 40), (1.99, 5)])
def test_what_is_not_better_than_chance_names_nothing(found, chance, pairs):
    judged = made_up_judged({"alti": 2.0, "attention": 1.0, "contribution": 0.5, "random": chance}, pairs=pairs)
    sentences = told(found, judged=judged)
    assert "No method is shown to name the words that the model uses better than chance" in sentences
    assert "without those that alti names" in sentences
    assert "matter most" not in sentences
    assert "than attention does" not in sentences


@pytest.mark.parametrize(
    ("attention", "pairs", "sentence"),
    [
        (0.0, 40, "Contributions name the words that the model uses better than attention does."),
        (3.0, 40, "Attention names the words that the model uses better than contributions do."),
        (2.0, 40, "cannot be told"),
        (3.0, 5, "cannot be told"),
    ],
)
def test_contributions_against_attention(found, attention, pairs, sentence):
    judged = made_up_judged({"contribution": 2.0, "attention": attention}, pairs=pairs)
    assert sentence in told(found, judged=judged)


def test_the_nearest_to_gold_links(found):
    scored = {"attention": scored_of([frozenset()] * len(PAIRS)), "alti": scored_of([pair.links for pair in PAIRS])}
    assert "Nearest to the gold links is alti, with an alignment error rate of 0.0 %" in told(found, scored)
    assert "attention, all layers and heads together, has 100.0 %" in told(found, scored)


def test_errors_by_method_has_the_nearest_first():
    scored = {"attention": scored_of([frozenset()] * len(PAIRS)), "alti": scored_of([pair.links for pair in PAIRS])}
    chart = errors_by_method(scored)
    assert [row[:2] for row in chart.rows] == [("alti", 0.0), ("attention", 1.0)]
    assert all(len(row) == len(chart.columns) for row in chart.rows)
    assert chart.rows[0][2:4] == scored["alti"].mean.test.interval
    assert [bar.get_width() for bar in chart.draw().axes[0].patches] == [0.0, 1.0]


# ---- caveats ----


def test_caveats_are_about_what_was_done(found):
    caveats = " ".join(caveats_of(found, made_up_judged({"a": 1.0}, pairs=7), **CORPUS))
    assert "given the words of the reference before it" in caveats
    assert "measured on 7 sentence pairs" in caveats
    assert ("A contribution says" in caveats) == bool(found.calibrated)
    assert "probe" not in caveats
    assert "could not be read" not in caveats
    assert f"This text has {len(SOURCES)} sentence pairs: intervals of so few" in caveats
    without = " ".join(caveats_of(found, None, **CORPUS | {"targets": "output", "pairs": 9}))
    assert "given the words that the model itself wrote" in without
    assert f"Of 9 sentence pairs {9 - len(SOURCES)} with a side of no word could not be read." in without
    assert "Faithfulness" not in without
