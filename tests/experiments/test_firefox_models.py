"""How texts of two programs are compared, and what of the attention counts as parked."""

import numpy as np
import pytest
from checkpoints import parked_of
from firefox_models import equal_tokens


def test_tokens_are_equal_at_their_places():
    same = equal_tokens([[4, 5, 6], [7]], [[4, 5, 6], [7]])
    assert (same["tokens"], same["sentences"], same["of_sentences"]) == (1, 1, 2)
    other = equal_tokens([[4, 5, 6], [7]], [[4, 9, 6, 8], [7]])
    assert other["tokens"] == pytest.approx(3 / 5)
    assert other["sentences"] == 0.5


def test_punctuation_and_special_tokens_are_parked_and_words_are_not():
    groups = np.array([[[5.0, 10], [2.0, 10], [3.0, 10]], [[4.0, 4], [0.0, 4], [0.0, 4]]])
    assert parked_of(groups).tolist() == [[5.0, 10], [0.0, 4]]
