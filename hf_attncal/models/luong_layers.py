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
"""Layers of the encoder and the decoder: the library's LSTM and GRU, a single step of each, padding, SEASS's gate.

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
SATURATING = 1e4  # input that makes a gate exactly 0 or 1 in every precision

logger = logging.get_logger(__name__)


@torch.compiler.assume_constant_result
@functools.cache
def has_lstm_kernel(dtype: torch.dtype) -> bool:
    """Return True if this CPU can run and differentiate an LSTM in the precision of autocast.

    oneDNN has a bfloat16 LSTM only for AVX-512, and raises a RuntimeError elsewhere.
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
        run: function from the inputs and the initial states to the outputs and the last states.
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

    A sentence of only padding is read as one token, to keep its state defined; nothing attends to it.
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
        if bool((real[:, 1:] > real[:, :-1]).any()):  # padding in front of a real token
            self.order = torch.argsort(real, dim=1, descending=True, stable=True)

    def real_first(self, states: Tensor) -> Tensor:
        """Return the states with the real tokens of each sentence first and its padding last, (B, S, width)."""
        return states if self.order is None else _reordered(states, self.order)

    def back(self, states: Tensor) -> Tensor:
        """Undo `real_first`: restore the order of the batch, with zeros at padding."""
        states = states.masked_fill(self.flags, 0.0)
        return states if self.order is None else _reordered(states, self.order.argsort(dim=1))


def _reordered(states: Tensor, order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


class LuongEncoderLayer(nn.Module):
    """Encoder layer that reads in one or two directions, and keeps its state at padding.

    A padding flag is a further input. Its weights close the input gate and open the forget gate of an LSTM (the update
    gate of a GRU) so far that c or h stay exactly the same and get no gradient. Packed sequences would need no flag,
    but on a CPU they have no fused kernel and a backward pass whose time is quadratic in the length.
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
        """Read a batch of sentences in one or two directions.

        Args:
            states: inputs, (B, S, input_size), real tokens first.
            padding: padding of the batch.

        Returns:
            Three tensors. The outputs, (B, S, d), undefined at padding. The last state, (B, n, d): h and c of an LSTM
            (n = 2), h of a GRU (n = 1). The last h of each direction, side by side, (B, directions * d). In outputs
            and state, two directions are summed or projected (`config.directions`).
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
        """Return outputs, (B, S, directions * d), and the last state of each direction, (directions, B, n, d)."""
        width, directions, lstm = self.rnn.hidden_size, 1 + self.rnn.bidirectional, isinstance(self.rnn, nn.LSTM)
        flag_weights = self.rnn.weight_hh_l0.new_zeros(self.rnn.weight_hh_l0.shape[0], 1)
        flag_weights[width : 2 * width] = SATURATING  # forget gate of an LSTM, update gate of a GRU
        if lstm:
            flag_weights[:width] = -SATURATING
        weights = [
            torch.cat((weight, flag_weights), dim=1) if name.startswith("weight_ih") else weight
            for name, weight in self.rnn.named_parameters()
        ]
        inputs = torch.cat((states, padding.flags.to(states.dtype)), dim=-1)
        start = states.new_zeros(directions, len(states), width)

        def run(inputs: Tensor, *start: Any) -> tuple[Tensor, ...]:
            settings: Any = weights, True, 1, 0.0, self.training, self.rnn.bidirectional, True
            return torch.lstm(inputs, start, *settings) if lstm else torch.gru(inputs, *start, *settings)

        outputs, _, *cells = run_recurrent(self.rnn, run, inputs, *[start] * (1 + lstm))
        # The library's last h would not do: an LSTM recomputes h at every token, also at padding.
        hidden = [outputs[torch.arange(len(states), device=states.device), padding.last, :width]]
        if directions == 2:
            hidden.append(outputs[:, 0, width:])
        return outputs, torch.stack((torch.stack(hidden), *cells), dim=2)


class LuongDecoderLayer(nn.Module):
    """Decoder layer, which reads from left to right: all steps at once, or a single step."""

    def __init__(self, config: LuongConfig, input_size: int):
        super().__init__()
        self.rnn = RECURRENT[config.cell](input_size, config.d_model, batch_first=True)

    def forward(self, states: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Run all steps: (B, T, input_size) and a first state (B, n, d) -> (B, T, d) and the last state (B, n, d)."""

        def run(states: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
            outputs, last = self.rnn(states, parts if len(parts) > 1 else parts[0])
            return outputs, *(last if len(parts) > 1 else (last,))

        parts = state.transpose(0, 1).unsqueeze(1).contiguous()  # h, or h and c, each (1, B, d)
        outputs, *last = run_recurrent(self.rnn, run, states, *parts)
        return outputs, torch.stack(last, dim=2)[0]

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance the cell one step: (B, input_size) and a state (B, n, d) -> h, (B, d), and the state, (B, n, d)."""
        rnn = self.rnn
        weights = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0
        if isinstance(rnn, nn.LSTM):
            hidden, cell = torch.lstm_cell(inputs, state.unbind(1), *weights)
            return hidden, torch.stack((hidden, cell), dim=1)
        hidden = torch.gru_cell(inputs, state[:, 0], *weights)
        return hidden, hidden.unsqueeze(1)


class SelectiveGate(nn.Module):
    """SEASS selective gate: scales each encoder state given the sentence vector."""

    def __init__(self, config: LuongConfig):
        super().__init__()
        self.state_projection = nn.Linear(config.d_model, config.d_model, bias=False)  # W_s
        self.sentence_projection = nn.Linear(config.d_model * (1 + config.bidirectional), config.d_model)  # U_s and b

    def forward(self, states: Tensor, sentence: Tensor) -> Tensor:
        """Scale encoder states: (B, S, d) and the sentence vector (B, directions * d) -> (B, S, d)."""
        sentence_weight, bias = self.sentence_projection.weight, self.sentence_projection.bias
        return selective_gate(states, sentence, self.state_projection.weight, sentence_weight, bias)
