"""Turn attention between subwords into attention between words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.tokenizer import NULL
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.metrics.reliability import attention_is_reliable, head_average

from .reading import readings_of_pairs


class WordDetails(NamedTuple):
    """Head averages between the words of one sentence pair, in each layer with masks.

    Args:
        attention: a, before calibration, (layers, target words, source words); see `word_attention`.
        mask: m (Lu et al., eq. 3), the same shape: the mean over the subwords of a source word, too.
        contribution: phi (eq. 6), the same shape; summed as attention is.
        calibrated: the weights that the model uses, the same shape and summed in the same way; without NULL, and as
            shares: divided by their sum over the source, which calibration without `renormalize` raises above 1.
        reliable: boolean (layers, target tokens), where attention is reliable (eqs. 7 and 8): see
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

    Args and errors are those of `readings_of_pairs`; besides, a ValueError for a model or adapter without masks.

    Returns:
        The details of every pair, on the CPU; None for a pair with a side of no word.
    """
    found: dict[int, WordDetails] = {}
    for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, batch_size=batch_size, details=True):
        layers = zip(reading.uncalibrated, reading.masks, reading.contributions, reading.attentions, strict=True)
        layers = [layer for layer in layers if layer[1] is not None]
        reliable = torch.stack([attention_is_reliable(a, phi) for a, _, phi, _ in layers], dim=1)
        # (batch, a and m and phi and the used weights, layers, target, source)
        averages = torch.stack([torch.stack([head_average(w) for w in layer], dim=1) for layer in layers], dim=2)
        for row, (index, source, target) in enumerate(pairs):
            steps = reading.unpadded(averages, row).cpu()
            steps[3] /= steps[3].sum(dim=-1, keepdim=True).clamp(min=torch.finfo(steps.dtype).tiny)
            a, m, phi, used = word_attention(steps, source, target)
            subwords = word_attention(torch.ones_like(steps[0, 0]), source, target).clamp(min=1)
            found[index] = WordDetails(a, m / subwords, phi, used, reliable[row][:, reading.target_mask[row]].cpu())
    return [found.get(index) for index in range(len(sources))]


class SourceRows(NamedTuple):
    """The rows of a heat map of one sentence pair, from the unsupervised alignment module (Kiyono et al.).

    Args:
        rows: what stands beside each row: the target words, and `<null>` for each step behind the end of sentence.
        weights: (rows, source words); a repeated token as in `shared_among_places`, subwords as in `word_attention`.
    """

    rows: tuple[str, ...]
    weights: Tensor


def source_rows(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 32
) -> list[SourceRows | None]:
    """Return the source words that each target word stands for, and those left out, which the `<null>` steps have.

    Args and errors are those of `readings_of_pairs`; besides, a ValueError for a model without `uam`.

    Returns:
        The rows of every pair, on the CPU; None for a pair with a side of no word.
    """
    found: dict[int, SourceRows] = {}
    options = {"attentions": False, "uam": True, "batch_size": batch_size}
    for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, **options):
        for row, (index, source, target) in enumerate(pairs):
            nulls = target.ids == model.config.null_token_id
            count = int(nulls.sum())
            word_ids = target.word_ids.copy()
            word_ids[nulls] = target.words + np.arange(count)
            extended = WordTokens(target.ids, word_ids, target.words + count)
            weights = word_attention(reading.unpadded(reading.uam, row).cpu(), source, extended)
            found[index] = SourceRows((*targets[index].split(), *[NULL] * count), weights)
    return [found.get(index) for index in range(len(sources))]


def word_attention(attention: Tensor, source: WordTokens, target: WordTokens) -> Tensor:
    """Return attention between the words of one sentence pair, for one matrix or for many, such as all heads.

    Weights are summed over the subwords of a source word, which share the mass that the word received, and averaged
    over the subwords of a target word, each of which distributed a mass of its own. Subwords of no word are left out;
    rows are not renormalised.

    Args:
        attention: (..., target, source) weights.
        source: the word of every source subword. What lies behind its end is padding.
        target: the same for the target.

    Returns:
        (..., target words, source words). A word without subwords has a row or column of zeros.

    Raises:
        ValueError: more word ids than the matrices have rows or columns.
    """
    rows = _membership(target, attention.shape[-2], attention)  # (target words, target)
    columns = _membership(source, attention.shape[-1], attention)  # (source words, source)
    mean = rows / rows.sum(dim=1, keepdim=True).clamp(min=1)
    return mean @ attention @ columns.T


def _membership(tokens: WordTokens, length: int, like: Tensor) -> Tensor:
    """Return 1 where the subword of a column belongs to the word of a row: (words, length)."""
    if len(tokens.word_ids) > length:
        raise ValueError(f"{len(tokens.word_ids)} word ids for {length} subwords of the attention matrix.")
    membership = np.zeros((tokens.words, length))
    (subwords,) = np.nonzero(tokens.word_ids != NO_WORD)
    membership[tokens.word_ids[subwords], subwords] = 1
    return like.new_tensor(membership)
