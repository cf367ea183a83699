"""Model of `attncal check`: good pairs as they look in clean text, and in text with planted errors.

A word is looked at in its class: how frequent it is, a number, a negation, punctuation, and, where it is rare or a
number, whether the other side has its like by form. For each class the distribution of the best score of a word is
learned twice: in clean pairs, and in pairs of a source and the target of another pair, in which no word has a partner.
The logarithm of their ratio is the evidence against a word. Words without a partner stand together, so that a chain of
two states (a word has a partner, or has none) turns this evidence into a probability of each word, and into evidence
against the whole side. What is known of a line becomes probabilities by logistic regression, learned from planted
errors. Annotated translations are not needed anywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex

from hf_attncal.inference.schema import Each, ListOfWords, Maybe, Numbers, OneOf, WordNumbers, check_values
from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.layouts import CHECK_FILE

from .evidence import LinkEvidence
from .facts import (
    FACT_EDGES,
    FACT_GROUPS,
    NO_DENIALS,
    BothDenials,
    Denials,
    FactModel,
    changed_facts,
    fact_features,
)
from .logistic import log_odds, mean_odds, scaled_features, sigmoid
from .number_values import LANGUAGES
from .rules import RULE_NAMES, USUAL, broken_rules, wrong_by_rules
from .word_classes import CLASSES, PUNCTUATION, Sides, Vocabulary, seen

# Best scores are counted between these.
EDGES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97)
_ENTERED, _LEFT = 0.02, 0.25  # a run of words without a partner begins, or ends, at a word
_MOST_AGAINST = 8.0  # evidence of one word
_COMMON = 4.0  # nats: words of less surprisal may be said again
_INSIDE = 8.0  # what a repetition inside a word counts for
_NEAR = 4  # words
_ONE_FACT = -math.log(49)  # log-odds that a fact is changed: one in fifty
_HARDLY = 0.01  # probability
_FEW, _LEAST_KNOWN = 4, 0.2  # words that tell whether a language is known, and the share of them that must be
_PRIOR_ODDS = math.log(19)  # of each cause: one line in twenty
_AGAIN_AND_AGAIN = regex.compile(r"(\p{L}{2,}?)\1{2,}")
KNOWN_EDGES = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
_EDGES_OF = {"best": EDGES, "known": KNOWN_EDGES}
_ARRAY_OF = {of: np.array(edges) for of, edges in _EDGES_OF.items()}
CLEAN_SHARES = (*(part / 100 for part in range(1, 100)), 0.995, 0.999)
PARTS = 10  # of the clean text
_PRIOR = 20  # counts that a class takes over from all classes


def fit_table(
    evidence: Sequence[tuple[LinkEvidence, Sides]], against: Sequence[tuple[LinkEvidence, Sides]], of: str = "best"
) -> np.ndarray:
    """Return the log-ratios of how often a value is among words without and with a partner, (2 sides, classes, bins).

    Args:
        evidence: of clean pairs. against: of pairs of which no word has a partner.
        of: "best" or "known", the field of `LinkEvidence`.
    """
    edges = _EDGES_OF[of]
    table = np.zeros((2, len(CLASSES), len(edges) + 1))
    for side in (0, 1):
        logs = []
        for found in (evidence, against):
            counts = np.zeros(table.shape[1:])
            for words, sides in found:
                np.add.at(counts, (sides.classes[side], np.digitize(getattr(words, of)[side], edges)), 1)
            overall = (counts.sum(axis=0) + 0.5) / (counts.sum() + 0.5 * counts.shape[1])
            counts += _PRIOR * overall
            logs.append(np.log(counts / counts.sum(axis=1, keepdims=True)))
        table[side] = logs[1] - logs[0]
    return table


def chain(against: np.ndarray, entered: float = _ENTERED, left: float = _LEFT) -> np.ndarray:
    """Return the probability of each word of a side to have no partner, from the evidence against each, (words,).

    The forward-backward pass of a hidden Markov chain of two states, of which the first word's is entered as any
    other's; `exp(against)` is the ratio of their emissions.

    Args:
        against: log-ratio of each word, (words,).
        entered: probability that a run of words without a partner begins at a word. left: that it ends before it.
    """
    ratio = np.exp(np.clip(against, -_MOST_AGAINST, _MOST_AGAINST)).tolist()
    forward, bad = [], 0.0
    for odds in ratio:
        bad = (entered * (1 - bad) + (1 - left) * bad) * odds
        good = 1 - bad / odds
        bad = bad / (good + bad)
        forward.append(bad)
    posterior = np.empty(len(ratio))
    after_good = after_bad = 1.0
    for place in range(len(ratio) - 1, -1, -1):
        bad, good = forward[place] * after_bad, (1 - forward[place]) * after_good
        posterior[place] = bad / (bad + good)
        seen_bad = ratio[place] * after_bad
        after_good, after_bad = (
            (1 - entered) * after_good + entered * seen_bad,
            left * after_good + (1 - left) * seen_bad,
        )
        total = after_good + after_bad
        after_good, after_bad = after_good / total, after_bad / total
    return posterior


def strongest_run(against: np.ndarray) -> float:
    """Return the largest sum of the evidence against words in a row, 0 without any: a scan for the run left out."""
    sums = np.zeros(len(against) + 1)
    np.clip(against, -_MOST_AGAINST, _MOST_AGAINST).cumsum(out=sums[1:])
    return float((sums - np.minimum.accumulate(sums)).max())


_OF_SIDE = ("evidence", "unpartnered", "support", "language", "known", "run", "known run", "mass")
_REPEATED = ("repeated", "repeated much", "repeated near")
FEATURES = (
    *(f"{side} {name}" for side in ("source", "target") for name in _OF_SIDE),
    *_REPEATED, "shorter", "longer", "length", "short",
)  # fmt: skip


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
_RUNS = tuple(f"{side} {name}" for name in ("run", "known run", "mass") for side in ("source", "target"))
CAUSES = {
    "left_out": Cause(
        ("omission", "truncation"),
        ("detached", "repetition"),
        (*_PARTNERS, *_RUNS, "shorter", "longer", "length", "short"),
    ),
    "made_up": Cause(("replacement", "detached"), (), (*_PARTNERS, "length", "short")),
    "added": Cause(
        ("insertion",),
        ("omission", "repetition"),
        (*_PARTNERS, *_RUNS, "shorter", "longer", "length", "short"),
    ),
    "detached": Cause(("detached",), (), (*_PARTNERS, "source known", "target known")),
    "repeats": Cause(("repetition",), (), (*_REPEATED, "longer")),
    "untranslated": Cause(("untranslated", "swapped"), (), ("source language", "target language")),
}
_ODDS = (*CAUSES, "changed")
_OF_VERDICT = (*_RUNS, "shorter", "longer", "short")
VERDICT_FEATURES = len(_ODDS) + 2 + len(_OF_VERDICT)  # and the largest, and that any is there
PLANTED = tuple(dict.fromkeys(kind for cause in CAUSES.values() for kind in cause.kinds + cause.others))


# Why a word may be wrong: it has no partner, it is a fact of a group, ...
REASONS = ("no partner", *FACT_GROUPS, "said again", "not translated")
_SAID_AGAIN, _NOT_TRANSLATED = len(REASONS) - 2, len(REASONS) - 1


class Judged(NamedTuple):
    """What a model thinks of lines.

    Args:
        causes: probability of each cause, and that facts or forms were "changed", (lines,).
        words: of each line, the probability of the words of both sides to be wrong; see `CheckModel.wrong_words`.
        reasons: of each line, of each word of both sides which of `REASONS` is the most probable.
        broken: of each line, the names of the rules that it breaks.
        changes: of each line, what was changed by name, if anything was.
        verdict_features: what the verdict goes by, (lines, `VERDICT_FEATURES`).
    """

    causes: dict[str, np.ndarray]
    words: list[tuple[np.ndarray, np.ndarray]]
    reasons: list[tuple[np.ndarray, np.ndarray]]
    broken: list[tuple[str, ...]]
    changes: list[tuple[str, ...]]
    verdict_features: np.ndarray


@dataclass
class CheckModel:
    """Model of good pairs, as `learn_check` makes it.

    Args:
        vocabulary: of both sides.
        scripts: of each side, script -> share of its letters.
        best, known: see `fit_table`; no `known` of an aligner that has no counts.
        lengths: see `fit_lengths`.
        scale: mean and standard deviation of each feature in clean pairs, (2, features).
        heads: name of a cause -> bias and weights of its features, (1 + features of the cause,).
        verdict: bias and weights of what `wrong` goes by, (1 + `VERDICT_FEATURES`,).
        alarm: probability of `wrong` above which a line is flagged.
        learned: what from: `pairs` in all, `sample` of them, `seed`.
        facts: of numbers, negations and names; None while it is learned.
        rules: share of clean pairs that break each rule (`rules.RULE_NAMES`).
        denials: of both sides, what else they deny with.
        clean: log-odds of `wrong` that so many clean lines do not exceed (`CLEAN_SHARES`); None of an older file.
        parts: share of the lines of each tenth of the clean text that are flagged, in their order.
    """

    vocabulary: Vocabulary
    scripts: tuple[dict[str, float], dict[str, float]]
    best: np.ndarray
    known: np.ndarray | None
    lengths: tuple[float, float, float]
    scale: np.ndarray
    heads: dict[str, np.ndarray]
    verdict: np.ndarray
    alarm: float
    learned: dict[str, int]
    facts: FactModel | None = None
    rules: dict[str, float] = field(default_factory=dict)
    denials: BothDenials = NO_DENIALS
    clean: np.ndarray | None = None
    parts: list[float] = field(default_factory=list)

    def knows(self, words: Sequence[str]) -> bool:
        """Return whether a text of some length has words that clean text has on any side."""
        told = [word.lower() for word in words if word.isalpha()]
        known = sum(any(word in counts for counts in self.vocabulary.counts) for word in told)
        return len(told) < _FEW or known > _LEAST_KNOWN * len(told)

    def seen(self, evidence: LinkEvidence) -> Sides:
        """Return the words of a pair as the model sees them."""
        return seen(self.vocabulary, evidence)

    def length_deviation(self, source: str, target: str) -> float:
        """Return by how many standard deviations a target is longer than usual for its source, from -8 to 8."""
        mean, fixed, falling = self.lengths
        longer = math.log((len(target) + 1) / (len(source) + 1)) - mean
        return max(-8.0, min(8.0, longer / math.sqrt(fixed + falling / (len(source) + 1))))

    def words(self, evidence: LinkEvidence, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each source word, and of each target word, to have no partner."""
        return tuple(chain(self._against(evidence, sides, "best", side)) for side in (0, 1))

    def facts_of(self, evidence: LinkEvidence) -> list[list[tuple[int, int, float]]]:
        """Return `FactModel.evidence` of a line; no facts where none were learned."""
        return (
            [[], []] if self.facts is None else self.facts.evidence(evidence, self.vocabulary.languages, self.denials)
        )

    def changed(self, facts: Sequence[list[list[tuple[int, int, float]]]]) -> np.ndarray:
        """Return the probability of each line that a number, a negation or a name differs, (lines,)."""
        if self.facts is None:
            return np.zeros(len(facts))
        head = self.facts.head
        return sigmoid(head[0] + np.array([fact_features(line) for line in facts]) @ head[1:] - _PRIOR_ODDS)

    def wrong_words(
        self,
        evidence: LinkEvidence,
        sides: Sides,
        words: tuple[np.ndarray, np.ndarray],
        facts: Sequence[Sequence[tuple[int, int, float]]],
        untranslated: float,
        repeats: float,
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return the probability of each word of both sides to be left out, or made up, and the reason of each.

        It has no partner (`words`), is a changed fact (`facts`), is said again in a line that `repeats` itself, or
        stands in the language of the source: of a line that is `untranslated` with this probability, a chain over the
        language of the target's words tells which.

        Returns:
            probabilities, and places in `REASONS`, each of the source and of the target.
        """
        of_reasons = [np.zeros((len(REASONS), len(side))) for side in words]
        for side, found in enumerate(facts):
            of_reasons[side][0] = words[side]
            for place, group, against in found:
                of_reasons[side][1 + group, place] = sigmoid(_ONE_FACT + against)
        if repeats > _HARDLY:
            of_reasons[1][_SAID_AGAIN] = repeats * evidence.said_again
        if untranslated > _HARDLY:
            foreign = untranslated * chain(sides.odds[1])
            of_reasons[1][_NOT_TRANSLATED] = foreign
            copied: dict[str, float] = {}
            for word, value in zip(evidence.target.words, foreign.tolist(), strict=True):
                copied[word.lower()] = max(value, copied.get(word.lower(), 0.0))
            of_reasons[0][_NOT_TRANSLATED] = [copied.get(word.lower(), 0.0) for word in evidence.source.words]
        return tuple(1 - np.prod(1 - side, axis=0) for side in of_reasons), tuple(
            side.argmax(axis=0) for side in of_reasons
        )

    def features(self, evidence: LinkEvidence, sides: Sides, words: tuple[np.ndarray, np.ndarray]) -> list[float]:
        """Return the `FEATURES` of a line; `words` as `words` gives them."""
        values: list[float] = []
        for side in (0, 1):
            classes, number = sides.classes[side], max(1, len(sides.classes[side]))
            weights = np.where(classes == PUNCTUATION, 0.0, sides.surprisal[side])
            told = int((sides.odds[side] != 0).sum())  # names and numbers do not tell the language
            best = self._against(evidence, sides, "best", side)
            known = np.zeros(0) if self.known is None else self._against(evidence, sides, "known", side)
            values += [
                best.sum() / number,
                words[side].sum() / number,
                (evidence.best[side] * weights).sum() / weights.sum() if weights.any() else 1.0,
                sides.odds[side].sum() / (told + 1) * (1 if side else -1),
                known.sum() / number,
                math.log1p(strongest_run(best)),
                math.log1p(strongest_run(known)),
                math.log1p(words[side].sum()),
            ]
        again = evidence.said_again * np.maximum(0, sides.surprisal[1] - _COMMON)
        inside = max(0.0, _inside(evidence.target.text) - _inside(evidence.source.text))
        total = float(again.sum()) + _INSIDE * inside
        deviation = self.length_deviation(evidence.source.text, evidence.target.text)
        length = len(evidence.source.words) + len(evidence.target.words)
        return [
            *values,
            total / max(1.0, float(sides.surprisal[1].sum())),
            math.log1p(total),
            math.log1p(_near(evidence, again)),
            max(0.0, -deviation),
            max(0.0, deviation),
            math.log1p(length),
            1 / (1 + length),
        ]

    def causes(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return the probability of each cause, (lines,), from features (lines, features)."""
        scaled = scaled_features(values, self.scale)
        return {
            name: sigmoid(weights[0] + scaled[:, columns_of(name)] @ weights[1:] - _PRIOR_ODDS)
            for name, weights in self.heads.items()
        }

    def judge(self, lines: Sequence[LinkEvidence]) -> "Judged":
        """Return what is thought of lines, by all that is known of them."""
        sides = [self.seen(line) for line in lines]
        words = [self.words(*line) for line in zip(lines, sides, strict=True)]
        values = np.array([self.features(*line) for line in zip(lines, sides, words, strict=True)])
        causes = self.causes(values)
        facts = [self.facts_of(line) for line in lines]
        broken = [broken_rules(line, self.vocabulary.languages, self.denials) for line in lines]
        by_rules = np.array([wrong_by_rules(names, self.rules) for names in broken])
        causes["changed"] = 1 - (1 - self.changed(facts)) * (1 - by_rules)
        marked = [
            self.wrong_words(*line)
            for line in zip(
                lines, sides, words, facts, causes["untranslated"].tolist(), causes["repeats"].tolist(), strict=True
            )
        ]
        odds = [log_odds(causes[name]) + _PRIOR_ODDS for name in _ODDS]
        odds.append(np.max(odds, axis=0))
        odds.append(log_odds(1 - np.prod([1 - causes[name] for name in _ODDS], axis=0)) + _PRIOR_ODDS)
        scaled = scaled_features(values, self.scale)[:, [FEATURES.index(name) for name in _OF_VERDICT]]
        told = [changed_facts(*line) for line in zip(facts, broken, strict=True)]
        features = np.column_stack([*(np.clip(one / 2, -5, 5) for one in odds), scaled])
        return Judged(causes, *map(list, zip(*marked, strict=True)), broken, told, features)

    def wrong(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the probability of each line that anything is wrong, (lines,), from `Judged.verdict_features`."""
        return self.wrong_of(self.scores(verdict_features))

    def scores(self, verdict_features: np.ndarray) -> np.ndarray:
        """Return the log-odds of `wrong`, (lines,), which tell the most suspect lines apart."""
        return self.verdict[0] + verdict_features @ self.verdict[1:] - _PRIOR_ODDS

    @staticmethod
    def wrong_of(scores: np.ndarray) -> np.ndarray:
        """Return the probabilities of these log-odds."""
        return sigmoid(scores)

    def _against(self, evidence: LinkEvidence, sides: Sides, of: str, side: int) -> np.ndarray:
        bins = _ARRAY_OF[of].searchsorted(getattr(evidence, of)[side], side="right")
        return getattr(self, of)[side][sides.classes[side], bins]

    def save(self, folder: str | Path) -> Path:
        """Write the model beside the aligner in `folder`, and return the path of the file."""
        path = Path(folder) / CHECK_FILE
        values = {
            "learned": self.learned,
            "facts": self.facts
            and {"field": self.facts.field, "table": self.facts.table.tolist(), "head": self.facts.head.tolist()},
            "rules": self.rules,
            "denials": [{"words": sorted(one.words), "negations": sorted(one.negations)} for one in self.denials],
            "clean": None if self.clean is None else self.clean.tolist(),
            "parts": self.parts,
            "verdict": self.verdict.tolist(),
            "alarm": self.alarm,
            "lengths": list(self.lengths),
            "heads": {name: weights.tolist() for name, weights in self.heads.items()},
            "scale": self.scale.tolist(),
            "best": self.best.tolist(),
            "known": None if self.known is None else self.known.tolist(),
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
            check_values(values, _SCHEMA)
            facts = values["facts"]
            bins = len(FACT_EDGES[facts["field"]]) + 1
            check_values(facts["table"], Numbers((2, len(FACT_GROUPS), 3, bins), -100, 100), "facts.table")
            if facts["field"] == "known" and values["known"] is None:
                raise ValueError("`known` is missing, which `facts` look at.")
            for side, (counts, total) in enumerate(zip(values["counts"], values["totals"], strict=True)):
                check_values(counts, WordNumbers(Numbers(least=1, most=1e15, whole=True), total), f"counts[{side}]")
            return cls(
                Vocabulary(tuple(values["counts"]), tuple(values["totals"]), tuple(values["languages"])),
                tuple(values["scripts"]),
                np.array(values["best"], dtype=float),
                None if values["known"] is None else np.array(values["known"], dtype=float),
                tuple(values["lengths"]),
                np.array(values["scale"], dtype=float),
                {name: np.array(values["heads"][name], dtype=float) for name in CAUSES},
                np.array(values["verdict"], dtype=float),
                float(values["alarm"]),
                values["learned"],
                FactModel(np.array(facts["table"], float), np.array(facts["head"], float), facts["field"]),
                USUAL | values["rules"],
                tuple(Denials(*(frozenset(one[name]) for name in Denials._fields)) for one in values["denials"])
                if "denials" in values
                else NO_DENIALS,
                None if values.get("clean") is None else np.array(values["clean"], dtype=float),
                values.get("parts", []),
            )


Words = list[list[tuple[np.ndarray, np.ndarray]]]


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
    words, changes = [], []
    for line, weights in enumerate(np.stack(knows, axis=1)):
        those = [found for (_, found), weight in zip(judged, weights, strict=True) if weight] or [judged[0][1]]
        sides = []
        for side in (0, 1):
            values = [found.words[line][side] for found in those]
            reasons = np.choose(np.argmax(values, axis=0), [found.reasons[line][side] for found in those])
            sides.append((mean_odds(values), reasons))
        words.append(sides)
        changes.append(next(filter(None, (found.changes[line] for found in those)), ()))
    return means, words, changes


def _moved(probability: np.ndarray, alarm: float, other: float) -> np.ndarray:
    """Return the probabilities that are as far from another alarm, in log-odds."""
    if alarm == other:
        return probability
    return sigmoid(log_odds(probability) + log_odds(np.array(other)) - log_odds(np.array(alarm)))


def _table(edges: tuple[float, ...]) -> Numbers:
    return Numbers((2, len(CLASSES), len(edges) + 1), -100, 100)


# What is in the file. The table of `facts` depends on its field, and `counts` on the totals.
_COUNT = Numbers(least=0, most=1e15, whole=True)
_SCHEMA = {
    "learned": dict.fromkeys(("pairs", "sample", "seed"), _COUNT),
    "facts": {
        "field": OneOf(FACT_EDGES),
        "table": Maybe(None),
        "head": Numbers((1 + 2 * len(FACT_GROUPS),), -1e4, 1e4),
    },
    "rules": {name: Maybe(Numbers(least=0, most=1), missing=name in USUAL, null=False) for name in RULE_NAMES},
    # Files that were written before these were learned have none.
    "denials": Maybe(Each(({"words": ListOfWords(), "negations": ListOfWords()},) * 2), missing=True, null=False),
    "clean": Maybe(Numbers((len(CLEAN_SHARES),), -1e4, 1e4), missing=True),
    "parts": Maybe(Numbers((PARTS,), least=0, most=1), missing=True, null=False),
    "verdict": Numbers((1 + VERDICT_FEATURES,), -1e4, 1e4),
    "alarm": Numbers(least=0, most=1),
    "lengths": Each((Numbers(least=-20, most=20), Numbers(least=1e-9, most=1e3), Numbers(least=0, most=1e6))),
    "heads": {name: Numbers((1 + len(cause.features),), -1e4, 1e4) for name, cause in CAUSES.items()},
    "scale": Each((Numbers((len(FEATURES),)), Numbers((len(FEATURES),), least=1e-9))),
    "best": _table(EDGES),
    "known": Maybe(_table(KNOWN_EDGES)),
    "scripts": Each((WordNumbers(Numbers(least=0, most=1), 1.001),) * 2),
    "languages": Each((Maybe(OneOf(LANGUAGES)),) * 2),
    "totals": Numbers((2,), least=0, most=1e15, whole=True),
    "counts": Each((Maybe(None),) * 2),
}


def columns_of(cause: str) -> list[int]:
    return [FEATURES.index(name) for name in CAUSES[cause].features]


def _inside(text: str) -> float:
    """Count how often the same letters follow each other inside words, beyond twice (`WhiteWhiteWhite`)."""
    return sum(len(found[0]) / len(found[1]) - 1 for found in _AGAIN_AND_AGAIN.finditer(text.lower()))


def _near(evidence: LinkEvidence, again: np.ndarray) -> float:
    """Return how much of `again` is said within four words of the last time."""
    if not again.any():
        return 0.0
    last: dict[str, int] = {}
    total = 0.0
    for place, word in enumerate(map(str.lower, evidence.target.words)):
        if place - last.get(word, -_NEAR - 1) <= _NEAR:
            total += again[place]
        last[word] = place
    return total


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
