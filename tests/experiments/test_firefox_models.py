"""How texts of two programs are compared."""

import pytest
from firefox_models import equal_tokens


def test_tokens_are_equal_at_their_places():
    same = equal_tokens([[4, 5, 6], [7]], [[4, 5, 6], [7]])
    assert (same["tokens"], same["sentences"], same["of_sentences"]) == (1, 1, 2)
    other = equal_tokens([[4, 5, 6], [7]], [[4, 9, 6, 8], [7]])
    assert other["tokens"] == pytest.approx(3 / 5)
    assert other["sentences"] == 0.5
