"""Findings in a document, with kind, position, reason and probability, as lines, JSON, SARIF or notes in the file."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import read_lines

from ..placeholders import compare_placeholders
from ..rules import RULE_NAMES, UNLEARNED_RULES
from ..verdicts import LONGER, SHORTER, PairVerdict
from .segments import Segment, changed_parts

# Kind of a finding -> its description.
FINDING_KINDS = {
    "missing": "A whole segment of the source has no translation.",
    "added": "A whole segment of the translation has no source.",
    "omission": "Words of the source have no translation.",
    "addition": "Words of the translation have no source.",
    "repeats": "The translation repeats itself.",
    "unrelated": "The translation is not a translation of this source.",
    "changed": "A number, a name, a negation, a placeholder or an address differs from the source.",
    SHORTER: "The translation is much shorter than usual for its source.",
    LONGER: "The translation is much longer than usual for its source.",
    **{name: f"The translation differs from the source by rule: {name}." for name in (*RULE_NAMES, *UNLEARNED_RULES)},
}
# Probability that a finding of these kinds is right, measured on unchanged documents.
_SURE = {"missing": 0.95, "added": 0.95, "placeholders": 0.97, "kept parts": 0.8}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLUMNS = ("id", "probability", "kind", "source", "target", "reason")
_ERROR_ABOVE = 0.9  # probability above which a finding is an error in SARIF
_ERROR_STATUS = 2  # exit status of an error, if 1 means findings
_SHOWN = 80  # characters of a text in a reason


@dataclass(frozen=True, slots=True)
class Place:
    """Position of one side of a finding.

    Args:
        file: Name of the file.
        line: Line in the file, from 1.
        key: Key of the segment, or "".
        text: Text of the segment.
        span: First character of the finding in the text, and the one after the last. Default: None, the whole text.
    """

    file: str
    line: int
    key: str
    text: str
    span: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """Finding in a document.

    Args:
        kind: Kind, one of `FINDING_KINDS`.
        reason: Description in words.
        probability: Probability that it is an error.
        source, target: Position on each side; None for a missing side.
        at: Segment before which its note is written. Default: None.
    """

    kind: str
    reason: str
    probability: float
    source: Place | None
    target: Place | None
    at: Segment | None = None

    @property
    def id(self) -> str:
        """Identifier from the kind and the texts, which does not change when lines move."""
        sides = (" ".join(side.text.split()) if side else "" for side in (self.source, self.target))
        return hashlib.sha256("\0".join((self.kind, *sides)).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        values: dict[str, Any] = {"id": self.id, "kind": self.kind, "probability": round(self.probability, 4)}
        values["reason"] = self.reason
        for name in ("source", "target"):
            place = getattr(self, name)
            if place is not None:
                fields = {"file": place.file, "line": place.line, "key": place.key}
                values[name] = {key: item for key, item in fields.items() if item} | {"text": place.text}
                if place.span is not None:
                    values[name]["span"] = list(place.span)
        return values


@dataclass(frozen=True, slots=True)
class SegmentSide:
    """Segments of one document that are checked together.

    Args:
        file: Name of the document.
        segments: Segments in order; their texts are joined by spaces.
    """

    file: str
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.segments)

    def place(self, span: tuple[int, int] | None = None) -> Place:
        """Return the position of characters of the joined text: the segment in which they begin."""
        begin, segment = 0, self.segments[0]
        for segment in self.segments:
            if span is None or span[0] < begin + len(segment.text) + 1:
                break
            begin += len(segment.text) + 1
        if span is not None:
            span = max(0, span[0] - begin), min(len(segment.text), span[1] - begin)
        return Place(self.file, segment.line, segment.key, segment.text, span)


def kept_part_findings(source: SegmentSide, target: SegmentSide) -> Iterator[DocumentFinding]:
    """Yield the finding on code, addresses and formulas that a translation changed."""
    reason = changed_parts(source.segments, target.segments) if source.segments and target.segments else None
    if reason:
        reason, places = f"changed code, address or formula: {reason}", (source.place(), target.place())
        yield DocumentFinding("changed", reason, _SURE["kept parts"], *places, target.segments[0])


def document_findings(verdict: PairVerdict, source: SegmentSide, target: SegmentSide) -> Iterator[DocumentFinding]:
    """Yield the findings on paired segments: wrong placeholders, and the verdict as one finding."""
    wrong = _other_placeholders(source, target)
    if wrong is not None:
        at = target.segments[0]
        yield DocumentFinding("changed", wrong, _SURE["placeholders"], source.place(), target.place(), at)
    findings = [finding for finding in verdict.findings if not (wrong and finding.kind == "wrong placeholders")]
    by_rule = [finding for finding in findings if finding in verdict.rules]
    for rule in by_rule:
        places = (
            source.place(rule.source.characters if rule.source else None),
            target.place(rule.target.characters if rule.target else None),
        )
        yield DocumentFinding(rule.kind, rule.reason, rule.probability, *places, _at(target, places[1]))
    if not (findings := findings[len(by_rule) :]):
        return
    kind = max(verdict.flagged, key=lambda cause: getattr(verdict, cause))
    omission = next((finding.source.characters for finding in findings if finding.source), None)
    addition = next((finding.target.characters for finding in findings if finding.target), None)
    places = source.place(omission), target.place(addition)
    reasons = []
    for finding in findings[:4]:
        span, side = (finding.source, source) if finding.source else (finding.target, target)
        words = _quoted(side.text[slice(*span.characters)]) if span else ""
        reasons.append(f"{finding.kind} {words}: {finding.reason}" if words else finding.reason)
    yield DocumentFinding(kind, "; ".join(reasons), verdict.wrong, *places, _at(target, places[1]))


def _at(target: SegmentSide, place: Place) -> Segment:
    """Return the target segment of a position."""
    return next((part for part in target.segments if part.line == place.line), target.segments[0])


def whole_segment(source: SegmentSide, target: SegmentSide, near: Segment | None) -> DocumentFinding:
    """Return the finding on segments that only one document has; `near` is the next target segment."""
    if not source.segments:
        segment = target.segments[0]
        reason = f"added: the source has no {segment.kind} {_quoted(target.text)}"
        return DocumentFinding("added", reason, _SURE["added"], None, target.place(), segment)
    segment = source.segments[0]
    reason = f"left out: the whole {segment.kind} {_quoted(source.text)}"
    place = Place(target.file, near.line if near else 1, segment.key, "")
    return DocumentFinding("missing", reason, _SURE["missing"], source.place(), place, near)


def _quoted(text: str) -> str:
    return f"“{text}”" if len(text) <= _SHOWN else f"“{text[:_SHOWN].rstrip()}…”"


def _other_placeholders(source: SegmentSide, target: SegmentSide) -> str | None:
    """Return a reason with the placeholders and tags that differ in a bilingual file; None if all match."""
    if not any(one.kind == "entry" for one in source.segments) or not target.segments:
        return None
    texts = (" ".join(one.raw or one.text for one in side.segments) for side in (source, target))
    difference = compare_placeholders(*texts)
    if difference is None:
        return None
    lost, new = difference
    messages = [f"{lost[0]} is missing" if lost else "", f"{new[0]} is not in the source" if new else ""]
    return f"wrong placeholders: {', and '.join(filter(None, messages))}"


# ---- forms ----


def finding_lines(findings: Iterable[DocumentFinding]) -> Iterator[str]:
    """Yield a header and a line per finding, with tabs between the columns."""
    yield "\t".join(_COLUMNS)
    for finding in findings:
        sides = (str(side) if side else "-" for side in (finding.source, finding.target))
        row = finding.id, f"{finding.probability:.4f}", finding.kind, *sides, finding.reason
        yield "\t".join(" ".join(cell.split()) for cell in row)


def sarif(findings: Iterable[DocumentFinding]) -> str:
    """Return findings as SARIF 2.1.0, with the fields that GitHub code scanning needs
    (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
    """
    from hf_attncal._version import __version__

    rules = [
        {
            "id": name,
            "name": "".join(part.title() for part in name.split("_")),
            "shortDescription": {"text": text},
            "fullDescription": {"text": text},
            "help": {
                "text": f"{text} If the translation is right, add the line of the finding to the file of --dismiss."
            },
            "defaultConfiguration": {"level": "warning"},
            "properties": {"precision": "high" if name in ("missing", "added") else "medium", "tags": ["translation"]},
        }
        for name, text in FINDING_KINDS.items()
    ]
    driver = {"name": "attncal", "version": __version__, "semanticVersion": __version__, "rules": rules}
    results = [_result(one, list(FINDING_KINDS).index(one.kind)) for one in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=1)


def _result(finding: DocumentFinding, rule: int) -> dict[str, Any]:
    places = [place for place in (finding.target, finding.source) if place is not None]
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": "error" if finding.probability >= _ERROR_ABOVE else "warning",
        "message": {"text": finding.reason},
        "locations": [_location(places[0])],
        "partialFingerprints": {"attncal/v1": finding.id},
        "rank": round(100 * finding.probability, 1),
        "properties": {"probability": round(finding.probability, 4)},
    }
    if len(places) > 1:
        result["relatedLocations"] = [{"id": 1, "message": {"text": "the source"}} | _location(places[1])]
    return result


def _location(place: Place) -> dict[str, Any]:
    uri = quote(os.path.relpath(place.file) if os.path.isabs(place.file) else place.file)
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": place.line}}
    return {"physicalLocation": physical} | ({"logicalLocations": [{"name": place.key}]} if place.key else {})


def notes_of(findings: Iterable[DocumentFinding]) -> list[tuple[int, list[str]]]:
    """Return the notes of findings as `(byte, lines)`, in the order of the file."""
    notes: dict[int, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.at is not None:
            notes[finding.at.at].append(
                f"attncal {finding.id}: {' '.join(finding.reason.split())} ({finding.probability:.2f})"
            )
    return sorted(notes.items())


# ---- dismissed findings ----


def dismissed_ids(file: str | Path) -> frozenset[str]:
    """Read the ids of dismissed findings, from lines of `--format tsv` or `--format json`.

    Empty lines and lines that begin with # are skipped.

    Raises:
        CommandError: A line has no id.
    """
    ids = set()
    for number, line in enumerate(read_lines(file), start=1):
        line = line.strip()
        if not line or line.startswith(("#", "id\t")):
            continue
        try:
            name = json.loads(line)["id"] if line.startswith("{") else line.split()[0]
        except (ValueError, KeyError, TypeError):
            name = ""
        if not (isinstance(name, str) and len(name) == 12 and set(name) <= set("0123456789abcdef")):
            raise CommandError(
                f"line {number} of {file} has no id of a finding, such as 3f0c9a1b22de. "
                "Copy lines of --format tsv or json into it."
            )
        ids.add(name)
    return frozenset(ids)


# ---- exit status for continuous integration ----


class FindingsError(CommandError):
    """Error for findings above the bar.

    Args:
        message: Number of the findings, and the first one.
        findings: The findings.
    """

    exit_status = 1

    def __init__(self, message: str, findings: tuple[DocumentFinding, ...]):
        super().__init__(message)
        self.findings = findings


def raise_above(findings: Iterable[DocumentFinding], bar: float | None) -> None:
    """Raise FindingsError if a finding is more probable than the bar; None for no bar."""
    above = () if bar is None else tuple(one for one in findings if one.probability > bar)
    if above:
        first = above[0]
        raise FindingsError(
            f"{len(above)} finding{'s' * (len(above) > 1)} above {bar}, the first at "
            f"{first.target or first.source}: {first.reason}",
            above,
        )


@contextmanager
def errors_exit_apart(bar: float | None) -> Iterator[None]:
    """Set the exit status of errors to 2 if findings have the status 1."""
    try:
        yield
    except Exception as error:
        if bar is not None and not isinstance(error, FindingsError):
            vars(error)["exit_status"] = _ERROR_STATUS
        raise
