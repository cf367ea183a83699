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
"""Mask-Align: a word aligner of two masked translation models that are trained to agree (Chen et al., ACL 2021).

Shapes use B = batch, S = source tokens, T = target tokens, H = heads. "Forward" is the direction that predicts the
target from the source, "backward" the other; inside a direction, "source" is the side that it reads and "target" the
side that it predicts.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from .calibration import NullToken
from .configuration_mask_align import MaskAlignConfig
from .functional_jumps import JumpPosterior
from .functional_mask_align import agreement_loss, entropy_loss, guided_loss
from .limits import check_ids
from .loading import WholeCheckpointMixin
from .mask_align_layers import (
    HIDDEN,
    MaskAlignCrossAttention,
    MaskAlignDecoderLayer,
    MaskAlignEncoderLayer,
    RealTokens,
    additive_mask,
    sinusoidal_positions,
)
from .mask_align_prediction import PREDICTION_HEADS, Evidence, MaskAlignPrediction, Side

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.share_embeddings


@dataclass
class MaskAlignOutput(ModelOutput):
    """Output of `MaskAlignModel`.

    Args:
        loss: training loss for `backward()`, with `return_loss=True`.
        forward_attention: aligning weights of the direction that predicts the target, (B, T, S): the mean over heads,
            without the NULL column, not renormalised; 0 at padding. For `prediction="mixture"` the posterior, with
            `max_jump` the first-order one, except when losses are computed in training mode.
        backward_attention: the same of the direction that predicts the source, (B, S, T).
        forward_null, backward_null: weight of NULL, (B, T) and (B, S); zeros without `leaky`.
        prediction_loss: negative log-likelihood per token, the mean of the two directions.
        agreement_loss, entropy_loss, guided_loss: losses before their weights. The entropy loss is the sum of both
            directions, the guided loss their mean.
        prediction_accuracy: share of hidden tokens that are predicted correctly, mean of both directions.
        null_weight: mean weight of NULL over real tokens, mean of both directions; near 1 nothing is aligned.
    """

    loss: Tensor | None = None
    forward_attention: Tensor | None = None
    backward_attention: Tensor | None = None
    forward_null: Tensor | None = None
    backward_null: Tensor | None = None
    prediction_loss: Tensor | None = None
    agreement_loss: Tensor | None = None
    entropy_loss: Tensor | None = None
    guided_loss: Tensor | None = None
    prediction_accuracy: Tensor | None = None
    null_weight: Tensor | None = None


class MaskAlignDirection(nn.Module):
    """Masked translation model: encoder, static-KV decoder, and a prediction, which has the cross-attention."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        prediction = PREDICTION_HEADS[config.prediction]
        self.mask_diagonal = config.mask_diagonal
        self.encoder_layers = nn.ModuleList(MaskAlignEncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_layer_norm = nn.LayerNorm(config.d_model)
        self.decoder_layers = nn.ModuleList(
            MaskAlignDecoderLayer(config, layer < config.decoder_layers - 1 or not prediction.feeds_forward)
            for layer in range(config.decoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.prediction = prediction(config)

    def forward(self, source: Side, target: Side) -> Evidence:
        """Compute all inputs of the prediction, up to the weights of the cross-attention."""
        states = source.packing.pack(source.embedded)
        mask = additive_mask(source.real)
        for layer in self.encoder_layers:
            states = layer(states, mask, source.packing)
        states = source.packing.pad(self.encoder_layer_norm(states))

        embeddings = query = target.embedded
        mask = additive_mask(target.real)
        if self.mask_diagonal:
            diagonal = torch.eye(embeddings.shape[1], dtype=torch.bool, device=embeddings.device)
            mask = mask.masked_fill(diagonal, HIDDEN)
            # A softmax over only hidden tokens would still show them: a side with one token reads zeros instead.
            single = target.real.sum(dim=1) < 2
            embeddings = embeddings.masked_fill(single[:, None, None], 0.0)
            query = self.dropout(target.positions.to(embeddings.dtype)).expand_as(embeddings)
        query, embeddings = target.packing.pack(query), target.packing.pack(embeddings)
        for layer in self.decoder_layers:
            query = layer(query, embeddings, mask, target.packing)
        return self.prediction.attend(source, target, states, target.packing.pad(query))


class MaskAlignPreTrainedModel(WholeCheckpointMixin, PreTrainedModel):
    """Base of the model: initialisation, and settings for transformers."""

    config: MaskAlignConfig
    config_class = MaskAlignConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _input_embed_layer = "source_embeddings"
    accepts_loss_kwargs = False  # every loss is a mean over its own unit: tokens of two sides, cells, linked tokens
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _no_split_modules = ["MaskAlignEncoderLayer", "MaskAlignDecoderLayer"]

    # trf-ignore: TRF018 (all kinds of modules are here)
    @torch.no_grad()
    def _init_weights(self, module):
        std = self.config.init_std
        if isinstance(module, nn.Linear):
            if std is None:
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        # Transformers skips modules outside its package that own no parameter, hence one call per owner.
        elif isinstance(module, NullToken):
            null_std = self.config.null_key_std
            module.init_parameters(std=self.config.d_model**-0.5 if null_std is None else null_std)
        elif isinstance(module, (MaskAlignCrossAttention, MaskAlignPrediction)):
            module.init_parameters()
        elif isinstance(module, MaskAlignModel):
            for frequency in (module.source_frequency, module.target_frequency):
                nn.init.constant_(frequency, 1 / self.config.vocab_size)


class MaskAlignModel(MaskAlignPreTrainedModel):
    """Two masked translation models, one for each direction, with shared embeddings."""

    _auto_class: Any = "AutoModel"

    def __init__(self, config: MaskAlignConfig):
        config.validate()  # fields assigned after the construction have not been checked
        super().__init__(config)
        self.source_embeddings = nn.Embedding(config.vocab_size, config.d_model)
        if not config.share_embeddings:
            self.target_embeddings = nn.Embedding(config.vocab_size, config.d_model)
        self.forward_direction = MaskAlignDirection(config)
        self.backward_direction = MaskAlignDirection(config)
        self.dropout = nn.Dropout(config.dropout)
        # Relative frequencies in the training text, for the candidates of `sampled_softmax`.
        self.source_frequency = nn.Buffer(torch.full((config.vocab_size,), 1 / config.vocab_size))
        self.target_frequency = nn.Buffer(torch.full((config.vocab_size,), 1 / config.vocab_size))
        self.post_init()

    def get_target_embeddings(self) -> nn.Embedding:
        """Return the embedding table of target tokens, which is the source's with `share_embeddings`."""
        return self.source_embeddings if self.config.share_embeddings else self.target_embeddings

    def resize_token_embeddings(self, *args, **kwargs):
        """Raise an error, because `output_bias` and the token frequencies also have an entry per token.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("The vocabulary of a trained aligner is fixed: train one with the new `vocab_size`.")

    # trf-ignore: TRF033 (counts of a text, in buffers that are saved)
    @torch.no_grad()
    def set_token_counts(self, source_counts: Tensor, target_counts: Tensor) -> None:
        """Set the counts of each token in the training text of a new model.

        The output biases start at the log frequencies, and `sampled_softmax` corrects for them.

        Args:
            source_counts, target_counts: counts, (vocab_size,) each.

        Raises:
            ValueError: the counts have another shape.
        """
        for name, counts, direction in (
            ("source", source_counts, self.backward_direction),
            ("target", target_counts, self.forward_direction),
        ):
            if tuple(counts.shape) != (self.config.vocab_size,):
                raise ValueError(
                    f"`{name}_counts` must have the shape ({self.config.vocab_size},), got {tuple(counts.shape)}."
                )
            frequency = (counts.double() + 0.01) / (counts.double() + 0.01).sum()
            getattr(self, f"{name}_frequency").copy_(frequency)
            direction.prediction.output_bias.copy_(frequency.log())

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        target_input_ids: torch.LongTensor | None = None,
        target_attention_mask: Tensor | None = None,
        links: Tensor | None = None,
        return_loss: bool | None = None,
        agreement_scale: float = 1.0,
        **kwargs,
    ) -> tuple | MaskAlignOutput:
        """Align the tokens of sentence pairs; neither side has an end-of-sentence token.

        Args:
            input_ids: source tokens, (B, S).
            attention_mask: 1 for real source tokens, (B, S). Default: None, all are real.
            target_input_ids: target tokens, (B, T).
            target_attention_mask: 1 for real target tokens, (B, T). Default: None, all are real.
            links: 1 where target token t is linked to source token s, (B, T, S): adds the guided loss.
            return_loss: True to compute the losses. Default: None, nothing after the last cross-attention is computed.
            agreement_scale: factor of `agreement_weight`, for a warm-up.

        Raises:
            ValueError: a side is missing or empty, or longer than `max_position_embeddings`.
        """
        evidence, evidence_back = self._evidence(input_ids, attention_mask, target_input_ids, target_attention_mask)
        source, target = evidence.source, evidence.target
        f, b = self.forward_direction.prediction, self.backward_direction.prediction
        if not return_loss:
            weights = f.aligning_weights(evidence), b.aligning_weights(evidence_back)
            return MaskAlignOutput(**_aligning_fields(*weights, source, target))
        forward, backward = f.losses(evidence), b.losses(evidence_back)
        fields = _aligning_fields(forward.weights, backward.weights, source, target)
        config, source_real, target_real = self.config, source.real, target.real
        attention, attention_back, null, null_back = fields.values()
        prediction = 0.5 * (forward.loss + backward.loss)
        agreement = agreement_loss(attention, attention_back, target_real, source_real)
        entropy = entropy_loss(attention, target_real, source_real, config.entropy_smoothing) + entropy_loss(
            attention_back, source_real, target_real, config.entropy_smoothing
        )
        losses = {"prediction_loss": prediction, "agreement_loss": agreement, "entropy_loss": entropy}
        loss = prediction + agreement_scale * config.agreement_weight * agreement
        loss = loss + config.entropy_weight * entropy
        loss = loss + 0.5 * config.normalizer_penalty * (forward.normalizer_penalty + backward.normalizer_penalty)
        if links is not None:
            links = links.to(attention.dtype)
            guided = 0.5 * (
                guided_loss(attention, null, links, target_real)
                + guided_loss(attention_back, null_back, links.transpose(1, 2), source_real)
            )
            losses["guided_loss"] = guided
            loss = loss + config.guide_weight * guided
        if forward.accuracy is not None and backward.accuracy is not None:
            losses["prediction_accuracy"] = 0.5 * (forward.accuracy + backward.accuracy)
        losses["null_weight"] = 0.5 * (
            null.detach().sum() / target_real.sum() + null_back.detach().sum() / source_real.sum()
        )
        return MaskAlignOutput(**fields, **losses, loss=loss)

    @torch.no_grad()
    def alignments(self, *batch: Tensor | None, **named: Tensor | None) -> MaskAlignOutput:
        """Compute the link weights of both directions and the weights of NULL. No gradient or loss is computed.

        Args:
            batch, named: `input_ids`, `attention_mask`, `target_input_ids` and `target_attention_mask`, in this order
                or by name.
        """
        return self(*batch, **named, return_dict=True)

    @torch.no_grad()
    def expected_jumps(self, *batch: Tensor | None, **named: Tensor | None) -> tuple[JumpPosterior, JumpPosterior]:
        """Return the expected jumps of the forward and the backward direction, for the next tables (`max_jump`).

        Args:
            batch, named: tokens and masks, the first four arguments of `forward`.
        """
        evidence, evidence_back = self._evidence(*batch, **named)
        f: Any = self.forward_direction.prediction  # a mixture
        b: Any = self.backward_direction.prediction
        return f.expected_jumps(evidence), b.expected_jumps(evidence_back)

    def _evidence(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        target_input_ids: Tensor | None,
        target_attention_mask: Tensor | None,
    ) -> tuple[Evidence, Evidence]:
        """Return the inputs of the prediction of both directions."""
        source_ids = self._checked_ids(input_ids, "input_ids")
        target_ids = self._checked_ids(target_input_ids, "target_input_ids")
        source = self._side(source_ids, attention_mask, self.source_embeddings, self.source_frequency)
        target = self._side(target_ids, target_attention_mask, self.get_target_embeddings(), self.target_frequency)
        return self.forward_direction(source, target), self.backward_direction(target, source)

    def _checked_ids(self, ids: Tensor | None, name: str) -> Tensor:
        checked = check_ids(ids, name)
        if checked.shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"`{name}` must have at most `max_position_embeddings` ({self.config.max_position_embeddings}) "
                f"tokens, got {checked.shape[1]}. `WordAligner` aligns longer sentences in overlapping windows."
            )
        return checked

    def _side(self, ids: Tensor, mask: Tensor | None, table: nn.Embedding, frequency: Tensor) -> Side:
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        tokens = table(ids)
        positions = sinusoidal_positions(ids.shape[1], self.config.d_model, tokens.device, tokens.dtype)
        embedded = self.dropout(tokens * math.sqrt(self.config.d_model) + positions)
        packing = RealTokens(real, self.config.attention_heads)
        return Side(ids, real, packing, tokens, positions, embedded, table.weight, frequency)


def _aligning_fields(forward: Tensor, backward: Tensor, source: Side, target: Side) -> dict[str, Tensor]:
    """Return the fields of `MaskAlignOutput` that need no losses: the aligning weights, 0 at padding."""
    forward = forward.masked_fill(~target.real.unsqueeze(2), 0.0)
    backward = backward.masked_fill(~source.real.unsqueeze(2), 0.0)
    return {
        "forward_attention": forward[..., 1:].contiguous(),
        "backward_attention": backward[..., 1:].contiguous(),
        "forward_null": forward[..., 0].contiguous(),
        "backward_null": backward[..., 0].contiguous(),
    }
