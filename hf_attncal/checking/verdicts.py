"""The verdict on a sentence pair: probabilities of its faults, the spans that are marked, and their reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

VERDICTS = ("omission", "addition", "repeats", "unrelated", "changed")
NOT_KNOWN = "language not known"  # name of a line without a verdict
NOTES = ("empty source", "empty target", "identical sides", NOT_KNOWN)  # names that a line may have without a fault
MARKED_ABOVE = 0.5  # probability of a word from which on it is marked


@dataclass(frozen=True, slots=True)
class FlaggedSpan:
    """Words of one side that belong together.

    Args:
        words: the first and the one after the last, from 0. characters: likewise.
        reason: why they are marked, in words.
        probability: of its most probable word to be wrong.
    """

    words: tuple[int, int]
    characters: tuple[int, int]
    reason: str = ""
    probability: float = 1.0


class Finding(NamedTuple):
    """One thing that is wrong with a line that is flagged.

    Args:
        kind: "omission", "addition", or a name of `PairVerdict.names`.
        source, target: where; None where it is of no words of this side.
        reason: in words.
        probability: that it is wrong.
    """

    kind: str
    source: FlaggedSpan | None
    target: FlaggedSpan | None
    reason: str
    probability: float


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The verdict on one sentence pair.

    Args:
        source, target: the texts.
        wrong: probability that anything is wrong, from all that is known of the line; it decides what is flagged, what
            is kept, and which line is the worst.
        omission: probability that words of the source were left out.
        addition: probability that the target says what the source does not.
        repeats: probability that the target repeats itself.
        unrelated: probability that the target as a whole is no translation of the source.
        changed: probability that a number, a negation or a name is not that of the source.
        source_words: probability of each source word to be left out, (S,): it has no partner, was changed, or was not
            translated; at most `MARKED_ABOVE` in a line that is not flagged. target_words: of each target word to be
            made up or said again, (T,).
        omission_spans, addition_spans: where these are above `MARKED_ABOVE`.
        names: what can be told by name: "empty source", "empty target", "identical sides", "untranslated", "wrong
            language", "alien script", "one target for N sources", and where `changed` is flagged what was changed:
            "wrong number", "negation lost", "negation added", "wrong name", or a rule that is broken (`rules.RULES`).
            A line that is not flagged has no other than `NOTES`, and one that is has one of them or a span.
        flagged: what is wrong with a line of which `wrong` is above the alarm: the most probable cause, and others
            that are more probable than not; () of a line that is not flagged.
        line: number of the pair in its text, from 1; None of a pair that is not of a text.
    """

    source: str
    target: str
    wrong: float
    omission: float
    addition: float
    repeats: float
    unrelated: float
    changed: float
    source_words: tuple[float, ...]
    target_words: tuple[float, ...]
    omission_spans: tuple[FlaggedSpan, ...]
    addition_spans: tuple[FlaggedSpan, ...]
    names: tuple[str, ...]
    flagged: tuple[str, ...]
    line: int | None = None

    @property
    def findings(self) -> list[Finding]:
        """What is wrong, one by one: what is told by name, then the spans of both sides; none if not flagged."""
        if not self.flagged:
            return []
        named = [Finding(name, None, None, name, self.wrong) for name in self.names]
        omission = [Finding("omission", one, None, one.reason, one.probability) for one in self.omission_spans]
        addition = [Finding("addition", None, one, one.reason, one.probability) for one in self.addition_spans]
        return named + omission + addition

    @property
    def hallucinated(self) -> float:
        """Probability that the target is made up, in part or as a whole, or repeats itself."""
        return 1 - (1 - self.addition) * (1 - self.repeats)

    def to_dict(self) -> dict:
        """Return plain data, for JSON: probabilities rounded to four decimals, None of a line without a verdict."""
        sides = {"source": self.source, "target": self.target}
        judged = NOT_KNOWN not in self.names
        scores = {name: round(getattr(self, name), 4) if judged else None for name in ("wrong", *VERDICTS)}
        words = {f"{side}_words": [round(value, 3) for value in getattr(self, f"{side}_words")] for side in sides}
        spans = {
            name: [
                {
                    "words": list(span.words),
                    "characters": list(span.characters),
                    "reason": span.reason,
                    "probability": round(span.probability, 3),
                }
                for span in getattr(self, name)
            ]
            for name in ("omission_spans", "addition_spans")
        }
        line = {} if self.line is None else {"line": self.line}
        return {**line, **sides, **scores, **spans, **words, "names": list(self.names), "flagged": list(self.flagged)}

    def marked(self) -> tuple[str, str]:
        """Return both texts, with `[-omission-]` and `{+addition+}` around the spans."""
        return (
            marked_text(self.source, self.omission_spans, "[-", "-]"),
            marked_text(self.target, self.addition_spans, "{+", "+}"),
        )


def marked_text(
    text: str,
    spans: Sequence[FlaggedSpan],
    before: str | Sequence[str],
    after: str,
    written: Callable[[str], str] = str,
) -> str:
    """Return the text, its pieces as `written` gives them, with `before` (one for each span) and `after` around."""
    befores = [before] * len(spans) if isinstance(before, str) else before
    parts, done = [], 0
    for span, before in zip(spans, befores, strict=True):
        begin, end = span.characters
        parts += [written(text[done:begin]), before, written(text[begin:end]), after]
        done = end
    return "".join([*parts, written(text[done:])])
