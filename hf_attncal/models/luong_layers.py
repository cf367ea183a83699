"""Layers of the encoder and the decoder: the library's LSTM and GRU, one step of either, packing, SEASS's gate.

Shapes use B = batch, T = steps, d = width. The state of a layer is (B, n, d): h and c of an LSTM (n = 2), h of a GRU.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .configuration_luong import LuongConfig
from .functional_luong import selective_gate

RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU}


def library_state(state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """As the library wants it: (B, n, d) -> h, or (h, c), each (1, B, d)."""
    parts = tuple(part.contiguous() for part in state.transpose(0, 1).unsqueeze(1))
    return parts if len(parts) == 2 else parts[0]


def from_library(state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The reverse of `library_state`, with any number of directions r: (r, B, d) -> (r, B, n, d)."""
    return torch.stack(state if isinstance(state, tuple) else (state,), dim=2)


class LuongEncoderLayer(nn.Module):
    """One layer that reads in one or two directions, on packed sequences."""

    def __init__(self, config: LuongConfig, input_size: int):
        super().__init__()
        self.rnn = RECURRENT[config.cell](input_size, config.d_model, bidirectional=config.bidirectional)
        self.project = config.bidirectional and config.directions == "project"
        if self.project:
            self.output_projection = nn.Linear(2 * config.d_model, config.d_model, bias=False)
            self.state_projection = nn.Linear(2 * config.d_model, config.d_model, bias=False)

    def forward(self, packed: PackedSequence) -> tuple[PackedSequence, Tensor, Tensor]:
        """One layer.

        Args:
            packed: tokens, (tokens, input_size).

        Returns:
            Outputs, packed likewise, (tokens, d); the last state, both directions merged, (B, n, d); the last h of
            each direction, side by side, (B, directions * d).
        """
        outputs, state = self.rnn(packed)
        state = from_library(state)  # (directions, B, n, d)
        last = state[:, :, 0].transpose(0, 1).flatten(1)
        if self.project:
            data = self.output_projection(outputs.data)
            state = self.state_projection(torch.cat(tuple(state), dim=-1))
        else:
            data = outputs.data.unflatten(-1, (len(state), -1)).sum(dim=-2) if len(state) == 2 else outputs.data
            state = state.sum(dim=0)
        return outputs._replace(data=data), state, last


class LuongDecoderLayer(nn.Module):
    """One layer that reads from left to right: many steps at once, or one step whose input is given in two parts."""

    def __init__(self, config: LuongConfig, input_size: int):
        super().__init__()
        self.rnn = RECURRENT[config.cell](input_size, config.d_model, batch_first=True)

    def forward(self, states: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, input_size) from the state (B, n, d) -> (B, T, d) and the last state (B, n, d)."""
        outputs, last = self.rnn(states, library_state(state))
        return outputs, from_library(last)[0]

    def split_weights(self, known: int) -> tuple[Tensor, Tensor]:
        """Weights of the first `known` inputs, and of the others."""
        return self.rnn.weight_ih_l0[:, :known], self.rnn.weight_ih_l0[:, known:]

    def step(self, gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step, from what the input adds to the gates, its bias with it.

        Args:
            gates: (B, 4 d) of an LSTM, (B, 3 d) of a GRU. state: (B, n, d).

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


class Packing:
    """Packs the real tokens of (B, S, width) tensors, and puts them back where they stood.

    A sentence of padding alone is read as one token, so that nothing is undefined; nothing attends to it.
    """

    def __init__(self, attention_mask: Tensor | None, like: Tensor):
        self.length = like.shape[1]
        self.order = None
        if attention_mask is None:
            self.lengths = torch.full((like.shape[0],), self.length)
            return
        real = attention_mask.bool()
        self.lengths = real.sum(dim=1).clamp(min=1).cpu()
        if not bool((real[:, 1:] <= real[:, :-1]).all()):  # padding in front, or in between
            self.order = torch.argsort(real, dim=1, descending=True, stable=True)

    def pack(self, states: Tensor) -> PackedSequence:
        """(B, S, width) -> a packed sequence."""
        if self.order is not None:
            states = states.gather(1, self.order.unsqueeze(-1).expand_as(states))
        return pack_padded_sequence(states, self.lengths, batch_first=True, enforce_sorted=False)

    def pad(self, packed: PackedSequence) -> Tensor:
        """The reverse of `pack`, zeros at padding."""
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=self.length)
        if self.order is not None:
            states = states.gather(1, self.order.argsort(dim=1).unsqueeze(-1).expand_as(states))
        return states


class SelectiveGate(nn.Module):
    """The gate of SEASS: what of each source state is kept, given the whole sentence."""

    def __init__(self, config: LuongConfig):
        super().__init__()
        self.state_projection = nn.Linear(config.d_model, config.d_model, bias=False)  # W_s
        self.sentence_projection = nn.Linear(config.d_model * (1 + config.bidirectional), config.d_model)  # U_s and b

    def forward(self, states: Tensor, sentence: Tensor) -> Tensor:
        """(B, S, d) and (B, directions * d) -> (B, S, d)."""
        sentence_weight, bias = self.sentence_projection.weight, self.sentence_projection.bias
        return selective_gate(states, sentence, self.state_projection.weight, sentence_weight, bias)
