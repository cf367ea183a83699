"""ROUGE, against counts by hand, and its signature."""

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from hf_attncal.metrics.rouge import MEASURES, ROUGE, rouge, rouge_counts

REFERENCES = ["oil prices rise # pct", "the bank cuts rates again", "gold falls"]
HYPOTHESES = ["oil prices rise by # pct", "rates cut by the bank", ""]


def test_rouge_by_hand():
    """First pair: 5 of 6 and of 5 unigrams, 3 of 5 and of 4 bigrams; second: 3 of 5, 1 of 4, "the bank" in order."""
    score = rouge(HYPOTHESES, REFERENCES, "none")
    assert score.rouge1 == pytest.approx(100 / 3 * (10 / 11 + 6 / 10 + 0))
    assert score.rouge2 == pytest.approx(100 / 3 * (6 / 9 + 2 / 8 + 0))
    assert score.rougeL == pytest.approx(100 / 3 * (10 / 11 + 4 / 10 + 0))
    assert score.signature.startswith("ROUGE|score:F1|tok:none|stem:no|average:mean|n:3|rouge_score:0.")
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
        scorer = RougeScorer(MEASURES, use_stemmer=stemmer)
        theirs = [scorer.score(*pair) for pair in zip(REFERENCES, HYPOTHESES, strict=True)]
        for name in MEASURES:
            assert getattr(score, name) == pytest.approx(100 * np.mean([one[name].fmeasure for one in theirs]))
        assert ("stem:porter" in score.signature) == stemmer
    assert stemmed.rouge1 > plain.rouge1  # cut, cuts
    assert rouge(["cut rates"], ["cuts rate"], "none", stemmer=True).rouge1 == pytest.approx(100)


def test_intervals_and_the_comparison_of_two_systems():
    better, worse = REFERENCES * 5, [line.split(" ", 1)[1] for line in REFERENCES] * 5
    score = rouge(worse, better, "none", bootstrap=200, seed=1)
    for name in MEASURES:
        low, high = score.intervals[name]
        assert low <= getattr(score, name) <= high
    assert score.intervals["rouge1"][0] < score.rouge1 < score.intervals["rouge1"][1]
    first, second = (rouge_counts(lines, better, "none")["rougeL"] for lines in (worse, better))
    assert ROUGE.paired_bootstrap(first, second, 100, seed=1) == 1
    with pytest.raises(ValueError, match="`bootstrap` must be >= 0"):
        rouge(worse, better, bootstrap=-1)


@pytest.mark.parametrize("lines", [([], []), (["a"], ["a", "b"])])
def test_rouge_needs_matching_lines(lines):
    with pytest.raises(ValueError, match="must have the same number of lines, at least one"):
        rouge(*lines)


def test_rouge_names_the_tokenisations_there_are():
    with pytest.raises(ValueError, match=r"`tokenize` must be one of \('rouge', 'none'\), got '13a'"):
        rouge(["a"], ["a"], "13a")
