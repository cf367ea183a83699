"""Self-test of `attncal check`: plant errors into clean pairs and measure how many are found."""

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

# Kind of planted error -> probability of `PairVerdict` that it should raise.
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
_BLIND, _BEYOND, _HALF = 0.1, 3, 0.5  # share of flagged lines, multiple of the share in clean lines, share


@dataclass(frozen=True)
class KindScores:
    """Scores of the check on planted errors of one kind.

    Args:
        kind: Kind of the errors.
        verdict: Probability that is scored.
        lines: Detection of the lines with the error among the clean lines.
        omission: Detection of the omitted source words, with the F1 of the marked words; None if there are none.
        addition: Detection of the added target words, with F1; None if there are none.
        flagged: Share of the lines with the error that are flagged.
    """

    kind: str
    verdict: str
    lines: Detection
    omission: Detection | None
    addition: Detection | None
    flagged: float


@dataclass(frozen=True)
class SelfTest:
    """Scores of the check on all planted errors, and its false alarms.

    Args:
        found: Scores of each kind.
        false_alarms: Share of the clean lines that are flagged.
        clean: Number of clean lines.
    """

    found: tuple[KindScores, ...]
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
        alarms = f"{100 * self.false_alarms:.2f} % of {self.clean} clean lines are flagged."
        return "\n".join([*text_table(columns), "", f"{alarms} All figures are in percent.", *self.blind_to()])

    def blind_to(self) -> list[str]:
        """Return messages on the kinds that are hardly ever flagged, rarely flagged, or not planted."""
        least = max(_BLIND, _BEYOND * self.false_alarms)
        blind = [found.kind for found in self.found if found.flagged < least]
        half = [found.kind for found in self.found if least <= found.flagged < _HALF]
        none = [kind for kind in KINDS if kind not in {found.kind for found in self.found}]
        return [
            f"{told}: {', '.join(kinds)}."
            for told, kinds in (
                (f"Blind to (fewer than {100 * least:.0f} % flagged)", blind),
                ("Flagged less than half of the time", half),
                ("Not planted, as no line has a place for it", none),
            )
            if kinds
        ]


def _percent(scores: Detection | None, measure: str = "auc") -> str:
    return "-" if scores is None else f"{100 * getattr(scores, measure).value:.1f}"


def plant_and_check(
    checker: Checker,
    pairs: Sequence[tuple[str, str]],
    kinds: Sequence[str] = tuple(KINDS),
    seed: int = 1,
    bootstrap: int = 0,
) -> SelfTest:
    """Plant errors into clean pairs, and check these and the clean ones.

    Args:
        checker: Checker; it does not change, as a copy adapts to the pairs.
        pairs: Good (source, target) translations, preferably other text than the training text of the check.
        kinds: Kinds of errors. Default: all.
        seed: Seed of the errors. Default: 1.
        bootstrap: Number of resamples for intervals. Default: 0.

    Raises:
        ValueError: Fewer than two pairs have words on both sides, none gets a verdict, or see `plant_errors`.
    """
    checker = copy(checker)
    if checker.encoder is not None:
        checker.encoder = copy(checker.encoder)
        checker.encoder.evidence_reader = copy(checker.encoder.evidence_reader)
    words = [(checker.cut(source).words, checker.cut(target).words) for source, target in pairs]
    words = [pair for pair in words if all(pair)]
    clean = checker.check(_texts(checker, words))
    if all(NOT_KNOWN in verdict.names for verdict in clean):
        raise ValueError("No line gets a verdict, as their language is not known. Give text in another language.")
    if checker.encoder is not None:  # planted errors must not change the statistics of the text
        checker.encoder.evidence_reader.learns = False
    errors = plant_errors(words, kinds, seed)
    verdicts = checker.check(_texts(checker, ((error.source, error.target) for error in errors)))
    scores_of_kinds = []
    for kind in kinds:
        of_kind = [line for line in zip(errors, verdicts, strict=True) if line[0].kind == kind]
        if of_kind:
            name, planted = VERDICT_OF[kind], [verdict for _, verdict in of_kind]
            scores = [getattr(verdict, name) for verdict in (*planted, *clean)]
            lines = detection([True] * len(planted) + [False] * len(clean), scores, bootstrap)
            omission = _of_words(of_kind, "omission", "source", bootstrap)
            addition = _of_words(of_kind, "addition", "target", bootstrap)
            scores_of_kinds.append(KindScores(kind, name, lines, omission, addition, _share_flagged(planted)))
    return SelfTest(tuple(scores_of_kinds), _share_flagged(clean), len(clean))


def _share_flagged(verdicts: Sequence[PairVerdict]) -> float:
    return float(np.mean([bool(verdict.flagged) for verdict in verdicts]))


def _texts(checker: Checker, pairs) -> Iterator[tuple[str, str]]:
    """Yield the texts of pairs of words; for an encoder, Chinese and Japanese have no spaces."""
    for pair in pairs:
        source, target = map(" ".join, pair)
        yield (source, target) if checker.aligner else (_UNSPACED.sub("", source), _UNSPACED.sub("", target))


def _of_words(lines: Sequence[tuple], planted: str, side: str, bootstrap: int) -> Detection | None:
    """Score the detection of the planted words among the words of a side, without punctuation."""
    truths: list[bool] = []
    scores: list[float] = []
    for error, verdict in lines:
        places, words = getattr(error, planted), getattr(error, side)
        values = getattr(verdict, f"{side}_words")
        if places is None or len(values) != len(words):  # the tokenisation of the joined words may differ
            continue
        for place, (word, value) in enumerate(zip(words, values, strict=True)):
            if any(map(str.isalnum, word)):
                truths.append(place in places)
                scores.append(value)
    if not any(truths) or all(truths):
        return None
    return detection(truths, scores, bootstrap, threshold=MARKED_ABOVE)
