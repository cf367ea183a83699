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
"""Copying: each word is generated from the vocabulary, or copied from the source by one head of attention.

Shapes use B = batch, T = target steps, S = source tokens, V = vocabulary, E = slots, d = d_model. A slot is a number
from V on, which stands for a source word outside the vocabulary. Tensors of the source may have R rows, of which B is
a multiple, because beams share their source.

Sources: "Get To The Point: Summarization with Pointer-Generator Networks" (See et al., ACL 2017), "Incorporating
Copying Mechanism in Sequence-to-Sequence Learning" (Gu et al., ACL 2016), and Lu et al. (TASLP 2022), who copy by one
head of a Transformer.

Choices where the papers leave something open: Lu et al. give no formula, so this is the mixture of See et al., whose
switch also reads the decoder's input; here that is part of `z_t`. The calibrated attention copies, without dropout and
scaled to the sum of the attention before calibration. In the second pass the perturbed attention copies, scaled in the
same way. Each loss therefore trains the same parameters as without copying. The decoder reads slots as the unknown
word.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .losses import IGNORE_INDEX
from .objective import CopySource

# Smallest log-probability, so that an underflow does not give an infinite loss or gradient.
_MIN_LOG_PROBABILITY = -80.0


class Choices(NamedTuple):
    """Probabilities of generating and of copying at each of (R, N) steps, in float32 at least.

    Args:
        generating: log p_gen, (R, N).
        copied: probability of copying each source token, (R, N, S).
    """

    generating: Tensor
    copied: Tensor


def mixture(
    logits: Tensor, choices: Choices, ids: Tensor, slots: int, labels: Tensor | None = None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor | None]:
    """Return `log P(w) = log(p_gen P_vocab(w) + sum_(s: x_s = w) c_s)` (See et al., eq. 9).

    P_vocab is the softmax of the logits.

    Args:
        logits: logits of the vocabulary, (R, N, V).
        choices: p_gen and c.
        ids: numbers of the source tokens, below V + E, (R, S).
        slots: E.
        labels: labels, `-100` for no target, (R, N). Default: `None`, no loss.
        smoothing: label smoothing, in [0, 1).

    Returns:
        The log-probabilities, (R, N, V + E): the lowest finite value for slots that the source does not have, and at
        least -80 for its words. With labels also their cross-entropy, summed over targets, against
        `(1 - smoothing) * one_hot(label) + smoothing / V`; slots get no smoothing.
    """
    vocabulary, generating, copied = logits.shape[-1], choices.generating.unsqueeze(-1), choices.copied
    generated = torch.log_softmax(logits.to(copied.dtype), dim=-1)
    # In place from here on, because these tensors are as large as the vocabulary.
    log_mixture = nn.functional.pad(generated, (0, slots), value=torch.finfo(copied.dtype).min).add_(generating)
    places = ids.unsqueeze(1).expand_as(copied)
    # A word that occurs several times is copied from all of its places, and gets the gradient of one.
    same = ids.unsqueeze(1) == ids.unsqueeze(2)
    repeats = same.tril(diagonal=-1).any(dim=-1).unsqueeze(1)
    at_places = (generated.gather(-1, places.clamp(max=vocabulary - 1)) + generating).exp() * (places < vocabulary)
    total = at_places + torch.matmul(copied, same.to(copied.dtype))
    mixed = total.clamp(min=math.exp(_MIN_LOG_PROBABILITY)).log()
    log_mixture.scatter_(-1, places, torch.where(repeats, mixed.detach(), mixed))
    if labels is None:
        return log_mixture, None
    losses = (smoothing - 1) * log_mixture.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    losses = losses - smoothing * log_mixture[..., :vocabulary].mean(dim=-1)
    return log_mixture, losses.masked_fill(labels == IGNORE_INDEX, 0.0).sum()


class CopyMechanism(nn.Module):
    """Switch between generating and copying (See et al., eq. 8), and the mixture of the two.

    The probability of copying is `sigmoid(w^T [z_t; sum_s a_s h_s] + b)`: z_t is the decoder's final state, h_s are
    the encoder's, and a_s is the attention that copies. The gate is linear, so `h_s` is projected once per sentence.
    """

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(2 * config.d_model, 1)
        self.slots = config.max_copied_tokens

    def source(self, ids: Tensor, attention_mask: Tensor | None, states: Tensor) -> CopySource:
        """Return the words that a batch can copy.

        Args:
            ids: token numbers from `copied_ids`, (R, S).
            attention_mask: 1 for real tokens, (R, S).
            states: encoder states, (R, S, d).

        Raises:
            ValueError: ids whose shape differs from the source.
        """
        if ids.shape != states.shape[:2]:
            raise ValueError(
                f"`extended_input_ids` must have the shape of the source, {tuple(states.shape[:2])}, got "
                f"{tuple(ids.shape)}."
            )
        ids = ids.to(states.device)
        padding = torch.zeros_like(ids).bool() if attention_mask is None else attention_mask.to(states.device) == 0
        states = nn.functional.pad(states, (states.shape[-1], 0))
        evidence = self.gate(states) - self.gate(torch.zeros_like(states[:1, :1]))  # without the bias
        return CopySource(ids, padding, evidence.squeeze(-1))

    def forward(
        self,
        logits: Tensor,
        hidden_states: Tensor,
        source: CopySource,
        attention: Sequence[Tensor],
        labels: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the mixture at every step.

        Args:
            logits: logits of the vocabulary, (B, T, V).
            hidden_states: z_t, (B, T, d).
            source: words that can be copied.
            attention: weights of consecutive steps, in one or more parts, together (B, steps, S).
            labels: labels, (B, T). Default: `None`, no loss.
            smoothing: label smoothing, in [0, 1).

        Returns:
            Log-probabilities of V + E words, (B, T, V + E), in float32 at least; the loss of `mixture`; and the
            probability of copying each source token, (B, T, S).

        Raises:
            ValueError: a label is a slot that its source does not have.
        """
        batch, rows = len(logits), len(source.ids)
        weights = attention[0]
        if len(attention) > 1:
            weights = torch.cat([part.reshape(batch, -1, part.shape[-1]) for part in attention], dim=1)
        logits, states, weights = (
            tensor.reshape(rows, -1, tensor.shape[-1]) for tensor in (logits, hidden_states, weights)
        )
        choices = self.choices(states, weights, source)
        if labels is not None:
            labels = labels.reshape(rows, -1)
            _check_labels(labels, source, logits.shape[-1])
        log_mixture, loss = mixture(logits, choices, source.ids, self.slots, labels, smoothing)
        log_probabilities, copied = (
            tensor.reshape(batch, -1, tensor.shape[-1]) for tensor in (log_mixture, choices.copied)
        )
        return log_probabilities, loss, copied

    def choices(self, hidden_states: Tensor, weights: Tensor, source: CopySource) -> Choices:
        """Return the probabilities of generating and of copying each source token.

        Args:
            hidden_states: z_t, (R, N, d).
            weights: attention weights, 0 at padding, (R, N, S). If a row sums to less than 1, the rest (such as the
                weight of NULL) is generated.
            source: words that can be copied.
        """
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        total = weights.sum(dim=-1, keepdim=True)
        if weights.dtype != hidden_states.dtype:  # rounding in the model's precision may make the sum exceed 1
            weights = weights / total.clamp(min=1.0)
        score = self.gate(nn.functional.pad(hidden_states, (0, hidden_states.shape[-1])))
        score = score + torch.matmul(weights, source.evidence.to(weights.dtype).unsqueeze(-1))
        copying = torch.sigmoid(score)
        generating = torch.addcmul(torch.sigmoid(-score), copying, (1 - total).clamp(min=0.0))
        return Choices(generating.clamp(min=math.exp(_MIN_LOG_PROBABILITY)).log().squeeze(-1), copying * weights)


def _can_be_read(tensor: Tensor) -> bool:
    """Return True if reading values is free: on a CPU and outside a compiled graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _check_labels(labels: Tensor, source: CopySource, vocabulary: int) -> None:
    """Check that labels (R, N) are words of the vocabulary or slots of their source."""
    if not _can_be_read(labels):
        return
    rows, steps = (labels >= vocabulary).nonzero(as_tuple=True)
    slot_labels = labels[rows, steps]
    missing = ~((source.ids[rows] == slot_labels[:, None]) & ~source.padding[rows]).any(dim=-1)
    if missing.any():
        row, number = int(rows[missing][0]), int(slot_labels[missing][0])
        raise ValueError(
            f"`labels` must be words of the vocabulary, or slots that their source has, got {number} (slot "
            f"{number - vocabulary}) in row {row}, whose source does not have it. Take labels from "
            "`CopyTokenizer.target`, with the `copied_words` of the source as it was truncated."
        )


def copied_ids(config, ids: Tensor | None, extended_ids: Tensor | None) -> Tensor:
    """Return the numbers of the source tokens among the V + E words.

    Args:
        config: configuration of the model.
        ids: `input_ids`.
        extended_ids: `extended_input_ids`, which replace them.

    Raises:
        ValueError: neither kind of ids; or `extended_input_ids` below 0, beyond the slots, or different from a known
            word in `input_ids`.
    """
    if extended_ids is None:
        if ids is None:
            raise ValueError(
                "`input_ids` or `extended_input_ids` are needed by a model with `copy`, got neither. Pass them, also "
                "with `encoder_outputs` or `inputs_embeds`."
            )
        return ids
    if not _can_be_read(extended_ids):
        return extended_ids
    width = config.vocab_size + config.max_copied_tokens
    lowest, highest = map(int, extended_ids.aminmax())
    if lowest < 0 or highest >= width:
        remedy = "Raise `max_copied_tokens`, or keep words without a slot unknown."
        if lowest < 0:
            remedy = "Use the same padding as in `input_ids`."
        raise ValueError(
            f"`extended_input_ids` must be from 0 to below {width} (`vocab_size` {config.vocab_size} and "
            f"`max_copied_tokens` {config.max_copied_tokens}), got {lowest if lowest < 0 else highest}. {remedy}"
        )
    if ids is not None and ids.shape == extended_ids.shape and _can_be_read(ids):
        differs = extended_ids != ids
        for name in ("unk_token_id", "pad_token_id"):
            if getattr(config, name) is not None:
                differs &= ids != getattr(config, name)
        if differs.any():
            row, place = differs.nonzero()[0].tolist()
            raise ValueError(
                "`extended_input_ids` must equal `input_ids` except for unknown words, got "
                f"{int(extended_ids[row, place])} for {int(ids[row, place])} at place {place} of row {row}. "
                "Take both from `CopyTokenizer.source`."
            )
    return extended_ids


def known_ids(ids: Tensor | None, config) -> Tensor | None:
    """Return ids of any shape with slots replaced by the unknown word, which has an embedding."""
    if ids is None or not config.max_copied_tokens:
        return ids
    return ids.masked_fill(ids >= config.vocab_size, config.unk_token_id)
