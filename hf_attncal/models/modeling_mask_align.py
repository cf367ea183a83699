"""Mask-Align: a word aligner of two masked translation models that are trained to agree (Chen et al., ACL 2021).

Shapes use B = batch, S = source tokens, T = target tokens, H = heads. "Forward" is the direction that predicts the
target from the source, "backward" the other; inside a direction, "source" and "target" are what it reads and what it
predicts.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_mask_align import MaskAlignConfig
from .functional import attention_scores, with_null_scores
from .functional_mask_align import agreement_loss, entropy_loss, guided_loss, mixture_log_likelihood
from .losses import label_smoothed_cross_entropy

# Where the mask hides a token: far below every score, and finite in bfloat16, float16 and float32.
_HIDDEN = -3e4


@dataclass
class MaskAlignOutput(ModelOutput):
    """Output of `MaskAlignModel`.

    Args:
        loss: what to call `backward()` on, with `return_loss=True`.
        forward_attention: weights that align, of the direction that predicts the target, (B, T, S): the mean over
            heads, without the NULL column, not renormalised; 0 at padding. For `prediction="mixture"` the posterior.
        backward_attention: the same of the direction that predicts the source, (B, S, T).
        forward_null, backward_null: weight of NULL, (B, T) and (B, S); zeros without `leaky`.
        prediction_loss: negative log-likelihood per token, the mean of the two directions.
        agreement_loss, entropy_loss, guided_loss: before their weights; the entropy's is the sum of both directions,
            the guided one's the mean.
        prediction_accuracy: share of hidden tokens that would have been predicted, mean of both directions.
        null_weight: mean weight of NULL over real tokens, mean of both directions; near 1 nothing is aligned.
    """

    loss: torch.FloatTensor | None = None
    forward_attention: torch.FloatTensor | None = None
    backward_attention: torch.FloatTensor | None = None
    forward_null: torch.FloatTensor | None = None
    backward_null: torch.FloatTensor | None = None
    prediction_loss: torch.FloatTensor | None = None
    agreement_loss: torch.FloatTensor | None = None
    entropy_loss: torch.FloatTensor | None = None
    guided_loss: torch.FloatTensor | None = None
    prediction_accuracy: torch.FloatTensor | None = None
    null_weight: torch.FloatTensor | None = None


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Attention that forms its weights; the additive mask must be broadcastable to (B, H, T, S)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.softmax(scores, dim=-1, dtype=_at_least_float32(scores)).to(query.dtype)
    return torch.matmul(weights, value).transpose(1, 2), weights


def sinusoidal_positions(length: int, d_model: int, device=None, dtype=None) -> Tensor:
    """Position embeddings of Vaswani et al. (2017, sec. 3.5), sines first: (length, d_model)."""
    precise = torch.promote_types(dtype or torch.float32, torch.float32)
    position = torch.arange(length, device=device, dtype=precise).unsqueeze(1)
    half = d_model // 2
    rate = torch.exp(torch.arange(half, device=device, dtype=precise) * (-math.log(10000.0) / half))
    return torch.cat([torch.sin(position * rate), torch.cos(position * rate)], dim=1).to(dtype)


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


class MaskAlignAttention(nn.Module):
    """Multi-head attention whose queries and keys may come from different places."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.config = config
        self.num_heads = config.attention_heads
        self.head_dim = config.d_model // config.attention_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = False
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def heads(self, projected: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, H, T, d_k)."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def forward(self, query: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """query: (B, T, d_model). states: (B, S, d_model). mask: additive, broadcastable to (B, 1, T, S)."""
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        context, _ = attend(
            self,
            self.heads(self.q_proj(query)),
            self.heads(self.k_proj(states)),
            self.heads(self.v_proj(states)),
            mask.to(query.dtype),
            scaling=self.scaling,
        )
        return self.out_proj(context.flatten(2))


class MaskAlignCrossAttention(MaskAlignAttention):
    """Leaky cross-attention (Mask-Align, sec. 3.2): `softmax(q [k_NULL; K]^T / sqrt(d_k))` over `[v_NULL; V]`."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config)
        if config.leaky:
            self.null_key = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
            self.null_value = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        if config.diagonal_bias is not None:
            self.diagonal_bias = nn.Parameter(torch.empty(self.num_heads))
        if config.prediction == "mixture":  # each source token predicts by itself: no values
            del self.v_proj, self.out_proj
            if config.leaky:
                del self.null_value

    def init_parameters(self, config: MaskAlignConfig) -> None:
        """Initialise the parameters that belong to no sub-module."""
        std = config.d_model**-0.5 if config.null_key_std is None else config.null_key_std
        for name in ("null_key", "null_value"):
            if hasattr(self, name):
                nn.init.normal_(getattr(self, name), std=std)
        if hasattr(self, "diagonal_bias"):
            nn.init.constant_(self.diagonal_bias, config.diagonal_bias)

    def weights(self, query: Tensor, states: Tensor, source_real: Tensor, target_real: Tensor) -> Tensor:
        """Weights of each head in float32 or wider, (B, H, T, 1 + S), NULL first; without `leaky` NULL's are 0."""
        query = self.heads(self.q_proj(query))
        scores = attention_scores(query, self.heads(self.k_proj(states)), self.scaling)
        scores = scores.to(_at_least_float32(scores))
        if hasattr(self, "diagonal_bias"):
            distance = relative_distance(target_real, source_real, scores.dtype).unsqueeze(1)
            scores = scores - self.diagonal_bias.view(-1, 1, 1) * distance
        scores = scores.masked_fill(~source_real[:, None, None, :], torch.finfo(scores.dtype).min)
        if not self.config.leaky:
            return F.pad(torch.softmax(scores, dim=-1), (1, 0))
        return torch.softmax(with_null_scores(scores, query, self.null_key, self.scaling), dim=-1)

    def context(self, weights: Tensor, states: Tensor) -> Tensor:
        """What the weights (B, H, T, 1 + S) read from the values, (B, T, d_model)."""
        value = self.heads(self.v_proj(states))
        context = torch.matmul(weights[..., 1:].to(value.dtype), value)
        if self.config.leaky:
            context = context + weights[..., :1].to(value.dtype) * self.null_value.unsqueeze(1).to(value.dtype)
        return self.out_proj(context.transpose(1, 2).flatten(2))


def relative_distance(target_real: Tensor, source_real: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """`|(t + 1/2) / T - (s + 1/2) / S|` with the numbers of real tokens T and S of each pair, (B, T, S)."""
    places = []
    for real in (target_real, source_real):
        index = torch.arange(real.shape[1], device=real.device, dtype=dtype) + 0.5
        places.append(index / real.sum(dim=1, keepdim=True).clamp(min=1))
    return (places[0].unsqueeze(2) - places[1].unsqueeze(1)).abs()


class MaskAlignFeedForward(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.activation = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)
        self.fc1 = nn.Linear(config.d_model, config.ffn_dim)
        self.fc2 = nn.Linear(config.ffn_dim, config.d_model)

    def forward(self, states: Tensor) -> Tensor:
        return self.fc2(self.dropout(self.activation(self.fc1(states))))


class MaskAlignEncoderLayer(GradientCheckpointingLayer):
    """Self-attention and feed-forward network, each after a layer norm and with a residual."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.self_attn = MaskAlignAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.ffn = MaskAlignFeedForward(config)
        self.ffn_layer_norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        normed = self.self_attn_layer_norm(states)
        states = states + self.dropout(self.self_attn(normed, normed, mask))
        return states + self.dropout(self.ffn(self.ffn_layer_norm(states)))


class MaskAlignDecoderLayer(MaskAlignEncoderLayer):
    """Static-KV attention (Mask-Align, sec. 3.1): only queries go up the layers.

    Keys and values are computed from the input embeddings in every layer, each with its own matrices, and never from
    updated states: what a query may not see it cannot see at second hand either.

    Args:
        feed_forward: False in the last layer of `prediction="attention"`, where the cross-attention comes first and
            `MaskAlignDirection` has the feed-forward network that follows: aligning does not need it.
    """

    def __init__(self, config: MaskAlignConfig, feed_forward: bool = True):
        super().__init__(config)
        if not feed_forward:
            del self.ffn, self.ffn_layer_norm

    def forward(self, states: Tensor, embeddings: Tensor, mask: Tensor) -> Tensor:
        states = states + self.dropout(self.self_attn(self.self_attn_layer_norm(states), embeddings, mask))
        if not hasattr(self, "ffn"):
            return states
        return states + self.dropout(self.ffn(self.ffn_layer_norm(states)))


@dataclass
class _Prediction:
    """What the output side of one direction gives: the loss per token, the weights that align, and the accuracy."""

    loss: Tensor
    weights: Tensor
    accuracy: Tensor | None
    normalizer_penalty: Tensor | None = None


class MaskAlignDirection(nn.Module):
    """One masked translation model: encoder, static-KV decoder, cross-attention in the last layer only."""

    def __init__(self, config: MaskAlignConfig):
        super().__init__()
        self.config = config
        self.encoder_layers = nn.ModuleList(MaskAlignEncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_layer_norm = nn.LayerNorm(config.d_model)
        self.decoder_layers = nn.ModuleList(
            MaskAlignDecoderLayer(config, layer < config.decoder_layers - 1 or config.prediction == "mixture")
            for layer in range(config.decoder_layers)
        )
        self.cross_attn = MaskAlignCrossAttention(config)
        self.cross_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.output_layer_norm = nn.LayerNorm(config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        if config.prediction == "mixture":
            self.emission = nn.Linear(config.d_model, config.d_model)
            if config.leaky:
                self.null_emission = nn.Parameter(torch.empty(config.d_model))
        else:
            self.ffn = MaskAlignFeedForward(config)
            self.ffn_layer_norm = nn.LayerNorm(config.d_model)

    def init_parameters(self, config: MaskAlignConfig) -> None:
        """Initialise the parameters that belong to no sub-module."""
        nn.init.zeros_(self.output_bias)
        if hasattr(self, "null_emission"):
            nn.init.zeros_(self.null_emission)

    def forward(
        self, source: Tensor, target: Tensor, positions: Tensor, source_real: Tensor, target_real: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Everything up to the weights of the last cross-attention.

        Args:
            source, target: token plus position embeddings, (B, S, d_model) and (B, T, d_model). positions: position
            embeddings of the target, (T, d_model). source_real, target_real: (B, S) and (B, T).

        Returns:
            Encoder states (B, S, d_model), queries (B, T, d_model), weights per head (B, H, T, 1 + S).
        """
        states = source
        mask = additive_mask(source_real)
        for layer in self.encoder_layers:
            states = layer(states, mask)
        states = self.encoder_layer_norm(states)

        mask = additive_mask(target_real)
        if self.config.mask_diagonal:
            diagonal = torch.eye(target.shape[1], dtype=torch.bool, device=target.device)
            mask = mask.masked_fill(diagonal, _HIDDEN)
            # Where all is hidden a softmax shows it all the same: the only token of a side reads zeros, not itself.
            alone = target_real.sum(dim=1) < 2
            target = target.masked_fill(alone[:, None, None], 0.0)
            query = self.dropout(positions.to(target.dtype)).expand_as(target)
        else:
            query = target
        for layer in self.decoder_layers:
            query = layer(query, target, mask)
        weights = self.cross_attn.weights(self.cross_attn_layer_norm(query), states, source_real, target_real)
        return states, query, weights

    def emissions(self, states: Tensor) -> Tensor:
        """What each source token, after NULL, predicts in the space of output embeddings, (B, 1 + S, d_model)."""
        emission = self.dropout(self.output_layer_norm(self.emission(states)))
        null = self.null_emission.to(emission.dtype) if self.config.leaky else emission.new_zeros(emission.shape[-1])
        return torch.cat([null.expand(len(states), 1, -1), emission], dim=1)

    def posterior(self, weights: Tensor, states: Tensor, output_embeddings: Tensor) -> Tensor:
        """Posterior of the mixture without normalisers (see `normalizer_penalty`), (B, T, 1 + S).

        Args:
            weights: means over heads, (B, T, 1 + S). states: (B, S, d_model). output_embeddings: of the target tokens,
            (B, T, d_model). Their biases are the same for every source token and cancel.
        """
        logits = torch.matmul(output_embeddings, self.emissions(states).transpose(1, 2))
        return mixture_log_likelihood(weights, logits.to(_at_least_float32(logits)))[1]

    def predict(
        self,
        states: Tensor,
        query: Tensor,
        weights: Tensor,
        target_ids: Tensor,
        target_real: Tensor,
        source_real: Tensor,
        embeddings: Tensor,
        candidates: "Candidates",
    ) -> _Prediction:
        """Losses of predicting every real target token, and the weights that align, (B, T, 1 + S)."""
        vocabulary = candidates.take(embeddings)
        bias = candidates.take(self.output_bias)
        bias = bias.to(_at_least_float32(bias)) - candidates.log_probability
        labels = candidates.positions[target_ids]
        mean_weights = weights.mean(dim=1)
        count = target_real.sum().clamp(min=1)
        if self.config.prediction == "attention":
            context = self.dropout(self.cross_attn.context(weights, states))
            hidden = query + context
            hidden = self.output_layer_norm(hidden + self.dropout(self.ffn(self.ffn_layer_norm(hidden))))
            labels = labels[target_real]
            logits = F.linear(hidden[target_real], vocabulary).to(bias.dtype) + bias
            smoothing = self.config.label_smoothing if self.training else 0.0
            loss = label_smoothed_cross_entropy(logits, labels, smoothing) / count
            accuracy = (logits.detach().argmax(dim=-1) == labels).float().sum() / count
            return _Prediction(loss, mean_weights, accuracy)

        logits = F.linear(self.emissions(states), vocabulary).to(bias.dtype) + bias  # (B, 1 + S, candidates)
        normalizer = torch.logsumexp(logits, dim=-1)
        picked = logits.gather(2, labels.unsqueeze(1).expand(-1, logits.shape[1], -1)) - normalizer.unsqueeze(2)
        likelihood, posterior = mixture_log_likelihood(mean_weights, picked.transpose(1, 2))
        loss = -likelihood.masked_fill(~target_real, 0.0).sum() / count
        accuracy = None
        if not self.training:  # a product as large as the output layer, over each pair of positions
            mixed = torch.matmul(mean_weights, (logits - normalizer.unsqueeze(2)).exp())
            accuracy = ((mixed.argmax(dim=-1) == labels) & target_real).float().sum() / count
        real = F.pad(source_real, (1, 0), value=self.config.leaky)
        penalty = normalizer.square().masked_fill(~real, 0.0).sum() / real.sum()
        return _Prediction(loss, posterior, accuracy, penalty)


@dataclass
class Candidates:
    """The vocabulary entries that a softmax runs over.

    Args:
        ids: which, (candidates,); `None` for all of them. positions: where among them each vocabulary entry is,
            (vocabulary,).
        log_probability: log of the chance that an entry is among them, (candidates,), or 0: what has to be subtracted
            from its logit (Bengio and Senecal 2008).
    """

    ids: Tensor | None
    positions: Tensor
    log_probability: Tensor | float

    def take(self, table: Tensor) -> Tensor:
        """Their rows of a table over the vocabulary."""
        return table if self.ids is None else table[self.ids]

    @classmethod
    def all(cls, vocab_size: int, device: torch.device) -> "Candidates":
        """The whole vocabulary."""
        return cls(None, torch.arange(vocab_size, device=device), 0.0)

    @classmethod
    def of_batch(cls, ids: Tensor, frequency: Tensor) -> "Candidates":
        """The token types among `ids` (tokens,), drawn from a text with these relative frequencies (vocabulary,).

        A type with frequency f is among n tokens with probability `1 - (1 - f) ** n`.
        """
        types = torch.unique(ids)
        positions = torch.zeros(len(frequency), dtype=torch.long, device=ids.device)
        positions[types] = torch.arange(len(types), device=ids.device)
        missing = len(ids) * torch.log1p(-frequency[types].double().clamp(max=1 - 1e-9))
        log_probability = torch.log(-torch.expm1(missing).clamp(max=-1e-9))
        return cls(types, positions, log_probability.to(_at_least_float32(frequency)))


def additive_mask(real: Tensor) -> Tensor:
    """0 where a token is real and a large negative number elsewhere, (B, 1, 1, tokens)."""
    return torch.zeros(real.shape, device=real.device).masked_fill(~real, _HIDDEN)[:, None, None, :]


class MaskAlignPreTrainedModel(PreTrainedModel):
    """Initialisation, and what transformers has to know."""

    config: MaskAlignConfig
    config_class = MaskAlignConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # every loss is a mean over its own unit: tokens of two sides, cells, linked tokens
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _no_split_modules = ["MaskAlignEncoderLayer", "MaskAlignDecoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        std = self.config.init_std
        if isinstance(module, nn.Linear):
            if std is None:
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        # Transformers skips modules of code outside its package that own no parameter, hence one call for each owner.
        elif isinstance(module, (MaskAlignCrossAttention, MaskAlignDirection)):
            module.init_parameters(self.config)
        elif isinstance(module, MaskAlignModel):
            for frequency in (module.source_frequency, module.target_frequency):
                nn.init.constant_(frequency, 1 / self.config.vocab_size)


class MaskAlignModel(MaskAlignPreTrainedModel):
    """Two masked translation models, one for each direction, with shared embeddings."""

    _auto_class = "AutoModel"

    def __init__(self, config: MaskAlignConfig):
        super().__init__(config)
        self.source_embeddings = nn.Embedding(config.vocab_size, config.d_model)
        if not config.share_embeddings:
            self.target_embeddings = nn.Embedding(config.vocab_size, config.d_model)
        self.forward_direction = MaskAlignDirection(config)
        self.backward_direction = MaskAlignDirection(config)
        self.dropout = nn.Dropout(config.dropout)
        # Relative frequencies in the training text, for the candidates of `sampled_softmax`.
        self.register_buffer("source_frequency", torch.full((config.vocab_size,), 1 / config.vocab_size))
        self.register_buffer("target_frequency", torch.full((config.vocab_size,), 1 / config.vocab_size))
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.source_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.source_embeddings = value

    def get_target_embeddings(self) -> nn.Embedding:
        """The table of target tokens: the source's with `share_embeddings`."""
        return self.source_embeddings if self.config.share_embeddings else self.target_embeddings

    def resize_token_embeddings(self, *args, **kwargs):
        """Refused: `output_bias` and the token frequencies have an entry for each token, too.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("The vocabulary of a trained aligner is fixed: train one with the new `vocab_size`.")

    @torch.no_grad()
    def set_token_counts(self, source_counts: Tensor, target_counts: Tensor) -> None:
        """Tell a fresh model how often each token occurs in the training text, (vocab_size,) each.

        The output biases start at the log frequencies, and `sampled_softmax` corrects for them.
        """
        for name, counts, direction in (
            ("source", source_counts, self.backward_direction),
            ("target", target_counts, self.forward_direction),
        ):
            if tuple(counts.shape) != (self.config.vocab_size,):
                raise ValueError(
                    f"`{name}_counts` must have the shape ({self.config.vocab_size},), got {tuple(counts.shape)}."
                )
            frequency = (counts.double() + 0.01) / (counts.double() + 0.01).sum()
            getattr(self, f"{name}_frequency").copy_(frequency)
            direction.output_bias.copy_(frequency.log())

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: Tensor | None = None,
        target_input_ids: torch.LongTensor | None = None,
        target_attention_mask: Tensor | None = None,
        links: Tensor | None = None,
        return_loss: bool | None = None,
        agreement_scale: float = 1.0,
        **kwargs,
    ) -> tuple | MaskAlignOutput:
        """Align the tokens of sentence pairs; neither side has an end-of-sentence token.

        Args:
            input_ids: source tokens, (B, S). attention_mask: 1 for real ones, (B, S); without it all are.
            target_input_ids: target tokens, (B, T). target_attention_mask: (B, T).
            links: 1 where target token t is linked to source token s, (B, T, S): adds the guided loss.
            return_loss: compute the losses; without it nothing after the last cross-attention is computed.
            agreement_scale: factor of `agreement_weight`, for a warm-up.

        Raises:
            ValueError: a side is missing or empty, or longer than `max_position_embeddings`.
        """
        source_real = self._real_tokens(input_ids, attention_mask, "input_ids")
        target_real = self._real_tokens(target_input_ids, target_attention_mask, "target_input_ids")
        target_embeddings = self.get_target_embeddings()
        source_tokens, target_tokens = self.source_embeddings(input_ids), target_embeddings(target_input_ids)
        length = max(input_ids.shape[1], target_input_ids.shape[1])
        positions = sinusoidal_positions(length, self.config.d_model, source_tokens.device, source_tokens.dtype)
        scale = math.sqrt(self.config.d_model)
        source = self.dropout(source_tokens * scale + positions[: input_ids.shape[1]])
        target = self.dropout(target_tokens * scale + positions[: target_input_ids.shape[1]])

        f, b = self.forward_direction, self.backward_direction
        f_states, f_query, f_weights = f(source, target, positions[: target.shape[1]], source_real, target_real)
        b_states, b_query, b_weights = b(target, source, positions[: source.shape[1]], target_real, source_real)
        if self.config.prediction == "mixture" and self.config.emission == "embeddings":
            f_states, b_states = source_tokens, target_tokens
        if not return_loss:
            f_weights, b_weights = f_weights.mean(dim=1), b_weights.mean(dim=1)
            if self.config.prediction == "mixture":
                f_weights = f.posterior(f_weights, f_states, target_tokens)
                b_weights = b.posterior(b_weights, b_states, source_tokens)
            return self._output(f_weights, b_weights, source_real, target_real)

        forward = f.predict(
            f_states,
            f_query,
            f_weights,
            target_input_ids,
            target_real,
            source_real,
            target_embeddings.weight,
            self._candidates(target_input_ids, target_real, self.target_frequency),
        )
        backward = b.predict(
            b_states,
            b_query,
            b_weights,
            input_ids,
            source_real,
            target_real,
            self.source_embeddings.weight,
            self._candidates(input_ids, source_real, self.source_frequency),
        )
        output = self._output(forward.weights, backward.weights, source_real, target_real)
        return self._with_losses(output, forward, backward, source_real, target_real, links, agreement_scale)

    @torch.no_grad()
    def alignments(
        self,
        input_ids: torch.LongTensor,
        attention_mask: Tensor | None,
        target_input_ids: torch.LongTensor,
        target_attention_mask: Tensor | None,
    ) -> MaskAlignOutput:
        """`forward` without gradients and losses: the weights that align, and those of NULL."""
        return self(input_ids, attention_mask, target_input_ids, target_attention_mask, return_dict=True)

    def _real_tokens(self, ids: Tensor | None, mask: Tensor | None, name: str) -> Tensor:
        if ids is None or ids.dim() != 2 or 0 in ids.shape:
            shape = None if ids is None else tuple(ids.shape)
            raise ValueError(f"`{name}` must be (batch, tokens) with at least one token, got {shape}.")
        if ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"`{name}` must have at most `max_position_embeddings` ({self.config.max_position_embeddings}) "
                f"tokens, got {ids.shape[1]}. `WordAligner` aligns longer sentences in overlapping windows."
            )
        return torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()

    def _candidates(self, ids: Tensor, real: Tensor, frequency: Tensor) -> Candidates:
        if self.training and self.config.sampled_softmax:
            return Candidates.of_batch(ids[real], frequency)
        return Candidates.all(self.config.vocab_size, ids.device)

    @staticmethod
    def _output(forward: Tensor, backward: Tensor, source_real: Tensor, target_real: Tensor) -> MaskAlignOutput:
        """The aligning weights (with their NULL column), cleared at padding."""
        forward = forward.masked_fill(~target_real.unsqueeze(2), 0.0)
        backward = backward.masked_fill(~source_real.unsqueeze(2), 0.0)
        return MaskAlignOutput(
            forward_attention=forward[..., 1:].contiguous(),
            backward_attention=backward[..., 1:].contiguous(),
            forward_null=forward[..., 0].contiguous(),
            backward_null=backward[..., 0].contiguous(),
        )

    def _with_losses(
        self,
        output: MaskAlignOutput,
        forward: _Prediction,
        backward: _Prediction,
        source_real: Tensor,
        target_real: Tensor,
        links: Tensor | None,
        agreement_scale: float,
    ) -> MaskAlignOutput:
        config = self.config
        output.prediction_loss = 0.5 * (forward.loss + backward.loss)
        output.agreement_loss = agreement_loss(
            output.forward_attention, output.backward_attention, target_real, source_real
        )
        output.entropy_loss = entropy_loss(
            output.forward_attention, target_real, source_real, config.entropy_smoothing
        ) + entropy_loss(output.backward_attention, source_real, target_real, config.entropy_smoothing)
        loss = output.prediction_loss + agreement_scale * config.agreement_weight * output.agreement_loss
        loss = loss + config.entropy_weight * output.entropy_loss
        if forward.normalizer_penalty is not None:
            loss = loss + 0.5 * config.normalizer_penalty * (forward.normalizer_penalty + backward.normalizer_penalty)
        if links is not None:
            links = links.to(output.forward_attention.dtype)
            output.guided_loss = 0.5 * (
                guided_loss(output.forward_attention, output.forward_null, links, target_real)
                + guided_loss(output.backward_attention, output.backward_null, links.transpose(1, 2), source_real)
            )
            loss = loss + config.guide_weight * output.guided_loss
        if forward.accuracy is not None:
            output.prediction_accuracy = 0.5 * (forward.accuracy + backward.accuracy)
        output.null_weight = 0.5 * (
            output.forward_null.detach().sum() / target_real.sum()
            + output.backward_null.detach().sum() / source_real.sum()
        )
        output.loss = loss
        return MaskAlignOutput(**output)  # once more, in the order of its fields: the loss is first in a tuple
