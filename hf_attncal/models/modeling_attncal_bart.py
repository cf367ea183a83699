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
"""BART with calibrated, leaky and Gumbel cross-attention: the differences from transformers' BART."""

import math
from typing import Any

import torch
from torch import nn
from transformers.generation import GenerationMixin
from transformers.models.bart import modeling_bart as hf
from transformers.utils.output_capturing import OutputRecorder

from .configuration_attncal import AttnCalBartConfig
from .cross_attention import CrossAttentionMixin, DecoderLayerMixin
from .modeling_attncal import AttnCalPreTrainedMixin, AttnCalSeq2SeqLMMixin

# No checkpoint needs these fields set: models are trained with them and without.
# trf-ignore: TRF041 config.scale_embedding


class AttnCalBartCrossAttention(CrossAttentionMixin, hf.BartAttention):  # type: ignore[misc]  # needs a context
    """`BartAttention` with the switches."""


class AttnCalBartDecoderLayer(DecoderLayerMixin, hf.BartDecoderLayer):
    """`BartDecoderLayer` with our cross-attention."""

    _cross_attention_class = AttnCalBartCrossAttention


class AttnCalBartPreTrainedModel(AttnCalPreTrainedMixin, hf.BartPreTrainedModel):
    """Base of the BART-style models, and of encoder and decoder: the nearest base class initialises weights."""

    config: AttnCalBartConfig
    config_class = AttnCalBartConfig
    _auto_classes = {"AutoModel": "AttnCalBartModel", "AutoModelForSeq2SeqLM": "AttnCalBartForConditionalGeneration"}
    _no_split_modules = ["BartEncoderLayer", "AttnCalBartDecoderLayer"]  # trf-ignore: TRF022 (one is in `hf`)


class AttnCalBartEncoder(AttnCalBartPreTrainedModel, hf.BartEncoder):
    """`BartEncoder` under our base class."""


class AttnCalBartDecoder(AttnCalBartPreTrainedModel, hf.BartDecoder):
    """`BartDecoder` with our layers."""

    _can_record_outputs = {
        "hidden_states": AttnCalBartDecoderLayer,
        "attentions": OutputRecorder(hf.BartAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(AttnCalBartCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: AttnCalBartConfig):
        # The stock constructor would build stock layers, and layers that replace them later miss its initialisation.
        super(hf.BartDecoder, self).__init__(config)
        self.dropout = config.dropout
        self.layerdrop = config.decoder_layerdrop
        self.padding_idx = config.pad_token_id
        self.max_target_positions = config.max_position_embeddings
        embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = hf.BartScaledWordEmbedding(
            config.vocab_size, config.d_model, self.padding_idx, embed_scale=embed_scale
        )
        self.embed_positions = hf.BartLearnedPositionalEmbedding(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList([AttnCalBartDecoderLayer(config, i) for i in range(config.decoder_layers)])
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()


class AttnCalBartModel(AttnCalBartPreTrainedModel, hf.BartModel):
    """`BartModel` with calibrated, leaky and Gumbel cross-attention."""

    _auto_class: Any = "AutoModel"

    def __init__(self, config: AttnCalBartConfig):
        config.validate()  # fields assigned after the construction have not been checked
        super(hf.BartModel, self).__init__(config)
        embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.shared = hf.BartScaledWordEmbedding(
            config.vocab_size, config.d_model, config.pad_token_id, embed_scale=embed_scale
        )
        self.encoder = AttnCalBartEncoder(config)
        self.decoder = AttnCalBartDecoder(config)
        self.post_init()


class AttnCalBartForConditionalGeneration(
    AttnCalSeq2SeqLMMixin, AttnCalBartPreTrainedModel, hf.BartForConditionalGeneration, GenerationMixin
):
    """`BartForConditionalGeneration` with calibrated, leaky and Gumbel cross-attention, and both objectives."""

    _auto_class: Any = "AutoModelForSeq2SeqLM"

    def __init__(self, config: AttnCalBartConfig):
        super(hf.BartForConditionalGeneration, self).__init__(config)
        self.model = AttnCalBartModel(config)
        self.final_logits_bias = nn.Buffer(torch.zeros((1, config.vocab_size)))
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self._add_parts()
        self.post_init()
