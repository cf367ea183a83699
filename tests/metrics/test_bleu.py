"""BLEU and its signature."""

import pytest

from hf_attncal.metrics.bleu import bleu


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
    with pytest.raises(ValueError, match="same number of lines"):
        bleu(*lines)
