"""Fit the parts of the check's model: regressions, networks, lengths, rules, facts, and words of negation."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch

from hf_attncal.data.words import NEGATIONS

from .evidence import Both, LinkEvidence, both
from .facts import (
    FACT_EDGES,
    FACT_GROUPS,
    IN_WORDS,
    MOST_EVIDENCE,
    NO_DENIALS,
    SHORT,
    BothDenials,
    Denials,
    find_facts,
    kept_names,
)
from .features import Vocabulary
from .logistic import MOST_DEVIATIONS, Network, sigmoid
from .number_values import Languages, language_of
from .rules import RULE_NAMES, check_rules

MOST_WORDS = 40_000  # most frequent words of a side that are stored
# Shares of its lines with a negation only on the other side, above which a word denies, and is a negation.
_DENIES_FROM, _IS_NEGATION_FROM = 0.3, 0.6
_DENIED_OFTEN = 5  # lines
# A word is kept if it is also on the other side in more than this share of its lines. The first share is used with
# which at most `_MAY_LACK` of the clean lines lack a kept word.
_KEPT_FROM, _MAY_LACK = (0.85, 0.9, 0.95, 0.98), 0.002
_NONE_KNOWN = 0.002  # share of lines with a known negation below which the negations of the language are unknown
_PRIOR = 5  # pseudo-counts of a cell, distributed as over all groups
_FEWEST = 5  # planted words of a group and a side, below which it has no evidence


def fit_logistic(values: np.ndarray, truths: np.ndarray, weights: np.ndarray, penalty: float = 0.01) -> np.ndarray:
    """Fit a logistic regression by Newton's method; return its bias and weights, (1 + features,).

    The objective is the weighted mean cross-entropy plus `penalty / 2` times the squared weights, without the bias.

    Args:
        values: Scaled features, (lines, features).
        truths: Labels, 0 or 1, (lines,).
        weights: Weights of the lines, (lines,).
    """
    design = np.column_stack([np.ones(len(values)), values])
    weights = weights / weights.sum()
    ridge = np.array([1e-9] + [penalty] * values.shape[1])
    solution = np.zeros(design.shape[1])
    for _ in range(100):
        expected = sigmoid(design @ solution)
        gradient = design.T @ (weights * (truths - expected)) - ridge * solution
        curvature = (design * (weights * expected * (1 - expected))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        solution += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return solution


def fit_network(
    features: np.ndarray,
    truths: np.ndarray,
    weights: np.ndarray | None = None,
    hidden: Sequence[int] = (32, 16),
    steps: int = 3000,
    decay: float = 1e-2,
    seed: int = 0,
) -> Network:
    """Fit a network by cross-entropy.

    Args:
        features: Features, (rows, F).
        truths: Labels, 0 or 1, (rows,).
        weights: Weights of the rows. Default: None, both labels have the same total weight.
        hidden: Sizes of the hidden layers. Default: (32, 16).
        steps: Number of AdamW steps of 1,024 rows each. Default: 3000.
        decay: Weight decay. Default: 0.01.
        seed: Seed of the initial weights and of the batches. Default: 0.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = np.stack([features.mean(axis=0), features.std(axis=0) + 1e-3])
    values = torch.from_numpy(np.clip((features - scale[0]) / scale[1], -MOST_DEVIATIONS, MOST_DEVIATIONS)).float()
    truth = torch.from_numpy(np.asarray(truths)).float()
    if weights is None:
        weights = np.where(truths > 0, 0.5 / max(truths.mean(), 1e-9), 0.5 / max(1 - truths.mean(), 1e-9))
    weight = torch.from_numpy(weights / weights.mean()).float()
    sizes = [features.shape[1], *hidden, 1]
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers.append((torch.rand(inputs + 1, outputs, generator=generator) * 2 - 1) / inputs**0.5)
        layers[-1].requires_grad_()
    optimizer = torch.optim.AdamW(layers, lr=3e-3, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(values), (1024,), generator=generator)
        outputs_of_batch = values[some]
        for number, layer in enumerate(layers):
            outputs_of_batch = (outputs_of_batch if number == 0 else outputs_of_batch.tanh()) @ layer[:-1] + layer[-1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs_of_batch[:, 0], truth[some], weight=weight[some]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return Network(scale, tuple(layer.detach().double().numpy() for layer in layers))


def mean_network(networks: Sequence[Network]) -> Network:
    """Merge two-layer networks over the same features into one that returns their mean."""
    inner = np.concatenate([network.layers[0] for network in networks], axis=1)
    outer = np.concatenate([network.layers[1][:-1] for network in networks]) / len(networks)
    bias = np.mean([network.layers[1][-1] for network in networks], axis=0)
    return Network(networks[0].scale, (inner, np.concatenate([outer, bias[None]])))


def fit_lengths(pairs: Sequence[tuple[str, str]]) -> tuple[float, float, float]:
    """Fit the median log-ratio of target to source characters, and its variance `fixed + falling / characters`.

    The variance is fitted by least squares; squared deviations are clipped to 1.
    """
    ratios = np.array([math.log((len(target) + 1) / (len(source) + 1)) for source, target in pairs])
    inverse = np.array([1 / (len(source) + 1) for source, _ in pairs])
    squares = np.minimum((ratios - np.median(ratios)) ** 2, 1)
    spread = float(inverse.var())
    falling = float(np.cov(inverse, squares, bias=True)[0, 1]) / spread if spread else 0.0
    falling = max(0.0, falling)
    fixed = float(squares.mean() - falling * inverse.mean())
    return float(np.median(ratios)), max(fixed, 1e-3), falling


def fit_rules(
    lines: Iterable[LinkEvidence], languages: Languages, denials: BothDenials = NO_DENIALS
) -> dict[str, float]:
    """Return the share of clean lines that break each rule, with add-one smoothing."""
    counts, total = dict.fromkeys(RULE_NAMES, 1), 1
    for line in lines:
        total += 1
        checked = check_rules(line.source, line.target, languages, denials)
        for name in filter(checked.get, RULE_NAMES):
            counts[name] += 1
    return {name: count / total for name, count in counts.items()}


class DenialCounts:
    """Counts over clean pairs to find words that deny, and words that translations keep.

    A word denies if its lines have no known negation, but the other side often has one. A word is kept if it is nearly
    always on both sides.
    """

    def __init__(self) -> None:
        self._lines, self._denied = [0, 0], [0, 0]  # lines without a known negation; those with one on the other side
        self._of_words: tuple[Counter, Counter] = (Counter(), Counter())
        self._of_denied: tuple[Counter, Counter] = (Counter(), Counter())
        self._known = [0, 0]
        self._shared: Counter = Counter()

    def passing(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Iterator:
        """Yield all pairs unchanged, and count their words."""
        for pair in pairs:
            sides = [{word.lower() for word in words} for words in pair]
            self._shared.update(word for word in sides[0] & sides[1] if len(word) > 2 and word.isalpha())
            denies = [not NEGATIONS.isdisjoint(words) for words in sides]
            for side, words in enumerate(sides):
                self._known[side] += denies[side]
                if not denies[side]:
                    self._lines[side] += 1
                    self._of_words[side].update(words)
                    if denies[1 - side]:
                        self._denied[side] += 1
                        self._of_denied[side].update(words)
            yield pair

    def found(self) -> BothDenials:
        """Return the words of negation of both sides, without kept words."""
        return both(map(self._found, (0, 1)))

    def keeping(
        self, denials: BothDenials, counts: Sequence[Mapping[str, int]], lines: Sequence[LinkEvidence]
    ) -> BothDenials:
        """Return denials with kept words: as many as possible while clean lines hardly lack any.

        Args:
            denials: Words of negation of both sides.
            counts: Count of each word, per side.
            lines: Clean lines.
        """
        for least in _KEPT_FROM:
            kept_words = (
                frozenset(w for w, often in self._shared.items() if often > least * (of_side.get(w, math.inf) + 1))
                for of_side in counts
            )
            extended = both(one._replace(kept=words) for one, words in zip(denials, kept_words, strict=True))
            lacking = [not all(has for *_, has in kept_names(line.source, line.target, extended)) for line in lines]
            if sum(lacking) <= _MAY_LACK * len(lines):
                return extended
        return denials

    def _found(self, side: int) -> Denials:
        usual = self._denied[side] / max(1, self._lines[side])
        least = max(_DENIES_FROM, min(_IS_NEGATION_FROM, 3 * usual))
        shares = {
            word: count / self._of_words[side][word]
            for word, count in self._of_denied[side].items()
            if count >= _DENIED_OFTEN and count >= least * self._of_words[side][word]
        }
        none_known = self._known[side] < _NONE_KNOWN * sum(self._lines)
        negations = [word for word, share in shares.items() if none_known and share >= _IS_NEGATION_FROM]
        return Denials(frozenset(shares), frozenset(negations))


def fit_fact_table(
    good: Sequence[LinkEvidence],
    bad: Sequence[tuple[LinkEvidence, str, Both[Sequence[int]]]],
    field: str,
    languages: Languages = (None, None),
    denials: BothDenials = NO_DENIALS,
) -> np.ndarray:
    """Fit the `FactModel.table`.

    Numbers are compared only by value, so their bins have the same evidence.

    Args:
        good: Evidence of clean pairs.
        bad: Evidence of pairs with planted errors, their kind, and the indices of the changed words on each side.
        field: Field of `LinkEvidence`, see `FactModel`.
        languages, denials: See `find_facts`.
    """
    edges, kinds = FACT_EDGES[field], list(FACT_GROUPS.values())
    counts = np.zeros((2, 2, len(kinds), 3, len(edges) + 1))  # clean or changed, side, group, status, bin
    nowhere: Both[Sequence[int]] = (), ()
    lines = [(0, line, "", nowhere) for line in good] + [(1, *line) for line in bad]
    for changed, line, kind, places in lines:
        for side, facts in enumerate(find_facts(line.source, line.target, languages, denials)):
            values = getattr(line, field)[side]
            for place, group, how in facts:
                if not changed or (kind in kinds[group] and place in places[side]):
                    counts[changed, side, group, how, bisect_right(edges, values[place])] += 1
    logs = []
    for changed, of_all in enumerate(counts):
        bins = of_all.sum(axis=(0, 1)) + 0.5
        if changed:
            of_all[:, IN_WORDS] = of_all[:, SHORT]  # only digits are planted
        bins /= bins.sum(axis=-1, keepdims=True)
        of_has = of_all.sum(axis=-1)
        has = (of_has + 0.5) / (of_has.sum(axis=-1, keepdims=True) + 1.5)
        inside = (of_all + _PRIOR * bins) / (of_has[..., None] + _PRIOR)
        inside[:, : IN_WORDS + 1] = 1.0
        logs.append(np.log(has)[..., None] + np.log(inside))
    table = logs[1] - logs[0]
    table[counts[1].sum(axis=(-1, -2)) < _FEWEST] = 0.0
    return np.clip(table, -MOST_EVIDENCE, MOST_EVIDENCE)


# ---- words ----


def count_words(pairs: Iterable[tuple[Sequence[str], Sequence[str]]], most: int = MOST_WORDS) -> Vocabulary:
    """Count the words of clean pairs, and infer the languages of both sides."""
    counters: tuple[Counter, Counter] = (Counter(), Counter())
    for pair in pairs:
        for counter, side in zip(counters, pair, strict=True):
            counter.update(word.lower() for word in side)
    frequent = both(dict(counter.most_common(most)) for counter in counters)
    return Vocabulary(frequent, both(counter.total() for counter in counters), both(map(language_of, frequent)))


def without_pairs(vocabulary: Vocabulary, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Vocabulary:
    """Return a vocabulary without some of its pairs."""
    counts = both(map(dict, vocabulary.counts))
    for pair in pairs:
        for side, words in zip(counts, pair, strict=True):
            for word in map(str.lower, words):
                left = side.pop(word, 0) - 1
                if left > 0:
                    side[word] = left
    return Vocabulary(counts, vocabulary.totals, vocabulary.languages)
