"""Compute the alignment error rate.

Och and Ney, 2003, "A Systematic Comparison of Various Statistical Alignment Models".

A link is a pair (i, j): source word i, target word j, both counted from 0.
"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_attncal.data.pharaoh import (
    GoldAlignment,
    Link,
    check_index_base,
    check_inside_sentences,
    enough_for_index_checks,
)
from hf_attncal.data.words import is_punctuation

from .base import Metric

# Source and target words of a sentence pair.
WordPair = tuple[Sequence[str], Sequence[str]]

# The folder to give to `evaluate.load`.
AER_METRIC = str(Path(__file__).parent / "evaluate_modules" / "aer")

# If the AER is above `_SUSPICIOUS_AER` and other indices more than halve it, the indices are wrong.
# (On the Hansards, which have many possible links, links that are off by one have an AER of only about 40 %.)
_SUSPICIOUS_AER, _SUSPICIOUS_PART = 0.3, 0.5


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment scores of a corpus, fractions from 0 to 1 (a lower `aer` is better), with their signature.

    `f1` is the harmonic mean of `precision` (against possible links) and `recall` (against sure links).
    """

    aer: float
    precision: float
    recall: float
    f1: float
    signature: str
    sentences: int
    sure: int  # |S|
    possible: int  # |P|, sure links included
    proposed: int  # |A|
    sure_hits: int  # |A & S|
    possible_hits: int  # |A & P|
    interval: tuple[float, float] | None = None  # 95 % confidence interval of `aer`

    def __str__(self) -> str:
        interval = (
            "" if self.interval is None else " [{:.1f}, {:.1f}]".format(*(100 * bound for bound in self.interval))
        )
        return (
            f"AER {100 * self.aer:.1f}{interval} (precision {100 * self.precision:.1f}, "
            f"recall {100 * self.recall:.1f}, F1 {100 * self.f1:.1f}) {self.signature}"
        )


# ---- wrong indices ----


def find_index_mismatch(gold: Sequence[GoldAlignment], hypotheses: Sequence[Collection[Link]]) -> str | None:
    """Detect links whose indices do not match the indices of the gold alignment.

    If AER is above 30 %, it is computed again with every index raised or lowered by 1, and with source and target
    exchanged. If one of these more than halves it, the two files count words differently.

    Returns:
        A message, or None if nothing looks wrong or fewer than ten sentence pairs have links.
    """
    aer = _aer(_count(gold, hypotheses).sum(axis=0))
    if aer <= _SUSPICIOUS_AER or not (enough_for_index_checks(gold) and enough_for_index_checks(hypotheses)):
        return None
    variants = {
        "raised by 1: the gold alignment looks 1-based and the hypothesis 0-based": lambda i, j: (i + 1, j + 1),
        "lowered by 1: the hypothesis looks 1-based and the gold alignment 0-based": lambda i, j: (i - 1, j - 1),
        "exchanged between source and target: one of the two has the target index first": lambda i, j: (j, i),
    }
    scores = {}
    for name, change in variants.items():
        changed = [{change(*link) for link in links} for links in hypotheses]
        scores[name] = _aer(_count(gold, changed).sum(axis=0))
    best = min(scores, key=scores.__getitem__)
    if scores[best] >= _SUSPICIOUS_PART * aer:
        return None
    return f"AER is {100 * aer:.1f} %, but {100 * scores[best]:.1f} % with all indices of the hypothesis {best}."


# ---- scoring ----


def alignment_error_rate(
    gold: Sequence[GoldAlignment],
    hypotheses: Sequence[Collection[Link]],
    *,
    unit: str = "word",
    symmetrization: str = "none",
    base: str = "0",
    ignore_possible: bool = False,
    sentences: Sequence[WordPair] | None = None,
    punctuation: bool = True,
    bootstrap: int = 0,
    seed: int = 0,
    check_indices: bool = True,
) -> AlignmentScore:
    """Compute AER, precision, recall and F1 over a whole corpus.

    With sure links S, possible links P (P includes S) and hypothesis A, counted over all pairs:
    `AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)`, precision `|A & P| / |A|`, recall `|A & S| / |S|`.
    Without any gold or proposed links there are no errors: a precision or recall with denominator 0 is 1, and AER is
    0.

    Args:
        gold: annotated links of each pair.
        hypotheses: proposed links of each pair, in the same order.
        unit: unit that the indices count, "word" or "subword". Appears only in the signature.
        symmetrization: method that merged two directions; "none" for one direction. Appears only in the signature.
        base: index of the first word in the files. Appears only in the signature.
        ignore_possible: True to count only sure links (P = S).
        sentences: source and target words of each pair; all links must be inside. Default: None, no check.
        punctuation: False to leave out links in `gold` and `hypotheses` if either word is only punctuation. Needs
            `sentences`.
        bootstrap: number of resamples of the sentence pairs for the 95 % confidence interval of AER (its 2.5th and
            97.5th percentiles). Fewer than `FEWEST_SENTENCES` pairs have no interval. Default: 0, no interval.
        seed: seed of the resamples. The same number of pairs and the same seed give the same resamples.
        check_indices: True to refuse an annotation that looks 1-based, and to warn if `find_index_mismatch` finds a
            mismatch.

    Warns:
        UserWarning: gold and hypothesis seem to count words differently.

    Raises:
        ValueError: unequal numbers of pairs, an annotation that looks 1-based, a link outside its sentence,
            `punctuation=False` without `sentences`, a negative `bootstrap`, or a `|` in a field of the signature.
    """
    signature = AER.signature(
        base=base,
        possible="ignored" if ignore_possible else "used",
        **({} if punctuation else {"punct": "excluded"}),
        unit=unit,
        symm=symmetrization,
        n=str(len(gold)),
    )
    _check_pairs(gold, hypotheses)
    if check_indices:
        check_index_base(gold)
        if problem := find_index_mismatch(gold, hypotheses):
            warnings.warn(problem, stacklevel=2)
    gold, hypotheses = _select(gold, hypotheses, ignore_possible, sentences, punctuation)
    counts = _count(gold, hypotheses)
    proposed, sure, sure_hits, possible_hits = counts.sum(axis=0).tolist()
    precision, recall = _ratio(possible_hits, proposed), _ratio(sure_hits, sure)
    return AlignmentScore(
        aer=1 - _ratio(sure_hits + possible_hits, proposed + sure),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        signature=signature,
        sentences=len(gold),
        sure=sure,
        possible=sum(len(pair.possible) for pair in gold),
        proposed=proposed,
        sure_hits=sure_hits,
        possible_hits=possible_hits,
        interval=AER.interval(counts, bootstrap, seed),
    )


def paired_counts(
    gold: Sequence[GoldAlignment],
    first: Sequence[Collection[Link]],
    second: Sequence[Collection[Link]],
    *,
    ignore_possible: bool = False,
    sentences: Sequence[WordPair] | None = None,
    punctuation: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Count the links of two systems on the same pairs, (pairs, 4) each, for the paired methods of `AER`.

    Args:
        gold: annotated links of each pair.
        first, second: links that two systems propose, in the same order.
        ignore_possible, sentences, punctuation: see `alignment_error_rate`, which also lists the errors.
    """
    counts = []
    for hypotheses in (first, second):
        _check_pairs(gold, hypotheses)
        counts.append(_count(*_select(gold, hypotheses, ignore_possible, sentences, punctuation)))
    return counts[0], counts[1]


def _check_pairs(gold: Sequence[GoldAlignment], hypotheses: Sequence[Collection[Link]]) -> None:
    if len(gold) != len(hypotheses):
        raise ValueError(f"{len(gold)} annotated sentence pairs, but {len(hypotheses)} proposed alignments.")


def _select(
    gold: Sequence[GoldAlignment],
    hypotheses: Sequence[Collection[Link]],
    ignore_possible: bool,
    sentences: Sequence[WordPair] | None,
    punctuation: bool,
) -> tuple[Sequence[GoldAlignment], Sequence[Collection[Link]]]:
    """Return the links to score, after checking that they are inside `sentences`."""
    if ignore_possible:
        gold = [GoldAlignment(sure=pair.sure, possible=pair.sure) for pair in gold]
    if sentences is not None:
        lengths = [(len(source), len(target)) for source, target in sentences]
        for name, pairs in (("gold alignment", gold), ("hypothesis", hypotheses)):
            try:
                check_inside_sentences(pairs, lengths)
            except ValueError as error:
                raise ValueError(f"The {name}: {error}") from error
    if punctuation:
        return gold, hypotheses
    if sentences is None:
        raise ValueError("`punctuation=False` needs `sentences`, because only the words show what is punctuation.")
    excluded = [tuple([is_punctuation(word) for word in side] for side in pair) for pair in sentences]

    def keep(links: Collection[Link], source: list[bool], target: list[bool]) -> frozenset[Link]:
        return frozenset((i, j) for i, j in links if not (source[i] or target[j]))

    return (
        [
            GoldAlignment(sure=keep(pair.sure, *marks), possible=keep(pair.possible, *marks))
            for pair, marks in zip(gold, excluded, strict=True)
        ],
        [keep(links, *marks) for links, marks in zip(hypotheses, excluded, strict=True)],
    )


def _count(gold: Sequence[GoldAlignment], hypotheses: Sequence[Collection[Link]]) -> np.ndarray:
    """Count |A|, |S|, |A & S| and |A & P| of each pair, (pairs, 4). All scores are functions of their sums."""
    rows = [
        (len(links), len(pair.sure), len(links & pair.sure), len(links & pair.possible))
        for pair, links in zip(gold, map(frozenset, hypotheses), strict=True)
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _aer(counts: np.ndarray) -> np.ndarray:
    """Compute AER from summed counts, (..., 4) to (...)."""
    proposed, sure, sure_hits, possible_hits = np.moveaxis(counts, -1, 0)
    total = proposed + sure
    return 1 - np.where(total > 0, sure_hits + possible_hits, 1) / np.maximum(total, 1)


AER = Metric("AER", _aer, lower_is_better=True)


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else 1.0
