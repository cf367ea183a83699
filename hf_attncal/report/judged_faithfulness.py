"""Faithfulness of scores: whether the best-scored source words are the words that a model uses.

Comprehensiveness (DeYoung et al. 2020, "ERASER") is the fall of the log-probability of a target word when the
best-scored source words are removed (high is good). Sufficiency is the fall when all other source words are removed
(low is good). An operator of `perturbations.py` removes words. Falls are averaged over pairs, with intervals.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from hf_attncal.inference.reading import batches_of_pairs, check_some_words
from hf_attncal.metrics.base import Measured, Metric, check_resamples, ratio

from .attribution import CONTROLS
from .perturbations import OPERATORS, Change, Perturber, WordFrequencies

COMPREHENSIVENESS = Metric("Faithfulness", ratio)
SUFFICIENCY = Metric("Faithfulness", ratio, lower_is_better=True)
HEADLINE = "replace"  # its changed sources look most like training data
# Operators that a method itself is built on prove nothing about it: phi is trained by perturbing attention, and
# occlusion replaces words by the unknown token, as the operator does.
CIRCULAR = {"contribution": ("hide",), "occlusion": ("unk",)}
# Number of best source words, or their share, rounded up.
CUTS: tuple[int | float, ...] = (1, 0.2, 0.5)
AREAS = ("comprehensiveness", "sufficiency")  # means over the cuts, the main measures
MEASURES = tuple(chain.from_iterable([*(f"{area}@{cut}" for cut in CUTS), area] for area in AREAS))
# Occlusion removes words one by one, nearly as the measures do, so it shows the best possible value.
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

    All scores use the same random numbers, and equal perturbations are computed once.

    Args:
        model: encoder-decoder of transformers, on the device to use; its mode does not change.
        tokenizer: tokenizer of the model.
        sources, targets: sentences; targets are references or output of the model. Pairs with an empty side are left
            out.
        scores: method -> matrix (target words, source words) per pair, None for a pair left out; higher is more
            important, and the first of equal scores ranks higher.
        operators: ways to remove words (see `perturbations.py`). Default: all.
        frequencies: counts of the words that `replace` draws. Default: counts in `sources`.
        seed: seed of the draws, which otherwise depend only on the pair. Default: 0.
        batch_size: maximum number of sources per batch. Default: 32.

    Yields:
        The index of each pair, the longest first, and method -> (operators, `MEASURES`, target words): fall of the
        log-probability of a target word in nats; negative for a rise.

    Raises:
        ValueError: no pair with words, no scores, scores of wrong number or shape or not finite; see also `Perturber`
            and `batches_of_pairs`.
    """
    _check_scores(scores, sources, targets)
    words = None
    if "replace" in operators:
        words = WordFrequencies(Counter(" ".join(sources).split()) if frequencies is None else frequencies)
    perturber = Perturber(model, tokenizer, tuple(operators), words, seed, batch_size)
    for pairs, _ in batches_of_pairs(model, tokenizer, sources, targets, batch_size=batch_size):
        # Per pair: name -> changes by operator, measure (without AREAS) and target word; and change -> target words.
        changes: list[dict[str, list[list[list[Change]]]]] = []
        words_of_changes: list[dict[Change, set[int]]] = []
        for pair in pairs:
            changes.append({})
            words_of_changes.append({})
            for name, matrices in scores.items():
                matrix = np.asarray(matrices[pair.index], dtype=np.float64)
                best = [best_words(matrix, cut) for cut in CUTS]
                changes[-1][name] = [
                    [[Change(operator, row.tobytes()) for row in kept] for kept in (*(~of for of in best), *best)]
                    for operator in operators
                ]
                for by_word in chain.from_iterable(changes[-1][name]):
                    for word, change in enumerate(by_word):
                        words_of_changes[-1].setdefault(change, set()).add(word)
        results = perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], words_of_changes)
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
    """Return a mask of the best words of each row of scores (..., source words), for a cut of `CUTS`."""
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
class MeasuredFaithfulness(Measured):
    """A mean over target words with its 95 % interval over pairs. `circular` ones prove nothing."""

    circular: bool = False


@dataclass(frozen=True)
class Verdict:
    """The comparison of two methods by one measure of faithfulness.

    Args:
        better: name of the better method, or None if operators disagree or one of them shows no difference.
        by_operator: operator -> the first method's mean minus the second's, with the interval.
        circular: operators that were left out because they are circular for one of the two.
    """

    better: str | None
    by_operator: dict[str, MeasuredFaithfulness]
    circular: tuple[str, ...]


@dataclass(frozen=True)
class JudgedFaithfulness:
    """Faithfulness of methods to a model: falls of the log-probability, summed over the target words of each pair.

    Args:
        sums: method -> summed falls, (pairs, operators, measures).
        words: number of target words in each sum, (pairs,).
        operators, measures: names of the axes.
        targets: kind of the target texts, "reference" or "output".
        bootstrap: number of resamples of the pairs for each interval; 0 for no intervals and no verdicts.
        seed: seed of the resamples.
        circular: method -> operators whose results prove nothing about it. Default: `CIRCULAR`.
    """

    sums: dict[str, np.ndarray]
    words: np.ndarray
    operators: tuple[str, ...]
    measures: tuple[str, ...]
    targets: str
    bootstrap: int
    seed: int = 0
    circular: Mapping[str, Collection[str]] = field(default_factory=lambda: CIRCULAR)

    @property
    def signature(self) -> str:
        """The targets, operators and number of pairs behind the scores."""
        fields = {"targets": self.targets, "operators": "+".join(self.operators), "n": str(len(self.words))}
        return COMPREHENSIVENESS.signature(**fields)

    def score(self, method: str, operator: str = HEADLINE, measure: str = "comprehensiveness") -> MeasuredFaithfulness:
        """Return the mean fall in nats: higher is better for comprehensiveness, lower for sufficiency.

        Raises:
            KeyError, ValueError: a method, operator or measure that was not measured.
        """
        counts = self._counts(method, operator, measure)
        mean = metric_of(measure).measured(counts, self.bootstrap, self.seed)
        return MeasuredFaithfulness(mean.value, mean.interval, self._is_circular(method, operator))

    def difference(self, first: str, second: str, operator: str = HEADLINE, measure: str = "comprehensiveness"):
        """Return the first method's mean minus the second's, with its interval on the same resamples.

        Raises:
            KeyError, ValueError: a method, operator or measure that was not measured, or `bootstrap` is 0.
        """
        first_counts, second_counts = (self._counts(method, operator, measure) for method in (first, second))
        mean = metric_of(measure).difference(first_counts, second_counts, self.bootstrap, self.seed)
        circular = any(self._is_circular(method, operator) for method in (first, second))
        return MeasuredFaithfulness(mean.value, mean.interval, circular)

    def verdict(self, first: str, second: str, measure: str = "comprehensiveness") -> Verdict:
        """Return which of two methods is better by a measure: all operators that are not circular must agree.

        No method is better on fewer than `FEWEST_SENTENCES` pairs, which have no interval, or if the better one
        fails `names_words`.

        Raises:
            KeyError, ValueError: a method or measure that was not measured, or `bootstrap` is 0.
        """
        by_operator = {operator: self.difference(first, second, operator, measure) for operator in self.operators}
        circular = tuple(operator for operator, difference in by_operator.items() if difference.circular)
        signs = {sign_of(difference, measure) for difference in by_operator.values() if not difference.circular}
        better = {1: first, -1: second}.get(signs.pop()) if len(signs) == 1 else None
        if better is not None and not self.names_words(better):
            better = None
        return Verdict(better, by_operator, circular)

    def names_words(self, method: str) -> bool:
        """Return whether target words become less likely without the words that a method names.

        The criterion is comprehensiveness under the headline operator, at the lower end of its interval if it has one.
        Returns True if comprehensiveness was not measured.
        """
        if "comprehensiveness" not in self.measures:
            return True
        fall = self.score(method, self.headline)
        return (fall.value if fall.interval is None else fall.interval[0]) > 0

    def _counts(self, method: str, operator: str, measure: str) -> np.ndarray:
        """Return the summed falls and the number of target words of each pair, (pairs, 2)."""
        falls = self.sums[method][:, self.operators.index(operator), self.measures.index(measure)]
        return np.stack([falls, self.words], axis=1)

    def _is_circular(self, method: str, operator: str) -> bool:
        return operator in self.circular.get(method.partition("@")[0], ())

    @property
    def headline(self) -> str:
        """Main operator."""
        return HEADLINE if HEADLINE in self.operators else self.operators[0]

    def ranking(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods by a measure under the main operator, the best first."""
        operator, without = self.headline, replace(self, bootstrap=0)  # the order needs no intervals
        sign = 1 if metric_of(measure).lower_is_better else -1
        return sorted(self.sums, key=lambda name: sign * without.score(name, operator, measure).value)

    def controls(self) -> list[str]:
        """Return the controls (methods that ignore the model), the one with the best scores first."""
        return [name for name in self.ranking() if name in CONTROLS]

    def verdicts(self, method: str, measure: str = "comprehensiveness") -> dict[str, Verdict]:
        """Return the verdicts between a method and each other method; raises as `Faithfulness.verdict` does."""
        return {other: self.verdict(method, other, measure) for other in self.sums if other != method}

    def unbeaten(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that no verdict calls worse than another.

        Methods whose best words can be removed without a fall of the probability are left out.
        """
        beaten = set()
        for first, second in combinations(self.sums, 2):
            better = self.verdict(first, second, measure).better
            if better is not None:
                beaten.add(second if better == first else first)
        return [name for name in self.ranking(measure) if name not in beaten and self.names_words(name)]


def faithfulness(
    falls: Iterable[Mapping[str, np.ndarray]],
    operators: Sequence[str],
    measures: Sequence[str],
    *,
    targets: str,
    bootstrap: int = 1000,
    seed: int = 0,
) -> JudgedFaithfulness:
    """Sum the falls of log-probability over the target words of each pair.

    Args:
        falls: method -> falls (operators, measures, target words), one mapping per pair. The order of pairs matters
            only for the resamples of the intervals.
        operators, measures: names of the axes.
        targets: "reference" if the target texts are references, "output" if the model wrote them. Appears in the
            signature.
        bootstrap: number of resamples of the pairs for each interval; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: no pair, an unknown `targets`, or negative `bootstrap`.
    """
    if targets not in ("reference", "output"):
        raise ValueError(f"`targets` must be 'reference' or 'output' (the model's own), got {targets!r}.")
    check_resamples(bootstrap)
    pairs = list(falls)
    if not pairs:
        raise ValueError("`falls` must have at least one pair, got none.")
    sums = {method: np.stack([by_method[method].sum(axis=-1) for by_method in pairs]) for method in pairs[0]}
    words = np.array([next(iter(by_method.values())).shape[-1] for by_method in pairs])
    return JudgedFaithfulness(sums, words, tuple(operators), tuple(measures), targets, bootstrap, seed)


def metric_of(measure: str) -> Metric:
    """Return the metric of a measure, with its direction (`lower_is_better`)."""
    return SUFFICIENCY if "sufficiency" in measure else COMPREHENSIVENESS


def sign_of(difference: MeasuredFaithfulness, measure: str) -> int:
    """Return 1 if the interval shows that the first method is better, -1 if the second is, 0 if it includes zero."""
    if difference.interval is None:
        return 0
    low, high = difference.interval
    sign = int(low > 0) - int(high < 0)
    return -sign if metric_of(measure).lower_is_better else sign


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
    """Measure whether the model uses the source words that an attribution method scores highest.

    If it does, the log-probability of a target word falls much when these words are removed (comprehensiveness), and
    little when all others are removed (sufficiency). The result has the means of both over the text with their
    intervals, and for each two methods a verdict: which one is better.

    Args:
        model: encoder-decoder of transformers, on the device to use.
        tokenizer: tokenizer of the model.
        sources, targets: sentences, and their references or the model's output.
        scores: method -> matrix (target words, source words) per pair, as returned by `word_scores`. A name may have
            a suffix after `@`: `contribution@layer1` is the method `contribution`.
        kind: kind of the targets, "reference" or "output" (of the model).
        bootstrap: number of resamples of the pairs per interval; 0 for no intervals and no verdicts. Default: 1000.
        operators: ways to remove words (see `perturbations.py`). A method that removes words itself, such as
            occlusion, is not judged by its own operator (`CIRCULAR`). Default: all.
        frequencies: counts of the words that the operator `replace` draws. Default: counts in `sources`.
        seed: seed of draws and resamples. Default: 0.
        batch_size: maximum number of sources per batch. Default: 32.

    Raises:
        ValueError: no pair with words, or scores of wrong number or shape, or not finite.
    """
    falls = faithfulness_falls(
        *(model, tokenizer, sources, targets, scores),
        operators=operators,
        frequencies=frequencies,
        seed=seed,
        batch_size=batch_size,
    )
    in_order = (by_method for _, by_method in sorted(falls, key=lambda of_pair: of_pair[0]))
    return faithfulness(in_order, operators, MEASURES, targets=kind, bootstrap=bootstrap, seed=seed)
