"""Slow references: every equation as loops over single cells, straight from the printed formulas.

Nothing here is imported by the package, and nothing here imports it. Each function computes one scalar at a time
with the formula of the paper, so that a mistake of broadcasting, masking or axis order in the fast version cannot be
repeated here. autograd runs through the loops, which gives the gradients to compare with.

Axis order: attention tensors are `(batch, heads, target, source)`; queries and keys `(batch, heads, length, d_k)`;
`real_source` is a boolean `(batch, source)` tensor, True for the tokens that are not padding; `null` is the attention
that the NULL column received, `(batch, heads, target)`, or None without leaky attention.

Sources: [AC] Lu et al., "Attention Analysis and Calibration for Transformer in Natural Language Generation", TASLP
2022; [DT] "Discrete Transformer"; [MA] Chen et al., "Mask-Align", ACL 2021; Vogel et al., "HMM-Based Word Alignment in
Statistical Translation", COLING 1996.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch


def cells(shape: Sequence[int], cell: Callable[..., torch.Tensor]) -> torch.Tensor:
    """The tensor of this `shape` whose value at each index is `cell(*index)`, computed one scalar at a time."""
    if len(shape) == 1:
        return torch.stack([cell(i) for i in range(shape[0])])
    return torch.stack([cells(shape[1:], lambda *rest, i=i: cell(i, *rest)) for i in range(shape[0])])


def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Inner product of two vectors, term by term."""
    total = x[0] * y[0]
    for i in range(1, len(x)):
        total = total + x[i] * y[i]
    return total


def scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`q K^T / sqrt(d_k)`: `(batch, heads, target, source)` from `(batch, heads, length, d_k)` queries and keys."""
    shape = (*query.shape[:3], key.shape[2])
    return cells(shape, lambda b, h, t, s: dot(query[b, h, t], key[b, h, s]) / math.sqrt(query.shape[-1]))


def null_scores(query: torch.Tensor, null_key: torch.Tensor) -> torch.Tensor:
    """[MA] `q k_NULL / sqrt(d_k)`: `(batch, heads, target)` from `null_key` `(heads, d_k)`."""
    return cells(query.shape[:3], lambda b, h, t: dot(query[b, h, t], null_key[h]) / math.sqrt(query.shape[-1]))


def softmax(
    score: torch.Tensor, real_source: torch.Tensor, null_score: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[AC] `a = softmax(q K^T / sqrt(d_k))` over the real tokens and, with `null_score`, the NULL column [MA].

    Returns `a` (0 on padding) and the NULL column `(batch, heads, target)` or None.
    """

    def denominator(b: int, h: int, t: int) -> torch.Tensor:
        total = sum(torch.exp(score[b, h, t, s]) for s in range(score.shape[-1]) if real_source[b, s])
        return total if null_score is None else total + torch.exp(null_score[b, h, t])

    def real(b: int, h: int, t: int, s: int) -> torch.Tensor:
        if not real_source[b, s]:
            return torch.zeros((), dtype=score.dtype)
        return torch.exp(score[b, h, t, s]) / denominator(b, h, t)

    attention = cells(score.shape, real)
    if null_score is None:
        return attention, None
    return attention, cells(score.shape[:3], lambda b, h, t: torch.exp(null_score[b, h, t]) / denominator(b, h, t))


def gumbel_noise(uniform: torch.Tensor) -> torch.Tensor:
    """[DT] `g = -log(-log U)`, U uniform in (0, 1); the paper prints `log(log U)`, which has no real value."""
    flat = [-math.log(-math.log(u)) for u in uniform.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.float64).reshape(uniform.shape)


def gumbel_softmax(
    attention: torch.Tensor,
    noise: torch.Tensor,
    temperature: float,
    null: torch.Tensor | None = None,
    null_noise: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[DT] `softmax((log a + g) / tau)` over the columns with `a > 0` and the NULL column where there is one."""

    def weight(b: int, h: int, t: int, s: int) -> torch.Tensor:
        a = attention[b, h, t, s]
        return torch.exp((torch.log(a) + noise[b, h, t, s]) / temperature) if a > 0 else torch.zeros_like(a)

    def null_weight(b: int, h: int, t: int) -> torch.Tensor:
        return torch.exp((torch.log(null[b, h, t]) + null_noise[b, h, t]) / temperature)

    def total(b: int, h: int, t: int) -> torch.Tensor:
        real = sum(weight(b, h, t, s) for s in range(attention.shape[-1]))
        return real if null is None else real + null_weight(b, h, t)

    sample = cells(attention.shape, lambda b, h, t, s: weight(b, h, t, s) / total(b, h, t))
    if null is None:
        return sample, None
    return sample, cells(null.shape, lambda b, h, t: null_weight(b, h, t) / total(b, h, t))


def hard_choice(attention: torch.Tensor, null: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[DT] One-hot argmax of each row, the NULL column counted as one more candidate (the first of a tie wins)."""
    choice, null_choice = torch.zeros_like(attention), None if null is None else torch.zeros_like(null)
    batch, heads, target, source = attention.shape
    for b in range(batch):
        for h in range(heads):
            for t in range(target):
                best = max(range(source), key=lambda s, row=attention[b, h, t]: (float(row[s]), -s))
                if null is not None and null[b, h, t] >= attention[b, h, t, best]:
                    null_choice[b, h, t] = 1.0
                else:
                    choice[b, h, t, best] = 1.0
    return choice, null_choice


def mask(mask_query: torch.Tensor, mask_key: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 3: `m = sigmoid((q W^Q)(K W^K)^T / sqrt(d_k))` from the projected `q W^Q` and `K W^K`."""
    score = scores(mask_query, mask_key)
    return cells(score.shape, lambda b, h, t, s: 1 / (1 + torch.exp(-score[b, h, t, s])))


def project_model(states: torch.Tensor, weight: torch.Tensor, heads: int) -> torch.Tensor:
    """[AC, published code] `x W` on the whole hidden state, split into heads: `(batch, heads, length, d_k)`.

    `states` `(batch, length, d_model)`; `weight` `(d_model, d_model)` as `nn.Linear` stores it (output first).
    """
    batch, length, width = states.shape
    d_k = width // heads
    return cells((batch, heads, length, d_k), lambda b, h, t, d: dot(states[b, t], weight[h * d_k + d]))


def project_head(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[AC, text] `q W` per head: `states` `(batch, heads, length, d_k)`; `weight` `(heads, d_k out, d_k in)`."""
    return cells(states.shape, lambda b, h, t, d: dot(states[b, h, t], weight[h, d]))


def uniform(real_source: torch.Tensor, shape: Sequence[int], null: torch.Tensor | None = None) -> torch.Tensor:
    """`mu_0`: 1/n over the n real tokens; with leaky attention `(1 - a_null) / n`; 0 on padding."""

    def cell(b: int, h: int, t: int, s: int) -> torch.Tensor:
        if not real_source[b, s]:
            return torch.zeros((), dtype=torch.float64)
        n = int(real_source[b].sum())
        mass = torch.ones((), dtype=torch.float64) if null is None else 1 - null[b, h, t]
        return mass / n

    return cells(shape, cell)


def perturbed(
    attention: torch.Tensor, mask: torch.Tensor, real_source: torch.Tensor, null: torch.Tensor | None = None
) -> torch.Tensor:
    """[AC] eq. 2: `a_p = m * a + (1 - m) * mu_0`."""
    mu_0 = uniform(real_source, attention.shape, null)

    def cell(*i: int) -> torch.Tensor:
        return mask[i] * attention[i] + (1 - mask[i]) * mu_0[i]

    return cells(attention.shape, cell)


def penalty(masks: Sequence[torch.Tensor], real_source: torch.Tensor, real_target: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 5: `||1 - m||_2` over the real source tokens of each (layer, head, real target step), then the mean.

    `masks`: one `(batch, heads, target, source)` tensor a layer; `real_target`: boolean `(batch, target)`.
    """
    norms = []
    for m in masks:
        batch, heads, target, source = m.shape
        for b in range(batch):
            for h in range(heads):
                for t in range(target):
                    if real_target[b, t]:
                        squares = sum((1 - m[b, h, t, s]) ** 2 for s in range(source) if real_source[b, s])
                        norms.append(torch.sqrt(squares))
    return sum(norms) / len(norms)


def contribution(attention: torch.Tensor, perturbed_attention: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 6: `phi = |a_p - a|`."""
    return cells(attention.shape, lambda *i: abs(perturbed_attention[i] - attention[i]))


def calibrated(attention: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 9: `a_c = a * exp(1 - m)`."""
    return cells(attention.shape, lambda *i: attention[i] * torch.exp(1 - mask[i]))


def renormalized(attention: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """`attention` scaled so that each row sums to `total` `(batch, heads, target)`, the mass it had before."""

    def cell(b: int, h: int, t: int, s: int) -> torch.Tensor:
        return attention[b, h, t, s] * total[b, h, t] / sum(attention[b, h, t])

    return cells(attention.shape, cell)


def fixed(attention: torch.Tensor, calibrated: torch.Tensor, weight: float) -> torch.Tensor:
    """[AC] eq. 10 as the published code has it: `a + lambda * a_c`."""
    return cells(attention.shape, lambda *i: attention[i] + weight * calibrated[i])


def annealing(step: int, steps: float) -> float:
    """[AC] eq. 11: `gamma(s) = exp(-s / steps)`."""
    return math.exp(-step / steps)


def annealed(attention: torch.Tensor, calibrated: torch.Tensor, gamma: float) -> torch.Tensor:
    """[AC] eq. 11: `gamma * a + (1 - gamma) * a_c`."""
    return cells(attention.shape, lambda *i: gamma * attention[i] + (1 - gamma) * calibrated[i])


def gate(query: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 12: `g = sigmoid(q W^g + b^g)`, `(batch, heads, target)`; `weight` `(heads, d_k)`, `bias` `(heads)`."""
    return cells(query.shape[:3], lambda b, h, t: 1 / (1 + torch.exp(-dot(query[b, h, t], weight[h]) - bias[h])))


def gated(attention: torch.Tensor, calibrated: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """[AC] eq. 12: `g * a + (1 - g) * a_c`, one `g` per (batch, head, target)."""

    def cell(b: int, h: int, t: int, s: int) -> torch.Tensor:
        return gate[b, h, t] * attention[b, h, t, s] + (1 - gate[b, h, t]) * calibrated[b, h, t, s]

    return cells(attention.shape, cell)


def gated_output(heads: torch.Tensor, query: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Output gate: `o_h = 2 sigmoid(w_h q + b_h) head_h`; `heads`, `query` `(batch, heads, target, d_k)`."""

    def cell(b: int, h: int, t: int, d: int) -> torch.Tensor:
        return 2 / (1 + torch.exp(-dot(query[b, h, t], weight[h]) - bias[h])) * heads[b, h, t, d]

    return cells(heads.shape, cell)


def read_values(
    attention: torch.Tensor,
    value: torch.Tensor,
    null: torch.Tensor | None = None,
    null_value: torch.Tensor | None = None,
) -> torch.Tensor:
    """`attention V`, with leaky attention over `[v_NULL; V]` [MA]: `(batch, heads, target, d_k)`."""

    def cell(b: int, h: int, t: int, d: int) -> torch.Tensor:
        total = sum(attention[b, h, t, s] * value[b, h, s, d] for s in range(value.shape[2]))
        return total if null is None else total + null[b, h, t] * null_value[h, d]

    return cells((*attention.shape[:3], value.shape[-1]), cell)


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0, num_items: float | None = None
) -> torch.Tensor:
    """Label-smoothed cross-entropy: `(1 - eps) * -log p(y) + eps / V * sum_v -log p(v)` for each label but -100.

    `logits` `(batch, target, V)`, `labels` `(batch, target)`; the sum divided by `num_items`, or by the number of
    labels that count.
    """
    batch, target, vocabulary = logits.shape
    total, count = torch.zeros((), dtype=logits.dtype), 0
    for b in range(batch):
        for t in range(target):
            if labels[b, t] == -100:
                continue
            log_z = torch.log(sum(torch.exp(logits[b, t, v]) for v in range(vocabulary)))
            surprise = [log_z - logits[b, t, v] for v in range(vocabulary)]
            smooth = sum(surprise) / vocabulary
            total = total + (1 - label_smoothing) * surprise[int(labels[b, t])] + label_smoothing * smooth
            count += 1
    return total / (count if num_items is None else num_items)


def split_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """`(batch, length, d_model)` to `(batch, heads, length, d_k)`."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


class SlowModel:
    """A stock model whose cross-attentions are computed by the loops above: the independent side of the model tests.

    Each objective is one pass with `requires_grad` set by hand, as if the two were trained apart; nothing of the
    package takes part.

    Args:
        stock: a stock Marian or BART model with eager attention; holds theta.
        added: everything that it lacks, under the name of our parameter.
        config: our configuration.
        annealing_step: s of eq. 11.
    """

    def __init__(
        self, stock: torch.nn.Module, added: dict[str, torch.Tensor], config: object, annealing_step: int | None = None
    ) -> None:
        self.stock, self.added, self.config, self.annealing_step = stock, added, config, annealing_step
        self.perturbing = False
        self.real_source = None
        self.masks: list[torch.Tensor] = []
        self.attentions: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []
        self.nulls: list[torch.Tensor | None] = []
        for i, layer in enumerate(stock.model.decoder.layers):
            prefix = f"model.decoder.layers.{i}.encoder_attn."
            layer.encoder_attn.forward = lambda *args, a=layer.encoder_attn, p=prefix, **kw: self._attend(
                a, p, *args, **kw
            )

    def train(self, mode: bool = True) -> "SlowModel":
        """Set the mode like `nn.Module.train`."""
        self.stock.train(mode)
        return self

    def logits(self, batch: dict[str, torch.Tensor], perturbing: bool) -> torch.Tensor:
        """One pass; the second one (`perturbing`) uses a_p in every layer. Fills `masks`, `attentions`, ..."""
        self.perturbing, self.real_source = perturbing, batch["attention_mask"].bool()
        self.masks, self.attentions, self.weights, self.nulls = [], [], [], []
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        decoder_input_ids = self.stock.prepare_decoder_input_ids_from_labels(batch["labels"])
        return self.stock(**inputs, decoder_input_ids=decoder_input_ids, use_cache=False).logits

    def objective(
        self, batch: dict[str, torch.Tensor], mask_network: bool
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the value of one objective, and the gradients of the parameters that it trains.

        `mask_network` False: the NMT loss, for theta, the gate and the NULL parameters (eq. 13); True: eq. 4 for W^Q
        and W^K.
        """
        trained = {}
        for name, tensor in [*self.stock.named_parameters(), *self.added.items()]:
            fixed_table = "embed_positions" in name and self.stock.config.model_type == "marian"
            tensor.requires_grad_((".mask_network." in name) == mask_network and not fixed_table)
            if tensor.requires_grad:
                trained[name] = tensor
        logits = self.logits(batch, perturbing=mask_network)
        loss = cross_entropy(logits, batch["labels"], self.config.label_smoothing)
        if mask_network:
            loss = -loss + self.config.mask_penalty * self.penalty(batch)
        gradients = torch.autograd.grad(loss, list(trained.values()))
        return loss.detach(), dict(zip(trained, gradients, strict=True))

    def penalty(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Eq. 5 of the last pass."""
        return penalty(self.masks, self.real_source, batch["labels"] != -100)

    def _attend(
        self, attention: torch.nn.Module, prefix: str, hidden_states: torch.Tensor, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        config, encoder_states = self.config, kwargs["key_value_states"]
        query = split_heads(attention.q_proj(hidden_states), attention.num_heads)
        key = split_heads(attention.k_proj(encoder_states), attention.num_heads)
        value = split_heads(attention.v_proj(encoder_states), attention.num_heads)
        null_score = null_scores(query, self.added[prefix + "null.key"]) if config.leaky else None
        a, null = softmax(scores(query, key), self.real_source, null_score)
        if config.gumbel and self.stock.training:
            a, null = self._sample(a, null)
        elif config.gumbel:
            a, null = hard_choice(a, null)
        weights = a
        if config.calibration is not None:
            weights = self._calibrate(prefix, a, null, query, key, hidden_states, encoder_states)
        self.attentions.append(a)
        self.weights.append(weights)
        self.nulls.append(null)
        heads = read_values(weights, value, null, self.added[prefix + "null.value"] if config.leaky else None)
        if config.output_gate:
            gate = [self.added[f"{prefix}output_gate.{name}"] for name in ("weight", "bias")]
            heads = gated_output(heads, query, *gate)
        return attention.out_proj(heads.transpose(1, 2).flatten(2)), weights

    def _sample(self, a: torch.Tensor, null: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gumbel attention with the next numbers of torch's generator: one for each column, NULL first."""
        columns = a.shape[-1] + (null is not None)
        noise = gumbel_noise(torch.exp(-torch.empty(*a.shape[:-1], columns, dtype=a.dtype).exponential_()))
        if null is None:
            return gumbel_softmax(a, noise, self.config.gumbel_temperature)
        return gumbel_softmax(a, noise[..., 1:], self.config.gumbel_temperature, null, noise[..., 0])

    def _calibrate(
        self,
        prefix: str,
        a: torch.Tensor,
        null: torch.Tensor | None,
        query: torch.Tensor,
        key: torch.Tensor,
        hidden_states: torch.Tensor,
        encoder_states: torch.Tensor,
    ) -> torch.Tensor:
        config, heads = self.config, query.shape[1]
        w_q, w_k = (self.added[f"{prefix}mask_network.{name}_weight"] for name in ("query", "key"))
        if config.mask_projection == "model":
            m = mask(project_model(hidden_states, w_q, heads), project_model(encoder_states, w_k, heads))
        else:
            m = mask(project_head(query, w_q), project_head(key, w_k))
        self.masks.append(m)
        if self.perturbing:
            return perturbed(a, m, self.real_source, null)
        if config.mask_inputs == "detached":
            m = m.detach()  # eq. 13: the NMT loss takes the mask as given
        a_c = calibrated(a, m)
        if config.calibration == "fixed":
            combined = fixed(a, a_c, config.calibration_weight)
        elif config.calibration == "annealed":
            combined = annealed(a, a_c, annealing(self.annealing_step, config.annealing_steps))
        elif config.calibration == "gated":
            g = gate(query, self.added[prefix + "gate.weight"], self.added[prefix + "gate.bias"])
            combined = gated(a, a_c, g)
        else:
            raise NotImplementedError(f"there is no loop for {config.calibration!r}: write it from its equation")
        return renormalized(combined, a.sum(dim=-1)) if config.renormalize else combined


# ---- Mask-Align ----
# Weights here are (batch, target, source) or, for one pair, (target, source); NULL is the first column where there is
# one. `real_target` is as `real_source`.


def agreement(
    forward: torch.Tensor, backward: torch.Tensor, real_target: torch.Tensor, real_source: torch.Tensor
) -> torch.Tensor:
    """[MA] sec. 3.3: `MSE(W_f, W_b^T)` over the real cells of a batch; `backward` (batch, source, target)."""
    total, count = torch.zeros((), dtype=forward.dtype), 0
    for b in range(len(forward)):
        for t in range(forward.shape[1]):
            for s in range(forward.shape[2]):
                if real_target[b, t] and real_source[b, s]:
                    total, count = total + (forward[b, t, s] - backward[b, s, t]) ** 2, count + 1
    return total / max(count, 1)


def smoothed_entropy(
    weights: torch.Tensor, real_target: torch.Tensor, real_source: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """[MA] sec. 3.3: `-(1/I) sum_i sum_j W~_ij log W~_ij`, `W~ = (W + lambda) / sum_j (W + lambda)`; 0 log 0 = 0."""
    total, count = torch.zeros((), dtype=weights.dtype), 0
    for b in range(len(weights)):
        real = [s for s in range(weights.shape[2]) if real_source[b, s]]
        for t in range(weights.shape[1]):
            if not real_target[b, t]:
                continue
            count += 1
            mass = sum((weights[b, t, s] + smoothing for s in real), torch.zeros((), dtype=weights.dtype))
            for s in real:
                if mass > 0 and weights[b, t, s] + smoothing > 0:
                    share = (weights[b, t, s] + smoothing) / mass
                    total = total - share * torch.log(share)
    return total / max(count, 1)


def guided(weights: torch.Tensor, null: torch.Tensor, links: torch.Tensor, real_target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the weights against given links, mean over real target tokens.

    A token with links: `-(1/n) sum over its n links of log W`; without: `-log W_NULL` (`null`, (batch, target)).
    """
    total, count = torch.zeros((), dtype=weights.dtype), 0
    for b in range(len(weights)):
        for t in range(weights.shape[1]):
            if not real_target[b, t]:
                continue
            count += 1
            linked = [s for s in range(weights.shape[2]) if links[b, t, s]]
            for s in linked:
                total = total - torch.log(weights[b, t, s]) / len(linked)
            if not linked:
                total = total - torch.log(null[b, t])
    return total / max(count, 1)


def harmonic(forward: torch.Tensor, backward: torch.Tensor) -> torch.Tensor:
    """[MA] sec. 3.4: `S_ij = 2 W_f W_b / (W_f + W_b)` (0 where both are 0), (batch, source, target)."""

    def cell(b: int, s: int, t: int) -> torch.Tensor:
        f, g = forward[b, t, s], backward[b, s, t]
        return 2 * f * g / (f + g) if f + g > 0 else torch.zeros((), dtype=forward.dtype)

    return cells(backward.shape, cell)


def mixture(weights: torch.Tensor, emissions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`log p(y_t) = log sum_s W_ts p(y_t | s)`, and `P_ts = W_ts p(y_t | s) / p(y_t)`.

    `emissions`: log p(y_t | s), (batch, target, NULL and source), as the weights W.
    """

    def joint(b: int, t: int, s: int) -> torch.Tensor:
        return weights[b, t, s] * torch.exp(emissions[b, t, s])

    def total(b: int, t: int) -> torch.Tensor:
        return sum(joint(b, t, s) for s in range(weights.shape[2]))

    likelihood = cells(weights.shape[:2], lambda b, t: torch.log(total(b, t)))
    return likelihood, cells(weights.shape, lambda b, t, s: joint(b, t, s) / total(b, t))


def first_order(
    weights: torch.Tensor,
    null: torch.Tensor,
    jumps: torch.Tensor,
    uniform: float,
    attention: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """A first-order alignment of one pair, by going through all `(1 + S) ** T` alignments.

    `p(y, a) = prod_t weights[t, a_t] J_t(a_t | p)`, with p the last position before t that is not NULL, or -1, and
    `J_t(s | p) = (1 - uniform) c(s - p) / sum_s q_t(s) c(s - p) + uniform / sum_s q_t(s)`; for NULL
    `null[t]`.

    Args:
        weights: (T, S). null: (T,). jumps: c from -W to W. attention: q, (T, S); None: 1 everywhere.

    Returns:
        "weights" (T, S), "null" (T,) and "log_likelihood" (); "jumps" and "chances" as long as `jumps`.
    """
    steps, size = weights.shape
    width = len(jumps) // 2
    attention = torch.ones_like(weights) if attention is None else attention

    def entry(p: int, s: int) -> int:
        return max(-width, min(width, s - p)) + width

    def reached(t: int, p: int) -> torch.Tensor:
        return sum(attention[t, s] * jumps[entry(p, s)] for s in range(size))

    def by_table(t: int, p: int, s: int) -> torch.Tensor:
        return (1 - uniform) * jumps[entry(p, s)] / reached(t, p)

    def jump(t: int, p: int, s: int) -> torch.Tensor:
        return by_table(t, p, s) + uniform / sum(attention[t, k] for k in range(size))

    found = {}
    for alignment in itertools.product(range(-1, size), repeat=steps):  # -1 stands for NULL
        last, joint = -1, torch.ones((), dtype=weights.dtype)
        for t, s in enumerate(alignment):
            joint = joint * (null[t] if s < 0 else weights[t, s] * jump(t, last, s))
            last = last if s < 0 else s
        found[alignment] = joint
    total = sum(found.values())
    counts, chances = torch.zeros_like(jumps), torch.zeros_like(jumps)
    for alignment, joint in found.items():
        last = -1
        for t, s in enumerate(alignment):
            if s < 0:
                continue
            chance = (joint / total * by_table(t, last, s) / jump(t, last, s)).detach()
            counts[entry(last, s)] += chance
            for other in range(size):
                chances[entry(last, other)] += chance * (attention[t, other] / reached(t, last)).detach()
            last = s

    def share(t: int, s: int) -> torch.Tensor:
        return sum(joint for alignment, joint in found.items() if alignment[t] == s) / total

    return {
        "weights": cells((steps, size), share),
        "null": cells((steps,), lambda t: share(t, -1)),
        "log_likelihood": torch.log(total),
        "jumps": counts,
        "chances": chances,
    }


class SlowMaskAlign:
    """[MA] One sentence pair at a time, one position at a time: no batch, no padding, no mask exists here.

    Args:
        parameters: of the model under test, by name.
        config: its configuration.
        frequencies: relative frequency of each vocabulary entry, (source, target); for `sampled_softmax`.
        jumps: the table of each direction, by name; for `max_jump`.
    """

    def __init__(
        self,
        parameters: dict[str, torch.Tensor],
        config: object,
        frequencies: tuple[torch.Tensor, torch.Tensor] | None = None,
        jumps: dict[str, torch.Tensor] | None = None,
    ) -> None:
        self.parameters, self.config, self.frequencies, self.jumps = parameters, config, frequencies, jumps

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """`W x + b` of one vector."""
        return self.parameters[f"{name}.weight"] @ x + self.parameters[f"{name}.bias"]

    def layer_norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Of one vector."""
        mean = x.sum() / len(x)
        variance = ((x - mean) ** 2).sum() / len(x)
        normal = (x - mean) / torch.sqrt(variance + 1e-5)
        return normal * self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def feed_forward(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """`W_2 relu(W_1 x' + b_1) + b_2`, x' = the layer norm of x."""
        inner = self.linear(f"{name}.fc1", self.layer_norm(f"{name}.layer_norm", x))
        return self.linear(f"{name}.fc2", torch.where(inner > 0, inner, torch.zeros_like(inner)))

    def head(self, x: torch.Tensor, h: int) -> torch.Tensor:
        """Part h of a vector, d_k values."""
        d_k = self.config.d_model // self.config.attention_heads
        return x[h * d_k : (h + 1) * d_k]

    def position(self, p: int) -> torch.Tensor:
        """Vaswani et al.: sines of `p / 10000^(2k / d_model)` for k < d_model / 2, then the cosines."""
        angles = [p / 10000 ** (2 * k / self.config.d_model) for k in range(self.config.d_model // 2)]
        return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)

    def table(self, side: str) -> torch.Tensor:
        """Embeddings of the "source" or the "target" language."""
        return self.parameters[f"{'source' if self.config.share_embeddings else side}_embeddings.weight"]

    def embed(self, side: str, ids: Sequence[int]) -> list[torch.Tensor]:
        """`x_i sqrt(d_model) + p_i`."""
        root = math.sqrt(self.config.d_model)
        return [self.table(side)[token] * root + self.position(p) for p, token in enumerate(ids)]

    def keys_and_values(self, name: str, states: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each state."""
        return [(self.linear(f"{name}.k_proj", state), self.linear(f"{name}.v_proj", state)) for state in states]

    def attend(self, name: str, query: torch.Tensor, seen: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """Attend with one query to the keys and values that it may see; without any, to one state of zeros."""
        seen = seen or self.keys_and_values(name, [torch.zeros_like(query)])
        query = self.linear(f"{name}.q_proj", query)
        read = []
        for h in range(self.config.attention_heads):
            q = self.head(query, h)
            e = [torch.exp(q @ self.head(key, h) / math.sqrt(len(q))) for key, _ in seen]
            read.append(sum(e[j] / sum(e) * self.head(value, h) for j, (_, value) in enumerate(seen)))
        return self.linear(f"{name}.out_proj", torch.cat(read))

    def encode(self, direction: str, x: list[torch.Tensor]) -> list[torch.Tensor]:
        """Every position sees every position; norms before the sub-layers, and one at the end."""
        for n in range(self.config.encoder_layers):
            layer = f"{direction}.encoder_layers.{n}"
            normal = [self.layer_norm(f"{layer}.self_attn_layer_norm", state) for state in x]
            seen = self.keys_and_values(f"{layer}.self_attn", normal)
            x = [x[i] + self.attend(f"{layer}.self_attn", normal[i], seen) for i in range(len(x))]
            x = [s + self.feed_forward(f"{layer}.ffn", s) for s in x]
        return [self.layer_norm(f"{direction}.encoder_layer_norm", state) for state in x]

    def decode(self, direction: str, x: list[torch.Tensor]) -> list[torch.Tensor]:
        """Static KV: query i starts from `p_i`; the keys and values of every layer are those of x, without x_i."""
        hidden = self.config.mask_diagonal
        queries = [self.position(i) if hidden else x[i] for i in range(len(x))]
        for n in range(self.config.decoder_layers):
            layer = f"{direction}.decoder_layers.{n}"
            all_seen = self.keys_and_values(f"{layer}.self_attn", x)
            for i, query in enumerate(queries):
                seen = [both for j, both in enumerate(all_seen) if j != i or not hidden]
                normal = self.layer_norm(f"{layer}.self_attn_layer_norm", query)
                queries[i] = query + self.attend(f"{layer}.self_attn", normal, seen)
                # The paper's last layer looks at the source between its self-attention and its feed-forward network.
                if n < self.config.decoder_layers - 1 or self.config.prediction == "mixture":
                    queries[i] = queries[i] + self.feed_forward(f"{layer}.ffn", queries[i])
        return queries

    def cross_weights(self, direction: str, queries: list[torch.Tensor], states: list[torch.Tensor]) -> list:
        """`softmax(q [k_NULL; K]^T / sqrt(d_k))`, [head][target][NULL, source...]; NULL is 0 without `leaky`."""
        name = f"{direction}.prediction.cross_attn"
        queries = [self.linear(f"{name}.q_proj", self.layer_norm(f"{name}_layer_norm", query)) for query in queries]
        keys = [self.linear(f"{name}.k_proj", state) for state in states]
        weights = []
        for h in range(self.config.attention_heads):
            rows = []
            for t, query in enumerate(queries):
                q = self.head(query, h)
                e = [torch.zeros((), dtype=q.dtype)]
                if self.config.leaky:
                    e = [torch.exp(q @ self.parameters[f"{name}.null.key"][h] / math.sqrt(len(q)))]
                for s, key in enumerate(keys):
                    score = q @ self.head(key, h) / math.sqrt(len(q))
                    if self.config.diagonal_bias is not None:
                        distance = abs((t + 0.5) / len(queries) - (s + 0.5) / len(keys))
                        score = score - self.parameters[f"{name}.diagonal_bias"][h] * distance
                    e.append(torch.exp(score))
                rows.append([value / sum(e) for value in e])
            weights.append(rows)
        return weights

    def context(self, direction: str, weights: list, t: int, states: list[torch.Tensor]) -> torch.Tensor:
        """Return the weighted mean of `[v_NULL; V]` at position t."""
        name = f"{direction}.prediction.cross_attn"
        values = [self.linear(f"{name}.v_proj", state) for state in states]
        read = []
        for h in range(self.config.attention_heads):
            total = sum(weights[h][t][1 + s] * self.head(value, h) for s, value in enumerate(values))
            if self.config.leaky:
                total = total + weights[h][t][0] * self.parameters[f"{name}.null.value"][h]
            read.append(total)
        return self.linear(f"{name}.out_proj", torch.cat(read))

    def emissions(self, direction: str, source: Sequence[int], states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the predictions of NULL and each source token, as vectors to compare with embeddings."""
        name = f"{direction}.prediction"
        if self.config.emission == "embeddings":
            table = self.table("source" if direction == "forward_direction" else "target")
            states = [table[token] for token in source]
        null = self.parameters[f"{name}.null_emission"] if self.config.leaky else torch.zeros_like(states[0])
        tokens = [self.linear(f"{name}.emission", state) for state in states]
        return [null, *(self.layer_norm(f"{name}.output_layer_norm", token) for token in tokens)]

    def align(self, direction: str, source: Sequence[int], target: Sequence[int]) -> dict:
        """States, queries, weights of each head, and their mean (target, 1 + source), of one pair and direction.

        `source` is what the direction reads, `target` what it predicts.
        """
        sides = ("source", "target") if direction == "forward_direction" else ("target", "source")
        states = self.encode(direction, self.embed(sides[0], source))
        queries = self.decode(direction, self.embed(sides[1], target))
        heads = self.cross_weights(direction, queries, states)
        mean = cells((len(target), 1 + len(source)), lambda t, s: sum(head[t][s] for head in heads) / len(heads))
        return {"states": states, "queries": queries, "heads": heads, "mean": mean}

    def inference(self, direction: str, source: Sequence[int], target: Sequence[int]) -> torch.Tensor:
        """The weights that align, (target, 1 + source): for the mixture with every normaliser taken as equal."""
        found = self.align(direction, source, target)
        if self.config.prediction == "attention":
            return found["mean"]
        table = self.table("target" if direction == "forward_direction" else "source")
        vectors = self.emissions(direction, source, found["states"])
        scores = cells((len(target), 1 + len(source)), lambda t, s: table[target[t]] @ vectors[s])
        posterior = mixture(found["mean"].unsqueeze(0), scores.unsqueeze(0))[1][0]
        return posterior if self.config.max_jump is None else self.with_jumps(direction, found["mean"], posterior)

    def with_jumps(self, direction: str, attention: torch.Tensor, posterior: torch.Tensor) -> torch.Tensor:
        """First-order: the attention to what is not NULL, next to the jump, says where a token goes."""
        real = cells(posterior[:, 1:].shape, lambda t, s: attention[t, 1 + s] / sum(attention[t, 1:]))
        found = first_order(posterior[:, 1:], posterior[:, 0], self.jumps[direction], self.config.uniform_jump, real)
        return torch.cat([found["null"].unsqueeze(1), found["weights"]], dim=1)

    def candidates(self, side: str, sentences: Sequence[Sequence[int]], sampling: bool) -> dict[int, float]:
        """The vocabulary entries that a prediction chooses from, each with the log of its chance to be among them."""
        if not sampling:
            return dict.fromkeys(range(self.config.vocab_size), 0.0)
        frequency = self.frequencies[0 if side == "source" else 1]
        tokens = [token for sentence in sentences for token in sentence]
        return {v: math.log(1 - (1 - float(frequency[v])) ** len(tokens)) for v in sorted(set(tokens))}

    def predict(self, direction: str, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], training: bool) -> dict:
        """Loss per token and the aligning weights of each pair; `pairs` of (what is read, what is predicted)."""
        config, side = self.config, "target" if direction == "forward_direction" else "source"
        chosen = self.candidates(side, [target for _, target in pairs], training and config.sampled_softmax)
        table, bias = self.table(side), self.parameters[f"{direction}.prediction.output_bias"]
        smoothing = config.label_smoothing if training else 0.0

        def log_probabilities(vector: torch.Tensor) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
            logits = {v: table[v] @ vector + bias[v] - chosen[v] for v in chosen}
            normalizer = torch.log(sum(torch.exp(logit) for logit in logits.values()))
            return {v: logit - normalizer for v, logit in logits.items()}, normalizer

        losses, weights, penalties, correct = [], [], [], []
        for source, target in pairs:
            found = self.align(direction, source, target)
            if config.prediction == "mixture":
                emitted = [log_probabilities(vector) for vector in self.emissions(direction, source, found["states"])]
                penalties += [normalizer**2 for _, normalizer in emitted[0 if config.leaky else 1 :]]
                rows = [[emitted[s][0][token] for s in range(1 + len(source))] for token in target]
                given = torch.stack([torch.stack(row) for row in rows]).unsqueeze(0)
                likelihood, posterior = mixture(found["mean"].unsqueeze(0), given)
                losses += [-value for value in likelihood[0]]
                if config.max_jump is None or training:
                    weights.append(posterior[0])
                else:
                    weights.append(self.with_jumps(direction, found["mean"], posterior[0]))
                for t, token in enumerate(target):
                    mixed = {
                        v: sum(found["mean"][t, s] * torch.exp(emitted[s][0][v]) for s in range(1 + len(source)))
                        for v in chosen
                    }
                    correct.append(max(mixed, key=mixed.get) == token)
                continue
            weights.append(found["mean"])
            for t, token in enumerate(target):
                hidden = found["queries"][t] + self.context(direction, found["heads"], t, found["states"])
                hidden = hidden + self.feed_forward(f"{direction}.prediction.ffn", hidden)
                logs, _ = log_probabilities(self.layer_norm(f"{direction}.prediction.output_layer_norm", hidden))
                even = sum(logs.values()) / len(logs)
                losses.append(-(1 - smoothing) * logs[token] - smoothing * even)
                correct.append(max(logs, key=logs.get) == token)
        found = {"loss": sum(losses) / len(losses), "weights": weights, "accuracy": sum(correct) / len(correct)}
        return found | ({"penalty": sum(penalties) / len(penalties)} if penalties else {})

    def losses(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        training: bool = True,
        links: Sequence[torch.Tensor] | None = None,
        agreement_scale: float = 1.0,
    ) -> dict:
        """Every loss of a batch of pairs of token ids, and the weights; `links` (target, source) of each pair.

        Means are over the tokens, or the cells, of all pairs together.
        """
        config = self.config
        forward = self.predict("forward_direction", pairs, training)
        backward = self.predict("backward_direction", [(target, source) for source, target in pairs], training)
        sums, cell_count, entropies, guides = 0.0, 0, [0.0, 0.0], [0.0, 0.0]
        counts = [sum(len(target) for _, target in pairs), sum(len(source) for source, _ in pairs)]
        for n, (source, target) in enumerate(pairs):
            f, b = forward["weights"][n].unsqueeze(0), backward["weights"][n].unsqueeze(0)
            t, s = torch.ones(1, len(target), dtype=torch.bool), torch.ones(1, len(source), dtype=torch.bool)
            sums = sums + agreement(f[..., 1:], b[..., 1:], t, s) * len(source) * len(target)
            cell_count += len(source) * len(target)
            for side, (weights, predicted, read) in enumerate(((f, t, s), (b, s, t))):
                entropy = smoothed_entropy(weights[..., 1:], predicted, read, config.entropy_smoothing)
                entropies[side] = entropies[side] + entropy * predicted.sum() / counts[side]
                if links is not None:
                    given = links[n].unsqueeze(0) if side == 0 else links[n].T.unsqueeze(0)
                    loss = guided(weights[..., 1:], weights[..., 0], given, predicted)
                    guides[side] = guides[side] + loss * predicted.sum() / counts[side]
        found = {
            "prediction_loss": 0.5 * (forward["loss"] + backward["loss"]),
            "agreement_loss": sums / cell_count,
            "entropy_loss": entropies[0] + entropies[1],
            "prediction_accuracy": 0.5 * (forward["accuracy"] + backward["accuracy"]),
            "forward": forward["weights"],
            "backward": backward["weights"],
        }
        loss = found["prediction_loss"] + agreement_scale * config.agreement_weight * found["agreement_loss"]
        loss = loss + config.entropy_weight * found["entropy_loss"]
        if "penalty" in forward:
            loss = loss + config.normalizer_penalty * 0.5 * (forward["penalty"] + backward["penalty"])
        if links is not None:
            found["guided_loss"] = 0.5 * (guides[0] + guides[1])
            loss = loss + config.guide_weight * found["guided_loss"]
        return found | {"loss": loss}


class SlowHMM:
    """The aligner that counts: what it makes of its counts, and `first_order` of that.

    Args:
        config: holds `vocab_size`, `lexical_prior`, `identical_prior`, `null_probability` and `uniform_jump`.
        counts: of pairs of tokens (source, target). jumps: c(d) of the two directions, d = -W, ..., W.
        totals: counts of the tokens of each side. null_counts: how often the tokens of each side were unaligned.
    """

    def __init__(self, config, counts, totals, null_counts, jumps) -> None:
        self.config, self.counts, self.totals = config, counts, totals
        self.null_counts, self.jumps = null_counts, jumps
        self.weight = 1.0  # what a share of `own` was counted as

    def predictive(self, count: float, total: float) -> float:
        """Return the prediction of a Dirichlet prior after counts."""
        prior = self.config.lexical_prior
        return (count + prior) / (total + prior * self.config.vocab_size)

    def emissions(self, given, predicted, side: int, own, factor=None) -> tuple[list[list[float]], list[float]]:
        """`e_t(s)` and `e_t(NULL)` where `side` (0 the source, 1 the target) is given and the other one predicted.

        `own[t][s]`, predicted token by given token, is what this pair has added to the counts; None for nothing.
        `factor[t][s]` multiplies the emission at its place; None for 1.
        """
        p_null, weights, nulls = self.config.null_probability, [], []
        identical = self.config.identical_prior
        all_null = sum(self.null_counts[1 - side])
        for t, y in enumerate(predicted):
            row = []
            for s, x in enumerate(given):
                mine = self.weight * own[t][s] if own else 0.0
                of_given = self.weight * sum(own[k][s] for k in range(len(predicted))) if own else 0.0
                count = self.counts.get((x, y) if side == 0 else (y, x), 0.0) + (identical if x == y else 0.0)
                emission = self.predictive(count - mine, self.totals[side][x] + identical - of_given)
                if identical and x == y and (self.foreign(side, x) or self.foreign(1 - side, y)):
                    emission = 0.5
                row.append((1 - p_null) * emission * (factor[t][s] if factor else 1.0))
            unaligned = self.weight * max(0.0, 1 - sum(own[t])) if own else 0.0
            weights.append(row)
            nulls.append(p_null * self.predictive(self.null_counts[1 - side][y] - unaligned, all_null - unaligned))
        return weights, nulls

    def foreign(self, side: int, token: int) -> bool:
        """Return True if a side never had a token but had others."""
        of_side = [a + b for a, b in zip(self.totals[side], self.null_counts[side], strict=True)]
        return any(of_side) and of_side[token] == 0

    def direction(self, given, predicted, side: int = 0, own=None, uniform: float | None = None, factor=None) -> dict:
        """One direction: `weights` [t][s], `null` [t], `log_likelihood`, and `jumps` and `chances` by distance."""
        numbers = (*self.emissions(given, predicted, side, own, factor), self.jumps[side])
        uniform = self.config.uniform_jump if uniform is None else uniform
        found = first_order(*(torch.tensor(values, dtype=torch.float64) for values in numbers), uniform)
        return {name: tensor.tolist() for name, tensor in found.items()}

    def both(self, source, target, own=None, uniform: float | None = None, factor=None) -> tuple[dict, dict]:
        """Both directions of a pair; `own` and `factor` [t][s] belong to the first, mirrored to the second."""
        mirrored = [cells and [list(column) for column in zip(*cells, strict=True)] for cells in (own, factor)]
        forward = self.direction(source, target, 0, own, uniform, factor)
        return forward, self.direction(target, source, 1, mirrored[0], uniform, mirrored[1])


# ---- the simpler simple recurrent unit (Kim et al. 2019) ----


def ssru(forget: torch.Tensor, candidate: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """c_t = f_t c_{t-1} + (1 - f_t) x~_t, (batch, steps, width), from c_0 = `first`, (batch, width)."""

    def state(b: int, t: int, k: int) -> torch.Tensor:
        before = first[b, k] if t == 0 else state(b, t - 1, k)
        return forget[b, t, k] * before + (1 - forget[b, t, k]) * candidate[b, t, k]

    return cells(forget.shape, state)


def observed(
    states: dict[str, torch.Tensor],
    base: dict[str, torch.Tensor],
    change: dict[str, torch.Tensor],
    scaling: float,
    real: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of an observer: `softmax((q + U_q D_q x) [k_NULL; k + U_k D_k z] scaling)`, with NULL's bias.

    Args:
        states: decoder states x, (batch, target, d), and encoder states z, (batch, source, d).
        base: weight W and bias b of the head's "query" and "key", `W x + b`.
        change: U and D of both sides, key and bias of NULL.
        real: (batch, source).

    Returns:
        Weights, (batch, target, source), and those of NULL, (batch, target).
    """

    def projected(side: str, x: torch.Tensor) -> torch.Tensor:
        return base[f"{side}_weight"] @ x + base[f"{side}_bias"] + change[f"{side}_up"] @ (change[f"{side}_down"] @ x)

    decoder, encoder = states["decoder"], states["encoder"]
    weights, null = [], []
    for b in range(len(decoder)):
        for t in range(decoder.shape[1]):
            query = projected("query", decoder[b, t])
            scores = [
                projected("key", encoder[b, s]) @ query * scaling
                if real[b, s]
                else torch.tensor(-math.inf).to(decoder)
                for s in range(encoder.shape[1])
            ]
            scores.append(change["null_key"] @ query * scaling + change["null_bias"])
            row = torch.stack(scores).exp() / sum(score.exp() for score in scores)
            weights.append(row[:-1])
            null.append(row[-1])
    return torch.stack(weights).view(*decoder.shape[:2], -1), torch.stack(null).view(decoder.shape[:2])
