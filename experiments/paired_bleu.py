"""Compare two systems by BLEU on the same lines, with a p that counts ties."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU

from hf_attncal.metrics.base import Metric

_SEED = 12345  # sacreBLEU's own, of the same generator


@dataclass(frozen=True)
class PairedBleu:
    """The comparison of a system with a baseline on the same lines.

    Args:
        score: BLEU of the system.
        minus_baseline: BLEU of the system minus that of the baseline.
        p_value: p of the two-sided hypothesis that both are equally good (`Metric.paired_p_value`); None for too few
            lines to tell.
        signature: signature of the score, with the number and seed of the resamples, and the test.
    """

    score: float
    minus_baseline: float
    p_value: float | None
    signature: str


def paired_bleu(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    bootstrap: int = 1000,
) -> PairedBleu:
    """Score translations and compare them with a baseline by the two-sided paired bootstrap over lines.

    The resamples are those of sacreBLEU's paired bootstrap, but not its p: sacreBLEU takes the absolute value of each
    resampled difference before it subtracts their mean. So its p is one-sided where systems differ, about 0.42 for
    equally good ones, and 0.001 for identical ones, because it counts no ties.

    Args:
        hypotheses, baseline: translations of the system and of the baseline, one per line.
        references: one reference per line.
        tokenize: sacreBLEU's tokenizer.
        bootstrap: number of resamples.

    Raises:
        ValueError: `bootstrap` < 1, or no lines, or different numbers of lines.
    """
    if bootstrap < 1:
        raise ValueError(f"`bootstrap` must be at least 1 (a number of resamples), got {bootstrap}.")
    metric = BLEU(tokenize=tokenize, force=True)
    systems = baseline, hypotheses
    if not references or not len(baseline) == len(hypotheses) == len(references):
        raise ValueError(f"All texts must have as many lines as `references`, {len(references)}, and at least one.")
    before, after = (metric.corpus_score(list(lines), [list(references)]).score for lines in systems)
    counts = [_line_counts(metric, lines, references) for lines in systems]
    signature = metric.get_signature()
    signature.update("bs", bootstrap)
    signature.update("seed", _SEED)
    p_value = _BLEU.paired_p_value(*counts, bootstrap, _SEED)
    return PairedBleu(after, after - before, p_value, f"{signature}|test:two-sided")


def _line_counts(metric: BLEU, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Count matching n-grams, all n-grams of the hypothesis (n from 1 to 4), and both lengths: (lines, 10)."""
    scores = [metric.corpus_score([line], [[own]]) for line, own in zip(hypotheses, references, strict=True)]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])


def _of_sums(sums: np.ndarray) -> np.ndarray:
    """Compute BLEU from summed counts of `_line_counts`, (..., 10) to (...)."""

    def of_corpus(row: np.ndarray) -> float:
        counts = row.tolist()
        return BLEU.compute_bleu(counts[:4], counts[4:8], *counts[8:], smooth_method="exp").score

    return np.apply_along_axis(of_corpus, -1, sums)


_BLEU = Metric("BLEU", _of_sums)
