"""Two systems compared by BLEU on the same lines."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.bleu import bleu


@pytest.fixture
def paired_bleu(experiment):
    return experiment("paired_bleu").paired_bleu


def test_paired_bleu_tells_a_better_system_from_an_equal_one(paired_bleu):
    references = [f"a big dog number {n} runs fast over the hill ." for n in range(40)]
    worse = [line.replace("fast over", "fast below") if n % 2 else line for n, line in enumerate(references)]
    better = paired_bleu(references, worse, references, "none", bootstrap=200)
    assert better.minus_baseline == pytest.approx(100 - bleu(worse, references, "none").score)
    assert better.score == pytest.approx(100)
    assert better.p_value < 0.05
    assert "bs:200" in better.signature
    back = paired_bleu(worse, references, references, "none", bootstrap=200)
    assert back.minus_baseline == pytest.approx(-better.minus_baseline)
    # As many sentences are better as are worse, by the same word.
    other = [line.replace("fast over", "fast below") if n % 2 == 0 else line for n, line in enumerate(references)]
    equal = paired_bleu(other, worse, references, "none", bootstrap=200)
    assert equal.p_value > 0.2


def test_paired_bleu_needs_matching_lines_and_resamples(paired_bleu):
    with pytest.raises(ValueError, match="same number of lines"):
        paired_bleu(["a"], ["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"`bootstrap`.*1.*got 0"):
        paired_bleu(["a"], ["a"], ["a"], bootstrap=0)


def test_identical_and_nearly_identical_systems_do_not_differ(paired_bleu):
    references = [f"a big dog number {n} runs fast over the hill ." for n in range(40)]
    worse = [line.replace("fast over", "fast below") for line in references]
    same = paired_bleu(worse, worse, references, "none")
    assert (same.minus_baseline, same.p_value) == (0, 1)
    one = paired_bleu([references[0], *worse[1:]], worse, references, "none")
    assert one.minus_baseline > 0
    assert one.p_value > 0.3


def test_paired_bleu_draws_as_sacrebleu_does(paired_bleu):
    generator = np.random.default_rng(0)
    references = [" ".join(generator.choice(list("abcdefgh"), 12)) for _ in range(30)]
    systems = [
        [" ".join(word if generator.random() > rate else "x" for word in line.split()) for line in references]
        for rate in (0.2, 0.25)
    ]
    metric = BLEU(tokenize="none", force=True)
    differences = []
    for rows in np.random.default_rng(12345).choice(30, size=(100, 30)):
        drawn = [[lines[row] for row in rows] for lines in (*systems, references)]
        first, second = (metric.corpus_score(lines, [drawn[2]]).score for lines in drawn[:2])
        differences.append(second - first)
    found = paired_bleu(systems[1], systems[0], references, "none", bootstrap=100)
    far = np.abs(np.array(differences) - found.minus_baseline) >= abs(found.minus_baseline)
    assert found.p_value == pytest.approx((far.sum() + 1) / 101)
    assert 0.01 < found.p_value < 1


def test_too_few_lines_have_no_p(paired_bleu):
    lines = ["a big dog runs fast ."] * (FEWEST_SENTENCES - 1)
    assert paired_bleu(lines, lines, lines).p_value is None
