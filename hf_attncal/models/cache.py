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
"""Cross-attention cache layers with one tensor more: the projected keys of the mask network.

The keys `K W^K` of eq. 3 depend on the source alone, so generation projects them once per sentence. These layers carry
them through whatever happens to the cache: beams, selection, repetition, reset, offloading.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, StaticLayer

if TYPE_CHECKING:  # at run time the mixin goes before a layer of either kind
    Layer = CacheLayerMixin
else:
    Layer = object


class _MaskKeysMixin(Layer):
    """Keeps `mask_keys`, (batch, heads, source, d_k), in step with keys and values."""

    mask_keys: Tensor | None = None
    device: torch.device

    @classmethod
    def from_layer(cls, layer: Any, mask_keys: Tensor) -> "_MaskKeysMixin":
        """Return a layer of this class that owns the state of `layer`."""
        ours = cls.__new__(cls)
        ours.__dict__.update(layer.__dict__)
        ours.mask_keys = mask_keys
        return ours

    def offload(self) -> None:
        super().offload()
        if self.mask_keys is not None:
            self.mask_keys = self.mask_keys.to("cpu", non_blocking=True)

    def prefetch(self) -> None:
        super().prefetch()
        if self.mask_keys is not None and self.mask_keys.device != self.device:
            self.mask_keys = self.mask_keys.to(self.device, non_blocking=True)

    def reset(self) -> None:
        super().reset()
        self.mask_keys = None

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        super().reorder_cache(beam_idx)
        if self.mask_keys is not None:
            self.mask_keys = self.mask_keys.index_select(0, beam_idx.to(self.mask_keys.device))


class DynamicMaskedLayer(_MaskKeysMixin, DynamicLayer):
    """`DynamicLayer` with the mask network's keys."""

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if tokens_to_remove < 0 and self.mask_keys is not None:
            self.mask_keys = self.mask_keys[..., :tokens_to_remove, :]

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        if self.mask_keys is not None:
            self.mask_keys = self.mask_keys.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        if self.mask_keys is not None:
            self.mask_keys = self.mask_keys[indices, ...]


class StaticMaskedLayer(_MaskKeysMixin, StaticLayer):
    """`StaticLayer` with the mask network's keys."""


_MASKED_LAYERS: dict[type, type[_MaskKeysMixin]] = {DynamicLayer: DynamicMaskedLayer, StaticLayer: StaticMaskedLayer}


def store_mask_keys(cache: Cache, layer_idx: int, mask_keys: Tensor) -> None:
    """Put `mask_keys` into a layer that already holds keys and values, exchanging a plain layer for one of ours.

    Layers of other kinds (quantized ones, say) are left as they are; the mask keys are then projected at every step.
    """
    layer = cache.layers[layer_idx]
    if isinstance(layer, _MaskKeysMixin):
        layer.mask_keys = mask_keys
    elif type(layer) in _MASKED_LAYERS:
        cache.layers[layer_idx] = _MASKED_LAYERS[type(layer)].from_layer(layer, mask_keys)


def cached_mask_keys(cache: Cache, layer_idx: int) -> Tensor | None:
    """Return the mask keys that `store_mask_keys` kept, or `None`."""
    return getattr(cache.layers[layer_idx], "mask_keys", None)
