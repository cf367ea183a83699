"""Verdict on a sentence pair: probabilities of its faults, marked spans, and their reasons."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from .tables import TABLES

VERDICTS = ("omission", "addition", "repeats", "unrelated", "changed")
NOT_KNOWN = "language not known"  # name on a line without a verdict
NOTES = ("empty source", "empty target", "identical sides", NOT_KNOWN)  # names that a line without a fault may have
MARKED_ABOVE = 0.5  # probability above which a word is marked
FINDING_KINDS: dict[str, str] = TABLES["finding_kinds"]  # kind -> its description
_QUOTED = 80  # characters of a text in a reason
_REASONS = 4  # reasons of a finding


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
        kind: Kind, one of `FINDING_KINDS`; for a broken rule its name.
        source, target: Marked spans of each side.
        reason: Reason in words.
        probability: Probability of the fault.
    """

    kind: str
    source: tuple[FlaggedSpan, ...]
    target: tuple[FlaggedSpan, ...]
    reason: str
    probability: float


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Verdict on one sentence pair.

    Args:
        source, target: Both texts.
        wrong: Probability of any fault, which orders the worst lines.
        omission: Probability that words of the source have no translation.
        addition: Probability that the target has content without a source.
        repeats: Probability that the target repeats itself.
        unrelated: Probability that the whole target is not a translation of the source.
        changed: Probability that a number, a negation or a name differs from the source, or that a broken rule is a
            fault.
        source_words: Probability of each source word to be wrong (no partner, changed, or untranslated), (S,). At most
            `MARKED_ABOVE` in a line that is not flagged.
        target_words: Probability of each target word to be an addition or a repetition, (T,).
        omission_spans, addition_spans: Spans of words above `MARKED_ABOVE`.
        names: Faults with a name: "empty source", "empty target", "identical sides", "untranslated", "wrong language",
            "alien script", "one target for N sources". If `changed` is flagged, also "wrong number", "negation lost",
            "negation added", "wrong name", or another broken rule. A line that is not flagged only has names of
            `NOTES`; a flagged line has at least one name or span.
        flagged: Causes of a flagged line: "changed" for a broken rule; if likeness is above the alarm, also the most
            probable cause and others above 0.5. () for a line that is not flagged.
        rules: Broken rules of a flagged line, each a finding with its own probability. Default: ().
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
        """Findings of the line; [] if it is not flagged.

        Each broken rule is a finding. One more finding has the marked spans and `names` that no rule accounts for.
        """
        rules = list(self.rules)
        of_rules = {span for rule in rules for span in (*rule.source, *rule.target)}
        source, target = (
            tuple(span for span in spans if span not in of_rules)
            for spans in (self.omission_spans, self.addition_spans)
        )
        names = [name for name in self.names if name not in {rule.kind for rule in rules}]
        if (rules or len(names) > 1) and "identical sides" in names:  # another name is the fault
            names.remove("identical sides")
        if not self.flagged or not (names or source or target):
            return rules
        causes = [cause for cause in self.flagged if not (rules and cause == "changed")] or self.flagged
        most = max(causes, key=lambda cause: getattr(self, cause))
        kind = next((name for name in names if name in FINDING_KINDS), most)
        spans = [(self.source, span) for span in source] + [(self.target, span) for span in target]
        reasons = [name for name in names if name != kind]
        reasons += [f"{quoted(text[slice(*span.characters)])}: {span.reason}" for text, span in spans]
        probability = getattr(self, most) if rules else self.wrong
        return [*rules, Finding(kind, source, target, "; ".join(reasons[:_REASONS]), probability)]

    def by_rules(self) -> "PairVerdict":
        """Return the verdict without likeness: only the findings of broken rules are left."""
        kinds = {finding.kind for finding in self.rules}
        return replace(
            self,
            flagged=("changed",) * bool(self.rules),
            names=tuple(name for name in self.names if name in kinds),
            omission_spans=tuple(span for rule in self.rules for span in rule.source),
            addition_spans=tuple(span for rule in self.rules for span in rule.target),
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
            name: [asdict(span) | {"probability": round(span.probability, 3)} for span in getattr(self, name)]
            for name in ("omission_spans", "addition_spans")
        }
        line = {} if self.line is None else {"line": self.line}
        return {**line, **sides, **scores, **spans, **words, "names": list(self.names), "flagged": list(self.flagged)}

    def marked(self) -> tuple[str, str]:
        """Return both texts: `[-omission-]` marks spans of the source, `{+addition+}` spans of the target."""
        return (
            marked_text(self.source, self.omission_spans, "[-", "-]"),
            marked_text(self.target, self.addition_spans, "{+", "+}"),
        )


def kind_id(kind: str) -> str:
    """Return a kind of finding as an identifier, for SARIF and the page."""
    return kind.replace(" ", "-")


def quoted(text: str) -> str:
    """Return a text in quotation marks, cut after `_QUOTED` characters."""
    return f"“{text}”" if len(text) <= _QUOTED else f"“{text[:_QUOTED].rstrip()}…”"


def marked_text(
    text: str,
    spans: Sequence[FlaggedSpan],
    before: str | Sequence[str],
    after: str,
    written: Callable[[str], str] = str,
) -> str:
    """Return the text with `before` (one per span) and `after` around each span; `written` escapes the pieces.

    Of spans that overlap, the first is marked whole.
    """
    befores = [before] * len(spans) if isinstance(before, str) else before
    parts, done = [], 0
    for span, before in zip(spans, befores, strict=True):
        begin, end = max(span.characters[0], done), span.characters[1]
        if begin < end:
            parts += [written(text[done:begin]), before, written(text[begin:end]), after]
            done = end
    return "".join([*parts, written(text[done:])])
