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
"""Encoder and decoder of the Discrete Transformer, their outputs, and the base class of its models."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.models.marian import modeling_marian as hf
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .cache import CACHE, either_cache_name, named_cache
from .calibration import CountedStepsMixin, init_part
from .configuration_discrete import DiscreteTransformerConfig
from .discrete_layers import DiscreteAttention, DiscreteDecoderLayer, DiscreteEncoderLayer, RelativePositions
from .functional_discrete import Sampling, first_sampling, initial_fields
from .limits import check_one_given
from .loading import WholeCheckpointMixin


@dataclass
class DiscreteEncoderOutput(BaseModelOutput):
    """Output of the encoder.

    Args:
        last_hidden_state: states of the only or semantic stream.
        syntactic_last_hidden_state: states of the syntactic stream, (batch, source, d_model); `None` with one stream.
        receptive_fields: receptive fields of source positions, (batch, source, source), if requested.
    """

    syntactic_last_hidden_state: Tensor | None = None
    receptive_fields: Tensor | None = None


@dataclass
class DiscreteDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """Output of the decoder.

    Args:
        target_receptive_fields: target tokens that each step was computed from, (batch, target, target).
        source_receptive_fields: source tokens that each step was computed from, (batch, target, source).

    Both are boolean for hard attention, numbers in [0, 1] for soft or sampled attention, and None without
    `output_receptive_fields=True`. Step t reads the t-th token of `decoder_input_ids` and predicts the next one.
    """

    target_receptive_fields: Tensor | None = None
    source_receptive_fields: Tensor | None = None


class DiscretePreTrainedModel(WholeCheckpointMixin, CountedStepsMixin, hf.MarianPreTrainedModel):
    """Base of the models, and of encoder and decoder, because the nearest base class initialises weights."""

    config: DiscreteTransformerConfig
    config_class = DiscreteTransformerConfig
    _auto_classes = {
        "AutoModel": "DiscreteTransformerModel",
        "AutoModelForSeq2SeqLM": "DiscreteTransformerForConditionalGeneration",
        "AutoModelForCausalLM": "DiscreteTransformerForCausalLM",
    }
    # Kernels that never form the scores cannot select a position.
    _supports_flash_attn = False
    _supports_flex_attn = False

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        init_part(module, self.config, self.config.d_model, self.config.init_std)
        if isinstance(module, RelativePositions):
            init.zeros_(module.bias)
        elif isinstance(module, hf.MarianSinusoidalPositionalEmbedding):
            # Loading through the meta device makes these fixed tables trainable; unused gradients then stop DDP.
            module.weight.requires_grad_(False)

    def _auto_classes_of_weights(self) -> dict[str, str]:
        """Return the Auto classes that load these weights, which differ between encoder-decoder and decoder."""
        decoder_only = not self.config.is_encoder_decoder
        return {
            auto: name for auto, name in self._auto_classes.items() if (auto == "AutoModelForCausalLM") == decoder_only
        }

    # ---- the vocabulary ----

    def _resize_token_embeddings(self, *args, **kwargs):
        """Resize the embeddings of both streams."""
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        self._resize_syntactic_embeddings()
        return embeddings

    def _resize_syntactic_embeddings(self) -> None:
        """Resize every syntactic table to the size of the semantic table beside it."""
        stack: Any
        for stack in self.modules():
            if hasattr(stack, "syntactic_embed_tokens"):
                table, size = stack.syntactic_embed_tokens, stack.embed_tokens.weight.shape[0]
                stack.syntactic_embed_tokens = self._get_resized_embeddings(table, size)


def _checked_inputs(
    config: DiscreteTransformerConfig,
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    past: int | Tensor = 0,
    prefix: str = "",
) -> Tensor:
    """Return the tokens or the embeddings, whichever are given.

    Args:
        past: number of positions before them.
        prefix: prefix of the names of both arguments in messages.

    Raises:
        ValueError: both or neither are given; there are no tokens, or more tokens than positions.
    """
    check_one_given(input_ids, inputs_embeds, prefix)
    name, inputs = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
    assert inputs is not None
    if torch.compiler.is_compiling():  # the length of a static cache is a tensor, whose value a graph cannot read
        return inputs
    if inputs.shape[1] == 0:
        raise ValueError(f"`{prefix}{name}` must have at least one token: attention over nothing is undefined.")
    if past + inputs.shape[1] > config.max_position_embeddings:
        raise ValueError(
            f"`{prefix}{name}` must have at most {config.max_position_embeddings} positions "
            f"(`max_position_embeddings`), got {past + inputs.shape[1]}. Shorten or split the text."
        )
    return inputs


def _check_encoder_states(config: DiscreteTransformerConfig, *streams: Tensor | None) -> None:
    shapes = [tuple(getattr(states, "shape", ())) for states in streams if states is not None]
    if shapes != [(*shapes[0][:2], config.d_model)] * config.streams:
        raise ValueError(
            f"the encoder's states must be (batch, source, {config.d_model}) (`d_model`) for each stream (`streams`: "
            f"{config.streams}), got {shapes}. Pass the output of this model's encoder as it is."
        )


class _StackMixin(nn.Module):
    """Parts and embeddings of an encoder or a decoder; goes before the stock class in the bases."""

    config: Any
    scales_given_embeddings: bool  # True where the stock class multiplies `inputs_embeds` by the scale

    def _build(self, layer_class: Callable[..., nn.Module], layers: int, vocab_size: int, layerdrop: float) -> None:
        """Add everything that the stock constructor adds, and the second stream's table."""
        config = self.config
        self.dropout, self.layerdrop = config.dropout, layerdrop
        self.padding_idx = config.pad_token_id
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, self.padding_idx)
        if config.streams == 2:
            self.syntactic_embed_tokens = nn.Embedding(vocab_size, config.d_model, self.padding_idx)
        self.embed_positions = hf.MarianSinusoidalPositionalEmbedding(
            config.max_position_embeddings, config.d_model, self.padding_idx
        )
        self.layers = nn.ModuleList([layer_class(config, number) for number in range(layers)])
        self.gradient_checkpointing = False

    def _embedded(
        self, input_ids: Tensor | None, inputs_embeds: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return the states of both streams before the first layer.

        Args:
            input_ids: tokens, (B, T), or `None`.
            inputs_embeds: embeddings in place of tokens, both streams side by side, (B, T, streams * d_model).
            positions: position embeddings, broadcastable to (B, T, d_model).

        Raises:
            ValueError: the embeddings have another width.
        """
        streams, width, scale = self.config.streams, self.config.d_model, self.embed_scale
        if inputs_embeds is None:
            tables = (self.embed_tokens, self.syntactic_embed_tokens) if streams == 2 else (self.embed_tokens,)
            embedded = [table(input_ids) for table in tables]
        else:
            if inputs_embeds.shape[-1] != streams * width:
                raise ValueError(
                    f"`inputs_embeds` must have a width of {streams * width}, `d_model` for each of the {streams} "
                    f"streams, got {inputs_embeds.shape[-1]}. Put the embeddings of the semantic stream first."
                )
            embedded = list(inputs_embeds.split(width, dim=-1))
            scale = scale if self.scales_given_embeddings else 1.0
        states = [
            nn.functional.dropout(part * scale + positions, p=self.dropout, training=self.training)
            for part in embedded
        ]
        return states[0], states[1] if streams == 2 else None

    def _is_dropped(self) -> bool:
        """Return whether LayerDrop skips a layer."""
        return self.training and self.layerdrop > 0 and bool(torch.rand([]) < self.layerdrop)

    def _initial_fields(self, requested: bool | None, states: Tensor) -> Tensor | None:
        """Return the receptive fields before the first layer, or None if they are not requested."""
        if not requested:
            return None
        batch, length = states.shape[:2]
        if self.config.hard_attention and not self.training:
            return initial_fields(batch, length, torch.bool, states.device)
        # Fields are sums, which need at least float32.
        return initial_fields(batch, length, torch.promote_types(states.dtype, torch.float32), states.device)


class DiscreteEncoder(_StackMixin, DiscretePreTrainedModel, hf.MarianEncoder):
    """`MarianEncoder` with our layers."""

    _no_split_modules = ["DiscreteEncoderLayer"]
    scales_given_embeddings = False
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DiscreteEncoderLayer, index=0),
        "attentions": OutputRecorder(DiscreteAttention, index=1),
    }

    def __init__(self, config: DiscreteTransformerConfig):
        super(hf.MarianEncoder, self).__init__(config)
        self._build(DiscreteEncoderLayer, config.encoder_layers, config.vocab_size, config.encoder_layerdrop)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_receptive_fields: bool | None = None,
        sampling: Sampling | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DiscreteEncoderOutput:
        """Run the encoder; arguments as in the stock class, and:

        Args:
            inputs_embeds: embeddings in place of the tokens, both streams side by side.
            output_receptive_fields: True to return the receptive fields.
            sampling: sampling of positions in training. Default: `None`, as at the start of training.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds` is given, its length is 0 or more than the
                model has positions, or the embeddings have another width.
        """
        positions = self.embed_positions(_checked_inputs(self.config, input_ids, inputs_embeds).shape[:2])
        hidden_states, syntactic_states = self._embedded(input_ids, inputs_embeds, positions)
        fields = self._initial_fields(output_receptive_fields, hidden_states)
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        inputs = {**kwargs, "sampling": sampling or first_sampling(self.config)}
        for layer in self.layers:
            if not self._is_dropped():
                hidden_states, syntactic_states, fields = layer(
                    hidden_states, syntactic_states, fields, attention_mask=mask, **inputs
                )
        return DiscreteEncoderOutput(
            last_hidden_state=hidden_states, syntactic_last_hidden_state=syntactic_states, receptive_fields=fields
        )


class DiscreteDecoder(_StackMixin, DiscretePreTrainedModel, hf.MarianDecoder):
    """`MarianDecoder` with our layers; without cross-attention if the configuration has no encoder."""

    _no_split_modules = ["DiscreteDecoderLayer"]
    scales_given_embeddings = True
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DiscreteDecoderLayer, index=0),
        "attentions": OutputRecorder(DiscreteAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(DiscreteAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: DiscreteTransformerConfig):
        super(hf.MarianDecoder, self).__init__(config)
        self._build(DiscreteDecoderLayer, config.decoder_layers, config.decoder_vocab_size, config.decoder_layerdrop)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @either_cache_name
    def forward(  # type: ignore[misc]  # `kwargs` has names of arguments, as in transformers' own models
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: Tensor | None = None,
        encoder_syntactic_hidden_states: Tensor | None = None,
        encoder_receptive_fields: Tensor | None = None,
        output_receptive_fields: bool | None = None,
        sampling: Sampling | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DiscreteDecoderOutput:
        """Run the decoder; arguments as in the stock class, and:

        Args:
            position_ids: positions of the tokens, (B, T), for text with padding on the left. Default: `None`, counted
                from the cached steps on.
            inputs_embeds, output_receptive_fields, sampling: see the encoder.
            encoder_syntactic_hidden_states: encoder states of the syntactic stream, (B, S, d_model), with two streams.
            encoder_receptive_fields: receptive fields of the encoder's output, (B, S, S).

        Raises:
            ValueError: see the encoder; receptive fields are requested with a filled cache; the encoder's states have
                another shape than this model's, or its receptive fields are missing.
        """
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
            if self.config.is_encoder_decoder:
                cache = EncoderDecoderCache(cache, DynamicCache(config=self.config))
        past = cache.get_seq_length() if cache is not None else 0
        if isinstance(past, Tensor):  # each layer of a static cache advances this tensor in place
            past = past.clone()
        prefix = "decoder_" if self.config.is_encoder_decoder else ""  # the names of the model's arguments
        inputs = _checked_inputs(self.config, input_ids, inputs_embeds, past, prefix)
        batch, length = inputs.shape[:2]
        if output_receptive_fields and past > 0:
            raise ValueError(
                f"`output_receptive_fields` needs all steps at once, got {past} steps in a cache, which has no "
                f"receptive fields. Pass the whole text and no `{CACHE}`."
            )
        if encoder_hidden_states is not None:
            _check_encoder_states(self.config, encoder_hidden_states, encoder_syntactic_hidden_states)
        if position_ids is None:
            position_ids = past + torch.arange(length, device=inputs.device)
        positions = self.embed_positions((batch, length), past, position_ids=position_ids)
        hidden_states, syntactic_states = self._embedded(input_ids, inputs_embeds, positions)

        own_cache: Cache | None = cache
        if isinstance(cache, EncoderDecoderCache):
            own_cache = cache.self_attention_cache
        mask = create_causal_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask, **named_cache(own_cache)
        )
        cross_mask: Any = encoder_attention_mask
        if encoder_hidden_states is not None:
            cross_mask = create_bidirectional_mask(
                config=self.config,
                inputs_embeds=hidden_states,
                attention_mask=encoder_attention_mask,
                encoder_hidden_states=encoder_hidden_states,
            )
        target_fields, source_fields = self._initial_fields(output_receptive_fields, hidden_states), None
        if target_fields is not None and encoder_hidden_states is not None:
            if encoder_receptive_fields is None:
                raise ValueError(
                    "`output_receptive_fields` needs `encoder_receptive_fields`, got none. Call the encoder with "
                    "`output_receptive_fields=True` as well."
                )
            encoder_receptive_fields = encoder_receptive_fields.to(target_fields.dtype)
            source_fields = target_fields.new_zeros(batch, length, encoder_receptive_fields.shape[-1])
        options = {**kwargs, "sampling": sampling or first_sampling(self.config), "first_query": past}
        for layer in self.layers:
            if not self._is_dropped():
                hidden_states, syntactic_states, target_fields, source_fields = layer(
                    hidden_states,
                    syntactic_states,
                    encoder_hidden_states,
                    encoder_syntactic_hidden_states,
                    target_fields,
                    source_fields,
                    encoder_receptive_fields,
                    attention_mask=mask,
                    encoder_attention_mask=cross_mask,
                    **named_cache(cache),
                    **options,
                )
        return DiscreteDecoderOutput(
            last_hidden_state=hidden_states,
            **named_cache(cache),
            target_receptive_fields=target_fields,
            source_receptive_fields=source_fields,
        )
