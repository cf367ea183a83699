"""Model of `attncal check`, learned from clean pairs and planted errors, without annotated translations.

Each word has a class: its frequency band, number, negation or punctuation, and for rare words and numbers whether a
similar form is on the other side. A small network turns the class, the links and the neighbours of a word into
evidence that it has no partner. Words without a partner are adjacent, so a hidden Markov chain of two states (with and
without a partner) turns the evidence into probabilities. Logistic regressions turn the features of a line into the
probability of each cause, and another network into the verdict.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hf_attncal.data.segmentation import Segments
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
from .rules import RULE_NAMES, Break, check_rules, wrong_by_rules
from .tables import TABLES

_ONE_FACT = -math.log(49)  # prior log-odds that a fact is changed: one in fifty
_NEGLIGIBLE = 0.01  # probability below which a cause is ignored
_MIN_WORDS = 4  # words of a line below which its language is not tested
_MIN_KNOWN_SHARE = 0.2  # share of its words that must be in the vocabulary
_PRIOR_ODDS = math.log(19)  # prior of each cause: one line in twenty
_DECISIVE_RULES = 2.0  # log-odds of broken rules above which they override the network
_DIGITS = 6  # later digits of log-odds depend on the batch size
_NO_DENIAL = -8.0  # log-odds of a line in which every negation has a counterpart


class Cause(NamedTuple):
    """Possible cause of a wrong line.

    Args:
        kinds: Planted errors (`translation_errors.KINDS`) that are its positive examples.
        others: Planted errors that are negative examples, with the clean pairs.
        features: Names of its features.
    """

    kinds: tuple[str, ...]
    others: tuple[str, ...]
    features: tuple[str, ...]


CAUSES = {
    name: Cause(*(tuple(of_cause[part]) for part in Cause._fields)) for name, of_cause in TABLES["causes"].items()
}
_ODDS = (*CAUSES, "changed")
_FACTS = tuple(f"{side} {group}" for side in ("source", "target") for group in FACT_GROUPS)
VERDICT_FEATURES = (*_ODDS, "largest", "any", *FEATURES, *_FACTS, "negation lost", "negation added", "broken rules")
# Kinds without a cause are only used for the verdict.
_KINDS_OF_CAUSES = [kind for cause in CAUSES.values() for kind in cause.kinds + cause.others]
PLANTED = tuple(dict.fromkeys([*_KINDS_OF_CAUSES, "word", "doubled word"]))

# Reasons why a word may be wrong.
REASONS = ("no partner", *FACT_GROUPS, "said again", "not translated")
_REPEATED_WORD, _NOT_TRANSLATED = len(REASONS) - 2, len(REASONS) - 1


class ModelInputs(NamedTuple):
    """Inputs of the model for lines.

    Args:
        sides: Words of each line.
        against: Evidence against each word, by side and line.
        words: Probability of each word to have no partner, by line and side.
        features: `FEATURES`, (lines, F).
    """

    sides: Sequence[Sides]
    against: Both[list[np.ndarray]]
    words: list[Both[np.ndarray]]
    features: np.ndarray


class Judgement(NamedTuple):
    """Judgement of lines.

    Args:
        causes: Probability of each cause, of "facts" (changed by the learned evidence), and of "changed" (by these or
            a rule), (lines,).
        words: Probability of each word to be wrong, by line and side; see `CheckModel.wrong_words`.
        reasons: Index in `REASONS` of the most probable reason of each word, by line and side.
        rules: Result of `check_rules` for each line.
        changes: Names of the changed facts of each line.
        verdict_features: `VERDICT_FEATURES`, (lines, F).
        likeness_features: The same as if no line broke a rule.
    """

    causes: dict[str, np.ndarray]
    words: list[Both[np.ndarray]]
    reasons: list[Both[np.ndarray]]
    rules: list[dict[str, Break | None]]
    changes: list[tuple[str, ...]]
    verdict_features: np.ndarray
    likeness_features: np.ndarray


Evidence = TypeVar("Evidence", bound=LinkEvidence)


@dataclass
class CheckModel(Generic[Evidence]):
    """Model of good pairs, made by `learn_check`.

    Args:
        vocabulary: Word frequencies of both sides.
        scripts: Share of the letters in each script, per side.
        lengths: Parameters of `fitting.fit_lengths`.
        alarm: Probability of `wrong` above which a line is flagged.
        learned: Training data: number of `pairs`, size of the `sample`, `seed`.
        networks: Network of each side, from `features_of_words` to the evidence against a word.
        scale: Mean and standard deviation of each feature in clean pairs, (2, features).
        heads: Bias and weights of each cause, (1 + features of the cause,).
        verdict: Network from `VERDICT_FEATURES` to `wrong`.
        facts: Model of numbers, negations and names.
        rules: Share of clean pairs that break each rule (`rules.RULE_NAMES`).
        denials: Further words of negation on both sides.
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

    def covers(self, words: Sequence[str]) -> bool:
        """Return whether enough words of a text are in the vocabulary; True for a short text."""
        lower = [word.lower() for word in words if word.isalpha()]
        in_vocabulary = sum(any(word in counts for counts in self.vocabulary.counts) for word in lower)
        return len(lower) < _MIN_WORDS or in_vocabulary > _MIN_KNOWN_SHARE * len(lower)

    def seen(self, evidence: Evidence) -> Sides:
        """Return the classes, surprisal and language of the words of a pair."""
        return seen(self.vocabulary, evidence)

    def length_deviation(self, source: str, target: str) -> float:
        """Return the length of a target relative to its source, in standard deviations from -8 to 8."""
        mean, fixed, falling = self.lengths
        longer = math.log((len(target) + 1) / (len(source) + 1)) - mean
        return max(-8.0, min(8.0, longer / math.sqrt(fixed + falling / (len(source) + 1))))

    def against(self, lines: Sequence[Evidence], sides: Sequence[Sides]) -> Both[list[np.ndarray]]:
        """Return the evidence against each word, (words,), by side and line."""
        longer = self.longer(lines)
        evidence = []
        for side, network in enumerate(self.networks):
            ends = np.cumsum([len(line.best[side]) for line in lines])[:-1]
            values = network(features_of_words(lines, sides, longer, side)).round(_DIGITS)
            evidence.append(np.split(values, ends))
        return both(evidence)

    def longer(self, lines: Sequence[Evidence]) -> list[float]:
        """Return `length_deviation` of lines."""
        return [self.length_deviation(line.source.text, line.target.text) for line in lines]

    def inputs(self, lines: Sequence[Evidence], sides: Sequence[Sides] | None = None) -> ModelInputs:
        """Return the inputs of the model for lines with words on both sides; `sides` saves computing them."""
        sides = sides or [self.seen(line) for line in lines]
        against = self.against(lines, sides)
        words = both(map(chains, against))
        features = line_features(lines, sides, against, words, self.longer(lines))
        return ModelInputs(sides, against, list(zip(*words, strict=True)), features)

    def wrong_words(
        self,
        evidence: Evidence,
        foreign: np.ndarray | None,
        words: Both[np.ndarray],
        facts: Sequence[Sequence[FactEvidence]],
        untranslated: float,
        repeats: float,
    ) -> tuple[Both[np.ndarray], Both[np.ndarray]]:
        """Return the probability of each word to be wrong, and the index of its reason in `REASONS`, for both sides.

        Args:
            evidence: Evidence of the pair.
            foreign: Probability of each target word to be in the source language; None if `untranslated` is low.
            words: Probability of each word to have no partner.
            facts: Evidence against each fact.
            untranslated: Probability that the line is untranslated.
            repeats: Probability that the target repeats itself.
        """
        if not any(facts) and max(untranslated, repeats) <= _NEGLIGIBLE:
            return words, both(np.zeros(len(side), dtype=int) for side in words)
        of_reasons = [np.zeros((len(REASONS), len(side))) for side in words]
        for side, found in enumerate(facts):
            of_reasons[side][0] = words[side]
            if found:
                places, groups, odds = map(np.array, zip(*found, strict=True))
                of_reasons[side][1 + groups, places] = sigmoid(_ONE_FACT + odds)
        if repeats > _NEGLIGIBLE:
            of_reasons[1][_REPEATED_WORD] = repeats * evidence.said_again
        if foreign is not None:
            of_reasons[1][_NOT_TRANSLATED] = untranslated * foreign
            copied: dict[str, float] = {}
            for word, value in zip(evidence.target.words, (untranslated * foreign).tolist(), strict=True):
                copied[word.lower()] = max(value, copied.get(word.lower(), 0.0))
            of_reasons[0][_NOT_TRANSLATED] = [copied.get(word.lower(), 0.0) for word in evidence.source.words]
        probabilities = both(1 - np.prod(1 - side, axis=0) for side in of_reasons)
        return probabilities, both(side.argmax(axis=0) for side in of_reasons)

    def causes(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return the probability of each cause, (lines,), from features (lines, F)."""
        scaled = scaled_features(values, self.scale)
        return {
            name: sigmoid(weights[0] + scaled[:, columns_of(name)] @ weights[1:] - _PRIOR_ODDS)
            for name, weights in self.heads.items()
        }

    def judge(self, lines: Sequence[Evidence], inputs: ModelInputs | None = None) -> Judgement:
        """Judge lines with words on both sides; `inputs` saves computing the inputs."""
        inputs = inputs or self.inputs(lines)
        causes = self.causes(inputs.features)
        context = self.vocabulary.languages, self.denials
        facts_of_lines = [find_facts(line.source, line.target, *context) for line in lines]
        facts = [self.facts.evidence(line, of_line) for line, of_line in zip(lines, facts_of_lines, strict=True)]
        of_facts = np.array([fact_features(line) for line in facts])
        changed = sigmoid(self.facts.head[0] + of_facts @ self.facts.head[1:] - _PRIOR_ODDS)
        rules = [check_rules(line.source, line.target, *context) for line in lines]
        broken = [tuple(name for name in RULE_NAMES if line.get(name)) for line in rules]
        by_rules = np.array([wrong_by_rules(names, self.rules) for names in broken])
        causes |= {"facts": changed, "changed": 1 - (1 - changed) * (1 - by_rules)}
        untranslated, repeats = causes["untranslated"].tolist(), causes["repeats"].tolist()
        some = [n for n, probability in enumerate(untranslated) if probability > _NEGLIGIBLE]
        foreign = dict(zip(some, chains([inputs.sides[n].odds[1] for n in some]), strict=True))
        marked = [
            self.wrong_words(line, foreign.get(n), inputs.words[n], facts[n], untranslated[n], repeats[n])
            for n, line in enumerate(lines)
        ]
        changes = list(map(changed_facts, facts))
        denied = np.full((len(lines), 2), _NO_DENIAL)  # strongest evidence against a negation without a counterpart
        for line, side in np.ndindex(denied.shape):
            for place, group, found in facts_of_lines[line][side]:
                if group == NEGATION and found == LACKS:
                    denied[line, side] = max(denied[line, side], inputs.against[side][line][place])

        def features(causes: dict[str, np.ndarray], by_rules: np.ndarray) -> np.ndarray:
            odds = [log_odds(causes[name]) + _PRIOR_ODDS for name in _ODDS]
            odds.append(np.max(odds, axis=0))
            odds.append(log_odds(1 - np.prod([1 - causes[name] for name in _ODDS], axis=0)) + _PRIOR_ODDS)
            return np.column_stack([
                *(np.clip(one / 2, -5, 5) for one in odds), inputs.features,
                of_facts, np.minimum(denied, -_NO_DENIAL),
                np.maximum(_NO_DENIAL, log_odds(by_rules)),
            ])  # fmt: skip

        of_all, of_likeness = features(causes, by_rules), features(causes | {"changed": changed}, 0 * by_rules)
        words, reasons = ([line[part] for line in marked] for part in (0, 1))
        return Judgement(causes, words, reasons, rules, changes, of_all, of_likeness)

    def wrong(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the probability of any fault, (lines,), from `Judgement.verdict_features`."""
        return sigmoid(self.scores(verdict_features))

    def scores(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the log-odds of `wrong`, (lines,), which also order probabilities that round to 1.

        They are at least the log-odds of the broken rules if clean lines hardly ever break these.
        """
        by_network, by_rules = self.line_odds(verdict_features).round(_DIGITS), verdict_features[:, -1]
        return np.where(by_rules > _DECISIVE_RULES, np.maximum(by_network, by_rules), by_network)

    def line_odds(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the log-odds of `wrong` without the rules, (lines,)."""
        return self.verdict(verdict_features)

    def save(self, folder: str | Path) -> Path:
        """Write the model into the folder of its aligner, and return the path of the file."""
        path = Path(folder) / CHECK_FILE
        values = {
            "learned": self.learned,
            "facts": self.facts.to_dict(),
            "rules": self.rules,
            "denials": [{name: sorted(words) for name, words in one._asdict().items()} for one in self.denials],
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
        """Read a file of `save`.

        Raises:
            ValueError: The file is invalid, or was learned for another aligner; the message names it.
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
            )


Marks = Both[tuple[np.ndarray, np.ndarray]]  # probability of each word to be wrong, and its index in `REASONS`


class JudgedPair(NamedTuple):
    """Judgement of a pair, before the alarms of its text.

    Args:
        sides: Words of both sides.
        words: Marks of both sides.
        causes: Probability of each cause, of "wrong" and of "likeness" (any fault but a broken rule). Default: none,
            for a pair with an empty side or that no judge covers.
        changes: Names of changed facts. Default: none.
        rules: Result of `check_rules`. Default: none.
    """

    sides: Both[Segments]
    words: Marks
    causes: Mapping[str, float] = {}
    changes: tuple[str, ...] = ()
    rules: Mapping[str, Break | None] = {}


def marks(sides: Both[Segments], probability: float) -> Marks:
    """Return marks with the same probability for all words."""
    return both((np.full(len(side.words), probability), np.zeros(len(side.words), dtype=int)) for side in sides)


class Judged(NamedTuple):
    """Lines judged by a model; `covered` is True where it covers the language of a line, (lines,)."""

    model: CheckModel
    judgement: Judgement
    covered: np.ndarray


def combined_judgement(judged: Sequence[Judged], sides: Sequence[Both[Segments]], alarm: float) -> list[JudgedPair]:
    """Combine the judgements of the same lines: the mean log-odds over the judges that cover a line.

    Causes have "wrong" and "likeness" added; names of changed facts are those of the first judge that has any.

    Args:
        judged: Judgements of at least one judge.
        sides: Words of the lines.
        alarm: Common alarm; the log-odds of "wrong" are shifted from the alarm of each judge to it.
    """
    covered = [one.covered for one in judged]
    causes = [
        judgement.causes
        | {
            "wrong": _shifted_odds(model.wrong(judgement.verdict_features), model.alarm, alarm),
            "likeness": _shifted_odds(model.wrong(judgement.likeness_features), model.alarm, alarm),
        }
        for model, judgement, _ in judged
    ]
    means = {name: mean_odds([of_judge[name] for of_judge in causes], covered) for name in causes[0]}
    of_lines = np.column_stack(list(means.values())).tolist()
    pairs = []
    for line, pair in enumerate(sides):
        judgements = [one.judgement for one in judged if one.covered[line]]
        if not judgements:
            pairs.append(JudgedPair(pair, marks(pair, 0.0)))
            continue
        words = []
        for side in (0, 1):
            values = [judgement.words[line][side] for judgement in judgements]
            reasons = np.choose(np.argmax(values, axis=0), [judgement.reasons[line][side] for judgement in judgements])
            words.append((mean_odds(values), reasons))
        changes = next(filter(None, (judgement.changes[line] for judgement in judgements)), ())
        of_line = dict(zip(means, of_lines[line], strict=True))
        pairs.append(JudgedPair(pair, both(words), of_line, changes, judgements[0].rules[line]))
    return pairs


def _shifted_odds(probability: np.ndarray, alarm: float, other: float) -> np.ndarray:
    """Shift probabilities in log-odds, from one alarm to another."""
    if alarm == other:
        return probability
    return sigmoid(log_odds(probability) + log_odds(np.array(other)) - log_odds(np.array(alarm)))


def columns_of(cause: str) -> list[int]:
    return [FEATURES.index(name) for name in CAUSES[cause].features]
