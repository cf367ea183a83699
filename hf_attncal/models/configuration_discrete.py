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
"""Configuration of the Discrete Transformer."""

from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers.models.marian.configuration_marian import MarianConfig

from .limits import CheckedConfigMixin, check_numbers, check_sizes

_COUNTS = ("relative_positions", "gumbel_straight_through_steps", "penalty_warmup_steps")


@strict
class DiscreteTransformerConfig(CheckedConfigMixin, MarianConfig):
    """Configuration of the Discrete Transformer: every field of `MarianConfig`, and:

    Args:
        hard_attention: True if every attention (encoder, decoder and cross-attention) selects one position, sampled
            with Gumbel-softmax in training and the argmax at inference. False with one stream is Marian.
        streams: number of streams of states, 1 or 2. With 2, a syntactic stream with queries, keys and soft values
            routes a semantic stream, whose values are selected by the same distribution and which the output layer
            reads (sec. 5). Each stream has its own embeddings, values and feed-forward layers.
        relative_positions: largest distance with a learned bias per head on the scores of self-attention. With it, a
            head learns for all positions at once to select the previous token. Default: 0, no bias, as in the paper.
        leaky: True if a head can select nothing: every attention has a learned NULL key (Mask-Align, sec. 3.2) without
            a value. Not in the paper, where every head selects a token.
        null_key_std: standard deviation of the initial NULL keys. Default: `None`, `d_model ** -0.5`.
        null_bias: initial value of a learned bias on the score of NULL, per head. Default: `None`, no bias.
        gumbel_temperature: tau.
        gumbel_straight_through: True for one-hot weights in training, with the gradient of the soft ones.
        gumbel_straight_through_steps: number of optimiser steps in which the share of one-hot weights grows from 0 to
            1. Default: 0, only one-hot weights from the start.
        gumbel_noise: factor of the Gumbel noise. 1 samples; 0 is a softmax without noise.
        receptive_field_penalty: weight, in the loss, of the expected number of tokens in the receptive field of a
            prediction (sec. 5.1; 0.1 in the paper, on the stack language).
        penalty_warmup_steps: number of optimiser steps in which that weight grows from 0. The paper has none.
        label_smoothing: label smoothing of the loss, in [0, 1). `AttnCalTrainer` sets it to its
            `label_smoothing_factor`. The smoothing of a plain Trainer would drop the penalty.

    Raises:
        StrictDataclassClassValidationError, StrictDataclassFieldValidationError: a value is outside its range or of
            another type; the message names the field, the rule and the value.
    """

    model_type = "discrete_transformer"
    stock_type = "marian"
    _auto_class = "AutoConfig"  # the code is saved with the model

    hard_attention: bool = True
    streams: int = 1
    relative_positions: int = 0
    leaky: bool = False
    null_key_std: float | int | None = None
    null_bias: float | int | None = None
    gumbel_temperature: float | int = 1.0
    gumbel_straight_through: bool = False
    gumbel_straight_through_steps: int = 0
    gumbel_noise: float | int = 1.0
    receptive_field_penalty: float | int = 0.0
    penalty_warmup_steps: int = 0
    label_smoothing: float | int = 0.0

    if TYPE_CHECKING:  # the stock configuration declares some of these fields as optional
        vocab_size: Any
        decoder_vocab_size: Any
        max_position_embeddings: Any
        pad_token_id: Any

    @property
    def is_scheduled(self) -> bool:
        """True if any setting changes with the optimiser steps."""
        return bool((self.hard_attention and self.gumbel_straight_through_steps) or self.penalty_warmup_steps)

    def validate_discrete_transformer(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        check_sizes(self)
        if isinstance(self.streams, bool) or self.streams not in (1, 2):
            raise ValueError(
                f"`streams` must be 1 or 2, got {self.streams!r}. With 2, a syntactic stream of states chooses what "
                "the semantic one reads."
            )
        check_numbers(self)
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 10**9:
                raise ValueError(f"`{name}` must be >= 0 and at most 1e9, got {value}.")
        if self.relative_positions > self.max_position_embeddings:
            raise ValueError(
                f"`relative_positions` must be at most `max_position_embeddings` ({self.max_position_embeddings}), "
                f"got {self.relative_positions}."
            )
        if self.gumbel_straight_through and not self.hard_attention:
            raise ValueError("`gumbel_straight_through` needs `hard_attention=True`. Set it or unset the other.")
        if self.gumbel_straight_through_steps and not self.gumbel_straight_through:
            raise ValueError("`gumbel_straight_through_steps` needs `gumbel_straight_through=True`. Set it as well.")
        if self.penalty_warmup_steps and not self.receptive_field_penalty:
            raise ValueError(
                "`penalty_warmup_steps` needs a `receptive_field_penalty` above 0, got "
                f"{self.receptive_field_penalty}. Set it, or remove the steps."
            )
