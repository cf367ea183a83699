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
"""Shared code of all models with a language modelling head: labels, number of targets, checks of `generate`."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.utils import logging

from .losses import IGNORE_INDEX

if TYPE_CHECKING:  # at run time transformers' classes follow the mixin
    from transformers import GenerationMixin, PreTrainedModel

    class Generating(PreTrainedModel, GenerationMixin):
        """A model that generates."""

        def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any: ...

else:
    Generating = object

logger = logging.get_logger(__name__)


def target_count(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | int:
    """Return the divisor of losses: `num_items_in_batch`, or the number of targets if it is None."""
    count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch
    return count.to(labels.device) if isinstance(count, Tensor) else count


class HeadMixin(Generating):
    """Mixin before transformers' classes for a model with a language modelling head."""

    config: Any
    model: Any
    lm_head: torch.nn.Linear
    _details: tuple[str, ...] = ()  # arguments of `forward` whose results `generate` drops

    def _decoder_inputs(
        self, labels: Any, use_cache: bool | None, input_ids: Any, inputs_embeds: Tensor | None
    ) -> tuple[Any, bool | None]:
        """Return the decoder's input tokens, and True if it uses a cache, which it does not with labels."""
        if labels is None:
            return input_ids, use_cache
        if use_cache:
            logger.warning_once("`use_cache` is set to `False` because `labels` are given.")
        if input_ids is None and inputs_embeds is None:
            input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        return input_ids, False

    def generate(self, *args, **kwargs):
        """Generate as in transformers.

        Raises:
            ValueError: an argument of `forward` whose results `generate` drops.
        """
        for name in self._details:
            if kwargs.get(name):
                raise ValueError(
                    f"`{name}` cannot be used in `generate`, which drops its results. Pass the generated tokens to "
                    f"the model with `{name}=True`."
                )
        return super().generate(*args, **kwargs)
