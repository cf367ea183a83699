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
"""Encoder and decoder of the Discrete Transformer, and what all its models share."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.models.marian import modeling_marian as hf
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .calibration import CountedStepsMixin, init_part
from .configuration_discrete import DiscreteTransformerConfig
from .discrete_layers import DiscreteAttention, DiscreteDecoderLayer, DiscreteEncoderLayer, RelativePositions
from .functional_discrete import Sampling, first_sampling, initial_fields
from .loading import WholeCheckpointMixin
from .outputs_discrete import DiscreteDecoderOutput, DiscreteEncoderOutput

if TYPE_CHECKING:  # at run time the mixin goes before Marian's encoder or decoder

    class StockStack(nn.Module):
        """What is read of the stock encoder and decoder, and what is set in both."""

        config: Any
        embed_tokens: nn.Embedding
        syntactic_embed_tokens: nn.Embedding
        embed_scale: float
        dropout: float
        layerdrop: float

else:
    StockStack = object


class DiscretePreTrainedModel(CountedStepsMixin, WholeCheckpointMixin, hf.MarianPreTrainedModel):
    """Base of the models; encoder and decoder share it because the nearest one initialises weights."""

    config: DiscreteTransformerConfig
    config_class = DiscreteTransformerConfig
    _auto_classes = {
        "AutoModel": "DiscreteTransformerModel",
        "AutoModelForSeq2SeqLM": "DiscreteTransformerForConditionalGeneration",
        "AutoModelForCausalLM": "DiscreteTransformerForCausalLM",
    }
    # Kernels that never form the scores cannot choose among them.
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
        """An encoder-decoder has other weights than a decoder alone."""
        alone = not self.config.is_encoder_decoder
        return {auto: name for auto, name in self._auto_classes.items() if (auto == "AutoModelForCausalLM") == alone}

    # ---- the vocabulary ----

    def _resize_token_embeddings(self, *args, **kwargs):
        """As the stock class; the syntactic stream's embeddings, too."""
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        self._resize_syntactic_embeddings()
        return embeddings

    def _resize_syntactic_embeddings(self) -> None:
        """Give every syntactic table as many rows as the semantic one beside it has."""
        stack: Any
        for stack in self.modules():
            if hasattr(stack, "syntactic_embed_tokens"):
                table, size = stack.syntactic_embed_tokens, stack.embed_tokens.weight.shape[0]
                stack.syntactic_embed_tokens = self._get_resized_embeddings(table, size)


def _check_lengths(config: DiscreteTransformerConfig, name: str, length: int) -> None:
    if torch.compiler.is_compiling():  # the length in a static cache is a tensor, whose value a graph cannot ask for
        return
    if length > config.max_position_embeddings:
        raise ValueError(
            f"`{name}` must have at most {config.max_position_embeddings} positions (`max_position_embeddings`), got "
            f"{length}. Shorten or split the text."
        )
    if length == 0:
        raise ValueError(f"`{name}` must have at least one token, got none: attention over nothing is undefined.")


def _check_encoder_states(config: DiscreteTransformerConfig, states: Tensor, syntactic_states: Tensor | None) -> None:
    if states.shape[-1] != config.d_model:
        raise ValueError(
            f"the encoder's states must be (batch, source, {config.d_model}) (`d_model`), got {tuple(states.shape)}: "
            "they are those of another model. Pass those of this model's encoder."
        )
    streams = 1 if syntactic_states is None else 2
    if streams != config.streams:
        raise ValueError(
            f"the encoder's states must be of {config.streams} streams (`streams`), got {streams}. Pass the output of "
            "this model's encoder as it is: with two streams `syntactic_last_hidden_state` has the keys."
        )
    if streams == 2 and getattr(syntactic_states, "shape", None) != states.shape:
        raise ValueError(
            f"the encoder's syntactic states must be {tuple(states.shape)}, as the semantic ones, got "
            f"{tuple(getattr(syntactic_states, 'shape', ()))}. A tuple holds just these two; pass the output as it is."
        )


class _EmbeddedStreamsMixin(StockStack):
    """The embeddings of both streams; goes before the stock encoder or decoder in the bases."""

    scales_given_embeddings: bool  # as the stock class does

    def _embedded(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        syntactic_inputs_embeds: Tensor | None,
        positions: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """States of both streams before the first layer.

        Args:
            input_ids: (B, T), or `None` with embeddings of every stream in its place, (B, T, d_model).
            positions: their embeddings, broadcastable to (B, T, d_model).

        Raises:
            ValueError: both or none were given, or embeddings not for just the streams that there are.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("exactly one of `input_ids` and `inputs_embeds` must be given, got both or none.")
        needed = self.config.streams == 2 and input_ids is None
        if needed and syntactic_inputs_embeds is None:
            raise ValueError(
                "`syntactic_inputs_embeds` must be given with `inputs_embeds`, got none: each stream has embeddings "
                "of its own. Pass `input_ids`, or both."
            )
        if syntactic_inputs_embeds is not None and not needed:
            raise ValueError(
                "`syntactic_inputs_embeds` belongs to `inputs_embeds` of a model with two streams, got it with "
                f"`streams={self.config.streams}` and {'`inputs_embeds`' if input_ids is None else '`input_ids`'}. "
                "Leave it out."
            )
        return self._with_positions(self.embed_tokens, input_ids, inputs_embeds, positions), (
            None
            if self.config.streams == 1
            else self._with_positions(self.syntactic_embed_tokens, input_ids, syntactic_inputs_embeds, positions)
        )

    def _with_positions(
        self, table: nn.Embedding, input_ids: Tensor | None, embeddings: Tensor | None, positions: Tensor
    ) -> Tensor:
        scale = self.embed_scale if embeddings is None or self.scales_given_embeddings else 1.0
        states = (table(input_ids) if embeddings is None else embeddings) * scale + positions
        return nn.functional.dropout(states, p=self.dropout, training=self.training)

    def _is_dropped(self) -> bool:
        """Return whether LayerDrop skips a layer."""
        return self.training and self.layerdrop > 0 and bool(torch.rand([]) < self.layerdrop)

    def _initial_fields(self, asked: bool | None, states: Tensor) -> Tensor | None:
        """Fields before the first layer, if they were asked for."""
        if not asked:
            return None
        batch, length = states.shape[:2]
        if self.config.hard_attention and not self.training:
            return initial_fields(batch, length, torch.bool, states.device)
        # Numbers are counted with: no precision below float32.
        return initial_fields(batch, length, torch.promote_types(states.dtype, torch.float32), states.device)


class DiscreteEncoder(_EmbeddedStreamsMixin, DiscretePreTrainedModel, hf.MarianEncoder):
    """`MarianEncoder` of our layers."""

    _no_split_modules = ["DiscreteEncoderLayer"]
    scales_given_embeddings = False
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DiscreteEncoderLayer, index=0),
        "attentions": OutputRecorder(DiscreteAttention, index=1),
    }

    def __init__(self, config: DiscreteTransformerConfig):
        super(hf.MarianEncoder, self).__init__(config)
        self.dropout, self.layerdrop = config.dropout, config.encoder_layerdrop
        self.padding_idx = config.pad_token_id
        self.max_source_positions = config.max_position_embeddings
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, self.padding_idx)
        if config.streams == 2:
            self.syntactic_embed_tokens = nn.Embedding(config.vocab_size, config.d_model, self.padding_idx)
        self.embed_positions = hf.MarianSinusoidalPositionalEmbedding(
            config.max_position_embeddings, config.d_model, self.padding_idx
        )
        self.layers = nn.ModuleList([DiscreteEncoderLayer(config, i) for i in range(config.encoder_layers)])
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        syntactic_inputs_embeds: Tensor | None = None,
        output_receptive_fields: bool | None = None,
        sampling: Sampling | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DiscreteEncoderOutput:
        """The stock encoder's forward.

        Args:
            syntactic_inputs_embeds: embeddings of the syntactic stream, where `inputs_embeds` are the semantic one's.
            output_receptive_fields: return them.
            sampling: how positions are sampled in training; `None`: as at its beginning.

        Raises:
            ValueError: no tokens, or more than there are positions; embeddings for one of two streams.
        """
        given = inputs_embeds if input_ids is None else input_ids
        shape = torch.Size((0, 0)) if given is None else given.shape[:2]
        _check_lengths(self.config, "input_ids" if given is input_ids else "inputs_embeds", shape[1])
        positions = self.embed_positions(shape)
        hidden_states, syntactic_states = self._embedded(input_ids, inputs_embeds, syntactic_inputs_embeds, positions)
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


class DiscreteDecoder(_EmbeddedStreamsMixin, DiscretePreTrainedModel, hf.MarianDecoder):
    """`MarianDecoder` of our layers; without cross-attention where the configuration knows no encoder."""

    _no_split_modules = ["DiscreteDecoderLayer"]
    scales_given_embeddings = True
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DiscreteDecoderLayer, index=0),
        "attentions": OutputRecorder(DiscreteAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(DiscreteAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: DiscreteTransformerConfig):
        super(hf.MarianDecoder, self).__init__(config)
        self.dropout, self.layerdrop = config.dropout, config.decoder_layerdrop
        self.padding_idx = config.pad_token_id
        self.max_target_positions = config.max_position_embeddings
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(config.decoder_vocab_size, config.d_model, self.padding_idx)
        if config.streams == 2:
            self.syntactic_embed_tokens = nn.Embedding(config.decoder_vocab_size, config.d_model, self.padding_idx)
        self.embed_positions = hf.MarianSinusoidalPositionalEmbedding(
            config.max_position_embeddings, config.d_model, self.padding_idx
        )
        self.layers = nn.ModuleList([DiscreteDecoderLayer(config, i) for i in range(config.decoder_layers)])
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(  # type: ignore[misc]  # in transformers' own models, too, `kwargs` has names of arguments
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: Tensor | None = None,
        syntactic_inputs_embeds: Tensor | None = None,
        encoder_syntactic_hidden_states: Tensor | None = None,
        encoder_receptive_fields: Tensor | None = None,
        output_receptive_fields: bool | None = None,
        sampling: Sampling | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DiscreteDecoderOutput:
        """The stock decoder's forward.

        Args:
            position_ids: (B, T), for text that is padded on the left; `None`: one after the other.
            syntactic_inputs_embeds, output_receptive_fields, sampling: as for the encoder.
            encoder_syntactic_hidden_states: (B, S, d_model), with two streams.
            encoder_receptive_fields: (B, S, S), of the encoder's output.

        Raises:
            ValueError: as the encoder's; receptive fields of a step whose past is in a cache; the encoder's states are
                those of another model, or its receptive fields are missing.
        """
        given = inputs_embeds if input_ids is None else input_ids
        batch, length = (0, 0) if given is None else given.shape[:2]
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
            if self.config.is_encoder_decoder:
                past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if isinstance(past, Tensor):  # a static cache counts on in it, layer by layer
            past = past.clone()
        name = "input_ids" if given is input_ids else "inputs_embeds"
        name = f"decoder_{name}" if self.config.is_encoder_decoder else name  # as the model calls it
        _check_lengths(self.config, name, length and past + length)
        if output_receptive_fields and past > 0:
            raise ValueError(
                f"`output_receptive_fields` needs all steps at once, got a cache of {past} of them: what these have "
                "read is not in it. Pass the whole text and no `past_key_values`."
            )
        if encoder_hidden_states is not None:
            _check_encoder_states(self.config, encoder_hidden_states, encoder_syntactic_hidden_states)
        if position_ids is None:
            position_ids = past + torch.arange(length, device=None if given is None else given.device)
        positions = self.embed_positions((batch, length), past, position_ids=position_ids)
        hidden_states, syntactic_states = self._embedded(input_ids, inputs_embeds, syntactic_inputs_embeds, positions)

        own_cache: Cache | None = past_key_values
        if isinstance(past_key_values, EncoderDecoderCache):
            own_cache = past_key_values.self_attention_cache
        mask = create_causal_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask, past_key_values=own_cache
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
                    "`encoder_receptive_fields` must be given for `output_receptive_fields`, got none: what a source "
                    "position has read is known to the encoder. Call it with `output_receptive_fields=True`, too."
                )
            encoder_receptive_fields = encoder_receptive_fields.to(target_fields.dtype)
            source_fields = target_fields.new_zeros(batch, length, encoder_receptive_fields.shape[-1])
        inputs = {**kwargs, "sampling": sampling or first_sampling(self.config), "first_query": past}
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
                    past_key_values=past_key_values,
                    **inputs,
                )
        return DiscreteDecoderOutput(
            last_hidden_state=hidden_states,
            past_key_values=past_key_values,
            target_receptive_fields=target_fields,
            source_receptive_fields=source_fields,
        )
