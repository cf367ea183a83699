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
"""Marian's small models: a Transformer encoder, and a decoder with a recurrent unit in place of self-attention.

Each decoder layer has a simpler simple recurrent unit (SSRU; Kim et al. 2019). Its state is one vector, so the cache
does not grow with the target. The cross-attention is our Marian's, with every switch.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.marian import modeling_marian as hf
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .cache import CACHE, LayerStatesCache, StateGenerationMixin, either_cache_name, named_cache
from .configuration_attncal import SSRUConfig
from .limits import check_one_given
from .modeling_attncal_marian import (
    AttnCalMarianCrossAttention,
    AttnCalMarianDecoder,
    AttnCalMarianDecoderLayer,
    AttnCalMarianEncoder,
    AttnCalMarianModel,
    AttnCalMarianMTModel,
    AttnCalMarianPreTrainedModel,
)

_LONGEST_EXPORTED = 4096  # steps


def ssru_states(forget: Tensor, candidate: Tensor, first: Tensor | None = None) -> Tensor:
    """Compute c_t = f_t * c_{t-1} + (1 - f_t) * x~_t for every step (Kim et al., sec. 3.1).

    Computed by doubling: after n rounds every state includes the 2^n steps up to its own, so T steps need log2(T)
    rounds. All factors are in [0, 1] and there is no division, so long targets are as exact as short ones.

    Args:
        forget: f, (B, T, d).
        candidate: x~ = W x, (B, T, d).
        first: c before the first step, (B, d). Default: `None`, 0.

    Returns:
        c, (B, T, d).
    """
    decay, states = forget, (1 - forget) * candidate
    steps = states.shape[1]
    if first is not None:
        first_state = torch.addcmul(states[:, :1], decay[:, :1], first.unsqueeze(1))
        states = torch.cat([first_state, states[:, 1:]], dim=1)
    span = 1
    # An exported graph is for any number of steps; additional rounds add nothing.
    while span < (_LONGEST_EXPORTED if torch.compiler.is_exporting() else steps):
        states = torch.addcmul(states, decay, nn.functional.pad(states, (0, 0, span, 0))[:, :steps])
        decay = decay * nn.functional.pad(decay, (0, 0, span, 0))[:, :steps]
        span *= 2
    return states


class SSRU(nn.Module):
    """f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * W x_t, h_t = relu(c_t).

    Args:
        width: d, width of states and inputs.
        layer_idx: number of the layer in the decoder, from 0.
    """

    def __init__(self, width: int, layer_idx: int | None = None):
        super().__init__()
        self.layer_idx: Any = layer_idx
        self.forget = nn.Linear(width, width)
        self.candidate = nn.Linear(width, width, bias=False)

    @either_cache_name
    def forward(
        self,
        hidden_states: Tensor,
        cache: EncoderDecoderCache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs,
    ) -> tuple[Tensor, None]:
        """Run all steps, from the state in the cache if there is one.

        Args:
            hidden_states: x, (B, T, d).
            attention_mask: boolean, (B, T); tokens with False leave the state as it is.
            cache: a `LayerStatesCache`.

        Returns:
            h, (B, T, d), and None in place of a self-attention's weights.
        """
        # A state is a sum over all steps, which half precision would round at each step.
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        forget = torch.sigmoid(self.forget(hidden_states)).to(dtype)
        if attention_mask is not None:
            forget = forget.masked_fill(~attention_mask.unsqueeze(-1), 1.0)
        memory: Any = None
        if cache is not None:
            memory = cache.self_attention_cache.layers[self.layer_idx]
        first = None if memory is None else memory.tensors.get("state")
        states = ssru_states(forget, self.candidate(hidden_states).to(dtype), first)
        if memory is not None:
            memory.put(states.shape[1], state=states[:, -1])
        return states.relu().to(hidden_states.dtype), None


_TABLE = 512  # positions


class SSRUSinusoidalPositions(hf.MarianSinusoidalPositionalEmbedding):
    """Sinusoids as in Marian: the lowest frequency is 1 / 10,000; transformers stops one step before it.

    The table has at most the first `_TABLE` positions. Later ones are computed when they are used.
    """

    def create_weight(self) -> Tensor:
        """Return sines, then cosines, (positions, d)."""
        return self._sinusoids(0, len(self.weight)).to(self.weight.dtype)

    def _sinusoids(self, first: int, end: int) -> Tensor:
        half = self.embedding_dim // 2
        rates = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000.0) / max(1, half - 1)))
        angles = torch.arange(first, end, dtype=torch.float64)[:, None] * rates
        return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, self.embedding_dim % 2))

    @torch.no_grad()
    def forward(  # type: ignore[override]  # as in the stock class
        self, input_ids_shape: torch.Size, cache_length: int = 0, position_ids: Tensor | None = None
    ) -> Tensor:
        """Return the embeddings of consecutive positions, (T, d); arguments as in the stock class."""
        end = cache_length + input_ids_shape[1]
        if position_ids is None and end > len(self.weight):
            return self._sinusoids(cache_length, end).to(self.weight)
        return super().forward(input_ids_shape, cache_length, position_ids)


class SSRUDecoderLayer(AttnCalMarianDecoderLayer):
    """`MarianDecoderLayer` with a recurrent unit in place of self-attention, and our cross-attention."""

    self_attn: Any

    def __init__(self, config: SSRUConfig, layer_idx: int | None = None):
        super().__init__(config, layer_idx)
        self.self_attn = SSRU(config.d_model, layer_idx)


class SSRUPreTrainedModel(AttnCalMarianPreTrainedModel):
    """Base of the models."""

    config: SSRUConfig
    config_class = SSRUConfig
    _auto_classes = {"AutoModel": "SSRUModel", "AutoModelForSeq2SeqLM": "SSRUForConditionalGeneration"}
    _no_split_modules = ["MarianEncoderLayer", "SSRUDecoderLayer"]  # trf-ignore: TRF022 (one is in `hf`)
    _is_stateful = True  # generation cannot take steps back
    _can_compile_fullgraph = False  # it needs a static cache, which these models do not have


class SSRUEncoder(SSRUPreTrainedModel, AttnCalMarianEncoder):
    """`MarianEncoder` with Marian's own positions."""

    def __init__(self, config: SSRUConfig):
        super().__init__(config)
        self.embed_positions = SSRUSinusoidalPositions(min(config.max_position_embeddings, _TABLE), config.d_model)
        self.post_init()


class SSRUDecoder(SSRUPreTrainedModel, AttnCalMarianDecoder):
    """`MarianDecoder` with recurrent layers. Its first input is the embedding of padding, which is 0."""

    _layer_class = SSRUDecoderLayer
    _can_record_outputs = {
        "hidden_states": SSRUDecoderLayer,
        "cross_attentions": OutputRecorder(AttnCalMarianCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: SSRUConfig):
        super().__init__(config)
        self.embed_positions = SSRUSinusoidalPositions(min(config.max_position_embeddings, _TABLE), config.d_model)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Run the decoder; arguments as in the stock class, and:

        Args:
            attention_mask: 1 for real tokens, (B, T) or (B, cached steps + T); tokens with 0 leave the states as they
                are.
            cache: a `LayerStatesCache`.

        Raises:
            ValueError: another kind of cache; not exactly one of `input_ids` and `inputs_embeds`.
        """
        check_one_given(input_ids, inputs_embeds, "decoder_")
        if cache is None and use_cache:
            cache = LayerStatesCache(self.config.decoder_layers)
        # Compared by name, because a model loaded as remote code has its own class.
        if cache is not None and type(cache).__name__ != LayerStatesCache.__name__:
            raise ValueError(
                f"`{CACHE}` must be a LayerStatesCache, got a {type(cache).__name__}. Leave it out "
                "in the first call, and pass the returned cache to the next."
            )
        embedded = (self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds) * self.embed_scale
        steps = embedded.shape[1]
        past = 0 if cache is None else cache.get_seq_length()
        hidden_states = embedded + self.embed_positions(embedded.shape[:-1], past)
        hidden_states = nn.functional.dropout(hidden_states, p=self.dropout, training=self.training)
        real = None if attention_mask is None else attention_mask[:, -steps:].bool()
        cross_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=embedded,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            if self.training and self.layerdrop > 0 and torch.rand([]) < self.layerdrop:
                continue
            hidden_states = layer(
                hidden_states,
                real,
                encoder_hidden_states,  # positional, for gradient checkpointing
                encoder_attention_mask=cross_mask,
                **named_cache(cache),
                use_cache=use_cache,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, **named_cache(cache))


class SSRUModel(SSRUPreTrainedModel, AttnCalMarianModel):
    """Encoder and decoder, without a language modelling head."""

    _auto_class: Any = "AutoModel"
    _encoder_class, _decoder_class = SSRUEncoder, SSRUDecoder

    def __init__(self, config: SSRUConfig):
        super().__init__(config)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.layer_norm_eps
        self.post_init()


class SSRUForConditionalGeneration(StateGenerationMixin, SSRUPreTrainedModel, AttnCalMarianMTModel, GenerationMixin):
    """`SSRUModel` with an output layer, both objectives of attention calibration, and `generate()`."""

    _auto_class: Any = "AutoModelForSeq2SeqLM"
    _model_class = SSRUModel

    def __init__(self, config: SSRUConfig):
        super().__init__(config)
        if config.shortlist_size:  # CODEPATH: models that were imported with their lex.*.bin
            # Where the list of each source token ends, and the tokens of all lists, one list after the other.
            self.shortlist_ends = nn.Buffer(torch.zeros(config.vocab_size, dtype=torch.int32))
            self.shortlist_tokens = nn.Buffer(torch.zeros(config.shortlist_size, dtype=torch.int32))
        self.post_init()

    def _resize_token_embeddings(self, *args, **kwargs):
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        if self.config.shortlist_size:  # CODEPATH: models with a shortlist, which new tokens are not on
            ends, last = self.shortlist_ends[: embeddings.weight.shape[0]], int(self.shortlist_ends[-1])
            self.shortlist_ends = nn.functional.pad(ends, (0, embeddings.weight.shape[0] - len(ends)), value=last)
        return embeddings

    def generate(self, inputs=None, *args, shortlist: bool = False, **kwargs):
        """Generate as the other models do.

        Args:
            shortlist: True to write only tokens that are on the shortlist of a source token in the batch, or in the
                source, which is faster: the output layer has a small part of its rows.

        Raises:
            ValueError: `shortlist` for a model without one, or without `input_ids`.
        """
        if shortlist:
            kwargs["candidates"] = self._candidates(kwargs.get("input_ids") if inputs is None else inputs)
        return super().generate(inputs, *args, **kwargs)

    def _candidates(self, ids: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens that may translate the tokens `ids`, with their rows of the output layer."""
        if ids is None or not self.config.shortlist_size:
            raise ValueError(
                "`shortlist` needs a model that was imported with its shortlist (lex.*.bin), and `input_ids`. Import "
                "it again from a folder with both files, or leave `shortlist` out."
            )
        tokens, ends = ids.unique(), nn.functional.pad(self.shortlist_ends, (1, 0))
        places = zip(ends[tokens].tolist(), ends[tokens + 1].tolist(), strict=True)
        lists = [self.shortlist_tokens[start:end] for start, end in places]
        first = torch.arange(self.config.shortlist_first, device=ids.device)
        tokens = torch.cat([first, tokens, *lists]).unique()
        return tokens, self.lm_head.weight[tokens], self.final_logits_bias[0, tokens]

    def _empty_cache(self) -> LayerStatesCache:
        return LayerStatesCache(self.config.decoder_layers)
