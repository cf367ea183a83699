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
"""Luong attention over the states of an encoder: four scores, three windows, and the switches of this package.

Shapes use B = batch, T = target steps, S = source tokens, d = d_model. Attention tensors are (B, 1, T, S): one head.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .configuration_luong import LuongConfig
from .cross_attention import AttentionContext, AttentionInputs, CrossAttentionMixin
from .functional_luong import (
    concat_scores,
    dot_scores,
    gaussian,
    location_scores,
    predicted_position,
    source_positions,
    window,
    windowed_attention,
)


class Source(NamedTuple):
    """Tensors computed from the source once per sentence; the B / R beams of a sentence share a row.

    Args:
        values: encoder states, (R, 1, S, d).
        keys: keys of the scores, (R, 1, S, d).
        real: True for tokens other than padding, (R, 1, 1, S).
        positions: positions of the tokens, without padding, (R, S).
        mask_keys: keys of the mask network, (R, 1, S, d), or None.
    """

    values: Tensor
    keys: Tensor
    real: Tensor
    positions: Tensor
    mask_keys: Tensor | None = None


class _Projections(nn.Module):
    """Learned parameters of the scores, the windows and the attentional state."""

    def __init__(self, config: LuongConfig):
        super().__init__()
        self.config = config
        self.num_heads, self.head_dim, self.scaling = 1, config.d_model, 1.0
        self.dropout = 0.0  # the papers do not drop attention weights
        self.layer_idx = 0
        width = config.d_model
        if config.score in ("general", "concat"):
            self.key_projection = nn.Linear(width, width, bias=False)  # W_a, or its half for h_s
        if config.score == "concat":
            self.query_projection = nn.Linear(width, width, bias=False)  # its half for h_t
            self.score_vector = nn.Linear(width, 1, bias=False)  # v_a
        if config.score == "location":
            self.location_projection = nn.Linear(width, config.max_source_length, bias=False)  # W_a
        if config.attention_window == "local-p":
            self.position_projection = nn.Linear(width, width, bias=False)  # W_p
            self.position_vector = nn.Linear(width, 1, bias=False)  # v_p
        self.output_projection = nn.Linear(2 * width, width, bias=False)  # W_c


class LuongAttention(CrossAttentionMixin, _Projections):
    """Luong attention, from h_t to the attentional state `h~_t = tanh(W_c [c_t; h_t])`."""

    def read_source(self, states: Tensor, attention_mask: Tensor | None, context: AttentionContext) -> Source:
        """Compute all tensors that depend only on the source.

        Args:
            states: encoder states, (R, S, d).
            attention_mask: 1 for real tokens, (R, S); `None` if all are real.
            context: record of this pass.

        Raises:
            ValueError: `score="location"` and a source longer than `max_source_length`.
        """
        if attention_mask is None:
            attention_mask = states.new_ones(states.shape[:2], dtype=torch.bool)
        real = attention_mask.bool()
        positions = source_positions(real)
        longest = self.config.max_source_length
        if self.config.score == "location" and states.shape[1] > longest and int(positions.max()) >= longest:
            raise ValueError(
                f'`max_source_length` of this model with `score="location"` is {longest} tokens, got a source of '
                f"{int(positions.max()) + 1}. Split it, or truncate it in tokenising: "
                f"`tokenizer(..., truncation=True, max_length={longest})`."
            )
        values = states.unsqueeze(1)
        keys = self.key_projection(values) if self.config.score in ("general", "concat") else values
        mask_keys = None
        if self.switches.calibration is not None:
            mask_keys = self._project_mask_keys(states, keys, context)
        return Source(values, keys, real[:, None, None], positions, mask_keys)

    def forward(  # type: ignore[override]  # the source is read once, by `read_source`
        self, hidden: Tensor, source: Source, first_step: int, context: AttentionContext
    ) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            hidden: h_t, (B, T, d).
            source: source with R rows; B is a multiple of R.
            first_step: t of the first step.
            context: record of this pass.

        Returns:
            h~_t, (B, T, d), and the weights of the source, (B, 1, T, S).
        """
        batch, steps, width = hidden.shape
        rows = source.values.shape[0]
        states = hidden.reshape(rows, -1, width)  # the beams of a sentence are further steps of its row
        query = states.unsqueeze(1)
        if self.switches.calibration is not None or self.switches.leaky or self.switches.gumbel:
            inputs = AttentionInputs(states, query, source.keys, source.values, source.mask_keys, source.real)
            output, weights = self._attend(inputs, context)
        else:
            weights = self._attend_in_window(query, source, first_step, steps)
            output = torch.matmul(weights, source.values)
            if context.record_details:
                context.attentions.append(weights)
            if context.copies:
                self._report_copies(weights, weights, context)
        output = self._gate_output(output, query, context).reshape(batch, steps, width)
        weights = weights.reshape(batch, 1, steps, -1)
        return torch.tanh(self.output_projection(torch.cat((output, hidden), dim=-1))), weights

    def _scores(self, query: Tensor, key: Tensor, real: Tensor | None) -> Tensor:
        assert real is not None  # `read_source` sets it
        scores = self._unmasked_scores(query, key, source_positions(real[:, 0, 0]))
        return scores.masked_fill(~real, torch.finfo(scores.dtype).min)

    def _unmasked_scores(self, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        if self.config.score == "concat":
            return concat_scores(self.query_projection(query), key, self.score_vector.weight)
        if self.config.score == "location":
            return location_scores(self.location_projection(query), positions)
        return dot_scores(query, key)

    def _attend_in_window(self, query: Tensor, source: Source, first_step: int, steps: int) -> Tensor:
        """Return the weights of attention without switches, (R, 1, beams * T, S)."""
        positions, real, width = source.positions, source.real, self.config.window_width
        scores = self._unmasked_scores(query, source.keys, positions)
        if self.config.attention_window == "global":
            return windowed_attention(scores, real)
        if self.config.attention_window == "local-m":
            centre = torch.arange(first_step, first_step + steps, device=query.device)
            centre = centre.repeat(query.shape[2] // steps)[:, None]
            return windowed_attention(scores, window(positions, centre, width) & real)
        lengths = real.sum(dim=(1, 2, 3))
        centre = predicted_position(query, self.position_projection.weight, self.position_vector.weight, lengths)
        weights = windowed_attention(scores, window(positions, centre, width) & real)
        return weights * gaussian(positions, centre, width).to(weights.dtype)

    # ---- one step at a time ----

    def split(self, context: AttentionContext, steps: int) -> list[AttentionContext]:
        """Return an empty record for each step of a decoder pass; `join` combines them."""
        if context.target_mask is None and not context.record_details:
            return [context] * steps  # nothing is reported
        # `join` averages the mask over all steps at once.
        targets: Sequence[Tensor | None] = [None] * steps
        if context.perturb and context.target_mask is not None:
            targets = context.target_mask.unbind(1)
        record = context.record_details or not context.perturb
        return [
            AttentionContext(context.perturb, None if t is None else t[:, None], record, context.copies)
            for t in targets
        ]

    def join(self, steps: list[AttentionContext], source: Source, context: AttentionContext) -> None:
        """Combine the records of all steps in `context`.

        Args:
            steps: records from `split`, filled by their steps.
            source: source of the pass.
            context: record of the whole pass.
        """
        if steps[0] is context:
            return
        context.copy_attentions += [tensor for step in steps for tensor in step.copy_attentions]
        recorded = {}
        for name in ("attentions", "masks", "gates", "null_attentions"):
            parts = [tensor for step in steps for tensor in getattr(step, name)]
            if parts:
                recorded[name] = torch.cat(parts, dim=2)
                if context.record_details:
                    getattr(context, name).append(recorded[name])
        if context.perturb:
            context.penalties.append(torch.stack([step.penalties[0] for step in steps]).sum())
        elif context.target_mask is not None:
            attention, mask = recorded["attentions"], recorded["masks"]
            gate = recorded["gates"].unsqueeze(-1) if "gates" in recorded else None
            with torch.no_grad():
                weights = self._fused(attention, mask, gate)
            self._report_means(attention, weights, mask, gate, source.real, context.target_mask, context)
