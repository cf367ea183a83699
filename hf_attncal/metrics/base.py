"""What every metric shares: a signature, the bootstrap interval, and the paired comparison of two systems.

A metric counts something in every sentence (pair, document): an array (sentences, k). Its score is a function of the
sums over sentences, so a resample of the corpus is scored by weighting rows, not by counting again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

import numpy as np

PERCENTILES = (0.025, 0.975)  # between them lies the 95 % interval
_MOST_KEPT = 2**20  # numbers of resamples, 8 MB


def ratio(sums: np.ndarray) -> np.ndarray:
    """A mean: what was added up, and of how many, (..., 2) to (...); 0 of none."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


@dataclass(frozen=True)
class Measured:
    """A mean with its 95 % interval over sentences (pairs, documents); None for no interval."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Metric:
    """A corpus score that is a function of sums over sentences.

    Args:
        name: what its signatures begin with.
        score: of sums (..., k) to (...).
        lower_is_better: for an error rate.
    """

    name: str
    score: Callable[[np.ndarray], np.ndarray]
    lower_is_better: bool = False

    def signature(self, **fields: str) -> str:
        """How a score was computed: `NAME|field:value|...|version:...`, fields in the given order.

        Raises:
            ValueError: a value that is empty, holds a `|`, or is not one line of printable text.
        """
        for field, value in fields.items():
            if not value or "|" in value or not value.isprintable():
                raise ValueError(f"`{field}` of the signature must be one line of text without `|`, got {value!r}.")
        stated = fields | {"version": version("hf_attncal")}
        return "|".join([self.name, *(f"{field}:{value}" for field, value in stated.items())])

    def interval(self, counts: np.ndarray, bootstrap: int, seed: int) -> tuple[float, float] | None:
        """95 % confidence interval of the score: the 2.5th and 97.5th percentiles over resamples of the sentences.

        Args:
            counts: (sentences, k).
            bootstrap: number of resamples; with 0 of them, or without sentences, there is no interval.
            seed: of the resamples. The same number of sentences and the same seed give the same resamples.

        Raises:
            ValueError: negative `bootstrap`.
        """
        if bootstrap < 0:
            raise ValueError(f"`bootstrap` must be >= 0 (a number of resamples, 0 for none), got {bootstrap}.")
        if not bootstrap or not len(counts):
            return None
        low, high = np.quantile(self.resampled(counts, bootstrap, seed), PERCENTILES).tolist()
        return low, high

    def paired_bootstrap(self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int) -> float:
        """Share of resamples of the sentences in which `second` scores better than `first`; ties count against it.

        Both are scored on the same resamples (paired bootstrap: Koehn, 2004, "Statistical Significance Tests for
        Machine Translation Evaluation"). 1 minus the share is the p-value of the one-sided test that `second` is
        better.

        Args:
            first, second: (sentences, k), of the same sentences.
            bootstrap: number of resamples, at least 1.
            seed: as for `interval`.

        Raises:
            ValueError: `bootstrap` below 1, no sentences, or different numbers of them.
        """
        before, after = self._resampled_pairs(first, second, bootstrap, seed)
        return float(np.mean(after < before if self.lower_is_better else after > before))

    def paired_interval(self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int) -> tuple[float, float]:
        """95 % confidence interval of how much the score of `second` is above that of `first`.

        Args, resamples and errors are those of `paired_bootstrap`.
        """
        before, after = self._resampled_pairs(first, second, bootstrap, seed)
        low, high = np.quantile(after - before, PERCENTILES).tolist()
        return low, high

    def _resampled_pairs(
        self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores of both systems, (bootstrap,) each, on the same resamples."""
        if bootstrap < 1 or not len(first):
            raise ValueError(
                f"A paired bootstrap needs `bootstrap` >= 1 and a sentence, got {bootstrap} resamples of "
                f"{len(first)} sentences."
            )
        if len(first) != len(second):
            raise ValueError(f"Paired systems need the same sentences, got {len(first)} and {len(second)} of them.")
        return self.resampled(first, bootstrap, seed), self.resampled(second, bootstrap, seed)

    def resampled(self, counts: np.ndarray, bootstrap: int, seed: int) -> np.ndarray:
        """(bootstrap,) scores. Resample r has the sentences of the r-th call of `integers(sentences, size=sentences)`.

        A sentence that is drawn n times counts n times, so the sums are products of how often with `counts`.
        """
        few = bootstrap * len(counts) <= _MOST_KEPT
        drawn = _kept(len(counts), bootstrap, seed) if few else _how_often(len(counts), bootstrap, seed)
        return self.score(np.stack([times @ counts for times in drawn]))


def _how_often(sentences: int, bootstrap: int, seed: int) -> Iterator[np.ndarray]:
    """For each resample how often it has each sentence, (sentences,)."""
    generator = np.random.default_rng(seed)
    for _ in range(bootstrap):
        yield np.bincount(generator.integers(sentences, size=sentences), minlength=sentences)


@lru_cache(maxsize=2)
def _kept(sentences: int, bootstrap: int, seed: int) -> list[np.ndarray]:
    """The same, for many scores of the same sentences one after the other."""
    return list(_how_often(sentences, bootstrap, seed))
