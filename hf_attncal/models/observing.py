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
"""Observer: a head beside a cross-attention whose weights are read and never used.

Its queries and keys are those of a head with a low-rank change; NULL takes the weight of tokens without a source. An
observer of several heads is the mean of their attention, which is computed side by side.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .functional import attention_scores, token_rows, with_null_scores

_NULL_BIAS = -4.0  # initial bias on the score of NULL


class HeadChange(nn.Module):
    """Low-rank change of the queries and keys of heads, `U D x`, initially 0.

    Args:
        embed_dim: width of the states that are projected.
        head_dim: d_k.
        rank: rank r of the change.
        heads: number of heads.
    """

    def __init__(self, embed_dim: int, head_dim: int, rank: int, heads: int = 1):
        super().__init__()
        self.rank, self._std = rank, embed_dim**-0.5
        for side in ("query", "key"):
            setattr(self, f"{side}_down", nn.Parameter(torch.empty(heads * rank, embed_dim)))
            setattr(self, f"{side}_up", nn.Parameter(torch.empty(heads * head_dim, rank)))

    def init_parameters(self) -> None:
        """Initialise D from a normal distribution and U to 0."""
        for side in ("query", "key"):
            init.normal_(getattr(self, f"{side}_down"), std=self._std)
            init.zeros_(getattr(self, f"{side}_up"))

    def forward(self, side: str, states: Tensor) -> Tensor:
        """Return the change of one head's projected `side` ("query" or "key"): (..., d_model) -> (..., d_k)."""
        # `DetachedParameters` handles `linear`: the links and the translation loss train it, the mask loss does not.
        for name in ("down", "up"):
            states = nn.functional.linear(states, getattr(self, f"{side}_{name}").to(states.dtype))
        return states


class HeadObserver(HeadChange):
    """Attention of an observer over the states of one cross-attention.

    Args:
        embed_dim, head_dim, rank: see `HeadChange`.
        null: True for NULL beside the source tokens.
        heads: numbers of the heads, each with True if the step that reads a token is shifted to its row.
        share: share of each head in the mean over all heads, also of other layers.
    """

    def __init__(
        self,
        embed_dim: int,
        head_dim: int,
        rank: int,
        null: bool,
        heads: Sequence[tuple[int, bool]] = ((0, False),),
        share: float = 1.0,
    ):
        super().__init__(embed_dim, head_dim, rank, len(heads))
        self.heads, self.share = tuple(heads), share
        # Parameters and no module: PEFT finds an adapter's weights one level below its name.
        self.null_key = nn.Parameter(torch.empty(len(heads), head_dim)) if null else None
        self.null_bias = nn.Parameter(torch.empty(len(heads))) if null else None

    def init_parameters(self) -> None:
        """Initialise the change, and NULL with little weight."""
        super().init_parameters()
        if self.null_key is not None and self.null_bias is not None:
            init.normal_(self.null_key, std=self._std)
            init.constant_(self.null_bias, _NULL_BIAS)

    def forward(self, side: str, states: Tensor) -> Tensor:
        """Return the change of each head's projected `side`: (B, T, d_model) -> (B, heads, T, d_k)."""
        down, up = (getattr(self, f"{side}_{name}").to(states.dtype) for name in ("down", "up"))
        low = nn.functional.linear(states, down).unflatten(-1, (-1, self.rank)).transpose(1, 2)
        return torch.matmul(low, up.unflatten(0, (len(self.heads), -1)).mT)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        decoder_states: Tensor,
        encoder_states: Tensor,
        scaling: float,
        real: Tensor | None = None,
    ) -> Tensor:
        """Return the weights of each head, (B, heads, T, S), or (B, heads, T, 1 + S) with NULL first.

        `softmax((q_t + U_q D_q x_t) [k_NULL; k_i + U_k D_k z_i]^T / sqrt(d_k))`, in float32 or better.

        Args:
            query: queries q of these heads of the base model, (B, heads, T, d_k).
            key: their keys k, (B, heads, S, d_k).
            decoder_states: inputs x of the cross-attention, (B, T, d_model).
            encoder_states: states z of the encoder, (B, S, d_model).
            scaling: factor of the scores.
            real: True for real source tokens, broadcastable to (B, 1, T, S). Default: `None`, all are.
        """
        query = query + self("query", decoder_states)
        scores = attention_scores(query, key + self("key", encoder_states), scaling, real)
        if self.null_key is not None:
            scores = with_null_scores(scores, query, self.null_key, scaling, self.null_bias)
        return scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(dim=-1)

    def mean(self, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the part of these heads in the mean of all: of the source tokens, (B, T, S), and of NULL, (B, T)."""
        rows = [token_rows(steps, shift) for steps, (_, shift) in zip(weights.unbind(1), self.heads, strict=True)]
        part = torch.stack(rows).sum(dim=0) * self.share
        return (part, None) if self.null_key is None else (part[..., 1:], part[..., 0])
