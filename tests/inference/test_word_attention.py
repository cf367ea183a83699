"""From attention between subwords to attention and links between words."""

import numpy as np
import pytest
import torch
from english_german import generate_pairs
from helpers import tiny_model

from hf_attncal.alignment import argmax_links
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.inference.word_attention import word_attention, word_details
from hf_attncal.metrics.reliability import attention_is_reliable, contributions, head_average


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


def test_padding_after_the_word_ids_is_left_out():
    attention = torch.tensor([[0.2, 0.1, 0.7], [0.9, 0.1, 0.0], [0.5, 0.5, 0.0]])
    words = word_attention(attention, tokens(0, 1), tokens(0, 1))
    torch.testing.assert_close(words, attention[:2, :2])
    assert argmax_links(words) == ((0, 0), (0, 1))


def test_a_word_without_subwords_gets_no_link():
    words = word_attention(torch.tensor([[0.2, 0.8], [0.9, 0.1]]), tokens(0, 1, words=3), tokens(0, 2))
    assert words.shape == (3, 3)
    assert words[1].tolist() == words[:, 2].tolist() == [0, 0, 0]
    assert argmax_links(words) == ((0, 2), (1, 0))


def test_argmax_takes_the_first_of_equals():
    assert argmax_links(torch.tensor([[0.1, 0.4, 0.4]])) == ((1, 0),)
    assert argmax_links(torch.zeros(0, 3)) == ()


def test_more_word_ids_than_subwords_are_refused():
    with pytest.raises(ValueError, match=r"3 word ids.*2 subwords"):
        word_attention(torch.ones(1, 2), tokens(0, 1, 2), tokens(0))


# ---- details of sentence pairs ----

PAIRS = generate_pairs(12, seed=3)
SOURCES, TARGETS = ([" ".join(pair[side]) for pair in PAIRS] for side in (0, 1))


@pytest.fixture(scope="module")
def tokenizer():
    lines = [" ".join(side) for pair in generate_pairs(300) for side in pair[:2]]
    return train_bpe_tokenizer(lines, vocab_size=200)


def model_of(tokenizer, **switches):
    ids = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
    ids |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "vocab_size": len(tokenizer)}
    return tiny_model("marian", **ids, **switches, max_position_embeddings=64)


@pytest.fixture(scope="module")
def model(tokenizer):
    return model_of(tokenizer, calibration="gated", leaky=True).eval()


def test_details_are_the_models_own_numbers(tokenizer):
    """For words of one subword, the cells equal the attention matrix without the end of sentence."""
    model = model_of(tokenizer, calibration="gated")
    words = [word.removeprefix("▁") for word in tokenizer.get_vocab() if word.startswith("▁") and len(word) > 3][:4]
    texts = " ".join(words), " ".join(reversed(words))
    source, target = (tokenizer(text, return_tensors="pt") for text in texts)
    assert source["input_ids"].shape == target["input_ids"].shape == (1, 5)
    outputs = model(**source, labels=target["input_ids"], output_attentions=True, output_attention_details=True)
    (details,) = word_details(model, tokenizer, texts[:1], texts[1:])
    for layer in range(model.config.decoder_layers):
        a, m = outputs.uncalibrated_cross_attentions[layer], outputs.calibration_masks[layer]
        phi = contributions(a, m)
        for expected, found in zip((a, m, phi), details[:3], strict=True):
            torch.testing.assert_close(found[layer], head_average(expected)[0, :4, :4])
        used = head_average(outputs.cross_attentions[layer])[0, :4]
        assert used.sum(dim=-1).max() > 1.01  # without `renormalize` the weights are no shares
        torch.testing.assert_close(details.calibrated[layer], (used / used.sum(dim=-1, keepdim=True))[:, :4])
        assert (details.reliable[layer] == attention_is_reliable(a, phi)[0]).all()


def test_masks_are_averaged_over_the_subwords_of_a_source_word(model, tokenizer):
    """Attention is a mass and sums; a mask is at most 1."""
    assert any(len(tokenizer.tokenize(source)) > len(source.split()) for source in SOURCES)
    assert all(details.mask.max() <= 1 for details in word_details(model, tokenizer, SOURCES, TARGETS))


def test_a_pair_without_words_has_no_details(model, tokenizer):
    found = word_details(model, tokenizer, ["", SOURCES[0]], [TARGETS[0], TARGETS[0]])
    assert found[0] is None
    assert found[1].attention.shape[1:] == (len(PAIRS[0].target), len(PAIRS[0].source))


def test_details_need_masks(tokenizer):
    with pytest.raises(ValueError, match="with `calibration`"):
        word_details(model_of(tokenizer, leaky=True), tokenizer, SOURCES, TARGETS)
