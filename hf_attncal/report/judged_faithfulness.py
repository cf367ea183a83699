"""Measure whether scores name the source words that a model uses, by taking those words away, or all others.

Comprehensiveness (DeYoung et al. 2020, "ERASER") is by how much the log-probability of a target word falls when the
source words with the highest scores are taken away: much, where they are those that count. Sufficiency is by how much
it falls when only these are kept: little. How a word is taken away is the operator's: see `perturbations.py`.

`hf_attncal.metrics.faithfulness` averages over pairs, with intervals.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hf_attncal.inference.reading import batches_of_pairs, check_some_words
from hf_attncal.metrics.faithfulness import (
    CIRCULAR,
    HEADLINE,
    Faithfulness,
    MeasuredFaithfulness,
    Verdict,
    faithfulness,
    metric_of,
    operator_agreement,
)

from .attribution import CONTROLS
from .perturbations import OPERATORS, Change, Perturber, WordFrequencies

CUTS = (1, 0.2, 0.5)
Scores = Sequence[ArrayLike | None]


@dataclass(frozen=True)
class PairFalls:
    """How much log-probabilities fall in one pair, by method.

    Args:
        index: its place among all pairs.
        falls: for each name of scores (operators, measures, target words), by how much the log-probability of a target
            word falls, in nats; negative where it rises.
    """

    index: int
    falls: dict[str, np.ndarray]


class WordEffects(NamedTuple):
    """How much log-probabilities fall in one pair without single source words.

    Args:
        index: its place among all pairs.
        effects: (operators, target words, source words), by how much the log-probability of a target word falls when
            this source word alone is taken away, in nats.
    """

    index: int
    effects: np.ndarray


def measures(cuts: Sequence[float] = CUTS) -> tuple[str, ...]:
    """Return the names of the measures of `faithfulness_falls`, in their order.

    `comprehensiveness@1`, `comprehensiveness@0.2` and so on, one for each of `cuts`, and `comprehensiveness`, their
    mean (the area over the cuts); the same of `sufficiency`.
    """
    names = "comprehensiveness", "sufficiency"
    return tuple(chain.from_iterable([*(f"{name}@{cut}" for cut in cuts), name] for name in names))


def faithfulness_falls(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    scores: Mapping[str, Scores],
    *,
    cuts: Sequence[float] = CUTS,
    draws: int = 3,
    **perturbing,
) -> Iterator[PairFalls]:
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
        cuts: how many source words are the best: a whole number, or a share above 0 and at most 1, rounded up.
        draws: number of draws of other words with `replace`; results are means.
        **perturbing: `operators` (see `perturbations.py`), `frequencies` (how often each word is seen, for `replace`;
            by default in `sources`), `seed` (of draws, which depend on a pair alone), `batch_size` (most sources at
            once) and `source_prefix` (text in front of every source).

    Yields:
        The falls of each pair, (operators, measures, target words) in the order of `operators` and of `measures`; the
        longest pairs first.

    Raises:
        ValueError: no pair of words, no scores, or scores of another number than the pairs, of another shape than
            their words, or not finite; no cut or one that is 0 or below or no whole number above 1; `draws` below 1;
            and what `Perturber` and `batches_of_pairs` refuse.
    """
    _check_scores(scores, sources, targets)
    if not cuts:
        raise ValueError("`cuts` must have at least one cut, got none.")
    for cut in cuts:
        is_number = isinstance(cut, int) and not isinstance(cut, bool) and cut >= 1
        is_share = isinstance(cut, float) and 0 < cut <= 1
        if not is_number and not is_share:
            raise ValueError(f"`cuts` must be whole numbers from 1, or shares above 0 and at most 1, got {cut!r}.")
    if len({str(cut) for cut in cuts}) < len(cuts):
        raise ValueError(f"`cuts` must differ, got {tuple(cuts)}.")
    prepared = _prepared(model, tokenizer, sources, targets, draws, **perturbing)
    return _falls(*prepared, sources, scores, cuts, draws)


def word_effects(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, draws: int = 3, **perturbing
) -> Iterator[WordEffects]:
    """Measure what each source word alone does to each target word under each operator.

    The rankings of source words that operators give so are compared by `metrics.faithfulness.operator_agreement`.

    Args and errors are those of `faithfulness_falls`.

    Yields:
        The effects of each pair, the longest pairs first.
    """
    check_some_words(sources, targets)
    return _effects(*_prepared(model, tokenizer, sources, targets, draws, **perturbing), sources, draws)


# ---- sets of words ----


def best_words(scores: np.ndarray, cut: float) -> np.ndarray:
    """Mark the best words of each row of scores (..., source words), by a cut of `faithfulness_falls`."""
    count = min(cut, scores.shape[-1]) if isinstance(cut, int) else ceil(round(cut * scores.shape[-1], 9))
    ranks = np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1, kind="stable")
    return ranks < count


# ---- passes ----


def _falls(
    perturber: Perturber, batches, sources: Sequence[str], scores: Mapping[str, Scores], cuts, draws: int
) -> Iterator[PairFalls]:
    """Yield the falls of each pair; arguments are those of `faithfulness_falls`."""
    for pairs, _ in batches:
        wanted = []  # for each pair: name -> changes by operator, measure (without the areas), draw and target word
        for pair in pairs:
            changes = {}
            for name, matrices in scores.items():
                matrix = np.asarray(matrices[pair.index], dtype=np.float64)
                best = [best_words(matrix, cut) for cut in cuts]
                kept = [*(~words for words in best), *best]
                changes[name] = [
                    [_changes(operator, words, draws) for words in kept] for operator in perturber.operators
                ]
            wanted.append(changes)
        asked = []  # for each pair: change -> target words
        for changes in wanted:
            asked.append({})
            by_draw = chain.from_iterable(chain.from_iterable(chain.from_iterable(changes.values())))
            for word, change in chain.from_iterable(map(enumerate, by_draw)):
                asked[-1].setdefault(change, set()).add(word)
        results = perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], asked)
        for pair, changes, (whole, changed) in zip(pairs, wanted, results, strict=True):
            falls = {}
            for name, by_operator in changes.items():
                after = [[_mean_of_own_words(changed, rows) for rows in by_measure] for by_measure in by_operator]
                halves = np.split(whole - np.array(after), 2, axis=1)
                parts = [part for half in halves for part in (half, half.mean(axis=1, keepdims=True))]
                falls[name] = np.concatenate(parts, axis=1)
            yield PairFalls(pair.index, falls)


def _mean_of_own_words(changed: Mapping[Change, np.ndarray], changes: list[list[Change]]) -> np.ndarray:
    """Average over draws what changes (draws, target words) do, each to its own target word: (target words,)."""
    return np.mean([[changed[change][word] for word, change in enumerate(rows)] for rows in changes], axis=0)


def _changes(operator: str, kept: np.ndarray, draws: int) -> list[list[Change]]:
    """Return a change for each draw and row of `kept`, (rows, source words)."""
    return [
        [Change(operator, draw, row.tobytes()) for row in kept]
        for draw in range(draws if operator == "replace" else 1)
    ]


def _effects(perturber: Perturber, batches, sources: Sequence[str], draws: int) -> Iterator[WordEffects]:
    """Yield the effects of each pair; arguments are those of `word_effects`."""
    for pairs, _ in batches:
        kept = [~np.eye(pair.source.words, dtype=bool) for pair in pairs]
        wanted = [[_changes(operator, words, draws) for operator in perturber.operators] for words in kept]
        asked = [
            dict.fromkeys(chain.from_iterable(chain.from_iterable(changes)), range(pair.target.words))
            for pair, changes in zip(pairs, wanted, strict=True)
        ]
        results = perturber.log_probabilities(pairs, [sources[pair.index] for pair in pairs], asked)
        for pair, changes, (whole, changed) in zip(pairs, wanted, results, strict=True):
            # (draws, source words, target words) for each operator
            after = [np.array([[changed[change] for change in rows] for rows in by_draw]) for by_draw in changes]
            yield WordEffects(pair.index, whole[:, None] - np.stack([of.mean(axis=0).T for of in after]))


# ---- checks ----


def _prepared(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    draws: int,
    operators: Sequence[str] = OPERATORS,
    frequencies: Mapping[str, int] | None = None,
    seed: int = 0,
    **batching,
) -> tuple[Perturber, Iterator]:
    """Return a perturber, and the batches of pairs for it."""
    if draws < 1:
        raise ValueError(f"`draws` must be >= 1, got {draws}.")
    table = None
    if "replace" in operators:
        table = WordFrequencies.of(sources) if frequencies is None else WordFrequencies(frequencies)
    perturber = Perturber(model, tokenizer, tuple(operators), table, seed, **batching)
    return perturber, batches_of_pairs(model, tokenizer, sources, targets, **batching)


def _check_scores(scores: Mapping[str, Scores], sources: Sequence[str], targets: Sequence[str]) -> None:
    check_some_words(sources, targets)
    if not scores:
        raise ValueError("`scores` must have at least one method, got none.")
    for name, of in scores.items():
        if len(of) != len(sources):
            raise ValueError(f"`scores` of {name!r} must have {len(sources)} pairs, got {len(of)}.")
        for index, (source, target, matrix) in enumerate(zip(sources, targets, of, strict=False)):
            words = len(target.split()), len(source.split())
            if not all(words):
                continue
            shape = None if matrix is None else np.shape(matrix)
            place = f"`scores` of {name!r} for pair {index} (counted from 0)"
            if shape != words:
                raise ValueError(f"{place} must be (target words, source words), {words}, got {shape}.")
            if not np.isfinite(np.asarray(matrix, dtype=np.float64)).all():
                raise ValueError(f"{place} must be finite numbers, got NaN or infinity.")


# It takes words away one by one, which is nearly what is measured: what it comes to is what can be reached.
YARDSTICK = "occlusion"
AREAS = ("comprehensiveness", "sufficiency")  # the measures that are looked at first


@dataclass(frozen=True)
class JudgedFaithfulness:
    """The measured faithfulness of methods to a model.

    Args:
        found: means, intervals and verdicts, the pairs in their order.
        agreement: two operators -> Kendall's tau between their rankings of source words; none of a single operator.
    """

    found: Faithfulness
    agreement: dict[tuple[str, str], MeasuredFaithfulness]

    @property
    def headline(self) -> str:
        """Return the operator that is looked at first."""
        return HEADLINE if HEADLINE in self.found.operators else self.found.operators[0]

    def ranking(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods by a measure under the headline operator, the best first."""
        operator, without = self.headline, replace(self.found, bootstrap=0)  # the order needs no intervals
        sign = 1 if metric_of(measure).lower_is_better else -1
        return sorted(without.sums, key=lambda name: sign * without.score(name, operator, measure).value)

    def controls(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that never look at the model, the strongest first, as in `ranking`."""
        return [name for name in self.ranking(measure) if name.partition("@")[0] in CONTROLS]

    def verdicts(self, method: str, measure: str = "comprehensiveness") -> dict[str, Verdict]:
        """Return the verdict on a method against each other one. Errors are those of `Faithfulness.verdict`."""
        return {other: self.found.verdict(method, other, measure) for other in self.found.sums if other != method}

    def unbeaten(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that no other one is better than by a verdict: among them is the one to read.

        One without whose words the text becomes no less likely is never among them.
        """
        beaten = set()
        for first, second in combinations(self.found.sums, 2):
            better = self.found.verdict(first, second, measure).better
            if better is not None:
                beaten.add(second if better == first else first)
        return [name for name in self.ranking(measure) if name not in beaten and self.found.names_words(name)]

    def against_best(
        self, method: str, measure: str = "comprehensiveness", without: Collection[str] = (YARDSTICK,)
    ) -> tuple[str, Verdict] | None:
        """Compare a method with the best of all others.

        The best is found on the pairs with an even number and compared on those with an odd one, so that it gains
        nothing by being chosen.

        Args:
            method: one of those that were judged.
            measure: see `analysis.faithfulness.measures`.
            without: methods that are not meant.

        Returns:
            Name and verdict; None without another method, a bootstrap, or two pairs.
        """
        pairs = len(self.found.words)
        others = [name for name in self.found.sums if name != method and name not in without]
        if not others or pairs < 2 or not self.found.bootstrap:
            return None
        even, odd = (
            replace(
                self.found,
                sums={name: falls[start::2] for name, falls in self.found.sums.items()},
                words=self.found.words[start::2],
            )
            for start in (0, 1)
        )
        best = next(name for name in replace(self, found=even).ranking(measure) if name in others)
        return best, odd.verdict(method, best, measure)

    def to_dict(self, method: str | None = None) -> dict[str, Any]:
        """Return everything as plain data, for JSON.

        Args:
            method: method to compare with the others; None to compare none.
        """
        found = self.found
        told: dict[str, Any] = {
            "signature": found.signature,
            "methods": found.table(),
            "unbeaten": {measure: self.unbeaten(measure) for measure in AREAS} if found.bootstrap else {},
            "operator_agreement": {"+".join(both): asdict(tau) for both, tau in self.agreement.items()},
        }
        if method is not None and found.bootstrap:
            told["verdicts"] = {
                measure: {other: asdict(one) for other, one in self.verdicts(method, measure).items()}
                for measure in found.measures
            }
            told["against_best"] = {
                measure: best and {"method": best[0], **asdict(best[1])}
                for measure in found.measures
                for best in [self.against_best(method, measure)]
            }
        return told


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
    cuts: Sequence[float] = CUTS,
    seed: int = 0,
    **reading,
) -> JudgedFaithfulness:
    """Measure how faithful scores are, and whether the operators agree.

    Args:
        model, tokenizer: an encoder-decoder, on the device to use.
        sources, targets: sentences.
        scores: name -> for each pair (target words, source words), as `word_scores` gives them. A method that is
            circular under an operator is known by its name, also before an `@` (`contribution@layer1`).
        kind: what the targets are, `reference` or `output` (of the model).
        bootstrap: resamples of the pairs for each interval; 0 for none, and then no verdicts.
        operators, cuts: see `faithfulness_falls`.
        seed: of draws and resamples.
        **reading: `draws`, `frequencies`, `batch_size` and `source_prefix` of `faithfulness_falls`.

    Raises:
        ValueError: see `faithfulness_falls`, `word_effects` and `metrics.faithfulness.faithfulness`.
    """
    reading |= {"operators": operators, "seed": seed}
    texts = (model, tokenizer, sources, targets)
    resampled = {"bootstrap": bootstrap, "seed": seed}
    falls = sorted(faithfulness_falls(*texts, scores, cuts=cuts, **reading), key=lambda by_pair: by_pair.index)
    circular = {name: CIRCULAR.get(name.partition("@")[0], ()) for name in scores}
    found = faithfulness(
        (by_pair.falls for by_pair in falls),
        operators,
        measures(cuts),
        targets=kind,
        circular=circular,
        **resampled,
    )
    agreement = {}
    if len(operators) > 1:
        effects = (one.effects for one in word_effects(*texts, **reading))
        agreement = operator_agreement(effects, operators, **resampled)
    return JudgedFaithfulness(found, agreement)
