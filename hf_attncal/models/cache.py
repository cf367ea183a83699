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
"""Caches of `generate()`: keys and values of an attention, and the state of a recurrent decoder.

A recurrent decoder needs only the last state of each layer, and the attentional state that is fed back. The cache also
has the tensors computed once per source sentence. All tensors have the batch first. The beams of a sentence share its
source, so the source has one row per sentence and the state one row per beam.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache


def keys_and_values(
    past_key_values: Cache | None,
    layer: int,
    project: Callable[[], tuple[Tensor, Tensor]],
    *,
    is_cross_attention: bool,
) -> tuple[Tensor, Tensor]:
    """Return keys and values of an attention, (B, H, S, width). A source is projected once per sentence.

    Args:
        past_key_values: cache of the model.
        layer: number of the decoder layer.
        project: function that returns keys and values of the current states.
        is_cross_attention: True for a cross-attention.
    """
    cache = past_key_values
    if isinstance(past_key_values, EncoderDecoderCache):
        cache = past_key_values.cross_attention_cache if is_cross_attention else past_key_values.self_attention_cache
        if is_cross_attention and past_key_values.is_updated.get(layer):
            stored: Any = cache.layers[layer]
            return stored.keys, stored.values
    keys, values = project()
    if cache is None:
        return keys, values
    if is_cross_attention and isinstance(past_key_values, EncoderDecoderCache):
        past_key_values.is_updated[layer] = True
    return cache.update(keys, values, layer)


class NamedTensors(CacheLayerMixin):
    """Cache layer with named tensors, (batch, ...) each, and the number of steps so far."""

    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.tensors: dict[str, Tensor] = {}
        self.steps = 0

    @property
    def rows(self) -> int:
        """Size of the batch; 0 while the layer is empty."""
        return next(iter(self.tensors.values())).shape[0] if self.tensors else 0

    def put(self, steps: int, **tensors: Tensor | None) -> None:
        """Store these tensors, and add `steps` to the number of steps."""
        self.tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self.steps += steps
        self.is_initialized = True

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.tensors = {n: tensor.index_select(0, indices.to(tensor.device)) for n, tensor in self.tensors.items()}

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row of the batch `repeats` times, one after the other."""
        self.tensors = {name: tensor.repeat_interleave(repeats, dim=0) for name, tensor in self.tensors.items()}

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.batch_select_indices(beam_idx)

    def reset(self) -> None:
        self.tensors, self.steps, self.is_initialized = {}, 0, False

    def get_seq_length(self) -> int:
        return self.steps

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.steps + query_length, 0

    def offload(self) -> None:
        """Do nothing, because a state is as small as one step."""

    def prefetch(self) -> None:
        """See `offload`."""

    def lazy_initialization(self, *args) -> None:
        raise NotImplementedError("A recurrent state has no keys and values.")

    def update(self, *args, **kwargs):
        raise NotImplementedError("A recurrent state has no keys and values.")


class StateCache(EncoderDecoderCache):
    """Cache with recurrent states in place of the self-attention's. It cannot be cropped."""

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error, unless `tokens_to_remove` is 0.

        Raises:
            ValueError: `tokens_to_remove` is not 0.
        """
        if tokens_to_remove:
            raise ValueError(
                "A recurrent state cannot be cropped, because it does not keep its earlier steps. Keep a copy "
                "(`copy.deepcopy`) of the cache at the step to return to."
            )

    def activate_past_recording(self) -> None:
        """Raise an error, because a state cannot return to an earlier step.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "A recurrent model cannot be an assistant model, because it cannot return to an earlier step."
        )


class LayerStatesCache(StateCache):
    """Cache of a recurrent decoder with a Transformer's cross-attentions: one state per layer.

    Its size does not grow with the target. The cross-attention part has keys and values of the source, and the keys of
    the mask network.

    Args:
        layers: number of decoder layers.
    """

    def __init__(self, layers: int):
        super().__init__(Cache(layers=[NamedTensors() for _ in range(layers)]), DynamicCache())


class RecurrentCache(StateCache):
    """Cache of a recurrent decoder: its state (as self-attention cache) and its source (as cross-attention cache).

    `get_seq_length` returns the number of steps.
    """

    def __init__(self):
        #: State of the decoder.
        self.state = NamedTensors()
        #: Tensors computed once from the source; its steps stay 0.
        self.source = NamedTensors()
        super().__init__(Cache(layers=[self.state]), Cache(layers=[self.source]))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows. The beams of a sentence still share its source if they stay together."""
        if not self.state.tensors:
            return
        beams = self.state.rows // self.source.rows if self.source.tensors else 1
        self.state.batch_select_indices(indices)
        if self.source.tensors:
            sentences = indices // beams
            if len(indices) % beams == 0:
                groups = sentences.view(-1, beams)
                if bool((groups == groups[:, :1]).all()):
                    sentences = groups[:, 0]
            if not torch.equal(sentences, torch.arange(self.source.rows, device=sentences.device)):
                self.source.batch_select_indices(sentences)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.state.batch_repeat_interleave(repeats)


class StateGenerationMixin:
    """Mixin before `GenerationMixin` for a model that generates with one kind of cache, made by `_empty_cache`."""

    def _empty_cache(self) -> StateCache:
        return RecurrentCache()

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict[str, Any], *args) -> Any:
        """Create the cache. Returns None, as transformers does in spite of its type.

        Raises:
            ValueError: `cache_implementation` is set, or a filled cache comes without `decoder_attention_mask`.
        """
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                "`cache_implementation` must be None for a recurrent model, got "
                f"{generation_config.cache_implementation!r}."
            )
        cache = model_kwargs.get("past_key_values")
        if cache is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = self._empty_cache()
        if cache is not None and cache.get_seq_length() and "decoder_attention_mask" not in model_kwargs:
            raise ValueError(
                "`decoder_attention_mask` is needed with `past_key_values`, got none. Pass ones for the tokens that "
                "have been read and for the new ones."
            )
