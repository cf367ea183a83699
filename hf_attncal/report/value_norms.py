"""Record how long the value vectors of the cross-attention are.

Attention that goes to a token with a short value vector is attention to next to nothing (Kobayashi et al. 2020): where
a model has no NULL, full stops and ends of sentences serve as one (Mask-Align, section 3.6 and Table 3).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from torch import Tensor, nn

from .attribution.cross_attention import check_blocks, null_value


@contextmanager
def recorded_value_norms(model) -> Iterator[tuple[dict[int, Tensor], dict[int, float]]]:
    """Record the norms of value vectors of a model that is built as Marian and BART are; there are none of others.

    Yields:
        By decoder layer from 0, the norms of the value vectors in the last pass, (batch, heads, source); and those of
        NULL, the mean over heads, where a layer has one.
    """
    norms: dict[int, Tensor] = {}
    nulls: dict[int, float] = {}

    def record(number: int, width: int, module: nn.Module, args: tuple, output: Tensor) -> None:
        norms[number] = output.detach().unflatten(-1, (-1, width)).norm(dim=-1).transpose(1, 2)

    with ExitStack() as hooks:
        with suppress(ValueError):
            check_blocks(model)
            for number, layer in enumerate(model.get_decoder().layers):
                attention = layer.encoder_attn
                hook = partial(record, number, attention.head_dim)
                hooks.enter_context(attention.v_proj.register_forward_hook(hook))
                if (null := null_value(attention)) is not None:
                    nulls[number] = float(null.detach().norm(dim=-1).double().mean())
        yield norms, nulls
