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
"""Model outputs: the stock ones, the losses by name, and the inside of the cross-attention."""

from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput


@dataclass
class AttnCalSeq2SeqModelOutput(Seq2SeqModelOutput):
    """Output of the bare models.

    Args:
        uncalibrated_cross_attentions: `a` of every layer, (batch, heads, target, source); without the NULL column.
        calibration_masks: `m` of every layer (Lu et al., eq. 3), same shape.
        null_attentions: weight of NULL of every layer, (batch, heads, target).

    The three are tuples over layers, filled with `output_attention_details=True` where the model has them.
    """

    uncalibrated_cross_attentions: tuple[Tensor, ...] | None = None
    calibration_masks: tuple[Tensor, ...] | None = None
    null_attentions: tuple[Tensor, ...] | None = None


@dataclass
class AttnCalSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Output of the models with a language modelling head.

    Args:
        loss: what to call `backward()` on. Its value is the NMT loss, with `uam` plus the UAM loss, with `links` plus
            `guided_weight` times the guided loss; its gradient is that of its value for the translation model and the
            gate, and that of the mask loss for the mask network.
        nmt_loss: cross-entropy per target token, with label smoothing (Lu et al., eq. 13).
        mask_loss: the mask network's objective (eq. 4), where the second decoder pass ran.
        mask_penalty: size of the perturbation (eq. 5), before alpha, where the second decoder pass ran.
        mask_mean: mean of `m` over layers, heads, real target steps and real source tokens; with labels.
        gate_mean: mean of the gate `g` (eq. 12) over layers, heads and real target steps; with labels.
        uncalibrated_cross_attentions, calibration_masks, null_attentions: as in `AttnCalSeq2SeqModelOutput`.
        uam_loss: L_src of the unsupervised alignment module per target token (Kiyono et al., eq. 18); with labels.
        uam_probabilities: what that module gives the token of each source position, `q_j[x_i]`, (batch, target,
            source), 0 at padding; with `output_uam_probabilities=True`. All places of a token have all of it.
        guided_loss: cross-entropy of the guided head per target token (Garg et al. 2019), before its weight; with
            labels and links.
        copy_probabilities: of each source token, to be copied, `c_s` (See et al., eq. 9), (batch, target, source), 0
            at padding, in float32 at least; with `output_copy_probabilities=True`. What they sum to is not generated.
    """

    nmt_loss: Tensor | None = None
    mask_loss: Tensor | None = None
    mask_penalty: Tensor | None = None
    mask_mean: Tensor | None = None
    gate_mean: Tensor | None = None
    uncalibrated_cross_attentions: tuple[Tensor, ...] | None = None
    calibration_masks: tuple[Tensor, ...] | None = None
    null_attentions: tuple[Tensor, ...] | None = None
    uam_loss: Tensor | None = None
    guided_loss: Tensor | None = None
    uam_probabilities: Tensor | None = None
    copy_probabilities: Tensor | None = None
