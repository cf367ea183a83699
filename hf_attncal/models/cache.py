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

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_causal_mask
from transformers.utils.deprecation import deprecate_kwarg

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

# Name of the cache in arguments and outputs of transformers: `cache` from 5.24 on, `past_key_values` before.
CACHE = "cache" if "cache" in inspect.signature(create_causal_mask).parameters else "past_key_values"


def either_cache_name(forward: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """Decorate a function with an argument `cache`, so that callers may also name it `past_key_values`.

    From transformers 5.24 on the older name is deprecated, as in its own models. Before, it is the name in the
    signature, which transformers reads.
    """
    if CACHE == "cache":
        return deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")(forward)

    @functools.wraps(forward)
    def renamed(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        if CACHE in kwargs:
            kwargs.setdefault("cache", kwargs.pop(CACHE))
        return forward(*args, **kwargs)

    signature = inspect.signature(forward)
    named = [p.replace(name=CACHE) if p.name == "cache" else p for p in signature.parameters.values()]
    renamed.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return renamed


def named_cache(cache: Cache | None) -> dict[str, Any]:
    """Return a cache by its name in the installed transformers, as keyword argument."""
    return {CACHE: cache}


def keys_and_values(
    cache: Cache | None, layer: int, project: Callable[[], tuple[Tensor, Tensor]], *, is_cross_attention: bool
) -> tuple[Tensor, Tensor]:
    """Return keys and values of an attention, (B, H, S, width). A source is projected once per sentence.

    Args:
        cache: cache of the model.
        layer: number of the decoder layer.
        project: function that returns keys and values of the current states.
        is_cross_attention: True for a cross-attention.
    """
    part = cache
    if isinstance(cache, EncoderDecoderCache):
        part = cache.cross_attention_cache if is_cross_attention else cache.self_attention_cache
        if is_cross_attention and cache.is_updated.get(layer):
            stored: Any = part.layers[layer]
            return stored.keys, stored.values
    keys, values = project()
    if part is None:
        return keys, values
    if is_cross_attention and isinstance(cache, EncoderDecoderCache):
        cache.is_updated[layer] = True
    return part.update(keys, values, layer)


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
        cache = model_kwargs.get(CACHE)
        if cache is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = self._empty_cache()
        if cache is not None and cache.get_seq_length() and "decoder_attention_mask" not in model_kwargs:
            raise ValueError(
                f"`decoder_attention_mask` is needed with `{CACHE}`, got none. Pass ones for the tokens that have "
                "been read and for the new ones."
            )
