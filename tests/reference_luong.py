"""Slow reference of the recurrent models: one sentence, one step and one source token at a time.

Written from the printed formulas, with the parameters of a fast model under their names; nothing here imports the
package. Sentences are lists of tokens without padding. Sources: Luong et al., EMNLP 2015; Zhou et al., ACL 2017
(SEASS); Kiyono et al., 2018 (directions summed); Lu et al., TASLP 2022 (calibration); Chen et al., ACL 2021 (NULL).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Vectors = list[Tensor]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def lstm_step(weights: Mapping[str, Tensor], x: Tensor, state: Vectors) -> Vectors:
    """Input, forget, candidate and output gate, in the order in which the library keeps them."""
    h, c = state
    gates = []
    for k in range(4):
        rows = slice(k * len(h), (k + 1) * len(h))
        gates.append(weights["ih"][rows] @ x + weights["b_ih"][rows] + weights["hh"][rows] @ h + weights["b_hh"][rows])
    c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * torch.tanh(gates[2])
    return [sigmoid(gates[3]) * torch.tanh(c), c]


def gru_step(weights: Mapping[str, Tensor], x: Tensor, state: Vectors) -> Vectors:
    """Reset gate, update gate and candidate."""
    (h,) = state
    of_x, of_h = [], []
    for k in range(3):
        rows = slice(k * len(h), (k + 1) * len(h))
        of_x.append(weights["ih"][rows] @ x + weights["b_ih"][rows])
        of_h.append(weights["hh"][rows] @ h + weights["b_hh"][rows])
    reset, update = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
    candidate = torch.tanh(of_x[2] + reset * of_h[2])
    return [(1 - update) * candidate + update * h]


class SlowLuong:
    """Slow version of `LuongForConditionalGeneration` in evaluation mode.

    Args:
        parameters: of the fast model, by name; leaves that require gradients. config: of the fast model.
    """

    def __init__(self, parameters: Mapping[str, Tensor], config, annealing_step: int | None = None) -> None:
        self.parameters, self.config, self.annealing_step = parameters, config, annealing_step

    def weights(self, layer: str, suffix: str = "") -> dict[str, Tensor]:
        names = {"ih": "weight_ih", "hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
        return {short: self.parameters[f"{layer}.rnn.{name}_l0{suffix}"] for short, name in names.items()}

    def step(self, weights: Mapping[str, Tensor], x: Tensor, state: Vectors) -> Vectors:
        return (lstm_step if self.config.cell == "lstm" else gru_step)(weights, x, state)

    def zeros(self) -> Tensor:
        return torch.zeros(self.config.d_model, dtype=torch.float64)

    def encode(self, source: Sequence[int]) -> tuple[Vectors, list[Vectors]]:
        """States of the top layer, gated, and the last state of every layer."""
        vectors = [self.parameters["model.encoder.embed_tokens.weight"][token] for token in source]
        finals = []
        for number in range(self.config.encoder_layers):
            layer = f"model.encoder.layers.{number}"
            read, ends = [], []
            for suffix in ("", "_reverse")[: 1 + self.config.bidirectional]:
                weights, outputs = self.weights(layer, suffix), []
                state = [self.zeros() for _ in range(2 if self.config.cell == "lstm" else 1)]
                for x in reversed(vectors) if suffix else vectors:
                    state = self.step(weights, x, state)
                    outputs.append(state[0])
                read.append(outputs[::-1] if suffix else outputs)
                ends.append(state)
            vectors = [self.merge(f"{layer}.output_projection", outputs) for outputs in zip(*read, strict=True)]
            finals.append([self.merge(f"{layer}.state_projection", parts) for parts in zip(*ends, strict=True)])
        if self.config.selective_gate:
            sentence = torch.cat([end[0] for end in ends])
            name = "model.encoder.gate.{}_projection.{}"
            of_sentence = self.parameters[name.format("sentence", "weight")] @ sentence
            of_sentence = of_sentence + self.parameters[name.format("sentence", "bias")]
            of_state = self.parameters[name.format("state", "weight")]
            vectors = [h * sigmoid(of_state @ h + of_sentence) for h in vectors]
        return vectors, finals

    def merge(self, projection: str, parts: Sequence[Tensor]) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        if self.config.directions == "sum":
            return parts[0] + parts[1]
        return self.parameters[f"{projection}.weight"] @ torch.cat(list(parts))

    def attention_parameter(self, name: str) -> Tensor:
        return self.parameters[f"model.decoder.attention.{name}"]

    def score(self, h: Tensor, source_state: Tensor, position: int) -> Tensor:
        score = self.config.score
        if score == "dot":
            return h @ source_state
        if score == "location":
            return self.attention_parameter("location_projection.weight")[position] @ h
        key = self.attention_parameter("key_projection.weight") @ source_state
        if score == "general":
            return h @ key
        query = self.attention_parameter("query_projection.weight") @ h
        return self.attention_parameter("score_vector.weight")[0] @ torch.tanh(query + key)

    def attend(self, h: Tensor, states: Vectors, t: int, perturb: bool) -> dict:
        """Weights of the source and of NULL at step t, the context, and the mask."""
        config, length = self.config, len(states)
        seen, factors = range(length), [1.0] * length
        if config.attention_window == "local-m":
            seen = [s for s in range(length) if t - config.window_width <= s <= t + config.window_width]
        if config.attention_window == "local-p":
            hidden = torch.tanh(self.attention_parameter("position_projection.weight") @ h)
            p = length * sigmoid(self.attention_parameter("position_vector.weight")[0] @ hidden)
            seen = [s for s in range(length) if abs(s - p.item()) <= config.window_width]
            sigma = config.window_width / 2
            factors = [torch.exp(-((s - p) ** 2) / (2 * sigma**2)) for s in range(length)]
        powers = {s: torch.exp(self.score(h, states[s], s)) for s in seen}
        null_power = torch.zeros((), dtype=torch.float64)
        if config.leaky:
            score = h @ self.attention_parameter("null.key")[0]
            if config.null_bias is not None:
                score = score + self.attention_parameter("null.bias")[0]
            null_power = torch.exp(score)
        total = sum(powers.values()) + null_power
        a = [powers[s] / total * factors[s] if s in powers else torch.zeros_like(null_power) for s in range(length)]
        null = null_power / total
        if config.gumbel:  # in evaluation: the best, NULL first among equals
            best = max(range(length), key=lambda s: a[s].item())
            is_null = config.leaky and null.item() >= a[best].item()
            a = [torch.ones_like(null) * (s == best and not is_null) for s in range(length)]
            null = torch.ones_like(null) * is_null
        weights, masks = a, None
        if config.calibration is not None:
            masks = [self.mask(h, state) for state in states]
            weights = self.calibrated(a, null, masks, h, perturb)
        context = sum((w * state for w, state in zip(weights, states, strict=True)), start=self.zeros())
        if config.leaky:
            context = context + null * self.attention_parameter("null.value")[0]
        if config.output_gate:
            weight, bias = (self.attention_parameter(f"output_gate.{name}")[0] for name in ("weight", "bias"))
            context = 2 * sigmoid(weight @ h + bias) * context
        return {"weights": weights, "null": null, "context": context, "plain": a, "masks": masks}

    def mask(self, h: Tensor, source_state: Tensor) -> Tensor:
        key = source_state
        if self.config.mask_projection == "head" and self.config.score in ("general", "concat"):
            key = self.attention_parameter("key_projection.weight") @ key
        w_q, w_k = (self.attention_parameter(f"mask_network.{name}_weight") for name in ("query", "key"))
        if self.config.mask_projection == "head":
            w_q, w_k = w_q[0], w_k[0]
        return sigmoid((w_q @ h) @ (w_k @ key) / math.sqrt(self.config.d_model))

    def calibrated(self, a: Vectors, null: Tensor, masks: Vectors, h: Tensor, perturb: bool) -> Vectors:
        if perturb:
            return [m * x + (1 - m) * (1 - null) / len(a) for x, m in zip(a, masks, strict=True)]
        detached = self.config.mask_inputs == "detached"
        pairs = [(x, torch.exp(1 - (m.detach() if detached else m))) for x, m in zip(a, masks, strict=True)]
        if self.config.calibration == "fixed":
            return [x + self.config.calibration_weight * x * e for x, e in pairs]
        if self.config.calibration == "annealed":
            gamma = math.exp(-self.annealing_step / self.config.annealing_steps)
            return [gamma * x + (1 - gamma) * x * e for x, e in pairs]
        gate = sigmoid(self.attention_parameter("gate.weight")[0] @ h + self.attention_parameter("gate.bias")[0])
        return [gate * x + (1 - gate) * x * e for x, e in pairs]

    def decode(self, source: Sequence[int], target: Sequence[int], perturb: bool = False) -> dict:
        """Logits (T, V), weights (T, S), and of every step what `attend` returns; `target` is what is read."""
        config = self.config
        states, finals = self.encode(source)
        missing = config.encoder_layers - config.decoder_layers
        layers = [finals[max(0, layer + missing)] for layer in range(config.decoder_layers)]
        table = self.parameters[f"model.{'encoder' if config.share_embeddings else 'decoder'}.embed_tokens.weight"]
        fed, steps, logits = self.zeros(), [], []
        for t, token in enumerate(target):
            x = torch.cat([table[token], fed]) if config.input_feeding else table[token]
            for number in range(config.decoder_layers):
                layers[number] = self.step(self.weights(f"model.decoder.layers.{number}"), x, layers[number])
                x = layers[number][0]
            if config.attention_window is not None:
                steps.append(self.attend(x, states, t, perturb))
                both = torch.cat([steps[-1]["context"], x])
                fed = x = torch.tanh(self.attention_parameter("output_projection.weight") @ both)
            output = table if config.tie_word_embeddings else self.parameters["lm_head.weight"]
            logits.append(output @ x + self.parameters["lm_head.bias"])
        weights = torch.stack([torch.stack(list(step["weights"])) for step in steps]) if steps else None
        return {"logits": torch.stack(logits), "weights": weights, "steps": steps}

    def negative_log_likelihood(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], perturb: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Mean over target tokens, and the mean size of the perturbation (Lu et al., eq. 5)."""
        total, penalty, count = 0.0, torch.zeros((), dtype=torch.float64), 0
        smoothing = self.config.label_smoothing
        for source, target in pairs:
            found = self.decode(source, [self.config.decoder_start_token_id, *target[:-1]], perturb)
            for t, token in enumerate(target):
                logits = found["logits"][t]
                logs = logits - torch.log(sum(torch.exp(logit) for logit in logits))
                total = total - (1 - smoothing) * logs[token] - smoothing * logs.mean()
                count += 1
                if found["steps"] and found["steps"][t]["masks"]:
                    penalty = penalty + torch.sqrt(sum((1 - m) ** 2 for m in found["steps"][t]["masks"]))
        return total / count, penalty / count
