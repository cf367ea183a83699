"""Turn attention between subwords into attention between words, and average its measures over a corpus."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.metrics.reliability import attention_is_reliable, head_average, layer_rows

from .reading import read, readings_of_pairs


class WordDetails(NamedTuple):
    """Head averages between the words of one sentence pair, in each layer with masks.

    Args:
        attention: a, before calibration, (layers, target words, source words); see `word_attention`.
        mask: m (Lu et al., eq. 3), the same shape; the mean also over the subwords of a source word.
        contribution: phi (eq. 6), the same shape; summed like attention.
        calibrated: weights that the model uses, the same shape and summed like attention; without NULL, and divided by
            their sum over the source, which calibration without `renormalize` raises above 1.
        reliable: True where attention is reliable (eqs. 7 and 8), (layers, target tokens); see
            `attention_is_reliable`. The mean over the tokens of a corpus is its reliability level.
    """

    attention: Tensor
    mask: Tensor
    contribution: Tensor
    calibrated: Tensor
    reliable: Tensor


def word_details(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 32
) -> list[WordDetails | None]:
    """Return attention, masks and contributions between the words of sentence pairs, teacher-forced on the targets.

    Arguments and errors as in `readings_of_pairs`; also a ValueError for a model or adapter without masks.

    Returns:
        The details of every pair, on the CPU; None for a pair with an empty side.
    """
    details_by_index: dict[int, WordDetails] = {}
    for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, batch_size=batch_size, details=True):
        layers = reading.calibrated
        reliable = torch.stack([attention_is_reliable(one.attention, one.contribution) for one in layers], dim=1)
        kinds = [(one.attention, one.mask, one.contribution, one.calibrated) for one in layers]
        # (batch, kinds, layers, target, source)
        averages = torch.stack(
            [torch.stack([head_average(w) for w in kind if w is not None], dim=1) for kind in kinds], dim=2
        )
        for row, pair in enumerate(pairs):
            steps = reading.unpadded(averages, row).cpu()
            steps[3] /= steps[3].sum(dim=-1, keepdim=True).clamp(min=torch.finfo(steps.dtype).tiny)
            a, m, phi, used = word_attention(steps, pair.source, pair.target)
            subwords = word_attention(torch.ones_like(steps[0, 0]), pair.source, pair.target).clamp(min=1)
            details_by_index[pair.index] = WordDetails(
                a, m / subwords, phi, used, reliable[row][:, reading.target_mask[row]].cpu()
            )
    return [details_by_index.get(index) for index in range(len(sources))]


def word_attention(attention: Tensor, source: WordTokens, target: WordTokens) -> Tensor:
    """Return attention between the words of one sentence pair, for one matrix or several, such as all heads.

    Weights are summed over the subwords of a source word, which share the mass that the word received, and averaged
    over the subwords of a target word, each of which distributed its own mass. Subwords of no word are left out; rows
    are not renormalised.

    Args:
        attention: weights, (..., target, source).
        source: word of every source subword; further columns are padding.
        target: word of every target subword; further rows are padding.

    Returns:
        (..., target words, source words). A word without subwords has a row or column of zeros.

    Raises:
        ValueError: there are more word ids than rows or columns.
    """
    rows = _membership(target, attention.shape[-2], attention)  # (target words, target)
    columns = _membership(source, attention.shape[-1], attention)  # (source words, source)
    mean = rows / rows.sum(dim=1, keepdim=True).clamp(min=1)
    return mean @ attention @ columns.T


def best_source_words(weights: Tensor) -> Tensor:
    """Return the source word with the highest score of each target word, the first one in a tie, (target words,).

    It is -1 for a target word without a score above 0. Scores are compared with their sign, not by magnitude.

    Args:
        weights: scores, (target words, source words), from `word_attention` or `Attribution.words`.

    Raises:
        ValueError: a score is NaN.
    """
    if weights.numel() == 0:
        return torch.full((len(weights),), -1)
    best, index = weights.max(dim=1)
    if best.isnan().any():
        raise ValueError(f"`weights` must be numbers, got NaN in row {int(best.isnan().nonzero()[0])} (from 0).")
    return index.where(best > 0, -1)


def _membership(tokens: WordTokens, length: int, like: Tensor) -> Tensor:
    """Return a matrix with 1 if the subword of a column belongs to the word of a row, (words, length)."""
    if len(tokens.word_ids) > length:
        raise ValueError(f"{len(tokens.word_ids)} word ids for {length} subwords of the attention matrix.")
    membership = np.zeros((tokens.words, length))
    (subwords,) = np.nonzero(tokens.word_ids != NO_WORD)
    membership[tokens.word_ids[subwords], subwords] = 1
    return like.new_tensor(membership)


# ---- over a corpus ----


@torch.no_grad()
def attention_report(model, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, Any]:
    """Measure the reliability and the extent of the calibration of a model's cross-attention, layer by layer.

    Targets are teacher-forced; the model's mode is not changed.

    Args:
        model: encoder-decoder with `calibration`, or with an active adapter that has it.
        batches: batches as for `read`.

    Returns:
        Lists over calibrated layers: `layers`, their numbers from 0, and means over all real target steps of
        `reliability_level` (Lu et al., eq. 8, on the head average), `entropy` of plain attention (natural logarithm,
        mean over heads), `mask_mean` over real source tokens and heads, and, for rows after calibration, the measures
        of `calibration_extent` and the `gate` of gated calibration. `by_head` has the latter for each head.

    Raises:
        ValueError: the model is not calibrated, or there is no target step.
    """
    names = {"reliability_level": "reliability", "entropy": "entropy", "mask_mean": "mask"}
    extent = ("mass", "attended_mask", "divergence", "divergence_normalized", "gate")
    sums: dict[str, Tensor] = {}  # (layers,), or (layers, heads) for the measures of heads
    steps = 0
    numbers: list[int] = []
    for batch in batches:
        reading = read(model, batch, details=True)
        real = reading.target_mask
        tensors = [layer._asdict() for layer in reading.calibrated]
        numbers = [layer.pop("number") for layer in tensors]
        layers = [layer_rows(source_mask=reading.source_mask, **layer) for layer in tensors]
        totals = {
            label: torch.stack([rows.layer[name][real].double().sum() for rows in layers])
            for label, name in names.items()
        }
        for name in (name for name in extent if name in layers[0].heads):
            totals[name] = torch.stack([rows.heads[name].transpose(1, 2)[real].double().sum(dim=0) for rows in layers])
        sums = {name: sums.get(name, 0) + total for name, total in totals.items()}
        steps += int(real.sum())
    if steps == 0:
        raise ValueError("`batches` must have at least one target step, got none.")
    means = {name: total / steps for name, total in sums.items()}
    by_head = {name: means[name].tolist() for name in extent if name in means}
    by_layer = {name: (mean if name in names else mean.mean(dim=1)).tolist() for name, mean in means.items()}
    return {"layers": numbers, **by_layer, "by_head": by_head}
