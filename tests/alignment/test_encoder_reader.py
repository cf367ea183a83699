"""The input of an encoder: windows of a long text, and models that it cannot be read from."""

import functools

import numpy as np
import pytest
import torch
from helpers import assert_close
from seq2seq_helpers import SOURCES, bpe_tokenizer, randomized, text_model
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from hf_attncal.alignment.encoder_reader import EncoderReader
from hf_attncal.data.word_tokens import tokenize_words


def of_bert(tokenizer, **changes):
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return size | tokens | dropout | {"max_position_embeddings": 64} | changes


@functools.cache
def encoder():
    """A random encoder in float64, which tests share and do not change."""
    torch.manual_seed(5)
    return randomized(BertModel(BertConfig(**of_bert(bpe_tokenizer()))).double())


class WithoutStates(torch.nn.Module):
    def forward(self, **inputs):
        return None


def test_an_encoder_without_states_is_refused():
    reader = EncoderReader(encoder(), bpe_tokenizer())
    reader.encoder = WithoutStates()
    with pytest.raises(ValueError, match=r"'bert'.*no states"):
        reader.states([np.array([5, 6])])


def test_an_encoder_decoder_is_refused():
    with pytest.raises(ValueError, match="got an encoder-decoder"):
        EncoderReader(text_model("marian", "stock"), bpe_tokenizer())


# ---- long texts ----


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_long_text_is_read_in_windows_and_nothing_is_cut(kind):
    tokenizer, positions = bpe_tokenizer(), 12
    fields = of_bert(tokenizer, max_position_embeddings=positions)
    if kind == "roberta":
        fields["max_position_embeddings"] += tokenizer.pad_token_id + 1  # RoBERTa counts positions from there
        model = RobertaModel(RobertaConfig(**fields | {"bos_token_id": 0, "eos_token_id": 0}))
    else:
        model = BertModel(BertConfig(**fields))
    model = randomized(model.double()).eval()
    reader = EncoderReader(model, tokenizer)
    assert reader.size == positions - 1
    long, short = " ".join(SOURCES), SOURCES[0]
    ids = [text.ids for text in tokenize_words(reader.tokenizer, [short, long], special_tokens=False)]
    assert len(ids[1]) > 3 * positions
    with torch.no_grad():
        found = reader.states(ids)[1]
        for row in (0, 1):
            assert torch.isfinite(found[row, : len(ids[row])]).all()
        first = reader.states([ids[1][: reader.size]])[1]
        last = reader.states([ids[1][-reader.size :]])[1]
    assert_close(found[1, :6], first[0, :6], 1e-9)  # the middle of the first window, and what lies before it
    assert_close(found[1, len(ids[1]) - 6 : len(ids[1])], last[0, -6:], 1e-9)
