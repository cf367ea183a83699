"""ROUGE, against counts by hand, and its signature."""

import re

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from hf_attncal.metrics.rouge import ROUGE, ROUGE_MEASURES, _sentence_lines, rouge, rouge_counts

REFERENCES = ["oil prices rise # pct", "the bank cuts rates again", "gold falls"]
HYPOTHESES = ["oil prices rise by # pct", "rates cut by the bank", ""]


def test_rouge_by_hand():
    """First pair: 5 of 6 and of 5 unigrams, 3 of 5 and of 4 bigrams; second: 3 of 5, 1 of 4, "the bank" in order."""
    score = rouge(HYPOTHESES, REFERENCES, "none")
    assert score.rouge1 == pytest.approx(100 / 3 * (10 / 11 + 6 / 10 + 0))
    assert score.rouge2 == pytest.approx(100 / 3 * (6 / 9 + 2 / 8 + 0))
    assert score.rougeL == pytest.approx(100 / 3 * (10 / 11 + 4 / 10 + 0))
    assert score.signature.startswith(
        "ROUGE|score:F1|tok:none|stem:no|sent:lines+punkt|refs:1|average:mean|n:3|rouge_sc"
    )
    assert score.rougeLsum == score.rougeL  # each is one sentence
    assert score.intervals is None
    assert rouge(REFERENCES, REFERENCES, "none").rouge2 == pytest.approx(100)


def test_tokens_that_are_no_letters_count_only_where_text_is_tokenised_already():
    pair = ["# pct #"], ["# #"]
    assert rouge(*pair, "none").rouge1 == pytest.approx(80)
    assert rouge(*pair).rouge1 == 0
    assert rouge(["Gold, falls!"], ["gold falls"]).rougeL == pytest.approx(100)
    assert rouge(["Gold falls"], ["gold falls"], "none").rouge1 == pytest.approx(50)


def test_the_packages_own_tokenisation_and_stems():
    plain, stemmed = (rouge(HYPOTHESES, REFERENCES, stemmer=stemmer) for stemmer in (False, True))
    for score, stemmer in ((plain, False), (stemmed, True)):
        scorer = RougeScorer(ROUGE_MEASURES, use_stemmer=stemmer)  # without a full stop, a line is a sentence to both
        theirs = [scorer.score(*pair) for pair in zip(REFERENCES, HYPOTHESES, strict=True)]
        for name in ROUGE_MEASURES:
            assert getattr(score, name) == pytest.approx(100 * np.mean([one[name].fmeasure for one in theirs]))
        assert ("stem:porter" in score.signature) == stemmer
    assert stemmed.rouge1 > plain.rouge1  # cut, cuts
    assert rouge(["cut rates"], ["cuts rate"], "none", stemmer=True).rouge1 == pytest.approx(100)


JAPANESE = ["猫は椅子の上で寝ています。", "Das Größte, überall", "собака бежит быстро"]


def test_texts_in_any_script_have_their_words():
    same = rouge(JAPANESE, JAPANESE, "words")
    assert [getattr(same, name) for name in ROUGE_MEASURES] == pytest.approx([100] * 4)
    assert "|tok:words|" in same.signature
    changed = rouge(["собака, СПИТ быстро!"], ["Собака бежит быстро"], "words")
    assert changed.rouge1 == pytest.approx(100 * 2 / 3)
    assert changed.rouge2 == 0
    assert rouge(["猫が寝た"], ["犬が寝た"], "words").rouge1 == pytest.approx(75)
    assert rouge(["cut the rates !"], ["Cuts, the rate"], "words", stemmer=True).rouge1 == pytest.approx(100)


def test_dropped_letters_are_reported_with_the_option():
    for text, dropped in (("猫が寝た", "4 of the 4 letters of the references (100.0 %"), ("für dich", "1 of the 7")):
        with pytest.warns(UserWarning, match=re.escape(dropped)) as told:
            score = rouge([text], [text])
        assert "--tokenize words" in str(told[0].message)
        assert "|tok:rouge|" in score.signature


def test_intervals_and_the_comparison_of_two_systems():
    better, worse = REFERENCES * 5, [line.split(" ", 1)[1] for line in REFERENCES] * 5
    score = rouge(worse, better, "none", bootstrap=200, seed=1)
    for name in ROUGE_MEASURES:
        low, high = score.intervals[name]
        assert low <= getattr(score, name) <= high
    assert score.intervals["rouge1"][0] < score.rouge1 < score.intervals["rouge1"][1]
    first, second = (rouge_counts(lines, better, "none")["rougeL"] for lines in (worse, better))
    assert ROUGE.paired_bootstrap(first, second, 100, seed=1) == 1
    with pytest.raises(ValueError, match="`bootstrap` must be >= 0"):
        rouge(worse, better, bootstrap=-1)


# ---- several references ----

SEVERAL = [["oil falls", REFERENCES[0]], ["rates cut by the bank", "the bank"], [REFERENCES[2], ""]]


def test_each_measure_takes_the_best_of_several_references():
    """The second hypothesis is its first reference; a third that is worse changes nothing."""
    score = rouge(HYPOTHESES, SEVERAL, "none")
    assert score.rouge1 == pytest.approx(100 / 3 * (10 / 11 + 1 + 0))
    assert score.rougeL == pytest.approx(100 / 3 * (10 / 11 + 1 + 0))
    assert "|refs:2|" in score.signature
    worse = rouge(HYPOTHESES, [[*SEVERAL[0], "nothing"], *SEVERAL[1:]], "none")
    assert (worse.rouge1, worse.rouge2) == (score.rouge1, score.rouge2)
    assert "|refs:2-3|" in worse.signature


def test_the_best_reference_of_one_measure_need_not_be_that_of_another():
    """The first has the same unigrams, the second the same bigrams."""
    found, several = "a b c d", ["d c b a", "a b x y"]
    counts = rouge_counts([found], [several], "none")
    assert counts["rouge1"][0, 0] == pytest.approx(1)
    assert counts["rouge2"][0, 0] == pytest.approx(1 / 3)
    theirs = RougeScorer(["rouge1", "rouge2", "rougeL"]).score_multi(several, found)
    assert {name: counts[name][0, 0] for name in theirs} == {name: one.fmeasure for name, one in theirs.items()}


def test_a_summary_without_reference_is_named():
    with pytest.raises(ValueError, match=r"`references\[1\]`.*got none"):
        rouge(["a", "b"], ["a", []])


# ---- sentences ----


@pytest.mark.parametrize(
    ("hypothesis", "reference"),
    [
        ("gold fell .\nthe bank cut rates .", "the bank cut rates .\ngold fell ."),
        ("gold fell . the bank cut rates .", "the bank cut rates . gold fell ."),
        ("gold fell . the bank cut rates .", "the bank cut rates .\ngold fell ."),
    ],
)
def test_sentences_are_lines_or_parted_by_their_ends(hypothesis, reference):
    """The same sentences in another order: all of Lsum, 5 of 8 tokens in order for L."""
    score = rouge([hypothesis], [reference], "none")
    assert score.rougeLsum == pytest.approx(100)
    assert score.rougeL == pytest.approx(100 * 5 / 8)


def test_lines_are_sentences_where_there_are_any():
    """Split by their ends, both texts would have the same sentences."""
    score = rouge(["a b .\nc d ."], ["c d . a b ."], "none")
    assert score.rougeLsum == pytest.approx(100)
    assert rouge(["a b . c d .\n"], ["c d . a b .\n"], "none").rougeLsum == pytest.approx(100)  # none inside
    assert rouge(["a b . c d . e ."], ["c d . a b .\ne ."], "none").rougeLsum < 100
    theirs = RougeScorer(["rougeLsum"]).score("the man .\nhis dog .", "his dog . \nthe cat .")["rougeLsum"]
    ours = rouge_counts(["his dog . \nthe cat ."], ["the man .\nhis dog ."])["rougeLsum"]
    assert ours[0, 0] == theirs.fmeasure


def test_abbreviations_do_not_end_a_sentence():
    """An initial, an ellipsis, a number; and a token is never cut in two."""
    texts = ["J. Smith sold 3.5 pct", "so on ... and so on", "the end.(of it)"]
    assert [_sentence_lines(text) for text in texts] == texts
    assert _sentence_lines("It fell. He said no.") == "It fell. \nHe said no."
    assert _sentence_lines("") == ""


@pytest.mark.parametrize("lines", [([], []), (["a"], ["a", "b"])])
def test_rouge_needs_matching_lines(lines):
    with pytest.raises(ValueError, match="same number of lines"):
        rouge(*lines)
