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
"""Marian with calibrated, leaky and Gumbel cross-attention: the differences from transformers' Marian."""

import math
from typing import Any

import torch
from torch import nn
from transformers.generation import GenerationMixin
from transformers.models.marian import modeling_marian as hf
from transformers.utils.output_capturing import OutputRecorder

from .configuration_attncal import AttnCalMarianConfig
from .cross_attention import CrossAttentionMixin, DecoderLayerMixin
from .modeling_attncal import AttnCalPreTrainedMixin, AttnCalSeq2SeqLMMixin

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.scale_embedding, config.share_encoder_decoder_embeddings


class AttnCalMarianCrossAttention(CrossAttentionMixin, hf.MarianAttention):  # type: ignore[misc]  # needs a context
    """`MarianAttention` with the switches."""


class AttnCalMarianDecoderLayer(DecoderLayerMixin, hf.MarianDecoderLayer):
    """`MarianDecoderLayer` with our cross-attention."""

    _cross_attention_class = AttnCalMarianCrossAttention


class AttnCalMarianPreTrainedModel(AttnCalPreTrainedMixin, hf.MarianPreTrainedModel):
    """Base of the Marian-style models, and of encoder and decoder: the nearest base class initialises weights."""

    config: AttnCalMarianConfig
    config_class = AttnCalMarianConfig
    _auto_classes = {"AutoModel": "AttnCalMarianModel", "AutoModelForSeq2SeqLM": "AttnCalMarianMTModel"}
    _no_split_modules = ["MarianEncoderLayer", "AttnCalMarianDecoderLayer"]  # trf-ignore: TRF022 (one is in `hf`)

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, hf.MarianSinusoidalPositionalEmbedding):
            # Loading through the meta device makes these fixed tables trainable; unused gradients then stop DDP.
            module.requires_grad_(False)


class AttnCalMarianEncoder(AttnCalMarianPreTrainedModel, hf.MarianEncoder):
    """`MarianEncoder` under our base class."""


class AttnCalMarianDecoder(AttnCalMarianPreTrainedModel, hf.MarianDecoder):
    """`MarianDecoder` with our layers."""

    _layer_class = AttnCalMarianDecoderLayer
    _can_record_outputs = {
        "hidden_states": AttnCalMarianDecoderLayer,
        "attentions": OutputRecorder(hf.MarianAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(AttnCalMarianCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: AttnCalMarianConfig):
        # The stock constructor would build stock layers, and layers that replace them later miss its initialisation.
        super(hf.MarianDecoder, self).__init__(config)
        self.dropout = config.dropout
        self.layerdrop = config.decoder_layerdrop
        self.padding_idx = config.pad_token_id
        self.max_target_positions = config.max_position_embeddings
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(config.decoder_vocab_size, config.d_model, self.padding_idx)
        self.embed_positions = hf.MarianSinusoidalPositionalEmbedding(
            config.max_position_embeddings, config.d_model, self.padding_idx
        )
        self.layers = nn.ModuleList([self._layer_class(config, i) for i in range(config.decoder_layers)])
        self.gradient_checkpointing = False
        self.post_init()


class AttnCalMarianModel(AttnCalMarianPreTrainedModel, hf.MarianModel):
    """`MarianModel` with calibrated, leaky and Gumbel cross-attention."""

    _auto_class: Any = "AutoModel"
    _keys_to_ignore_on_load_missing = [r"embed_positions\.weight"]  # computed; not saved with a head
    _encoder_class: type[hf.MarianEncoder] = AttnCalMarianEncoder
    _decoder_class: type[hf.MarianDecoder] = AttnCalMarianDecoder

    def __init__(self, config: AttnCalMarianConfig):
        config.validate()  # fields assigned after the construction have not been checked
        super(hf.MarianModel, self).__init__(config)
        self._tied_weights_keys = None
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = {
                "decoder.embed_tokens.weight": "shared.weight",
                "encoder.embed_tokens.weight": "shared.weight",
            }
        self.encoder = self._encoder_class(config)
        self.decoder = self._decoder_class(config)
        self.post_init()


class AttnCalMarianMTModel(AttnCalSeq2SeqLMMixin, AttnCalMarianPreTrainedModel, hf.MarianMTModel, GenerationMixin):
    """`MarianMTModel` with calibrated, leaky and Gumbel cross-attention, and both training objectives in one loss."""

    _auto_class: Any = "AutoModelForSeq2SeqLM"
    _model_class: type[AttnCalMarianModel] = AttnCalMarianModel

    def __init__(self, config: AttnCalMarianConfig):
        super(hf.MarianMTModel, self).__init__(config)
        self.model = self._model_class(config)
        target_vocab_size = config.decoder_vocab_size
        if config.share_encoder_decoder_embeddings:
            target_vocab_size = config.vocab_size
            self._tied_weights_keys = {
                "lm_head.weight": "model.shared.weight",
                "model.decoder.embed_tokens.weight": "model.shared.weight",
                "model.encoder.embed_tokens.weight": "model.shared.weight",
            }
        self.final_logits_bias = nn.Buffer(torch.zeros((1, target_vocab_size)))
        self.lm_head = nn.Linear(config.d_model, target_vocab_size, bias=False)
        self._add_parts()
        self.post_init()
