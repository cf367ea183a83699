"""Folder of a user who follows the documents: two text files, a tiny checkpoint with a Hub name, and short runs."""

import json
from pathlib import Path

import torch
from english_german import generate_split, write_pairs
from seq2seq_helpers import randomized, sized
from transformers import BertConfig, BertModel, MarianConfig, MarianMTModel

from hf_attncal.data.pharaoh import format_links
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.layouts import DEFAULT_ENCODER

BASE = "Helsinki-NLP/opus-mt-en-de"
DATASET = "bentrevett/multi30k"
# Options that shorten a documented command to seconds; untrained models generate up to the maximum length.
_NETWORK = ["training.bf16=false", "training.tokens_per_batch=2048", "training.disable_tqdm=true"]
_TRANSLATOR = [*_NETWORK, "training.max_steps=2", "evaluation.max_new_tokens=5"]
_SIZES = ["tokenizer.vocab_size=150", "model.d_model=16"]
SMALL = {
    "train --source source.txt --output language": [*_NETWORK, *_SIZES, "training.max_steps=2"],
    "train": [*_TRANSLATOR, *_SIZES],
    "analyze": ["--no-probe", "--methods=attention"],
    "translate": ["max_new_tokens=5"],
    "summarize": ["max_new_tokens=5"],
    "adapt": _TRANSLATOR,
    "align train --config hmm": ["tokenizer.vocab_size=150"],
    "align train": [
        *_NETWORK,
        "tokenizer.vocab_size=150",
        "model.d_model=16",
        "model.ffn_dim=16",
        "model.attention_heads=2",
        "training.max_steps=2",
        "training.warmup_steps=0",
    ],
}


def lay_out(folder: Path) -> None:
    """Fill a folder: text with a few annotated pairs, and a base model and a dataset in folders with Hub names."""
    split = generate_split(80, 20, 1, seed=5)
    write_pairs(split.train, folder / "source.txt", folder / "target.txt")
    write_pairs(split.valid, folder / "dev.source.txt", folder / "dev.target.txt")
    links = "".join(f"{format_links(pair.links)}\n" for pair in split.valid)
    (folder / "dev.links.txt").write_text(links, encoding="utf-8")
    (folder / DATASET).mkdir(parents=True)
    rows = [json.dumps({"en": " ".join(pair.source), "de": " ".join(pair.target)}) for pair in split.train]
    (folder / DATASET / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")

    tokenizer = train_bpe_tokenizer([" ".join(side) for pair in split.train for side in pair[:2]], vocab_size=150)
    torch.manual_seed(0)
    model = randomized(MarianMTModel(MarianConfig(**sized(tokenizer))))
    model.save_pretrained(folder / BASE)
    tokenizer.save_pretrained(folder / BASE)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    BertModel(BertConfig(**size, **tokens)).save_pretrained(folder / DEFAULT_ENCODER[0])
    tokenizer.save_pretrained(folder / DEFAULT_ENCODER[0])
