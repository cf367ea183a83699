"""Methods of attribution find the source word that is known to make each target word."""

import numpy as np
import pytest
from planted_alpha import LENGTH, reversed_words, reversing

from hf_attncal import AttnCalMarianConfig
from hf_attncal.report.attribution import CONTROLS, word_scores, works_on

STEPS, PAIRS = 300, 20


@pytest.fixture(scope="module")
def learned():
    """A model that has learned to write its source in reverse, and its tokenizer."""
    return reversing(AttnCalMarianConfig().mask_penalty, 0, STEPS)


def test_methods_name_the_word_that_was_planted(learned):
    sources, targets = reversed_words(PAIRS, np.random.default_rng(1))
    accuracy = {}
    for name in works_on(learned[0]):
        scores = np.stack(word_scores(*learned, sources, targets, name))  # (pairs, target words, source words)
        accuracy[name] = (scores.argmax(axis=2) == np.arange(LENGTH)[::-1]).mean()
    by_chance = max(accuracy[name] for name in CONTROLS if name in accuracy)
    assert by_chance < 0.4
    for name in accuracy.keys() - {*CONTROLS}:
        assert accuracy[name] > 0.95, name
