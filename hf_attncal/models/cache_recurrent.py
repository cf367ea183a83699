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
"""The recurrent state as the cache of `generate()`.

A recurrent decoder needs no past but its state: of every layer, and of the attentional state that is fed back. Beside
it stands what is made of the source once per sentence. All tensors have the batch first. The beams of a sentence share
its source, which is therefore kept once for each sentence: its rows are those of the state divided by the beams.
"""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


class NamedTensors(CacheLayerMixin):
    """A layer of a cache that holds tensors by name, (batch, ...) each, and the number of steps that led to them."""

    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.tensors: dict[str, Tensor] = {}
        self.steps = 0

    @property
    def rows(self) -> int:
        """Size of the batch; 0 while nothing is held."""
        return next(iter(self.tensors.values())).shape[0] if self.tensors else 0

    def put(self, steps: int, **tensors: Tensor | None) -> None:
        """Hold these tensors, after `steps` more steps."""
        self.tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self.steps += steps
        self.is_initialized = True

    def take(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.tensors = {name: tensor.index_select(0, rows.to(tensor.device)) for name, tensor in self.tensors.items()}

    def repeat(self, times: int) -> None:
        """Return every row of the batch `times` times, one after the other."""
        self.tensors = {name: tensor.repeat_interleave(times, dim=0) for name, tensor in self.tensors.items()}

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.take(beam_idx)

    def reset(self) -> None:
        self.tensors, self.steps, self.is_initialized = {}, 0, False

    def get_seq_length(self) -> int:
        return self.steps

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.steps + query_length, 0

    def offload(self) -> None:
        """A state is as small as one step: it stays where it is."""

    def prefetch(self) -> None:
        """See `offload`."""

    def lazy_initialization(self, *args) -> None:
        raise NotImplementedError("A recurrent state has no keys and values.")

    def update(self, *args, **kwargs):
        raise NotImplementedError("A recurrent state has no keys and values.")


class RecurrentCache(EncoderDecoderCache):
    """State of a recurrent decoder and its source, as `past_key_values`.

    The half of the self-attention holds the state, that of the cross-attention the source. `get_seq_length` counts the
    steps. There is no way back: what was read cannot be cropped.
    """

    def __init__(self):
        super().__init__(Cache(layers=[NamedTensors()]), Cache(layers=[NamedTensors()]))

    @property
    def state(self) -> NamedTensors:
        """State of the decoder."""
        return self.self_attention_cache.layers[0]

    @property
    def source(self) -> NamedTensors:
        """Cache of what is computed from the source once; its steps stay 0."""
        return self.cross_attention_cache.layers[0]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows; the beams of a sentence go on sharing its source where they stay together."""
        if not self.state.tensors:
            return
        beams = self.state.rows // self.source.rows if self.source.tensors else 1
        self.state.take(indices)
        if self.source.tensors:
            sentences = indices // beams
            if len(indices) % beams == 0:
                groups = sentences.view(-1, beams)
                if bool((groups == groups[:, :1]).all()):
                    sentences = groups[:, 0]
            if not torch.equal(sentences, torch.arange(self.source.rows, device=sentences.device)):
                self.source.take(sentences)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.state.repeat(repeats)

    def crop(self, tokens_to_remove: int) -> None:
        """Refused.

        Raises:
            ValueError: always, unless nothing is to be removed.
        """
        if tokens_to_remove:
            raise ValueError(
                "`crop` is not possible on a recurrent state, which does not remember the steps that led to it. Keep "
                "a copy (`copy.deepcopy`) of the cache at the step to go back to."
            )

    def activate_past_recording(self) -> None:
        """Refused, for the reason that `crop` gives.

        Raises:
            ValueError: always.
        """
        raise ValueError("a recurrent model cannot assist in generation, as its state cannot go back a step.")
