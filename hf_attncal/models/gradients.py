# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""One `backward()` for two objectives: the pieces that keep their gradients apart.

The NMT loss trains the translation model and the gate (Lu et al., eq. 13); the mask loss (eq. 4) trains the mask
network only. The second decoder pass therefore runs with all parameters detached but those of the mask network, and
its loss joins the first as a gradient without a value.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode


class DetachedParameters(TorchFunctionMode):
    """Inside this mode these functions see detached weights; activations keep their graph.

    They are `linear`, `layer_norm`, `embedding`, and `lstm` and `gru` of what is not packed.

    It must be entered inside whatever gradient checkpointing recomputes. Switching `requires_grad` off instead would
    be undone before that recomputation, and replacing parameters breaks under sharding.
    """

    _POSITIONS = {  # argument positions of the parameters
        nn.functional.linear: {"weight": 1, "bias": 2},
        nn.functional.layer_norm: {"weight": 2, "bias": 3},
        nn.functional.embedding: {"weight": 1},
        torch.lstm: {"params": 2},
        torch.gru: {"params": 2},
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        positions = self._POSITIONS.get(func)
        if positions is not None:
            indices = positions.values()
            args = tuple(_detached(arg) if i in indices else arg for i, arg in enumerate(args))
            kwargs = {name: _detached(value) if name in positions else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _detached(value):
    """Detach a tensor or each of a list of tensors; return anything else as it is."""
    if isinstance(value, list | tuple):
        return [_detached(item) for item in value]
    return value.detach() if isinstance(value, Tensor) else value


class _AttachGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value: Tensor, attached: Tensor) -> Tensor:
        ctx.attached_dtype = attached.dtype
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        return grad, grad.to(ctx.attached_dtype)


def attach_gradient(value: Tensor, attached: Tensor) -> Tensor:
    """`value`, whose `backward()` also runs `attached.backward()`.

    `value + attached - attached.detach()` would do the same, but would turn the value into NaN when `attached` is
    infinite.

    Args:
        value, attached: scalars.
    """
    return _AttachGradient.apply(value, attached)
