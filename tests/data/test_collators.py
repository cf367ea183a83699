"""Targets extended to the length of their sources."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_uam import with_nulls
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from hf_attncal import LuongConfig, LuongForConditionalGeneration
from hf_attncal.data.collators import LinkCollator, NullCollator
from hf_attncal.data.tokenizer import NULL, null_token_id, train_bpe_tokenizer

LINES = ["the old house is old", "das alte Haus ist alt"]
tokenizer = train_bpe_tokenizer(LINES * 5, 60)
null = null_token_id(tokenizer)
config = LuongConfig(
    vocab_size=len(tokenizer),
    d_model=4,
    encoder_layers=1,
    decoder_layers=1,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
    decoder_start_token_id=tokenizer.pad_token_id,
    uam=True,
    null_token_id=null,
)
model = LuongForConditionalGeneration(config)
words = st.lists(st.integers(3, 30), max_size=7).map(lambda ids: [*ids, tokenizer.eos_token_id])


def test_the_token():
    """A special token at the end of the vocabulary, once, also after saving; no text has it, and none is decoded."""
    assert null == len(tokenizer) - 1 == null_token_id(tokenizer)
    assert NULL in tokenizer.all_special_tokens
    assert null not in tokenizer("the <null> house").input_ids
    house = tokenizer("house").input_ids
    assert tokenizer.decode([*house, null, null], skip_special_tokens=True) == "house"


def test_the_token_of_a_saved_tokenizer(tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert null_token_id(loaded) == null
    assert loaded("the <null> house").input_ids == tokenizer("the <null> house").input_ids


def test_the_token_is_added_to_other_special_tokens():
    other = train_bpe_tokenizer(LINES * 5, 60)
    other.add_special_tokens({"extra_special_tokens": ["<sep>"]})
    assert null_token_id(other) == len(other) - 1
    assert {"<sep>", NULL} <= set(other.all_special_tokens)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5), st.booleans(), st.integers(0, 3))
def test_every_target_is_as_long_as_its_source(pairs, masked, padding):
    features = [{"input_ids": source, "labels": target} for source, target in pairs]
    if masked:  # examples that are padded already
        features = [
            {
                "input_ids": [*source, *[tokenizer.pad_token_id] * padding],
                "attention_mask": [*[1] * len(source), *[0] * padding],
                "labels": [*target, *[-100] * padding],
            }
            for source, target in pairs
        ]
    before = [dict(example) for example in features]
    batch = NullCollator(tokenizer, model)(features)
    assert features == before, "the examples themselves were changed"
    for row, (source, target) in enumerate(pairs):
        labels = batch["labels"][row]
        expected = with_nulls(source, target, null)
        assert labels[labels != -100].tolist() == expected
        assert (labels[len(expected) :] == -100).all()
        assert len(expected) == max(len(source), len(target))
        read = batch["decoder_input_ids"][row, : len(expected)].tolist()
        assert read == [tokenizer.pad_token_id, *expected[:-1]]
        assert batch["input_ids"][row][batch["attention_mask"][row].bool()].tolist() == source


def test_targets_that_are_long_enough_are_left_as_they_are():
    pairs = [([5, 0], [6, 7, 8, 0]), ([5, 6, 0], [7, 8, 0])]
    features = [{"input_ids": source, "labels": target} for source, target in pairs]
    plain = DataCollatorForSeq2Seq(tokenizer, model)([dict(example) for example in features])
    extended = NullCollator(tokenizer, model)(features)
    assert plain.keys() == extended.keys()
    assert all(torch.equal(plain[name], extended[name]) for name in plain)


def test_tensors_and_labels_of_only_padding():
    features = [{"input_ids": torch.tensor([5, 6, 0]), "labels": torch.tensor([-100, -100])}]
    assert NullCollator(tokenizer, model)(features)["labels"].tolist() == [[null] * 3]


def test_a_model_without_the_token_is_refused():
    plain = LuongForConditionalGeneration(LuongConfig(vocab_size=9, d_model=4, encoder_layers=1, decoder_layers=1))
    with pytest.raises(ValueError, match=r"`null_token_id`.*got None"):
        NullCollator(tokenizer, plain)


@pytest.mark.parametrize("side", ["right", "left"])
def test_links_are_where_their_tokens_are(side):
    """Beside padding, which another collator may have extended; without links a batch is what it was."""
    padded = train_bpe_tokenizer(LINES * 5, 60)
    padded.padding_side = side
    features = [
        {"input_ids": [5, 6, 7, 2], "labels": [8, 9], "links": [0, 0, 2, 1, 2, 1]},
        {"input_ids": [4], "labels": [3, 5, 6], "links": [0, 2]},
        {"input_ids": [4, 2], "labels": [3], "links": []},
    ]
    for collator in (DataCollatorForSeq2Seq(padded), NullCollator(padded, model)):
        plain = [{name: row[name] for name in ("input_ids", "labels")} for row in features]
        expected = collator(plain)
        assert LinkCollator(collator)(plain).keys() == expected.keys()
        batch = LinkCollator(collator)(features)
        assert batch["links"].shape == (*expected["labels"].shape, expected["input_ids"].shape[1])
        assert all(torch.equal(batch[name], tensor) for name, tensor in expected.items())
        linked = [
            (int(expected["labels"][b, t]), int(expected["input_ids"][b, s])) for b, t, s in batch["links"].nonzero()
        ]
        assert linked == [(8, 5), (9, 7), (6, 4)]
