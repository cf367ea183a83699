"""Details of transformers' Marian and BART that our classes rely on, so that a change fails here by name."""

import ast
import difflib
import inspect

import pytest
import torch
from transformers import BartConfig, MarianConfig
from transformers.models.bart import modeling_bart
from transformers.models.marian import modeling_marian

from hf_attncal import AttnCalBartConfig, AttnCalMarianConfig
from hf_attncal.models import modeling_attncal_bart, modeling_attncal_marian

# Written once for both backbones, in `cross_attention.py`: the two parents have to be the same code.
SHARED = ["{}Attention", "{}DecoderLayer", "eager_attention_forward", "shift_tokens_right"]


def normalized(source: str, backbone: str) -> str:
    """`source` without docstrings, comments and layout, and with the backbone's name replaced."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree).replace(backbone, "Backbone")


def difference(first: str, second: str) -> list[str]:
    lines = difflib.unified_diff(
        normalized(first, "Marian").splitlines(), normalized(second, "Bart").splitlines(), "Marian", "Bart", n=1
    )
    return list(lines)


@pytest.mark.parametrize("name", SHARED)
def test_marian_and_bart_are_the_same_code(name: str):
    marian = inspect.getsource(getattr(modeling_marian, name.format("Marian")))
    bart = inspect.getsource(getattr(modeling_bart, name.format("Bart")))
    found = difference(marian, bart)
    assert not found, "transformers' two backbones have come apart; our cross-attention mixin may fit one only:\n" + (
        "\n".join(found)
    )


# Our decoder, model and language model build their modules themselves: as the stock ones, but of other classes.
CONSTRUCTED = {
    "marian": (modeling_marian, modeling_attncal_marian, MarianConfig, AttnCalMarianConfig, "Marian", "MTModel"),
    "bart": (modeling_bart, modeling_attncal_bart, BartConfig, AttnCalBartConfig, "Bart", "ForConditionalGeneration"),
}
CONFIGS = [{}, {"scale_embedding": True}, {"tie_word_embeddings": False}, {"decoder_layerdrop": 0.3, "dropout": 0.2}]
CONFIGS_OF_MARIAN = [
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23, "tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False},
]


def outline(module: torch.nn.Module) -> dict[str, dict]:
    """Of every sub-module by its name: the attributes that are plain values, and shapes of parameters and buffers."""
    lines = {}
    for name, child in module.named_modules():
        plain = {
            key: value for key, value in vars(child).items() if isinstance(value, bool | int | float | str | None)
        }
        own = [*child.named_parameters(recurse=False), *child.named_buffers(recurse=False)]
        tensors = {key: (tuple(value.shape), value.requires_grad) for key, value in own}
        lines[name] = plain | {"tensors": tensors, "modules": sorted(dict(child.named_children()))}
    return lines


@pytest.mark.parametrize(
    ("backbone", "options"),
    [(backbone, options) for backbone in CONSTRUCTED for options in CONFIGS]
    + [("marian", options) for options in CONFIGS_OF_MARIAN],
    ids=str,
)
def test_all_off_is_built_as_the_stock_model(backbone: str, options: dict):
    stock, ours, stock_config, our_config, prefix, head = CONSTRUCTED[backbone]
    tiny = {"vocab_size": 19, "d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "max_position_embeddings": 16}
    tiny |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    tiny |= {"pad_token_id": 1, "decoder_start_token_id": 2}
    for name in ("Decoder", "Model", head):
        expected = getattr(stock, prefix + name)(stock_config(**tiny | options))
        actual = getattr(ours, f"AttnCal{prefix}{name}")(our_config(**tiny | options))
        assert outline(actual) == outline(expected), name
        assert shared_parameters(actual) == shared_parameters(expected), name


def shared_parameters(module: torch.nn.Module) -> set[tuple[str, ...]]:
    """The names under which each parameter appears, where there are several."""
    names = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {tuple(sorted(group)) for group in names.values() if len(group) > 1}
