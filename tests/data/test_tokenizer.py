"""The joint BPE tokenizer: exact round trips, determinism, and use without this package."""

import sys
import unicodedata

import pytest
from transformers import AutoTokenizer

from hf_attncal.data.tokenizer import train_bpe_tokenizer

LINES = [
    "Ein Mann läuft durch den Park.",
    "A man runs through the park .",
    'Sie sagte: "Das (alte) Haus ist groß!"',
    "He doesn't like 3,5 % of it ; well-known -- it's e.g. $5 + 1€ ...",
    "der Hund , die Katze und das Pferd",
    "the dog and the cat don't run.",
] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe_tokenizer(LINES, vocab_size=160, model_max_length=77)


def decode(tokenizer, text):
    return tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)


@pytest.mark.parametrize("line", LINES[:6])
def test_decoding_gives_back_the_text(tokenizer, line):
    assert decode(tokenizer, line) == line


def test_white_space_and_unicode_are_normalised(tokenizer):
    assert decode(tokenizer, "  der\tHund\u00a0 und \n die  Katze ") == "der Hund und die Katze"
    decomposed = unicodedata.normalize("NFD", "läuft groß")
    assert decomposed != "läuft groß"
    assert tokenizer(decomposed).input_ids == tokenizer("läuft groß").input_ids


def test_sentences_end_in_eos_and_have_no_token_types(tokenizer):
    encoded = tokenizer(["the dog", "the dog and the cat"], padding=True)
    assert set(encoded) == {"input_ids", "attention_mask"}
    for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True):
        assert ids[sum(mask) - 1] == tokenizer.eos_token_id
        assert ids.count(tokenizer.eos_token_id) == 1
        assert ids[sum(mask) :] == [tokenizer.pad_token_id] * mask.count(0)
    assert encoded["attention_mask"][0].count(0) > 0
    assert tokenizer("").input_ids == [tokenizer.eos_token_id]


def test_unseen_characters_become_unk(tokenizer):
    ids = tokenizer("the ☃ dog 犬犬").input_ids
    assert ids.count(tokenizer.unk_token_id) == 3
    assert decode(tokenizer, "the ☃ dog") == "the  dog"


@pytest.mark.parametrize("token", ["</s>", "<pad>", "<unk>"])
def test_text_cannot_contain_special_tokens(tokenizer, token):
    """Otherwise a user's line could end the sentence for the encoder."""
    text = f"the {token} dog"
    plain = train_bpe_tokenizer([*LINES, "</>"], vocab_size=160)
    assert plain(text).input_ids[:-1].count(plain.convert_tokens_to_ids(token)) == 0
    assert decode(plain, text) == text
    assert tokenizer(text).input_ids[:-1].count(tokenizer.eos_token_id) == 0


def test_vocabulary_size():
    assert len(train_bpe_tokenizer(LINES, vocab_size=80)) == 80
    assert len(train_bpe_tokenizer(LINES, vocab_size=5000)) < 500
    assert len(train_bpe_tokenizer(["abc"], vocab_size=50)) == 3 + 4  # nothing occurs twice, so nothing is merged


def test_vocabulary_smaller_than_the_alphabet():
    characters = len({*"".join(LINES)} - {" "}) + 1  # the mark of a space
    with pytest.raises(ValueError, match=rf"{characters + 3}.*{characters} characters.*got 20"):
        train_bpe_tokenizer(LINES, vocab_size=20)
    assert len(train_bpe_tokenizer(LINES, vocab_size=characters + 3)) == characters + 3


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_no_text(lines):
    with pytest.raises(ValueError, match="empty"):
        train_bpe_tokenizer(lines, vocab_size=100)


def test_saving_and_loading(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for line in [*LINES, "unseen ☃ </s> words", "  spaces  "]:
        assert loaded(line).data == tokenizer(line).data
        assert decode(loaded, line) == decode(tokenizer, line)
    assert loaded.model_max_length == 77
    assert loaded.clean_up_tokenization_spaces is False
    assert loaded.pad_token_id == tokenizer.pad_token_id


def test_loading_without_this_package(tokenizer, tmp_path, monkeypatch):
    tokenizer.save_pretrained(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "hf_attncal"]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error now
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded).__module__.split(".")[0] == "transformers"
    assert loaded.decode(loaded(LINES[2]).input_ids) == LINES[2] + "</s>"
    assert not list(tmp_path.glob("*.py"))
