"""A tokenizer with a vocabulary for each language, whose special tokens have other numbers in the target."""

import json

import numpy as np
import pytest
import torch
from language_helpers import trained_sentencepiece
from seq2seq_helpers import SOURCES, TARGETS, randomized, sized
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from hf_attncal.data.word_tokens import target_text, text_and_word_ids, token_names, tokenize_words
from hf_attncal.data.words import NO_WORD
from hf_attncal.inference.generation import Search, generate_lines
from hf_attncal.inference.reading import readings_of_pairs
from hf_attncal.report.pairs import _labels

SPECIAL = ("</s>", "<unk>", "<pad>")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        model = trained_sentencepiece(folder, name, lines, size=60, repeats=5)
        pieces = [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
        # In the target, the numbers of the source's special tokens are those of words.
        names = [*SPECIAL, *pieces] if name == "source" else [*pieces, "<pad>", "</s>", "<unk>"]
        (folder / f"{name}.json").write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
    files = ("source.spm", "target.spm", "source.json")
    return MarianTokenizer(
        *(str(folder / name) for name in files), target_vocab_file=str(folder / "target.json"), separate_vocabs=True
    )


pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, where it is not installed


@pytest.fixture(scope="module")
def model(tokenizer):
    pad, end = (tokenizer.target_encoder[name] for name in ("<pad>", "</s>"))
    special = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": pad, "forced_eos_token_id": None}
    sizes = {"vocab_size": max(len(tokenizer.encoder), 1 + max(pad, end))}  # it embeds the padding of the target
    sizes |= {"decoder_vocab_size": len(tokenizer.target_encoder)}
    fields = sized(tokenizer) | special | sizes | {"share_encoder_decoder_embeddings": False}
    torch.manual_seed(3)
    return randomized(MarianMTModel(MarianConfig(**fields)).double()).eval()


def test_targets_are_read_with_their_own_numbers(tokenizer):
    ends = tokenizer.target_encoder["</s>"]
    for target, found in zip(TARGETS, tokenize_words(tokenizer, TARGETS, target=True), strict=True):
        assert (found.ids[-1], found.word_ids[-1]) == (ends, NO_WORD)
        assert target_text(tokenizer, found.ids) == target
        text, word_ids = text_and_word_ids(tokenizer, found.ids.tolist())
        assert (text, word_ids[:-1].max() + 1) == (target, len(target.split()))
    assert token_names(tokenizer, [0, 1, 2], target=False) == list(SPECIAL)
    assert not set(token_names(tokenizer, [0, 1, 2])) & set(SPECIAL)


def test_every_word_of_the_target_is_written_and_no_special_token(tokenizer):
    """Also words with the numbers of the source's special tokens."""
    words = {number: name for name, number in tokenizer.target_encoder.items() if name not in SPECIAL}
    special = [tokenizer.target_encoder[name] for name in SPECIAL]
    for number, name in words.items():
        assert target_text(tokenizer, [*special, number, special[2]]) == name.replace("▁", " ").strip()


@pytest.mark.parametrize("beams", [1, 3])
def test_no_padding_stands_in_a_translation(beams, model, tokenizer):
    search = Search(beams, 1.0, max_new_tokens=12)
    lengths = set()
    for bias in range(2, 60, 2):  # until ends come early, and not in every line
        model.final_logits_bias[0, tokenizer.target_encoder["</s>"]] = bias / 4
        found = generate_lines(model, tokenizer, SOURCES, search, batch_size=8, too_long="error", scores=True)
        if len(lengths := {len(one.tokens) for one in found}) > 1:
            break
    assert len(lengths) > 1  # some are padded
    for one in found:
        assert not any(name in one.text for name in SPECIAL)
        assert set(one.tokens) <= set(tokenizer.target_encoder)
        assert one.unknown == one.tokens.count("<unk>")
        pieces = [name for name in one.tokens if name not in SPECIAL]
        assert one.text == "".join(pieces).replace("▁", " ").strip()


def test_pairs_that_are_read_end_as_the_target_does(model, tokenizer):
    batches = list(readings_of_pairs(model, tokenizer, SOURCES, TARGETS, batch_size=4))
    ends = {int(pair.target.ids[-1]) for pairs, *_ in batches for pair in pairs}
    assert ends == {tokenizer.target_encoder["</s>"]}
    names = _labels(tokenizer, np.array([0, 1, 2]), target=False)
    assert names == list(SPECIAL)
