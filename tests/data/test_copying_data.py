"""Unknown words as slots, and back: sources, targets, batches and texts."""

import pytest
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.collators import CopyCollator
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, CopyTokenizer, decode_copied, train_word_tokenizer

TEXT = ["the dog sees a cat", "a cat eats the fish"]
VOCABULARY = 14  # larger than the tokenizer's, as that of a model may be


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_word_tokenizer(TEXT, 12, special_tokens=SPECIAL_TOKENS)


@pytest.fixture
def config() -> AttnCalMarianConfig:
    sizes = {"vocab_size": VOCABULARY, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": None, "decoder_start_token_id": 2}
    return AttnCalMarianConfig(**sizes, **heads, **ids, copy=True, max_copied_tokens=2, unk_token_id=1)


def test_a_pair(tokenizer, config):
    """A word that comes twice has one slot; a target has the slots of its source, and no others."""
    numbers = CopyTokenizer(tokenizer, config)
    source = numbers.source("the Zebra sees Zora , Zebra")
    the, sees, end = (tokenizer.convert_tokens_to_ids(token) for token in ("the", "sees", "</s>"))
    assert source["copied_words"] == ["Zebra", "Zora"]
    assert source["input_ids"] == [the, 1, sees, 1, 1, 1, end]
    assert source["extended_input_ids"] == [the, 14, sees, 15, 1, 14, end]
    assert source["attention_mask"] == [1] * 7
    assert numbers.target("Zora sees Yoda the Zebra", source["copied_words"]) == [15, sees, 1, the, 14, end]
    cut = numbers.source("the Zebra sees Zora", longest=3)
    assert cut["extended_input_ids"] == [the, 14, end]
    assert cut["copied_words"] == ["Zebra"]


def test_no_texts(tokenizer, config):
    numbers = CopyTokenizer(tokenizer, config)
    names = ("input_ids", "attention_mask", "extended_input_ids", "copied_words", "length")
    assert numbers.sources([]) == {name: [] for name in names}
    assert numbers.targets([], []) == []


def test_too_many_words(tokenizer, config, caplog):
    numbers = CopyTokenizer(tokenizer, config)
    logging.warning_once.cache_clear()
    for _ in range(2):
        found = numbers.source("one two three four the two")
    assert found["extended_input_ids"][:4] == [14, 15, 1, 1]
    assert numbers.left_unknown == 4
    (said,) = [record.getMessage() for record in caplog.records]  # once
    assert "4 different unknown words" in said
    assert "more than the 2 slots" in said


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_train_and_generate(tokenizer, config, side):
    tokenizer.padding_side = side
    numbers = CopyTokenizer(tokenizer, config)
    pairs = [("the Zebra sees Zora a cat", "Zora sees Zebra"), ("Otto eats", "Otto eats a fish")]
    examples = [numbers.source(source) for source, _ in pairs]
    for example, (_, target) in zip(examples, pairs, strict=True):
        example["labels"] = numbers.target(target, example["copied_words"])
    model = AttnCalMarianMTModel(config)
    batch = CopyCollator(tokenizer, model)(examples)
    assert batch["extended_input_ids"].shape == batch["input_ids"].shape == (2, 7)
    for example, extended, mask in zip(examples, batch["extended_input_ids"], batch["attention_mask"], strict=True):
        assert extended[mask.bool()].tolist() == example["extended_input_ids"]
        assert (extended[~mask.bool()] == 2).all()
    assert [label for label in batch["labels"][0].tolist() if label >= VOCABULARY] == [15, 14]
    assert model(**batch).loss.isfinite()
    tokens = model.generate(
        **{name: batch[name] for name in ("input_ids", "attention_mask", "extended_input_ids")}, max_new_tokens=4
    )
    words = [example["copied_words"] for example in examples]
    assert len(decode_copied(tokens, words, tokenizer, VOCABULARY)) == 2
    tokenizer.padding_side = "right"


def test_back_to_texts(tokenizer):
    the, sees = (tokenizer.convert_tokens_to_ids(token) for token in ("the", "sees"))
    tokens = torch.tensor(
        [[2, the, 14, sees, 15, 0], [2, 14, 14, the, 0, 2], [2, 14, 0, 2, 2, 2], [2, sees, 0, 2, 2, 2]]
    )
    words = [["Zebra", "Zora"], ["Otto"]]
    found = decode_copied(tokens, words, tokenizer, VOCABULARY)
    assert found == ["the Zebra sees Zora", "Zebra Zebra the", "Otto", "sees"]
    with pytest.raises(ValueError, match=r"`tokens`.*15.*got 15"):
        decode_copied(tokens[:1], words[1:], tokenizer, VOCABULARY)
    with pytest.raises(ValueError, match=r"`tokens`.*`copied_words`.*got 3 rows for 2"):
        decode_copied(tokens[:3], words, tokenizer, VOCABULARY)


def test_a_tokenizer_without_unknown_words_is_refused(tokenizer, config):
    class Slow:
        is_fast, unk_token_id = False, None

    with pytest.raises(ValueError, match=r"`tokenizer`.*got a Slow"):
        CopyTokenizer(Slow(), config)
