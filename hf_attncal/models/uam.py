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
"""Unsupervised alignment module: predicts the source token of each target step from the decoder's final states.

Shapes use B = batch, T = target steps, S = source tokens, V = the source vocabulary, d = d_model.

Source: "Unsupervised Token-wise Alignment to Improve Interpretation of Encoder-Decoder Models" (Kiyono et al., 2018).
Choices where the paper leaves something open: both losses are divided by the number of target tokens of the step,
`<null>` included, so they keep their ratio. Source and target lengths include the end of sentence, which the paper's
sources lack; a target as long as its source is not extended. `z_j` is the attentional state of a recurrent model, with
its dropout, and the last layer's output of Marian and BART. The second pass of a calibration does not use the module.
"""

import torch
from torch import Tensor, nn
from transformers.generation import SuppressTokensLogitsProcessor


def source_loss(logits: Tensor, target_mask: Tensor, input_ids: Tensor, source_mask: Tensor, scale: float) -> Tensor:
    """Return `L_src = 1/C ||sum_j q_j - sum_i x_i||_2^2` (eq. 18 without its constant), summed over the sentences.

    `q_j = softmax(logits_j)` (eq. 13).

    Args:
        logits: logits of the source vocabulary, (B, T, V).
        target_mask: True for real target steps, (B, T).
        input_ids: source tokens, (B, S).
        source_mask: True for real source tokens, (B, S).
        scale: C.

    Returns:
        A scalar.
    """
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))  # q
    predicted = probabilities.masked_fill(~target_mask.unsqueeze(-1), 0.0).sum(dim=1)  # (B, V)
    counts = torch.zeros_like(predicted).scatter_add_(1, input_ids, source_mask.to(predicted.dtype))
    return (predicted - counts).square().sum() / scale


def source_token_probabilities(logits: Tensor, input_ids: Tensor, source_mask: Tensor) -> Tensor:
    """Return `q_j[x_i]`: logits (B, T, V), input_ids (B, S), boolean source_mask (B, S) -> (B, T, S), 0 at padding.

    Each occurrence of a repeated token gets its whole probability.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    picked = logits.gather(-1, input_ids.unsqueeze(1).expand(-1, logits.shape[1], -1))
    probabilities = torch.exp(picked - torch.logsumexp(logits, dim=-1, keepdim=True))
    return probabilities.masked_fill(~source_mask.unsqueeze(1), 0.0)


class UnsupervisedAlignmentModule(nn.Module):
    """W_q and b_q (eq. 13): `forward` returns the logits of the source vocabulary, (B, T, d) -> (B, T, V).

    Raises:
        ValueError: the configuration has no `null_token_id`.
    """

    def __init__(self, config):
        super().__init__()
        if config.null_token_id is None:
            raise ValueError(
                "`uam` needs `null_token_id`, got None. `hf_attncal.data.tokenizer.null_token_id(tokenizer)` adds and "
                "returns such a token."
            )
        self.projection = nn.Linear(config.d_model, config.vocab_size)
        self.scale = config.uam_scale

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.projection(hidden_states)

    def loss(
        self, hidden_states: Tensor, targets: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None
    ) -> Tensor:
        """Return `source_loss`.

        Args:
            targets: True for real target steps, (B, T).
            The others: see `probabilities`.
        """
        source, targets = _source(input_ids, attention_mask, hidden_states.device), targets.to(hidden_states.device)
        return source_loss(self(hidden_states), targets, *source, self.scale)

    def probabilities(self, hidden_states: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """Return `source_token_probabilities`.

        Args:
            hidden_states: final states of the decoder, (B, T, d).
            input_ids: source tokens, (B, S).
            attention_mask: 1 for real tokens, (B, S); `None` if all are real.

        Raises:
            ValueError: no `input_ids`.
        """
        source = _source(input_ids, attention_mask, hidden_states.device)
        return source_token_probabilities(self(hidden_states), *source)

    @torch.no_grad()
    def start_from(self, output_layer: nn.Linear) -> None:
        """Initialise from the output layer of a trained model, so that `q_j` is the distribution of the target token.

        Words that are the same in both languages are then aligned from the start, and others are learned sooner.
        """
        self.projection.weight.copy_(output_layer.weight)
        if output_layer.bias is not None:
            self.projection.bias.copy_(output_layer.bias)


def _source(input_ids: Tensor | None, attention_mask: Tensor | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return tokens and boolean mask of a source."""
    if input_ids is None:
        raise ValueError(
            "`input_ids` are needed with `labels` or `output_uam_probabilities` by a model with `uam`, got none. "
            "Pass them, also with `encoder_outputs`."
        )
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    return input_ids.to(device), real.to(device).bool()


class NullSuppression(SuppressTokensLogitsProcessor):
    """Logits processor that suppresses the NULL token of `uam`.

    It needs its own class, because generation keeps one processor per class, and the user may set `suppress_tokens`.
    """
