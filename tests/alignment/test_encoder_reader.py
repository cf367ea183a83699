"""The input of an encoder for each side: windows, languages, segmentations, and unreadable text."""

import copy
import functools
import json

import numpy as np
import pytest
import sentencepiece
import torch
from helpers import assert_close
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, randomized, sized, text_model
from transformers import (
    BertConfig,
    BertModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    RobertaConfig,
    RobertaModel,
)

from hf_attncal import align_quick
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.encoder_reader import EncoderReader
from hf_attncal.inference.running import Running


def of_bert(tokenizer, **changes):
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return size | tokens | dropout | {"max_position_embeddings": 64} | changes


@functools.cache
def encoder(kind):
    """A random model with an encoder, in float64, that tests share and do not change."""
    torch.manual_seed(5)
    if kind == "bert":
        return randomized(BertModel(BertConfig(**of_bert(bpe_tokenizer()))).double())
    family = kind.removeprefix("attncal_")
    return copy.deepcopy(text_model(family, "ours" if kind != family else "stock"))


class WithoutStates(torch.nn.Module):
    def forward(self, **inputs):
        return None


def test_an_encoder_without_states_is_refused():
    reader = EncoderReader(encoder("bert"), bpe_tokenizer())
    reader.encoder = WithoutStates()
    with pytest.raises(ValueError, match=r"'bert'.*no states"):
        reader.states([np.array([5, 6])], 0)


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
    ids = [text.ids for text in reader.tokenize([short, long], 0)]
    assert len(ids[1]) > 3 * positions
    with torch.no_grad():
        found = reader.states(ids, 0)[1]
        for row in (0, 1):
            assert torch.isfinite(found[row, : len(ids[row])]).all()
        first = reader.states([ids[1][: reader.size]], 0)[1]
        last = reader.states([ids[1][-reader.size :]], 0)[1]
    assert_close(found[1, :6], first[0, :6], 1e-9)  # the middle of the first window, and what lies before it
    assert_close(found[1, len(ids[1]) - 6 : len(ids[1])], last[0, -6:], 1e-9)


# ---- languages, segmentations ----


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A folder with SentencePiece models of both languages, and one vocabulary of both."""
    folder = tmp_path_factory.mktemp("pieces")
    vocabulary = ["</s>", "<unk>", "<pad>", "<s>"]
    for name, lines in (("source", SOURCES), ("target", TARGETS), ("both", SOURCES + TARGETS)):
        (folder / f"{name}.txt").write_text("\n".join(lines * 5), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{name}.txt"),
            model_prefix=str(folder / name),
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        vocabulary += [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(vocabulary))}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def m2m100(pieces):
    tokenizer = M2M100Tokenizer(str(pieces / "vocab.json"), str(pieces / "both.spm"))
    torch.manual_seed(1)
    size = {**sized(tokenizer), "vocab_size": max(tokenizer.lang_token_to_id.values()) + 1, "encoder_layerdrop": 0.0}
    return randomized(M2M100ForConditionalGeneration(M2M100Config(**size)).double()).eval(), tokenizer


def test_each_side_has_its_language_code_which_is_no_part_of_it(m2m100):
    model, tokenizer = m2m100
    reader = EncoderReader(model, tokenizer, ("en", "de"))
    assert [frame.before.tolist() for frame in reader.frames] == [[tokenizer.get_lang_id(n)] for n in ("en", "de")]
    before = tokenizer.src_lang
    for side, (language, text) in enumerate((("en", SOURCES[0]), ("de", TARGETS[0]))):
        tokenizer.src_lang = language
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            by_hand = model.get_encoder()(**inputs, output_hidden_states=True).hidden_states
            found = reader.states([reader.tokenize([text], side)[0].ids], side)
        assert len(found) == len(by_hand)
        for one, other in zip(found, by_hand, strict=True):
            assert_close(one, other[:, 1:-1], 1e-9)
    tokenizer.src_lang = before


@pytest.mark.parametrize(
    ("tokenizer_class", "languages", "before", "after"),
    [
        (NllbTokenizer, ("eng_Latn", "deu_Latn"), ["{}"], ["</s>"]),
        (MBart50Tokenizer, ("en_XX", "de_DE"), ["{}"], ["</s>"]),
        (MBartTokenizer, ("en_XX", "de_DE"), [], ["</s>", "{}"]),
    ],
)
def test_codes_stand_where_the_tokenizer_puts_them(tokenizer_class, languages, before, after):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "a", "1", "."]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if tokenizer_class is NllbTokenizer:
        tokenizer = tokenizer_class(vocab=vocabulary, merges=[])
    else:
        tokenizer = tokenizer_class(vocab=[(piece, 0.0) for piece in pieces])
    kept = tokenizer.src_lang
    frames = EncoderReader(encoder("bert"), tokenizer, languages).frames
    for language, frame in zip(languages, frames, strict=True):
        for ids, expected in zip(frame, (before, after), strict=True):
            assert tokenizer.convert_ids_to_tokens(ids.tolist()) == [piece.format(language) for piece in expected]
    for wrong in (None, "xx"):
        with pytest.raises(ValueError, match=rf"`languages` of the target.*got {wrong!r}"):
            EncoderReader(encoder("bert"), tokenizer, (languages[0], wrong))
    assert tokenizer.src_lang == kept


def test_languages_that_are_missing_or_unknown_are_named(m2m100):
    for languages, side in (((None, "de"), "source"), (("en", None), "target"), (("en", "xx"), "target")):
        with pytest.raises(ValueError, match=f"`languages` of the {side} must be a code of M2M100Tokenizer"):
            EncoderReader(*m2m100, languages)
    with pytest.raises(ValueError, match="`languages` of the source must be left out"):
        EncoderReader(encoder("bert"), bpe_tokenizer(), ("en", "de"))


@pytest.mark.filterwarnings("ignore:the encoder recognises")  # what is random knows no language
def test_an_encoder_with_codes_gets_the_languages(m2m100, tmp_path):
    for part in m2m100:
        part.save_pretrained(tmp_path)
    texts = [(tuple(source.split()), tuple(target.split())) for source, target in zip(SOURCES, TARGETS, strict=True)]
    prior = EncoderPrior.from_pretrained(tmp_path, languages="en-German")
    assert prior.reader.frames[1].before.tolist() == [m2m100[1].get_lang_id("de")]
    found = align_quick(texts, encoder=tmp_path, running=Running(languages="en-de"))
    assert [one.links for one in found] == [one.links for one in align_quick(texts, encoder=prior)]


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, where it is not installed
def test_target_text_is_segmented_by_the_model_of_the_target(pieces):
    files = [str(pieces / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files)
    reader = EncoderReader(encoder("marian"), tokenizer)
    expected = [tokenizer(SOURCES[0])["input_ids"][:-1], tokenizer(text_target=TARGETS[0])["input_ids"][:-1]]
    found = [reader.tokenize([text], side)[0].ids.tolist() for side, text in enumerate((SOURCES[0], TARGETS[0]))]
    assert found == expected
    assert expected[1] != tokenizer(TARGETS[0])["input_ids"][:-1]
    tokenizer.separate_vocabs = True
    with pytest.raises(ValueError, match="separate_vocabs"):
        EncoderReader(encoder("marian"), tokenizer)
