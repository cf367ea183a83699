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
"""Cross-entropy with label smoothing, of logits or of hidden states, and one `backward()` for two losses.

The NMT loss trains the translation model and the gate (Lu et al., eq. 13); the mask loss (eq. 4) trains only
the mask network. The second decoder pass therefore runs with all other parameters detached, and its loss is attached
to the first as a gradient without a value.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from .functional import token_rows

IGNORE_INDEX = -100


def _smoothed_terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return loss (0 for `IGNORE_INDEX`) and log normaliser of each row: logits (N, V), labels (N,)."""
    log_normalizer = torch.logsumexp(logits, dim=-1)
    keep = labels != IGNORE_INDEX
    picked = logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    loss = log_normalizer - (1 - smoothing) * picked
    if smoothing > 0:
        loss = loss - smoothing * logits.mean(dim=-1)
    return loss.masked_fill(~keep, 0.0), log_normalizer  # not a product, because these rows may be NaN


def _smoothed_gradient(logits: Tensor, labels: Tensor, log_normalizer: Tensor, smoothing: float) -> Tensor:
    """Return the gradient of the summed `_smoothed_terms`: `softmax - target distribution`, (N, V)."""
    grad = (logits - log_normalizer.unsqueeze(-1)).exp_()
    if smoothing > 0:
        grad -= smoothing / logits.shape[-1]
    keep = labels != IGNORE_INDEX
    grad.scatter_add_(-1, labels.clamp(min=0).unsqueeze(-1), grad.new_full((len(labels), 1), smoothing - 1))
    return grad.masked_fill_(~keep.unsqueeze(-1), 0.0)


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    """Cross-entropy that saves the logits and one number per row; torch's also saves (N, V) log-probabilities."""

    @staticmethod
    def forward(ctx, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        loss, log_normalizer = _smoothed_terms(wide, labels, smoothing)
        ctx.save_for_backward(logits, labels, log_normalizer)
        ctx.smoothing = smoothing
        return loss.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        logits, labels, log_normalizer = ctx.saved_tensors
        wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        logits_grad = _smoothed_gradient(wide, labels, log_normalizer, ctx.smoothing)
        return logits_grad.mul_(grad).to(logits.dtype), None, None


class _CrossEntropyFromHidden(torch.autograd.Function):
    """Summed loss of `hidden @ weight.T + bias`, with a gradient only for `hidden`.

    The gradient is computed in the forward pass, one slice of rows at a time, so that no (N, V) tensor is kept.
    """

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float, rows: int):
        gradient = torch.empty_like(hidden)
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            logits = torch.nn.functional.linear(hidden[part], weight, bias)
            wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
            loss, log_normalizer = _smoothed_terms(wide, labels[part], smoothing)
            total += loss.sum()
            logits_grad = _smoothed_gradient(wide, labels[part], log_normalizer, smoothing)
            gradient[part] = logits_grad.to(weight.dtype) @ weight
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        (gradient,) = ctx.saved_tensors
        return gradient * grad.to(gradient.dtype), None, None, None, None, None


def label_smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy against `(1 - smoothing) * one_hot(label) + smoothing / V`.

    Args:
        logits: logits, (..., V).
        labels: labels, `-100` for no target, (...).
        smoothing: label smoothing, in [0, 1).

    Returns:
        A scalar: the sum over targets, natural logarithm.
    """
    return _LabelSmoothedCrossEntropy.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), smoothing)


def cross_entropy_from_hidden(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float = 0.0, rows: int = 1024
) -> Tensor:
    """Return `label_smoothed_cross_entropy(hidden @ weight.T + bias, ...)` with a gradient only for `hidden`.

    Args:
        hidden: hidden states, (..., d).
        weight: output weights, (V, d).
        bias: output bias, (V,).
        labels: labels, `-100` for no target, (...).
        smoothing: label smoothing, in [0, 1).
        rows: number of targets per slice. The peak memory is about three (rows, V) tensors.

    Returns:
        A scalar: the sum over targets.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        # Autocast does not reach custom functions, so cast here as it casts the output layer.
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), bias.to(dtype)
    labels = labels.reshape(-1)
    return _CrossEntropyFromHidden.apply(
        hidden.reshape(-1, hidden.shape[-1]), weight.detach(), bias.detach(), labels, smoothing, rows
    )


def target_rows(steps: Tensor, labels: Tensor, shift: bool) -> Tensor:
    """Return the `token_rows` of each sentence without its padding, (B, T, S)."""
    if not shift:
        return steps
    next_real = nn.functional.pad(labels[:, 1:] != IGNORE_INDEX, (0, 1), value=False).unsqueeze(-1)
    return torch.where(next_real, token_rows(steps, True), steps)


class DetachedParameters(TorchFunctionMode):
    """Mode in which functions use detached weights, while activations keep their graph.

    The functions are `linear`, `layer_norm`, `embedding`, and `lstm` and `gru` of tensors that are not packed, and
    their cells.

    Enter it inside the code that gradient checkpointing recomputes. Setting `requires_grad` to False would be undone
    before the recomputation, and replacing parameters breaks under sharding.
    """

    _POSITIONS = {  # argument positions of the parameters
        nn.functional.linear: {"weight": 1, "bias": 2},
        nn.functional.layer_norm: {"weight": 2, "bias": 3},
        nn.functional.embedding: {"weight": 1},
        torch.lstm: {"params": 2},
        torch.gru: {"params": 2},
        torch.lstm_cell: {"w_ih": 2, "w_hh": 3, "b_ih": 4, "b_hh": 5},
        torch.gru_cell: {"w_ih": 2, "w_hh": 3, "b_ih": 4, "b_hh": 5},
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
    """Return `value`, whose `backward()` also runs `attached.backward()`.

    `value + attached - attached.detach()` would make the value NaN if `attached` is infinite.

    Args:
        value: scalar loss that is returned.
        attached: scalar loss that only adds its gradient.
    """
    return _AttachGradient.apply(value, attached)


def shift_labels(model: nn.Module, labels: torch.Tensor) -> torch.Tensor:
    """Return the decoder inputs that predict `labels`, shifted right as the model shifts them.

    Args:
        model: model with a method or function that shifts labels.
        labels: labels, `-100` for no target, (batch, target).

    Returns:
        `decoder_input_ids`, the same shape.

    Raises:
        ValueError: the model has no such function.
    """
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return prepare(labels)
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        raise ValueError(
            f"`decoder_input_ids` are needed with `labels` for {type(model).__name__}, got None: it has no function "
            "that shifts labels. Pass them."
        )
    config: Any = model.config
    return shift(labels, config.pad_token_id, config.decoder_start_token_id)
