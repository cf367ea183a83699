"""Small random encoder-decoders with a tokenizer, and their attention by one sentence and one step at a time."""

import copy
import functools
from collections.abc import Mapping

import pytest
import torch
from english_german import generate_pairs
from helpers import FAMILIES, TINY

from hf_attncal.data.tokenizer import train_bpe_tokenizer

PAIRS = [pair for pair in generate_pairs(40, seed=5) if len(pair.source) < 9][:6]
SOURCES = [" ".join(pair.source) for pair in PAIRS]
TARGETS = [" ".join(pair.target) for pair in PAIRS]
KINDS = ("stock", "ours")


@functools.cache
def bpe_tokenizer():
    lines = [" ".join(side) for pair in generate_pairs(300) for side in (pair.source, pair.target)]
    return train_bpe_tokenizer(lines, vocab_size=150)


def sized(tokenizer, **changes):
    """Return config fields of a tiny model for the vocabulary of `tokenizer`."""
    tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    tokens |= {"bos_token_id": None, "decoder_start_token_id": tokenizer.pad_token_id}
    size = {"d_model": 16, "max_position_embeddings": 64, "tie_word_embeddings": False, "decoder_layers": 3}
    return TINY | tokens | size | {"vocab_size": len(tokenizer)} | changes


def text_model(family, kind):
    """Return a random model for `bpe_tokenizer`, in float64 and training mode, which tests share and do not change."""
    return _shared_text_model(family, kind).train()  # an earlier test may have left it in evaluation mode


def new_text_model(family, kind):
    """Return a new `text_model`, which a test may change."""
    stock_config, stock_model, our_config, our_model = FAMILIES[family]
    torch.manual_seed(3)
    if kind == "stock":
        model = stock_model(stock_config(**sized(bpe_tokenizer())))
    else:
        model = our_model(our_config(**sized(bpe_tokenizer()), calibration="gated", leaky=True))
    return randomized(model.double())


_shared_text_model = functools.cache(new_text_model)


def with_masks(model, values: Mapping[int, Mapping[int, float]]):
    """Return a copy whose masks are close to a number in some heads: layer -> head -> number (1 keeps all)."""
    model = copy.deepcopy(model)
    for layer in model.get_decoder().layers:
        heads = values.get(layer.encoder_attn.layer_idx, {})

        def flatten(network, inputs, mask, heads=heads):
            mask = mask.clone()
            for head, number in heads.items():
                mask[:, head] = number + 1e-6 * (mask[:, head] - 0.5)
            return mask

        layer.encoder_attn.mask_network.register_forward_hook(flatten)
    return model


@torch.no_grad()
def randomized(model, seed=4):
    """Give a model large weights, so that attention is far from even and differs between tokens."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "norm" not in name and parameter.dim() > 1:
            std = 1.0 if "embed" in name else 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


@torch.no_grad()
def skip_without_cross_attention_of_t5(model) -> None:
    """Skip the test if a T5 model with eager attention returns no cross-attention, as in transformers 5.18."""
    tokens, kernel = torch.tensor([[3, 4]]), model.config._attn_implementation
    model.set_attn_implementation("eager")
    layers = model(input_ids=tokens, decoder_input_ids=tokens, output_attentions=True).cross_attentions
    model.set_attn_implementation(kernel)
    if not layers or any(layer is None for layer in layers):
        pytest.skip("this transformers returns no cross-attention of T5")


@torch.no_grad()
def rows_of_pass(model, source_ids, decoder_ids, attention_mask=None):
    """Return the cross-attention of one sentence with the given decoder inputs, (layers, heads, steps, source)."""
    training, kernel = model.training, model.config._attn_implementation
    model.eval().set_attn_implementation("eager")
    outputs = model(
        input_ids=torch.tensor([source_ids]),
        attention_mask=attention_mask,
        decoder_input_ids=torch.tensor([decoder_ids]),
        output_attentions=True,
        use_cache=False,
    )
    model.train(training).set_attn_implementation(kernel)
    return torch.stack([layer[0] for layer in outputs.cross_attentions])


def rows_by_prefixes(model, source_ids, decoder_ids):
    """Return the same as `rows_of_pass`, with a separate pass for each step that ends there."""
    lengths = range(1, len(decoder_ids) + 1)
    rows = [rows_of_pass(model, source_ids, decoder_ids[:length])[:, :, -1] for length in lengths]
    return torch.stack(rows, dim=2)
