"""BLEU and its signature."""

import pytest

from hf_attncal.metrics.bleu import bleu, paired_bleu


def test_bleu_and_its_signature():
    references = ["a big dog runs fast .", "a cat sleeps on the mat ."]
    assert bleu(references, references).score == pytest.approx(100)
    assert "tok:13a" in bleu(references, references).signature
    worse = bleu(["a dog runs fast .", "a cat sleeps on the mat ."], references, "none")
    assert 0 < worse.score < 100
    assert "tok:none" in worse.signature
    assert "version:" in worse.signature


@pytest.mark.parametrize("lines", [([], []), (["a"], ["a", "b"])])
def test_bleu_needs_matching_lines(lines):
    with pytest.raises(ValueError, match="must have the same number of lines, at least one"):
        bleu(*lines)


def test_paired_bleu_tells_a_better_system_from_an_equal_one():
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


def test_paired_bleu_needs_matching_lines_and_resamples():
    with pytest.raises(ValueError, match="must have the same number of lines"):
        paired_bleu(["a"], ["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"`bootstrap` must be at least 1 .*, got 0"):
        paired_bleu(["a"], ["a"], ["a"], bootstrap=0)
