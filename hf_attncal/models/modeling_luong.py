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
"""Recurrent encoder-decoders with Luong attention, input feeding and the selective gate of SEASS.

Shapes use B = batch, S = source tokens, T = target steps, d = d_model.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqModelOutput
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.utils import can_return_tuple

from .cache import CACHE, StateGenerationMixin, either_cache_name, named_cache
from .configuration_luong import LuongConfig
from .luong_encoder_decoder import LuongDecoder, LuongEncoder, LuongEncoderOutput, LuongPreTrainedModel
from .modeling_attncal import AttnCalSeq2SeqLMMixin

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.share_embeddings


@dataclass
class LuongModelOutput(Seq2SeqModelOutput):
    """Output of `LuongModel`.

    Args:
        encoder_final_states: see `LuongEncoderOutput`.
    """

    encoder_final_states: Tensor | None = None


class LuongModel(LuongPreTrainedModel):
    """Encoder and decoder, without a language modelling head."""

    _auto_class: Any = "AutoModel"

    def __init__(self, config: LuongConfig):
        config.validate()  # fields assigned after the construction have not been checked
        super().__init__(config)
        self.encoder = LuongEncoder(config)
        self.decoder = LuongDecoder(config)
        shared = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self._tied_weights_keys = shared if config.share_embeddings else {}
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_embeddings:
            self.decoder.embed_tokens = value

    # trf-ignore: TRF045 (hooks would see one step of the decoder's loop at a time)
    @can_return_tuple
    @either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Any, ...] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> tuple | LuongModelOutput:
        """Encode the source, and decode the given target tokens.

        Args:
            input_ids, inputs_embeds, attention_mask: see `LuongEncoder`.
            decoder_input_ids, decoder_inputs_embeds, decoder_attention_mask: see `LuongDecoder`.
            encoder_outputs: encoder outputs in place of the source; a tuple ends with the `final_states`.
            cache: a `RecurrentCache`; the source and target tokens in it are not read again.
            **kwargs: `output_attentions`, `output_hidden_states`, and `attention_context`, the record of this pass.

        Raises:
            ValueError: see `LuongEncoder` and `LuongDecoder`.
        """
        encoded: BaseModelOutput
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **kwargs,
            )
        elif isinstance(encoder_outputs, BaseModelOutput):
            encoded = encoder_outputs
        else:
            fields: tuple[Any, ...] = encoder_outputs
            encoded = LuongEncoderOutput(
                last_hidden_state=fields[0],
                hidden_states=fields[1] if len(fields) > 2 else None,
                final_states=fields[-1] if len(fields) > 1 else None,
            )
        final_states = getattr(encoded, "final_states", None)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            encoder_final_states=final_states,
            inputs_embeds=decoder_inputs_embeds,
            cache=cache,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            return_dict=True,
            **kwargs,
        )
        return LuongModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            **named_cache(getattr(decoded, CACHE)),
            decoder_hidden_states=decoded.hidden_states,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_final_states=final_states,
        )


class LuongForConditionalGeneration(
    StateGenerationMixin, AttnCalSeq2SeqLMMixin, LuongPreTrainedModel, GenerationMixin
):
    """`LuongModel` with an output layer, both objectives of attention calibration, and `generate()`."""

    _auto_class: Any = "AutoModelForSeq2SeqLM"

    def __init__(self, config: LuongConfig):
        super().__init__(config)
        self.model = LuongModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size)
        self._add_parts()
        tied = {f"model.{name}": f"model.{owner}" for name, owner in self.model._tied_weights_keys.items()}
        if config.tie_word_embeddings:
            owner = "encoder" if config.share_embeddings else "decoder"
            tied["lm_head.weight"] = f"model.{owner}.embed_tokens.weight"
        self._tied_weights_keys = tied
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Return the labels shifted to the right, which are the decoder's inputs, (B, T)."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    def _encoded(self, outputs: LuongModelOutput) -> dict[str, Tensor | None]:
        return super()._encoded(outputs) | {"encoder_final_states": outputs.encoder_final_states}

    def _logits(self, hidden_states: Tensor) -> Tensor:
        return self.lm_head(hidden_states)

    # ---- generate() ----

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs
    ) -> tuple[Any, dict[str, Any]]:
        """Expand as transformers does, but let the beams of a sentence share its source."""
        shared = ("encoder_outputs", "attention_mask")
        source = {name: model_kwargs[name] for name in shared if name in model_kwargs}
        # False for `is_encoder_decoder` leaves the encoder's states as they are.
        input_ids, expanded = super()._expand_inputs_for_generation(expand_size, False, input_ids, **model_kwargs)
        return input_ids, expanded | source
