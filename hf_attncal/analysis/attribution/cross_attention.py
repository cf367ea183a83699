"""Methods that look at the cross-attention alone and take the encoder's i-th state for the i-th source token.

The weights are those that the model uses: in a calibrated model the calibrated ones. What NULL has is in `null`.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_attncal.analysis.reading import decoder_size, read
from hf_attncal.models.cross_attention import calibrated_layers

from .base import Batch, OfHeads, Scores
from .blocks import Block, check_blocks, read_layers


@dataclass(frozen=True)
class AttentionWeights(OfHeads):
    """The weights a of the cross-attention.

    Args:
        calibrated: False: those of a calibrated model before its calibration.
    """

    calibrated: bool = True

    def check(self, model) -> None:
        super().check(model)
        if not self.calibrated and not calibrated_layers(model):
            raise ValueError("`calibrated` must be True for a model without `calibration`, got False.")

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        (reading,) = read(model, [batch.for_reading()], details=True)
        weights = reading.attentions
        if not self.calibrated:
            before = zip(reading.uncalibrated, reading.attentions, strict=True)
            weights = [used if a is None else a for a, used in before]
        layers = zip(weights, reading.nulls, strict=True)
        return self.of_layers([Scores(self.of_heads(a), null=self.of_heads(null)) for a, null in layers])


@dataclass(frozen=True)
class Contribution(OfHeads):
    """phi of a calibrated model (Lu et al., eq. 6): by how much its mask network would blur the weights."""

    @classmethod
    def check_model(cls, model) -> None:
        if not calibrated_layers(model):
            raise ValueError("it reads the masks of a model or an active adapter with `calibration`")

    @classmethod
    def layers(cls, model) -> list[int]:
        return list(calibrated_layers(model))

    def check(self, model) -> None:
        super().check(model)
        masked, layers = calibrated_layers(model), decoder_size(model.config)[0]
        if self.layer is not None and self.layer % layers not in masked:
            raise ValueError(f"`layer` must be one with masks, {masked}, got {self.layer}.")

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        (reading,) = read(model, [batch.for_reading()], attentions=False, details=True)
        layers = reading.contributions
        return self.of_layers([None if phi is None else Scores(self.of_heads(phi)) for phi in layers])


@dataclass(frozen=True)
class OfBlocks(OfHeads):
    """A method that looks at the vectors that the cross-attention adds up."""

    reads_self_attention = True
    needs = (check_blocks,)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        return self.of_layers([self.of_block(layer.cross_attention) for layer in read_layers(model, batch).decoder])

    @abstractmethod
    def of_block(self, block: Block) -> Scores:
        """Scores of one layer."""


@dataclass(frozen=True)
class ValueNorm(OfBlocks):
    """Weight times length of the value vector, a ||v||, the mean over heads."""

    def of_block(self, block: Block) -> Scores:
        return split_null(self.of_heads(block.weights * block.values.norm(dim=-1).unsqueeze(2)), block)


@dataclass(frozen=True)
class TransformedNorm(OfBlocks):
    """Length of the vector that a token adds to the output, ||sum_h a_h f_h(x)|| (Kobayashi et al. 2020)."""

    def of_block(self, block: Block) -> Scores:
        norms = [block.vectors(steps, self.head).norm(dim=-1) for steps in block.in_chunks()]
        return split_null(torch.cat(norms, dim=1), block)


@dataclass(frozen=True)
class FullNorm(OfBlocks):
    """Length of that vector behind the layer norm of the block, ||g(sum_h a_h f_h(x))|| (Kobayashi et al. 2021).

    `prefix` has the length of the residual, which is the state of step t itself, in its diagonal: the self-attention
    that made this state is not taken apart. In a pre-norm layer there is no g.
    """

    def of_block(self, block: Block) -> Scores:
        norms = [block.g(block.vectors(steps, self.head), steps).norm(dim=-1) for steps in block.in_chunks()]
        residual = torch.diag_embed(block.g(block.residual).norm(dim=-1))
        return split_null(torch.cat(norms, dim=1), block)._replace(prefix=residual)


def split_null(columns: Tensor, block: Block) -> Scores:
    """Split scores (batch, steps, J) of all that a block attends to into those of tokens and that of NULL."""
    return Scores(columns[..., :-1], null=columns[..., -1]) if block.has_null else Scores(columns)
