"""From attention between subwords to attention and links between words."""

import numpy as np
import pytest
import torch

from hf_attncal.alignment import argmax_links
from hf_attncal.analysis.words import word_attention
from hf_attncal.data.words import NO_WORD, WordTokens


def tokens(*word_ids: int, words: int | None = None) -> WordTokens:
    number = 1 + max(word_ids) if words is None else words
    return WordTokens(np.arange(len(word_ids)), np.array(word_ids), number)


def test_source_subwords_are_summed_and_target_subwords_averaged():
    attention = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.2, 0.2], [0.0, 0.5, 0.5, 0.0]])
    expected = torch.tensor([[0.45, 0.25], [0.5, 0.5]])
    source, target = tokens(0, 0, 1, NO_WORD), tokens(0, 0, 1)
    torch.testing.assert_close(word_attention(attention, source, target), expected)
    stack = torch.stack([attention, 2 * attention])
    torch.testing.assert_close(word_attention(stack, source, target), torch.stack([expected, 2 * expected]))


def test_padding_behind_the_word_ids_is_left_out():
    attention = torch.tensor([[0.2, 0.1, 0.7], [0.9, 0.1, 0.0], [0.5, 0.5, 0.0]])
    words = word_attention(attention, tokens(0, 1), tokens(0, 1))
    torch.testing.assert_close(words, attention[:2, :2])
    assert argmax_links(words) == {(0, 0), (0, 1)}


def test_a_word_without_subwords_gets_no_link():
    words = word_attention(torch.tensor([[0.2, 0.8], [0.9, 0.1]]), tokens(0, 1, words=3), tokens(0, 2))
    assert words.shape == (3, 3)
    assert words[1].tolist() == words[:, 2].tolist() == [0, 0, 0]
    assert argmax_links(words) == {(1, 0), (0, 2)}


def test_argmax_takes_the_first_of_equals():
    assert argmax_links(torch.tensor([[0.1, 0.4, 0.4]])) == {(1, 0)}
    assert argmax_links(torch.zeros(0, 3)) == set()


def test_more_word_ids_than_subwords_are_refused():
    with pytest.raises(ValueError, match="3 word ids for 2 subwords"):
        word_attention(torch.ones(1, 2), tokens(0, 1, 2), tokens(0))
