"""Base of all metrics: signatures, bootstrap intervals, and paired comparisons of two systems.

A metric counts something in each sentence (pair, document): an array (sentences, k). Its score is a function of the
sums over sentences, so a resample of the corpus is scored by weighting rows, not by counting again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

import numpy as np

PERCENTILES = (0.025, 0.975)  # between them lies the 95 % interval
# Fewer sentences (pairs, documents) have neither an interval nor a p-value: five agree by chance in one case of
# sixteen, and the median lies outside the range of five values as often. Both are more than 5 %. Sentences that count
# nothing, such as those without a word of some tag, are left out.
FEWEST_SENTENCES = 6
_MAX_CACHED_NUMBERS = 2**20  # 8 MB
_version = lru_cache(version)  # cached because it reads files


def check_resamples(bootstrap: int) -> None:
    """Raise ValueError for a negative number of resamples."""
    if bootstrap < 0:
        raise ValueError(f"`bootstrap` must be >= 0, got {bootstrap}. Give a number of resamples, or 0 for none.")


def ratio(sums: np.ndarray) -> np.ndarray:
    """Divide sums by their numbers of terms, (..., 2) to (...); 0 for no terms."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


@dataclass(frozen=True)
class Measured:
    """A mean with its 95 % interval over sentences (pairs, documents), or None for no interval."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Metric:
    """A corpus score that is a function of sums over sentences.

    Args:
        name: first word of its signatures.
        score: function of sums (..., k) to scores (...).
        lower_is_better: True for an error rate.
    """

    name: str
    score: Callable[[np.ndarray], np.ndarray]
    lower_is_better: bool = False

    def signature(self, **fields: str) -> str:
        """Return the signature of a score: `NAME|field:value|...|version:...`, fields in the given order.

        Raises:
            ValueError: a value that is empty, holds a `|`, or is not one line of printable text.
        """
        for field, value in fields.items():
            if not value or "|" in value or not value.isprintable():
                raise ValueError(f"`{field}` of the signature must be one line of text without `|`, got {value!r}.")
        all_fields = fields | {"version": _version("hf_attncal")}
        return "|".join([self.name, *(f"{field}:{value}" for field, value in all_fields.items())])

    def interval(self, counts: np.ndarray, bootstrap: int, seed: int) -> tuple[float, float] | None:
        """Return the 95 % confidence interval of the score: percentiles 2.5 and 97.5 over resamples of the sentences.

        Args:
            counts: (sentences, k).
            bootstrap: number of resamples; 0 for no interval.
            seed: seed of the resamples. The same number of sentences and the same seed give the same resamples.

        Returns:
            Both ends, or None without resamples or if fewer than `FEWEST_SENTENCES` sentences count anything.

        Raises:
            ValueError: negative `bootstrap`.
        """
        check_resamples(bootstrap)
        if not bootstrap or _counting(counts) < FEWEST_SENTENCES:
            return None
        low, high = np.quantile(self.resampled(counts, bootstrap, seed), PERCENTILES).tolist()
        return low, high

    def measured(self, counts: np.ndarray, bootstrap: int, seed: int) -> Measured:
        """Return the score of counts (sentences, k) with its interval. See `interval` for the arguments."""
        return Measured(float(self.score(counts.sum(axis=0))), self.interval(counts, bootstrap, seed))

    def difference(self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int) -> Measured:
        """Return `first`'s score minus `second`'s, with its interval on the same resamples.

        See `paired_bootstrap` for arguments and errors.
        """
        value = float(self.score(first.sum(axis=0)) - self.score(second.sum(axis=0)))
        return Measured(value, self.paired_interval(second, first, bootstrap, seed))

    def paired_bootstrap(self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int) -> float | None:
        """Return the share of resamples of the sentences in which `second` scores better than `first`, without ties.

        Both are scored on the same resamples (paired bootstrap: Koehn, 2004, "Statistical Significance Tests for
        Machine Translation Evaluation"). Identical systems have a share of 0. Use `paired_p_value` to
        test whether a difference may be chance.

        Args:
            first, second: counts of the same sentences, (sentences, k) each.
            bootstrap: number of resamples, at least 1.
            seed: seed of the resamples; see `interval`.

        Returns:
            The share, or None for fewer than `FEWEST_SENTENCES` sentences.

        Raises:
            ValueError: `bootstrap` below 1, no sentences, or different numbers of them.
        """
        pairs = self._resampled_pairs(first, second, bootstrap, seed)
        if pairs is None:
            return None
        before, after = pairs
        return float(np.mean(after < before if self.lower_is_better else after > before))

    def paired_p_value(self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int) -> float | None:
        """Return the p-value of the two-sided test that both systems are equally good; 1 for identical ones.

        Resampled differences scatter around the observed one as they would scatter around 0 if the hypothesis were
        true (Efron and Tibshirani, 1993, "An Introduction to the Bootstrap", chapter 16). p is the share of
        resamples whose difference is at least as far from the observed one as the observed one is from 0. Ties and the
        observed difference itself count, so p is never 0.

        If only m sentences differ, p is at least 2 / 2**m: exchanging the systems in each of them gives only 2**m
        outcomes.

        See `paired_bootstrap` for arguments and errors. Returns None for fewer than `FEWEST_SENTENCES` sentences.
        """
        pairs = self._resampled_pairs(first, second, bootstrap, seed)
        if pairs is None:
            return None
        before, after = pairs
        observed = self.score(second.sum(axis=0)) - self.score(first.sum(axis=0))
        rounding = 1e-9 * np.abs(pairs).max()
        extreme = int((np.abs(after - before - observed) >= np.abs(observed) - rounding).sum())
        differing = int((first != second).any(axis=1).sum())
        return max((extreme + 1) / (bootstrap + 1), min(1.0, 2.0 ** (1 - differing)))

    def paired_interval(
        self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int
    ) -> tuple[float, float] | None:
        """Return the 95 % confidence interval of `second`'s score minus `first`'s.

        See `paired_bootstrap` for arguments and errors. Returns None for fewer than `FEWEST_SENTENCES` sentences.
        """
        pairs = self._resampled_pairs(first, second, bootstrap, seed)
        if pairs is None:
            return None
        before, after = pairs
        low, high = np.quantile(after - before, PERCENTILES).tolist()
        return low, high

    def _resampled_pairs(
        self, first: np.ndarray, second: np.ndarray, bootstrap: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return both systems' scores on the same resamples, (bootstrap,) each, or None for too few sentences."""
        if bootstrap < 1 or not len(first):
            raise ValueError(
                f"A paired bootstrap needs `bootstrap` >= 1 and at least one sentence, got {bootstrap} resamples of "
                f"{len(first)} sentences."
            )
        if len(first) != len(second):
            raise ValueError(f"Paired systems need the same sentences, got {len(first)} and {len(second)} of them.")
        if _counting(first, second) < FEWEST_SENTENCES:
            return None
        return self.resampled(first, bootstrap, seed), self.resampled(second, bootstrap, seed)

    def resampled(self, counts: np.ndarray, bootstrap: int, seed: int) -> np.ndarray:
        """Score resamples, (bootstrap,). Resample r draws with the r-th call of `integers(sentences, size=sentences)`.

        A sentence that is drawn n times counts n times, so the sums are the products of these numbers with `counts`.
        """
        if bootstrap * len(counts) <= _MAX_CACHED_NUMBERS:
            return self.score(_cached_draws(len(counts), bootstrap, seed) @ counts)
        return self.score(np.stack([times @ counts for times in _draws(len(counts), bootstrap, seed)]))


def _counting(*counts: np.ndarray) -> int:
    """Return the number of sentences that any of the counts (sentences, k) has something of."""
    return int(np.any([of_system.any(axis=1) for of_system in counts], axis=0).sum())


def _draws(sentences: int, bootstrap: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the number of times that each sentence is drawn, (sentences,), per resample."""
    generator = np.random.default_rng(seed)
    for _ in range(bootstrap):
        yield np.bincount(generator.integers(sentences, size=sentences), minlength=sentences)


@lru_cache(maxsize=2)
def _cached_draws(sentences: int, bootstrap: int, seed: int) -> np.ndarray:
    """Return all of `_draws`, (bootstrap, sentences), cached for many scores of the same sentences."""
    return np.stack(list(_draws(sentences, bootstrap, seed)))


# ---- many means at once ----

_MEANS = Metric("Means", lambda sums: ratio(sums.reshape(*sums.shape[:-1], -1, 2)))


def means(counts: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> list[Measured]:
    """Compute means over a corpus with 95 % bootstrap intervals over its pairs.

    Args:
        counts: sums and their numbers of terms, (pairs, K, 2), or (pairs, 2) for one mean, as in `Observations`.
        bootstrap: number of resamples of the pairs; 0 for no intervals. A mean with terms in fewer than
            `FEWEST_SENTENCES` pairs has none.
        seed: seed of the resamples.

    Returns:
        The K means. A mean without terms is NaN and has no interval.

    Raises:
        ValueError: no pair, or negative `bootstrap`.
    """
    if not len(counts):
        raise ValueError("`counts` must have at least one pair, got none.")
    check_resamples(bootstrap)
    flat = counts.reshape(len(counts), -1)
    total = flat.sum(axis=0)
    values, pairs = _MEANS.score(total), (flat[:, 1::2] > 0).sum(axis=0)
    bounds: list[tuple[float, float] | None] = [None] * len(values)
    if bootstrap and pairs.max() >= FEWEST_SENTENCES:
        ends = np.quantile(_MEANS.resampled(flat, bootstrap, seed), PERCENTILES, axis=0)
        bounds = list(zip(*ends.tolist(), strict=True))
    return [
        Measured(float(value) if number else float("nan"), bound if number >= FEWEST_SENTENCES else None)
        for value, number, bound in zip(values, pairs, bounds, strict=True)
    ]


def mean_difference(first: np.ndarray, second: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> Measured:
    """Return the first mean minus the second on the same pairs, with its 95 % interval.

    Args:
        first, second: sums and numbers of terms, (pairs, 2) each.
        bootstrap, seed: see `means`.

    Raises:
        ValueError: no pair, different numbers of pairs, or `bootstrap` < 1.
    """
    return Metric("Means", ratio).difference(first, second, bootstrap, seed)
