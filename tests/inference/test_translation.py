"""Translation of lists: what happens to the model, and to a list that cannot be translated."""

import pytest
from helpers import tiny_model

from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.generation import LineTooLongError
from hf_attncal.inference.translation import translate_texts


@pytest.fixture(scope="module")
def translator():
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    ids = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
    ids |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "vocab_size": len(tokenizer)}
    return tiny_model("marian", **ids, calibration="gated", max_position_embeddings=16), tokenizer


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_put_back_after_an_error(translator, monkeypatch, training):
    model, tokenizer = translator
    seen = []

    def out_of_memory(**_):
        seen.append(model.training)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model, "generate", out_of_memory)
    model.train(training)
    with pytest.raises(RuntimeError, match="out of memory"):
        translate_texts(model, tokenizer, ["the house"])
    assert seen == [False]
    assert model.training is training


def test_the_first_line_that_is_too_long_is_reported(translator):
    lines = ["the house", "", "old " * 20, "a", "house " * 30]
    with pytest.raises(LineTooLongError, match=r"^line 3 .*at most 16") as raised:
        translate_texts(*translator, lines)
    error = raised.value
    assert (error.index, error.limit) == (2, 16)
    assert error.tokens == len(translator[1](lines[2])["input_ids"])
