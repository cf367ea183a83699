"""Model of `attncal check`: good pairs as they look in clean text, and in text with planted errors.

A word is looked at in its class: how frequent it is, a number, a negation, punctuation, and, where it is rare or a
number, whether the other side has its like by form. A small network makes of this, of its links and of those of the
words beside it the evidence that it has no partner. Words without a partner stand together, so that a chain of two
states (a word has a partner, or has none) turns this evidence into a probability of each word. What is known of a line
becomes the probability of each cause by logistic regression, and the one verdict by another network. All is learned
from clean pairs and planted errors, without annotated translations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.layouts import CHECK_FILE

from .evidence import Both, LinkEvidence, both
from .facts import (
    FACT_GROUPS,
    LACKS,
    NEGATION,
    NO_DENIALS,
    NO_FACTS,
    BothDenials,
    Denials,
    FactEvidence,
    FactModel,
    changed_facts,
    fact_features,
    find_facts,
)
from .features import FEATURES, Sides, Vocabulary, chains, features_of_words, line_features, seen
from .logistic import UNTRAINED, Network, log_odds, mean_odds, scaled_features, sigmoid
from .rules import broken_rules, wrong_by_rules

_ONE_FACT = -math.log(49)  # log-odds that a fact is changed: one in fifty
_HARDLY = 0.01  # probability
_FEW, _LEAST_KNOWN = 4, 0.2  # words that tell whether a language is known, and the share of them that must be
_PRIOR_ODDS = math.log(19)  # of each cause: one line in twenty
_CERTAIN = 2.0  # log-odds by rules
_DIGITS = 6  # of log-odds: sums differ in the last ones by how many lines are looked at together
_NO_DENIAL = -8.0  # log-odds, where no negation lacks its like
CLEAN_SHARES = (*(part / 100 for part in range(1, 100)), 0.995, 0.999)


class Cause(NamedTuple):
    """One thing that can be wrong with a line.

    Args:
        kinds: planted errors (`translation_errors.KINDS`) that it is learned from.
        others: planted errors that are something else, learned beside clean pairs as what it is not.
        features: what it looks at.
    """

    kinds: tuple[str, ...]
    others: tuple[str, ...]
    features: tuple[str, ...]


_PARTNERS = tuple(f"{side} {name}" for name in ("evidence", "unpartnered", "support") for side in ("source", "target"))
_MIDDLE = tuple(f"{side} {name}" for name in ("middle", "third") for side in ("source", "target"))
_RUNS = tuple(
    f"{side} {name}"
    for name in ("run", "mass", "strict run", "in 4 words", "in a row", "third", "weight")
    for side in ("source", "target")
)
CAUSES = {
    "omission": Cause(
        ("omission", "truncation"),
        ("unrelated", "repetition"),
        (*_PARTNERS, *_RUNS, "shorter", "longer", "length", "short"),
    ),
    "addition": Cause(("replacement", "unrelated"), (), (*_PARTNERS, *_MIDDLE, "length", "short")),
    "added": Cause(
        ("insertion",),
        ("omission", "repetition"),
        (*_PARTNERS, *_RUNS, "shorter", "longer", "length", "short"),
    ),
    "unrelated": Cause(("unrelated",), (), (*_PARTNERS, "source known", "target known", *_MIDDLE)),
    "repeats": Cause(("repetition",), (), ("repeated", "repeated much", "repeated near", "longer")),
    "untranslated": Cause(("untranslated", "swapped"), (), ("source language", "target language")),
}
_ODDS = (*CAUSES, "changed")
_FACTS = tuple(f"{side} {group}" for side in ("source", "target") for group in FACT_GROUPS)
VERDICT_FEATURES = (*_ODDS, "largest", "any", *FEATURES, *_FACTS, "negation lost", "negation added", "broken rules")
# Those of no cause are what else the verdict learns from.
PLANTED = tuple(
    dict.fromkeys(
        [*(kind for cause in CAUSES.values() for kind in cause.kinds + cause.others), "word", "doubled word"]
    )
)


# Why a word may be wrong: it has no partner, it is a fact of a group, ...
REASONS = ("no partner", *FACT_GROUPS, "said again", "not translated")
_SAID_AGAIN, _NOT_TRANSLATED = len(REASONS) - 2, len(REASONS) - 1


class Looked(NamedTuple):
    """What a model sees of lines.

    Args:
        sides: of each line. against: of each side, of each line, the evidence against each word.
        words: of each line, the probability of the words of both sides to have no partner.
        features: `FEATURES`, (lines, F).
    """

    sides: Sequence[Sides]
    against: Both[list[np.ndarray]]
    words: list[Both[np.ndarray]]
    features: np.ndarray


class Judged(NamedTuple):
    """What a model thinks of lines.

    Args:
        causes: probability of each cause, and that facts or forms were "changed", (lines,).
        words: of each line, the probability of the words of both sides to be wrong; see `CheckModel.wrong_words`.
        reasons: of each line, of each word of both sides which of `REASONS` is the most probable.
        broken: of each line, the names of the rules that it breaks.
        changes: of each line, what was changed by name, if anything was.
        verdict_features: `VERDICT_FEATURES`, (lines, F).
    """

    causes: dict[str, np.ndarray]
    words: list[Both[np.ndarray]]
    reasons: list[Both[np.ndarray]]
    broken: list[tuple[str, ...]]
    changes: list[tuple[str, ...]]
    verdict_features: np.ndarray


Evidence = TypeVar("Evidence", bound=LinkEvidence)


@dataclass
class CheckModel(Generic[Evidence]):
    """Model of good pairs, as `learn_check` makes it.

    Args:
        vocabulary: of both sides.
        scripts: of each side, script -> share of its letters.
        networks: of each side, the evidence against words by `OF_WORDS`.
        lengths: see `fit_lengths`.
        scale: mean and standard deviation of each feature in clean pairs, (2, features).
        heads: name of a cause -> bias and weights of its features, (1 + features of the cause,).
        verdict: `wrong` by `VERDICT_FEATURES`.
        alarm: probability of `wrong` above which a line is flagged.
        learned: what from: `pairs` in all, `sample` of them, `seed`.
        facts: of numbers, negations and names.
        rules: share of clean pairs that break each rule (`rules.RULE_NAMES`).
        denials: of both sides, what else they deny with.
        clean: log-odds of `wrong` that so many clean lines do not exceed (`CLEAN_SHARES`); none of an encoder.
    """

    vocabulary: Vocabulary
    scripts: Both[dict[str, float]]
    lengths: tuple[float, float, float]
    alarm: float
    learned: dict[str, int]
    networks: Both[Network] = (UNTRAINED, UNTRAINED)
    scale: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))
    heads: dict[str, np.ndarray] = field(default_factory=dict)
    verdict: Network = UNTRAINED
    facts: FactModel = NO_FACTS
    rules: dict[str, float] = field(default_factory=dict)
    denials: BothDenials = NO_DENIALS
    clean: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def knows(self, words: Sequence[str]) -> bool:
        """Return whether a text of some length has words that clean text has on any side."""
        told = [word.lower() for word in words if word.isalpha()]
        known = sum(any(word in counts for counts in self.vocabulary.counts) for word in told)
        return len(told) < _FEW or known > _LEAST_KNOWN * len(told)

    def seen(self, evidence: Evidence) -> Sides:
        """Return the words of a pair as the model sees them."""
        return seen(self.vocabulary, evidence)

    def length_deviation(self, source: str, target: str) -> float:
        """Return by how many standard deviations a target is longer than usual for its source, from -8 to 8."""
        mean, fixed, falling = self.lengths
        longer = math.log((len(target) + 1) / (len(source) + 1)) - mean
        return max(-8.0, min(8.0, longer / math.sqrt(fixed + falling / (len(source) + 1))))

    def against(self, lines: Sequence[Evidence], sides: Sequence[Sides]) -> Both[list[np.ndarray]]:
        """Return of each side, of each line, the evidence against each word (words,)."""
        longer = self.longer(lines)
        found = []
        for side, network in enumerate(self.networks):
            ends = np.cumsum([len(line.best[side]) for line in lines])[:-1]
            values = network(features_of_words(lines, sides, longer, side)).round(_DIGITS)
            found.append(np.split(values, ends))
        return both(found)

    def longer(self, lines: Sequence[Evidence]) -> list[float]:
        """Return `length_deviation` of lines."""
        return [self.length_deviation(line.source.text, line.target.text) for line in lines]

    def look(self, lines: Sequence[Evidence], sides: Sequence[Sides] | None = None) -> Looked:
        """Return what is seen of lines with words on both sides, by their `sides` if these are known."""
        sides = sides or [self.seen(line) for line in lines]
        against = self.against(lines, sides)
        words = both(map(chains, against))
        features = line_features(lines, sides, against, words, self.longer(lines))
        return Looked(sides, against, list(zip(*words, strict=True)), features)

    def wrong_words(
        self,
        evidence: Evidence,
        foreign: np.ndarray | None,
        words: Both[np.ndarray],
        facts: Sequence[Sequence[FactEvidence]],
        untranslated: float,
        repeats: float,
    ) -> tuple[Both[np.ndarray], Both[np.ndarray]]:
        """Return the probability of each word of both sides to be left out, or made up, and the reason of each.

        It has no partner (`words`), is a changed fact (`facts`), is said again in a line that `repeats` itself, or
        stands in the language of the source: of a line that is `untranslated` with this probability, `foreign` tells
        which, a chain over the language of the target's words; None of a line that is hardly untranslated.

        Returns:
            probabilities, and places in `REASONS`, each of the source and of the target.
        """
        if not any(facts) and max(untranslated, repeats) <= _HARDLY:
            return words, both(np.zeros(len(side), dtype=int) for side in words)
        of_reasons = [np.zeros((len(REASONS), len(side))) for side in words]
        for side, found in enumerate(facts):
            of_reasons[side][0] = words[side]
            if found:
                places, groups, odds = map(np.array, zip(*found, strict=True))
                of_reasons[side][1 + groups, places] = sigmoid(_ONE_FACT + odds)
        if repeats > _HARDLY:
            of_reasons[1][_SAID_AGAIN] = repeats * evidence.said_again
        if foreign is not None:
            of_reasons[1][_NOT_TRANSLATED] = untranslated * foreign
            copied: dict[str, float] = {}
            for word, value in zip(evidence.target.words, (untranslated * foreign).tolist(), strict=True):
                copied[word.lower()] = max(value, copied.get(word.lower(), 0.0))
            of_reasons[0][_NOT_TRANSLATED] = [copied.get(word.lower(), 0.0) for word in evidence.source.words]
        probabilities = both(1 - np.prod(1 - side, axis=0) for side in of_reasons)
        return probabilities, both(side.argmax(axis=0) for side in of_reasons)

    def causes(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return the probability of each cause, (lines,), from features (lines, features)."""
        scaled = scaled_features(values, self.scale)
        return {
            name: sigmoid(weights[0] + scaled[:, columns_of(name)] @ weights[1:] - _PRIOR_ODDS)
            for name, weights in self.heads.items()
        }

    def judge(self, lines: Sequence[Evidence], looked: Looked | None = None) -> Judged:
        """Return what is thought of lines with words on both sides, by all that is known of them."""
        looked = looked or self.look(lines)
        causes = self.causes(looked.features)
        found = [find_facts(line.source, line.target, self.vocabulary.languages, self.denials) for line in lines]
        facts = [self.facts.evidence(line, of_line) for line, of_line in zip(lines, found, strict=True)]
        of_facts = np.array([fact_features(line) for line in facts])
        changed = sigmoid(self.facts.head[0] + of_facts @ self.facts.head[1:] - _PRIOR_ODDS)
        broken = [
            broken_rules(line, of_line, self.vocabulary.languages, self.denials)
            for line, of_line in zip(lines, found, strict=True)
        ]
        by_rules = np.array([wrong_by_rules(names, self.rules) for names in broken])
        causes["changed"] = 1 - (1 - changed) * (1 - by_rules)
        untranslated, repeats = causes["untranslated"].tolist(), causes["repeats"].tolist()
        some = [n for n, probability in enumerate(untranslated) if probability > _HARDLY]
        foreign = dict(zip(some, chains([looked.sides[n].odds[1] for n in some]), strict=True))
        marked = [
            self.wrong_words(line, foreign.get(n), looked.words[n], facts[n], untranslated[n], repeats[n])
            for n, line in enumerate(lines)
        ]
        odds = [log_odds(causes[name]) + _PRIOR_ODDS for name in _ODDS]
        odds.append(np.max(odds, axis=0))
        odds.append(log_odds(1 - np.prod([1 - causes[name] for name in _ODDS], axis=0)) + _PRIOR_ODDS)
        told = [changed_facts(*line) for line in zip(facts, broken, strict=True)]
        denied = np.full((len(lines), 2), _NO_DENIAL)  # the strongest evidence against a negation without its like
        for line, of_line in enumerate(found):
            for side, of_side in enumerate(of_line):
                for fact in of_side:
                    if fact.group == NEGATION and fact.found == LACKS:
                        denied[line, side] = max(denied[line, side], looked.against[side][line][fact.place])
        features = np.column_stack([
            *(np.clip(one / 2, -5, 5) for one in odds), looked.features,
            of_facts, np.minimum(denied, -_NO_DENIAL),
            np.maximum(_NO_DENIAL, log_odds(by_rules)),
        ])  # fmt: skip
        words, reasons = ([line[part] for line in marked] for part in (0, 1))
        return Judged(causes, words, reasons, broken, told, features)

    def wrong(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the probability of each line that anything is wrong, (lines,), from `Judged.verdict_features`."""
        return sigmoid(self.scores(verdict_features))

    def scores(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the log-odds of `wrong`, (lines,), which tell the most suspect lines apart.

        A line that breaks a rule which clean lines hardly ever break is as wrong as that says, whatever the rest is.
        """
        found, by_rules = self.line_odds(verdict_features).round(_DIGITS), verdict_features[:, -1]
        return np.where(by_rules > _CERTAIN, np.maximum(found, by_rules), found)

    def line_odds(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the log-odds of `wrong` but for rules, (lines,)."""
        return self.verdict(verdict_features)

    def save(self, folder: str | Path) -> Path:
        """Write the model beside the aligner in `folder`, and return the path of the file."""
        path = Path(folder) / CHECK_FILE
        values = {
            "learned": self.learned,
            "facts": self.facts.to_dict(),
            "rules": self.rules,
            "denials": [{name: sorted(words) for name, words in one._asdict().items()} for one in self.denials],
            "clean": self.clean.tolist(),
            "verdict": self.verdict.to_dict(),
            "alarm": self.alarm,
            "lengths": list(self.lengths),
            "heads": {name: weights.tolist() for name, weights in self.heads.items()},
            "scale": self.scale.tolist(),
            "networks": [network.to_dict() for network in self.networks],
            "scripts": list(self.scripts),
            "languages": list(self.vocabulary.languages),
            "totals": list(self.vocabulary.totals),
            "counts": list(self.vocabulary.counts),
        }
        write_sealed(values, path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "CheckModel":
        """Read what `save` wrote.

        Raises:
            ValueError: the file holds something else, or was learned for another aligner; the message names it.
        """
        with sealed(Path(path)) as values:
            return cls(
                Vocabulary(both(values["counts"]), both(values["totals"]), both(values["languages"])),
                both(values["scripts"]),
                tuple(values["lengths"]),
                float(values["alarm"]),
                values["learned"],
                both(map(Network.from_dict, values["networks"])),
                np.array(values["scale"], dtype=float),
                {name: np.array(values["heads"][name], dtype=float) for name in CAUSES},
                Network.from_dict(values["verdict"]),
                FactModel.from_dict(values["facts"]),
                values["rules"],
                both(Denials(**{name: frozenset(words) for name, words in one.items()}) for one in values["denials"]),
                np.array(values["clean"], dtype=float),
            )


Words = list[Both[tuple[np.ndarray, np.ndarray]]]


def judged_together(
    judged: Sequence[tuple[CheckModel, Judged]], knows: Sequence[np.ndarray], alarm: float
) -> tuple[dict[str, np.ndarray], Words, list[tuple[str, ...]]]:
    """Return what judges think together of the same lines: the means of the log-odds of those who know a line.

    Args:
        judged: what each judge thinks, with its model.
        knows: of each judge, whether it knows the languages of a line, (lines,).
        alarm: of all together: "wrong" is as far above it as above their own alarms.

    Returns:
        `Judged.causes` with "wrong" among them; of each line, of each side the probability of each word and its
        reason; and `Judged.changes` of the first who names any.
    """
    causes = [
        found.causes | {"wrong": _moved(model.wrong(found.verdict_features), model.alarm, alarm)}
        for model, found in judged
    ]
    means = {name: mean_odds([found[name] for found in causes], knows) for name in causes[0]}
    words: Words = []
    changes: list[tuple[str, ...]] = []
    for line, weights in enumerate(np.stack(knows, axis=1)):
        those = [found for (_, found), weight in zip(judged, weights, strict=True) if weight] or [judged[0][1]]
        sides = []
        for side in (0, 1):
            values = [found.words[line][side] for found in those]
            reasons = np.choose(np.argmax(values, axis=0), [found.reasons[line][side] for found in those])
            sides.append((mean_odds(values), reasons))
        words.append(both(sides))
        changes.append(next(filter(None, (found.changes[line] for found in those)), ()))
    return means, words, changes


def _moved(probability: np.ndarray, alarm: float, other: float) -> np.ndarray:
    """Return the probabilities that are as far from another alarm, in log-odds."""
    if alarm == other:
        return probability
    return sigmoid(log_odds(probability) + log_odds(np.array(other)) - log_odds(np.array(alarm)))


def columns_of(cause: str) -> list[int]:
    return [FEATURES.index(name) for name in CAUSES[cause].features]


def fit_lengths(pairs: Sequence[tuple[str, str]]) -> tuple[float, float, float]:
    """Fit the median log-ratio of target to source characters, and its variance `fixed + falling / characters`.

    The variance is fitted by least squares; a ratio beyond e counts as e.
    """
    ratios = np.array([math.log((len(target) + 1) / (len(source) + 1)) for source, target in pairs])
    inverse = np.array([1 / (len(source) + 1) for source, _ in pairs])
    squares = np.minimum((ratios - np.median(ratios)) ** 2, 1)
    spread = float(inverse.var())
    falling = float(np.cov(inverse, squares, bias=True)[0, 1]) / spread if spread else 0.0
    falling = max(0.0, falling)
    fixed = float(squares.mean() - falling * inverse.mean())
    return float(np.median(ratios)), max(fixed, 1e-3), falling
