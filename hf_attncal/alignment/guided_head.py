"""Measure a head of the cross-attention that has learned word links, on annotated pairs."""

from dataclasses import asdict, replace
from typing import Any

from accelerate import PartialState

from hf_attncal.data.gold import Gold

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
