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
"""Layers of the encoder and the decoder: the library's LSTM and GRU, one step of either, padding, SEASS's gate.

Shapes use B = batch, T = steps, d = width. The state of a layer is (B, n, d): h and c of an LSTM (n = 2), h of a GRU.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .configuration_luong import LuongConfig
from .functional_luong import selective_gate

RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU}
MANY_ROWS = 256  # of which a step of the library's LSTM takes little more than half the time of ours on a CPU
SATURATING = 1e4  # a sum of which a gate is 0 or 1 exactly, in every precision

logger = logging.get_logger(__name__)


@torch.compiler.assume_constant_result
@functools.cache
def has_lstm_kernel(dtype: torch.dtype) -> bool:
    """Return True if this CPU can run and differentiate an LSTM in the precision of autocast.

    oneDNN has one in bfloat16 only for AVX-512, and raises a RuntimeError elsewhere.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", dtype):
        state, gates = torch.zeros(1, 1, 1), torch.zeros(4, requires_grad=True)
        weights = [gates[:, None], gates[:, None], gates, gates]
        try:
            outputs, *_ = torch.lstm(state, (state, state), weights, True, 1, 0.0, True, False, True)
            outputs.sum().backward()
        except RuntimeError:
            name = str(dtype).removeprefix("torch.")
            logger.warning(f"This CPU has no LSTM in {name}: the LSTM runs in float32, all else in {name}.")
            return False
    return True


def run_recurrent(rnn: nn.RNNBase, run: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return `run(*inputs)`, in float32 if this CPU has no LSTM in the precision of autocast.

    Args:
        rnn: LSTM or GRU whose weights `run` uses.
        run: function of the inputs and the states before them that returns outputs and last states.
        inputs: tensors for `run`.
    """
    weight: Any = rnn.weight_hh_l0
    dtype = torch.get_autocast_dtype("cpu")
    autocast = isinstance(rnn, nn.LSTM) and weight.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if not autocast or has_lstm_kernel(dtype):
        return run(*inputs)
    with torch.autocast("cpu", enabled=False):
        results = run(*(tensor.to(weight.dtype) for tensor in inputs))
    return tuple(tensor.to(dtype) for tensor in results)


class Padding:
    """Padding of a batch. A sentence is read with its real tokens first.

    A sentence of only padding is read as one token, so that nothing is undefined; nothing attends to it.
    """

    def __init__(self, attention_mask: Tensor | None, like: Tensor):
        if attention_mask is None:
            attention_mask = like.new_ones(like.shape[:2])
        real = attention_mask.bool()
        lengths = real.sum(dim=1, keepdim=True).clamp(min=1)
        #: True at padding behind the real tokens, (B, S, 1).
        self.flags = (torch.arange(real.shape[1], device=real.device) >= lengths).unsqueeze(-1)
        #: Place of the last real token, (B,).
        self.last = lengths.squeeze(1) - 1
        self.order = None
        if bool((real[:, 1:] > real[:, :-1]).any()):  # padding in front, or in between
            self.order = torch.argsort(real, dim=1, descending=True, stable=True)

    def real_first(self, states: Tensor) -> Tensor:
        """(B, S, width), in the order in which tokens are read."""
        return states if self.order is None else _reordered(states, self.order)

    def back(self, states: Tensor) -> Tensor:
        """Return the reverse of `real_first`, with zeros at padding."""
        states = states.masked_fill(self.flags, 0.0)
        return states if self.order is None else _reordered(states, self.order.argsort(dim=1))


def _reordered(states: Tensor, order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


class LuongEncoderLayer(nn.Module):
    """One layer that reads in one or two directions, and keeps its state at padding.

    Padding is an input of its own. Its weights shut the input gate of an LSTM and open the forget gate, of a GRU the
    update gate, so wide that c or h stay what they are and no gradient goes through. Packed sequences would need no
    such input, but on a CPU have no fused kernel, and take a time quadratic in their length to differentiate.
    """

    def __init__(self, config: LuongConfig, input_size: int):
        super().__init__()
        self.rnn = RECURRENT[config.cell](
            input_size, config.d_model, batch_first=True, bidirectional=config.bidirectional
        )
        self.project = config.bidirectional and config.directions == "project"
        if self.project:
            self.output_projection = nn.Linear(2 * config.d_model, config.d_model, bias=False)
            self.state_projection = nn.Linear(2 * config.d_model, config.d_model, bias=False)

    def forward(self, states: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor]:
        """One layer.

        Args:
            states: (B, S, input_size), real tokens first.

        Returns:
            Outputs, (B, S, d), anything at padding; the last state, both directions merged, (B, n, d); the last h of
            each direction, side by side, (B, directions * d).
        """
        outputs, state = self._read(states, padding)
        last = state[:, :, 0].transpose(0, 1).flatten(1)
        if self.project:
            outputs = self.output_projection(outputs)
            state = self.state_projection(torch.cat(tuple(state), dim=-1))
        else:
            outputs = outputs.unflatten(-1, (len(state), -1)).sum(dim=-2) if len(state) == 2 else outputs
            state = state.sum(dim=0)
        return outputs, state, last

    def _read(self, states: Tensor, padding: Padding) -> tuple[Tensor, Tensor]:
        """Outputs, (B, S, directions * d), and the last state of each direction, (directions, B, n, d)."""
        width, directions, lstm = self.rnn.hidden_size, 1 + self.rnn.bidirectional, isinstance(self.rnn, nn.LSTM)
        of_padding = self.rnn.weight_hh_l0.new_zeros(self.rnn.weight_hh_l0.shape[0], 1)
        of_padding[width : 2 * width] = SATURATING  # forget gate of an LSTM, update gate of a GRU
        if lstm:
            of_padding[:width] = -SATURATING
        weights = [
            torch.cat((weight, of_padding), dim=1) if name.startswith("weight_ih") else weight
            for name, weight in self.rnn.named_parameters()
        ]
        inputs = torch.cat((states, padding.flags.to(states.dtype)), dim=-1)
        start = states.new_zeros(directions, len(states), width)

        def read(inputs: Tensor, *start: Any) -> tuple[Tensor, ...]:
            settings: Any = weights, True, 1, 0.0, self.training, self.rnn.bidirectional, True
            return torch.lstm(inputs, start, *settings) if lstm else torch.gru(inputs, *start, *settings)

        outputs, _, *cells = run_recurrent(self.rnn, read, inputs, *[start] * (1 + lstm))
        # Not the library's last h, which an LSTM computes anew from every token, of padding too.
        hidden = [outputs[torch.arange(len(states), device=states.device), padding.last, :width]]
        if directions == 2:
            hidden.append(outputs[:, 0, width:])
        return outputs, torch.stack((torch.stack(hidden), *cells), dim=2)


class LuongDecoderLayer(nn.Module):
    """One layer that reads from left to right: many steps at once, or one step whose input is given in two parts."""

    def __init__(self, config: LuongConfig, input_size: int):
        super().__init__()
        self.rnn = RECURRENT[config.cell](input_size, config.d_model, batch_first=True)

    def forward(self, states: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, input_size) from the state (B, n, d) -> (B, T, d) and the last state (B, n, d)."""

        def read(states: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
            outputs, last = self.rnn(states, parts if len(parts) > 1 else parts[0])
            return outputs, *(last if len(parts) > 1 else (last,))

        parts = state.transpose(0, 1).unsqueeze(1).contiguous()  # h, or h and c, each (1, B, d)
        outputs, *last = run_recurrent(self.rnn, read, states, *parts)
        return outputs, torch.stack(last, dim=2)[0]

    def has_faster_step(self, inputs: Tensor) -> bool:
        """Return whether `library_step` is the faster one for a batch: on a CPU an LSTM has a kernel of its own."""
        if not isinstance(self.rnn, nn.LSTM) or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return inputs.device.type == "cpu" and inputs.shape[0] >= MANY_ROWS

    def library_step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance the cell one step; the inputs are unprojected, (B, input_size)."""
        outputs, state = self(inputs.unsqueeze(1), state)
        return outputs.squeeze(1), state

    def split_weights(self, known: int) -> tuple[Tensor, Tensor]:
        """Return the weights of the first `known` inputs, and the remaining weights."""
        return self.rnn.weight_ih_l0[:, :known], self.rnn.weight_ih_l0[:, known:]

    def step(self, gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance the cell one step.

        Args:
            gates: projected input, bias included, (B, 4 d) for an LSTM, (B, 3 d) for a GRU.
            state: previous state, (B, n, d).

        Returns:
            h, (B, d), and the state, (B, n, d).
        """
        recurrent = nn.functional.linear(state[:, 0], self.rnn.weight_hh_l0, self.rnn.bias_hh_l0)
        if isinstance(self.rnn, nn.LSTM):
            gates = gates + recurrent
            entry, forget, candidate, exit_ = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * state[:, 1] + torch.sigmoid(entry) * torch.tanh(candidate)
            hidden = torch.sigmoid(exit_) * torch.tanh(cell)
            return hidden, torch.stack((hidden, cell), dim=1)
        reset, update, candidate = gates.chunk(3, dim=-1)
        recurrent_reset, recurrent_update, recurrent_candidate = recurrent.chunk(3, dim=-1)
        reset = torch.sigmoid(reset + recurrent_reset)
        update = torch.sigmoid(update + recurrent_update)
        candidate = torch.tanh(candidate + reset * recurrent_candidate)
        hidden = candidate + update * (state[:, 0] - candidate)
        return hidden, hidden.unsqueeze(1)


class SelectiveGate(nn.Module):
    """SEASS selective gate: scales each encoder state given the sentence vector."""

    def __init__(self, config: LuongConfig):
        super().__init__()
        self.state_projection = nn.Linear(config.d_model, config.d_model, bias=False)  # W_s
        self.sentence_projection = nn.Linear(config.d_model * (1 + config.bidirectional), config.d_model)  # U_s and b

    def forward(self, states: Tensor, sentence: Tensor) -> Tensor:
        """(B, S, d) and (B, directions * d) -> (B, S, d)."""
        sentence_weight, bias = self.sentence_projection.weight, self.sentence_projection.bias
        return selective_gate(states, sentence, self.state_projection.weight, sentence_weight, bias)
