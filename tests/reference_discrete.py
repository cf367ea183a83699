"""The Discrete Transformer as loops over sentences, positions, heads and choices, straight from its formulas.

Nothing here is imported by the package, and nothing here imports it. A sentence is computed alone and without padding,
a position at a time; autograd runs through the loops.

Source: [DT] "Discrete Transformer", secs. 4, 5 and 5.1.
"""

import math

import torch
from reference import cross_entropy, dot

Vector = torch.Tensor  # of one position


def extended_field(field: list, weights: list[list], read: list[list]) -> list:
    """[DT] sec. 5.1, eq. 1, of one position: `s_j' = min(s_j + sum_h sum_k z_hk s_kj, 1)`.

    Args:
        field: s of the position before, by token. weights: z of each head, by position that is read.
        read: s of these positions, each by token.
    """
    new = []
    for j in range(len(field)):
        total = field[j]
        for head in weights:
            for k, z in enumerate(head):
                total = total + z * read[k][j]
        new.append(total if total <= 1 else torch.ones_like(total))
    return new


def union_of_choices(field: set, choices: list[int], read: list[set]) -> set:
    """The same for sets: the position's own, and those of what its heads chose."""
    return field.union(*(read[choice] for choice in choices))


class SlowDiscrete:
    """The function of a Discrete Transformer, with its parameters, in float64.

    Args:
        model: of the package, an encoder-decoder or a causal language model; its parameters are copied.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.config, self.training = model.config, model.training
        first_names: dict[int, str] = {}
        self.names, self.parameters = {}, {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self.names[name] = first_names.setdefault(id(parameter), name)
            if self.names[name] == name:
                self.parameters[name] = parameter.detach().clone().requires_grad_(parameter.requires_grad)
        self.bias = getattr(model, "final_logits_bias", None)
        self.temperature, self.penalty = self.config.gumbel_temperature, self.config.receptive_field_penalty
        self.two = self.config.streams == 2
        # What the last pass found: weights of every attention by its name, a sentence, a head and a position each.
        self.routing: dict[str, list] = {}

    def get(self, name: str) -> torch.Tensor:
        return self.parameters[self.names[name]]

    # ---- what the layers are made of ----

    def linear(self, name: str, x: Vector) -> Vector:
        return self.get(f"{name}.weight") @ x + self.get(f"{name}.bias")

    def layer_norm(self, name: str, x: Vector) -> Vector:
        mean = x.sum() / len(x)
        variance = ((x - mean) ** 2).sum() / len(x)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.get(f"{name}.weight") + self.get(f"{name}.bias")

    def feed_forward(self, layer: str, x: Vector, stream: str) -> Vector:
        inner = self.linear(f"{layer}.{stream}fc1", x)
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))  # gelu
        return self.layer_norm(f"{layer}.{stream}final_layer_norm", x + self.linear(f"{layer}.{stream}fc2", inner))

    def embed(self, stack: str, tokens: list[int], stream: str) -> list[Vector]:
        table, positions = self.get(f"{stack}{stream}embed_tokens.weight"), self.get(f"{stack}embed_positions.weight")
        scale = math.sqrt(self.config.d_model) if self.config.scale_embedding else 1.0
        return [table[token] * scale + positions[i] for i, token in enumerate(tokens)]

    def weights(self, scores: list, noise: list) -> list:
        """Return the weights of one head at one position: soft weights, a sample, or a one-hot choice."""
        config = self.config
        if config.hard_attention and not self.training:
            best = max(range(len(scores)), key=lambda s: (float(scores[s].detach()), -s))
            return [torch.ones_like(score) * (s == best) for s, score in enumerate(scores)]
        if config.hard_attention:
            noisy = [(score + config.gumbel_noise * noise[s]) / self.temperature for s, score in enumerate(scores)]
        else:
            noisy = scores
        soft = self.softmax(noisy)
        if not (config.hard_attention and config.gumbel_straight_through):
            return soft
        best = max(range(len(soft)), key=lambda s: (float(soft[s].detach()), -s))
        return [float(s == best) + weight - weight.detach() for s, weight in enumerate(soft)]

    @staticmethod
    def softmax(scores: list) -> list:
        powers = [torch.exp(score) for score in scores]
        return [power / sum(powers) for power in powers]

    def attend(self, name, heads, semantic, syntactic, read, read_syntactic, visible, noise):
        """States of both streams after an attention; the weights are left in `routing`.

        Args:
            semantic, syntactic: states that ask. read, read_syntactic: that are read. visible: how many of them a
            position may read. noise: (heads, positions, positions that are read).
        """
        router, read_router = (syntactic, read_syntactic) if self.two else (semantic, read)
        d = self.config.d_model // heads
        queries = [self.linear(f"{name}.q_proj", x) for x in router]
        keys = [self.linear(f"{name}.k_proj", x) for x in read_router]
        values = [self.linear(f"{name}.v_proj", x) for x in read]
        goes_on = f"{name}.syntactic_v_proj.weight" in self.names
        if goes_on:
            soft_values = [self.linear(f"{name}.syntactic_v_proj", x) for x in read_syntactic]
        chosen = [[] for _ in range(heads)]
        new, new_syntactic = [], []
        for t in range(len(semantic)):
            found, expected = [], []
            for h in range(heads):
                part = slice(h * d, (h + 1) * d)
                scores = [
                    dot(queries[t][part], keys[s][part]) / math.sqrt(d) + self.distance_bias(name, h, t - s, d)
                    for s in range(visible(t))
                ]
                if self.config.leaky:  # NULL comes first, and has no value
                    scores = [dot(queries[t][part], self.get(f"{name}.null.key")[h]) / math.sqrt(d), *scores]
                    if self.config.null_bias is not None:
                        scores[0] = scores[0] + self.get(f"{name}.null.bias")[h]
                z = self.weights(scores, noise[h, t] if noise is not None else [])[self.config.leaky :]
                chosen[h].append(z)
                found.append(sum(z[s] * values[s][part] for s in range(visible(t))))
                if goes_on:
                    a = self.softmax(scores)[self.config.leaky :]
                    expected.append(sum(a[s] * soft_values[s][part] for s in range(visible(t))))
            output = self.linear(f"{name}.out_proj", torch.cat(found))
            new.append(self.layer_norm(f"{name}_layer_norm", semantic[t] + output))
            if goes_on:
                layer, _, last = name.rpartition(".")
                output = self.linear(f"{name}.syntactic_out_proj", torch.cat(expected))
                new_syntactic.append(self.layer_norm(f"{layer}.syntactic_{last}_layer_norm", syntactic[t] + output))
        self.routing.setdefault(name, []).append(chosen)
        return new, new_syntactic if goes_on else syntactic, chosen

    def distance_bias(self, name: str, head: int, distance: int, d: int) -> torch.Tensor | float:
        """What a self-attention adds to a score, for a key so many positions before the query (negative: after it)."""
        if f"{name}.relative_positions.bias" not in self.names:
            return 0.0
        farthest = self.config.relative_positions
        column = min(max(distance, -farthest), farthest)
        if ".encoder." in name:  # where keys may come after the query
            column += farthest
        return math.sqrt(d) * self.get(f"{name}.relative_positions.bias")[head, column]

    def both_fed_forward(self, layer, semantic, syntactic):
        semantic = [self.feed_forward(layer, x, "") for x in semantic]
        if f"{layer}.syntactic_fc1.weight" in self.names:
            syntactic = [self.feed_forward(layer, x, "syntactic_") for x in syntactic]
        return semantic, syntactic

    @staticmethod
    def extend(fields: list, chosen: list, read: list) -> list:
        by_position = zip(*chosen, strict=True)
        return [extended_field(field, list(weights), read) for field, weights in zip(fields, by_position, strict=True)]

    @staticmethod
    def identity(size: int) -> list:
        return [[torch.tensor(float(i == j), dtype=torch.float64) for j in range(size)] for i in range(size)]

    # ---- the stacks, one sentence at a time ----

    def encode(self, tokens: list[int], noise: dict):
        size, heads = len(tokens), self.config.encoder_attention_heads
        semantic = self.embed("model.encoder.", tokens, "")
        syntactic = self.embed("model.encoder.", tokens, "syntactic_") if self.two else None
        fields = self.identity(size)
        for i in range(self.config.encoder_layers):
            layer = f"model.encoder.layers.{i}"
            name = f"{layer}.self_attn"
            semantic, syntactic, chosen = self.attend(
                name, heads, semantic, syntactic, semantic, syntactic, lambda t: size, noise.get(name)
            )
            fields = self.extend(fields, chosen, fields)
            semantic, syntactic = self.both_fed_forward(layer, semantic, syntactic)
        return semantic, syntactic, fields

    def decode(self, stack: str, tokens: list[int], encoded, noise: dict):
        size, heads = len(tokens), self.config.decoder_attention_heads
        semantic = self.embed(stack, tokens, "")
        syntactic = self.embed(stack, tokens, "syntactic_") if self.two else None
        target_fields, source_fields = self.identity(size), None
        if encoded is not None:
            read, read_syntactic, encoder_fields = encoded
            source_fields = [[torch.zeros((), dtype=torch.float64) for _ in read] for _ in tokens]
        for i in range(self.config.decoder_layers):
            layer = f"{stack}layers.{i}"
            name = f"{layer}.self_attn"
            semantic, syntactic, chosen = self.attend(
                name, heads, semantic, syntactic, semantic, syntactic, lambda t: t + 1, noise.get(name)
            )
            target_fields = self.extend(target_fields, chosen, target_fields)
            if encoded is not None:
                source_fields = self.extend(source_fields, chosen, source_fields)
                name = f"{layer}.encoder_attn"
                semantic, syntactic, chosen = self.attend(
                    name, heads, semantic, syntactic, read, read_syntactic, lambda t: len(read), noise.get(name)
                )
                source_fields = self.extend(source_fields, chosen, encoder_fields)
            semantic, syntactic = self.both_fed_forward(layer, semantic, syntactic)
        logits = [self.get("lm_head.weight") @ x + (0 if self.bias is None else self.bias[0]) for x in semantic]
        return logits, target_fields, source_fields

    # ---- a batch ----

    def draw_noise(self, batch: int, target: int, source: int = 0) -> dict[str, torch.Tensor]:
        """The Gumbel noise of a padded batch, from torch's generator in the order of the layers."""
        if not (self.training and self.config.hard_attention):
            return {}
        config, causal = self.config, source == 0
        shapes = {}
        for i in range(0 if causal else config.encoder_layers):
            shapes[f"model.encoder.layers.{i}.self_attn"] = (config.encoder_attention_heads, source, source)
        for i in range(config.decoder_layers):
            layer = f"model.{'' if causal else 'decoder.'}layers.{i}"
            shapes[f"{layer}.self_attn"] = (config.decoder_attention_heads, target, target)
            if not causal:
                shapes[f"{layer}.encoder_attn"] = (config.decoder_attention_heads, target, source)
        noise = {}
        for name, (heads, asking, read) in shapes.items():  # g = -log(-log U), where -log U is exponential
            shape = batch, heads, asking, config.leaky + read
            noise[name] = -torch.log(torch.empty(shape, dtype=torch.float64).exponential_())
        return noise

    def run(self, sources: list[list[int]] | None, inputs: list[list[int]], labels: list[list[int]]) -> dict:
        """Losses, logits and fields of a batch; `inputs` are read by the decoder, `labels` are as many tokens or -100.

        Returns:
            `loss`, `cross_entropy`, `size`, `logits`, `target_fields` and `source_fields`, lists by sentence.
        """
        longest = max(map(len, inputs))
        noise = self.draw_noise(len(inputs), longest, max(map(len, sources)) if sources else 0)
        found = {"logits": [], "target_fields": [], "source_fields": []}
        sizes, padded = [], []
        for b, tokens in enumerate(inputs):
            own = {name: tensor[b] for name, tensor in noise.items()}
            encoded = self.encode(sources[b], own) if sources else None
            logits, target_fields, source_fields = self.decode(
                "model.decoder." if sources else "model.", tokens, encoded, own
            )
            found["logits"].append(torch.stack(logits))
            found["target_fields"].append(target_fields)
            found["source_fields"].append(source_fields)
            for t, label in enumerate(labels[b]):
                if label != -100:
                    sizes.append(sum(target_fields[t]) + (sum(source_fields[t]) if sources else 0))
            padded.append(torch.cat([found["logits"][-1], logits[0].new_zeros(longest - len(tokens), len(logits[0]))]))
        rows = torch.tensor([row + [-100] * (longest - len(row)) for row in labels])
        entropy = cross_entropy(torch.stack(padded), rows, self.config.label_smoothing)
        size = sum(sizes) / len(sizes)
        loss = entropy + self.penalty * size if self.training else entropy
        return found | {"loss": loss, "cross_entropy": entropy, "size": size}

    def gradients(self, loss: torch.Tensor) -> dict[str, torch.Tensor]:
        """By the name of the parameter; 0 where the loss does not depend on it."""
        trained = {name: p for name, p in self.parameters.items() if p.requires_grad}
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        return {n: torch.zeros_like(trained[n]) if g is None else g for n, g in zip(trained, found, strict=True)}
