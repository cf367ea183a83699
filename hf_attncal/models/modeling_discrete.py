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
"""The Discrete Transformer: hard attention everywhere, one stream of states or two, receptive fields.

Source: "Discrete Transformer". With soft attention and one stream it is Marian, whose checkpoints it loads.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.models.marian import modeling_marian as hf
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .cache import CACHE, either_cache_name, named_cache
from .calibration import StepCount, warn_uncounted
from .configuration_discrete import DiscreteTransformerConfig
from .discrete_stacks import DiscreteDecoder, DiscreteEncoder, DiscreteEncoderOutput, DiscretePreTrainedModel
from .functional_discrete import Sampling, expected_field_size, first_sampling, warmed_up
from .heads import HeadMixin, target_count
from .losses import IGNORE_INDEX, label_smoothed_cross_entropy

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.is_scheduled, config.share_encoder_decoder_embeddings, config.streams
# trf-ignore: TRF041 config.gumbel_straight_through_steps
# trf-ignore: TRF041 config.penalty_warmup_steps


@dataclass
class DiscreteSeq2SeqModelOutput(Seq2SeqModelOutput):
    """Output of the bare encoder-decoder.

    Args:
        encoder_syntactic_last_hidden_state: states of the encoder's syntactic stream; `None` with one stream.
        target_receptive_fields, source_receptive_fields: see `DiscreteDecoderOutput`.
    """

    encoder_syntactic_last_hidden_state: Tensor | None = None
    target_receptive_fields: Tensor | None = None
    source_receptive_fields: Tensor | None = None


@dataclass
class DiscreteSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Output of the encoder-decoder with a language modelling head.

    Args:
        loss: `nmt_loss`, plus the penalty on receptive fields in training.
        nmt_loss: cross-entropy per target token, with label smoothing.
        receptive_field_size: expected number of tokens, of source and target, in the field of a prediction; with
            labels and a penalty, or with labels and `output_receptive_fields=True`.
        encoder_syntactic_last_hidden_state, target_receptive_fields, source_receptive_fields: see
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
        loss: `lm_loss`, plus the penalty on receptive fields in training.
        lm_loss: cross-entropy per predicted token, with label smoothing.
        receptive_field_size: expected number of tokens in the field of a prediction; as in `DiscreteSeq2SeqLMOutput`.
        target_receptive_fields: see `DiscreteDecoderOutput`.
    """

    lm_loss: Tensor | None = None
    receptive_field_size: Tensor | None = None
    target_receptive_fields: Tensor | None = None


class DiscreteTransformerModel(DiscretePreTrainedModel, hf.MarianModel):
    """The bare encoder-decoder.

    Raises:
        ValueError: the configuration has no encoder.
    """

    _auto_class: Any = "AutoModel"
    _keys_to_ignore_on_load_missing = [r"embed_positions\.weight"]  # computed; not saved with a head

    def __init__(self, config: DiscreteTransformerConfig):
        config.validate()  # fields assigned after the construction have not been checked
        if not config.is_encoder_decoder:
            raise ValueError(
                "`is_encoder_decoder` must be True for an encoder-decoder, got False. Load this checkpoint with "
                "`AutoModelForCausalLM`."
            )
        super(hf.MarianModel, self).__init__(config)
        self._tied_weights_keys = None
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = _tied_embeddings(config)
        self.encoder = DiscreteEncoder(config)
        self.decoder = DiscreteDecoder(config)
        self.schedule = StepCount() if config.is_scheduled else None
        self.post_init()

    # trf-ignore: TRF033 (the stock model has it)
    def set_decoder_input_embeddings(self, value: nn.Embedding) -> None:
        """Set the decoder's table, if it is not shared, and resize the syntactic stream's."""
        super().set_decoder_input_embeddings(value)
        self._resize_syntactic_embeddings()

    @can_return_tuple
    @either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor, ...] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_receptive_fields: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | DiscreteSeq2SeqModelOutput:
        """Run encoder and decoder; arguments as in the stock class, and:

        Args:
            encoder_outputs: output of `get_encoder()`, or a tuple: states of the semantic stream, then of the
                syntactic one.
            inputs_embeds, decoder_inputs_embeds: embeddings in place of tokens, both streams side by side.
            output_receptive_fields: True to return also the tokens that every prediction was computed from.

        Raises:
            ValueError: see `DiscreteEncoder.forward` and `DiscreteDecoder.forward`.
        """
        options: dict[str, Any] = {
            "output_receptive_fields": output_receptive_fields,
            "sampling": _sampling(self.config, self.schedule),
        }
        encoded: BaseModelOutput
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **options,
                **kwargs,
            )
        elif isinstance(encoder_outputs, BaseModelOutput):
            encoded = encoder_outputs
        else:
            encoded = DiscreteEncoderOutput(
                last_hidden_state=encoder_outputs[0],
                syntactic_last_hidden_state=encoder_outputs[1] if len(encoder_outputs) > 1 else None,
            )
        syntactic_states = getattr(encoded, "syntactic_last_hidden_state", None)
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            **named_cache(cache),
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            encoder_syntactic_hidden_states=syntactic_states,
            encoder_receptive_fields=getattr(encoded, "receptive_fields", None),
            return_dict=True,
            **options,
            **kwargs,
        )
        return DiscreteSeq2SeqModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            **named_cache(getattr(outputs, CACHE)),
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
            encoder_syntactic_last_hidden_state=syntactic_states,
            target_receptive_fields=outputs.target_receptive_fields,
            source_receptive_fields=outputs.source_receptive_fields,
        )


def _tied_embeddings(config: DiscreteTransformerConfig) -> dict[str, str]:
    """Map each tied parameter to the parameter it is tied to."""
    tied = {"decoder.embed_tokens.weight": "shared.weight", "encoder.embed_tokens.weight": "shared.weight"}
    if config.streams == 2:
        tied["decoder.syntactic_embed_tokens.weight"] = "encoder.syntactic_embed_tokens.weight"
    return tied


def _sampling(config: DiscreteTransformerConfig, schedule: StepCount | None) -> Sampling:
    """Return the sampling settings at this step of the training."""
    sampling, steps = first_sampling(config), config.gumbel_straight_through_steps
    if schedule is None or not steps:
        return sampling
    return sampling._replace(straight_through=warmed_up(schedule.annealing_step, steps))


class _DiscreteHeadMixin(HeadMixin):
    """Mixin of the two models with a language modelling head; goes before transformers' classes in the bases."""

    _details = ("output_receptive_fields",)

    def _losses(
        self,
        name: str,
        logits: Tensor,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
        schedule: StepCount | None,
        *fields: Tensor | None,
    ) -> dict[str, Any]:
        """Return the loss, and its parts by name.

        Args:
            name: name of the cross-entropy among the losses.
            logits: logits, (B, T, V).
            labels: labels, (B, T), `-100` where there is no target.
            num_items_in_batch: divisor of the losses; `None` for the number of targets.
            schedule: count of optimiser steps, for the warm-up of the penalty.
            fields: parts of the receptive fields, (B, T, N) each, or `None`.
        """
        config, labels = self.config, labels.to(logits.device)
        if self.training and schedule is not None:
            warn_uncounted([schedule], "The schedule of sampling or of `receptive_field_penalty`")
        count = target_count(labels, num_items_in_batch)
        cross_entropy = label_smoothed_cross_entropy(logits, labels, config.label_smoothing) / count
        losses = {"loss": cross_entropy, name: cross_entropy.detach()}
        if any(part is not None for part in fields):
            size = (expected_field_size(*fields) * (labels != IGNORE_INDEX)).sum() / count
            losses["receptive_field_size"] = size.detach()
            weight: float | Tensor = config.receptive_field_penalty
            if weight and self.training:
                if config.penalty_warmup_steps and schedule is not None:
                    weight = weight * warmed_up(schedule.annealing_step, config.penalty_warmup_steps)
                losses["loss"] = cross_entropy + weight * size
        return losses

    def _needs_fields(self, requested: bool | None, labels: Tensor | None) -> bool:
        """Return True if the caller or the penalty needs receptive fields."""
        penalised = self.training and labels is not None and self.config.receptive_field_penalty > 0
        return bool(requested) or penalised


class DiscreteTransformerForConditionalGeneration(
    _DiscreteHeadMixin, DiscretePreTrainedModel, hf.MarianMTModel, GenerationMixin
):
    """The encoder-decoder with a language modelling head."""

    _auto_class: Any = "AutoModelForSeq2SeqLM"

    def __init__(self, config: DiscreteTransformerConfig):
        super(hf.MarianMTModel, self).__init__(config)
        self.model = DiscreteTransformerModel(config)
        target_vocab_size = config.decoder_vocab_size
        if config.share_encoder_decoder_embeddings:
            target_vocab_size = config.vocab_size
            tied = {f"model.{name}": f"model.{owner}" for name, owner in _tied_embeddings(config).items()}
            self._tied_weights_keys = {"lm_head.weight": "model.shared.weight", **tied}
        self.final_logits_bias = nn.Buffer(torch.zeros((1, target_vocab_size)))
        self.lm_head = nn.Linear(config.d_model, target_vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    @either_cache_name
    def forward(  # type: ignore[misc]  # `kwargs` has names of arguments, as in transformers' own models
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor, ...] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        output_receptive_fields: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | DiscreteSeq2SeqLMOutput:
        """Run the model with the penalty on receptive fields in the loss; arguments as in the stock class, and:

        Args:
            labels: target tokens, (batch, target), `-100` where there is no target.
            output_receptive_fields: True to return also the tokens that every prediction was computed from.
            num_items_in_batch: number of target tokens to divide the losses by, if this batch is a part of a larger
                one (gradient accumulation, several processes). Default: `None`, the target tokens of this batch.

        Raises:
            ValueError: see `DiscreteTransformerModel.forward`.
        """
        decoder_input_ids, use_cache = self._decoder_inputs(
            labels, use_cache, decoder_input_ids, decoder_inputs_embeds
        )
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            **named_cache(cache),
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_receptive_fields=self._needs_fields(output_receptive_fields, labels),
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        logits = logits + self.final_logits_bias.to(logits.device)
        fields = outputs.target_receptive_fields, outputs.source_receptive_fields
        losses: dict[str, Any] = {}
        if labels is not None:
            losses = self._losses("nmt_loss", logits, labels, num_items_in_batch, self.model.schedule, *fields)
        shared = {name: outputs[name] for name in outputs if name != "last_hidden_state"}
        return DiscreteSeq2SeqLMOutput(**losses, **shared, logits=logits)


class DiscreteTransformerForCausalLM(_DiscreteHeadMixin, DiscretePreTrainedModel, GenerationMixin):
    """Language model: the decoder without an encoder."""

    _auto_class: Any = "AutoModelForCausalLM"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _keys_to_ignore_on_load_missing = [r"embed_positions\.weight"]
    _keys_to_ignore_on_save = ["model.embed_positions.weight"]

    def __init__(self, config: DiscreteTransformerConfig):
        config.validate()
        config = copy.deepcopy(config)
        config.is_decoder, config.is_encoder_decoder = True, False
        # Transformers reads the numbers of layers (for caches), heads and tokens from the encoder's fields.
        config.encoder_layers, config.encoder_attention_heads = config.decoder_layers, config.decoder_attention_heads
        config.vocab_size = config.decoder_vocab_size
        super().__init__(config)
        self.model = DiscreteDecoder(config)
        self.lm_head = nn.Linear(config.d_model, config.decoder_vocab_size, bias=False)
        self.schedule = StepCount() if config.is_scheduled else None
        self.post_init()

    @can_return_tuple
    @either_cache_name
    def forward(  # type: ignore[misc]  # `kwargs` has names of arguments, as in transformers' own models
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        output_receptive_fields: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        shift_labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | DiscreteCausalLMOutput:
        """Run the model; arguments as in the causal language models of transformers, and:

        Args:
            labels: tokens of the text, (batch, length), shifted here; `-100` where there is no target.
            inputs_embeds: embeddings in place of tokens, both streams side by side.
            output_receptive_fields: True to return also the tokens that every state was computed from.
            logits_to_keep: number of last positions with logits, or indices of the positions. Default: 0, all.
            num_items_in_batch: see `DiscreteTransformerForConditionalGeneration.forward`.
            shift_labels: labels that are already shifted, for sequences in parts; used instead of `labels`.

        Raises:
            ValueError: see `DiscreteDecoder.forward`.
        """
        if shift_labels is None and labels is not None:
            # trf-ignore: TRF053 (our loss does not shift)
            shift_labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORE_INDEX)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            **named_cache(cache),
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_receptive_fields=self._needs_fields(output_receptive_fields, shift_labels),
            sampling=_sampling(self.config, self.schedule),
            return_dict=True,
            **kwargs,
        )
        hidden_states, fields = outputs.last_hidden_state, outputs.target_receptive_fields
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden_states[:, keep])
        losses: dict[str, Any] = {}
        if shift_labels is not None:
            losses = self._losses("lm_loss", logits, shift_labels, num_items_in_batch, self.schedule, fields)
        shared = {name: outputs[name] for name in outputs if name in DiscreteCausalLMOutput.__dataclass_fields__}
        return DiscreteCausalLMOutput(**losses, **shared, logits=logits)

    def _resize_token_embeddings(self, *args, **kwargs):
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        self.config.decoder_vocab_size = embeddings.weight.shape[0]
        return embeddings
