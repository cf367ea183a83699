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
"""Prediction and alignment of the hidden tokens of a Mask-Align direction: two modules with one interface.

`AttentionPrediction` is the paper's (Chen et al., ACL 2021), `MixturePrediction` a latent alignment (Deng et al.,
NeurIPS 2018). Each has the only cross-attention of its direction and all layers after it.

Shapes use B = batch, S = tokens of the side that is read ("source"), T = tokens of the side that is predicted
("target"), H = heads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .configuration_mask_align import MaskAlignConfig
from .functional_jumps import JumpPosterior, initial_jumps, jump_posterior
from .functional_mask_align import mixture_log_likelihood
from .losses import label_smoothed_cross_entropy
from .mask_align_layers import (
    MaskAlignCrossAttention,
    MaskAlignFeedForward,
    MaskAlignReadingAttention,
    RealTokens,
    at_least_float32,
)

# Smallest sum of the weights of source tokens that they are divided by; below it all attention is on NULL.
_SMALLEST_ATTENTION = 1e-9


@dataclass
class Side:
    """One language of a batch of sentence pairs, N tokens long.

    Args:
        ids: tokens, (B, N).
        real: True for tokens other than padding, (B, N).
        packing: index of the real tokens.
        tokens: token embeddings, (B, N, d_model).
        positions: position embeddings, (N, d_model).
        embedded: sum of both, with dropout.
        vocabulary: embedding table, (vocabulary, d_model).
        frequency: relative frequency of each entry in the training text.
    """

    ids: Tensor
    real: Tensor
    packing: RealTokens
    tokens: Tensor
    positions: Tensor
    embedded: Tensor
    vocabulary: Tensor
    frequency: Tensor


@dataclass
class Evidence:
    """Inputs of the prediction of one direction.

    Args:
        source: side that the direction reads.
        target: side that it predicts.
        states: encoder states, (B, S, d_model).
        query: decoder queries, (B, T, d_model).
        weights: weights of the cross-attention, (B, H, T, 1 + S), NULL first.
    """

    source: Side
    target: Side
    states: Tensor
    query: Tensor
    weights: Tensor


@dataclass
class Prediction:
    """Prediction of one direction.

    Args:
        loss: negative log-likelihood per real target token.
        weights: aligning weights, (B, T, 1 + S), NULL first.
        accuracy: share of the real target tokens that are predicted correctly.
        normalizer_penalty: mean of `log Z ** 2` over source tokens for a mixture, else 0.
    """

    loss: Tensor
    weights: Tensor
    accuracy: Tensor | None
    normalizer_penalty: Tensor | float = 0.0


def sampled_types(ids: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token types among `ids`, and the log-probability of each to be among them, (types,) both.

    Sampled softmax subtracts it from the logit of a type (Bengio and Senecal 2008). A type with frequency f is among n
    tokens with probability `1 - (1 - f) ** n`.

    Args:
        ids: tokens from a text with these relative frequencies, (tokens,).
        frequency: relative frequency of each type, (vocabulary,).
    """
    types = torch.unique(ids)
    log_absence = len(ids) * torch.log1p(-frequency[types].double().clamp(max=1 - 1e-9))
    return types, torch.log(-torch.expm1(log_absence).clamp(max=-1e-9)).to(at_least_float32(frequency))


class MaskAlignPrediction(nn.Module):
    """Base class: a cross-attention, and an output layer over the embeddings of the predicted language.

    Attributes:
        feeds_forward: True if the subclass has the feed-forward network of the last decoder layer.
    """

    feeds_forward: bool

    def __init__(self, config: MaskAlignConfig, cross_attn: MaskAlignCrossAttention):
        super().__init__()
        self.config = config
        self.cross_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.cross_attn = cross_attn
        self.output_layer_norm = nn.LayerNorm(config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)

    def init_parameters(self) -> None:
        """Initialise the parameters that belong to no sub-module."""
        nn.init.zeros_(self.output_bias)

    def attend(self, source: Side, target: Side, states: Tensor, query: Tensor) -> Evidence:
        """Compute the weights of the cross-attention, and return all inputs of the prediction.

        Args:
            source: side that the direction reads.
            target: side that it predicts.
            states: encoder states, (B, S, d_model).
            query: decoder queries, (B, T, d_model).
        """
        weights = self.cross_attn.weights(self.cross_attn_layer_norm(query), states, target.real, source.real)
        return Evidence(source, target, states, query, weights)

    def aligning_weights(self, evidence: Evidence) -> Tensor:
        """Return the aligning weights, (B, T, 1 + S), without a softmax over the vocabulary."""
        raise NotImplementedError

    def losses(self, evidence: Evidence) -> Prediction:
        """Predict every real target token."""
        raise NotImplementedError

    def output_layer(self, target: Side) -> tuple[Tensor, Tensor, Tensor]:
        """Return the vectors (C, d_model) and biases (C,) of C candidates, and the labels (B, T)."""
        bias, dtype = self.output_bias, at_least_float32(self.output_bias)
        if not (self.training and self.config.sampled_softmax):
            return target.vocabulary, bias.to(dtype), target.ids
        types, log_probability = sampled_types(target.ids[target.real], target.frequency)
        places = torch.zeros(len(bias), dtype=torch.long, device=types.device)
        places[types] = torch.arange(len(types), device=types.device)
        return target.vocabulary[types], bias[types].to(dtype) - log_probability, places[target.ids]


class AttentionPrediction(MaskAlignPrediction):
    """Prediction of a token from the attended states; the attention is its alignment (Mask-Align, sec. 3.2).

    The cross-attention stands between the self-attention and the feed-forward network of the last decoder layer. Its
    values and the network are in this class, because aligning needs neither.
    """

    feeds_forward = True
    cross_attn: MaskAlignReadingAttention

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config, MaskAlignReadingAttention(config))
        self.ffn = MaskAlignFeedForward(config)

    def aligning_weights(self, evidence: Evidence) -> Tensor:
        """Return the mean over heads."""
        return evidence.weights.mean(dim=1)

    def losses(self, evidence: Evidence) -> Prediction:
        """Compute the cross-entropy, with label smoothing in training."""
        real = evidence.target.real
        vectors, bias, labels = self.output_layer(evidence.target)
        count = real.sum().clamp(min=1)
        states = evidence.query + self.dropout(self.cross_attn.context(evidence.weights, evidence.states))
        states = self.output_layer_norm(self.ffn(states))
        labels = labels[real]
        logits = F.linear(states[real], vectors).to(bias.dtype) + bias
        smoothing = self.config.label_smoothing if self.training else 0.0
        loss = label_smoothed_cross_entropy(logits, labels, smoothing) / count
        accuracy = (logits.detach().argmax(dim=-1) == labels).float().sum() / count
        return Prediction(loss, self.aligning_weights(evidence), accuracy)


class MixturePrediction(MaskAlignPrediction):
    """Mixture of the separate predictions of each source token; its posterior is the alignment.

    `p(y_t) = sum_s W_ts p(y_t | s)` (Deng et al., eq. 3): the attention W does not depend on the hidden token, the
    posterior does. A source token's prediction is computed from its encoder state or, with `emission="embeddings"`,
    from its own embedding. With `max_jump` a first-order model gives the posterior. Its table `jumps` is learned after
    the weights; the losses in training ignore it.
    """

    feeds_forward = False

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config, MaskAlignCrossAttention(config))
        self.emission = nn.Linear(config.d_model, config.d_model)
        self.null_emission = nn.Parameter(torch.empty(config.d_model)) if config.leaky else None
        if config.max_jump is not None:
            self.register_buffer("jumps", initial_jumps(config.max_jump))

    def init_parameters(self) -> None:
        """Initialise the parameters of no sub-module: NULL predicts only by frequency, short jumps are likely."""
        super().init_parameters()
        if self.null_emission is not None:
            nn.init.zeros_(self.null_emission)
        if self.config.max_jump is not None:
            init.copy_(self.jumps, initial_jumps(self.config.max_jump))

    def _apply(self, fn, *args, **kwargs):
        """Convert as torch does, but keep the jumps in float32 or wider, because long jumps have tiny numbers."""
        jumps = self._buffers.get("jumps")
        super()._apply(fn, *args, **kwargs)
        if jumps is not None and self.jumps.dtype != at_least_float32(self.jumps):
            self.jumps = jumps.to(self.jumps.device, torch.float32)
        return self

    def emissions(self, evidence: Evidence) -> Tensor:
        """Return the predictions of NULL and each source token as output embeddings, (B, 1 + S, d_model)."""
        states = evidence.source.tokens if self.config.emission == "embeddings" else evidence.states
        emission = self.dropout(self.output_layer_norm(self.emission(states)))
        null = emission.new_zeros(emission.shape[-1]) if self.null_emission is None else self.null_emission
        return torch.cat([null.to(emission.dtype).expand(states.shape[0], 1, -1), emission], dim=1)

    def aligning_weights(self, evidence: Evidence) -> Tensor:
        """Return the posterior, without normalisers (see `normalizer_penalty`).

        The biases of the target tokens are the same for every source token and cancel.
        """
        posterior = self._posterior(evidence)
        return posterior if self.config.max_jump is None else self._with_jumps(evidence, posterior)

    def expected_jumps(self, evidence: Evidence) -> JumpPosterior:
        """Return the posterior with jumps, and the expected jumps for the next table."""
        return self._jump_posterior(evidence, self._posterior(evidence), count=True)

    def _posterior(self, evidence: Evidence) -> Tensor:
        logits = torch.matmul(evidence.target.tokens, self.emissions(evidence).transpose(1, 2))
        return mixture_log_likelihood(evidence.weights.mean(dim=1), logits.to(at_least_float32(logits)))[1]

    def _with_jumps(self, evidence: Evidence, posterior: Tensor) -> Tensor:
        with_jumps = self._jump_posterior(evidence, posterior)
        return torch.cat([with_jumps.null.unsqueeze(2), with_jumps.weights], dim=2)

    def _jump_posterior(self, evidence: Evidence, posterior: Tensor, count: bool = False) -> JumpPosterior:
        """Return the posterior of the first-order model.

        `p(a_t = s | p) = (1 - W_t0) V_ts J_t(s | p)` with `V_ts = W_ts / (1 - W_t0)`: attention and jump are
        multiplied, and NULL keeps the attention's weight.

        Args:
            evidence: inputs of the prediction.
            posterior: posterior of the mixture, (B, T, 1 + S); each row is the joint probability up to a factor.
            count: True to add the expected jumps.
        """
        attention = evidence.weights.mean(dim=1)[..., 1:]
        attention = attention / attention.sum(dim=2, keepdim=True).clamp(min=_SMALLEST_ATTENTION)
        with torch.autocast(posterior.device.type, enabled=False):
            return jump_posterior(
                posterior[..., 1:],
                posterior[..., 0],
                self.jumps,
                evidence.target.real,
                evidence.source.real,
                self.config.uniform_jump,
                count,
                attention.to(posterior.dtype),
            )

    def losses(self, evidence: Evidence) -> Prediction:
        """Compute the negative log-likelihood of the mixture; accuracy and jumps only in evaluation mode."""
        real = evidence.target.real
        vectors, bias, labels = self.output_layer(evidence.target)
        weights = evidence.weights.mean(dim=1)
        count = real.sum().clamp(min=1)
        logits = F.linear(self.emissions(evidence), vectors).to(bias.dtype) + bias  # (B, 1 + S, C)
        normalizer = torch.logsumexp(logits, dim=-1)
        emissions = logits.gather(2, labels.unsqueeze(1).expand(-1, logits.shape[1], -1)) - normalizer.unsqueeze(2)
        likelihood, posterior = mixture_log_likelihood(weights, emissions.transpose(1, 2))
        loss = -likelihood.masked_fill(~real, 0.0).sum() / count
        accuracy = None
        if not self.training:  # costs an output layer for each pair of positions
            mixed = torch.matmul(weights, (logits - normalizer.unsqueeze(2)).exp())
            accuracy = ((mixed.argmax(dim=-1) == labels) & real).float().sum() / count
            if self.config.max_jump is not None:
                posterior = self._with_jumps(evidence, posterior)
        predicts = F.pad(evidence.source.real, (1, 0), value=self.null_emission is not None)
        penalty = normalizer.square().masked_fill(~predicts, 0.0).sum() / predicts.sum()
        return Prediction(loss, posterior, accuracy, penalty)


PREDICTION_HEADS = {"attention": AttentionPrediction, "mixture": MixturePrediction}
