"""Small random models that copy, with tokenizers and texts in which some words are unknown."""

import functools

import torch
from helpers import FAMILIES, scatter
from seq2seq_helpers import SOURCES, bpe_tokenizer, sized

from hf_attncal import LuongConfig, LuongForConditionalGeneration
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, train_word_tokenizer

KNOWN = "copper oil gold steel rises falls trades on the market in said traders , ."
TEXTS = [
    "oil rises in Oslo , traders said .",
    "Zelda said gold falls on the Zurich market .",
    "",
    "steel trades in Oslo in Oslo .",
    " ",
    "Quito traders said oil falls , gold rises .",
    "Otto Anna Emil",
]
UNKNOWN = set(" ".join(TEXTS).split()) - set(KNOWN.split())
SLOTS = 3


@functools.cache
def word_tokenizer():
    return train_word_tokenizer([KNOWN], 40, special_tokens=SPECIAL_TOKENS)


def copying_model(family: str, slots: int = SLOTS, bias: float = 0.0, scale: float = 0.7):
    """Return a random copying model in float64, and its tokenizer: `word_tokenizer` with slots, else `bpe_tokenizer`.

    Args:
        bias: bias of the gate; with a large bias every word is copied, and attention chooses it.
        scale: scale of the other weights; with a small scale few words are certain.
    """
    tokenizer = word_tokenizer() if slots else bpe_tokenizer()
    copies = {"copy": True, "max_copied_tokens": slots, "unk_token_id": tokenizer.unk_token_id if slots else None}
    torch.manual_seed(3)
    if family == "luong":
        tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        tokens |= {"decoder_start_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": len(tokenizer)}
        model = LuongForConditionalGeneration(LuongConfig(**sizes, **tokens, **copies))
    else:
        _, _, config_class, model_class = FAMILIES[family]
        model = model_class(config_class(**sized(tokenizer), calibration="gated", **copies))
    model = model.double().eval()
    scatter(model, scale)
    with torch.no_grad():
        model.copying.gate.weight.zero_()
        model.copying.gate.bias.fill_(bias)
    return model, tokenizer


def texts_of(tokenizer) -> list[str]:
    """Return texts for a tokenizer, some of them empty."""
    return TEXTS if tokenizer is word_tokenizer() else [*SOURCES[:3], " ", *SOURCES[3:]]
