"""Attributions by loops over layers, heads and tokens, written from the formulas of the papers: one sentence, float64.

Nothing of the package takes part. A model's own pass gives embeddings and weights; everything between is computed
again, so that the last states show whether the parts add up.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

PRE_NORM = {"m2m_100", "mbart"}


@dataclass
class SlowBlock:
    """z[t][j], r[t] and bias[t] with output[t] = sum_j z[t][j] + r[t] + bias[t]."""

    z: list[list[Tensor]]
    r: list[Tensor]
    bias: list[Tensor]
    output: Tensor


@dataclass
class SlowLayer:
    """The blocks of a layer, what it read, its weights and its output."""

    module: nn.Module
    own: SlowBlock
    cross: SlowBlock | None
    states: Tensor
    weights: tuple
    output: Tensor


def slow_layer_norm(norm: nn.LayerNorm, vector: Tensor) -> Tensor:
    deviation = ((vector - vector.mean()).square().mean() + norm.eps).sqrt()
    return (vector - vector.mean()) / deviation * norm.weight + norm.bias


def slow_block(attention, norm, is_pre, states, attended, weights, null=None, null_value=None) -> SlowBlock:
    """states (T, d), attended (S, d) or None for self-attention, weights (H, T, S), null (H, T)."""
    read = torch.stack([slow_layer_norm(norm, x) for x in states]) if is_pre else states
    attended = read if attended is None else attended
    heads, width = attention.num_heads, attention.head_dim
    plain, outputs = [], []
    for t in range(len(states)):
        vectors = []
        for j in range(len(attended)):
            vector = torch.zeros_like(states[t])
            for h in range(heads):
                rows = slice(h * width, (h + 1) * width)
                value = attention.v_proj.weight[rows] @ attended[j] + attention.v_proj.bias[rows]
                vector = vector + weights[h, t, j] * (attention.out_proj.weight[:, rows] @ value)
            vectors.append(vector)
        if null is not None:
            vector = torch.zeros_like(states[t])
            for h in range(heads):
                rows = slice(h * width, (h + 1) * width)
                vector = vector + null[h, t] * (attention.out_proj.weight[:, rows] @ null_value[h])
            vectors.append(vector)
        plain.append(vectors)
        outputs.append(states[t] + sum(vectors) + attention.out_proj.bias)
    if is_pre:
        return SlowBlock(plain, list(states), [attention.out_proj.bias] * len(states), torch.stack(outputs))
    z, r, bias = [], [], []
    for t, output in enumerate(outputs):
        deviation = ((output - output.mean()).square().mean() + norm.eps).sqrt()

        def g(vector, deviation=deviation):
            return (vector - vector.mean()) / deviation * norm.weight

        z.append([g(vector) for vector in plain[t]])
        r.append(g(states[t]))
        bias.append(g(attention.out_proj.bias) + norm.bias)
    return SlowBlock(z, r, bias, torch.stack([slow_layer_norm(norm, output) for output in outputs]))


def slow_feed_forward(layer, is_pre, states: Tensor) -> Tensor:
    found = []
    for state in states:
        read = slow_layer_norm(layer.final_layer_norm, state) if is_pre else state
        state = state + layer.fc2(layer.activation_fn(layer.fc1(read)))
        found.append(state if is_pre else slow_layer_norm(layer.final_layer_norm, state))
    return torch.stack(found)


class SlowReading:
    """All layers of a model for one pair of token ids; `null_value(attention)` gives (heads, d_k), or None."""

    def __init__(self, model, source: list[int], labels: list[int], null_value=lambda attention: None):
        self.model, self.is_pre = model, model.config.model_type in PRE_NORM
        model.eval().set_attn_implementation("eager")
        batch = {"input_ids": torch.tensor([source]), "labels": torch.tensor([labels])}
        details = {"output_attention_details": True} if self._has_details() else {}
        with torch.no_grad():
            found = model(**batch, output_hidden_states=True, output_attentions=True, use_cache=False, **details)
            self.nulls = [None] * len(found.cross_attentions)
            if details and found.null_attentions is not None:
                with_null = [n for n, a in enumerate(self._cross_attentions()) if null_value(a) is not None]
                for number, null in zip(with_null, found.null_attentions, strict=True):
                    self.nulls[number] = null[0]
            states = found.encoder_hidden_states[0][0]
            self.encoder = []
            for layer, weights in zip(model.get_encoder().layers, found.encoder_attentions, strict=True):
                own = slow_block(layer.self_attn, layer.self_attn_layer_norm, self.is_pre, states, None, weights[0])
                output = slow_feed_forward(layer, self.is_pre, own.output)
                self.encoder.append(SlowLayer(layer, own, None, states, (weights[0],), output))
                states = output
            self.encoded = found.encoder_last_hidden_state[0]
            final = model.get_encoder().layer_norm if self.is_pre else None
            self.encoder_matches = (
                states if final is None else torch.stack([slow_layer_norm(final, x) for x in states])
            )
            states = found.decoder_hidden_states[0][0]
            self.decoder = []
            everything = (found.decoder_attentions, found.cross_attentions, self.nulls)
            for layer, *weights, null in zip(model.get_decoder().layers, *everything, strict=True):
                weights = [part[0] for part in weights]
                own = slow_block(layer.self_attn, layer.self_attn_layer_norm, self.is_pre, states, None, weights[0])
                value = None if null is None else null_value(layer.encoder_attn)
                cross = slow_block(
                    *(layer.encoder_attn, layer.encoder_attn_layer_norm, self.is_pre, own.output, self.encoded),
                    *(weights[1], null, value),
                )
                output = slow_feed_forward(layer, self.is_pre, cross.output)
                self.decoder.append(SlowLayer(layer, own, cross, states, (*weights, null, value), output))
                states = output
            self.decoder_output = found.decoder_hidden_states[-1][0]
            final = model.get_decoder().layer_norm if self.is_pre else None
            self.decoder_matches = (
                states if final is None else torch.stack([slow_layer_norm(final, x) for x in states])
            )

    def _cross_attentions(self):
        return [layer.encoder_attn for layer in self.model.get_decoder().layers]

    def _has_details(self) -> bool:
        return any(getattr(module, "switches", None) is not None for module in self.model.modules())


# ---- shares of blocks ----


def slow_alti(block: SlowBlock, is_self: bool) -> tuple[Tensor, Tensor]:
    """Shares of the tokens (T, J) and of the residual (T,)."""
    tokens, residuals = [], []
    for t, row in enumerate(block.z):
        output = block.output[t]
        row = [z + block.r[t] * (is_self and j == t) for j, z in enumerate(row)]
        extra = [] if is_self else [block.r[t]]
        near = [max(0.0, float(output.abs().sum() - (output - z).abs().sum())) for z in (*row, *extra)]
        shares = [value / sum(near) for value in near]
        tokens.append(shares[: len(row)])
        residuals.append(0.0 if is_self else shares[-1])
    return torch.tensor(tokens, dtype=torch.float64), torch.tensor(residuals, dtype=torch.float64)


# ---- through the layers ----


def slow_flow(encoder: list[Tensor], decoder: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Encoder: (S, S) of each layer; decoder: of positions (T, T), of the source (T, S) and of NULL (T,) of each."""
    length = len(encoder[0])
    mixed = [[float(i == j) for j in range(length)] for i in range(length)]
    for layer in encoder:
        mixed = [
            [sum(float(layer[i, k]) * mixed[k][j] for k in range(length)) for j in range(length)]
            for i in range(length)
        ]
    steps = len(decoder[0][0])
    prefix = [[float(i == j) for j in range(steps)] for i in range(steps)]
    source = [[0.0] * length for _ in range(steps)]
    nulls = [0.0] * steps
    for own, tokens, null in decoder:
        below = prefix, source, nulls
        prefix = [
            [sum(float(own[t, k]) * below[0][k][j] for k in range(steps)) for j in range(steps)] for t in range(steps)
        ]
        source = [
            [
                sum(float(own[t, k]) * below[1][k][j] for k in range(steps))
                + sum(float(tokens[t, i]) * mixed[i][j] for i in range(length))
                for j in range(length)
            ]
            for t in range(steps)
        ]
        nulls = [sum(float(own[t, k]) * below[2][k] for k in range(steps)) + float(null[t]) for t in range(steps)]
    return tuple(torch.tensor(found, dtype=torch.float64) for found in (source, prefix, nulls))


def slow_alti_flow(reading: SlowReading) -> tuple[Tensor, Tensor, Tensor]:
    """ALTI+ of a whole model."""

    def mixing(layer: SlowLayer) -> Tensor:
        tokens, residual = slow_alti(layer.own, True)
        return tokens + torch.diag(residual)

    decoder = []
    for layer in reading.decoder:
        tokens, residual = slow_alti(layer.cross, False)
        own = torch.stack([residual[t] * row for t, row in enumerate(mixing(layer))])
        length = len(reading.encoded)
        null = tokens[:, length] if tokens.shape[1] > length else torch.zeros(len(tokens))
        decoder.append((own, tokens[:, :length], null))
    return slow_flow([mixing(layer) for layer in reading.encoder], decoder)


# ---- what the prediction does ----


@torch.no_grad()
def slow_log_probabilities(model, source: list[int], read: list[int], labels: list[int]) -> Tensor:
    """(T,): of each label, given the source and what the decoder reads."""
    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read]), use_cache=False).logits[0]
    return torch.stack([torch.log_softmax(row, dim=-1)[label] for row, label in zip(logits, labels, strict=True)])
