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
    """z[t][j], r[t] and bias[t] with output[t] = sum_j z[t][j] + r[t] + bias[t]; `plain` are the z before the norm."""

    plain: list[list[Tensor]]
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


def slow_block(
    attention, norm, is_pre, states, attended, weights, null=None, null_value=None, zeroed=None
) -> SlowBlock:
    """states (T, d), attended (S, d) or None for self-attention, weights (H, T, S), null (H, T); `zeroed`: token whose
    value is zero, -1 for NULL."""
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
                value = value * (j != zeroed)
                vector = vector + weights[h, t, j] * (attention.out_proj.weight[:, rows] @ value)
            vectors.append(vector)
        if null is not None:
            vector = torch.zeros_like(states[t])
            for h in range(heads):
                rows = slice(h * width, (h + 1) * width)
                vector = vector + (zeroed != -1) * null[h, t] * (attention.out_proj.weight[:, rows] @ null_value[h])
            vectors.append(vector)
        plain.append(vectors)
        outputs.append(states[t] + sum(vectors) + attention.out_proj.bias)
    if is_pre:
        return SlowBlock(plain, plain, list(states), [attention.out_proj.bias] * len(states), torch.stack(outputs))
    z, r, bias = [], [], []
    for t, output in enumerate(outputs):
        deviation = ((output - output.mean()).square().mean() + norm.eps).sqrt()

        def g(vector, deviation=deviation):
            return (vector - vector.mean()) / deviation * norm.weight

        z.append([g(vector) for vector in plain[t]])
        r.append(g(states[t]))
        bias.append(g(attention.out_proj.bias) + norm.bias)
    return SlowBlock(plain, z, r, bias, torch.stack([slow_layer_norm(norm, output) for output in outputs]))


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


# ---- norms ----


def slow_value_norm(reading: SlowReading, layer: int) -> Tensor:
    found = reading.decoder[layer]
    attention, weights = found.module.encoder_attn, found.weights[1]
    heads, steps, tokens = weights.shape
    scores = torch.zeros(steps, tokens, dtype=weights.dtype)
    for h in range(heads):
        rows = slice(h * attention.head_dim, (h + 1) * attention.head_dim)
        for j in range(tokens):
            value = attention.v_proj.weight[rows] @ reading.encoded[j] + attention.v_proj.bias[rows]
            for t in range(steps):
                scores[t, j] += weights[h, t, j] * value.square().sum().sqrt() / heads
    return scores


def slow_norms(vectors: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack([vector.square().sum().sqrt() for vector in row]) for row in vectors])


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


def slow_half(weights: Tensor, null: Tensor | None) -> tuple[Tensor, Tensor]:
    """Half of the mean over heads, NULL as the last column, and half for the residual."""
    if null is not None:
        weights = torch.cat([weights, null.unsqueeze(-1)], dim=-1)
    mean = torch.zeros_like(weights[0])
    for head in weights:
        mean = mean + head / len(weights)
    mean = torch.stack([row / row.sum() for row in mean])
    return mean / 2, torch.full_like(mean[:, 0], 0.5)


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


def slow_block_flow(reading: SlowReading, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """ALTI+ (`alti`) or rollout (`rollout`) of a whole model."""

    def shares(layer: SlowLayer, is_self: bool) -> tuple[Tensor, Tensor]:
        if kind == "alti":
            return slow_alti(layer.own if is_self else layer.cross, is_self)
        return slow_half(layer.weights[0], None) if is_self else slow_half(layer.weights[1], layer.weights[2])

    def mixing(layer: SlowLayer) -> Tensor:
        tokens, residual = shares(layer, True)
        return tokens + torch.diag(residual)

    encoder = [mixing(layer) for layer in reading.encoder]
    decoder = []
    for layer in reading.decoder:
        tokens, residual = shares(layer, False)
        own = torch.stack([residual[t] * row for t, row in enumerate(mixing(layer))])
        length = len(reading.encoded)
        null = tokens[:, length] if tokens.shape[1] > length else torch.zeros(len(tokens))
        decoder.append((own, tokens[:, :length], null))
    return slow_flow(encoder, decoder)


# ---- value zeroing ----


def slow_distance(x: Tensor, y: Tensor) -> float:
    return float(1 - (x @ y) / (x.square().sum().sqrt() * y.square().sum().sqrt()))


@torch.no_grad()
def slow_zeroed(reading: SlowReading, layer: SlowLayer, is_self: bool) -> Tensor:
    """(T, J): between the outputs of a layer with all values and without those of one token; NULL is the last."""
    module, is_pre = layer.module, reading.is_pre
    null = None if is_self else layer.weights[2]
    tokens = [*range(layer.weights[0 if is_self else 1].shape[-1]), *([] if null is None else [-1])]
    columns = []
    for zeroed in tokens:
        if is_self:
            norm = module.self_attn_layer_norm
            found = slow_block(module.self_attn, norm, is_pre, layer.states, None, layer.weights[0], zeroed=zeroed)
            states = found.output
            if layer.cross is not None:
                read = module.encoder_attn_layer_norm(states) if is_pre else states
                states = states + module.encoder_attn(read[None], key_value_states=reading.encoded[None])[0][0]
                states = states if is_pre else module.encoder_attn_layer_norm(states)
        else:
            norm = module.encoder_attn_layer_norm
            found = slow_block(
                *(module.encoder_attn, norm, is_pre, layer.own.output, reading.encoded, *layer.weights[1:]),
                zeroed=zeroed,
            )
            states = found.output
        outputs = slow_feed_forward(module, is_pre, states)
        columns.append([slow_distance(x, y) for x, y in zip(outputs, layer.output, strict=True)])
    return torch.tensor(columns, dtype=torch.float64).T


def slow_value_zeroing(reading: SlowReading) -> tuple[Tensor, Tensor, Tensor]:
    def shares(distances: Tensor) -> Tensor:
        return torch.stack([row / row.sum() for row in distances])

    encoder = [shares(slow_zeroed(reading, layer, True)) for layer in reading.encoder]
    decoder = []
    for layer in reading.decoder:
        cross = slow_zeroed(reading, layer, False)
        row = shares(torch.cat([slow_zeroed(reading, layer, True), cross], dim=1))
        steps, length = len(row), len(reading.encoded)
        null = row[:, steps + length] if cross.shape[1] > length else torch.zeros(steps)
        decoder.append((row[:, :steps], row[:, steps : steps + length], null))
    return slow_flow(encoder, decoder)


# ---- what the prediction does ----


@torch.no_grad()
def slow_log_probabilities(model, source: list[int], read: list[int], labels: list[int]) -> Tensor:
    """(T,): of each label, given the source and what the decoder reads."""
    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read]), use_cache=False).logits[0]
    return torch.stack([torch.log_softmax(row, dim=-1)[label] for row, label in zip(logits, labels, strict=True)])


def slow_slope(model, module: nn.Module, place: int, arguments: tuple, at=lambda x: x, size: float = 1e-5) -> Tensor:
    """(T,): the derivative of the log-probabilities where a module gives not x but `at(x)`, and row `place` of that
    moves along the same row of x; by central differences."""
    found = []
    for sign in (1, -1):

        def moved(_, args, output, sign=sign):
            states = at(output).clone()
            states[:, place] += sign * size * output[:, place]
            return states

        handle = module.register_forward_hook(moved)
        found.append(slow_log_probabilities(model, *arguments))
        handle.remove()
    return (found[0] - found[1]) / (2 * size)
