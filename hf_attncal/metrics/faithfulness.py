"""Score the faithfulness of attributions: means over target words, intervals and verdicts.

`hf_attncal.report.judged_faithfulness` measures the falls of log-probability that are averaged here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import base
from .base import Metric, ratio

COMPREHENSIVENESS = Metric("Faithfulness", ratio)
SUFFICIENCY = Metric("Faithfulness", ratio, lower_is_better=True)
HEADLINE = "replace"  # its changed sources look most like training data
# Operators that a method itself is built on prove nothing about it: phi is trained by perturbing attention, and
# occlusion replaces words by the unknown token, as the operator does.
CIRCULAR = {"contribution": ("hide",), "occlusion": ("unk",)}


@dataclass(frozen=True)
class MeasuredFaithfulness(base.Measured):
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
class Faithfulness:
    """Falls of the log-probability of target words, summed over each pair.

    Args:
        sums: method -> summed falls, (pairs, operators, measures).
        words: number of target words in each sum, (pairs,).
        operators, measures: names of the axes.
        targets: kind of the target texts, "reference" or "output".
        circular: method -> operators that are circular for it.
        bootstrap: number of resamples of the pairs for each interval; 0 for no intervals and no verdicts.
        seed: seed of the resamples.
    """

    sums: dict[str, np.ndarray]
    words: np.ndarray
    operators: tuple[str, ...]
    measures: tuple[str, ...]
    targets: str
    circular: Mapping[str, Collection[str]]
    bootstrap: int
    seed: int

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
        return MeasuredFaithfulness(mean.value, mean.interval, operator in self.circular.get(method, ()))

    def difference(self, first: str, second: str, operator: str = HEADLINE, measure: str = "comprehensiveness"):
        """Return the first method's mean minus the second's, with its interval on the same resamples.

        Raises:
            KeyError, ValueError: a method, operator or measure that was not measured, or `bootstrap` is 0.
        """
        first_counts, second_counts = (self._counts(method, operator, measure) for method in (first, second))
        mean = metric_of(measure).difference(first_counts, second_counts, self.bootstrap, self.seed)
        circular = any(operator in self.circular.get(method, ()) for method in (first, second))
        return MeasuredFaithfulness(mean.value, mean.interval, circular)

    def verdict(self, first: str, second: str, measure: str = "comprehensiveness") -> Verdict:
        """Return which of two methods is better by a measure: all operators that are not circular must agree.

        No method is better on fewer than `base.FEWEST_SENTENCES` pairs, which have no interval, or if the better one
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
        fall = self.score(method, HEADLINE if HEADLINE in self.operators else self.operators[0])
        return (fall.value if fall.interval is None else fall.interval[0]) > 0

    def _counts(self, method: str, operator: str, measure: str) -> np.ndarray:
        """Return the summed falls and the number of target words of each pair, (pairs, 2)."""
        falls = self.sums[method][:, self.operators.index(operator), self.measures.index(measure)]
        return np.stack([falls, self.words], axis=1)


def faithfulness(
    falls: Iterable[Mapping[str, np.ndarray]],
    operators: Sequence[str],
    measures: Sequence[str],
    *,
    targets: str,
    circular: Mapping[str, Collection[str]] = CIRCULAR,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Faithfulness:
    """Sum the falls of log-probability over the target words of each pair.

    Args:
        falls: method -> falls (operators, measures, target words), one mapping per pair. The order of pairs matters
            only for the resamples of the intervals.
        operators, measures: names of the axes.
        targets: "reference" if the target texts are references, "output" if the model wrote them. Appears in the
            signature.
        circular: method -> operators whose results prove nothing about it.
        bootstrap: number of resamples of the pairs for each interval; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: no pair, a shape that does not fit the names, methods that differ between pairs, an unknown
            `targets`, or negative `bootstrap`.
    """
    if targets not in ("reference", "output"):
        raise ValueError(f"`targets` must be 'reference' or 'output' (the model's own), got {targets!r}.")
    base.check_resamples(bootstrap)
    sums: dict[str, list[np.ndarray]] = {}
    words: list[int] = []
    for number, by_method in enumerate(falls, start=1):
        if sums and by_method.keys() != sums.keys():
            raise ValueError(
                f"`falls` of pair {number} has the methods {sorted(by_method)}, but the first pair has {sorted(sums)}."
            )
        for method, values in by_method.items():
            if values.shape[:-1] != (len(operators), len(measures)):
                raise ValueError(
                    f"`falls` of {method!r} for pair {number} must be ({len(operators)} operators, {len(measures)} "
                    f"measures, target words), got {values.shape}."
                )
            sums.setdefault(method, []).append(values.sum(axis=-1))
        words.append(values.shape[-1])
    if not words:
        raise ValueError("`falls` must have at least one pair, got none.")
    stacked = {method: np.stack(by_pair) for method, by_pair in sums.items()}
    axes = np.array(words), tuple(operators), tuple(measures)
    return Faithfulness(stacked, *axes, targets, circular, bootstrap, seed)


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
