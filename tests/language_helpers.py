"""Tiny random translation models with the tokenizers of real multilingual models, saved like downloaded models."""

import json
from pathlib import Path

import sentencepiece
import torch
from english_german import generate_pairs
from seq2seq_helpers import randomized, sized
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

PAIRS = [tuple(" ".join(side) for side in (pair.source, pair.target)) for pair in generate_pairs(60, seed=5)]
_LINES = [line for pair in PAIRS for line in pair]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # in the order of fairseq
# Names of the two languages, code of the target, and token of that code.
KINDS = {
    "nllb": ("en-de", "deu_Latn", "deu_Latn"),
    "m2m100": ("English-German", "de", "__de__"),
    "mbart50": ("eng-deu", "de_DE", "de_DE"),
    "mbart25": ("en-de", "de_DE", "de_DE"),
    "marian-codes": ("en-de", "deu", ">>deu<<"),
    "marian-two": (None, None, None),
}


def save_multilingual(kind: str, folder: Path) -> Path:
    """Save a model of a kind of `KINDS` into a folder, without languages, as in configurations on the Hub."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {
        "nllb": _nllb,
        "m2m100": _m2m100,
        "mbart50": lambda folder: MBart50Tokenizer(vocab=_pieces(folder)),
        "mbart25": lambda folder: MBartTokenizer(vocab=_pieces(folder)),
        "marian-codes": _marian,
        "marian-two": _marian_of_two,
    }[kind](folder)
    model = _model(kind, tokenizer)
    model.generation_config.max_length, model.generation_config.num_beams = 24, 2
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _model(kind, tokenizer):
    torch.manual_seed(3)
    fields = sized(tokenizer, encoder_layers=2, decoder_layers=2, max_position_embeddings=128)
    if kind in ("nllb", "m2m100"):
        size = max([len(tokenizer), *getattr(tokenizer, "lang_token_to_id", {"": 0}).values()]) + 1
        fields |= {"vocab_size": size, "decoder_start_token_id": 2, "bos_token_id": 0, "encoder_layerdrop": 0.0}
        model = M2M100ForConditionalGeneration(M2M100Config(**fields, decoder_layerdrop=0.0))
    elif kind.startswith("mbart"):
        start = {"decoder_start_token_id": 2 if kind == "mbart50" else None, "bos_token_id": 0}
        model = MBartForConditionalGeneration(MBartConfig(**fields | start))
    else:
        if kind == "marian-two":
            pad, end = (tokenizer.target_encoder[name] for name in ("<pad>", "</s>"))
            fields |= {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": pad}
            fields |= {"vocab_size": max(len(tokenizer.encoder), 1 + max(pad, end)), "forced_eos_token_id": None}
            fields |= {"decoder_vocab_size": len(tokenizer.target_encoder), "share_encoder_decoder_embeddings": False}
        model = MarianMTModel(MarianConfig(**fields))
    return randomized(model)


def trained_sentencepiece(
    folder: Path, name: str, lines, size: int = 90, repeats: int = 3
) -> sentencepiece.SentencePieceProcessor:
    """Train a small SentencePiece model on `lines`, and leave it in `NAME.spm`."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * repeats),
        model_prefix=str(folder / name),
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    (folder / f"{name}.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(
        model_file=str((folder / f"{name}.model").rename(folder / f"{name}.spm"))
    )


def _pieces(folder: Path) -> list[tuple[str, float]]:
    """Return pieces with their scores, in the form of a SentencePiece model's converter."""
    model = trained_sentencepiece(folder, "both", _LINES)
    (folder / "both.spm").unlink()
    pieces = [(model.id_to_piece(n), model.get_score(n)) for n in range(3, model.get_piece_size())]
    return [*((piece, 0.0) for piece in SPECIAL), *pieces]


def _nllb(folder: Path) -> NllbTokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    backend.train_from_iterator(
        _LINES, trainers.BpeTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    )
    learned = json.loads(backend.to_str())["model"]
    return NllbTokenizer(vocab=learned["vocab"], merges=[tuple(pair) for pair in learned["merges"]])


def _numbers(path: Path, names) -> str:
    path.write_text(json.dumps({name: n for n, name in enumerate(dict.fromkeys(names))}), encoding="utf-8")
    return str(path)


def _all_pieces(model) -> list[str]:
    return [model.id_to_piece(n) for n in range(3, model.get_piece_size())]


def _m2m100(folder: Path) -> M2M100Tokenizer:
    names = [*SPECIAL, *_all_pieces(trained_sentencepiece(folder, "sentencepiece.bpe", _LINES))]
    spm = (folder / "sentencepiece.bpe.spm").rename(folder / "sentencepiece.bpe.model")
    return M2M100Tokenizer(_numbers(folder / "vocab.json", names), str(spm))


def _marian(folder: Path) -> MarianTokenizer:
    pieces = []
    for side, name in enumerate(("source", "target")):
        pieces += _all_pieces(trained_sentencepiece(folder, name, [pair[side] for pair in PAIRS]))
    names = ["</s>", "<unk>", *pieces, ">>deu<<", ">>fra<<", "<pad>"]
    files = [str(folder / "source.spm"), str(folder / "target.spm"), _numbers(folder / "vocab.json", names)]
    return MarianTokenizer(*files, source_lang="en", target_lang="mul")


def _marian_of_two(folder: Path) -> MarianTokenizer:
    special, files = ["</s>", "<unk>", "<pad>"], []
    for side, name in enumerate(("source", "target")):
        pieces = _all_pieces(trained_sentencepiece(folder, name, [pair[side] for pair in PAIRS]))
        # In the target vocabulary, words have the numbers of the source's special tokens.
        names = [*special, *pieces] if name == "source" else [*pieces, "<pad>", "</s>", "<unk>"]
        files.append(_numbers(folder / ("vocab.json" if name == "source" else "target_vocab.json"), names))
    spm = [str(folder / f"{name}.spm") for name in ("source", "target")]
    return MarianTokenizer(*spm, files[0], target_vocab_file=files[1], separate_vocabs=True)
