"""From tokens to words: one rule for every tokenizer, in training data, in aligning and in generated text."""

import json
import re
import warnings

import pytest
from datasets import Dataset
from english_german import generate_pairs
from language_helpers import trained_sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import MarianTokenizer, PreTrainedTokenizerFast

from hf_attncal.data.corpora import tokenize_for_alignment
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.word_tokens import text_and_word_ids, tokenize_words
from hf_attncal.data.words import NO_WORD

TEXT = ["the old house is a small house", "das alte Haus ist ein kleines Haus", "東京 に ある Straße é"]
SENTENCES = [
    "the old house",
    "",
    " ",
    "\x07",
    "  a \t\u3000\x07 b ",
    "don't! stop 東京 😀 x",
    "İstanbul ﬁne e\u0301 ü",
    "\u200b a\u00a0\u200b",
    "</s> <unk> [PAD] ▁ ▁▁",
    "العربية  हिन्दी ไทย\n",
]


def byte_level_tokenizer(prefix: bool = False, trim: bool = True, special: bool = False) -> PreTrainedTokenizerFast:
    """Bytes and few merges; with `special` each sentence is put between <s> and </s>, as BART's tokenizer does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=trim)
    trainer = trainers.BpeTrainer(
        vocab_size=272,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    if special:
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim, prefix)
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="!", bos_token="<s>", eos_token="</s>")


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=62, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    ends = {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", **ends)


TOKENIZERS = {
    "Metaspace": lambda: train_bpe_tokenizer(TEXT * 3, vocab_size=70),
    "bytes": byte_level_tokenizer,
    "bytes, <s> and </s>": lambda: byte_level_tokenizer(special=True),
    "bytes, space in front": lambda: byte_level_tokenizer(prefix=True),
    "bytes, untrimmed": lambda: byte_level_tokenizer(prefix=True, trim=False, special=True),
    "word pieces": word_piece_tokenizer,
}


def word_of_span(text: str, start: int, end: int) -> int:
    """The rule, for one token that is not special: the words that begin up to its last character, or the next."""
    last = end - 1 if end > start else end
    words = list(re.finditer(r"\S+", text))
    return next((n for n, word in enumerate(words) if last < word.end()), NO_WORD)


# ---- the rule ----


def test_a_separate_space_token_belongs_to_the_next_word():
    """Byte-level tokens of their own for spaces, whose trimmed offsets cover nothing, are not special tokens."""
    tokenizer = byte_level_tokenizer(special=True)
    (found,) = tokenize_words(tokenizer, ["zz qx yy"])
    pieces = tokenizer.convert_ids_to_tokens(found.ids)
    assert pieces == ["<s>", "z", "z", "Ġ", "q", "x", "Ġ", "y", "y", "</s>"]
    assert found.word_ids.tolist() == [NO_WORD, 0, 0, 1, 1, 1, 2, 2, 2, NO_WORD]
    assert found.words == 3


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("special_tokens", [True, False])
def test_tokens_go_by_their_last_character(name, special_tokens):
    tokenizer = TOKENIZERS[name]()
    encoded = tokenizer(
        SENTENCES, add_special_tokens=special_tokens, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    checked = 0
    for n, found in enumerate(tokenize_words(tokenizer, SENTENCES, special_tokens=special_tokens)):
        assert found.ids.tolist() == encoded["input_ids"][n]
        assert found.words == len(SENTENCES[n].split())
        spans = zip(encoded["offset_mapping"][n], encoded["special_tokens_mask"][n], strict=True)
        expected = [NO_WORD if special else word_of_span(SENTENCES[n], *span) for span, special in spans]
        assert found.word_ids.tolist() == expected
        checked += len({*expected} - {NO_WORD})
    assert checked > 15


@pytest.mark.parametrize("name", TOKENIZERS)
def test_training_data_and_aligning_agree(name):
    """Each word linked to itself: the links between tokens are those within a word, and every token has some."""
    tokenizer = TOKENIZERS[name]()
    texts = ["zz qx yy", "the  old\u3000house", "don't! stop", "東京 é ist"]
    links = [[(n, n) for n in range(len(text.split()))] for text in texts]
    data, _ = tokenize_for_alignment(Dataset.from_dict({"source": texts, "target": texts}), tokenizer, 100, links)
    for row, found in zip(data, tokenize_words(tokenizer, texts, special_tokens=False), strict=True):
        word_ids = found.word_ids.tolist()
        assert row["input_ids"] == row["target_input_ids"] == found.ids.tolist()
        flat = row["links"]
        expected = {(s, t) for s, i in enumerate(word_ids) for t, j in enumerate(word_ids) if i == j != NO_WORD}
        assert set(zip(flat[::2], flat[1::2], strict=True)) == expected
        assert {s for s, _ in expected} == set(range(len(word_ids)))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("prefix", [">>deu<< ", "say:"])
def test_a_prefix_has_no_words(name, prefix):
    """Tokens that end in the prefix belong to no word; the others are counted as without it."""
    tokenizer = TOKENIZERS[name]()
    whole = [prefix + text for text in SENTENCES]
    encoded = tokenizer(whole, return_offsets_mapping=True, return_special_tokens_mask=True)
    for n, found in enumerate(tokenize_words(tokenizer, SENTENCES, prefix=prefix)):
        assert found.ids.tolist() == encoded["input_ids"][n]
        assert found.words == len(SENTENCES[n].split())
        expected = []
        for (start, end), special in zip(encoded["offset_mapping"][n], encoded["special_tokens_mask"][n], strict=True):
            inside = max(end - 1, start) < len(prefix.rstrip())
            span = [max(0, place - len(prefix)) for place in (start, end)]
            expected.append(NO_WORD if special or inside else word_of_span(SENTENCES[n], *span))
        assert found.word_ids.tolist() == expected


def test_tokens_of_words():
    (found,) = tokenize_words(byte_level_tokenizer(special=True), ["zz qx yy"])
    assert found.tokens_of_words() == [[1, 2], [3, 4, 5], [6, 7, 8]]
    # A normaliser may leave nothing of a word.
    (found,) = tokenize_words(word_piece_tokenizer(), ["a \x07 b"], special_tokens=False)
    assert found.tokens_of_words() == [[0], [], [1]]


def test_no_text():
    assert tokenize_words(byte_level_tokenizer(), []) == []


# ---- slow tokenizers ----


def test_words_of_marians_tokenizer(tmp_path):
    pairs = [pair for pair in generate_pairs(40, seed=5) if len(pair.source) < 9][:6]
    sources, targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
    vocabulary = {"</s>": 0, "<unk>": 1, "<pad>": 2, ">>deu<<": 3}
    for name, texts in (("source", sources), ("target", targets)):
        pieces = trained_sentencepiece(tmp_path, name, texts, size=60, repeats=20)
        for n in range(pieces.get_piece_size()):
            vocabulary.setdefault(pieces.id_to_piece(n), len(vocabulary))
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*sacremoses")  # which is recommended where it is not installed
        tokenizer = MarianTokenizer(*(str(tmp_path / name) for name in ("source.spm", "target.spm", "vocab.json")))
    assert not tokenizer.is_fast
    for texts, target, prefix in ((sources, False, ""), (sources, False, ">>deu<< "), (targets, True, "")):
        for text, found in zip(texts, tokenize_words(tokenizer, texts, target=target, prefix=prefix), strict=True):
            ids = found.ids.tolist()
            words = [NO_WORD] if prefix else []
            # Each word begins with a piece that carries the mark.
            for piece in tokenizer.convert_ids_to_tokens(ids)[len(words) : -1]:
                words.append((words[-1] if words else NO_WORD) + piece.startswith("▁"))
            assert found.word_ids.tolist() == [*words, NO_WORD]
            assert found.words == len(text.split()) == words[-1] + 1
            decoded, word_ids = text_and_word_ids(tokenizer, ids)
            assert decoded.split() == (prefix + text).split()
            assert word_ids[-3] in (word_ids[-2], word_ids[-2] - 1)


# ---- generated text ----


@pytest.mark.parametrize("name", TOKENIZERS)
def test_generated_tokens_have_the_words_of_their_text(name):
    """What a text is split into, decoded again: the same words, lone spaces and special tokens included."""
    tokenizer = TOKENIZERS[name]()
    texts = ["old hi ss", *TEXT[:2]]
    for found in tokenize_words(tokenizer, texts):
        text, word_ids = text_and_word_ids(tokenizer, found.ids.tolist())
        assert len(text.split()) == found.words
        assert word_ids.tolist() == found.word_ids.tolist()
