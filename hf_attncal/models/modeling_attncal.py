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
"""Base of the Marian- and BART-style models: loading and saving, extra outputs, the two losses."""

import logging as python_logging
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging

from .calibration import CountedStepsMixin, init_part, trains_mask
from .copying import CopyMechanism, CopySource, copied_ids, known_ids
from .cross_attention import AttentionContext
from .loading import WholeCheckpointMixin
from .losses import IGNORE_INDEX
from .objective import check_links, check_training, named_losses, refuse_reentrant
from .outputs import AttnCalSeq2SeqLMOutput, AttnCalSeq2SeqModelOutput
from .uam import NullSuppression, UnsupervisedAlignmentModule, source_loss, source_token_probabilities

# Models are trained with these fields and without, so that no checkpoint stands for either way.
# trf-ignore: TRF041 config.calibration, config.copy, config.guided

if TYPE_CHECKING:  # at run time the mixins go before transformers' classes
    from transformers import PreTrainedModel

    class Generating(PreTrainedModel, GenerationMixin):
        """A model that generates."""

        def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any: ...

else:
    PreTrainedModel = Generating = object

logger = logging.get_logger(__name__)


class AttnCalPreTrainedMixin(CountedStepsMixin, WholeCheckpointMixin):
    """Goes before the stock `...PreTrainedModel` in the bases."""

    # Kernels that never form the attention weights cannot calibrate them.
    _supports_flash_attn = False
    _supports_flex_attn = False

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        init_part(module, self.config, self.config.d_model, self.config.init_std)

    def _set_gradient_checkpointing(self, enable: bool = True, *args, **kwargs):
        """Where every way of switching checkpointing on ends; refuses the reentrant kind on a calibrated model.

        Raises:
            ValueError: see `refuse_reentrant`.
        """
        if enable:
            refuse_reentrant(self.config, args[0] if args else kwargs.get("gradient_checkpointing_func"), "a model")
        super()._set_gradient_checkpointing(enable, *args, **kwargs)


def check_source(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> None:
    """Refuse a source without a token.

    Raises:
        ValueError: it has length 0; the message names the argument.
    """
    source = input_ids if input_ids is not None else inputs_embeds
    if source is not None and source.shape[1] == 0:
        name = "input_ids" if input_ids is not None else "inputs_embeds"
        raise ValueError(
            f"`{name}` must have at least one source token, got shape {tuple(source.shape)}. Cross-attention over "
            "nothing is undefined: drop empty sources, or end every source with the end-of-sequence token."
        )


_SDPA_LOGGER = python_logging.getLogger("transformers.integrations.sdpa_attention")


@contextmanager
def _says_which_weights():
    """Replaces the kernel's warning that there are no weights: those of the cross-attention are returned."""

    def replace(record: python_logging.LogRecord) -> bool:
        if "output_attentions" not in record.getMessage():
            return True
        logger.warning_once(
            '`attn_implementation="sdpa"` returns the weights of the cross-attention and none of the self-attentions. '
            'Load the model with `attn_implementation="eager"` for those.'
        )
        return False

    _SDPA_LOGGER.addFilter(replace)
    try:
        yield
    finally:
        _SDPA_LOGGER.removeFilter(replace)


class AttnCalModelMixin(PreTrainedModel):
    """`forward` of the bare models: the stock one plus the details of the cross-attention."""

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attention_details: bool | None = None,
        attention_context: AttentionContext | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | AttnCalSeq2SeqModelOutput:
        """The stock model's forward.

        Args:
            output_attention_details: also return the weights before calibration, the masks and the weights of NULL.
            attention_context: given by the language model around this one.

        Raises:
            ValueError: the source has length 0.
        """
        check_source(input_ids, inputs_embeds)
        context = attention_context or AttentionContext(record_details=bool(output_attention_details))
        with_weights = kwargs.get("output_attentions", self.config.output_attentions)
        with _says_which_weights() if with_weights else nullcontext():
            outputs = super().forward(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                encoder_outputs=encoder_outputs,
                past_key_values=past_key_values,
                inputs_embeds=inputs_embeds,
                decoder_inputs_embeds=decoder_inputs_embeds,
                use_cache=use_cache,
                attention_context=context,
                return_dict=True,
                **kwargs,
            )
        details: dict[str, Any] = context.details()
        return AttnCalSeq2SeqModelOutput(**outputs, **details)


class AttnCalSeq2SeqLMMixin(Generating):
    """`forward` of the models with a language modelling head: logits and the losses."""

    config: Any
    model: Any
    lm_head: nn.Linear
    final_logits_bias: nn.Buffer
    uam: UnsupervisedAlignmentModule | None
    copying: CopyMechanism | None

    @can_return_tuple
    def forward(  # type: ignore[misc]  # in transformers' own models, too, `kwargs` has names of arguments
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple | AttnCalSeq2SeqLMOutput:
        """The stock model's forward, with both objectives of attention calibration, and those of `uam` and `guided`,
        in one `loss`.

        Args:
            labels: (batch, target), `-100` where there is no target.
            output_attention_details: also return the weights before calibration, the masks and the weights of NULL.
            output_uam_probabilities: also return what the unsupervised alignment module gives the source tokens.
            output_copy_probabilities: also return the probability of copying each source token.
            compute_mask_loss: run the second decoder pass, which the mask network learns from. `None`: in training
                mode, if there are labels and the mask network is trained (some parameter of it requires a gradient).
            num_items_in_batch: number of target tokens to divide the losses by, where this batch is a part of a larger
                one (gradient accumulation, several processes); `None` for those of this batch.
            extended_input_ids: of a model with `copy`, `input_ids` in which an unknown word may be a slot, a number
                from `vocab_size` to below `vocab_size + max_copied_tokens`; so may be a label and a token that the
                decoder reads. `None`: no source has such a word.
            copy_source: given by `generate`, which finds it once.
            links: what the head of a model with `guided` learns, which needs them in training: 1 where token t of
                `labels` is linked to source token s, else 0, (batch, target, source).
            attention_context: given by an adapter on this model.

        Raises:
            ValueError: the source has length 0; `compute_mask_loss=True` without labels or without calibration;
                `output_uam_probabilities` without `uam`; `uam` and labels without `input_ids`; `extended_input_ids` or
                `output_copy_probabilities` without `copy`, and what `copied_ids` and `check_links` refuse; in training
                what `check_training` refuses.

        The `logits` of a model with `copy` are log-probabilities, (batch, target, vocab_size + max_copied_tokens).
        """
        calibrated = self.config.calibration is not None
        if compute_mask_loss and (labels is None or not calibrated):
            raise ValueError(
                "`compute_mask_loss=True` needs `labels` and a model with `calibration`, got "
                f"`labels`={'None' if labels is None else 'given'}, `calibration`={self.config.calibration!r}."
            )
        if output_uam_probabilities and self.uam is None:
            raise ValueError("`output_uam_probabilities=True` needs a model with `uam`, got one without.")
        if output_copy_probabilities and self.copying is None:
            raise ValueError("`output_copy_probabilities=True` needs a model with `copy`, got one without.")
        if extended_input_ids is not None and self.copying is None:
            raise ValueError("`extended_input_ids` need a model with `copy`, got one without. Leave them out.")
        check_links(self.config, links, labels, input_ids.shape[1] if input_ids is not None else None)
        if self.training and torch.is_grad_enabled() and compute_mask_loss is not False:
            # Who counts the targets has had labels: the Trainer.
            check_training(self, self.config, labels, links, own_loss=num_items_in_batch is None)
        targets = None
        if labels is not None:
            if use_cache:
                logger.warning_once("`use_cache` is set to `False` because `labels` are given.")
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            targets = labels != IGNORE_INDEX
        decoder_input_ids = known_ids(decoder_input_ids, self.config)

        tables = None
        if copy_source is not None and labels is None and not output_copy_probabilities:
            tables = copy_source.search
        context = attention_context or AttentionContext(
            target_mask=targets if calibrated else None,
            record_details=bool(output_attention_details),
            copies=self.copying is not None,
            search=tables,
            guided=None if links is None else self.config.guided_attention,
        )
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            attention_context=context,
            return_dict=True,
            **kwargs,
        )
        logits, copied, copy_probabilities = self._logits(outputs.last_hidden_state), None, None
        if self.copying is not None:
            if copy_source is None:
                ids = copied_ids(self.config, input_ids, extended_input_ids)
                copy_source = self.copying.source(ids, attention_mask, outputs.encoder_last_hidden_state)
            decoded = outputs.last_hidden_state, context.copy_attentions
            target = labels, self.config.label_smoothing
            logits, loss, copy_probabilities = self.copying(logits, *decoded, copy_source, *target, context.by_tables)
            copied = loss, copy_source

        aligned: dict[str, Any] = {}
        if self.uam is not None and (labels is not None or output_uam_probabilities):
            hidden_states, with_probabilities = outputs.last_hidden_state, bool(output_uam_probabilities)
            aligned = self._aligned(self.uam, hidden_states, input_ids, attention_mask, targets, with_probabilities)
        losses: dict[str, Any] = {}
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
            uam_loss = aligned.pop("uam_loss", None)
            losses = named_losses(
                self, logits, labels, num_items_in_batch, self.config, context, decoder_inputs, uam_loss, copied, links
            )

        shared = {name: outputs[name] for name in outputs if name in AttnCalSeq2SeqLMOutput.__dataclass_fields__}
        return AttnCalSeq2SeqLMOutput(
            **losses,
            **aligned,
            **shared,
            logits=logits,
            copy_probabilities=copy_probabilities if output_copy_probabilities else None,
        )

    def _aligned(
        self,
        uam: UnsupervisedAlignmentModule,
        hidden_states: Tensor,
        input_ids: torch.LongTensor | None,
        attention_mask: Tensor | None,
        targets: Tensor | None,
        with_probabilities: bool,
    ) -> dict[str, Tensor]:
        """Return `uam_loss`, summed over sentences, and `uam_probabilities` of the unsupervised alignment module."""
        if input_ids is None:
            raise ValueError(
                "`input_ids` are needed with `labels` or `output_uam_probabilities` by a model with `uam`, got none: "
                "it predicts the tokens of the source. Pass them, beside `encoder_outputs` if those are given."
            )
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        source = input_ids.to(hidden_states.device), real.to(hidden_states.device).bool()
        logits, found = uam(hidden_states), {}
        if with_probabilities:
            found["uam_probabilities"] = source_token_probabilities(logits, *source)
        if targets is not None:
            found["uam_loss"] = source_loss(logits, targets.to(logits.device), *source, self.config.uam_scale)
        return found

    def _resize_token_embeddings(self, *args, **kwargs):
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        if self.uam is not None:
            self.uam.projection = self._get_resized_lm_head(self.uam.projection, embeddings.weight.shape[0])
        return embeddings

    def generate(self, inputs=None, generation_config=None, logits_processor=None, *args, **kwargs):
        """As transformers'; a model with `uam` never generates the token that extends targets.

        One with `copy` takes `extended_input_ids`, too, and may return numbers of slots, of which
        `hf_attncal.data.tokenizer.decode_copied` makes words.

        Raises:
            ValueError: `output_attention_details`, `output_uam_probabilities` or `output_copy_probabilities`, whose
                tensors generation would drop.
        """
        for name in ("output_attention_details", "output_uam_probabilities", "output_copy_probabilities"):
            if kwargs.get(name):
                raise ValueError(
                    f"`{name}` is not for `generate`, which would drop what it returns. Pass what was generated to "
                    f"the model: `model(input_ids, decoder_input_ids=tokens, {name}=True)`."
                )
        if self.uam is not None:
            never = NullSuppression([self.config.null_token_id], device=self.device)
            logits_processor = LogitsProcessorList([never, *(logits_processor or ())])
        if self.copying is not None:  # generation keeps the source's states, not its tokens
            ids = kwargs.get("input_ids") if inputs is None else inputs
            kwargs["extended_input_ids"] = copied_ids(self.config, ids, kwargs.get("extended_input_ids"))
        return super().generate(inputs, generation_config, logits_processor, *args, **kwargs)

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs
    ) -> tuple[Any, dict[str, Any]]:
        """As transformers'; what can be copied is found here, for all steps, and the beams of a sentence share it."""
        if self.copying is not None:
            ids, mask = model_kwargs.pop("extended_input_ids"), model_kwargs.get("attention_mask")
            states = model_kwargs["encoder_outputs"][0]
            source = self.copying.source(ids, mask, states)
            switches = self.config.calibration, self.config.leaky, self.config.gumbel
            # trf-ignore: TRF051 (no kernel is chosen here: "eager" keeps the plain computation)
            if self.config._attn_implementation != "eager" and not any(switches):
                source = self.copying.for_search(source, states, self.config.vocab_size)
            model_kwargs["copy_source"] = source
        return super()._expand_inputs_for_generation(  # type: ignore[misc]  # the protocol of transformers wants a settable `device`
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )

    def compute_transition_scores(self, sequences, scores, beam_indices=None, normalize_logits=False):
        """As transformers', of scores as wide as they are: it takes the vocabulary's size for their width."""
        width = SimpleNamespace(vocab_size=scores[0].shape[-1])
        wide = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: width))
        return GenerationMixin.compute_transition_scores(wide, sequences, scores, beam_indices, normalize_logits)

    def _encoded(self, outputs: Any) -> dict[str, Tensor | None]:
        """Return what the decoder reads of the encoder, by the names of its arguments."""
        return {"encoder_hidden_states": outputs.encoder_last_hidden_state}

    def _logits(self, hidden_states: Tensor) -> Tensor:
        logits = self.lm_head(hidden_states)
        bias = self.final_logits_bias.to(logits.device)
        # In place where that changes no bit: a (batch, target, vocabulary) tensor less.
        return logits.add_(bias) if logits.dtype == bias.dtype else logits + bias
