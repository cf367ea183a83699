"""How long the value vectors of the cross-attention are: what little a token adds, however much attention it gets.

Attention that goes to a token with a short value vector is attention to next to nothing (Kobayashi et al. 2020): where
a model has no NULL, full stops and ends of sentences serve as one (Mask-Align, section 3.6 and Table 3).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from .attribution.blocks import check_blocks, null_value


@contextmanager
def recorded_value_norms(model) -> Iterator[dict[int, Tensor]]:
    """Record, by decoder layer from 0, the norms of the value vectors in the last pass, (batch, heads, source).

    Empty for models that are not built as Marian and BART are.
    """
    norms: dict[int, Tensor] = {}
    handles = [
        attention.v_proj.register_forward_hook(partial(_record, norms, number, attention.head_dim))
        for number, attention in _cross_attentions(model).items()
    ]
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def null_value_norms(model) -> dict[int, Tensor]:
    """Return, by decoder layer from 0, the norm of the value vector of NULL, (heads,), where a layer has one."""
    values = {number: null_value(attention) for number, attention in _cross_attentions(model).items()}
    return {number: value.norm(dim=-1) for number, value in values.items() if value is not None}


def _cross_attentions(model) -> dict[int, nn.Module]:
    try:
        check_blocks(model)
    except ValueError:
        return {}
    return {number: layer.encoder_attn for number, layer in enumerate(model.get_decoder().layers)}


def _record(norms: dict[int, Tensor], number: int, width: int, module: nn.Module, args: tuple, output: Tensor) -> None:
    norms[number] = output.detach().unflatten(-1, (-1, width)).norm(dim=-1).transpose(1, 2)
