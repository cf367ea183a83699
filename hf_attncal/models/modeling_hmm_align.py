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
"""Statistical word aligner: hidden Markov models of both directions that share their counts (Liang et al. 2006).

It has no network and no gradients, only tables of translation counts and of jumps between links.
Shapes use B = batch, S = source tokens, T = target tokens, V = vocabulary, N = pairs of tokens with a count.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_hmm_align import HMMAlignConfig
from .functional_jumps import initial_jumps
from .hmm_tables import HMMTablesMixin
from .loading import WholeCheckpointMixin


@dataclass
class HMMAlignOutput(ModelOutput):
    """Output of `HMMAlignModel`.

    Args:
        forward_attention: p(target token t is aligned to source token s), of the direction that predicts the target,
            (B, T, S); 0 at padding.
        backward_attention: the same for the direction that predicts the source, (B, S, T).
        forward_null, backward_null: probability of NULL, (B, T) and (B, S).
        log_likelihood: log p(target | source) and log p(source | target), (B, 2).
    """

    forward_attention: Tensor | None = None
    backward_attention: Tensor | None = None
    forward_null: Tensor | None = None
    backward_null: Tensor | None = None
    log_likelihood: Tensor | None = None


class HMMAlignModel(WholeCheckpointMixin, HMMTablesMixin, PreTrainedModel):
    """Statistical (HMM) word aligner, which aligns sentence pairs by counts of a parallel text."""

    config: HMMAlignConfig
    config_class = HMMAlignConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _auto_class: Any = "AutoModel"

    def __init__(self, config: HMMAlignConfig):
        config.validate()  # fields assigned after the construction have not been checked
        super().__init__(config)
        self._make_tables()
        self.post_init()

    # trf-ignore: TRF018 (there are no modules, only tables)
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise the tables with 0 and default jumps; loaded tables are kept."""
        if isinstance(module, HMMAlignModel):
            for name, table in module.named_buffers():
                if name.endswith("jumps"):
                    init.copy_(table, initial_jumps(self.config.max_jump))
                else:
                    init.zeros_(table)

    @can_return_tuple
    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        target_input_ids: torch.LongTensor | None = None,
        target_attention_mask: Tensor | None = None,
        factor: Tensor | None = None,
        **kwargs,
    ) -> tuple | HMMAlignOutput:
        """Align the tokens of sentence pairs; neither side has an end-of-sentence token.

        Args:
            input_ids: source tokens, (B, S).
            attention_mask: 1 for real source tokens, (B, S). Default: None, all are real.
            target_input_ids: target tokens, (B, T).
            target_attention_mask: 1 for real target tokens, (B, T). Default: None, all are real.
            factor: see `posteriors`, (B, T, S).

        Raises:
            ValueError: a side is missing or empty.
        """
        alignment = self.aligned(input_ids, attention_mask, target_input_ids, target_attention_mask, factor)
        return HMMAlignOutput(**alignment._asdict())

    alignments = forward
