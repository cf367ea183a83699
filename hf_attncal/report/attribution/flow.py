"""Follow shares of each block through all layers, from the prediction down to the tokens.

Let A be the shares (source, source) of an encoder layer; and of a decoder layer O those of the positions of the layer
below (target, target), X those of the encoder's states (target, source) and n those of NULL, all of which sum to 1 in
each row. With the encoder's E = A_L ... A_1, the tokens' shares in layer l are

    prefix_l = O_l prefix_l-1,    source_l = X_l E + O_l source_l-1,    null_l = n_l + O_l null_l-1,

from prefix_0 = I, source_0 = null_0 = 0 (Ferrando et al. 2022b). They sum to 1 again.

ALTI+ keeps all biases in the output of a block, as the published code does; where no vector comes closer to the output
than the zero vector does, the row belongs to the residual. Rollout goes the same way with halves as shares. Value
zeroing was defined for encoders: in a decoder layer the distances of self- and cross-attention are divided by their
sum, and no residual is added.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hf_attncal.inference.reading import decoder_size
from hf_attncal.report.attribution.attention_vectors import Block, Layer, check_blocks, read_layers, split_null
from hf_attncal.report.attribution.method import Batch, Method, Scores, check_number

_SHARES = {"p": 1, "dim": -1, "eps": torch.finfo(torch.float32).tiny}  # of `normalize`: rows that sum to 1


def flow(encoder: Sequence[Tensor], decoder: Sequence[Scores]) -> Scores:
    """Return the shares of tokens, from those of the layers, the lowest first.

    Args:
        encoder: A of each layer, (batch, source, source).
        decoder: X, O and n of each layer, as `scores`, `prefix` and `null`.
    """
    mixed = reduce(lambda below, layer: layer @ below, encoder)
    batch, steps, _ = decoder[0].prefix.shape
    prefix = torch.eye(steps, dtype=mixed.dtype, device=mixed.device).expand(batch, steps, steps)
    source = torch.zeros_like(decoder[0].scores)
    null = torch.zeros_like(source[..., :1])
    for layer in decoder:
        source = layer.prefix @ source + layer.scores @ mixed
        null = layer.prefix @ null + (0.0 if layer.null is None else layer.null.unsqueeze(-1))
        prefix = layer.prefix @ prefix
    has_null = any(layer.null is not None for layer in decoder)
    return Scores(source, prefix, null.squeeze(-1) if has_null else None)


@dataclass(frozen=True)
class BlockFlow(Method):
    """A method that finds the shares of a decoder layer block by block: of the self-attention and, with the residual
    as one more that is attended to, of the cross-attention."""

    reads_self_attention = True
    needs = (check_blocks,)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        layers = read_layers(model, batch)
        encoder = [self._mixing(layer.self_attention) for layer in layers.encoder]
        decoder = []
        for layer in layers.decoder:
            tokens, residual = self.shares(layer.cross_attention)
            own = residual.unsqueeze(-1) * self._mixing(layer.self_attention)
            decoder.append(split_null(tokens, layer.cross_attention)._replace(prefix=own))
        return flow(encoder, decoder)

    def _mixing(self, block: Block) -> Tensor:
        tokens, residual = self.shares(block)
        return tokens + torch.diag_embed(residual)

    @abstractmethod
    def shares(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the shares of the J tokens, (batch, steps, J), and of the residual, (batch, steps); they sum to 1."""


@dataclass(frozen=True)
class Rollout(BlockFlow):
    """Attention rollout (Abnar and Zuidema 2020): half of a row is attention, the mean over heads, half the residual.

    For an encoder-decoder as in Ferrando et al. 2022b. Rows of calibrated weights that do not sum to 1 are divided by
    their sum.
    """

    def shares(self, block: Block) -> tuple[Tensor, Tensor]:
        weights = block.weights.mean(dim=1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights / 2, torch.full_like(weights[..., 0], 0.5)


@dataclass(frozen=True)
class ALTI(BlockFlow):
    """ALTI+ (Ferrando et al. 2022b): how close each vector comes to the output of its block.

    With the vectors z_j = g(...) of `Block` and the output y, biases included, the share of j is in proportion to
    `max(0, ||y||_1 - ||y - z_j||_1)` (Ferrando et al. 2022a). In self-attention the residual belongs to the vector of
    its own position, in cross-attention it is a vector by itself. A row of which no vector comes close is the
    residual's. Feed-forward layers mix no positions, and are left out.
    """

    def shares(self, block: Block) -> tuple[Tensor, Tensor]:
        parts = []
        for steps in block.in_chunks():
            vectors, residual, output = block.vectors(steps), block.residual[:, steps], block.output[:, steps]
            if block.is_self_attention:
                places = torch.arange(residual.shape[1], device=residual.device)
                vectors[:, places, places + steps.start] += residual
                residual = torch.zeros_like(residual)
            whole = output.norm(p=1, dim=-1)
            tokens = whole.unsqueeze(-1) - (block.g(vectors, steps) - output.unsqueeze(2)).norm(p=1, dim=-1)
            alone = whole - (block.g(residual, steps) - output).norm(p=1, dim=-1)
            parts.append((tokens.clamp(min=0), alone.clamp(min=0)))
        tokens, residual = (torch.cat(side, dim=1) for side in zip(*parts, strict=True))
        total = tokens.sum(dim=-1) + residual
        residual = torch.where(total > 0, residual, 1.0)
        total = torch.where(total > 0, total, 1.0)
        return tokens / total.unsqueeze(-1), residual / total


@dataclass(frozen=True)
class ValueZeroing(Method):
    """Change of the output of a layer when the value vector of a token is zero (Mohebbi et al. 2023).

    The distance is the cosine's, 1 - cos, between outputs of the whole layer; a row is divided by its sum. The weights
    stay, the rest of the layer is computed again.

    Args:
        layer: the cross-attention of this decoder layer, from 0, negative ones from the top. None for all layers,
            encoder and self-attention included, by `flow`, without residuals of their own: distances have seen those.
    """

    layer: int | None = None
    reads_self_attention = True
    needs = (check_blocks,)

    def check(self, model) -> None:
        layers, _ = decoder_size(model.config)
        check_number("layer", self.layer, -layers, layers - 1)

    @classmethod
    def choices(cls, model) -> list[dict[str, Any]]:
        return [{}, *({"layer": layer} for layer in range(decoder_size(model.config)[0]))]

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        layers = read_layers(model, batch)
        if self.layer is not None:
            layer, block = layers.decoder[self.layer], layers.decoder[self.layer].cross_attention
            return split_null(normalize(_distances(layer, block), **_SHARES), block)
        encoder = [normalize(_distances(layer, layer.self_attention), **_SHARES) for layer in layers.encoder]
        decoder = []
        for layer in layers.decoder:
            distances = [_distances(layer, block) for block in (layer.self_attention, layer.cross_attention)]
            shares = normalize(torch.cat(distances, dim=-1), **_SHARES)
            own, tokens = shares.split([part.shape[-1] for part in distances], dim=-1)
            decoder.append(split_null(tokens, layer.cross_attention)._replace(prefix=own))
        return flow(encoder, decoder)


def _distances(layer: Layer, block: Block) -> Tensor:
    """Return how far the output of a layer turns without the values of each token of a block: (batch, steps, J)."""
    whole = normalize(layer.run(), dim=-1)
    found = []
    for token in range(block.weights.shape[-1]):
        vector = torch.einsum("bht,bhd->btd", block.weights[..., token], block.transformed[:, :, token])
        subtract = partial(lambda vector, module, args, output: (output[0] - vector, *output[1:]), vector)
        with block.attention.register_forward_hook(subtract):
            # 1 - cos as half of a squared distance: it is exactly 0 where nothing has changed.
            found.append((whole - normalize(layer.run(), dim=-1)).square().sum(dim=-1) / 2)
    return torch.stack(found, dim=-1)
