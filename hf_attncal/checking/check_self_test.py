"""Measure how well `attncal check` finds errors that were planted into clean pairs: its self-test."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import regex

from hf_attncal.data.synthetic.translation_errors import KINDS, plant_errors
from hf_attncal.drawing.page import text_table
from hf_attncal.metrics.probabilities import Detection, detection

from .checker import Checker
from .facts import PLANTED_FACTS
from .verdicts import MARKED_ABOVE, NOT_KNOWN, PairVerdict

# The probability that an error of a kind should raise.
VERDICT_OF = {
    "omission": "omission",
    "truncation": "omission",
    "repetition": "repeats",
    **dict.fromkeys(("insertion", "replacement", "untranslated"), "addition"),
    **dict.fromkeys(("word", "doubled word", "placeholder", "bracket", "end mark"), "wrong"),
    **dict.fromkeys(PLANTED_FACTS, "changed"),
    **dict.fromkeys(("unrelated", "swapped"), "unrelated"),
}


_SIGN = r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef]"
_UNSPACED = regex.compile(f"(?<={_SIGN}) (?={_SIGN})")
_BLIND, _BEYOND, _HALF = 0.1, 3, 0.5  # shares of lines flagged; times the share of clean lines


@dataclass(frozen=True)
class Found:
    """Scores of the check on planted errors of one kind.

    Args:
        kind: of the errors. verdict: the probability that is looked at.
        lines: lines with the error against the clean lines.
        omission: source words left out against the others of the lines with the error, with the F1 of the words that
            the check marks; None where there are none.
        addition: the same of target words.
        flagged: share of the lines with the error in which any probability is above its alarm.
    """

    kind: str
    verdict: str
    lines: Detection
    omission: Detection | None
    addition: Detection | None
    flagged: float


@dataclass(frozen=True)
class SelfTest:
    """Scores of the check on all planted errors, and the share of the clean lines that it flags.

    Args:
        found: of each kind.
        false_alarms: share of the clean lines that are flagged. clean: how many there are.
    """

    found: tuple[Found, ...]
    false_alarms: float
    clean: int

    def __str__(self) -> str:
        columns = {
            "planted": [found.kind for found in self.found],
            "lines": [str(found.lines.faults) for found in self.found],
            "judged by": [found.verdict for found in self.found],
            "AUC": [_percent(found.lines) for found in self.found],
            "omitted words": [_percent(found.omission) for found in self.found],
            "F1": [_percent(found.omission, "f1") for found in self.found],
            "added words": [_percent(found.addition) for found in self.found],
            "F1 ": [_percent(found.addition, "f1") for found in self.found],
            "flagged": [f"{100 * found.flagged:.1f}" for found in self.found],
        }
        alarms = f"Of {self.clean} clean lines {100 * self.false_alarms:.2f} % are flagged."
        return "\n".join([*text_table(columns), "", f"{alarms} All figures are in percent.", *self.blind_to()])

    def blind_to(self) -> list[str]:
        """Say which kinds are hardly ever flagged, which not often, and which the text had no place for."""
        least = max(_BLIND, _BEYOND * self.false_alarms)
        blind = [found.kind for found in self.found if found.flagged < least]
        half = [found.kind for found in self.found if least <= found.flagged < _HALF]
        none = [kind for kind in KINDS if kind not in {found.kind for found in self.found}]
        return [
            f"{told}: {', '.join(kinds)}."
            for told, kinds in (
                (f"Blind to (fewer than {100 * least:.0f} % flagged)", blind),
                ("Flagged less than half of the time", half),
                ("Not tried, as no line has a place for it", none),
            )
            if kinds
        ]


def _percent(found: Detection | None, measure: str = "auc") -> str:
    return "-" if found is None else f"{100 * getattr(found, measure).value:.1f}"


def plant_and_check(
    checker: Checker,
    pairs: Sequence[tuple[str, str]],
    kinds: Sequence[str] = tuple(KINDS),
    seed: int = 1,
    bootstrap: int = 0,
) -> SelfTest:
    """Plant errors into clean pairs, and check these and the clean ones.

    Args:
        checker: is left as it is: what is usual in the pairs is learned by a copy.
        pairs: (source, target), held to be good translations, best not what the check has learned from.
        kinds: of errors. seed: of their places.
        bootstrap: resamples for intervals.

    Raises:
        ValueError: fewer than two pairs have words on both sides, or none gets a verdict, or see `plant_errors`.
    """
    checker = copy(checker)
    if checker.encoder is not None:
        checker.encoder = copy(checker.encoder)
        checker.encoder.eye = copy(checker.encoder.eye)
    words = [(checker.cut(source).words, checker.cut(target).words) for source, target in pairs]
    words = [pair for pair in words if all(pair)]
    clean = checker.check(_texts(checker, words))
    if all(NOT_KNOWN in verdict.names for verdict in clean):
        raise ValueError("There is nothing to test: none of the lines gets a verdict, as their language is not known.")
    if checker.encoder is not None:  # what is planted is not usual
        checker.encoder.eye.learns = False
    errors = plant_errors(words, kinds, seed)
    verdicts = checker.check(_texts(checker, ((error.source, error.target) for error in errors)))
    found = []
    for kind in kinds:
        of_kind = [line for line in zip(errors, verdicts, strict=True) if line[0].kind == kind]
        if of_kind:
            name, planted = VERDICT_OF[kind], [verdict for _, verdict in of_kind]
            scores = [getattr(verdict, name) for verdict in (*planted, *clean)]
            lines = detection([True] * len(planted) + [False] * len(clean), scores, bootstrap)
            omission = _of_words(of_kind, "omission", "source", bootstrap)
            addition = _of_words(of_kind, "addition", "target", bootstrap)
            found.append(Found(kind, name, lines, omission, addition, _share_flagged(planted)))
    return SelfTest(tuple(found), _share_flagged(clean), len(clean))


def _share_flagged(verdicts: Sequence[PairVerdict]) -> float:
    return float(np.mean([bool(verdict.flagged) for verdict in verdicts]))


def _texts(checker: Checker, pairs) -> Iterator[tuple[str, str]]:
    """Yield pairs of texts of words, between which an encoder sees no spaces in Chinese and Japanese."""
    for pair in pairs:
        source, target = map(" ".join, pair)
        yield (source, target) if checker.aligner else (_UNSPACED.sub("", source), _UNSPACED.sub("", target))


def _of_words(lines: Sequence[tuple], planted: str, side: str, bootstrap: int) -> Detection | None:
    """Score how well the planted words of a side are found among its words that are not punctuation."""
    truths: list[bool] = []
    scores: list[float] = []
    for error, verdict in lines:
        places, words = getattr(error, planted), getattr(error, side)
        values = getattr(verdict, f"{side}_words")
        if places is None or len(values) != len(words):  # joined by spaces, words may be cut otherwise
            continue
        for place, (word, value) in enumerate(zip(words, values, strict=True)):
            if any(map(str.isalnum, word)):
                truths.append(place in places)
                scores.append(value)
    if not any(truths) or all(truths):
        return None
    return detection(truths, scores, bootstrap, threshold=MARKED_ABOVE)
