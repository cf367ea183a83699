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
"""Outputs of the Discrete Transformer: the stock ones, the syntactic stream, receptive fields and losses by name."""

from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)


@dataclass
class DiscreteEncoderOutput(BaseModelOutput):
    """Output of the encoder.

    Args:
        last_hidden_state: of the only stream, or of the semantic one.
        syntactic_last_hidden_state: of the syntactic stream, (batch, source, d_model); `None` with one stream.
        receptive_fields: of every source position, (batch, source, source), where they were asked for.
    """

    syntactic_last_hidden_state: Tensor | None = None
    receptive_fields: Tensor | None = None


@dataclass
class DiscreteDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """Output of the decoder.

    Args:
        target_receptive_fields: which tokens of the target a step was computed from, (batch, target, target).
        source_receptive_fields: which tokens of the source, (batch, target, source).

    Both are boolean where attention has chosen and numbers in [0, 1] where it is soft or sampled; step t reads the
    t-th token of `decoder_input_ids` and predicts what comes after it. With `output_receptive_fields=True` only.
    """

    target_receptive_fields: Tensor | None = None
    source_receptive_fields: Tensor | None = None


@dataclass
class DiscreteSeq2SeqModelOutput(Seq2SeqModelOutput):
    """Output of the bare encoder-decoder.

    Args:
        encoder_syntactic_last_hidden_state: of the encoder's syntactic stream; `None` with one stream.
        target_receptive_fields, source_receptive_fields: as in `DiscreteDecoderOutput`.
    """

    encoder_syntactic_last_hidden_state: Tensor | None = None
    target_receptive_fields: Tensor | None = None
    source_receptive_fields: Tensor | None = None


@dataclass
class DiscreteSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Output of the encoder-decoder with a language modelling head.

    Args:
        loss: `nmt_loss`, in training with the penalty on receptive fields.
        nmt_loss: cross-entropy per target token, with label smoothing.
        receptive_field_size: expected number of tokens, of source and target, in the field of a prediction; with
            labels and a penalty, or with labels and `output_receptive_fields=True`.
        encoder_syntactic_last_hidden_state, target_receptive_fields, source_receptive_fields: as in
            `DiscreteSeq2SeqModelOutput`.
    """

    nmt_loss: Tensor | None = None
    receptive_field_size: Tensor | None = None
    encoder_syntactic_last_hidden_state: Tensor | None = None
    target_receptive_fields: Tensor | None = None
    source_receptive_fields: Tensor | None = None


@dataclass
class DiscreteCausalLMOutput(CausalLMOutputWithPast):
    """Output of the decoder-only language model.

    Args:
        loss: `lm_loss`, in training with the penalty on receptive fields.
        lm_loss: cross-entropy per predicted token, with label smoothing.
        receptive_field_size: expected number of tokens in the field of a prediction; as in `DiscreteSeq2SeqLMOutput`.
        target_receptive_fields: as in `DiscreteDecoderOutput`.
    """

    lm_loss: Tensor | None = None
    receptive_field_size: Tensor | None = None
    target_receptive_fields: Tensor | None = None
