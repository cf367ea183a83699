"""Methods that change something and look at what it does: value zeroing to a layer, occlusion to the prediction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_attncal.analysis.reading import decoder_size
from hf_attncal.data.words import NO_WORD

from .base import Batch, Method, Scores, check_number, groups_of_tokens
from .blocks import Block, Layer, check_blocks, read_layers
from .cross_attention import split_null
from .flow import flow
from .gradients import log_probabilities


@dataclass(frozen=True)
class ValueZeroing(Method):
    """How far the output of a layer turns when the value vector of a token is zero (Mohebbi et al. 2023).

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
            layer = layers.decoder[self.layer]
            return split_null(_shares(_distances(layer, layer.cross_attention)), layer.cross_attention)
        encoder = [_shares(_distances(layer, layer.self_attention)) for layer in layers.encoder]
        decoder = []
        for layer in layers.decoder:
            distances = [_distances(layer, block) for block in (layer.self_attention, layer.cross_attention)]
            shares = _shares(torch.cat(distances, dim=-1))
            own, tokens = shares.split([part.shape[-1] for part in distances], dim=-1)
            decoder.append(split_null(tokens, layer.cross_attention)._replace(prefix=own))
        return flow(encoder, decoder)


def _shares(distances: Tensor) -> Tensor:
    return distances / distances.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(distances.dtype).tiny)


def _distances(layer: Layer, block: Block) -> Tensor:
    """Return how far the output of a layer turns without the values of each token of a block: (batch, steps, J)."""
    whole = nn.functional.normalize(layer.run(), dim=-1)
    found = []
    for token in range(block.weights.shape[-1]):
        vector = torch.einsum("bht,bhd->btd", block.weights[..., token], block.transformed[:, :, token])
        with _less(block.attention, vector):
            # 1 - cos as half of a squared distance: it is exactly 0 where nothing has changed.
            found.append((whole - nn.functional.normalize(layer.run(), dim=-1)).square().sum(dim=-1) / 2)
    return torch.stack(found, dim=-1)


@contextmanager
def _less(attention: nn.Module, vector: Tensor) -> Iterator[None]:
    """Subtract a vector from the output of an attention."""
    handle = attention.register_forward_hook(lambda module, args, output: (output[0] - vector, *output[1:]))
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Occlusion(Method):
    """Fall of the log-probability of y_t when a token is replaced, one at a time.

    Args:
        by: number of the token that stands in its place; None for the tokenizer's unknown one.
        unit: `"word"`: all subwords of a word are replaced at once and share the difference evenly (of the target,
            those that have been read); `"token"`: each alone.
        prefix: replace the tokens that the decoder reads, too.
    """

    by: int | None = None
    unit: str = "word"
    prefix: bool = False
    signed = True

    def __post_init__(self):
        if self.unit not in ("word", "token"):
            raise ValueError(f"`unit` must be 'word' or 'token', got {self.unit!r}.")

    def check(self, model) -> None:
        check_number("by", self.by, 0, model.get_encoder().get_input_embeddings().num_embeddings - 1)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        by = tokenizer.unk_token_id if self.by is None else self.by
        if by is None:
            raise ValueError("`by` must be the number of a token, for the tokenizer has no unknown one, got None.")
        whole = log_probabilities(model, batch)

        def falls(name: str, word_ids: list[np.ndarray]) -> Tensor:
            """Return the falls, (batch, steps, tokens), of replacing each group of tokens of an input."""
            tokens = batch.inputs[name]
            groups = groups_of_tokens(word_ids, self.unit == "word", tokens.shape[1], tokens.device)
            found = whole.new_zeros(*whole.shape, tokens.shape[1])
            seen = torch.ones_like(found[0])
            if name == "decoder_input_ids":  # of a word that is being written, only what has been read
                seen = seen.tril()
            for number in range(int(groups.max()) + 1):
                chosen = groups == number
                rows = chosen.any(dim=1)
                replaced = _rows(batch, rows, {name: tokens.masked_fill(chosen, by)})
                fall = whole[rows] - log_probabilities(model, replaced)
                share = chosen[rows].unsqueeze(1) * seen
                found[rows] += fall.unsqueeze(-1) * share / share.sum(dim=-1, keepdim=True).clamp(min=1)
            return found

        source = falls("input_ids", [pair.source.word_ids for pair in batch.pairs])
        if not self.prefix:
            return Scores(source)
        read = [np.append(NO_WORD, pair.target.word_ids[:-1]) for pair in batch.pairs]  # the start token, then y_0 ...
        return Scores(source, falls("decoder_input_ids", read))


def _rows(batch: Batch, rows: Tensor, changed: dict[str, Tensor]) -> Batch:
    """Return some rows of a batch with other inputs."""
    inputs = {name: tensor[rows] for name, tensor in {**batch.inputs, **changed}.items()}
    return replace(batch, inputs=inputs, labels=batch.labels[rows])
