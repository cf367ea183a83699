"""Faithfulness judged in one call: the same as its parts, what is not beaten, and charts that say what is there."""

import re

import numpy as np
import pytest
from report_helpers import made_up_judged
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.report.attribution import attribute, word_scores
from hf_attncal.report.figures.charts import faithfulness_by_method, faithfulness_charts, in_words
from hf_attncal.report.judged_faithfulness import JudgedFaithfulness, MeasuredFaithfulness, Verdict, judge_faithfulness

OPERATORS = ("replace", "hide", "unk")
OPTIONS = {"operators": OPERATORS, "bootstrap": 50}
METHODS = ("attention", "contribution", "occlusion", "random")


@pytest.fixture(scope="module")
def model():
    return text_model("marian", "ours")


@pytest.fixture(scope="module")
def scores(model) -> dict[str, list]:
    return {method: word_scores(model, bpe_tokenizer(), SOURCES, TARGETS, method) for method in METHODS}


@pytest.fixture(scope="module")
def judged(model, scores) -> JudgedFaithfulness:
    return judge_faithfulness(model, bpe_tokenizer(), SOURCES, TARGETS, scores, kind="reference", **OPTIONS)


# ---- one call ----


def test_words_are_those_of_attribute_in_the_order_of_the_pairs(model):
    found = word_scores(model, bpe_tokenizer(), [*SOURCES[:2], " "], [*TARGETS[:2], "a"], "alti", batch_size=1)
    assert found[2] is None
    for one in attribute(model, bpe_tokenizer(), SOURCES[:2], TARGETS[:2], "alti"):
        np.testing.assert_allclose(found[one.index], one.words().numpy(), rtol=1e-5)


def test_circular_pairs_are_known_by_the_name_before_the_at(model, scores):
    renamed = {"contribution@top": scores["contribution"], "attention": scores["attention"]}
    options = OPTIONS | {"operators": ("hide",)}
    found = judge_faithfulness(model, bpe_tokenizer(), SOURCES, TARGETS, renamed, kind="output", **options)
    assert found.score("contribution@top", "hide").circular
    assert not found.score("attention", "hide").circular
    assert found.headline == "hide"


def test_a_kind_that_there_is_not_is_refused(model, scores):
    with pytest.raises(ValueError, match=r"`targets`.*'reference'.*'output'"):
        judge_faithfulness(model, bpe_tokenizer(), SOURCES, TARGETS, scores, kind="gold", **OPTIONS)


# ---- what is told ----


def test_a_method_without_a_verdict_against_it_is_unbeaten():
    judged = made_up_judged({"attention": 1.0, "alti": 2.0, "contribution": 2.0, "random": 0.0})
    assert set(judged.unbeaten()) == {"alti", "contribution"}
    assert judged.unbeaten("sufficiency") == ["attention"]  # there the lower is the better, and random names nothing
    assert judged.ranking("sufficiency") == judged.ranking()[::-1]
    assert judged.verdicts("attention")["random"].better == "attention"
    assert judged.verdicts("attention")["alti"].better == "alti"
    assert judged.verdicts("alti")["contribution"].better is None


# ---- charts ----


def test_charts_have_a_cell_for_each_column_and_can_be_drawn(judged):
    charts = faithfulness_charts(judged)
    names = ["comprehensiveness_verdicts", "sufficiency_verdicts", "comprehensiveness", "sufficiency"]
    assert [chart.name for chart in charts] == names
    for chart in charts:
        assert all(len(row) == len(chart.columns) for row in chart.rows)
        assert len(set(chart.columns)) == len(chart.columns)
        assert re.fullmatch(r"\w+", chart.name)
        if chart.draw is not None:
            assert chart.draw().axes
    assert "contribution" in charts[0].title


def test_rows_are_the_scores_the_best_method_first(judged):
    chart = faithfulness_by_method(judged, "sufficiency")
    methods = [row[0] for row in chart.rows]
    assert methods == judged.ranking("sufficiency")
    row = dict(zip(chart.columns, chart.rows[methods.index("occlusion")], strict=True))
    score = judged.score("occlusion", "unk", "sufficiency")
    assert (row["unk (nats)"], (row["unk: low"], row["unk: high"])) == (score.value, score.interval)
    assert (row["unk: note"], row["hide: note"]) == ("circular", None)
    assert "occlusion under unk" in chart.caption
    assert "contribution under hide" in chart.caption
    assert "The lower the better" in chart.caption


def test_a_verdict_has_words():
    one = {"replace": MeasuredFaithfulness(1.0, (0.5, 1.5))}
    assert in_words(Verdict("a", one, ()), "a", "b") == "a is better than b"
    assert in_words(Verdict("b", one, ("hide",)), "a", "b") == "b is better than a (hide left out: circular)"
    assert in_words(Verdict(None, one, ("hide", "unk")), "a", "b") == (
        "no verdict: the operators disagree or show no difference, or neither method finds used words (hide and unk "
        "left out: circular)"
    )
