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
"""Encoder and decoder of the recurrent models with Luong attention, and the base class of these models.

Shapes use B = batch, S = source tokens, T = target steps, d = d_model. The state of a stack of layers is
(B, layers, n, d): h and c of an LSTM (n = 2), h of a GRU.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple

from .cache import CACHE, RecurrentCache, either_cache_name, named_cache
from .calibration import init_part
from .configuration_luong import LuongConfig
from .cross_attention import AttentionContext
from .limits import check_one_given
from .luong_attention import LuongAttention, Source
from .luong_layers import LuongDecoderLayer, LuongEncoderLayer, Padding, SelectiveGate
from .modeling_attncal import AttnCalPreTrainedMixin, check_source


@dataclass
class LuongEncoderOutput(BaseModelOutput):
    """Output of the encoder.

    Args:
        final_states: the last state of every layer, both directions merged, (B, layers, n, d).
    """

    final_states: Tensor | None = None


class LuongPreTrainedModel(AttnCalPreTrainedMixin, PreTrainedModel):
    """Base of the models: initialisation, and settings for transformers."""

    config: LuongConfig
    config_class = LuongConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    input_modalities = ("text",)  # type: ignore[assignment]  # a tuple, as in transformers' own models
    _auto_classes = {"AutoModel": "LuongModel", "AutoModelForSeq2SeqLM": "LuongForConditionalGeneration"}
    # The decoder uses weights of its layers and attention outside their `forward`, so all must be on one device.
    _no_split_modules = ["LuongEncoderLayer"]
    # Steps run one after the other and take nearly all of the time: computing them twice would double it.
    supports_gradient_checkpointing = False
    _supports_sdpa = False
    _is_stateful = True  # generation cannot take steps back

    @torch.no_grad()
    def _init_weights(self, module):
        """Initialise matrices uniformly (Luong et al.) and biases with 0, the forget gates of an LSTM with 1."""
        bound = self.config.init_range
        if isinstance(module, (nn.Linear, nn.Embedding)):
            init.uniform_(module.weight, -bound, bound)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.RNNBase):
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    init.uniform_(parameter, -bound, bound)
                else:
                    init.zeros_(parameter)
                    if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
                        init.ones_(parameter[module.hidden_size : 2 * module.hidden_size])
        init_part(module, self.config, self.config.d_model, bound / 3**0.5)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return the tied parameters; transformers would tie none if the output layer has its own table."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        decoder = self.get_decoder()
        if not self.config.share_embeddings:
            decoder.embed_tokens = self._get_resized_embeddings(
                decoder.embed_tokens, new_num_tokens, pad_to_multiple_of, mean_resizing
            )
        return super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)


class LuongEncoder(LuongPreTrainedModel):
    """Recurrent layers; padding changes no state, at any position."""

    def __init__(self, config: LuongConfig):
        super().__init__(config)
        embedding_size: Any = config.embedding_size  # the configuration has replaced None by a number
        self.embed_tokens = nn.Embedding(config.vocab_size, embedding_size)
        sizes = [embedding_size] + [config.d_model] * (config.encoder_layers - 1)
        self.layers = nn.ModuleList(LuongEncoderLayer(config, size) for size in sizes)
        self.gate = SelectiveGate(config) if config.selective_gate else None
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> tuple | LuongEncoderOutput:
        """Encode the source; the states of padding are 0.

        Args:
            input_ids: source tokens, (B, S).
            attention_mask: 1 for real tokens, (B, S). Default: `None`, all are real.
            inputs_embeds: embeddings in place of the tokens, (B, S, embedding_size).
            output_hidden_states: True to return the states of every layer.

        Raises:
            ValueError: the source has length 0, or not exactly one of `input_ids` and `inputs_embeds` is given.
        """
        check_one_given(input_ids, inputs_embeds)
        check_source(input_ids, inputs_embeds)
        embedded = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        all_states = [embedded]
        padding = Padding(attention_mask, embedded)
        states, finals = padding.real_first(embedded), []
        for layer in self.layers:
            states, final, sentence = layer(self.dropout(states), padding)
            finals.append(final)
            if output_hidden_states:
                all_states.append(padding.back(states))
        states = all_states[-1] if output_hidden_states else padding.back(states)
        if self.gate is not None:
            states = all_states[-1] = self.gate(states, sentence)
        return LuongEncoderOutput(
            last_hidden_state=states,
            hidden_states=tuple(all_states) if output_hidden_states else None,
            final_states=torch.stack(finals, dim=1),
        )


class LuongDecoder(LuongPreTrainedModel):
    """Recurrent layers, attention over the source, and the attentional state."""

    def __init__(self, config: LuongConfig):
        super().__init__(config)
        embedding_size: Any = config.embedding_size
        self.embed_tokens = nn.Embedding(config.vocab_size, embedding_size)
        first = embedding_size + (config.d_model if config.input_feeding else 0)
        sizes = [first] + [config.d_model] * (config.decoder_layers - 1)
        self.layers = nn.ModuleList(LuongDecoderLayer(config, size) for size in sizes)
        self.attention = None if config.attention_window is None else LuongAttention(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    @either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        encoder_final_states: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        attention_context: AttentionContext | None = None,
        **kwargs,
    ) -> tuple | BaseModelOutputWithPastAndCrossAttentions:
        """Decode target tokens, from the encoder's last states or from a cache.

        Args:
            input_ids: target tokens, (B, T).
            attention_mask: 1 for real tokens, (B, T). Padding is allowed only at the end, where it changes no output
                of a real token.
            encoder_hidden_states: encoder states, (R, S, d), for R sentences with B / R target rows each. This and the
                next two are not read if the cache has a state.
            encoder_attention_mask: 1 for real source tokens, (R, S).
            encoder_final_states: last states of the encoder, (R, encoder layers, n, d).
            cache: a `RecurrentCache`.
            The others: see the decoders of transformers.

        Raises:
            ValueError: padding in front of target tokens; another kind of cache; no encoder states; not exactly one of
                `input_ids` and `inputs_embeds`.
        """
        config = self.config
        check_one_given(input_ids, inputs_embeds, "decoder_")
        _check_target_mask(attention_mask)
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        context = attention_context or AttentionContext()
        embedded = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if cache is not None and not isinstance(cache, RecurrentCache):
            raise ValueError(
                f"`{CACHE}` must be a RecurrentCache, got a {type(cache).__name__}. Leave it out in the first "
                "call, and pass the returned cache to the next."
            )
        if cache is None and use_cache:
            cache = RecurrentCache()

        if cache is not None and cache.state.tensors:
            state, fed = cache.state.tensors["state"], cache.state.tensors.get("fed")
            source = Source(**cache.source.tensors) if self.attention is not None else None
        else:
            states, final_states = _checked_states(encoder_hidden_states, encoder_final_states, len(embedded))
            state, fed = self._first_state(final_states, len(embedded)), None
            source = None
            if self.attention is not None:
                source = self.attention.read_source(states, encoder_attention_mask, context)
                if cache is not None:
                    cache.source.put(0, **source._asdict())
        first_step = 0 if cache is None else cache.get_seq_length()

        inputs = self.dropout(embedded)
        run = self._run_fed if config.input_feeding else self._run
        all_states, hidden, weights, state, fed = run(inputs, state, fed, source, first_step, context)
        if cache is not None:
            cache.state.put(inputs.shape[1], state=state, fed=fed)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden,
            **named_cache(cache),
            hidden_states=(embedded, *all_states) if output_hidden_states else None,
            cross_attentions=(weights,) if output_attentions and weights is not None else None,
        )

    def _first_state(self, final_states: Tensor, batch: int) -> Tensor:
        """Return the initial state of the decoder, (B, decoder layers, n, d); see `LuongConfig.decoder_layers`."""
        missing = self.config.encoder_layers - self.config.decoder_layers
        layers = [max(0, layer + missing) for layer in range(self.config.decoder_layers)]
        return final_states[:, layers].repeat_interleave(batch // len(final_states), dim=0)

    def _run(self, inputs, state, fed, source, first_step, context):
        """Run all steps at once, without input feeding."""
        all_states, last = [], []
        for number, layer in enumerate(self.layers):
            inputs, end = layer(self.dropout(inputs) if number else inputs, state[:, number])
            all_states.append(inputs)
            last.append(end)
        weights = None
        if self.attention is not None:
            inputs, weights = self.attention(inputs, source, first_step, context)
        return all_states, self.dropout(inputs), weights, torch.stack(last, dim=1), None

    def _run_fed(self, inputs, state, fed, source, first_step, context):
        """Run the steps one by one, each with the attentional state of the step before (0 at first) as input."""
        fed = inputs.new_zeros(len(inputs), self.config.d_model) if fed is None else fed
        states = list(state.unbind(1))
        tokens = inputs.unbind(1)
        steps = self.attention.split(context, len(tokens))
        outputs = []  # one tuple per step: h of every layer, h~, weights
        for number, (token, step) in enumerate(zip(tokens, steps, strict=True)):
            hidden, layers = torch.cat((token, fed), dim=-1), []
            for depth, layer in enumerate(self.layers):
                hidden, states[depth] = layer.step(self.dropout(hidden) if depth else hidden, states[depth])
                layers.append(hidden)
            attentional, weights = self.attention(hidden.unsqueeze(1), source, first_step + number, step)
            fed = self.dropout(attentional.squeeze(1))
            outputs.append((layers, fed, weights))
        all_layers, attentional, weights = zip(*outputs, strict=True)
        all_states = [torch.stack(layer, dim=1) for layer in zip(*all_layers, strict=True)]
        self.attention.join(steps, source, context)
        return all_states, torch.stack(attentional, dim=1), torch.cat(weights, dim=2), torch.stack(states, dim=1), fed


def _check_target_mask(mask: Tensor | None) -> None:
    if mask is not None and mask.dim() == 2 and bool((mask[:, 1:] > mask[:, :-1]).any()):
        raise ValueError(
            "`decoder_attention_mask` must have padding only at the end of each row, got padding in front of target "
            "tokens. Pad at the end; to continue prefixes, generate those of one length at a time."
        )


def _checked_states(states: Tensor | None, final_states: Tensor | None, batch: int) -> tuple[Tensor, Tensor]:
    """Return the encoder's states and final states after checking them against the number of target rows."""
    if states is None or final_states is None:
        raise ValueError(
            "`encoder_outputs` must have `last_hidden_state` and `final_states`, the initial state of the decoder. "
            "Pass the outputs of the model's own encoder."
        )
    if batch % len(states):
        raise ValueError(
            f"`decoder_input_ids` must have the same number of rows for each source, got {batch} rows for "
            f"{len(states)} sources."
        )
    return states, final_states
