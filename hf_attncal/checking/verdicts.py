"""Verdict on a sentence pair: probabilities of its faults, marked spans, and their reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

VERDICTS = ("omission", "addition", "repeats", "unrelated", "changed")
NOT_KNOWN = "language not known"  # name on a line without a verdict
NOTES = ("empty source", "empty target", "identical sides", NOT_KNOWN)  # names that a line without a fault may have
MARKED_ABOVE = 0.5  # probability above which a word is marked
SHORTER, LONGER = "shorter than usual", "longer than usual"
_CAUSES = {SHORTER: "omission", LONGER: "addition"}


@dataclass(frozen=True, slots=True)
class FlaggedSpan:
    """Adjacent words of one side that are marked together.

    Args:
        words: First word and the one after the last, from 0.
        characters: First character and the one after the last, from 0.
        reason: Reason of the mark, in words.
        probability: Probability of its most suspect word to be wrong.
    """

    words: tuple[int, int]
    characters: tuple[int, int]
    reason: str = ""
    probability: float = 1.0


class Finding(NamedTuple):
    """A fault of a flagged line.

    Args:
        kind: "omission", "addition", or a name of `PairVerdict.names`; for a broken rule its name.
        source, target: Span on each side; None for a fault without words on this side.
        reason: Reason in words.
        probability: Probability of the fault.
    """

    kind: str
    source: FlaggedSpan | None
    target: FlaggedSpan | None
    reason: str
    probability: float


def causes_of_rules(rules: Sequence[Finding]) -> tuple[str, ...]:
    """Return the cause of each broken rule, one of `VERDICTS`, without repetitions."""
    return tuple(dict.fromkeys(_CAUSES.get(rule.kind, "changed") for rule in rules))


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Verdict on one sentence pair.

    Args:
        source, target: Both texts.
        wrong: Probability of any fault. It decides which lines are flagged, which are kept, and the worst lines.
        omission: Probability that words of the source have no translation.
        addition: Probability that the target has content without a source.
        repeats: Probability that the target repeats itself.
        unrelated: Probability that the whole target is not a translation of the source.
        changed: Probability that a number, a negation or a name differs from the source.
        source_words: Probability of each source word to be wrong (no partner, changed, or untranslated), (S,). At most
            `MARKED_ABOVE` in a line that is not flagged.
        target_words: Probability of each target word to be an addition or a repetition, (T,).
        omission_spans, addition_spans: Spans of words above `MARKED_ABOVE`.
        names: Faults with a name: "empty source", "empty target", "identical sides", "untranslated", "wrong language",
            "alien script", "one target for N sources". If `changed` is flagged, also "wrong number", "negation lost",
            "negation added", "wrong name", or a broken rule (`rules.RULES`). A line that is not flagged only has names
            of `NOTES`; a flagged line has at least one name or span.
        flagged: Causes of a line that is flagged: `causes_of_rules`; if the likeness is above the alarm, also the most
            probable cause and others above 0.5. () for a line that is not flagged.
        rules: Broken rules of a flagged line, each a finding with its own probability, and an unusual length. Default:
            ().
        line: Number of the pair in its text, from 1. Default: None, for a pair outside a text.
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
    rules: tuple[Finding, ...] = ()
    line: int | None = None

    @property
    def findings(self) -> list[Finding]:
        """Findings of the line: broken rules, other `names`, omission and addition spans; [] if it is not flagged."""
        if not self.flagged:
            return []
        by_rule = {finding.kind for finding in self.rules}
        named = [Finding(name, None, None, name, self.wrong) for name in self.names if name not in by_rule]
        of_rules = {span for rule in self.rules for span in (rule.source, rule.target)}
        omission, addition = (
            [span for span in spans if span not in of_rules] for spans in (self.omission_spans, self.addition_spans)
        )
        return [
            *self.rules,
            *named,
            *(Finding("omission", span, None, span.reason, span.probability) for span in omission),
            *(Finding("addition", None, span, span.reason, span.probability) for span in addition),
        ]

    def by_rules(self) -> "PairVerdict":
        """Return the verdict without likeness: only the findings of broken rules are left."""
        kinds = {finding.kind for finding in self.rules}
        return replace(
            self,
            flagged=causes_of_rules(self.rules),
            names=tuple(name for name in self.names if name in kinds),
            omission_spans=tuple(rule.source for rule in self.rules if rule.source),
            addition_spans=tuple(rule.target for rule in self.rules if rule.target),
        )

    @property
    def hallucinated(self) -> float:
        """Probability that the target has an addition, or repeats itself."""
        return 1 - (1 - self.addition) * (1 - self.repeats)

    def to_dict(self) -> dict:
        """Return plain data for JSON: probabilities with four decimals, None for a line without a verdict."""
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
    """Return the text with `before` (one per span) and `after` around each span; `written` escapes the pieces."""
    befores = [before] * len(spans) if isinstance(before, str) else before
    parts, done = [], 0
    for span, before in zip(spans, befores, strict=True):
        begin, end = span.characters
        parts += [written(text[done:begin]), before, written(text[begin:end]), after]
        done = end
    return "".join([*parts, written(text[done:])])
