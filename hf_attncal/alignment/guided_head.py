"""The head of a cross-attention that learns word links: which, and how right it is on annotated pairs."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from accelerate import PartialState
from torch import Tensor

from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.inference.reading import read
from hf_attncal.models.functional import token_rows

from .aligner import WordAligner
from .gold import score_aligner, tune_threshold
from .seq2seq import Seq2SeqAttention


def guided_head_on_gold(
    golds: dict[str, Gold], model, tokenizer, layer: int, heads: tuple[int, ...], shift: bool
) -> tuple[Seq2SeqAttention, dict[str, Any]]:
    """Choose the threshold of a head that has learned links, on the annotated pairs of dev, and score it.

    Args:
        golds: annotated pairs, by split; with those of dev the threshold is chosen.
        model, tokenizer: the translation model.
        layer, heads, shift: where the links are read, see `Seq2SeqAttention`.

    Returns:
        The settings with which the head aligns, and `settings` and the AER of each split, for the results.
    """
    settings = Seq2SeqAttention(layer, heads, shift)
    aligner = WordAligner(model, tokenizer, settings)
    if "dev" in golds:
        threshold, _ = tune_threshold(aligner, golds["dev"])
        settings = replace(settings, threshold=threshold)
        aligner = WordAligner(model, tokenizer, settings)
    scores: dict[str, Any] = {"settings": settings.to_dict()}
    for name, gold in golds.items():
        scores[name] = asdict(score_aligner(aligner, gold, bootstrap=1000))
        if PartialState().is_main_process:
            print(f"{name}: AER {100 * scores[name]['aer']:.1f}  {scores[name]['signature']}")
    return settings, scores


def nearest_head(model, batches: Iterable[Mapping[str, Tensor]]) -> tuple[Seq2SeqAttention, float]:
    """Find the head that already looks where links are: one that learns them has the least to learn.

    Args:
        model: the translation model.
        batches: of `LinkCollator`: `input_ids`, `attention_mask`, `labels`, and `links`, (batch, target, source).

    Returns:
        Layer, head and step, and the share of linked target tokens whose source token with most weight is linked.

    Raises:
        ValueError: no token is linked; see also `read`.
    """
    hits: dict[tuple[int, bool], Tensor] = {}
    linked = 0
    for batch in batches:
        links = batch["links"].bool()
        reading = read(model, {name: tensor for name, tensor in batch.items() if name != "links"})
        linked += int(links.any(dim=-1).sum())
        for layer, weights in enumerate(reading.attentions):
            for shift in (False, True) if weights is not None else ():
                best = token_rows(weights.cpu(), shift).argmax(dim=-1, keepdim=True)  # (B, heads, T, 1)
                right = links.unsqueeze(1).expand(-1, best.shape[1], -1, -1).gather(-1, best)
                hits[layer, shift] = hits.get((layer, shift), 0) + right.sum(dim=(0, 2, 3))
    if not linked:
        raise ValueError("no token of the text is linked, so no head is near its links. Check the links.")
    (layer, shift), found = max(hits.items(), key=lambda item: int(item[1].max()))
    return Seq2SeqAttention(layer, (int(found.argmax()),), shift), int(found.max()) / linked
