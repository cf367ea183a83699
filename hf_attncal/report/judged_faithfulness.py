"""Measure whether scores name the source words that a model uses, by taking those words away, or all others.

Comprehensiveness (DeYoung et al. 2020, "ERASER") is by how much the log-probability of a target word falls when the
source words with the highest scores are taken away: much, where they are those that count. Sufficiency is by how much
it falls when only these are kept: little. How a word is taken away is the operator's: see `perturbations.py`.

`hf_attncal.metrics.faithfulness` averages over pairs, with intervals.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from hf_attncal.inference.reading import batches_of_pairs, check_some_words
from hf_attncal.metrics.faithfulness import CIRCULAR, HEADLINE, Faithfulness, Verdict, faithfulness, metric_of

from .attribution import CONTROLS
from .perturbations import OPERATORS, Change, Perturber, WordFrequencies

# How many source words are the best: a number, or a share that is rounded up.
CUTS: tuple[int | float, ...] = (1, 0.2, 0.5)
AREAS = ("comprehensiveness", "sufficiency")  # means over the cuts, the measures that are looked at first
MEASURES = tuple(chain.from_iterable([*(f"{area}@{cut}" for cut in CUTS), area] for area in AREAS))
# It takes words away one by one, which is nearly what is measured: what it comes to is what can be reached.
YARDSTICK = "occlusion"
Scores = Sequence[ArrayLike | None]


def faithfulness_falls(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    scores: Mapping[str, Scores],
    *,
    operators: Sequence[str] = OPERATORS,
    frequencies: Mapping[str, int] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Measure comprehensiveness and sufficiency of scores, teacher-forced on the targets.

    All scores are measured on the same random numbers, and what two of them ask of the model is asked once. Nothing of
    a batch is kept.

    Args:
        model: an encoder-decoder of transformers, on the device to use; its mode is left as it is.
        tokenizer: the model's.
        sources, targets: sentences; targets are references or the model's own output. Pairs with a side of no word are
            left out.
        scores: for each name, such as that of a method, a matrix for each pair, (target words, source words), the
            highest for what counts most; None for a pair that is left out. Of equal scores the first is higher.
        operators: how words are taken away, see `perturbations.py`.
        frequencies: how often each word is seen, for `replace`; None for that in `sources`.
        seed: of draws, which depend on a pair alone.
        batch_size: most sources at once.

    Yields:
        The number of each pair, the longest first, and for each name of scores (operators, `MEASURES`, target words):
        by how much the log-probability of a target word falls, in nats; negative where it rises.

    Raises:
        ValueError: no pair of words, no scores, or scores of another number than the pairs, of another shape than
            their words, or not finite; and what `Perturber` and `batches_of_pairs` refuse.
    """
    _check_scores(scores, sources, targets)
    words = None
    if "replace" in operators:
        words = WordFrequencies(Counter(" ".join(sources).split()) if frequencies is None else frequencies)
    perturber = Perturber(model, tokenizer, tuple(operators), words, seed, batch_size)
    for pairs, _ in batches_of_pairs(model, tokenizer, sources, targets, batch_size=batch_size):
        # For each pair: name -> changes by operator, measure (without the areas) and target word; change -> words.
        changes: list[dict[str, list[list[list[Change]]]]] = []
        asked: list[dict[Change, set[int]]] = []
        for pair in pairs:
            changes.append({})
            asked.append({})
            for name, matrices in scores.items():
                matrix = np.asarray(matrices[pair.index], dtype=np.float64)
                best = [best_words(matrix, cut) for cut in CUTS]
                changes[-1][name] = [
                    [[Change(operator, row.tobytes()) for row in kept] for kept in (*(~of for of in best), *best)]
                    for operator in operators
                ]
                for by_word in chain.from_iterable(changes[-1][name]):
                    for word, change in enumerate(by_word):
                        asked[-1].setdefault(change, set()).add(word)
        results = perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], asked)
        for pair, by_name, (whole, changed) in zip(pairs, changes, results, strict=True):
            falls = {}
            for name, by_operator in by_name.items():
                after = [
                    [[changed[change][word] for word, change in enumerate(by_word)] for by_word in by_measure]
                    for by_measure in by_operator
                ]
                halves = np.split(whole - np.array(after), 2, axis=1)
                parts = [part for half in halves for part in (half, half.mean(axis=1, keepdims=True))]
                falls[name] = np.concatenate(parts, axis=1)
            yield pair.index, falls


def best_words(scores: np.ndarray, cut: float) -> np.ndarray:
    """Mark the best words of each row of scores (..., source words), by one of `CUTS`."""
    count = min(cut, scores.shape[-1]) if isinstance(cut, int) else ceil(round(cut * scores.shape[-1], 9))
    ranks = np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1, kind="stable")
    return ranks < count


def _check_scores(scores: Mapping[str, Scores], sources: Sequence[str], targets: Sequence[str]) -> None:
    check_some_words(sources, targets)
    if not scores:
        raise ValueError("`scores` must have at least one method, got none.")
    for name, matrices in scores.items():
        if len(matrices) != len(sources):
            raise ValueError(f"`scores` of {name!r} must have {len(sources)} pairs, got {len(matrices)}.")
        for index, (source, target, matrix) in enumerate(zip(sources, targets, matrices, strict=False)):
            words = len(target.split()), len(source.split())
            shape = None if matrix is None else np.shape(matrix)
            place = f"`scores` of {name!r} for pair {index} (counted from 0)"
            if all(words) and shape != words:
                raise ValueError(f"{place} must be (target words, source words), {words}, got {shape}.")
            if all(words) and not np.isfinite(np.asarray(matrix, dtype=np.float64)).all():
                raise ValueError(f"{place} must be finite numbers, got NaN or infinity.")


@dataclass(frozen=True)
class JudgedFaithfulness(Faithfulness):
    """The measured faithfulness of methods to a model: means, intervals and verdicts, the pairs in their order."""

    @property
    def headline(self) -> str:
        """Return the operator that is looked at first."""
        return HEADLINE if HEADLINE in self.operators else self.operators[0]

    def ranking(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods by a measure under the headline operator, the best first."""
        operator, without = self.headline, replace(self, bootstrap=0)  # the order needs no intervals
        sign = 1 if metric_of(measure).lower_is_better else -1
        return sorted(self.sums, key=lambda name: sign * without.score(name, operator, measure).value)

    def controls(self) -> list[str]:
        """Return the methods that never look at the model, the strongest first."""
        return [name for name in self.ranking() if name in CONTROLS]

    def verdicts(self, method: str, measure: str = "comprehensiveness") -> dict[str, Verdict]:
        """Return the verdict on a method against each other one. Errors are those of `Faithfulness.verdict`."""
        return {other: self.verdict(method, other, measure) for other in self.sums if other != method}

    def unbeaten(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that no other one is better than by a verdict: among them is the one to read.

        One without whose words the text becomes no less likely is never among them.
        """
        beaten = set()
        for first, second in combinations(self.sums, 2):
            better = self.verdict(first, second, measure).better
            if better is not None:
                beaten.add(second if better == first else first)
        return [name for name in self.ranking(measure) if name not in beaten and self.names_words(name)]


def judge_faithfulness(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    scores: Mapping[str, Scores],
    *,
    kind: str,
    bootstrap: int = 1000,
    operators: Sequence[str] = OPERATORS,
    frequencies: Mapping[str, int] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> JudgedFaithfulness:
    """Measure how faithful scores are.

    Args:
        model, tokenizer, sources, targets, operators, frequencies, batch_size: see `faithfulness_falls`.
        scores: name -> for each pair (target words, source words), as `word_scores` gives them. A method that is
            circular under an operator is known by its name, also before an `@` (`contribution@layer1`).
        kind: what the targets are, `reference` or `output` (of the model).
        bootstrap: resamples of the pairs for each interval; 0 for none, and then no verdicts.
        seed: of draws and resamples.

    Raises:
        ValueError: see `faithfulness_falls` and `metrics.faithfulness.faithfulness`.
    """
    falls = faithfulness_falls(
        *(model, tokenizer, sources, targets, scores),
        operators=operators,
        frequencies=frequencies,
        seed=seed,
        batch_size=batch_size,
    )
    measured = faithfulness(
        (by_method for _, by_method in sorted(falls, key=lambda of_pair: of_pair[0])),
        operators,
        MEASURES,
        targets=kind,
        circular={name: CIRCULAR.get(name.partition("@")[0], ()) for name in scores},
        bootstrap=bootstrap,
        seed=seed,
    )
    return JudgedFaithfulness(**vars(measured))
