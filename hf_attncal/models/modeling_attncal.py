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
"""Base of the Marian- and BART-style models: loading and saving, and `forward` of the head."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .cache import either_cache_name, named_cache
from .calibration import CountedStepsMixin, init_part, trains_mask
from .copying import CopyMechanism, copied_ids, known_ids
from .cross_attention import AttentionContext
from .heads import HeadMixin
from .loading import WholeCheckpointMixin
from .losses import IGNORE_INDEX
from .objective import (
    AttnCalSeq2SeqLMOutput,
    CopySource,
    FirstPass,
    check_arguments,
    check_links,
    check_training,
    named_losses,
    refuse_reentrant,
)
from .uam import NullSuppression, UnsupervisedAlignmentModule

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.calibration, config.copy, config.guided, config.uam


class AttnCalPreTrainedMixin(WholeCheckpointMixin, CountedStepsMixin):
    """Mixin before the stock `...PreTrainedModel`."""

    # Kernels that never form the attention weights cannot calibrate them.
    _supports_flash_attn = False
    _supports_flex_attn = False

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        init_part(module, self.config, self.config.d_model, self.config.init_std)

    def _set_gradient_checkpointing(self, enable: bool = True, *args, **kwargs):
        """Switch checkpointing on or off; the reentrant kind is refused for a calibrated model.

        Raises:
            ValueError: see `refuse_reentrant`.
        """
        if enable:
            refuse_reentrant(self.config, args[0] if args else kwargs.get("gradient_checkpointing_func"), "a model")
        super()._set_gradient_checkpointing(enable, *args, **kwargs)


def check_source(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> None:
    """Raise an error for a source of length 0.

    Raises:
        ValueError: the source has length 0; the message names the argument.
    """
    source = input_ids if input_ids is not None else inputs_embeds
    if source is not None and source.shape[1] == 0:
        name = "input_ids" if input_ids is not None else "inputs_embeds"
        raise ValueError(
            f"`{name}` must have at least one source token, got shape {tuple(source.shape)}. Cross-attention over "
            "nothing is undefined: drop empty sources, or end every source with the end-of-sequence token."
        )


class AttnCalSeq2SeqLMMixin(HeadMixin):
    """`forward` of the models with a language modelling head: logits and the losses."""

    _details = ("output_attention_details", "output_uam_probabilities", "output_copy_probabilities")
    final_logits_bias: nn.Buffer
    uam: UnsupervisedAlignmentModule | None
    copying: CopyMechanism | None

    def _add_parts(self) -> None:
        """Add the modules of `uam` and `copy`, which read the decoder's final states."""
        self.register_module("uam", UnsupervisedAlignmentModule(self.config) if self.config.uam else None)
        self.register_module("copying", CopyMechanism(self.config) if self.config.copy else None)

    @can_return_tuple
    @either_cache_name
    def forward(  # type: ignore[misc]  # `kwargs` has names of arguments, as in transformers' own models
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        output_attention_details: bool | None = None,
        output_uam_probabilities: bool | None = None,
        output_copy_probabilities: bool | None = None,
        compute_mask_loss: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        extended_input_ids: torch.LongTensor | None = None,
        copy_source: CopySource | None = None,
        links: Tensor | None = None,
        attention_context: AttentionContext | None = None,
        candidates: tuple[Tensor, Tensor, Tensor] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | AttnCalSeq2SeqLMOutput:
        """Run the model with the losses of calibration, `uam` and `guided` in one `loss`; arguments as in the stock
        class, and:

        Args:
            labels: target tokens, (batch, target), `-100` where there is no target.
            output_attention_details: True to return also the weights before calibration, the masks and the weights of
                NULL.
            output_uam_probabilities: True to return also the probabilities of the unsupervised alignment module.
            output_copy_probabilities: True to return also the probability of copying each source token.
            compute_mask_loss: True to run the second decoder pass, from which the mask network learns. Default:
                `None`, True in training mode with labels if a parameter of the mask network requires a gradient.
            num_items_in_batch: number of target tokens to divide the losses by, if this batch is a part of a larger
                one (gradient accumulation, several processes). Default: `None`, the target tokens of this batch.
            extended_input_ids: `input_ids` of a model with `copy` in which an unknown word has the number of a slot,
                from `vocab_size` to below `vocab_size + max_copied_tokens`. `labels` and `decoder_input_ids` may have
                slots as well. Default: `None`, no source has unknown words to copy.
            copy_source: slots of the source, which `generate` computes once and passes on.
            links: word links for the guided head, required in training with `guided`: 1 if token t of `labels` is
                linked to source token s, else 0, (batch, target, source).
            attention_context: record of this pass, from an adapter on this model.
            candidates: tokens (N,) that may follow, with their rows of the output layer (N, d_model) and biases (N,),
                which `generate` computes once and passes on. The logits of others are -inf.

        Raises:
            ValueError: the source has length 0; `compute_mask_loss=True` without labels or without calibration;
                `output_uam_probabilities` without `uam`; `uam` and labels without `input_ids`; `extended_input_ids` or
                `output_copy_probabilities` without `copy`; see also `copied_ids`, `check_links` and, in training,
                `check_training`.

        The `logits` of a model with `copy` are log-probabilities, (batch, target, vocab_size + max_copied_tokens).
        """
        check_source(input_ids, inputs_embeds)
        check_arguments(
            self.config,
            labels,
            compute_mask_loss=compute_mask_loss,
            output_uam_probabilities=output_uam_probabilities,
            output_copy_probabilities=output_copy_probabilities,
            extended_input_ids=extended_input_ids,
        )
        check_links(self.config, links, labels, input_ids.shape[1] if input_ids is not None else None)
        if self.training and torch.is_grad_enabled() and compute_mask_loss is not False:
            # Only a Trainer, which has the labels, counts the target tokens.
            check_training(self, self.config, labels, links, own_loss=num_items_in_batch is None)
        decoder_input_ids, use_cache = self._decoder_inputs(
            labels, use_cache, decoder_input_ids, decoder_inputs_embeds
        )
        decoder_input_ids = known_ids(decoder_input_ids, self.config)
        context = attention_context or AttentionContext(
            target_mask=None if labels is None or self.config.calibration is None else labels != IGNORE_INDEX,
            record_details=bool(output_attention_details),
            copies=self.copying is not None,
            guided=self.config.guided_attention if links is not None or output_attention_details else None,
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
            attention_context=context,
            return_dict=True,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        if candidates is None:
            logits, copied = self._logits(hidden_states), None
        else:
            logits, copied = _logits_of(candidates, hidden_states, self.lm_head.out_features), None
        fields: dict[str, Any] = {}
        if self.copying is not None:
            if copy_source is None:
                ids = copied_ids(self.config, input_ids, extended_input_ids)
                copy_source = self.copying.source(ids, attention_mask, outputs.encoder_last_hidden_state)
            logits, loss, probabilities = self.copying(
                logits, hidden_states, copy_source, context.copy_attentions, labels, self.config.label_smoothing
            )
            copied = None if loss is None else (loss, copy_source)
            fields["copy_probabilities"] = probabilities if output_copy_probabilities else None
        if self.uam is not None and output_uam_probabilities:
            fields["uam_probabilities"] = self.uam.probabilities(hidden_states, input_ids, attention_mask)
        if labels is not None:
            decoder_inputs = None
            if compute_mask_loss or (compute_mask_loss is None and self.training and trains_mask(self)):
                decoder_inputs = {
                    "input_ids": decoder_input_ids,
                    "attention_mask": decoder_attention_mask,
                    **self._encoded(outputs),
                    "encoder_attention_mask": attention_mask,
                    "inputs_embeds": decoder_inputs_embeds,
                }
            first = FirstPass(logits, labels, context, copied, hidden_states, input_ids, attention_mask, links)
            fields |= named_losses(self, self.config, first, num_items_in_batch, decoder_inputs)
        fields |= context.details()
        shared = {name: outputs[name] for name in outputs if name in AttnCalSeq2SeqLMOutput.__dataclass_fields__}
        return AttnCalSeq2SeqLMOutput(**fields, **shared, logits=logits)

    def _resize_token_embeddings(self, *args, **kwargs):
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        if self.uam is not None:
            self.uam.projection = self._get_resized_lm_head(self.uam.projection, embeddings.weight.shape[0])
        return embeddings

    def generate(self, inputs=None, generation_config=None, logits_processor=None, *args, **kwargs):
        """Generate as transformers does, without the token that extends targets (`uam`).

        A model with `copy` also takes `extended_input_ids` and may return numbers of slots, which
        `hf_attncal.data.tokenizer.decode_copied` turns into words.
        """
        kwargs.pop("links", None)  # a Trainer passes the whole batch
        if self.uam is not None:
            never = NullSuppression([self.config.null_token_id], device=self.device)
            logits_processor = LogitsProcessorList([never, *(logits_processor or ())])
        if self.copying is not None:  # generation keeps the source's states, not its tokens
            if kwargs.get("assistant_model") is not None:
                raise ValueError(
                    "`assistant_model` must be None for a model with `copy`, which also writes slots of its source. "
                    "Use `prompt_lookup_num_tokens`."
                )
            ids = kwargs.get("input_ids") if inputs is None else inputs
            kwargs["extended_input_ids"] = copied_ids(self.config, ids, kwargs.get("extended_input_ids"))
        return super().generate(inputs, generation_config, logits_processor, *args, **kwargs)

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs
    ) -> tuple[Any, dict[str, Any]]:
        """Expand as transformers does; the beams of a sentence share the words that can be copied."""
        if self.copying is not None:
            ids, mask = model_kwargs.pop("extended_input_ids"), model_kwargs.get("attention_mask")
            model_kwargs["copy_source"] = self.copying.source(ids, mask, model_kwargs["encoder_outputs"][0])
        return super()._expand_inputs_for_generation(  # type: ignore[misc]  # the protocol of transformers wants a settable `device`
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )

    def compute_transition_scores(self, sequences, scores, beam_indices=None, normalize_logits=False):
        """Compute transition scores as transformers does, with the true width of the scores."""
        width = SimpleNamespace(vocab_size=scores[0].shape[-1])
        wide = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: width))
        return GenerationMixin.compute_transition_scores(wide, sequences, scores, beam_indices, normalize_logits)

    def _encoded(self, outputs: Any) -> dict[str, Tensor | None]:
        """Return the encoder outputs that the decoder reads, by argument name."""
        return {"encoder_hidden_states": outputs.encoder_last_hidden_state}

    def _logits(self, hidden_states: Tensor) -> Tensor:
        logits = self.lm_head(hidden_states)
        bias = self.final_logits_bias.to(logits.device)
        # In place if the result is the same to the bit, which saves a (batch, target, vocabulary) tensor.
        return logits.add_(bias) if logits.dtype == bias.dtype else logits + bias


def _logits_of(candidates: tuple[Tensor, Tensor, Tensor], hidden_states: Tensor, vocabulary: int) -> Tensor:
    tokens, weight, bias = candidates
    logits = hidden_states.new_full((*hidden_states.shape[:-1], vocabulary), -torch.inf)
    logits[..., tokens] = nn.functional.linear(hidden_states, weight, bias.to(weight.dtype))
    return logits
